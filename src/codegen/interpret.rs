//! The interpreter of LoopNest: what a nest means.
