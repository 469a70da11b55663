//! What a node costs on a target, in nanoseconds.
