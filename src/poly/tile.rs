//! Tiles and the register block, from a model of the target's caches and ports.
