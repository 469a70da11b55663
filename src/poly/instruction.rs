//! The table of tensor instructions and the matcher.
