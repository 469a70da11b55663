//! Tests that hold machine code to the VCode interpreter, one table of cases for every instruction set.

mod approximations;
mod arguments;
mod cases;
mod emission;
#[path = "../../../tests/emulator/mod.rs"]
mod emulator;
mod floor_divisions;
mod integers;
mod interleaved;
mod masked;
mod native;
mod program;
mod qemu;
mod quotients;
mod random;
mod registers;
mod scheduling;
mod shifts;
mod tables;
mod text;
