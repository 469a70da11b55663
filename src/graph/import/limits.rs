//! Bounds of what an import may compute and keep.

/// Bounds of what an import may compute and keep; weights of the file are counted by their own size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImportLimits {
    /// Bytes of the constants that are computed, on top of four times the weights.
    pub constant_bytes: u64,
    /// Element operations that computing constants takes.
    pub constant_work: u64,
    /// Nodes of graphs inside of nodes, each time of a loop counted that is written out.
    pub nodes: usize,
}

impl Default for ImportLimits {
    fn default() -> ImportLimits {
        ImportLimits { constant_bytes: 512 << 20, constant_work: 1 << 33, nodes: 1 << 16 }
    }
}
