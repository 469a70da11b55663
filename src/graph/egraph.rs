//! Graph to e-graph and back.
