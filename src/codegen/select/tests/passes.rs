//! Passes over nests before selection.

use super::check;
use crate::codegen::loopnest::{LoopNest, Stmt, parse, verify};

/// The text of a nest behind `after`, on one line, when a pass has run. The nest does the same before and after it, on every target.
pub fn passed(text: &str, pass: impl Fn(&mut LoopNest, Vec<Stmt>) -> Vec<Stmt>, after: &str) -> String {
    let mut nest = parse::nest(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    check(&nest, 3);
    let body = std::mem::take(&mut nest.body);
    nest.body = pass(&mut nest, body);
    verify::verify(&nest).unwrap_or_else(|e| panic!("{e}\n{nest}"));
    check(&nest, 3);
    let text = nest.to_string();
    assert_eq!(parse::nest(&text).unwrap().to_string(), text);
    text.split_once(after).map_or(text.clone(), |t| t.1.split_whitespace().collect::<Vec<_>>().join(" "))
}
