//! Quotients by inverses become divisions where these are faster, and square roots products where the divider is busy.
//!
//! In and out: a flat function for AVX-512. An inverse takes the ports of all arithmetic, and has three times the latency of a
//! division, which has a unit of its own; the same holds for roots. So quotients are divisions, and roots stay, in an innermost loop
//! where one iteration waits for them in another, and where other arithmetic takes as long as the divider beside it would.

use crate::codegen::Target;
use crate::codegen::select::uses::{remove, uses};
use crate::codegen::target::Isa;
use crate::codegen::vcode::operands::{Class, Group};
use crate::codegen::vcode::{Function, Inst, Lane, VBinary, VUnary};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::ops::Range;

/// Makes divisions of the quotients that take longer, and products of the roots that do.
pub fn divide(function: &mut Function, target: &Target) {
    let whole = |i: &Inst| is_root(i) && i.ty().is_some_and(|ty| ty.lanes as usize * 4 == target.vector_bytes);
    let any = function.insts.iter().any(|i| matches!(i, Inst::VQuotient { .. }) || whole(i));
    if target.isa != Isa::Avx512 || !any {
        return;
    }
    for body in innermost_loops(&function.insts) {
        let insts = &function.insts[body.clone()];
        let divisions = (0..insts.len()).filter(|&i| matches!(insts[i], Inst::VQuotient { .. }) || whole(&insts[i]));
        let (waiting, free): (Vec<_>, Vec<_>) = divisions.partition(|&i| waits_for_itself(insts, i));
        let (roots, quotients): (Vec<_>, Vec<_>) = free.into_iter().partition(|&i| is_root(&insts[i]));
        let (divided, multiplied) = fastest(insts, quotients.len(), roots.len(), target);
        let waiting = waiting.into_iter().filter(|&i| !is_root(&insts[i]));
        let divided: Vec<usize> = waiting.chain(quotients.into_iter().filter(|_| divided)).collect();
        for i in divided {
            let inst = &mut function.insts[body.start + i];
            if let Inst::VQuotient { dst, ty, a, b, .. } = *inst {
                *inst = Inst::VBinary { op: VBinary::Div, dst, ty, a, b };
            }
        }
        for i in roots.into_iter().filter(|_| multiplied) {
            if let Inst::VUnary { op, .. } = &mut function.insts[body.start + i] {
                *op = VUnary::Root;
            }
        }
    }
    remove_unread(function);
}

/// Removes inverses that no quotient reads, and what they alone read.
fn remove_unread(function: &mut Function) {
    loop {
        let uses = uses(function, Class::Vector);
        let unread = |inst: &Inst| match inst {
            Inst::VUnary { op: VUnary::Inverse, dst, .. }
            | Inst::VBinary { op: VBinary::Div, dst, .. }
            | Inst::VCompare { dst, .. }
            | Inst::VChoose { dst, .. }
            | Inst::VSelect { dst, .. } => uses.read(dst.index()).is_empty(),
            _ => false,
        };
        let unread: BTreeSet<usize> = (0..function.insts.len()).filter(|&i| unread(&function.insts[i])).collect();
        if unread.is_empty() {
            return;
        }
        remove(function, &unread);
    }
}

fn is_root(inst: &Inst) -> bool {
    matches!(inst, Inst::VUnary { op: VUnary::Sqrt, ty, .. } if ty.lane == Lane::F32)
}

/// The bodies of the loops that contain no other.
fn innermost_loops(insts: &[Inst]) -> Vec<Range<usize>> {
    let (mut start, mut out) = (None, vec![]);
    for (i, inst) in insts.iter().enumerate() {
        match inst {
            Inst::LoopStart { .. } => start = Some(i + 1),
            Inst::LoopEnd => out.extend(start.take().map(|start| start..i)),
            _ => {}
        }
    }
    out
}

/// Returns true if registers carry the quotient or root at `index` to its own operands, which is in another iteration.
fn waits_for_itself(insts: &[Inst], index: usize) -> bool {
    let (dst, operands) = match insts[index] {
        Inst::VQuotient { dst, a, b, .. } => (dst, [a, b]),
        Inst::VUnary { dst, a, .. } => (dst, [a, a]),
        _ => return false,
    };
    let mut reached = FxHashSet::from_iter([dst.0]);
    loop {
        let before = reached.len();
        for inst in insts {
            let mut reads = false;
            inst.registers(|class, access, r| {
                reads |= class == Class::Vector && access.reads() && reached.contains(&r)
            });
            if reads {
                inst.registers(|class, access, r| {
                    if class == Class::Vector && access.writes() {
                        reached.insert(r);
                    }
                });
            }
        }
        if reached.len() == before {
            return operands.iter().any(|r| reached.contains(&r.0));
        }
    }
}

/// Returns two flags, those of the fewest cycles of an iteration: `quotients` are divided, `roots` are multiplied.
fn fastest(insts: &[Inst], quotients: usize, roots: usize, target: &Target) -> (bool, bool) {
    let machine = &target.machine;
    let (mut others, mut inverses, mut divisions, mut multiplied) = (0.0, 0.0, 0.0, 0.0);
    for inst in insts {
        let bytes = inst.ty().map_or(4, |ty| ty.lane.bytes());
        match inst {
            Inst::VUnary { op: VUnary::Inverse, .. } => inverses += machine.inverse_cycles[usize::from(bytes == 8)],
            Inst::VQuotient { .. } => {
                divisions += machine.division_cycles[usize::from(bytes == 8)];
                multiplied += machine.quotient_cycles;
            }
            Inst::VConst { .. } | Inst::VCopy { .. } => {}
            inst if inst.group() == Group::Vector => others += 1.0 / machine.fma_per_cycle as f64,
            _ => {}
        }
    }
    let [by_divider, by_products] = machine.root_cycles.map(|cycles| cycles * roots as f64);
    let cycles = |(divided, products): (bool, bool)| {
        let ports =
            others + if divided { 0.0 } else { inverses + multiplied } + if products { by_products } else { 0.0 };
        let divider = if divided { divisions } else { 0.0 } + if products { 0.0 } else { by_divider };
        f64::max(ports, divider)
    };
    let mut best = (false, false);
    for way in [(true, false), (false, true), (true, true)] {
        let possible = (quotients > 0 || !way.0) && (roots > 0 || !way.1);
        if possible && cycles(way) < cycles(best) {
            best = way;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::text;

    /// How many quotients and divisions there are in a loop over `body`.
    fn settled(body: &str) -> (usize, usize, usize) {
        let text = format!(
            "function f (parallel 1, 2 gpr, 40 vector registers, 0 scratch bytes) {{
             r0 = argument 0\n r1 = 100\n v0 = load f32x16 f32 [r0]\n v1 = load f32x16 f32 [r0 + 64]
             loop r1 {{\n{body}\n store f32x16 f32 v2, [r0]\n }}\n}}\n"
        );
        let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0);
        divide(&mut function, &Target::avx512());
        let text = function.to_string();
        (text.matches("quotient").count(), text.matches("div").count(), text.matches("inverse").count())
    }

    const QUOTIENT: &str = "v3 = load f32x16 f32 [r0]\n v4 = inverse f32x16 v3\n v2 = quotient f32x16 v1, v3, v4";

    #[test]
    fn a_quotient_is_divided_where_the_next_iteration_waits_for_it() {
        assert_eq!(settled(QUOTIENT), (1, 0, 1));
        let recurrence = "v3 = add f32x16 v1, v2\n v4 = inverse f32x16 v3\n v2 = quotient f32x16 v1, v3, v4";
        assert_eq!(settled(recurrence), (0, 1, 0));
        let sum = format!("{}\n v2 += f32x16 v5 * v1", QUOTIENT.replace("v2 =", "v5 ="));
        assert_eq!(settled(&sum), (1, 0, 1));
    }

    #[test]
    fn a_root_is_multiplied_where_the_divider_is_busy() {
        let of = |body: &str, roots: usize| {
            let text = format!(
                "function f (parallel 1, 2 gpr, 40 vector registers, 0 scratch bytes) {{
                 r0 = argument 0\n r1 = 100\n v0 = load f32x16 f32 [r0]\n v1 = load f32x16 f32 [r0 + 64]
                 loop r1 {{\n v3 = load f32x16 f32 [r0]\n{body}\n store f32x16 f32 v2, [r0]\n }}\n}}\n"
            );
            let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0);
            divide(&mut function, &Target::avx512());
            let text = function.to_string();
            assert_eq!((text.matches("root").count(), text.matches("sqrt").count()), (roots, 1 - roots), "{text}");
        };
        let others = |n: usize| (0..n).map(|i| format!("\n v{} = add f32x16 v3, v1", 10 + i)).collect::<String>();
        of("v2 = sqrt f32x16 v3", 1);
        of(&format!("v2 = sqrt f32x16 v3{}", others(4)), 1);
        of(&format!("v2 = sqrt f32x16 v3{}", others(20)), 0);
        // the next iteration waits for it, half a register, f64
        of("v4 = add f32x16 v2, v3\n v2 = sqrt f32x16 v4", 0);
        of("v2 = sqrt f32x8 v3", 0);
        of("v2 = sqrt f64x8 v3", 0);
    }

    #[test]
    fn quotients_are_divided_beside_much_other_arithmetic() {
        let others = |n: usize| (0..n).map(|i| format!("\n v{} = add f32x16 v3, v1", 10 + i)).collect::<String>();
        assert_eq!(settled(&format!("{QUOTIENT}{}", others(2))), (1, 0, 1));
        assert_eq!(settled(&format!("{QUOTIENT}{}", others(20))), (0, 1, 0));
        // a second one by the same divisor shares its inverse
        let shared = format!("{QUOTIENT}\n v5 = quotient f32x16 v0, v3, v4\n v6 = quotient f32x16 v3, v3, v4");
        assert_eq!(settled(&format!("{shared}{}", others(6))), (3, 0, 1));
    }
}
