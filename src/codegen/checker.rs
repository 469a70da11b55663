//! Proves a register allocation by abstract interpretation.
