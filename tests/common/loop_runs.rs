//! Runs of loop programs on every target of this processor, on one and two threads.

use super::host_targets;
use std::sync::Arc;
use tilewright::internal::language;
use tilewright::{Model, Options, Session, Stage, Tensor};

pub fn model(text: &str) -> Model {
    let file = language::parse("p.tile", text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Model::from_program(file, None, None).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// The loops of a program.
pub fn loops(text: &str) -> String {
    model(text).explain(&Options::default(), Stage::Loops, None).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// The error with which a program is refused.
pub fn refusal(text: &str) -> String {
    let compiled = language::parse("p.tile", text).and_then(|f| Model::from_program(f, None, None));
    match compiled.and_then(|m| m.compile_module(&Options::default())) {
        Ok(_) => panic!("{text}"),
        Err(e) => e.to_string(),
    }
}

/// Outputs of each target on one thread and on two.
pub fn results(text: &str, given: &[(&str, &Tensor)]) -> Vec<tilewright::Result<Vec<Tensor>>> {
    let (model, mut out) = (model(text), vec![]);
    for target in host_targets() {
        let options = Options { target: Some(target), ..Options::default() };
        let module = Arc::new(model.compile_module(&options).unwrap_or_else(|e| panic!("{e}\n{text}")).0);
        out.extend([1, 2].map(|threads| Session::new(module.clone(), threads).unwrap().run(given)));
    }
    out
}

pub fn i32s(values: &[i32]) -> Tensor {
    Tensor::new(&[values.len() as i64], values)
}

/// Runs a program whose outputs are `expected`, in their order.
pub fn check(text: &str, given: &[(&str, &Tensor)], expected: &[&[i32]]) {
    for result in results(text, given) {
        let outputs = result.unwrap_or_else(|e| panic!("{e}\n{text}"));
        let outputs: Vec<Vec<i32>> = outputs.iter().map(|t| t.to_vec()).collect();
        assert_eq!(outputs, expected, "{text}");
    }
}
