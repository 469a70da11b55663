//! LoopNest to LoopNest: conditions become loop bounds, loops are split where a guard changes.
