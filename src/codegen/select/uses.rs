//! Uses of registers in a flat function, and the removal of instructions.

use crate::codegen::vcode::Function;
use crate::codegen::vcode::operands::Class;
use std::collections::BTreeSet;

/// The places of the instructions that read or write each register of a class, in order.
pub struct Uses {
    /// Readers of register 0, its writers, readers of register 1, and so on.
    places: Vec<usize>,
    /// Where in `places` each of these lists begins; the last number is where the last ends.
    begins: Vec<usize>,
}

impl Uses {
    /// The instructions that read the register of this number.
    pub fn read(&self, register: usize) -> &[usize] {
        self.list(2 * register)
    }

    /// The instructions that write the register of this number.
    pub fn written(&self, register: usize) -> &[usize] {
        self.list(2 * register + 1)
    }

    /// Returns true if the register is not written between the two places.
    pub fn stays(&self, register: usize, from: usize, to: usize) -> bool {
        let written = self.written(register);
        written.get(written.partition_point(|&w| w <= from)).is_none_or(|&w| w >= to)
    }

    fn list(&self, list: usize) -> &[usize] {
        &self.places[self.begins[list]..self.begins[list + 1]]
    }
}

/// The uses of every register of a class.
pub fn uses(function: &Function, class: Class) -> Uses {
    let registers = match class {
        Class::Gpr => function.gprs,
        Class::Vector => function.vregs,
    };
    let mut accesses = Vec::with_capacity(4 * function.insts.len());
    // of the list after the next, so that the sums below are first the beginnings and at the end those of the lists after
    let mut begins = vec![0; 2 * registers as usize + 2];
    for (index, inst) in function.insts.iter().enumerate() {
        inst.registers(|of, access, r| {
            if of == class {
                let lists = [(access.reads(), 2 * r as usize), (access.writes(), 2 * r as usize + 1)];
                for (_, list) in lists.into_iter().filter(|l| l.0) {
                    begins[list + 2] += 1;
                    accesses.push((list, index));
                }
            }
        });
    }
    for list in 1..begins.len() {
        begins[list] += begins[list - 1];
    }
    let mut places = vec![0; accesses.len()];
    for (list, index) in accesses {
        places[begins[list + 1]] = index;
        begins[list + 1] += 1;
    }
    Uses { places, begins }
}

/// Removes the instructions at these places.
pub fn remove(function: &mut Function, places: &BTreeSet<usize>) {
    if places.is_empty() {
        return;
    }
    let mut indices = 0..;
    function.insts.retain(|_| indices.next().is_none_or(|index| !places.contains(&index)));
}
