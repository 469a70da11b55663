//! Fusion of two operators: the ways in which a reader may run in the kernel of its producer.
//!
//! In: an operator that makes a value, an operator that reads it. Out: the ways to put both into one kernel. The extraction
//! has a variable for each way of each pair and chooses; nothing else decides what is fused.

use crate::expr::{Affine, Var};
use crate::graph::op::{FusionKind, Layout, Op, ReduceOp};
use crate::graph::tensor_type::TensorType;

/// Largest number of input channels of a convolution that reads its input through a transposition. Unmeasured.
const MAX_TRANSPOSED_CHANNELS: i64 = 4;

/// The role of a reader in one kernel with its producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Join {
    pub way: Way,
    pub stored: Stored,
    /// The producer's work is done more than once for an element.
    pub repeats: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    /// The reader runs in the producer's kernel, element by element after it.
    After,
    /// The producer runs in the reader's kernel, before it.
    Before,
}

/// The memory of the value between them: whether it is also stored for other readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    Maybe,
    Never,
    /// It must: it is read more than once and expensive.
    Always,
}

/// The ways to put the producer of operand `position` of `reader` into one kernel with it; `value` is the operand's type.
pub fn joins(producer: &Op, value: &TensorType, reader: &Op, position: usize, result: &TensorType) -> Vec<Join> {
    let mut list = vec![];
    let mut add = |way, stored, repeats| list.push(Join { way, stored, repeats });
    let same = reader.is_elementwise() && value.shape == result.shape;
    // Readers of a concatenation are computed part by part.
    if matches!(producer, Op::Concat { .. }) && same {
        add(Way::After, Stored::Maybe, false);
    }
    // Written in parts or in blocks, or no kernel at all: a reader cannot substitute them.
    let parts = matches!(producer, Op::Concat { .. } | Op::Upsample { .. } | Op::Unblock { .. } | Op::Reshape { .. });
    let scatters = matches!(producer, Op::ScatterElements { .. } | Op::ScatterNd { .. });
    let apart = matches!(producer, Op::Table) || matches!(reader, Op::Table);
    if parts || scatters || apart || producer.kind() == FusionKind::Opaque {
        return list;
    }
    match reader {
        _ if same => add(Way::After, Stored::Maybe, false),
        Op::Transpose { perm } if keeps_rows(perm) => add(Way::After, Stored::Never, false),
        _ => {}
    }
    if producer.kind() != FusionKind::Injective {
        return list;
    }
    let repeats = result.elements() > value.elements();
    match reader {
        Op::Reshape { .. } => {}
        op if op.is_gather() => {}
        _ if same => add(Way::Before, Stored::Maybe, false),
        op if op.kind() == FusionKind::Injective && !(repeats && producer.is_expensive()) => {
            add(Way::Before, Stored::Never, repeats)
        }
        op => {
            if let (0, true, Some(stored)) = (position, producer.is_elementwise(), before_reduction(op, producer)) {
                add(Way::Before, stored, false);
            }
        }
    }
    list
}

/// Returns the place of the value if an elementwise operator may run before a reduction in its kernel.
pub fn before_reduction(reduction: &Op, producer: &Op) -> Option<Stored> {
    match reduction {
        Op::Reduce { op: ReduceOp::Sum | ReduceOp::Mean | ReduceOp::SumSquare, .. } => Some(Stored::Never),
        Op::Reduce { .. } => (!producer.is_expensive()).then_some(Stored::Never),
        Op::Softmax { .. } | Op::LayerNorm { .. } if producer.is_expensive() => Some(Stored::Always),
        Op::Softmax { .. } | Op::LayerNorm { .. } => Some(Stored::Maybe),
        _ => None,
    }
}

/// Copies that a reader can read through: they then have no kernel at all.
pub fn is_view(op: &Op) -> bool {
    matches!(op, Op::Transpose { .. } | Op::Slice { .. } | Op::Expand { .. })
}

/// Returns true if `reader` may read operand `position` through the view that makes it.
pub fn reads_through(view: &Op, value: &TensorType, reader: &Op, position: usize) -> bool {
    match reader {
        Op::MatMul { .. } => true,
        Op::Conv { group, layout, .. } => {
            let channels = match layout {
                Layout::Nchw => value.shape[1],
                Layout::Nhwc => value.shape[value.shape.len() - 1],
                Layout::Blocked(_) => return false,
            };
            let permutes = matches!(view, Op::Transpose { .. });
            position == 0 && (!permutes || (*group == 1 && channels <= MAX_TRANSPOSED_CHANNELS))
        }
        _ => false,
    }
}

fn keeps_rows(perm: &[usize]) -> bool {
    perm.last() == Some(&(perm.len() - 1))
}

/// The subscripts of the old shape as affine forms of the new one's, when each new dimension lies within an old one.
pub fn affine_reshape(from: &[i64], to: &[i64]) -> Option<Vec<Affine>> {
    let mut next = 0;
    let mut subscripts = Vec::with_capacity(from.len());
    for &extent in from {
        let first = next;
        let mut covered = 1;
        while covered < extent {
            covered = covered.checked_mul(*to.get(next)?)?;
            next += 1;
        }
        if covered != extent {
            return None;
        }
        let mut stride = 1;
        let mut subscript = Affine::default();
        for d in (first..next).rev() {
            if to[d] != 1 {
                subscript = subscript.plus(Var(d as u32), stride);
            }
            stride *= to[d];
        }
        subscripts.push(subscript);
    }
    to[next..].iter().all(|&e| e == 1).then_some(subscripts)
}
