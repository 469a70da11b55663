//! Builds a network of two layers in Rust, prints it before and after the rewriting, runs it:
//! `cargo run --release --example graph`.

use tilewright::{DType, GraphBuilder, Model, Options, Result, Stage, Tensor};

pub fn main() -> Result<()> {
    let mut b = GraphBuilder::new("two_layers");
    let image = b.input("image", DType::F32, &[1, 3, 16, 16]);
    let filters = b.constant(Tensor::seeded(DType::F32, &[8, 3, 3, 3], 0, 1, 2));
    let convolved = b.conv2d(image, filters, 2, 1)?;
    let active = b.relu(convolved)?;
    let flat = b.reshape(active, &[1, 8 * 8 * 8])?;
    let weights = b.constant(Tensor::seeded(DType::F32, &[8 * 8 * 8, 4], 0, 2, 2));
    let scores = b.matmul(flat, weights)?;
    let probabilities = b.softmax(scores, 1)?;
    b.output("probabilities", probabilities)?;

    let model = Model::from_graph(b.build()?);
    let options = Options::default();
    println!("{}", model.explain(&options, Stage::Graph, None)?);
    println!("{}", model.explain(&options, Stage::Rewritten, None)?);
    let image = Tensor::seeded(DType::F32, &[1, 3, 16, 16], 0, 0, 2);
    let outputs = model.compile(&options)?.run(&[("image", &image)])?;
    let probabilities = outputs[0].to_vec::<f32>();
    println!("{probabilities:?}");
    assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    Ok(())
}
