//! The operator table: each operator as a tensor expression.
