//! The public API: load, compile, run.
