//! Constants as wide as registers that loops use, in registers that the allocation leaves alone.
//!
//! A first emission notes which constants it takes from memory and in how many loops; [`Constants::chosen`] gives the most
//! used ones a register each, which the prologue of a second emission loads.

use super::encode::Width;

/// Uses of a constant in a loop count so many times as much as around it.
const REPEATED: f64 = 10.0;

/// The constants of a function.
#[derive(Default)]
pub struct Constants {
    /// Those that loops took from memory, with the weights of their uses.
    wanted: Vec<(Vec<u8>, f64)>,
    /// Those that lie in registers through the function.
    held: Vec<(Vec<u8>, u8)>,
}

impl Constants {
    /// The most used of the wanted constants in `spare` registers; `None` where there is none.
    pub(super) fn chosen(self, spare: impl Iterator<Item = u8>) -> Option<Constants> {
        let mut wanted = self.wanted;
        wanted.sort_by(|a, b| b.1.total_cmp(&a.1));
        let held: Vec<(Vec<u8>, u8)> = wanted.into_iter().map(|(bytes, _)| bytes).zip(spare).collect();
        (!held.is_empty()).then_some(Constants { wanted: vec![], held })
    }

    /// The constants in registers.
    pub(super) fn registers(&self) -> Vec<(Vec<u8>, u8)> {
        self.held.clone()
    }

    /// The register that holds a constant as wide as one; where none does, a use in `depth` loops and conditionals is noted.
    pub(super) fn register(&mut self, bytes: &[u8], depth: usize) -> Option<u8> {
        if bytes.len() < Width::X.bytes() {
            return None;
        }
        let register = self.held.iter().find(|c| c.0 == bytes).map(|c| c.1);
        if register.is_none() && depth > 0 {
            let weight = REPEATED.powi(depth as i32);
            match self.wanted.iter_mut().find(|c| c.0 == bytes) {
                Some(c) => c.1 += weight,
                None => self.wanted.push((bytes.to_vec(), weight)),
            }
        }
        register
    }
}
