//! Program to Scop: inlining, reductions split, dimensions merged.
