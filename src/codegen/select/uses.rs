//! Uses of registers in a flat function, and the removal of instructions.

use crate::codegen::vcode::Function;
use crate::codegen::vcode::operands::Class;
use std::collections::BTreeSet;

/// The places of the instructions that read a register, and of those that write it.
#[derive(Clone, Default)]
pub struct Uses {
    pub read: Vec<usize>,
    pub written: Vec<usize>,
}

/// The uses of every register of a class, by its number.
pub fn uses(function: &Function, class: Class) -> Vec<Uses> {
    let registers = match class {
        Class::Gpr => function.gprs,
        Class::Vector => function.vregs,
    };
    let mut uses = vec![Uses::default(); registers as usize];
    for (at, inst) in function.insts.iter().enumerate() {
        inst.registers(|of, access, r| {
            if of == class {
                access.reads().then(|| uses[r as usize].read.push(at));
                access.writes().then(|| uses[r as usize].written.push(at));
            }
        });
    }
    uses
}

/// Removes the instructions at these places.
pub fn remove(function: &mut Function, places: &BTreeSet<usize>) {
    let mut at = 0..;
    function.insts.retain(|_| at.next().is_none_or(|at| !places.contains(&at)));
}
