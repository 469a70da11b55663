//! Results of constant folding that several compilations of one model share.

use crate::graph::op::Op;
use crate::runtime::{DType, Result, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The most bytes of an operand that is known by its contents; larger ones are known by their address.
const SMALL: usize = 1024;
/// Bytes of results that are kept in any case, and for each byte of the weights: results that follow from the sizes of a binding,
/// such as the rows of a table, are others for each.
const KEPT: usize = 16 << 20;
const KEPT_FOR_WEIGHTS: usize = 4;

/// Constants of a model that every compilation finds under the same address: its weights, and what is computed from them.
#[derive(Default)]
pub struct Memo(Mutex<State>);

#[derive(Default)]
struct State {
    /// By address; they are kept, so that no other tensor takes their place.
    kept: HashMap<usize, Arc<Tensor>>,
    results: HashMap<Key, Vec<Arc<Tensor>>>,
    /// Bytes that further results may have.
    left: usize,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: Op,
    operands: Vec<Operand>,
}

#[derive(PartialEq, Eq, Hash)]
enum Operand {
    Kept(usize),
    Small(DType, Vec<i64>, Vec<u8>),
}

fn address(tensor: &Arc<Tensor>) -> usize {
    Arc::as_ptr(tensor).addr()
}

impl Memo {
    /// A memo of a model with these weights.
    pub fn new<'a>(weights: impl Iterator<Item = &'a Arc<Tensor>>) -> Memo {
        let kept: HashMap<_, _> = weights.map(|tensor| (address(tensor), tensor.clone())).collect();
        let bytes: usize = kept.values().map(|tensor| tensor.data.len()).sum();
        let left = bytes.saturating_mul(KEPT_FOR_WEIGHTS).saturating_add(KEPT);
        Memo(Mutex::new(State { kept, left, ..State::default() }))
    }

    /// Returns true if every compilation finds this tensor under its address.
    pub fn keeps(&self, tensor: &Arc<Tensor>) -> bool {
        self.state().kept.contains_key(&address(tensor))
    }

    /// The results of `op` on operands, which `evaluate` computes where they are not known. Those with a large operand are
    /// kept, up to a number of bytes: none goes again, since others know it by its address.
    pub fn results(
        &self,
        op: &Op,
        operands: &[Arc<Tensor>],
        evaluate: impl FnOnce() -> Result<Vec<Tensor>>,
    ) -> Result<Vec<Arc<Tensor>>> {
        let shared = |results: Vec<Tensor>| results.into_iter().map(Arc::new).collect::<Vec<_>>();
        let Some(key) = self.key(op, operands) else { return Ok(shared(evaluate()?)) };
        if let Some(known) = self.state().results.get(&key) {
            return Ok(known.clone());
        }
        // The lock is open meanwhile: others compute other results.
        let new = shared(evaluate()?);
        let mut state = self.state();
        if let Some(known) = state.results.get(&key) {
            return Ok(known.clone());
        }
        let Some(left) = state.left.checked_sub(new.iter().map(|tensor| tensor.data.len()).sum()) else {
            return Ok(new);
        };
        state.left = left;
        state.results.insert(key, new.clone());
        state.kept.extend(new.iter().map(|tensor| (address(tensor), tensor.clone())));
        Ok(new)
    }

    /// `None` where no operand is large, or a large one is not kept.
    fn key(&self, op: &Op, operands: &[Arc<Tensor>]) -> Option<Key> {
        if operands.iter().all(|tensor| tensor.data.len() <= SMALL) {
            return None;
        }
        let state = self.state();
        let operand = |tensor: &Arc<Tensor>| {
            if state.kept.contains_key(&address(tensor)) {
                return Some(Operand::Kept(address(tensor)));
            }
            let small = tensor.data.len() <= SMALL;
            small.then(|| Operand::Small(tensor.dtype, tensor.shape.clone(), tensor.data.to_vec()))
        };
        let operands = operands.iter().map(operand).collect::<Option<Vec<_>>>()?;
        Some(Key { op: op.clone(), operands })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::fold::evaluate;

    #[test]
    fn results_are_computed_once_for_equal_operands() {
        let weight = Arc::new(Tensor::seeded(DType::F32, &[40, 30], 1, 0, 2));
        let memo = Memo::new([&weight].into_iter());
        let transposed = |weight: &Arc<Tensor>| {
            let op = Op::Transpose { perm: vec![1, 0] };
            memo.results(&op, std::slice::from_ref(weight), || evaluate(&op, &[weight])).unwrap().remove(0)
        };
        let scaled = |weight: &Arc<Tensor>, factor: f32| {
            let operands = [weight.clone(), Arc::new(Tensor::new(&[1, 1], &[factor]))];
            let op = Op::Binary(crate::expr::BinaryOp::Mul);
            memo.results(&op, &operands, || evaluate(&op, &[&operands[0], &operands[1]])).unwrap().remove(0)
        };
        // a result is an operand that is known again
        let [first, second, other] = [2.0, 2.0, 3.0].map(|factor| scaled(&transposed(&weight), factor));
        assert!(Arc::ptr_eq(&first, &second) && memo.keeps(&first) && *first != *other);
        // equal contents under another address are not known: their address may be another tensor's next time
        let stranger = Arc::new((*weight).clone());
        assert!(!memo.keeps(&stranger) && !Arc::ptr_eq(&transposed(&stranger), &transposed(&stranger)));
    }

    #[test]
    fn results_are_kept_up_to_a_number_of_bytes() {
        let weight = Arc::new(Tensor::seeded(DType::F32, &[64, 1024], 1, 0, 2));
        let memo = Memo::new([&weight].into_iter());
        let most = (KEPT + KEPT_FOR_WEIGHTS * weight.data.len()) / weight.data.len();
        let scaled = |factor: usize| {
            let operands = [weight.clone(), Arc::new(Tensor::new(&[1, 1], &[factor as f32]))];
            let op = Op::Binary(crate::expr::BinaryOp::Mul);
            memo.results(&op, &operands, || evaluate(&op, &[&operands[0], &operands[1]])).unwrap().remove(0)
        };
        let kept = (0..most + 3).filter(|&factor| memo.keeps(&scaled(factor))).count();
        assert_eq!(kept, most);
        assert!(Arc::ptr_eq(&scaled(0), &scaled(0)) && !Arc::ptr_eq(&scaled(most), &scaled(most)));
        assert_eq!(scaled(most), scaled(most));
    }
}
