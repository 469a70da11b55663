//! Loads an ONNX file, compiles it for this processor, runs it on a seeded image, prints the five best classes:
//! `cargo run --release --example classify [MODEL.onnx]`.

use tilewright::{Dim, Model, Options, Result, Tensor};

fn main() -> Result<()> {
    classify(&std::env::args().nth(1).unwrap_or_else(|| "datasets/networks/squeezenet1_1.onnx".into()))
}

/// The first input is the image; dynamic dimensions have extent 1.
pub fn classify(path: &str) -> Result<()> {
    let model = Model::load(path)?;
    let compiled = model.compile(&Options::default())?;
    let input = &model.inputs()[0];
    let extent = |dim: &Dim| if let Dim::Fixed(n) = dim { *n } else { 1 };
    let shape: Vec<i64> = input.shape.iter().map(extent).collect();
    let image = Tensor::seeded(input.dtype, &shape, 0, 0, 2);
    let outputs = compiled.run(&[(&input.name, &image)])?;
    let scores = outputs[0].to_vec::<f32>();
    let mut classes: Vec<usize> = (0..scores.len()).collect();
    classes.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    for class in classes.iter().take(5) {
        println!("class {class}: {}", scores[*class]);
    }
    Ok(())
}
