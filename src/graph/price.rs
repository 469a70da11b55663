//! Prices of algorithms that compete: the prediction of the tile model for an operator's shapes and target.
//!
//! In: an operator with the types of its operands. Out: its time as a kernel of its own in nanoseconds, for the operators
//! between which the extraction chooses an algorithm: convolutions that have a fast one, and the parts of that one. Equal
//! operators are predicted once. Others have the estimates of [`cost`](crate::graph::cost).

use crate::codegen::Target;
use crate::expr::Literals;
use crate::graph::cost::{self, Operand};
use crate::graph::define::define;
use crate::graph::fusion::literals;
use crate::graph::infer::infer;
use crate::graph::ir::{Graph, ValueId};
use crate::graph::op::{Layout, Op};
use crate::graph::rules::{algorithm, strassen};
use crate::graph::tensor_type::TensorType;
use crate::poly::predict;
use crate::poly::statement::Role;
use crate::poly::tile::cache::Constants;
use crate::runtime::threads;
use rustc_hash::FxHashMap;

/// Bytes that an algorithm's constants take for each byte of those of the model, of other operators than the one that is
/// predicted: transformed ones are larger. Unmeasured.
const OTHERS_GROW: f64 = 2.0;

type Key = (Op, Vec<(TensorType, bool, Option<Literals>)>);

/// The constants of a network, which share the caches from one run to the next.
#[derive(Clone, Copy)]
pub struct Resident<'a> {
    /// Bytes of all of them.
    bytes: usize,
    target: &'a Target,
}

impl<'a> Resident<'a> {
    pub fn of(graph: &Graph, target: &'a Target) -> Resident<'a> {
        let constants = (0..graph.values.len() as u32).filter_map(|v| graph.constant(ValueId(v)));
        Resident { bytes: constants.map(|t| t.data.len()).sum(), target }
    }

    /// Where the constants of an operator, of `weights` bytes, are when its kernel starts: in the first cache that has room for
    /// them, for the `moved` bytes that it reads and writes beside them, and for all others.
    pub fn place(&self, weights: usize, moved: usize) -> Constants {
        let bytes = (weights + moved) as f64 + OTHERS_GROW * self.bytes.saturating_sub(weights) as f64;
        let stay = |level: usize| bytes <= self.target.machine.usable_bytes(level);
        match [stay(1), stay(2)] {
            [true, _] => Constants::SecondCache,
            [_, true] => Constants::LastCache,
            _ => Constants::Memory,
        }
    }
}

/// The prices of a target.
pub struct Prices<'a> {
    target: &'a Target,
    known: FxHashMap<Key, Option<f64>>,
}

/// An application of an operator: operator, operands, result.
pub type Application<'a> = (&'a Op, Vec<Operand<'a>>, &'a TensorType);

impl<'a> Prices<'a> {
    /// The prices of those of `applications` that compete, predicted by up to `threads` threads; `place` says where so many bytes
    /// of constants are beside so many others.
    pub fn new<'b>(
        target: &'a Target,
        applications: impl Iterator<Item = Application<'b>>,
        place: impl Fn(usize, usize) -> Constants + Sync,
        threads: usize,
    ) -> Prices<'a> {
        let competing = applications.filter(|(op, operands, result)| competes(op, operands, result, target));
        let mut keys: Vec<Key> = competing.map(|(op, operands, _)| key(op, &operands)).collect();
        keys.sort();
        keys.dedup();
        let prices = threads::map(&keys, threads, |key| predict(key, target, &place));
        Prices { target, known: keys.into_iter().zip(prices).collect() }
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
        if !competes(op, operands, result, self.target) {
            return None;
        }
        *self.known.get(&key(op, operands))?
    }
}

fn key(op: &Op, operands: &[Operand]) -> Key {
    (op.clone(), operands.iter().map(|o| (o.ty.clone(), o.constant, o.value.and_then(literals))).collect())
}

fn predict((op, operands): &Key, target: &Target, place: impl Fn(usize, usize) -> Constants) -> Option<f64> {
    let types: Vec<TensorType> = operands.iter().map(|o| o.0.clone()).collect();
    let mut program = define(op, &types).ok()?;
    for (tensor, operand) in program.tensors.iter_mut().zip(operands).filter(|(_, operand)| operand.1) {
        (tensor.role, tensor.literals) = (Role::Constant, operand.2.clone());
    }
    let bytes = |constant| operands.iter().filter(|o| o.1 == constant).map(|o| o.0.bytes()).sum::<usize>();
    let written: usize = infer(op, &types.iter().collect::<Vec<_>>()).ok()?.iter().map(TensorType::bytes).sum();
    let constants = place(bytes(true), bytes(false) + written);
    let program = predict::in_half_sums(&program, target, constants).ok()?.unwrap_or(program);
    predict::nanoseconds(&program, target, constants).ok()
}

/// Returns true if another algorithm computes the same as this operator, or as a graph that it is a part of.
fn competes(op: &Op, operands: &[Operand], result: &TensorType, target: &Target) -> bool {
    match op {
        // An instruction on tiles takes an image with its padding, and groups of channels that are wide enough.
        Op::Conv { layout: Layout::Nhwc, .. } if cost::tile_products(target).contains(&operands[0].ty.dtype) => {
            operands[1].ty.shape[1] > 1 && operands[1].constant
        }
        // Integers have one algorithm.
        Op::Conv { .. } | Op::MatMul { .. } if !operands[0].ty.dtype.is_float() => false,
        Op::Conv { window, group, layout: Layout::Nhwc } => {
            let weights = operands[1];
            weights.constant && algorithm::is_considered(window, *group, &weights.ty.shape, &result.shape[1..])
        }
        // A product for each place in a tile, or one that may be divided into halves.
        Op::MatMul { .. } => operands[1].constant && is_considered(&operands[1].ty.shape, result),
        Op::WinogradInput { .. } | Op::WinogradOutput { .. } => true,
        _ => false,
    }
}

/// Returns true if a product with weights of this shape is a part of a fast algorithm, or has one.
fn is_considered(weights: &[i64], result: &TensorType) -> bool {
    let columns = result.shape.last().copied().unwrap_or(1).max(1);
    match *weights {
        [a, b] => strassen::is_considered(result.elements() / columns, [a, b]),
        _ => weights.len() > 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::builder::GraphBuilder;
    use crate::graph::op::Window;
    use crate::graph::rules::toom_cook::{Transforms, numbers};
    use crate::poly::samples::with_rows;
    use crate::runtime::{DType, Tensor};

    /// The price of the output transform of F(4x4, 3x3) over 14x14 tiles of 64 filters, its matrices known or not.
    fn price(known: bool) -> f64 {
        let rows = Transforms::new(4, 3).unwrap().output;
        let values: Vec<f32> = numbers(&rows).into_iter().map(|v| v as f32).collect();
        let matrix = Tensor::new(&[4, 6], &values);
        let f32 = |shape: &[i64]| TensorType::new(DType::F32, shape);
        let types = [f32(&[6, 6, 1, 14, 14, 64]), TensorType::of(&matrix), f32(&[1, 56, 56, 64])];
        let matrix = Operand { ty: &types[1], constant: true, value: known.then_some(&matrix) };
        let operands = vec![Operand { ty: &types[0], constant: false, value: None }, matrix, matrix];
        let op = Op::WinogradOutput { size: vec![56, 56], dilation: vec![1, 1], group: 1 };
        let target = Target::all().remove(0);
        let prices =
            Prices::new(&target, std::iter::once((&op, operands.clone(), &types[2])), |_, _| Constants::Memory, 1);
        assert_eq!(prices.predictions(), 1);
        prices.price(&op, &operands, &types[2]).unwrap()
    }

    #[test]
    fn what_is_known_of_matrices_is_part_of_the_price() {
        let [known, unknown] = [true, false].map(price);
        assert!(1.3 * known < unknown, "{known} and {unknown} ns");
    }

    /// Tiles take groups of channels that fill their rows, and take no depthwise ones: what they are worth is for the planner to say.
    #[test]
    fn groups_that_tiles_may_take_are_priced_by_the_planner() {
        let target = with_rows(Target::by_name("x86-64-amx").unwrap());
        let price = |channels: i64| {
            let group = 64 / channels;
            let window = Window {
                kernel: vec![3, 3],
                stride: vec![1; 2],
                dilation: vec![1; 2],
                pad_before: vec![0; 2],
                pad_after: vec![0; 2],
            };
            let bf16 = |shape: &[i64]| TensorType::new(DType::BF16, shape);
            let types =
                [bf16(&[1, 16, 16, 64]), bf16(&[64, channels, 3, 3]), TensorType::new(DType::F32, &[1, 14, 14, 64])];
            let operand = |i: usize| Operand { ty: &types[i], constant: i == 1, value: None };
            let operands = vec![operand(0), operand(1)];
            let op = Op::Conv { window, group, layout: Layout::Nhwc };
            let rows = std::iter::once((&op, operands.clone(), &types[2]));
            Prices::new(&target, rows, |_, _| Constants::SecondCache, 1).price(&op, &operands, &types[2])
        };
        let [depthwise, narrow, wide] = [1, 2, 32].map(price);
        assert_eq!(depthwise, None);
        assert!(wide.unwrap() < narrow.unwrap(), "{wide:?} and {narrow:?} ns");
    }

    #[test]
    fn constants_of_small_networks_are_cached() {
        let product = |constants| {
            let f32 = |shape: &[i64]| TensorType::new(DType::F32, shape);
            let types = [f32(&[36, 4, 64]), f32(&[36, 64, 96]), f32(&[36, 4, 96])];
            let operand = |i: usize| Operand { ty: &types[i], constant: i == 1, value: None };
            let operands = vec![operand(0), operand(1)];
            let op = Op::MatMul { transpose_a: false, transpose_b: false };
            let target = Target::all().remove(0);
            let prices = Prices::new(&target, std::iter::once((&op, operands.clone(), &types[2])), |_, _| constants, 1);
            prices.price(&op, &operands, &types[2]).unwrap()
        };
        let [near, cached, fetched] = [Constants::SecondCache, Constants::LastCache, Constants::Memory].map(product);
        assert!(cached < fetched && near < cached, "{near}, {cached} and {fetched} ns");
        let target = Target::all().remove(0);
        let expected = [(256, Constants::SecondCache), (1024, Constants::LastCache), (4096, Constants::Memory)];
        for (extent, expected) in expected {
            let mut b = GraphBuilder::new("g");
            let x = b.input("x", DType::F32, &[1, extent]);
            let w = b.constant(Tensor::zeros(DType::F32, &[extent, extent]));
            let y = b.matmul(x, w).unwrap();
            b.output("y", y).unwrap();
            let graph = b.build().unwrap();
            let resident = Resident::of(&graph, &target);
            assert_eq!(resident.place(0, 0), expected, "{extent}");
            // Its own bytes count once, and what it reads and writes; those of others twice.
            let cache = target.machine.usable_bytes(1) as usize;
            let other = Resident { bytes: cache - 1, target: &target };
            let placed = [(0, 0), (cache - 1, 0), (cache - 1, 2)].map(|(cache, moved)| other.place(cache, moved));
            assert_eq!(placed, [Constants::LastCache, Constants::SecondCache, Constants::LastCache]);
        }
    }
}
