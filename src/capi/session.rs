//! Sessions: compiled models that are ready to run.

use crate::handle::Table;
use crate::options::options;
use crate::status::Failure;
use crate::tensor::Description;
use std::path::Path;
use std::sync::Arc;
use tilewright::{File, Model, Module, Session};

/// The sessions of a program.
pub static SESSIONS: Table<ReadySession> = Table::new(2, "a session");

/// A session, and what its inputs and outputs are.
pub struct ReadySession {
    pub session: Session,
    pub inputs: Vec<Description>,
    pub outputs: Vec<Description>,
}

/// Compiles a file: a program of the text language where it ends with `.tile`, an ONNX file otherwise. `program` and `sizes` are names
/// in the text; without them the first is taken.
///
/// # Errors
/// Those of the library, `NoHandle`.
pub fn compile(path: &str, program: Option<&str>, sizes: Option<&str>, options_handle: u64) -> Result<u64, Failure> {
    let is_program = Path::new(path).extension().is_some_and(|extension| extension == "tile");
    let model = match is_program {
        true => Model::from_program(File::load(path)?, program, sizes)?,
        false if program.is_some() || sizes.is_some() => {
            return Err(Failure::invalid(format!("{path} is not a .tile file: it has no programs and sets of sizes")));
        }
        false => Model::load(path)?,
    };
    compile_model(&model, options_handle)
}

/// Compiles the bytes of an ONNX file.
///
/// # Errors
/// Those of the library, `NoHandle`.
pub fn compile_bytes(bytes: &[u8], options_handle: u64) -> Result<u64, Failure> {
    compile_model(&Model::parse(bytes, ".")?, options_handle)
}

fn compile_model(model: &Model, options_handle: u64) -> Result<u64, Failure> {
    let options = options(options_handle)?;
    let (module, _) = model.compile_module(&options)?;
    add(module, options.threads)
}

/// Makes a module ready to run.
///
/// # Errors
/// Those of the library.
pub fn add(module: Module, threads: usize) -> Result<u64, Failure> {
    if module.bindings().count() > 1 || module.bounds().is_some() {
        return Err(Failure::invalid(format!(
            "module `{}` has several sizes of its dynamic dimensions: compile it for one",
            module.name()
        )));
    }
    let session = Session::new(Arc::new(module), threads)?;
    let describe = |specs: Vec<&tilewright::module::TensorSpec>| -> Result<Vec<Description>, Failure> {
        specs.into_iter().map(|spec| Ok(Description::new(spec)?)).collect()
    };
    let inputs = describe(session.module().inputs().iter().collect())?;
    let outputs = describe(session.module().outputs().iter().map(|output| &output.tensor).collect())?;
    SESSIONS.add(ReadySession { session, inputs, outputs })
}
