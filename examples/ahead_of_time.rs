//! Compiles a model ahead of time: saves a module for each target, loads the one for this processor, runs it. The part that
//! loads and runs needs only the package `tilewright-runtime`: `cargo run --release --example ahead_of_time`.

use tilewright::{Error, Model, Module, Options, Result, Session, Target, Tensor};

pub fn main() -> Result<()> {
    let model = Model::load("tests/fixtures/operators/conv_batch_norm_relu.onnx")?;
    let folder = std::env::temp_dir().join(format!("tilewright-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| Error::Io(e.to_string()))?;
    for target in Target::all().into_iter().chain(Target::host()) {
        let path = folder.join(format!("{}.tw", target.name));
        let (module, report) = model.compile_module(&Options { target: Some(target), ..Options::default() })?;
        module.save(&path)?;
        println!("{}: {} bytes of code", path.display(), report.code_bytes);
    }

    if let Some(target) = Target::host() {
        // SAFETY: the loop above wrote the file, and nobody changes it.
        let module = unsafe { Module::load(folder.join(format!("{}.tw", target.name))) }?;
        let image = &module.inputs()[0];
        let image = Tensor::seeded(image.dtype, &image.shape, 0, 0, 2);
        let session = Session::new(module.into(), 1)?;
        let outputs = session.run(&[("x", &image)])?;
        println!("{:?}: {:?} …", outputs[0].shape, &outputs[0].to_vec::<f32>()[..4]);
    }
    std::fs::remove_dir_all(&folder).map_err(|e| Error::Io(e.to_string()))
}
