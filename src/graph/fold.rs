//! Constant folding.
