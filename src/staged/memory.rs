//! Memory of a run in parts: what its values take, against the limit of a run.
//!
//! Parts and steps of the host ask before they make tensors. Tensors are counted as long as something holds them, each
//! once; sequences by the places of their values. Weights are not counted.

use crate::graph::import::limits::ImportLimits;
use crate::graph::value::Value;
use crate::pipeline::Limits;
use crate::{Result, Tensor};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, Weak};

/// Bytes of a tensor beside its elements: its parts, and what the allocator adds to each.
pub const TENSOR_BYTES: u64 = 256;
/// The fewest tensors after which those that nothing holds are looked for.
const LEAST_TENSORS: usize = 1024;

/// The memory of one run.
pub struct Memory<'a> {
    limits: &'a Limits,
    /// Inputs, which the caller holds.
    given: u64,
    made: RefCell<Made>,
}

#[derive(Default)]
struct Made {
    tensors: Vec<(Weak<Tensor>, u64)>,
    /// Of all these tensors.
    bytes: u64,
    /// Tensors that were alive when it was last looked.
    alive: usize,
    /// Addresses of the parts that ran, which keep their intermediate tensors.
    parts: HashSet<usize>,
    /// Of their intermediate tensors.
    arenas: u64,
}

impl Made {
    /// Forgets tensors that nothing holds.
    fn sweep(&mut self) {
        self.tensors.retain(|(tensor, _)| tensor.strong_count() > 0);
        self.bytes = self.tensors.iter().map(|t| t.1).sum();
        self.alive = self.tensors.len();
    }
}

impl Memory<'_> {
    pub fn new(limits: &Limits, given: u64) -> Memory<'_> {
        Memory { limits, given, made: RefCell::default() }
    }

    /// Asks for so many bytes beside what is held; `what` needs them.
    ///
    /// # Errors
    /// `Limit` where all of it is more than a run may have.
    pub fn reserve(&self, bytes: u64, what: impl Fn() -> String) -> Result<()> {
        let mut made = self.made.borrow_mut();
        let all = |made: &Made| [self.given, made.bytes, made.arenas].iter().fold(bytes, |n, b| n.saturating_add(*b));
        if all(&made) > self.limits.run_bytes {
            made.sweep();
        }
        self.limits.check_run(all(&made), || format!("inputs, values that are held and {} need", what()))
    }

    /// The limits of a step of the host that computes constants: of the bytes that are left.
    pub fn import_limits(&self) -> ImportLimits {
        let mut made = self.made.borrow_mut();
        made.sweep();
        let held = [made.bytes, made.arenas].iter().fold(self.given, |n, b| n.saturating_add(*b));
        let constant_bytes = self.limits.run_bytes.saturating_sub(held);
        // it grows with the bytes
        ImportLimits { constant_bytes, constant_work: u64::MAX, ..self.limits.import() }
    }

    /// As [`Memory::reserve`], for a part at this address, with outputs and intermediate tensors of so many bytes.
    ///
    /// # Errors
    /// As [`Memory::reserve`].
    pub fn reserve_part(&self, part: usize, outputs: u64, arena: u64) -> Result<()> {
        let first = !self.made.borrow().parts.contains(&part);
        let arena = if first { arena } else { 0 };
        self.reserve(outputs.saturating_add(arena), || "the tensors of the next part".into())?;
        let mut made = self.made.borrow_mut();
        made.parts.insert(part);
        made.arenas = made.arenas.saturating_add(arena);
        Ok(())
    }

    /// Counts a tensor that was made.
    pub fn add(&self, tensor: &Arc<Tensor>) {
        let mut made = self.made.borrow_mut();
        if made.tensors.len() >= (2 * made.alive).max(LEAST_TENSORS) {
            made.sweep();
        }
        let bytes = tensor_bytes(tensor.data.len() as u64);
        made.tensors.push((Arc::downgrade(tensor), bytes));
        made.bytes = made.bytes.saturating_add(bytes);
    }

    /// Counts the tensors of a value that was made.
    pub fn add_value(&self, value: &Value) {
        match value {
            Value::Tensor(tensor) => self.add(tensor),
            Value::Sequence(values) => values.iter().for_each(|value| self.add_value(value)),
            Value::Optional(value) => value.iter().for_each(|value| self.add_value(value)),
        }
    }
}

/// Bytes of a tensor with elements of so many bytes.
pub fn tensor_bytes(data: u64) -> u64 {
    data.saturating_add(TENSOR_BYTES)
}

/// Bytes of a caller's value.
pub fn value_bytes(value: &Value) -> u64 {
    let inside = |values: &[Value]| values.iter().map(value_bytes).fold(places_bytes(value), u64::saturating_add);
    match value {
        Value::Tensor(tensor) => tensor_bytes(tensor.data.len() as u64),
        Value::Sequence(values) => inside(values),
        Value::Optional(value) => value.as_deref().map_or(0, value_bytes),
    }
}

/// Bytes of the places of a sequence's values, and of sequences in it.
pub fn places_bytes(value: &Value) -> u64 {
    let Value::Sequence(values) = value else { return 0 };
    let own = (values.capacity() as u64).saturating_mul(size_of::<Value>() as u64);
    match values.first() {
        Some(Value::Sequence(_)) => values.iter().map(places_bytes).fold(own, u64::saturating_add),
        _ => own,
    }
}
