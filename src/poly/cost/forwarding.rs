//! Loads that a store just before them cannot forward to: they wait until it is in the cache.
//!
//! In: the statements between two serial loops. Out: how many loads wait in one execution of them. A store forwards to a load
//! of nothing but what it wrote. A vector under a mask meets all bytes of its register, whatever the mask says, and forwards
//! to none of them (Fog, "The microarchitecture of Intel, AMD and VIA CPUs", on store forwarding stalls; the masks by measurement).

use crate::codegen::Target;
use crate::codegen::loopnest::LoopNest;
use crate::codegen::target::Isa;
use crate::expr::{Affine, BufferId, Index, Var};
use crate::poly::cost::block::{Expanded, Placed, address_of};

/// Returns true if an element, read or written by this store, is in a register.
type InRegisters<'a> = &'a dyn Fn(&Placed, BufferId, &[Index]) -> bool;

/// Most places of one access that are compared.
const PLACES: usize = 64;

/// An access to neighbouring elements: where its copies begin, beside what serial loops add.
struct Span {
    base: Affine,
    starts: Vec<i64>,
    /// Elements that a copy meets.
    length: i64,
    /// A mask leaves elements out.
    masked: bool,
}

impl Span {
    /// The elements of an access; `None` where they are not neighbours. With `masks` a part of a vector that fills no
    /// narrower register is a vector under a mask, without them an access of as many elements.
    fn of(nest: &LoopNest, masks: bool, store: &Placed, buffer: BufferId, index: &[Index]) -> Option<Span> {
        let mut base = address_of(nest, buffer, index)?;
        let (mut starts, mut length, mut masked) = (vec![0], 1, false);
        for e in &store.around {
            let coefficient = base.coefficient(e.var);
            base = base.add_scaled(&Affine::var(e.var), -coefficient);
            let step = match e.lanes {
                Some(_) if coefficient == 0 => continue,
                Some(_) if coefficient != 1 => return None,
                Some(lanes) => {
                    let remainder = (e.trips % lanes) as usize;
                    masked = masks && remainder > 0 && !is_register(remainder * nest.buffer(buffer).dtype.bytes());
                    length = if masked { lanes } else { lanes.min(e.trips) } as i64;
                    lanes as i64
                }
                None => coefficient,
            };
            starts = copies(&starts, e, step);
        }
        Some(Span { base, starts, length, masked })
    }

    /// Returns true if a load that begins `start` elements after the base meets one of the `copies` of the store `written`, which begin
    /// `apart` elements before its own base, and takes more than that one wrote.
    fn waits_for(&self, start: i64, written: &Span, apart: i64, copies: &[i64]) -> bool {
        copies.iter().any(|&other| {
            let ahead = start + apart - other;
            let meets = -self.length < ahead && ahead < written.length;
            let alike = ahead == 0 && self.length == written.length;
            let inside = ahead >= 0 && ahead + self.length <= written.length;
            meets && !alike && (written.masked || !inside)
        })
    }

    /// The share of the vectors that are loaded as they were stored and lie in two lines, from which x86 forwards nothing (by measurement on Zen 4).
    fn crossing(&self, written: &Span, bytes: i64, line: i64) -> f64 {
        let vector = self.length * bytes;
        let is_same = self.base == written.base && self.starts == written.starts && self.length == written.length;
        let steps = self.base.terms.iter().map(|t| t.1).chain(self.starts.iter().map(|s| s + self.base.constant));
        let is_aligned = steps.into_iter().all(|step| step * bytes % vector == 0);
        if is_same && self.length > 1 && !is_aligned { (vector as f64 / line as f64).min(1.0) } else { 0.0 }
    }
}

/// Returns true if an instruction of x86 moves so many bytes between a vector register and memory without a mask.
fn is_register(bytes: usize) -> bool {
    matches!(bytes, 4 | 8 | 16 | 32 | 64)
}

/// The starts of all copies along an expanded loop.
fn copies(starts: &[i64], around: &Expanded, step: i64) -> Vec<i64> {
    let places = if step == 0 { 1 } else { around.copies as i64 };
    let all = (0..places).flat_map(|copy| starts.iter().map(move |s| s + copy * step));
    all.take(PLACES).collect()
}

/// Loads that wait in one execution of `block`, directly in the serial loop over `inner`, which advances by its step.
pub(super) fn blocked_loads(
    nest: &LoopNest,
    target: &Target,
    block: &[Placed],
    inner: Option<(Var, i64)>,
    in_registers: InRegisters,
) -> f64 {
    let masks = target.isa != Isa::Neon;
    let stores: Vec<Option<Span>> = block
        .iter()
        .map(|s| Span::of(nest, masks, s, s.buffer, s.index).filter(|_| !in_registers(s, s.buffer, s.index)))
        .collect();
    let mut waiting = 0.0;
    for (position, store) in block.iter().enumerate() {
        let mut note = |buffer: BufferId, index: &[Index]| {
            if in_registers(store, buffer, index) {
                return;
            }
            let Some(load) = Span::of(nest, masks, store, buffer, index) else { return };
            let before = stores.iter().enumerate().filter(|(other, _)| block[*other].buffer == buffer);
            let waits = before.filter_map(|(other, written)| {
                let written = written.as_ref()?;
                let n = waits(&load, written, other < position, other == position, inner) as f64;
                // loads of one statement wait together, those that wait for the statement itself one after the other
                let n = if other == position { n } else { n.min(1.0) };
                // a value of another branch is loaded again
                let other_branch = masks && block[other].branch > 0 && block[other].branch != store.branch;
                let line = target.machine.line_bytes as i64;
                let bytes = nest.buffer(buffer).dtype.bytes() as i64;
                let again = if other_branch && other < position { load.crossing(written, bytes, line) } else { 0.0 };
                Some(n.max(again))
            });
            waiting += store.share * waits.fold(0.0, f64::max);
        };
        store.value.visit_accesses(&mut |access| note(access.buffer, &access.index));
        let carried = inner.is_none_or(|(v, _)| address_of(nest, store.buffer, store.index).is_some_and(|a| a.uses(v)));
        if store.reduce.is_some() && carried {
            note(store.buffer, store.index);
        }
    }
    waiting
}

/// Copies of a load that wait for a store: of this iteration where it is `earlier` or writes what the load's own statement
/// reads, or of the iteration before.
fn waits(load: &Span, of: &Span, earlier: bool, same_statement: bool, inner: Option<(Var, i64)>) -> usize {
    let apart = load.base.add_scaled(&of.base, -1);
    if !apart.is_constant() {
        return 0;
    }
    let step = inner.map_or(0, |(v, step)| step * load.base.coefficient(v));
    let waits_for = |start, copies: &[i64], apart| load.waits_for(start, of, apart, copies);
    let blocked = |copy: usize, start: i64| {
        // a statement reads what its earlier copies wrote
        let before = if load.starts.len() == of.starts.len() { copy } else { of.starts.len() };
        earlier && waits_for(start, &of.starts, apart.constant)
            || same_statement && waits_for(start, &of.starts[..before], apart.constant)
            || step != 0 && waits_for(start, &of.starts, apart.constant + step)
    };
    load.starts.iter().enumerate().filter(|&(copy, &start)| blocked(copy, start)).count()
}
