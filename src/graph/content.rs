//! The contents of graphs and model files as a hash, by which what was compiled of them is found again.
//!
//! Invariant: every part is hashed with its length, so that different sequences of parts are different bytes. Large parts are
//! hashed in pieces on several threads; the hash does not depend on their number.

use crate::graph::ir::{Graph, Source};
use crate::runtime::{Bytes, Tensor, threads};

/// Bytes of a piece.
const PIECE: usize = 1 << 20;

/// The hash of some contents.
pub type Hash = [u8; 32];

/// A hash of parts.
#[derive(Clone, Default)]
pub struct Hasher(blake3::Hasher);

impl Hasher {
    /// A hash of what `of` says.
    pub fn new(of: &str) -> Hasher {
        let mut hasher = Hasher::default();
        hasher.text(of);
        hasher
    }

    /// Adds a part.
    pub fn part(&mut self, bytes: &[u8]) -> &mut Hasher {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        if bytes.len() <= PIECE {
            self.0.update(bytes);
            return self;
        }
        let hashes = threads::map(bytes.chunks(PIECE), threads::cores(), blake3::hash);
        hashes.iter().for_each(|hash| _ = self.0.update(hash.as_bytes()));
        self
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) -> &mut Hasher {
        self.part(text.as_bytes())
    }

    /// Adds a part that need not stay in memory.
    pub fn bytes(&mut self, bytes: &Bytes) -> &mut Hasher {
        self.part(bytes);
        bytes.release();
        self
    }

    /// Adds element type, shape and elements.
    pub fn tensor(&mut self, tensor: &Tensor) -> &mut Hasher {
        self.text(&format!("{} {:?}", tensor.dtype, tensor.shape)).bytes(&tensor.data)
    }

    /// The hash of all parts.
    pub fn finish(&self) -> Hash {
        *self.0.finalize().as_bytes()
    }
}

impl Graph {
    /// A hash of all that the graph is.
    pub fn content(&self) -> Hash {
        let mut hasher = Hasher::new("graph");
        hasher.text(&self.name).text(&format!("{:?} {:?}", self.inputs, self.outputs));
        for value in &self.values {
            hasher.text(&value.name).text(&format!("{:?}", value.ty));
            match &value.source {
                Source::Input => hasher.text("input"),
                Source::Constant(tensor) => hasher.text("constant").tensor(tensor),
                Source::Node(node, output) => hasher.text(&format!("{node} {output}")),
            };
        }
        for node in &self.nodes {
            hasher.text(&node.name).text(&format!("{:?} {:?} {:?}", node.op, node.inputs, node.outputs));
            hasher.text(&format!("{:?}", node.origins));
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::builder::GraphBuilder;
    use crate::runtime::DType;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let hash = |parts: &[&[u8]]| {
            let mut hasher = Hasher::new("parts");
            parts.iter().for_each(|part| _ = hasher.part(part));
            hasher.finish()
        };
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_ne!(hash(&[b"ab"]), hash(&[b"ab", b""]));
        assert_ne!(Hasher::new("a").finish(), Hasher::new("b").finish());
        // each byte of a large part counts, and its length
        let large = vec![7; 2 * PIECE + 5];
        let whole = hash(&[&large]);
        assert_eq!(whole, hash(&[&large.clone()]));
        for at in [0, PIECE - 1, PIECE, 2 * PIECE, 2 * PIECE + 4] {
            let mut other = large.clone();
            other[at] = 8;
            assert_ne!(whole, hash(&[&other]), "byte {at}");
        }
        assert_ne!(whole, hash(&[&large[1..]]));
    }

    #[test]
    fn graphs_differ_by_names_attributes_origins_and_constants() {
        let graph = |name: &str, input: &str, shape: &[i64], seed: u64, axis: i64| {
            let mut b = GraphBuilder::new(name);
            let x = b.input(input, DType::F32, shape);
            let w = b.constant(Tensor::seeded(DType::F32, &[1], seed, 0, 2));
            let y = b.binary(crate::expr::BinaryOp::Add, x, w).unwrap();
            let y = b
                .op(crate::graph::op::Op::Transpose { perm: vec![axis as usize, 1 - axis as usize] }, &[y])
                .unwrap()[0];
            b.output("y", y).unwrap();
            b.build().unwrap()
        };
        let mut named = graph("g", "x", &[2, 2], 1, 0);
        named.nodes[0].origins.push("Add(y)".into());
        let graph = |name, input, shape, seed, axis| graph(name, input, shape, seed, axis).content();
        let one = graph("g", "x", &[2, 2], 1, 0);
        assert_eq!(one, graph("g", "x", &[2, 2], 1, 0));
        let others = [
            graph("h", "x", &[2, 2], 1, 0),
            graph("g", "z", &[2, 2], 1, 0),
            graph("g", "x", &[2, 4], 1, 0),
            graph("g", "x", &[2, 2], 2, 0),
            graph("g", "x", &[2, 2], 1, 1),
            // reports name them
            named.content(),
        ];
        for (i, other) in others.iter().enumerate() {
            assert!(*other != one && !others[..i].contains(other), "{i}");
        }
    }
}
