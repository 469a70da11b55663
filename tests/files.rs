//! ONNX files of every kind, made in the tests: functions, graphs inside of nodes, shapes that depend on values or data.

mod common;
#[path = "files/contents.rs"]
mod contents;
#[path = "files/growth.rs"]
mod growth;
#[path = "files/initializers.rs"]
mod initializers;
#[path = "files/integers.rs"]
mod integers;
#[path = "files/onnx.rs"]
mod onnx;
#[path = "files/shapes.rs"]
mod shapes;
#[path = "files/staged.rs"]
mod staged;
#[path = "files/staged_memory.rs"]
mod staged_memory;
