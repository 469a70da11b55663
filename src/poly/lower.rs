//! Schedule to LoopNest.
