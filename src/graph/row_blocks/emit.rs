//! The graph with convolutions in blocks.

use crate::graph::fusion::Placement;
use crate::graph::infer::infer;
use crate::graph::ir::{Graph, Node, Source, ValueId};
use crate::graph::op::Op;
use crate::graph::row_blocks::chain::{Chain, Rows};
use crate::graph::rules::constants::retain;
use crate::graph::tensor_type::TensorType;
use crate::runtime::{Error, Result, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A graph to which blocks are added, and from which what they replace is taken in the end.
pub struct Emitter {
    graph: Graph,
    placements: Vec<Placement>,
    /// Nodes that blocks replace.
    replaced: Vec<bool>,
    /// Nodes of the original graph that read each value.
    users: Vec<Vec<usize>>,
    /// The place of each node in the order: that of a node of the original graph.
    places: Vec<usize>,
    /// The place of the nodes that are being added.
    place: usize,
}

impl Emitter {
    pub fn new(graph: Graph, placements: Vec<Placement>) -> Emitter {
        let (nodes, users) = (graph.nodes.len(), graph.users());
        Emitter { graph, placements, replaced: vec![false; nodes], users, places: (0..nodes).collect(), place: 0 }
    }

    /// Replaces a convolution by blocks of `tile_rows` rows of tiles.
    pub fn divide(&mut self, chain: &Chain, tile_rows: i64) -> Result<()> {
        let [_, _, output, _, _] = chain.nodes;
        self.place = chain.epilogue.last().copied().unwrap_or(output);
        let members: Vec<usize> = std::iter::once(output).chain(chain.epilogue.iter().copied()).collect();
        let results: Vec<ValueId> = members.iter().map(|&n| self.graph.nodes[n].outputs[0]).collect();
        let read = |n: &usize| members.contains(n);
        let outside = |v: &&ValueId| self.graph.outputs.contains(v) || !self.users[v.0 as usize].iter().all(read);
        let stored: Vec<ValueId> = results.iter().filter(outside).copied().collect();
        let mut blocks: BTreeMap<ValueId, Vec<ValueId>> = BTreeMap::new();
        let total = chain.tile_rows();
        for first in (0..total).step_by(tile_rows as usize) {
            for (&whole, block) in
                results.iter().zip(self.block(chain, &members, first, tile_rows.min(total - first))?)
            {
                blocks.entry(whole).or_default().push(block);
            }
        }
        for n in chain.nodes.iter().chain(&chain.epilogue) {
            self.replaced[*n] = true;
        }
        for v in stored {
            let node = members[results.iter().position(|&r| r == v).unwrap_or(0)];
            let parts = blocks.remove(&v).unwrap_or_default();
            self.push(node, Op::Concat { axis: 1 }, parts, Placement::Own)?;
            // The whole is the value that the blocks replace, with its name and its readers.
            if let (Some(whole), Some(concat)) = (self.graph.values.pop(), self.graph.nodes.last_mut()) {
                concat.outputs = vec![v];
                self.graph.values[v.0 as usize].source = whole.source;
            }
        }
        Ok(())
    }

    /// The values of the members of the last kernel over the rows of one block.
    fn block(&mut self, chain: &Chain, members: &[usize], first: i64, count: i64) -> Result<Vec<ValueId>> {
        let Rows { image, result } = chain.rows(first, count);
        let [input, product, output, before, after] = chain.nodes;
        let mut parts = chain.parts(first, count)?.into_iter();
        let mut next = || parts.next().ok_or_else(|| Error::Internal("a chain has three parts".into()));
        let (input_part, product_part, output_part) = (next()?, next()?, next()?);
        let operands = |emitter: &Emitter, n: usize, first: ValueId| {
            let rest = &emitter.graph.nodes[n].inputs[1..];
            [&[first], rest].concat()
        };
        let x = self.slice(input, self.graph.nodes[input].inputs[0], 1, image)?;
        let v = self.push(input, input_part.op, operands(self, input, x), Placement::Own)?;
        let shape = product_part.operands[0].ty.shape.clone();
        let v = self.push(before, Op::Reshape { shape }, vec![v], self.placements[before])?;
        let v = self.push(product, product_part.op, operands(self, product, v), Placement::Own)?;
        let shape = output_part.operands[0].ty.shape.clone();
        let v = self.push(after, Op::Reshape { shape }, vec![v], self.placements[after])?;
        let v = self.push(output, output_part.op, operands(self, output, v), Placement::Own)?;
        let kernel = Placement::With(self.graph.nodes.len() as u32 - 1);
        let rank = self.graph.value(v).ty.shape.len();
        let mut values = vec![v];
        for &n in &members[1..] {
            let Node { op, inputs, .. } = self.graph.nodes[n].clone();
            let mut operands = vec![];
            for operand in inputs {
                let made = members.iter().position(|&m| self.graph.nodes[m].outputs[0] == operand);
                operands.push(match made {
                    Some(member) => values[member],
                    None => self.operand(n, operand, rank, result)?,
                });
            }
            values.push(self.push(n, op, operands, kernel)?);
        }
        Ok(values)
    }

    /// The rows of an operand of an elementwise operator, which may be stretched along them.
    fn operand(&mut self, reader: usize, value: ValueId, rank: usize, rows: [i64; 2]) -> Result<ValueId> {
        let shape = &self.graph.value(value).ty.shape;
        match (shape.len() + 1).checked_sub(rank) {
            Some(axis) if shape[axis] != 1 => self.slice(reader, value, axis, rows),
            _ => Ok(value),
        }
    }

    /// Rows of a value, which their reader reads in place: as a view where they are in one piece, or else by its subscripts.
    fn slice(&mut self, reader: usize, value: ValueId, axis: usize, rows: [i64; 2]) -> Result<ValueId> {
        let shape = self.graph.value(value).ty.shape.clone();
        let view = shape[..axis].iter().all(|&e| e == 1) && self.is_intermediate(value);
        let (mut starts, mut ends) = (vec![0; shape.len()], shape);
        (starts[axis], ends[axis]) = (rows[0], rows[1]);
        let steps = vec![1; starts.len()];
        let placement = if view { Placement::Own } else { Placement::Through };
        self.push(reader, Op::Slice { starts, ends, steps }, vec![value], placement)
    }

    /// Returns true if a value lies in memory of the graph's own.
    fn is_intermediate(&self, mut value: ValueId) -> bool {
        while let Some((Node { op: Op::Reshape { .. }, inputs, .. }, _)) = self.graph.producer(value) {
            value = inputs[0];
        }
        matches!(self.graph.value(value).source, Source::Node(..)) && !self.graph.outputs.contains(&value)
    }

    /// Adds a node in place of `original`; returns its result.
    fn push(&mut self, original: usize, op: Op, inputs: Vec<ValueId>, placement: Placement) -> Result<ValueId> {
        let types: Vec<&TensorType> = inputs.iter().map(|&v| &self.graph.value(v).ty).collect();
        let ty = infer(&op, &types)?.pop().ok_or_else(|| Error::Internal(format!("{op} has no result")))?;
        let Node { name, origins, .. } = &self.graph.nodes[original];
        let number = self.graph.nodes.len() as u32;
        let (name, origins) = (name.clone(), origins.clone());
        let result = self.graph.add_value(format!("{name}:{number}"), ty, Source::Node(number, 0));
        let node = Node { name, origins, op, inputs, outputs: vec![result] };
        self.graph.nodes.push(node);
        self.placements.push(placement);
        self.replaced.push(false);
        self.places.push(self.place);
        Ok(result)
    }

    /// The graph without what blocks replace, in topological order, and its placements.
    pub fn finish(mut self) -> Result<(Graph, Vec<Placement>)> {
        let order = self.order()?;
        let mut number = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| number[old] = new as u32);
        for value in &mut self.graph.values {
            if let Source::Node(n, _) = &mut value.source {
                *n = number[*n as usize];
            }
        }
        let nodes = std::mem::take(&mut self.graph.nodes);
        let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
        self.graph.nodes = order.iter().filter_map(|&old| nodes[old].take()).collect();
        let renumbered = |old: usize| match self.placements[old] {
            Placement::With(n) => Placement::With(number[n as usize]),
            other => other,
        };
        let placements: Vec<Placement> = order.iter().map(|&old| renumbered(old)).collect();
        let replaced: Vec<bool> = order.iter().map(|&old| self.replaced[old]).collect();
        let constants: Vec<Option<Arc<Tensor>>> =
            (0..self.graph.values.len() as u32).map(|v| self.graph.constant(ValueId(v)).cloned()).collect();
        Ok(retain(&self.graph, &placements, &constants, &replaced))
    }

    /// All nodes in topological order, those of a block at the place of what they replace where their operands allow it.
    fn order(&self) -> Result<Vec<usize>> {
        let count = self.graph.nodes.len();
        let mut waits = vec![0; count];
        let mut readers: Vec<Vec<usize>> = vec![vec![]; count];
        for (n, node) in self.graph.nodes.iter().enumerate() {
            for &v in &node.inputs {
                if let Source::Node(p, _) = self.graph.value(v).source {
                    waits[n] += 1;
                    readers[p as usize].push(n);
                }
            }
        }
        let key = |n: usize| (self.places[n], n);
        let mut ready: BTreeSet<(usize, usize)> = (0..count).filter(|&n| waits[n] == 0).map(key).collect();
        let mut order = vec![];
        while let Some((_, n)) = ready.pop_first() {
            order.push(n);
            for &reader in &readers[n] {
                waits[reader] -= 1;
                if waits[reader] == 0 {
                    ready.insert(key(reader));
                }
            }
        }
        if order.len() < count {
            return Err(Error::Internal("blocks of rows wait for each other".into()));
        }
        Ok(order)
    }
}
