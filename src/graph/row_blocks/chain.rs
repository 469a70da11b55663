//! Convolutions by minimal filtering whose three kernels nothing else reads, and their parts over some rows of tiles.

use crate::graph::fusion::{Placement, kernel_of};
use crate::graph::infer::infer;
use crate::graph::ir::{Graph, Node, Source, ValueId};
use crate::graph::op::Op;
use crate::graph::tensor_type::TensorType;
use crate::runtime::{Error, Result, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The kernels of a convolution: the first axis of its image is divided.
pub struct Chain {
    pub name: String,
    /// Input transform, product and output transform with what is known of their operands, as they stand in the graph.
    pub whole: [Part; 3],
    /// Their nodes, in this order, and the reshapes between them.
    pub nodes: [usize; 5],
    /// The nodes of the last kernel after the output transform, in topological order.
    pub epilogue: Vec<usize>,
    /// Bytes of the results that a concatenation takes.
    pub copied_bytes: usize,
    step: Step,
}

/// Rows of the image along the divided axis.
#[derive(Clone, Copy)]
struct Step {
    /// Rows of the image, and of the result.
    image: i64,
    result: i64,
    /// Rows of the result of one row of tiles.
    tile: i64,
    /// Rows that one row of tiles reads.
    reach: i64,
    pad: i64,
}

/// An operator with its operands, without a graph.
#[derive(Clone)]
pub struct Part {
    pub op: Op,
    pub operands: Vec<PartOperand>,
    pub result: TensorType,
}

/// Type of an operand, and its elements where it is a constant.
#[derive(Clone)]
pub struct PartOperand {
    pub ty: TensorType,
    pub constant: bool,
    pub value: Option<Arc<Tensor>>,
}

/// The rows of a block.
pub struct Rows {
    /// Rows of the image that it reads, and of the result that it writes.
    pub image: [i64; 2],
    pub result: [i64; 2],
}

/// The convolutions of a graph that may be divided.
pub fn find(graph: &Graph, placements: &[Placement]) -> Result<Vec<Chain>> {
    let users = graph.users();
    let mut kernels: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for n in 0..graph.nodes.len() {
        if placements[n] != Placement::Through {
            kernels.entry(kernel_of(n, placements)?).or_default().push(n);
        }
    }
    let chains = (0..graph.nodes.len()).map(|n| chain(graph, &users, &kernels, n));
    Ok(chains.flatten().collect())
}

/// The convolution whose output transform is node `output`.
fn chain(graph: &Graph, users: &[Vec<usize>], kernels: &BTreeMap<usize, Vec<usize>>, output: usize) -> Option<Chain> {
    let node = |n: usize| &graph.nodes[n];
    let is_read_once = |v: ValueId| users[v.0 as usize].len() == 1 && !graph.outputs.contains(&v);
    // The node that makes the first operand of a node, where nothing else reads it.
    let under = |n: usize| match graph.value(node(n).inputs[0]).source {
        Source::Node(p, _) if is_read_once(node(n).inputs[0]) => Some(p as usize),
        _ => None,
    };
    let Op::WinogradOutput { size, dilation, .. } = &node(output).op else { return None };
    let is_reshape = |n: &usize| matches!(node(*n).op, Op::Reshape { .. });
    let after = under(output).filter(is_reshape)?;
    let product = under(after).filter(|&n| matches!(node(n).op, Op::MatMul { .. }))?;
    let before = under(product).filter(is_reshape)?;
    let input = under(before)?;
    let Op::WinogradInput { tile, pad, tiles, .. } = &node(input).op else { return None };
    let alone = |n: usize| kernels.get(&n).is_some_and(|nodes| nodes.iter().all(|m| *m == n || is_reshape(m)));
    let epilogue: Vec<usize> = kernels.get(&output)?.iter().copied().filter(|&n| n != output).collect();
    let shape = &graph.value(node(output).outputs[0]).ty.shape;
    let elementwise = |&n: &usize| {
        let Node { op, outputs, .. } = node(n);
        op.is_elementwise() && matches!(outputs[..], [v] if graph.value(v).ty.shape == *shape)
    };
    let divisible = alone(input) && alone(product) && epilogue.iter().all(elementwise);
    if !divisible || graph.constant(node(product).inputs[1]).is_none() || tiles[0] < 2 {
        return None;
    }
    let taps = graph.value(node(input).inputs[1]).ty.shape[1];
    let step = Step {
        image: graph.value(node(input).inputs[0]).ty.shape[1],
        result: size[0],
        tile: dilation[0] * tile[0],
        reach: dilation[0] * taps,
        pad: pad[0],
    };
    let members: Vec<ValueId> = epilogue.iter().chain([&output]).map(|&n| node(n).outputs[0]).collect();
    let is_concatenated = |v: &&ValueId| users[v.0 as usize].iter().any(|&n| matches!(node(n).op, Op::Concat { .. }));
    // Each block reads a row at least.
    ((tiles[0] - 1) * step.tile - step.pad < step.image).then(|| Chain {
        name: node(output).origins.first().map_or(&*node(output).name, |name| name).to_string(),
        whole: [input, product, output].map(|n| Part::of(graph, node(n))),
        nodes: [input, product, output, before, after],
        copied_bytes: members.iter().filter(is_concatenated).map(|&v| graph.value(v).ty.bytes()).sum(),
        epilogue,
        step,
    })
}

impl Part {
    fn of(graph: &Graph, node: &Node) -> Part {
        let operand = |&v: &ValueId| {
            let value = graph.constant(v).cloned();
            PartOperand { ty: graph.value(v).ty.clone(), constant: value.is_some(), value }
        };
        let operands = node.inputs.iter().map(operand).collect();
        Part { op: node.op.clone(), operands, result: graph.value(node.outputs[0]).ty.clone() }
    }

    /// Iterations that threads divide: of a transform its rows of tiles, of a product as many as they like.
    pub fn parallel_steps(&self) -> i64 {
        let (transformed, dims) = match &self.op {
            Op::WinogradInput { tiles, .. } => (&self.result.shape, tiles.len()),
            Op::WinogradOutput { size, .. } => (&self.operands[0].ty.shape, size.len()),
            _ => return i64::MAX,
        };
        transformed[dims] * transformed[dims + 1]
    }

    /// Another operator of the same kind over another first operand.
    fn over(&self, op: Op, shape: Vec<i64>) -> Result<Part> {
        let mut operands = self.operands.clone();
        operands[0].ty.shape = shape;
        let types: Vec<&TensorType> = operands.iter().map(|o| &o.ty).collect();
        let result = infer(&op, &types)?.pop();
        let result = result.ok_or_else(|| Error::Internal(format!("{op} has no result")))?;
        Ok(Part { op, operands, result })
    }
}

impl Chain {
    /// Rows of tiles.
    pub fn tile_rows(&self) -> i64 {
        match &self.whole[0].op {
            Op::WinogradInput { tiles, .. } => tiles[0],
            _ => 0,
        }
    }

    /// Bytes of the transformed image and of its products.
    pub fn transformed_bytes(&self) -> f64 {
        (self.whole[0].result.bytes() + self.whole[1].result.bytes()) as f64
    }

    /// The rows of the block of `count` rows of tiles from `first` on.
    pub fn rows(&self, first: i64, count: i64) -> Rows {
        let Step { image, result, tile, reach, pad } = self.step;
        let start = first * tile - pad;
        let end = start + (count - 1) * tile + reach;
        Rows {
            image: [start.max(0), end.clamp(1, image)],
            result: [first * tile, ((first + count) * tile).min(result)],
        }
    }

    /// Input transform, product and output transform of the block of `count` rows of tiles from `first` on.
    pub fn parts(&self, first: i64, count: i64) -> Result<Vec<Part>> {
        let wrong = || Error::Internal("a chain of other operators".into());
        let Rows { image, result } = self.rows(first, count);
        let [input, product, output] = &self.whole;
        let mut op = input.op.clone();
        let Op::WinogradInput { pad, tiles, .. } = &mut op else { return Err(wrong()) };
        // Padding is what lies before the first row that is read.
        pad[0] = image[0] - (first * self.step.tile - self.step.pad);
        tiles[0] = count;
        let dims = tiles.len();
        let mut shape = input.operands[0].ty.shape.clone();
        shape[1] = image[1] - image[0];
        let input = input.over(op, shape)?;
        let mut shape = product.operands[0].ty.shape.clone();
        shape[1] = shape[1] / self.tile_rows() * count;
        let product = product.over(product.op.clone(), shape)?;
        let mut op = output.op.clone();
        let Op::WinogradOutput { size, .. } = &mut op else { return Err(wrong()) };
        size[0] = result[1] - result[0];
        let mut shape = output.operands[0].ty.shape.clone();
        shape[dims + 1] = count;
        Ok(vec![input, product, output.over(op, shape)?])
    }
}
