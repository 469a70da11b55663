//! Opaque operators: plain functions for what no affine expression can say.
