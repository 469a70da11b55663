//! The language of all stages: affine forms, scalar expressions, their meaning, intervals, and expressions as they are
//! written.

pub mod affine;
pub mod choice;
pub mod dynamic_bounds;
pub mod expression;
pub mod float_interval;
pub mod interval;
pub mod literals;
pub mod logic;
pub mod narrow;
pub mod piecewise;
pub mod scalar;
pub mod syntax;
pub mod text;

pub use affine::{Affine, Bound, Var};
pub use expression::{Access, BinaryOp, BufferId, CompareOp, Expr, Index, Scalar, UnaryOp};
pub use literals::Literals;
