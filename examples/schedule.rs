//! Writes a matrix product and a schedule for it in Rust, prints both as a `.tile` file, and compares the schedule's result
//! with that of the order that the integer program finds: `cargo run --release --example schedule`.

use tilewright::builder::{array, def, name};
use tilewright::{DType::F32, Model, Options, Result, Tensor};

pub fn main() -> Result<()> {
    let (m, n, k) = (name("m"), name("n"), name("k"));
    let (a, b, c) = (array("A"), array("B"), array("C"));
    let file = def("gemm")
        .input(F32, "A", ("M", "K"))
        .input(F32, "B", ("K", "N"))
        .output("C")
        .sizes("SMALL", &[("M", 48), ("N", 64), ("K", 32)])
        .equation(c.at((m, n)), "+=!", a.at((m, k)) * b.at((k, n)))
        .schedule("tiled", |primitives| {
            primitives
                .distribute(["C_init", "C"], "m")
                .tile(("C", ["m", "n"]), [8, 32], ["mo", "no", "mi", "ni"])
                .reorder(("C", ["mo", "no", "k", "mi", "ni"]))
                .unroll("mi")
                .vectorize("ni")
                .parallel("mo")
        })
        .build()?;
    println!("{file}");

    let (a, b) = (Tensor::seeded(F32, &[48, 32], 0, 0, 2), Tensor::seeded(F32, &[32, 64], 0, 1, 2));
    let inputs = [("A", &a), ("B", &b)];
    let model = Model::from_program(file, None, Some("SMALL"))?;
    let chosen = model.compile(&Options::default())?.run(&inputs)?;
    let tiled = model.with_schedule("tiled")?.compile(&Options::default())?.run(&inputs)?;
    let pairs = || chosen[0].to_vec::<f32>().into_iter().zip(tiled[0].to_vec::<f32>());
    let difference = pairs().map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    println!("largest difference {difference:e}");
    assert!(difference < 1e-4);
    Ok(())
}
