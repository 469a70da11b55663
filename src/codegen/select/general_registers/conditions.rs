//! Conditions of branches on comparisons of integers.
//!
//! A branch on data tests a number that is 1 where a comparison holds: four instructions make that number out of what the comparison of integers in
//! general-purpose registers chooses. A branch can compare the integers itself.
//!
//! In and out: a function. Invariant: a branch is taken as before.

use crate::codegen::select::uses::{Uses, uses};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Gpr, GprOp, Inst, Lane, Operand};
use crate::expr::CompareOp;
use crate::runtime::DType;
use std::collections::BTreeMap;

/// Lets branches compare what the comparison behind their condition compares.
pub fn join(function: &mut Function) {
    if !function.insts.iter().any(|inst| matches!(inst, Inst::Choose { .. })) {
        return;
    }
    let code = Code { uses: uses(function, Class::Gpr), blocks: blocks(function), insts: &function.insts };
    let found: BTreeMap<usize, Comparison> =
        (0..function.insts.len()).filter_map(|at| Some((at, code.condition(at)?))).collect();
    if found.is_empty() {
        return;
    }
    // an expectation is of the number that is no longer tested
    let mut tested: BTreeMap<u32, usize> = BTreeMap::new();
    for at in found.keys() {
        if let Inst::IfStart { a, .. } = function.insts[*at] {
            *tested.entry(a.0).or_default() += 1;
        }
    }
    let is_expected = |at: &usize| matches!(function.insts[*at], Inst::Expect { .. });
    tested.retain(|r, n| {
        let others = code.uses.read(*r as usize).iter().filter(|at| !is_expected(at)).count();
        others == *n
    });
    let mut out = Vec::with_capacity(function.insts.len());
    let mut gprs = function.gprs;
    for (at, inst) in function.insts.iter().enumerate() {
        match (found.get(&at), inst) {
            (Some(comparison), _) => comparison.branch(&code, &mut gprs, &mut out),
            (None, Inst::Expect { count, .. }) if tested.contains_key(&count.0) => {}
            _ => out.push(inst.clone()),
        }
    }
    (function.insts, function.gprs) = (out, gprs);
}

/// A comparison of integers.
struct Comparison {
    op: CompareOp,
    lane: Lane,
    a: Gpr,
    b: Operand,
}

impl Comparison {
    /// The branch, with extensions of what may not be extended.
    fn branch(&self, code: &Code, gprs: &mut u32, out: &mut Vec<Inst>) {
        let mut wide = |r: Gpr| {
            if self.lane == Lane::I64 || code.is_extended(r) {
                return r;
            }
            let dst = Gpr(*gprs);
            *gprs += 1;
            out.push(Inst::Extend { dst, mem: DType::I32, src: r });
            dst
        };
        let a = wide(self.a);
        let b = match self.b {
            Operand::Reg(r) => Operand::Reg(wide(r)),
            immediate => immediate,
        };
        out.push(Inst::IfStart { op: self.op, a, b });
    }
}

struct Code<'a> {
    uses: Uses,
    /// For each instruction the place where the innermost loop or branch around it begins.
    blocks: Vec<Option<usize>>,
    insts: &'a [Inst],
}

/// For each instruction the place where the innermost loop or branch around it begins; of that place itself the one around.
fn blocks(function: &Function) -> Vec<Option<usize>> {
    let mut open = vec![];
    let of = |(at, inst): (usize, &Inst)| {
        if matches!(inst, Inst::LoopEnd | Inst::IfEnd) {
            open.pop();
        }
        let around = open.last().copied();
        if matches!(inst, Inst::LoopStart { .. } | Inst::IfStart { .. }) {
            open.push(at);
        }
        around
    };
    function.insts.iter().enumerate().map(of).collect()
}

impl Code<'_> {
    /// The comparison on which the branch at a place depends.
    fn condition(&self, at: usize) -> Option<Comparison> {
        let Inst::IfStart { op, a: mut r, b: Operand::Imm(limit) } = self.insts[at] else { return None };
        // bits of the number that count
        let mut mask = -1;
        loop {
            let definition = self.definition(r, at)?;
            match self.insts[definition] {
                Inst::Copy { src, .. } | Inst::Extend { src, mem: DType::I32, .. } => r = src,
                Inst::Word { op: GprOp::And, a, b: Operand::Imm(1), .. }
                | Inst::Int { op: GprOp::And, a, b: Operand::Imm(1), .. } => (r, mask) = (a, 1),
                Inst::Choose { op: compared, lane, a, b, yes, no, .. } => {
                    let holds = |r: Gpr| Some(op.holds(&(self.number(r)? & mask), &limit));
                    let op = match (holds(yes)?, holds(no)?) {
                        (true, false) => compared,
                        (false, true) => compared.opposite(),
                        _ => return None,
                    };
                    let stays = |r: Gpr| self.uses.stays(r.index(), definition, at);
                    let is_same = stays(a) && if let Operand::Reg(b) = b { stays(b) } else { true };
                    return is_same.then_some(Comparison { op, lane, a, b });
                }
                _ => return None,
            }
        }
    }

    /// The only instruction that writes a register, where it stands before `at` in the same iteration of all loops.
    fn definition(&self, r: Gpr, at: usize) -> Option<usize> {
        let [only] = self.uses.written(r.index()) else { return None };
        let mut block = self.blocks[at];
        while block != self.blocks[*only] {
            let start = block?;
            if matches!(self.insts[start], Inst::LoopStart { .. }) {
                return None;
            }
            block = self.blocks[start];
        }
        (*only < at).then_some(*only)
    }

    fn number(&self, r: Gpr) -> Option<i64> {
        match self.uses.written(r.index()) {
            [only] => match self.insts[*only] {
                Inst::Imm { value, .. } => Some(value),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns true for an i32 that fills its register with its sign.
    fn is_extended(&self, r: Gpr) -> bool {
        let extends = |at: &usize| match self.insts[*at] {
            Inst::LoadInt { mem, .. } => {
                matches!(mem, DType::I32 | DType::I16 | DType::U16 | DType::I8 | DType::U8 | DType::Bool)
            }
            Inst::Extend { mem, .. } => mem.bytes() <= 4,
            Inst::Imm { value, .. } => i32::try_from(value).is_ok(),
            _ => false,
        };
        let written = self.uses.written(r.index());
        !written.is_empty() && written.iter().all(extends)
    }
}

#[cfg(test)]
mod tests {
    use super::join;
    use crate::codegen::select::dead_code::remove_unread;
    use crate::codegen::vcode::text;

    /// The code behind the comparison, joined.
    fn joined(between: &str, end: &str) -> String {
        let text = format!(
            "function p (parallel 1, 12 gpr, 1 vector registers, 0 scratch bytes) {{
             r0 = argument 0
             r1 = load i32 [r0]
             r2 = word add r1, 7
             r3 = -1
             r4 = 0
             r5 = choose lt i32 r1, r2, r3, r4
             {between}
             r6 = and r5, 1
             r7 = extend i32 r6
             expect r7, 1
             {end}
             }}\n"
        );
        let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))[0].clone();
        join(&mut function);
        remove_unread(&mut function);
        function.to_string()
    }

    #[test]
    fn a_branch_compares_integers() {
        let text = joined("", "if ge r7, 1 {\n store i32 r1, [r0]\n }\n if le r7, 0 {\n store i32 r2, [r0]\n }");
        assert!(!text.contains("choose") && !text.contains("expect"), "{text}");
        // what was loaded is extended, a sum is not
        assert!(text.contains("extend i32 r2\n  if lt r1, r12 {") && text.contains("if ge r1, r13 {"), "{text}");
    }

    #[test]
    fn what_changes_on_the_way_is_not_compared() {
        let text = joined("r1 = load i32 [r0 + 4]", "if ge r7, 1 {\n store i32 r1, [r0]\n }");
        assert!(text.contains("choose"), "{text}");
        let text = joined("", "r8 = 3\n loop r8 {\n if ge r7, 1 {\n store i32 r1, [r0]\n }\n }");
        assert!(text.contains("choose"), "{text}");
    }
}
