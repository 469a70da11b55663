//! Roots of the pointers of a flat function: the argument of the kernel that they point into, or the scratch memory.
//!
//! In: instructions. Out: the root of each general-purpose register. As in the tree that they come from (`tree::Root`), memory of
//! different roots does not overlap. A register has the root that all of its definitions have: that of the pointer that they add to or
//! copy.

use crate::codegen::select::tree::Root;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Gpr, GprOp, Inst, Operand};

/// The kind of value in a register.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Value {
    /// No definition has been seen.
    Undefined,
    Integer,
    Pointer(Root),
    Unknown,
}

impl Value {
    fn join(self, other: Value) -> Value {
        match (self, other) {
            (Value::Undefined, v) | (v, Value::Undefined) => v,
            (a, b) if a == b => a,
            _ => Value::Unknown,
        }
    }

    /// The value of a sum.
    fn plus(self, other: Value) -> Value {
        match (self, other) {
            (p @ Value::Pointer(_), Value::Integer) | (Value::Integer, p @ Value::Pointer(_)) => p,
            (Value::Integer, Value::Integer) => Value::Integer,
            (Value::Undefined, _) | (_, Value::Undefined) => Value::Undefined,
            _ => Value::Unknown,
        }
    }
}

/// The root of each register that is a pointer into one.
pub fn roots(insts: &[Inst], gprs: u32) -> Vec<Option<Root>> {
    let mut values = vec![Value::Undefined; gprs as usize];
    loop {
        let before = values.clone();
        for inst in insts {
            let of = |r: Gpr, values: &[Value]| values[r.index()];
            let value = match *inst {
                Inst::Argument { slot, .. } => Value::Pointer(Root::Argument(slot)),
                Inst::Scratch { .. } => Value::Pointer(Root::Scratch),
                Inst::Copy { src, .. } => of(src, &values),
                Inst::Int { op: GprOp::Add | GprOp::Sub, a, b: Operand::Imm(_), .. } => of(a, &values),
                Inst::Int { op: GprOp::Add, a, b: Operand::Reg(b), .. } => of(a, &values).plus(of(b, &values)),
                _ => Value::Integer,
            };
            inst.registers(|class, access, r| {
                if class == Class::Gpr && access.writes() {
                    values[r as usize] = values[r as usize].join(value);
                }
            });
        }
        if values == before {
            let root = |v| if let Value::Pointer(root) = v { Some(root) } else { None };
            return values.into_iter().map(root).collect();
        }
    }
}
