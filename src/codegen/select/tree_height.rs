//! Tree-height reduction of recurrences (Kuck, Muraoka and Chen, "On the number of operations simultaneously executable in Fortran-like
//! programs", 1972): of the operands of integer operations that may be joined in any order, what an iteration waits for comes last.
//!
//! In and out: a flat function. `min(min(x, a), b)` in an innermost loop, where x follows from the iteration before and a and b do not, is
//! `min(x, min(a, b))`, whichever statements the two are of. Where the inner value has other readers it stays beside the new one, if
//! iterations wait longer than their instructions take. Invariant: every register and all memory get the same bits.

use crate::codegen::Target;
use crate::codegen::select::general_registers::recurrence::{innermost, latency, longest_chain};
use crate::codegen::select::uses::{Uses, uses};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Inst, VBinary, VType, Vreg};
use std::ops::Range;

/// Instructions of a loop that is looked at, at most.
const LONGEST: usize = 500;

/// Instructions of a cycle, when a loop does not wait.
const PER_CYCLE: f64 = 4.0;

/// Instructions that are looked at in a function, at most.
const MOST_WORK: usize = 1 << 20;

/// Cycles that are shorter: more than what rounding leaves.
const LEAST_SAVED: f64 = 1e-6;

/// Puts the operands that iterations wait for last, in the innermost loops.
pub fn reduce(function: &mut Function, target: &Target) {
    let mut work = 0;
    // from the last on, so that the places of the others stay
    for l in innermost(function).iter().rev() {
        let mut body = l.body.clone();
        let is_straight = function.insts[body.clone()].iter().all(|inst| !inst.is_control());
        let operations = function.insts[body.clone()].iter().filter(|inst| associative(inst).is_some()).count();
        if body.len() > LONGEST || !is_straight || operations < 2 {
            continue;
        }
        while let Some((changed, insts)) = shorter(function, target, &body, &mut work) {
            body.end = body.end + insts.len() - changed.len();
            function.insts.splice(changed, insts);
            function.vregs += 1;
        }
    }
}

/// An operation of integers on an operand that is one itself.
struct Pair {
    /// The place of the inner one.
    inner: usize,
    op: VBinary,
    ty: VType,
    dst: Vreg,
    /// The other operand of the outer one.
    outer_operand: Vreg,
    inner_operands: [Vreg; 2],
    /// Nothing else reads the inner one.
    is_sole: bool,
}

/// The instructions of the body in place of some, by which its iterations wait less.
fn shorter(
    function: &Function,
    target: &Target,
    body: &Range<usize>,
    work: &mut usize,
) -> Option<(Range<usize>, Vec<Inst>)> {
    let insts: Vec<&Inst> = function.insts[body.clone()].iter().collect();
    let cycles = |insts: &[&Inst]| {
        let of = |at: usize| insts[at].lanes().is_none().then(|| latency(insts[at], target, false));
        longest_chain(insts, |class| class == Class::Vector, of)
    };
    let before = cycles(&insts);
    if before <= 0.0 {
        return None;
    }
    let uses = uses(function, Class::Vector);
    let waits = before > insts.len() as f64 / PER_CYCLE;
    for outer in body.clone() {
        for pair in pairs(function, &uses, body, outer).into_iter().filter(|pair| pair.is_sole || waits) {
            for [late, early] in [pair.inner_operands, [pair.inner_operands[1], pair.inner_operands[0]]] {
                *work += insts.len();
                if *work > MOST_WORK {
                    return None;
                }
                let joined = Vreg(function.vregs);
                let Pair { op, ty, dst, .. } = pair;
                let first = Inst::VBinary { op, dst: joined, ty, a: early, b: pair.outer_operand };
                let second = Inst::VBinary { op, dst, ty, a: late, b: joined };
                let from = if pair.is_sole { pair.inner } else { outer };
                let between = insts[pair.inner + 1 - body.start..outer - body.start].iter().map(|&inst| inst.clone());
                let mut changed: Vec<Inst> = if pair.is_sole { between.collect() } else { vec![] };
                changed.extend([first, second]);
                let (head, tail) = (&insts[..from - body.start], &insts[outer + 1 - body.start..]);
                let after: Vec<&Inst> = head.iter().copied().chain(&changed).chain(tail.iter().copied()).collect();
                if cycles(&after) < before - LEAST_SAVED {
                    return Some((from..outer + 1, changed));
                }
            }
        }
    }
    None
}

/// The operation at `outer` with those of its operands that are such an operation before it in the body, and whose own operands are the same there.
fn pairs(function: &Function, uses: &Uses, body: &Range<usize>, outer: usize) -> Vec<Pair> {
    let Some((op, ty, dst, operands)) = associative(&function.insts[outer]) else { return vec![] };
    let pair = |[through, outer_operand]: [Vreg; 2]| {
        let written = uses.written(through.index());
        let inner = *written[..written.partition_point(|&w| w < outer)].last().filter(|w| body.contains(w))?;
        let (inner_op, inner_ty, _, inner_operands) = associative(&function.insts[inner])?;
        let same = |r: &Vreg| *r != through && uses.stays(r.index(), inner, outer);
        let fits = (inner_op, inner_ty) == (op, ty) && inner_operands.iter().all(same) && outer_operand != through;
        let is_sole = uses.read(through.index()) == [outer] && written == [inner];
        fits.then_some(Pair { inner, op, ty, dst, outer_operand, inner_operands, is_sole })
    };
    [operands, [operands[1], operands[0]]].into_iter().filter_map(pair).collect()
}

/// An operation of integers that may be joined in any order.
fn associative(inst: &Inst) -> Option<(VBinary, VType, Vreg, [Vreg; 2])> {
    match *inst {
        Inst::VBinary { op, dst, ty, a, b } if !ty.lane.is_float() => {
            use VBinary::{Add, And, Max, Min, Or, Xor};
            matches!(op, Add | Min | Max | And | Or | Xor).then_some((op, ty, dst, [a, b]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::{execute, text};

    /// A loop over 16 elements of A (argument 0) and B (argument 1), where `body` computes v9 from v0 of the iteration before, v1 and v2.
    fn function(body: &str) -> Function {
        let text = format!(
            "function f (serial, 4 gpr, 40 vector registers, 0 scratch bytes) {{
               r0 = argument 0
               r1 = argument 1
               r2 = 16
               v0 = const i32x1 #7
               v3 = const i32x1 #3
               loop r2 (at least once) {{
                 v1 = load i32x1 i32 [r0]
                 v2 = load i32x1 i32 [r1]
                 {body}
                 store i32x1 i32 v9, [r0]
                 v0 = copy i32x1 v9
                 r0 = add r0, 4
                 r1 = add r1, 4
               }}
             }}"
        );
        text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0)
    }

    /// The function after the reduction, which computes the same.
    fn reduced(body: &str) -> Function {
        let before = function(body);
        let mut after = before.clone();
        reduce(&mut after, &Target::avx512());
        let run = |f: &Function| {
            let numbers = |seed: i32| (0..16).flat_map(move |i: i32| ((i * seed) % 13 - 5).to_le_bytes()).collect();
            let mut buffers: [Vec<u8>; 2] = [numbers(7), numbers(11)];
            execute::run(f, &mut buffers, 0, 1).unwrap_or_else(|e| panic!("{e}\n{f}"));
            buffers
        };
        assert_eq!(run(&after), run(&before), "{before}\n{after}");
        after
    }

    #[test]
    fn what_iterations_wait_for_comes_last() {
        for (body, expected) in [
            ("v4 = min i32x1 v0, v1\n v9 = min i32x1 v4, v2", "v40 = min i32x1 v1, v2\n    v9 = min i32x1 v0, v40"),
            ("v4 = add i32x1 v1, v0\n v9 = add i32x1 v2, v4", "v40 = add i32x1 v1, v2\n    v9 = add i32x1 v0, v40"),
            // two operations further in
            (
                "v4 = max i32x1 v0, v1\n v5 = max i32x1 v4, v2\n v9 = max i32x1 v5, v3",
                "v40 = max i32x1 v1, v2\n    v41 = max i32x1 v40, v3\n    v9 = max i32x1 v0, v41",
            ),
        ] {
            let after = reduced(body).to_string();
            assert!(after.contains(expected), "{body}\n{after}");
        }
    }

    #[test]
    fn other_operations_stay() {
        for body in [
            // what is joined first is what the iteration waits for already
            "v4 = min i32x1 v1, v2\n v9 = min i32x1 v0, v4",
            // two operations, and differences
            "v4 = min i32x1 v0, v1\n v9 = max i32x1 v4, v2",
            "v4 = sub i32x1 v0, v1\n v9 = sub i32x1 v4, v2",
            // an operand that is another number where the second operation stands
            "v4 = min i32x1 v0, v1\n v1 = add i32x1 v1, v3\n v9 = min i32x1 v4, v1\n v9 = min i32x1 v9, v9",
            // all are of the iteration before
            "v4 = min i32x1 v0, v1\n v9 = min i32x1 v4, v0",
        ] {
            assert_eq!(reduced(body), function(body), "{body}");
        }
    }

    #[test]
    fn values_with_other_readers_stay_where_iterations_wait_longer_than_they_work() {
        let read = "v4 = min i32x1 v0, v1\n v9 = min i32x1 v4, v2\n store i32x1 i32 v4, [r1]";
        assert_eq!(reduced(read), function(read));
        let waits =
            "v10 = add i32x1 v0, v3\n v11 = max i32x1 v10, v3\n v12 = add i32x1 v11, v3\n v13 = max i32x1 v12, v1";
        let after = reduced(&format!("{waits}\n{}", read.replace("v0", "v13"))).to_string();
        assert!(after.contains("v4 = min i32x1 v13, v1") && after.contains("v9 = min i32x1 v13, v40"), "{after}");
    }
}
