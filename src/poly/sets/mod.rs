//! Integer sets: polyhedra, their generators, and isl for exact answers. Knows no statement.

pub mod answers;
pub mod generators;
pub mod isl;
pub mod polyhedron;
