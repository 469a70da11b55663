//! From a tensor expression or a loop program to the Scop that is scheduled: fewest statements, fewest dimensions.

pub mod array_expansion;
pub mod build;
#[cfg(test)]
mod build_tests;
pub mod coalesce;
pub mod distance_split;
pub mod domain_split;
pub mod half_sums;
pub mod index_set_split;
pub mod loop_division;
pub mod mixed_radix;
pub mod reassociate;
pub mod residue;
pub mod rounding;
pub mod statement_split;
pub mod textual_order;
