//! Memory plan: every buffer of a run at a fixed offset of one arena.
