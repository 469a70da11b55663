//! Prices of algorithms that compete: the prediction of the tile model for an operator's shapes and target.
//!
//! In: an operator with the types of its operands. Out: its time as a kernel of its own in nanoseconds, for the operators
//! between which the extraction chooses an algorithm: convolutions that have a fast one, and the parts of that one. Equal
//! operators are predicted once. Others have the estimates of [`cost`](crate::graph::cost).

use crate::codegen::Target;
use crate::graph::cost::Operand;
use crate::graph::define::define;
use crate::graph::op::{Layout, Op};
use crate::graph::rules::algorithm;
use crate::graph::tensor_type::TensorType;
use crate::poly::predict;
use crate::poly::statement::Role;
use crate::runtime::threads::together;
use rustc_hash::FxHashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

type Key = (Op, Vec<(TensorType, bool)>);

/// The prices of a target.
pub struct Prices<'a> {
    target: &'a Target,
    known: FxHashMap<Key, Option<f64>>,
}

/// An application of an operator: operator, operands, result.
pub type Application<'a> = (&'a Op, Vec<Operand<'a>>, &'a TensorType);

impl<'a> Prices<'a> {
    /// The prices of those of `applications` that compete, predicted by up to `threads` threads.
    pub fn new<'b>(
        target: &'a Target,
        applications: impl Iterator<Item = Application<'b>>,
        threads: usize,
    ) -> Prices<'a> {
        let competing = applications.filter(|(op, operands, result)| competes(op, operands, result));
        let mut keys: Vec<Key> = competing.map(|(op, operands, _)| key(op, &operands)).collect();
        keys.sort();
        keys.dedup();
        let (next, found) = (AtomicUsize::new(0), Mutex::new(FxHashMap::default()));
        together(threads.min(keys.len()), || {
            while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
                let price = predict(key, target);
                found.lock().unwrap_or_else(|e| e.into_inner()).insert(key.clone(), price);
            }
        });
        Prices { target, known: found.into_inner().unwrap_or_else(|e| e.into_inner()) }
    }

    pub fn target(&self) -> &'a Target {
        self.target
    }

    /// The number of predictions that were made.
    pub fn predictions(&self) -> usize {
        self.known.len()
    }

    /// The predicted time of a competing operator in ns, without the launch of its kernel; `None` for others.
    pub fn price(&self, op: &Op, operands: &[Operand], result: &TensorType) -> Option<f64> {
        if !competes(op, operands, result) {
            return None;
        }
        *self.known.get(&key(op, operands))?
    }
}

fn key(op: &Op, operands: &[Operand]) -> Key {
    (op.clone(), operands.iter().map(|o| (o.ty.clone(), o.constant)).collect())
}

fn predict((op, operands): &Key, target: &Target) -> Option<f64> {
    let types: Vec<TensorType> = operands.iter().map(|o| o.0.clone()).collect();
    let mut program = define(op, &types).ok()?;
    for (tensor, _) in program.tensors.iter_mut().zip(operands).filter(|(_, operand)| operand.1) {
        tensor.role = Role::Constant;
    }
    predict::nanoseconds(&program, target).ok()
}

/// Returns true if another algorithm computes the same as this operator, or as a graph that it is a part of.
fn competes(op: &Op, operands: &[Operand], result: &TensorType) -> bool {
    match op {
        Op::Conv { window, group, layout: Layout::Nhwc } => {
            let weights = operands[1];
            weights.constant && algorithm::is_considered(window, *group, &weights.ty.shape, &result.shape[1..])
        }
        // A product for each place in a tile.
        Op::MatMul { .. } => operands[1].constant && operands[1].ty.shape.len() > 2,
        Op::WinogradInput { .. } | Op::WinogradOutput { .. } => true,
        _ => false,
    }
}
