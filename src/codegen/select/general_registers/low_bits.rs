//! Extensions of integers of which only low bits are needed.
//!
//! A value of 8 or 16 bits is brought back into its type after each operation. Where all that reads it takes no more than these bits, as a
//! store does, and a sum or a product that is brought back itself, the extension changes nothing. It is a copy then, and an iteration that
//! waits for it is a cycle shorter. Source: demanded bits, a backward analysis (Budiu, Sakr, Walker, Goldstein, "BitValue inference", Euro-Par 2000).
//!
//! In and out: a function. Invariant: memory gets the same bytes.

use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Gpr, GprOp, Inst, Lane, Operand, ShiftOp};

/// Bits of a register.
const ALL: u32 = 64;

/// Makes copies of extensions whose upper bits nothing reads.
pub fn drop_extensions(function: &mut Function) {
    if !function.insts.iter().any(|inst| matches!(inst, Inst::Extend { .. })) {
        return;
    }
    let (mut demanded, mut found) = (vec![0; function.gprs as usize], vec![]);
    loop {
        let mut grown = false;
        for inst in function.insts.iter().rev() {
            found.clear();
            reads(inst, &demanded, &mut |r, bits| found.push((r, bits)));
            for &(r, bits) in &found {
                grown |= demanded[r] < bits;
                demanded[r] = demanded[r].max(bits);
            }
        }
        if !grown {
            break;
        }
    }
    for inst in &mut function.insts {
        if let Inst::Extend { dst, mem, src } = *inst
            && demanded[dst.index()] <= 8 * mem.bytes() as u32
        {
            *inst = Inst::Copy { dst, src };
        }
    }
}

/// Calls `f` on each register that an instruction reads, with the low bits of which what it writes needs `demanded` bits.
fn reads(inst: &Inst, demanded: &[u32], f: &mut impl FnMut(usize, u32)) {
    let of = |r: Gpr| demanded[r.index()];
    let lane_bits = |lane: Lane| 8 * lane.bytes() as u32;
    let mut operands = |needed: u32, all: &[Operand]| {
        for operand in all {
            if let Operand::Reg(r) = operand {
                f(r.index(), needed);
            }
        }
    };
    let low = |op: GprOp| matches!(op, GprOp::Add | GprOp::Sub | GprOp::Mul | GprOp::And | GprOp::Or | GprOp::Xor);
    match *inst {
        Inst::Extend { dst, mem, src } => operands(of(dst).min(8 * mem.bytes() as u32), &[Operand::Reg(src)]),
        Inst::Copy { dst, src } => operands(of(dst), &[Operand::Reg(src)]),
        Inst::Int { op: GprOp::And, dst, a, b: Operand::Imm(mask) } if mask >= 0 => {
            operands(of(dst).min(ALL - mask.leading_zeros()), &[Operand::Reg(a)]);
        }
        Inst::Int { op, dst, a, b } if low(op) => operands(of(dst), &[Operand::Reg(a), b]),
        Inst::Word { op, dst, a, b } if low(op) => operands(of(dst).min(32), &[Operand::Reg(a), b]),
        Inst::Shift { dst, op, lane, a, amount } => {
            let needed = match (op, of(dst)) {
                (_, 0) => 0,
                (ShiftOp::Left, bits) => bits.saturating_sub(amount.into()),
                (_, bits) => bits + u32::from(amount),
            };
            operands(needed.min(lane_bits(lane)), &[Operand::Reg(a)]);
        }
        Inst::Choose { dst, lane, a, b, yes, no, .. } => {
            operands(of(dst), &[Operand::Reg(yes), Operand::Reg(no)]);
            operands(lane_bits(lane), &[Operand::Reg(a), b]);
        }
        Inst::StoreInt { mem, src, addr } => {
            operands(8 * mem.bytes() as u32, &[Operand::Reg(src)]);
            operands(ALL, &[Operand::Reg(addr.base)]);
            operands(ALL, &addr.index.map(|(r, _)| Operand::Reg(r)).into_iter().collect::<Vec<_>>());
        }
        _ => inst.registers(|class, access, r| {
            if class == Class::Gpr && access.reads() {
                f(r as usize, ALL);
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::drop_extensions;
    use crate::codegen::vcode::{Inst, text};

    /// The extensions that stay.
    fn extensions(body: &str) -> usize {
        let text = format!("function p (parallel 1, 9 gpr, 1 vector registers, 0 scratch bytes) {{\n{body}\n}}\n");
        let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))[0].clone();
        drop_extensions(&mut function);
        function.insts.iter().filter(|i| matches!(i, Inst::Extend { .. })).count()
    }

    #[test]
    fn stores_and_what_is_extended_itself_take_low_bits() {
        let start = "r0 = argument 0\n r1 = load i16 [r0]\n r2 = word add r1, 9\n r3 = extend i16 r2\n";
        assert_eq!(extensions(&format!("{start} store i16 r3, [r0]")), 0);
        assert_eq!(extensions(&format!("{start} store i32 r3, [r0]")), 1);
        let product = format!("{start} r4 = word mul r3, 7\n r5 = extend i16 r4\n");
        assert_eq!(extensions(&format!("{product} store i16 r3, [r0]\n store i32 r5, [r0 + 4]")), 1);
        assert_eq!(extensions(&format!("{product} r6 = shift left i32 r5, 16\n store i32 r6, [r0]")), 0);
        // upper bits come down, or are compared
        assert_eq!(extensions(&format!("{start} r6 = shift rightarithmetic i32 r3, 1\n store i16 r6, [r0]")), 1);
        assert_eq!(extensions(&format!("{start} r6 = choose lt i32 r3, 0, r1, r2\n store i16 r6, [r0]")), 1);
        assert_eq!(extensions(&format!("{start} store i16 r1, [r0 + 2*r3]")), 1);
    }

    #[test]
    fn the_next_iteration_counts() {
        let text = |op: &str| {
            format!(
                "r0 = argument 0\n r1 = 0\n r2 = 9\n loop r2 {{\n r3 = {op}\n r1 = extend i16 r3\n store i16 r1, [r0]\n }}"
            )
        };
        assert_eq!(extensions(&text("word add r1, 5")), 0);
        assert_eq!(extensions(&text("shift rightarithmetic i32 r1, 1")), 1);
    }
}
