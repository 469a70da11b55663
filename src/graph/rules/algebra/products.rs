//! Products that share an operand, factors out of products, pools that are reductions.

use crate::expr::BinaryOp;
use crate::graph::egraph::network::{Head, Network};
use crate::graph::op::{Layout, Op, PoolKind, ReduceOp};
use crate::graph::rules::algebra::arithmetic::is_real;
use crate::graph::rules::algebra::weights::transposes;
use crate::graph::rules::pattern::Match;
use egg::Id;

/// (x·s)·w = (x·w)·s for a number s: after the product it is an epilogue.
pub fn scalar_out_of_product(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    let (x, s) = (m.get('x'), m.get('s'));
    if network.shape(s).iter().any(|&e| e != 1) || [x, m.get('w')].iter().any(|&o| network.is_constant(o)) {
        return None;
    }
    let position = operands.iter().position(|&o| network.find(o) != network.find(m.get('w')))?;
    let mut operands = operands.to_vec();
    operands[position] = x;
    let product = network.op(op.clone(), &operands)?;
    let number = network.reshape(s, &[])?;
    network.binary(BinaryOp::Mul, product, number)
}

/// A transposed operand is read transposed, when what remains of the permutation keeps rows contiguous.
fn untransposed(network: &mut Network, perm: &[usize], x: Id, constant: bool) -> Option<Id> {
    let mut swapped = perm.to_vec();
    let r = swapped.len();
    swapped.swap(r - 2, r - 1);
    let improves = swapped[r - 1] == r - 1 && perm[r - 1] != r - 1;
    (improves && !constant).then(|| network.transpose(x, &swapped))?
}

pub fn matmul_transposed_a(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Transpose { perm } = m.application('p').0 else { return None };
    let (transpose_a, transpose_b) = transposes(m.application('m').0);
    let a = untransposed(network, perm, m.get('x'), network.is_constant(m.get('x')))?;
    network.op(Op::MatMul { transpose_a: !transpose_a, transpose_b }, &[a, m.get('w')])
}

pub fn matmul_transposed_b(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Transpose { perm } = m.application('p').0 else { return None };
    let (transpose_a, transpose_b) = transposes(m.application('m').0);
    let b = untransposed(network, perm, m.get('w'), network.is_constant(m.get('w')))?;
    network.op(Op::MatMul { transpose_a, transpose_b: !transpose_b }, &[m.get('x'), b])
}

/// Products of one operand with several constant matrices are one product with their concatenation, in slices.
pub fn matmul_shared_input(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    let siblings = products_of(network, operands[0], op);
    let position = siblings.iter().position(|s| s.class == network.find(m.class))?;
    if siblings.iter().all(|s| s.bias.is_some()) {
        return None;
    }
    let whole = merged_product(network, op, operands[0], &siblings)?;
    columns(network, whole, &siblings, position)
}

/// As above with a bias for each product: the sum is sliced.
pub fn matmul_shared_input_bias(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.application('m');
    let siblings = products_of(network, operands[0], op);
    let matches = |s: &Product| s.bias.is_some_and(|(sum, _)| sum == network.find(m.class));
    let position = siblings.iter().position(matches)?;
    let parts: Option<Vec<Id>> = siblings.iter().map(|s| s.bias.map(|b| b.1)).collect();
    let parts = parts?;
    let whole = merged_product(network, op, operands[0], &siblings)?;
    let bias = network.op(Op::Concat { axis: 0 }, &parts)?;
    let sum = network.binary(BinaryOp::Add, whole, bias)?;
    columns(network, sum, &siblings, position)
}

fn merged_product(network: &mut Network, op: &Op, x: Id, siblings: &[Product]) -> Option<Id> {
    if siblings.len() < 2 || network.is_constant(x) {
        return None;
    }
    let axis = if transposes(op).1 { 0 } else { 1 };
    let weights: Vec<Id> = siblings.iter().map(|s| s.weights).collect();
    let weights = network.op(Op::Concat { axis }, &weights)?;
    network.op(op.clone(), &[x, weights])
}

fn columns(network: &mut Network, whole: Id, siblings: &[Product], position: usize) -> Option<Id> {
    let mut ends = network.shape(whole).to_vec();
    let rank = ends.len();
    let mut starts = vec![0; rank];
    starts[rank - 1] = siblings[..position].iter().map(|s| s.columns).sum();
    ends[rank - 1] = starts[rank - 1] + siblings[position].columns;
    network.op(Op::Slice { starts, ends, steps: vec![1; rank] }, &[whole])
}

struct Product {
    class: Id,
    weights: Id,
    columns: i64,
    /// The class of the sum with a bias vector, and the vector.
    bias: Option<(Id, Id)>,
}

/// The products `op(x, constant)` in the order in which they were added, without those made of others.
fn products_of(network: &Network, x: Id, op: &Op) -> Vec<Product> {
    let x = network.find(x);
    let mut out: Vec<Product> = vec![];
    let mut parents: Vec<Id> = network.egraph[x].parents().collect();
    parents.sort_unstable();
    for parent in parents {
        let term = network.egraph.id_to_node(parent);
        let class = network.find(parent);
        let same = matches!(&term.head, Head::Op(o) if o == op);
        if !same || network.find(term.children[0]) != x || out.iter().any(|p| p.class == class) {
            continue;
        }
        let weights = network.find(term.children[1]);
        // Only matrices that the graph came with: merged ones are concatenations, scaled ones are products.
        if network.value(weights).is_none() || network.rank(weights) != 2 {
            continue;
        }
        let columns = *network.shape(class).last().expect("a matrix product has columns");
        let bias = network.egraph[class].parents().find_map(|p| {
            let term = network.egraph.id_to_node(p);
            let sum = matches!(term.head, Head::Op(Op::Binary(BinaryOp::Add)));
            let other = term.children.iter().map(|&c| network.find(c)).find(|&c| c != class)?;
            let vector = sum && network.is_constant(other) && network.shape(other) == [columns];
            vector.then_some((network.find(p), other))
        });
        out.push(Product { class, weights, columns, bias });
    }
    out
}

/// A window that covers the whole image once is a reduction.
pub fn whole_pool(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Pool { kind, window, layout } = m.application('p').0 else { return None };
    let shape = network.shape(m.get('x')).to_vec();
    let spatial = match layout {
        Layout::Nchw => 2..shape.len(),
        Layout::Nhwc => 1..shape.len() - 1,
        Layout::Blocked(_) => return None,
    };
    let axes: Vec<usize> = spatial.collect();
    let padded = window.pad_before.iter().chain(&window.pad_after).any(|&p| p != 0);
    let covers = axes.iter().enumerate().all(|(i, &d)| window.kernel[i] == shape[d] && window.dilation[i] == 1);
    if padded || !covers || !is_real(network, m.class) {
        return None;
    }
    let op = if *kind == PoolKind::Max { ReduceOp::Max } else { ReduceOp::Mean };
    network.op(Op::Reduce { op, axes, keep: true }, &[m.get('x')])
}
