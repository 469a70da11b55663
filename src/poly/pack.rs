//! Packed copies of operands.
