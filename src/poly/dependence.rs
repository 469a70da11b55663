//! Exact dependences of a Scop.
