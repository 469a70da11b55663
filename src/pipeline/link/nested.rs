//! Steps inside of a step: a scan is a loop, an if is a branch.
//!
//! In: an operator with graphs inside, already compiled. Out: one step of the graph around it. Slices of scanned and stacked
//! tensors are windows that move with the loop, so that nothing is copied; carried values lie in the memory of the operator's
//! results. The memory of the graphs inside is one request of the graph around them.

use super::{Home, Linker, Planned, Shared};
use crate::graph::ir::{Node, Source, ValueId};
use crate::graph::op::Op;
use crate::pipeline::linkable::LinkableKernel;
use crate::pipeline::unit::Nested;
use crate::runtime::module::{Action, BufferPlace, BufferRef, Carried, Step};
use crate::{Error, Result};

impl Linker<'_> {
    /// Adds the step of an operator with graphs inside.
    pub(super) fn add_nested_step(&mut self, node: u32, inside: &[Nested], kernels: &[LinkableKernel]) -> Result<()> {
        let node = &self.graph.nodes[node as usize];
        let operands = self.operands(node, inside)?;
        let results = node.outputs.iter().map(|&v| self.buffer(v)).collect::<Result<Vec<_>>>()?;
        self.touch(&node.inputs);
        self.touch(&node.outputs);
        let action = match (&node.op, inside) {
            (Op::Scan { .. }, [body]) => match self.scan(node, body, &operands, &results, kernels)? {
                Some(action) => action,
                None => return Ok(()),
            },
            (Op::If { .. }, [then, otherwise]) => {
                let (then_plan, then) = self.branch(then, &operands, &results, kernels)?;
                let (other_plan, otherwise) = self.branch(otherwise, &operands, &results, kernels)?;
                // Only one of them runs.
                let bytes = then_plan.bytes.max(other_plan.bytes);
                self.request(bytes, [then_plan.offsets, other_plan.offsets].concat());
                Action::If { condition: present(operands[0])?, then, otherwise }
            }
            _ => return Err(Error::Internal(format!("`{}` has no graph inside", node.name))),
        };
        self.steps.push(Step { name: node.name.clone(), flops: 0, action });
        Ok(())
    }

    /// The buffers of the operands of a node. A constant that the graphs inside know has none of its own.
    fn operands(&mut self, node: &Node, inside: &[Nested]) -> Result<Vec<Option<BufferRef>>> {
        let captured = match &node.op {
            Op::Scan { carried, reverse, body, .. } => carried + reverse.len() - (body.outputs().len() - carried),
            _ => 1,
        };
        let first = matches!(node.op, Op::If { .. }) as usize;
        let is_read = |i: usize| i < captured || inside.iter().any(|n| n.inputs.contains(&(i - first)));
        let buffers = node.inputs.iter().enumerate().map(|(i, &v)| is_read(i).then(|| self.buffer(v)).transpose());
        buffers.collect()
    }

    /// The loop of a scan; `None` where it has no steps to do, and then copies are added.
    fn scan(
        &mut self,
        node: &Node,
        body: &Nested,
        operands: &[Option<BufferRef>],
        results: &[BufferRef],
        kernels: &[LinkableKernel],
    ) -> Result<Option<Action>> {
        let Op::Scan { trips, carried, reverse, conditional, .. } = &node.op else {
            return Err(Error::Internal(format!("`{}` is not a scan", node.name)));
        };
        let (trips, carried) = (*trips, *carried);
        if trips == 0 {
            for (&from, &to) in operands.iter().zip(results).take(carried) {
                self.steps.push(copy(&node.name, present(from)?, to));
            }
            return Ok(None);
        }
        let number = self.shared.loops;
        self.shared.loops += 1;
        let scanned = reverse.len() - (results.len() - carried);
        let mut homes: Vec<Option<BufferRef>> = results[..carried].iter().copied().map(Some).collect();
        for (k, &operand) in operands[carried..].iter().enumerate() {
            homes.push(match k < scanned {
                true => Some(self.shared.window(present(operand)?, trips, reverse[k], number)?),
                false => operand,
            });
        }
        let mut outputs = vec![None; carried];
        for (k, &result) in results[carried..].iter().enumerate() {
            outputs.push(Some(Home::Buffer(self.shared.window(result, trips, reverse[scanned + k], number)?)));
        }
        let inputs = body.inputs.iter().map(|&i| Ok(Home::Buffer(present(homes[i])?)));
        let inputs = inputs.collect::<Result<Vec<Home>>>()?;
        let mut inner = Linker::new(&body.unit, inputs, outputs, &mut *self.shared);
        inner.add_steps(&body.unit, kernels)?;
        let next = inner.store_outputs(&node.name)?;
        let (plan, steps) = inner.finish();
        self.request(plan.bytes, plan.offsets);
        let values = operands.iter().zip(results).zip(next).take(carried);
        let carried =
            values.map(|((&initial, &current), next)| Ok(Carried { initial: present(initial)?, current, next }));
        Ok(Some(Action::Loop {
            number,
            trips: trips as u64,
            condition: conditional.then(|| results[0]),
            carried: carried.collect::<Result<Vec<Carried>>>()?,
            body: steps,
        }))
    }

    /// The steps of a branch, which writes the results of the if.
    fn branch(
        &mut self,
        body: &Nested,
        operands: &[Option<BufferRef>],
        results: &[BufferRef],
        kernels: &[LinkableKernel],
    ) -> Result<(Planned, Vec<Step>)> {
        let inputs = body.inputs.iter().map(|&i| Ok(Home::Buffer(present(operands[i + 1])?)));
        let inputs = inputs.collect::<Result<Vec<Home>>>()?;
        let outputs = results.iter().map(|&r| Some(Home::Buffer(r))).collect();
        let mut inner = Linker::new(&body.unit, inputs, outputs, &mut *self.shared);
        inner.add_steps(&body.unit, kernels)?;
        inner.store_outputs("result")?;
        Ok(inner.finish())
    }

    /// Copies outputs that no step writes in place, and those without a place that are an input: the copies at the end of a
    /// step read no carried value. Returns the buffers of the outputs.
    fn store_outputs(&mut self, name: &str) -> Result<Vec<BufferRef>> {
        let sources = self.sources()?;
        let mut stored = vec![];
        for (i, (&v, source)) in self.graph.outputs.iter().zip(sources).enumerate() {
            let root = self.root(v);
            let is_input = matches!(self.graph.value(root).source, Source::Input);
            let to = match self.outputs[i] {
                Some(Home::Buffer(to)) if self.output_of.get(&root) != Some(&i) || !self.is_computed(root) => to,
                None if is_input => {
                    let ty = &self.graph.value(v).ty;
                    let place = BufferPlace::Arena(0);
                    let to = self.shared.add_buffer(name.to_string(), ty.dtype, ty.shape.clone(), place)?;
                    let request = self.request(ty.bytes() as u64, vec![(to, 0)]);
                    // The copy between the values that the loop carries comes after the last step.
                    self.requests[request].0.last = usize::MAX;
                    to
                }
                _ => {
                    stored.push(source);
                    continue;
                }
            };
            self.touch(&self.graph.outputs);
            self.steps.push(copy(name, source, to));
            stored.push(to);
        }
        self.touch(&self.graph.outputs);
        Ok(stored)
    }

    fn is_computed(&self, root: ValueId) -> bool {
        matches!(self.graph.value(root).source, Source::Node(..))
    }
}

impl Shared {
    /// The slice of `whole` along its first dimension that a loop is at.
    fn window(&mut self, whole: BufferRef, trips: i64, reverse: bool, number: u32) -> Result<BufferRef> {
        let buffer = &self.module.buffers[whole.0 as usize];
        let slice = buffer.bytes()? / trips as u64;
        let (name, dtype, shape) = (buffer.name.clone(), buffer.dtype, buffer.shape[1..].to_vec());
        let (offset, stride) = match reverse {
            true => (slice * (trips as u64 - 1), -(slice as i64)),
            false => (0, slice as i64),
        };
        self.add_buffer(name, dtype, shape, BufferPlace::Window { of: whole, offset, stride, number })
    }
}

fn present(buffer: Option<BufferRef>) -> Result<BufferRef> {
    buffer.ok_or_else(|| Error::Internal("an operand of a graph inside has no memory".into()))
}

fn copy(name: &str, from: BufferRef, to: BufferRef) -> Step {
    Step { name: format!("copy {name}"), flops: 0, action: Action::Copy { from, to } }
}
