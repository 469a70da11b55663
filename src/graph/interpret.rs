//! The reference interpreter: evaluates tensor expressions.
