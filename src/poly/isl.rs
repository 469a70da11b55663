//! The only file that touches isl.
