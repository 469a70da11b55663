//! Tests that hold machine code to the VCode interpreter, one table of cases for every instruction set.

mod cases;
mod emulated;
mod native;
mod program;
mod random;
