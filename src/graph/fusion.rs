//! Fusion: which nodes end in one kernel.
