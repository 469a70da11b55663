//! Quotients by inverses become divisions where these are faster.
//!
//! In and out: a flat function for AVX-512. An inverse takes the ports of all arithmetic, and has three times the latency of a
//! division, which has a unit of its own. So quotients are divisions in an innermost loop where one iteration waits for
//! the quotient of another, and where other arithmetic takes as long as the divisions beside it would.

use crate::codegen::Target;
use crate::codegen::select::uses::{remove, uses};
use crate::codegen::target::Isa;
use crate::codegen::vcode::operands::{Class, Group};
use crate::codegen::vcode::{Function, Inst, VBinary, VUnary};
use crate::expr::BinaryOp;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

/// Makes divisions of the quotients that take longer.
pub fn divide(function: &mut Function, target: &Target) {
    let any = function.insts.iter().any(|i| matches!(i, Inst::VQuotient { .. }));
    if target.isa != Isa::Avx512 || !any {
        return;
    }
    for body in innermost_loops(&function.insts) {
        let insts = &function.insts[body.clone()];
        let quotients: Vec<usize> = (0..insts.len()).filter(|&i| matches!(insts[i], Inst::VQuotient { .. })).collect();
        let (waiting, free): (Vec<_>, Vec<_>) = quotients.into_iter().partition(|&i| waits_for_itself(insts, i));
        let divided = if divisions_are_faster(insts, free.len(), target) { [waiting, free].concat() } else { waiting };
        for i in divided {
            let inst = &mut function.insts[body.start + i];
            if let Inst::VQuotient { dst, ty, a, b, .. } = *inst {
                *inst = Inst::VBinary { op: VBinary::Div, dst, ty, a, b };
            }
        }
    }
    let uses = uses(function, Class::Vector);
    let unread = |inst: &Inst| matches!(inst, Inst::VUnary { op: VUnary::Inverse, dst, .. } if uses[dst.index()].read.is_empty());
    let unread: BTreeSet<usize> = (0..function.insts.len()).filter(|&i| unread(&function.insts[i])).collect();
    remove(function, &unread);
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

/// Returns true if registers carry the quotient at `at` to its own operands, which is in another iteration.
fn waits_for_itself(insts: &[Inst], at: usize) -> bool {
    let Inst::VQuotient { dst, a, b, .. } = insts[at] else { return false };
    let mut reached = HashSet::from([dst.0]);
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
            return reached.contains(&a.0) || reached.contains(&b.0);
        }
    }
}

/// Compares the cycles of an iteration in which `quotients` are divided with those of one in which they are multiplied.
fn divisions_are_faster(insts: &[Inst], quotients: usize, target: &Target) -> bool {
    let machine = &target.machine;
    let (mut others, mut inverses, mut divisions, mut multiplied) = (0.0, 0.0, 0.0, 0.0);
    for inst in insts {
        let bytes = inst.ty().map_or(4, |ty| ty.lane.bytes());
        match inst {
            Inst::VUnary { op: VUnary::Inverse, .. } => inverses += machine.inverse_cycles[usize::from(bytes == 8)],
            Inst::VQuotient { .. } => {
                divisions += BinaryOp::Div.cost().cycles * bytes as f64 / 4.0;
                multiplied += machine.quotient_cycles;
            }
            Inst::VConst { .. } | Inst::VCopy { .. } => {}
            inst if inst.group() == Group::Vector => others += 1.0 / machine.fma_per_cycle as f64,
            _ => {}
        }
    }
    quotients > 0 && divisions.max(others) < others + inverses + multiplied
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
    fn quotients_are_divided_beside_much_other_arithmetic() {
        let others = |n: usize| (0..n).map(|i| format!("\n v{} = add f32x16 v3, v1", 10 + i)).collect::<String>();
        assert_eq!(settled(&format!("{QUOTIENT}{}", others(2))), (1, 0, 1));
        assert_eq!(settled(&format!("{QUOTIENT}{}", others(20))), (0, 1, 0));
        // a second one by the same divisor shares its inverse
        let shared = format!("{QUOTIENT}\n v5 = quotient f32x16 v0, v3, v4\n v6 = quotient f32x16 v3, v3, v4");
        assert_eq!(settled(&format!("{shared}{}", others(6))), (3, 0, 1));
    }
}
