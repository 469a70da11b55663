//! The front half: from ONNX over Graph, rewrites and extraction to fusion groups.

pub mod builder;
pub mod content;
pub mod copy;
pub mod cost;
pub mod define;
mod disjoint_sets;
pub mod egraph;
pub mod extract;
pub mod fold;
pub mod fusion;
pub mod import;
pub mod infer;
pub mod interpret;
pub mod ir;
pub mod op;
pub mod price;
pub mod proto;
pub mod row_blocks;
pub mod rules;
pub mod subgraph;
pub mod synthetic;
pub mod tensor_type;
pub mod text;
pub mod value;
