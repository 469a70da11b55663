//! Common subexpressions and loop-invariant code motion of integer arithmetic, while a function is written.
//!
//! In: operations on general-purpose registers in textual order, and where loops and conditionals begin and end. Out: a flat function in which
//! an operation that stands in a scope around with the same operands is not repeated (value numbering in a scoped table; Briggs, Cooper, Simpson,
//! "Value Numbering", 1997), and one whose operands are defined outside of the loops just around stands before these. Nothing leaves a
//! conditional. A sum is written from the outermost operands inwards, these without their common factor, so that sums over one loop share what
//! does not move in it. Invariant: no operation here has effects or traps, so each may run where the loop has no iterations.

use crate::codegen::vcode::{Function, Gpr, GprOp, Inst, Operand};
use crate::expr::CompareOp;
use crate::expr::interval::gcd;
use rustc_hash::FxHashMap;

/// An operation and its operands.
type Operation = (GprOp, Gpr, Operand);

/// The function so far, and the scopes that are open.
pub struct Writer {
    pub function: Function,
    scopes: Vec<Scope>,
    /// Scopes around the definition of each register.
    depths: Vec<usize>,
    known: FxHashMap<Operation, Gpr>,
}

/// A loop or a conditional.
struct Scope {
    /// Where what leaves the scope is written.
    start: usize,
    is_loop: bool,
    /// Operations that are known in it alone.
    known: Vec<Operation>,
}

impl Writer {
    pub fn new(function: Function) -> Writer {
        Writer { function, scopes: vec![], depths: vec![], known: FxHashMap::default() }
    }

    /// A register that is defined where the next instruction is written.
    pub fn register(&mut self) -> Gpr {
        self.register_within(self.scopes.len())
    }

    /// A register that the loop changes which is opened next.
    pub fn register_of_next_loop(&mut self) -> Gpr {
        self.register_within(self.scopes.len() + 1)
    }

    fn register_within(&mut self, depth: usize) -> Gpr {
        self.depths.push(depth);
        self.function.gprs += 1;
        Gpr(self.function.gprs - 1)
    }

    pub fn push(&mut self, inst: Inst) {
        self.function.insts.push(inst);
    }

    /// The result of an operation, which nothing may change.
    pub fn int(&mut self, op: GprOp, a: Gpr, b: Operand) -> Gpr {
        if let Some(&known) = self.known.get(&(op, a, b)) {
            return known;
        }
        let depth = match b {
            Operand::Reg(b) => self.depth(a).max(self.depth(b)),
            Operand::Imm(_) => self.depth(a),
        };
        let mut place = self.scopes.len();
        while place > depth && self.scopes[place - 1].is_loop {
            place -= 1;
        }
        let dst = self.register_within(place);
        let inst = Inst::Int { op, dst, a, b };
        match self.scopes.get(place).map(|scope| scope.start) {
            None => self.push(inst),
            Some(start) => {
                self.function.insts.insert(start, inst);
                self.scopes[place..].iter_mut().for_each(|scope| scope.start += 1);
            }
        }
        self.known.insert((op, a, b), dst);
        if let Some(scope) = place.checked_sub(1).map(|outer| &mut self.scopes[outer]) {
            scope.known.push((op, a, b));
        }
        dst
    }

    fn depth(&self, register: Gpr) -> usize {
        self.depths[register.index()]
    }

    /// The sum of products; `None` without terms.
    pub fn sum(&mut self, mut terms: Vec<(Gpr, i64)>) -> Option<Gpr> {
        terms.sort_by_key(|&(register, _)| (self.depth(register), register));
        let innermost = terms.last().map(|&(register, _)| self.depth(register))?;
        let mut inner = terms.split_off(terms.partition_point(|&(register, _)| self.depth(register) < innermost));
        if let [(_, first), _, ..] = terms[..] {
            let divisor = terms.iter().fold(0, |divisor, term| gcd(divisor, term.1.abs())) * first.signum();
            terms.iter_mut().for_each(|term| term.1 /= divisor);
            let outer = self.sum(terms)?;
            inner.insert(0, (outer, divisor));
        } else {
            inner.splice(0..0, terms);
        }
        // a difference takes one instruction, a product with -1 and a sum two
        if let Some(plain) = inner.iter().position(|term| term.1 == 1).filter(|_| inner[0].1 == -1) {
            inner.swap(0, plain);
        }
        let mut sum = None;
        for (register, factor) in inner {
            sum = Some(match (sum, factor) {
                (None, 1) => register,
                (None, _) => self.int(GprOp::Mul, register, Operand::Imm(factor)),
                (Some(sum), -1) => self.int(GprOp::Sub, sum, Operand::Reg(register)),
                (Some(sum), 1) => self.int(GprOp::Add, sum, Operand::Reg(register)),
                (Some(sum), _) => {
                    let product = self.int(GprOp::Mul, register, Operand::Imm(factor));
                    self.int(GprOp::Add, sum, Operand::Reg(product))
                }
            });
        }
        sum
    }

    /// Opens a loop. `expected` is how often it runs, where that is not known.
    pub fn start_loop(&mut self, count: Gpr, at_least_once: bool, expected: Option<i64>) {
        self.open(true);
        if let Some(iterations) = expected {
            self.push(Inst::Expect { count, iterations });
        }
        self.push(Inst::LoopStart { count, at_least_once });
    }

    /// Closes the innermost scope, which is a loop.
    pub fn end_loop(&mut self) {
        self.close();
        self.push(Inst::LoopEnd);
    }

    /// Opens a conditional.
    pub fn start_if(&mut self, op: CompareOp, a: Gpr, b: Operand) {
        self.open(false);
        self.push(Inst::IfStart { op, a, b });
    }

    /// Closes the innermost scope, which is a conditional.
    pub fn end_if(&mut self) {
        self.close();
        self.push(Inst::IfEnd);
    }

    fn open(&mut self, is_loop: bool) {
        self.scopes.push(Scope { start: self.function.insts.len(), is_loop, known: vec![] });
    }

    fn close(&mut self) {
        for operation in self.scopes.pop().into_iter().flat_map(|scope| scope.known) {
            self.known.remove(&operation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        Writer::new(Function {
            name: "f".into(),
            insts: vec![],
            gprs: 0,
            vregs: 0,
            scratch_bytes: 0,
            parallel: None,
            wave: None,
            instructions: vec![],
        })
    }

    /// A register with a loaded value.
    fn input(w: &mut Writer) -> Gpr {
        let dst = w.register();
        w.push(Inst::Argument { dst, slot: dst.0 });
        dst
    }

    fn text(w: Writer) -> Vec<String> {
        w.function.to_string().lines().map(|l| l.trim().to_string()).filter(|l| !l.is_empty()).skip(1).collect()
    }

    #[test]
    fn what_does_not_move_in_a_loop_stands_before_it_once() {
        let mut w = writer();
        let (a, b) = (input(&mut w), input(&mut w));
        w.start_loop(a, true, None);
        let moving = input(&mut w);
        let first = w.sum(vec![(moving, 3), (b, 8), (a, -4)]).unwrap();
        // the same part twice as large, with the other sign
        let second = w.sum(vec![(a, 8), (b, -16), (moving, 1)]).unwrap();
        assert_eq!(w.sum(vec![(moving, 3), (b, 8), (a, -4)]), Some(first));
        assert_ne!(first, second);
        w.end_loop();
        let code = text(w);
        let start = code.iter().position(|l| l.starts_with("loop")).unwrap();
        let sums = |lines: &[String]| lines.iter().filter(|l| l.contains(" sub ") || l.contains(" add ")).count();
        // a - 2b once
        assert_eq!((sums(&code[..start]), sums(&code[start..])), (1, 2), "{code:#?}");
    }

    #[test]
    fn nothing_leaves_a_conditional_or_is_known_behind_it() {
        let mut w = writer();
        let a = input(&mut w);
        w.start_if(CompareOp::Ge, a, Operand::Imm(0));
        w.start_loop(a, false, Some(7));
        let inside = w.int(GprOp::Mul, a, Operand::Imm(5));
        w.end_loop();
        assert_eq!(w.int(GprOp::Mul, a, Operand::Imm(5)), inside);
        w.end_if();
        assert_ne!(w.int(GprOp::Mul, a, Operand::Imm(5)), inside);
        let code = text(w);
        let at = |word: &str| code.iter().position(|l| l.contains(word)).unwrap();
        assert!(at("if ge") < at("mul") && at("mul") < at("expect") && at("expect") < at("loop"), "{code:#?}");
    }

    #[test]
    fn registers_that_a_loop_changes_stay_in_it() {
        let mut w = writer();
        let a = input(&mut w);
        let pointer = w.register_of_next_loop();
        w.push(Inst::Copy { dst: pointer, src: a });
        for _ in 0..2 {
            w.start_loop(a, true, None);
            w.int(GprOp::Add, pointer, Operand::Imm(8));
            w.end_loop();
        }
        let code = text(w);
        let adds: Vec<usize> = (0..code.len()).filter(|&i| code[i].contains(" add ")).collect();
        let starts: Vec<usize> = (0..code.len()).filter(|&i| code[i].starts_with("loop")).collect();
        assert!(starts[0] < adds[0] && adds[0] < starts[1] && starts[1] < adds[1], "{code:#?}");
    }
}
