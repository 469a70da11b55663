//! Checker: proves that an allocation computes the function; after the checker of regalloc2.
//!
//! In: a function and its allocation. Out: nothing, or the first instruction that may read a wrong value.
//!
//! Abstract interpretation of the allocated program. The state maps each place (physical register or spill slot) to the
//! value of the function that it is known to hold, or to nothing: the lattice is flat, `value < unknown`, and states meet
//! place by place. A write of a value makes every other place that held it unknown: it holds an old one. States at loop
//! heads start as the state on entry and only lose knowledge, so the iteration ends; what it finds holds on every path.
//! Moves carry knowledge; instructions are also compared, apart from their registers, with those of the function.

use crate::codegen::Target;
use crate::codegen::regalloc::allocation::{Allocation, Place, RegisterFile, Step, ValueOperand, Values};
use crate::codegen::vcode::operands::{Access, Class};
use crate::codegen::vcode::{Function, Inst};
use crate::runtime::{Error, Result};

const UNKNOWN: u32 = u32::MAX;

/// The value in each place: 64 general-purpose registers, 64 vector registers, then the slots of both classes.
#[derive(Clone, PartialEq)]
struct State {
    held: Vec<u32>,
    gpr_slots: u32,
}

impl State {
    fn index(&self, class: Class, place: Place) -> usize {
        match place {
            Place::Register(r) => 64 * class as usize + r as usize,
            Place::Slot(s) => 128 + (self.gpr_slots * class as u32 + s) as usize,
        }
    }

    fn meet(&mut self, other: &State) {
        for (a, b) in self.held.iter_mut().zip(&other.held) {
            if a != b {
                *a = UNKNOWN;
            }
        }
    }

    /// `value` is written anew: nothing holds it yet.
    fn forget(&mut self, value: u32) {
        self.held.iter_mut().filter(|h| **h == value).for_each(|h| *h = UNKNOWN);
    }
}

/// Proves `allocation` or names the first instruction that may read a wrong value.
pub fn check(function: &Function, allocation: &Allocation, target: &Target) -> Result<()> {
    check_with(function, allocation, &RegisterFile::of(target.isa))
}

/// Variant of [`check`] for other sets of registers.
fn check_with(function: &Function, allocation: &Allocation, file: &RegisterFile) -> Result<()> {
    let mut checker = Checker { function, allocation, file, values: Values::of(function), heads: vec![] };
    checker.check_shape()?;
    while checker.pass()? {}
    Ok(())
}

/// A pass on its way.
struct Walk {
    state: State,
    /// Open bodies: the state on entry (where the body may be skipped), the loop number.
    open: Vec<(Option<State>, Option<usize>)>,
    /// Loops so far.
    loops: usize,
    changed: bool,
}

struct Checker<'a> {
    function: &'a Function,
    allocation: &'a Allocation,
    file: &'a RegisterFile,
    values: Values,
    /// The state at the head of each loop; `None` where the first pass has not been.
    heads: Vec<Option<State>>,
}

impl Checker<'_> {
    fn error(&self, origin: u32, what: impl std::fmt::Display) -> Error {
        let inst = self.function.insts.get(origin as usize);
        Error::Internal(format!(
            "{}: register allocation is wrong at instruction {origin}, {inst:?}: {what}",
            self.function.name
        ))
    }

    /// Checks that the steps are the function's instructions in order, with allocatable registers, and that only
    /// constants that are rematerialized are left out.
    fn check_shape(&self) -> Result<()> {
        let insts = &self.function.insts;
        let mut definitions = vec![0u32; self.values.count()];
        for inst in insts {
            inst.registers(|class, access, r| {
                definitions[self.values.value(class, r) as usize] += u32::from(access.writes());
            });
        }
        let single_constant = |i: usize| {
            let mut single = insts[i].is_constant();
            insts[i].registers(|class, _, r| single &= definitions[self.values.value(class, r) as usize] == 1);
            single
        };
        let is_register = |class: Class, r: u32| self.file.registers[class].iter().any(|&k| u32::from(k) == r);
        let mut next = 0;
        for step in &self.allocation.steps {
            match step {
                Step::Inst { origin, inst, temporaries, .. } => {
                    while next < *origin as usize {
                        if !single_constant(next) {
                            return Err(self.error(next as u32, "it is missing"));
                        }
                        next += 1;
                    }
                    if next != *origin as usize || next >= insts.len() {
                        return Err(self.error(*origin, "it is out of order"));
                    }
                    next += 1;
                    self.check_same(*origin, inst)?;
                    let needs = (self.file.needs)(inst);
                    if Class::ALL.iter().any(|&c| temporaries[c].len() != needs[c] as usize) {
                        return Err(self.error(*origin, "its temporaries are missing"));
                    }
                    let mut used = vec![];
                    inst.registers(|class, _, r| used.push((class, r)));
                    for t in Class::ALL.iter().flat_map(|&c| temporaries[c].iter().map(move |&r| (c, u32::from(r)))) {
                        if used.contains(&t) {
                            return Err(self.error(*origin, format!("temporary {t:?} is not its own")));
                        }
                        used.push(t);
                    }
                    if let Some(r) = used.iter().find(|(class, r)| !is_register(*class, *r)) {
                        return Err(self.error(*origin, format!("register {r:?} may not be used")));
                    }
                }
                Step::Again { origin, inst, .. } => {
                    if *origin as usize >= insts.len() || !single_constant(*origin as usize) {
                        return Err(self.error(*origin, "computed again, but not a constant written once"));
                    }
                    self.check_same(*origin, inst)?;
                }
                Step::Store { class, register, slot } | Step::Load { class, register, slot, .. } => {
                    if *slot >= self.allocation.slots[*class] || !is_register(*class, u32::from(*register)) {
                        return Err(self.error(next as u32, "a move before it names a place that does not exist"));
                    }
                }
            }
        }
        while next < insts.len() {
            if !single_constant(next) {
                return Err(self.error(next as u32, "it is missing"));
            }
            next += 1;
        }
        Ok(())
    }

    fn check_same(&self, origin: u32, inst: &Inst) -> Result<()> {
        let mut physical = vec![];
        inst.registers(|class, _, r| physical.push((class, r)));
        let mut expected = self.function.insts[origin as usize].clone();
        let mut next = physical.iter();
        expected.registers_mut(&mut |class, _, r| match next.next() {
            Some((c, p)) if *c == class => *r = *p,
            _ => *r = UNKNOWN,
        });
        match expected == *inst {
            true => Ok(()),
            false => Err(self.error(origin, "it became another instruction")),
        }
    }

    /// One pass over the steps; true when a loop head lost knowledge.
    fn pass(&mut self) -> Result<bool> {
        let allocation = self.allocation;
        let mut walk = Walk { state: self.entry()?, open: vec![], loops: 0, changed: false };
        let mut operands = vec![];
        for step in &allocation.steps {
            let Step::Inst { origin, inst, hidden, temporaries } = step else {
                self.transfer(&mut walk.state, step);
                continue;
            };
            let origin = *origin;
            let number = match inst {
                Inst::LoopStart { .. } => walk.loops,
                Inst::LoopEnd => {
                    walk.open.last().and_then(|o| o.1).ok_or_else(|| self.error(origin, "no loop is open"))?
                }
                _ => 0,
            };
            operands.clear();
            self.values.operands(&self.function.insts[origin as usize], number as u32, &mut operands);
            let places = self.read(&walk.state, origin, inst, *hidden, &operands)?;
            for class in Class::ALL {
                for &r in &temporaries[class] {
                    let place = walk.state.index(class, Place::Register(r));
                    walk.state.held[place] = UNKNOWN;
                }
            }
            self.write(&mut walk.state, origin, &operands, &places)?;
            self.control(&mut walk, origin, inst, number)?;
        }
        Ok(walk.changed)
    }

    /// Contents of registers and slots at the entry of the function.
    fn entry(&self) -> Result<State> {
        let slots = self.allocation.slots;
        let places = 128 + (slots.gpr + slots.vector) as usize;
        let mut state = State { held: vec![UNKNOWN; places], gpr_slots: slots.gpr };
        let mut taken = vec![];
        for (which, place) in self.allocation.entry.iter().enumerate() {
            if let Some(place) = *place {
                if taken.contains(&place) {
                    return Err(self.error(0, "two arguments of the calling convention share a place"));
                }
                taken.push(place);
                let index = self.place(&state, 0, Class::Gpr, place)?;
                state.held[index] = self.values.incoming(which as u32);
            }
        }
        Ok(state)
    }

    /// A move between a register and a slot, or a constant computed again.
    fn transfer(&self, state: &mut State, step: &Step) {
        match step {
            Step::Store { class, register, slot } => {
                let to = state.index(*class, Place::Slot(*slot));
                state.held[to] = state.held[state.index(*class, Place::Register(*register))];
            }
            Step::Load { class, register, slot, .. } => {
                let to = state.index(*class, Place::Register(*register));
                state.held[to] = state.held[state.index(*class, Place::Slot(*slot))];
            }
            Step::Again { origin, inst, .. } => {
                let mut written = None;
                self.function.insts[*origin as usize]
                    .registers(|class, _, r| written = Some((class, self.values.value(class, r))));
                let (class, value) = written.expect("a constant is written somewhere");
                inst.registers(|_, _, r| {
                    let to = state.index(class, Place::Register(r as u8));
                    state.held[to] = value;
                });
            }
            Step::Inst { .. } => {}
        }
    }

    /// The places of an instruction's operands; each that is read must hold its value.
    fn read(
        &self,
        state: &State,
        origin: u32,
        inst: &Inst,
        hidden: Option<Place>,
        operands: &[ValueOperand],
    ) -> Result<Vec<Place>> {
        let mut places = vec![];
        inst.registers(|_, _, r| places.push(Place::Register(r as u8)));
        for (k, o) in operands.iter().enumerate() {
            let place = match (o.hidden, hidden) {
                (true, Some(place)) => place,
                (true, None) => return Err(self.error(origin, "its hidden operand has no place")),
                (false, _) => places[k],
            };
            let index = self.place(state, origin, self.values.class(o.value), place)?;
            if o.hidden {
                places.push(place);
            }
            if o.access.reads() && state.held[index] != o.value {
                let (name, held) = (self.values.name(o.value), state.held[index]);
                let content = if held == UNKNOWN { "nothing certain".into() } else { self.values.name(held) };
                return Err(self.error(origin, format!("it reads {name} in {place:?}, which holds {content}")));
            }
        }
        Ok(places)
    }

    /// Puts the results of an instruction into their places, and nowhere else.
    fn write(&self, state: &mut State, origin: u32, operands: &[ValueOperand], places: &[Place]) -> Result<()> {
        for o in operands.iter().filter(|o| o.access.writes()) {
            state.forget(o.value);
        }
        let mut written = vec![];
        for (o, &place) in operands.iter().zip(places).filter(|(o, _)| o.access != Access::Use) {
            let index = state.index(self.values.class(o.value), place);
            if written.contains(&index) {
                return Err(self.error(origin, "two results share a register"));
            }
            written.push(index);
            state.held[index] = o.value;
        }
        Ok(())
    }

    /// Joins the states that meet at the start or the end of a body.
    fn control(&mut self, walk: &mut Walk, origin: u32, inst: &Inst, number: usize) -> Result<()> {
        match inst {
            Inst::IfStart { .. } => walk.open.push((Some(walk.state.clone()), None)),
            Inst::LoopStart { at_least_once, .. } => {
                let skipped = if *at_least_once { None } else { Some(walk.state.clone()) };
                walk.open.push((skipped, Some(number)));
                walk.loops += 1;
                if self.heads.len() == number {
                    self.heads.push(Some(walk.state.clone()));
                }
                walk.changed |= self.meet_head(number, &walk.state);
                walk.state = self.heads[number].clone().expect("set when first reached");
            }
            Inst::LoopEnd => {
                walk.changed |= self.meet_head(number, &walk.state);
                if let Some((Some(skipped), _)) = walk.open.pop() {
                    walk.state.meet(&skipped);
                }
            }
            Inst::IfEnd => match walk.open.pop() {
                Some((Some(skipped), None)) => walk.state.meet(&skipped),
                _ => return Err(self.error(origin, "no conditional is open")),
            },
            _ => {}
        }
        Ok(())
    }

    /// Keeps at a loop's head what `state` knows too; true when the head lost knowledge.
    fn meet_head(&mut self, number: usize, state: &State) -> bool {
        let head = self.heads[number].as_mut().expect("set at the start");
        let before = head.clone();
        head.meet(state);
        *head != before
    }

    fn place(&self, state: &State, origin: u32, class: Class, place: Place) -> Result<usize> {
        let exists = match place {
            Place::Register(r) => self.file.registers[class].contains(&r),
            Place::Slot(s) => s < self.allocation.slots[class],
        };
        match exists {
            true => Ok(state.index(class, place)),
            false => Err(self.error(origin, format!("{place:?} does not exist"))),
        }
    }
}
