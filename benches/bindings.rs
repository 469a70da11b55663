//! Bindings of a dynamic dimension: time to the first result at each size, and memory.
//!
//! usage: bindings MODEL.onnx THREADS DIMENSION SIZE,… [OTHER=SIZE …]
//!
//! Prints a line of JSON for the loaded model, and one for each size: milliseconds until its session is ready, of the first run,
//! and of the faster of two more, and resident memory in MiB.

use std::collections::BTreeMap;
use std::time::Instant;
use tilewright::{DType, Dim, Model, Options, Tensor};

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok()).map_or(f64::NAN, |kib| kib / 1024.0)
}

fn input(dtype: DType, shape: &[i64], seed: u64) -> Tensor {
    match dtype {
        DType::I64 => Tensor::new(shape, &vec![1i64; shape.iter().product::<i64>() as usize]),
        other => Tensor::seeded(other, shape, seed, 0, 2),
    }
}

fn main() -> tilewright::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, threads, dimension, sizes, others @ ..] = &words[..] else {
        panic!("usage: bindings MODEL.onnx THREADS DIMENSION SIZE,… [OTHER=SIZE …]");
    };
    let number = |text: &str| text.parse::<i64>().expect("a number");
    let dims: BTreeMap<String, i64> =
        others.iter().filter_map(|o| o.split_once('=')).map(|(n, v)| (n.into(), number(v))).collect();
    let start = Instant::now();
    let model = Model::load(path)?;
    let threads = number(threads) as usize;
    let options = Options { threads, dims: dims.clone(), ..Options::default() };
    let compiled = model.compile(&options)?;
    println!("{{\"load_ms\": {:.1}, \"resident_mib\": {:.0}}}", start.elapsed().as_secs_f64() * 1e3, resident_mib());
    for size in sizes.split(',').map(number) {
        let extent = |dim: &Dim| match dim {
            Dim::Fixed(n) => *n,
            Dim::Symbol(name) if name == dimension => size,
            Dim::Symbol(name) | Dim::Derived(name) => dims.get(name).copied().unwrap_or(1),
        };
        let specs = model.inputs().iter().enumerate();
        let tensors: Vec<Tensor> = specs
            .map(|(i, spec)| input(spec.dtype, &spec.shape.iter().map(extent).collect::<Vec<_>>(), i as u64))
            .collect();
        let inputs: Vec<(&str, &Tensor)> = model.inputs().iter().map(|i| i.name.as_str()).zip(&tensors).collect();
        let start = Instant::now();
        let session = compiled.session(&inputs)?;
        let ready = start.elapsed().as_secs_f64() * 1e3;
        let mut times = vec![];
        for _ in 0..3 {
            let start = Instant::now();
            session.run(&inputs)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        println!(
            "{{\"size\": {size}, \"ready_ms\": {ready:.2}, \"first_run_ms\": {:.2}, \"run_ms\": {:.2}, \"resident_mib\": {:.0}}}",
            times[0],
            times[1].min(times[2]),
            resident_mib()
        );
    }
    Ok(())
}
