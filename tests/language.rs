//! The text language: texts that are wrong say where and why, trees survive printing and parsing, and what a text means is
//! what plain Rust computes.

#[path = "language/meaning.rs"]
mod meaning;
#[path = "language/round_trip.rs"]
mod round_trip;
#[path = "language/wrong_text.rs"]
mod wrong_text;
