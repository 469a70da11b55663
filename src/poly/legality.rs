//! Exact legality of a schedule, with a counterexample.
