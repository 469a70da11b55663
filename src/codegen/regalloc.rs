//! Linear-scan register allocation.
