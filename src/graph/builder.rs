//! Graphs from Rust.
