//! `tract-peer WORKLOAD.json OUTPUTS`: speaks like `tilewright bench --interactive`.

use std::io::Write;
use std::path::Path;
use std::time::Instant;
use tract_onnx::prelude::*;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = serve(&arguments[0], Path::new(&arguments[1])) {
        let words = error.to_string().lines().next().unwrap_or("no message").to_string();
        println!("{}", serde_json::json!({ "error": words }));
        std::process::exit(1);
    }
}

fn serve(workload: &str, folder: &Path) -> TractResult<()> {
    let workload: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(workload)?)?;
    let start = Instant::now();
    let mut model = tract_onnx::onnx().model_for_path(workload["path"].as_str().unwrap_or_default())?;
    let mut inputs: TVec<TValue> = tvec![];
    let names: Vec<String> = model.input_outlets()?.iter().map(|outlet| model.node(outlet.node).name.clone()).collect();
    for (position, name) in names.iter().enumerate() {
        let file = workload["inputs"][name].as_str().unwrap_or_default();
        let tensor = read(file)?;
        model.set_input_fact(position, InferenceFact::dt_shape(tensor.datum_type(), tensor.shape()))?;
        inputs.push(tensor.into());
    }
    let plan = model.into_optimized()?.into_runnable()?;
    let outputs = plan.run(inputs.clone())?;
    let prepare_ms = start.elapsed().as_secs_f64() * 1e3;
    std::fs::create_dir_all(folder)?;
    for (i, output) in outputs.iter().enumerate() {
        write(&folder.join(format!("output_{i}.npy")), output)?;
    }
    answer(&serde_json::json!({ "version": "tract 0.23.9", "prepare_ms": prepare_ms }))?;
    for line in std::io::stdin().lines() {
        let seconds: f64 = line?.trim().parse()?;
        plan.run(inputs.clone())?;
        let (mut latencies, start) = (vec![], Instant::now());
        while latencies.is_empty() || start.elapsed().as_secs_f64() < seconds {
            let begin = Instant::now();
            plan.run(inputs.clone())?;
            latencies.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        answer(&latencies)?;
    }
    Ok(())
}

fn answer(value: &impl serde::Serialize) -> TractResult<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(out.flush()?)
}

fn read(path: &str) -> TractResult<Tensor> {
    let file = npyz::NpyFile::new(std::fs::File::open(path)?)?;
    let shape: Vec<usize> = file.shape().iter().map(|&n| n as usize).collect();
    let kind = file.dtype().descr();
    Ok(match kind.as_str() {
        text if text.contains("f4") => Tensor::from_shape(&shape, &file.into_vec::<f32>()?)?,
        text if text.contains("i8") => Tensor::from_shape(&shape, &file.into_vec::<i64>()?)?,
        text if text.contains("i4") => Tensor::from_shape(&shape, &file.into_vec::<i32>()?)?,
        other => return Err(TractError::msg(format!("an input of type {other}"))),
    })
}

fn write(path: &Path, tensor: &Tensor) -> TractResult<()> {
    use npyz::WriterBuilder;
    let shape: Vec<u64> = tensor.shape().iter().map(|&n| n as u64).collect();
    let values = tensor.cast_to::<f32>()?;
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut writer = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(file).begin_nd()?;
    writer.extend(values.to_plain_array_view::<f32>()?.iter().copied())?;
    Ok(writer.finish()?)
}
