//! Load, compile, run: `cargo run --release --example classify [MODEL.onnx]`.

use tilewright::{DType, Model, Options, Result, Tensor};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "datasets/networks/squeezenet1_1.onnx".into());
    let compiled = Model::load(path)?.compile(&Options::default())?;
    let image = Tensor::seeded(DType::F32, &[1, 3, 224, 224], 0, 0, 2);
    let outputs = compiled.run(&[("x", &image)])?;
    let scores = outputs[0].to_vec::<f32>();
    let mut classes: Vec<usize> = (0..scores.len()).collect();
    classes.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    for class in &classes[..5] {
        println!("class {class}: {}", scores[*class]);
    }
    Ok(())
}
