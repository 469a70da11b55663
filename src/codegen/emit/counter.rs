//! Where a loop is counted down: some instructions before its end, where the flags that the branch reads would otherwise be awaited.
//!
//! In: the steps from one on. Out: the counter, where the loop ends a few steps on and none of them writes flags.

use crate::codegen::emit::{Emitter, Encode, Scalars};
use crate::codegen::regalloc::allocation::{Place, Step};
use crate::codegen::vcode::operands::{Class, Group};
use crate::codegen::vcode::{GprOp, Inst};
use dynasmrt::DynamicLabel;
use dynasmrt::relocations::Relocation;

impl<R: Relocation, S> Emitter<'_, R, S>
where
    Self: Encode,
{
    /// Counts down the loop that ends a few of these steps on.
    pub(super) fn count_ahead(&mut self, steps: &[Step]) {
        if !self.counted
            && let Some(counter) = counted_ahead(steps, Self::COUNTED_AHEAD)
        {
            self.count_down(counter);
            self.counted = true;
        }
    }

    /// Ends a loop.
    pub(super) fn count_and_repeat(&mut self, counter: Place, head: DynamicLabel) {
        if !std::mem::take(&mut self.counted) {
            self.count_down(counter);
        }
        self.repeat(head);
    }
}

/// The counter of the loop that ends behind at most `most` of these steps, in a register.
pub fn counted_ahead(steps: &[Step], most: usize) -> Option<Place> {
    let ahead = steps.iter().take(most).take_while(|step| keeps_flags(step)).count();
    match steps.get(ahead)? {
        Step::Inst { inst: Inst::LoopEnd, hidden: Some(counter @ Place::Register(_)), .. } => Some(*counter),
        _ => None,
    }
}

/// Returns true for steps whose code writes no flags and does not branch, and that bring no counter back from its spill slot.
fn keeps_flags(step: &Step) -> bool {
    match step {
        Step::Inst { inst: Inst::Int { op, .. }, .. } => matches!(op, GprOp::Add | GprOp::Sub),
        Step::Inst { inst, .. } => matches!(inst.group(), Group::Load | Group::Store | Group::Vector),
        Step::Store { class, .. } | Step::Load { class, .. } => *class == Class::Vector,
        Step::Again { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Target;
    use crate::codegen::regalloc::allocate;
    use crate::codegen::vcode::text;

    /// How many instructions stand between the place where a loop with this body is counted down and its end.
    fn ahead(body: &str) -> Option<usize> {
        let text = format!(
            "function f (parallel 1, 4 gpr, 9 vector registers, 0 scratch bytes) {{\n r0 = argument 0\n r1 = 8\n r2 = 1\n \
             loop r1 {{\n {body}\n }}\n}}\n"
        );
        let function = text::parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
        let steps = allocate(&function, &Target::neon()).unwrap().steps;
        let end = |steps: &[Step]| steps.iter().position(|s| matches!(s, Step::Inst { inst: Inst::LoopEnd, .. }));
        let place = (0..steps.len()).find(|&i| counted_ahead(&steps[i..], 4).is_some())?;
        end(&steps[place..])
    }

    #[test]
    fn a_loop_is_counted_down_before_its_last_instructions() {
        let load = |i: i32| format!("v{i} = load f32x4 f32 [r0 + {}]", 16 * i);
        let loads = |n: i32| (0..n).map(load).collect::<Vec<_>>().join("\n ");
        assert_eq!(ahead(&loads(8)), Some(4));
        assert_eq!(ahead(&loads(2)), Some(2));
        assert_eq!(ahead(&format!("{}\n r0 = add r0, 16", loads(2))), Some(3));
    }

    #[test]
    fn a_counter_that_comes_back_from_its_slot_is_counted_down_behind() {
        let end = |register| Step::Inst {
            origin: 0,
            inst: Inst::LoopEnd,
            hidden: Some(Place::Register(register)),
            temporaries: Default::default(),
        };
        let load = |class| Step::Load { class, register: 3, slot: 0, once: false };
        assert_eq!(counted_ahead(&[load(Class::Gpr), end(3)], 4), None);
        assert_eq!(counted_ahead(&[load(Class::Vector), end(3)], 4), Some(Place::Register(3)));
    }

    /// `r2 = max r2, r0` compares.
    #[test]
    fn a_loop_is_counted_down_behind_what_writes_flags() {
        assert_eq!(ahead("v0 = load f32x4 f32 [r0]\n r2 = max r2, r0"), Some(0));
        assert_eq!(ahead("r2 = max r2, r0\n v0 = load f32x4 f32 [r0]"), Some(1));
        assert_eq!(ahead("if lt r2, 3 {\n v0 = load f32x4 f32 [r0]\n }"), Some(0));
    }
}
