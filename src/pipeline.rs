//! The whole way, stage by stage.
