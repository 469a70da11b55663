//! Iterations of the loops of VCode.
//!
//! In: a function. Out: the mean iterations of each loop, how often they change, and the share of the times that each conditional runs
//! its body. The integer registers are computed for a few iterations of the loops around that are spread evenly, as in `traffic.rs`,
//! and for the iteration of the loop just around that follows each; integers that are loaded count as 0, and loops whose bounds are
//! loaded have the iterations that are expected of them.

use crate::codegen::vcode::execute::integer;
use crate::codegen::vcode::{Function, GprOp, Inst, Operand};
use crate::poly::cost::traffic::spread;

/// Number of sampled iterations of the loops around. Unmeasured.
const SAMPLES: usize = 16;

/// Value of a register in each sampled iteration, then in the iteration that follows each.
type Values = [i64; 2 * SAMPLES];

/// How often a body runs for each time that its loop or conditional starts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Trips {
    /// Iterations of a loop; the share of the times that a conditional holds.
    pub mean: f64,
    /// Share of the starts of a loop whose next start, in the next iteration of the loop around, has another number of iterations.
    pub changes: f64,
}

/// The trips of each loop and conditional, in the order of their starts.
pub(super) fn trips(function: &Function) -> Vec<Trips> {
    let iterations = function.parallel.unwrap_or(1);
    // a call for each wave
    let (width, outer) = function.wave.map_or((iterations, 0), |width| (width.clamp(1, iterations.max(1)), 1));
    let calls = (iterations / width.max(1)).max(1);
    let first = |i: usize| if outer == 0 { 0 } else { (spread(i % SAMPLES, 0) * calls as f64) as i64 * width };
    let mut walk = Walk {
        function,
        registers: vec![[0; 2 * SAMPLES]; function.gprs as usize],
        weights: [calls as f64; SAMPLES],
        range: [std::array::from_fn(first), std::array::from_fn(|i| first(i) + width)],
        calls: calls as f64,
        out: vec![],
        outer,
        depth: outer,
    };
    walk.body(0);
    walk.out
}

struct Walk<'a> {
    function: &'a Function,
    registers: Vec<Values>,
    /// Iterations that each sample stands for.
    weights: [f64; SAMPLES],
    /// The first iteration of the parallel loop in a call, and the one behind the last.
    range: [Values; 2],
    /// Calls of the function, of which each runs its parallel loop.
    calls: f64,
    out: Vec<Trips>,
    /// Depth of the parallel loop.
    outer: usize,
    depth: usize,
}

impl Walk<'_> {
    /// Walks the instructions from `at` on up to the end of the body; returns the index behind it.
    fn body(&mut self, mut at: usize) -> usize {
        while let Some(inst) = self.function.insts.get(at) {
            at += 1;
            match *inst {
                Inst::LoopEnd | Inst::IfEnd => break,
                Inst::LoopStart { count, .. } => {
                    let lengths = self.registers[count.index()].map(|n| n.max(0));
                    at = self.repeat(at, lengths);
                }
                Inst::IfStart { op, a, b } => {
                    let (a, b) = (self.registers[a.index()], self.operand(b));
                    let outside = self.weights;
                    let total: f64 = outside.iter().sum();
                    for (i, weight) in self.weights.iter_mut().enumerate() {
                        *weight *= f64::from(u8::from(op.holds(&a[i], &b[i])));
                    }
                    let share = self.weights.iter().sum::<f64>() / total;
                    if share == 0.0 {
                        // rare: it is taken to happen once
                        self.weights = outside;
                    }
                    let mean = if share == 0.0 { (SAMPLES as f64 / total).min(1.0) } else { share };
                    self.out.push(Trips { mean, changes: 0.0 });
                    at = self.body(at);
                    self.weights = outside;
                }
                _ => self.step(inst),
            }
        }
        at
    }

    fn repeat(&mut self, at: usize, lengths: Values) -> usize {
        let outside = self.weights;
        let total: f64 = outside.iter().sum();
        let changed = outside.iter().enumerate().filter(|&(i, _)| lengths[i] != lengths[i + SAMPLES]);
        let changes = changed.map(|(_, weight)| weight).sum::<f64>() / total;
        for (weight, &n) in self.weights.iter_mut().zip(&lengths) {
            *weight *= n as f64;
        }
        let calls = if self.depth == self.outer { self.calls } else { 1.0 };
        let mean = self.weights.iter().sum::<f64>() / total * calls;
        self.out.push(Trips { mean, changes });
        if mean == 0.0 {
            self.weights = outside;
        }
        let iteration = |i: usize, n: i64| (spread(i, self.depth) * n as f64) as i64;
        let following = self.registers.clone();
        for register in &mut self.registers {
            register.copy_within(..SAMPLES, SAMPLES);
        }
        for (register, step) in self.steps(at) {
            let step = self.operand(step);
            for i in 0..SAMPLES {
                let passed = iteration(i, lengths[i]).wrapping_mul(step[i]);
                let value = self.registers[register][i].wrapping_add(passed);
                self.registers[register][i] = value;
                self.registers[register][i + SAMPLES] = value.wrapping_add(step[i]);
            }
        }
        self.depth += 1;
        let end = self.body(at);
        self.depth -= 1;
        self.weights = outside;
        for (register, following) in self.registers.iter_mut().zip(following) {
            register[SAMPLES..].copy_from_slice(&following[SAMPLES..]);
        }
        end
    }

    /// The registers that the body from `at` on moves by the same distance in each iteration.
    fn steps(&self, at: usize) -> Vec<(usize, Operand)> {
        let (mut depth, mut out) = (0, vec![]);
        for inst in &self.function.insts[at..] {
            match *inst {
                Inst::LoopStart { .. } | Inst::IfStart { .. } => depth += 1,
                Inst::LoopEnd | Inst::IfEnd if depth == 0 => break,
                Inst::LoopEnd | Inst::IfEnd => depth -= 1,
                Inst::Int { dst, op: GprOp::Add, a, b } if depth == 0 && dst == a => out.push((dst.index(), b)),
                _ => {}
            }
        }
        out
    }

    fn operand(&self, operand: Operand) -> Values {
        match operand {
            Operand::Reg(r) => self.registers[r.index()],
            Operand::Imm(value) => [value; 2 * SAMPLES],
        }
    }

    fn step(&mut self, inst: &Inst) {
        let (dst, value): (_, Values) = match *inst {
            Inst::Imm { dst, value } | Inst::Expect { count: dst, iterations: value } => (dst, [value; 2 * SAMPLES]),
            Inst::Copy { dst, src } | Inst::Extend { dst, src, .. } | Inst::Inside { dst, src, .. } => {
                (dst, self.registers[src.index()])
            }
            Inst::Int { dst, op, a, b } | Inst::Word { dst, op, a, b } => {
                let (a, b) = (self.registers[a.index()], self.operand(b));
                // 0 where it is not defined
                (dst, std::array::from_fn(|i| integer(op, a[i], b[i]).unwrap_or(0)))
            }
            Inst::Choose { dst, op, a, b, yes, no, .. } => {
                let (a, b) = (self.registers[a.index()], self.operand(b));
                let (yes, no) = (self.registers[yes.index()], self.registers[no.index()]);
                (dst, std::array::from_fn(|i| if op.holds(&a[i], &b[i]) { yes[i] } else { no[i] }))
            }
            Inst::Range { dst, which } => (dst, self.range[which.min(1) as usize]),
            Inst::LoadInt { dst, .. } | Inst::Argument { dst, .. } | Inst::Scratch { dst } => (dst, [0; 2 * SAMPLES]),
            _ => return,
        };
        self.registers[dst.index()] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::text::parse;

    fn all_of(body: &str) -> Vec<Trips> {
        let text = format!("function p (parallel 100, 9 gpr, 1 vector registers, 0 scratch bytes) {{\n{body}\n}}\n");
        trips(&parse(&text).unwrap()[0])
    }

    fn trips_of(body: &str) -> Vec<f64> {
        all_of(body).iter().map(|t| t.mean).collect()
    }

    #[test]
    fn loops_have_their_mean_iterations() {
        // a triangle: from 0 to 99 iterations, and twice as many of a loop beside it
        let triangle = "r0 = first\n r1 = last\n r2 = sub r1, r0\n r3 = r0\n loop r2 {\n loop r3 {\n r4 = 7\n loop r4 (at least once) {\n }\n }
            r5 = mul r3, 2\n loop r5 {\n }\n r3 = add r3, 1\n }";
        let means = trips_of(triangle);
        assert_eq!((means[0], means[2]), (100.0, 7.0));
        assert!((45.0..55.0).contains(&means[1]) && means[3] == 2.0 * means[1], "{means:?}");
        // a loop that starts empty, and what is in it
        assert_eq!(trips_of("r0 = 0\n loop r0 {\n r1 = 5\n loop r1 (at least once) {\n }\n }"), [0.0, 5.0]);
    }

    #[test]
    fn trips_that_change_with_the_loop_around_are_told_from_others() {
        // r1 / divisor iterations in iteration r1 of 100, and in a loop of 50 inside of it
        let changes = |divisor: i64| {
            let inner = "r5 = 50\n loop r5 (at least once) {\n r3 = r2\n loop r3 {\n }\n }";
            let text = format!(
                "r0 = 100\n r1 = 0\n loop r0 (at least once) {{\n r2 = divfloor r1, {divisor}\n r4 = r2\n loop r4 {{\n }}\n {inner}\n
                r1 = add r1, 1\n }}"
            );
            let of = all_of(&text);
            [of[1].changes, of[3].changes]
        };
        assert_eq!(changes(1), [1.0, 0.0]);
        let [rare, never] = changes(10);
        assert!((0.01..0.4).contains(&rare) && never == 0.0, "{rare}");
    }

    #[test]
    fn the_parallel_loop_runs_in_each_call_of_a_wave() {
        let part = |condition: &str| format!("if {condition} {{\n loop r6 {{\n }}\n }}\n");
        let text = format!(
            "function p (parallel 96 in waves of 12, 9 gpr, 1 vector registers, 0 scratch bytes) {{\n r0 = first\n r1 = last\n
            r2 = divfloor r0, 12\n r3 = divfloor r2, 2\n r4 = mul r3, -2\n r5 = add r2, r4\n r6 = sub r1, r0\n {}{}}}\n",
            part("le r5, 0"),
            part("ge r5, 1")
        );
        let means: Vec<f64> = trips(&parse(&text).unwrap()[0]).iter().map(|t| t.mean).collect();
        assert_eq!((means[1], means[3]), (96.0, 96.0));
        assert!((0.3..0.7).contains(&means[0]) && (means[0] + means[2] - 1.0).abs() < 1e-9, "{means:?}");
        // what no sample reaches happens once, and not once in each call
        let rare = "function p (parallel 96 in waves of 12, 9 gpr, 1 vector registers, 0 scratch bytes) {\n r0 = first\n r1 = last\n
            r2 = sub r1, r0\n r3 = r0\n loop r2 {\n if ge r3, 1000 {\n }\n r3 = add r3, 1\n }\n}\n";
        let means: Vec<f64> = trips(&parse(rare).unwrap()[0]).iter().map(|t| t.mean).collect();
        assert_eq!(means, [96.0, 1.0 / 96.0]);
        let none = rare.replace("parallel 96 in waves of 12", "parallel 0");
        let means: Vec<f64> = trips(&parse(&none).unwrap()[0]).iter().map(|t| t.mean).collect();
        assert!(means.iter().all(|n| n.is_finite()) && means[0] == 0.0, "{means:?}");
    }

    #[test]
    fn loops_whose_bounds_are_loaded_have_what_is_expected() {
        let loaded =
            |expected: &str| trips_of(&format!("r1 = argument 0\n r0 = load i32 [r1]\n {expected} loop r0 {{\n }}"));
        assert_eq!((loaded("expect r0, 30\n"), loaded("")), (vec![30.0], vec![0.0]));
    }

    #[test]
    fn conditionals_have_their_share() {
        let share = |bound: i64| {
            let text = format!("r0 = 100\n r1 = 0\n loop r0 {{\n if lt r1, {bound} {{\n }}\n r1 = add r1, 1\n }}");
            trips_of(&text)[1]
        };
        assert_eq!(share(100), 1.0);
        assert!((0.2..0.4).contains(&share(30)), "{}", share(30));
        // never, as far as is seen
        assert!(share(0) > 0.0 && share(0) < 0.5);
    }
}
