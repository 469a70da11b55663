//! Facts of a Scop: dependences, legality of schedules, flags of loops, strides, widths of lanes, counts of operations, subscripts that are not affine,
//! reads that see no write.

pub mod access;
pub mod conditional_range;
pub mod constant_factor;
pub mod conversion;
pub mod dependence;
pub mod dynamic_loops;
pub mod element_function;
pub mod flags;
pub mod guarded_range;
pub mod index_range;
pub mod lanes;
pub mod legality;
pub mod operation_count;
pub mod quasi_affine;
pub mod unwritten;
pub mod value_range;
