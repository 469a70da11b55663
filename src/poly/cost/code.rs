//! Cycles of machine code: what the ports do, what waits for results of earlier iterations, and the loops themselves.
//!
//! In: a function with its registers. Out: an [`Execution`], as [`execution`](super::execution) has it of loops, of the instructions that
//! there are: spills, permutations in place of gathers, values that stay in registers, sums over lanes. A body takes as long as its
//! busiest port; an innermost loop at least as long as its longest chain through registers ([`chain`]).

mod chain;
mod instruction;
mod trips;

use crate::codegen::Target;
use crate::codegen::regalloc::allocation::{Allocation, Step};
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Function, Gpr, GprOp, Inst, Operand};
use crate::poly::cost::execution::Execution;
use instruction::Ports;
use rustc_hash::FxHashSet;
use trips::Trips;

/// Of a loop of which nothing is known.
const ONCE: Trips = Trips { mean: 1.0, changes: 0.0 };

/// A loop, a conditional or the function, whose instructions are being added up.
struct Open {
    ports: Ports,
    /// Times that the body runs in one run of the function.
    times: f64,
    /// Of a loop: its end is not foreseen where they change.
    trips: Option<Trips>,
    /// The step behind its start.
    start: usize,
    innermost: bool,
}

impl Open {
    fn new(times: f64, start: usize) -> Open {
        Open { ports: Ports::default(), times, trips: None, start, innermost: false }
    }
}

/// Costs of one run of a function.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Code {
    pub cycles: Execution,
    /// Loads of one element by innermost loops, each of another cache line than in the iteration before.
    pub columns: f64,
}

/// The costs of one run of a function, with all iterations of a parallel loop.
pub(super) fn price(function: &Function, allocation: &Allocation, target: &Target) -> Code {
    let mut counts = trips::trips(function).into_iter();
    let mut sum = Sum { function, allocation, target, total: Code::default(), open: vec![Open::new(1.0, 0)] };
    for (at, step) in allocation.steps.iter().enumerate() {
        let Some(top) = sum.open.last_mut() else { break };
        let inst = match step {
            Step::Inst { origin, .. } => &function.insts[*origin as usize],
            Step::Again { inst, .. } => inst,
            Step::Store { class, .. } => {
                top.ports.store(target, 1.0, *class == Class::Gpr);
                continue;
            }
            Step::Load { class, .. } => {
                top.ports.load(target, 1.0, *class == Class::Gpr);
                continue;
            }
        };
        match inst {
            Inst::LoopStart { count, .. } => {
                top.innermost = false;
                let (times, trips) = (top.times, counts.next().unwrap_or(ONCE));
                let terms = sum.terms(at, *count);
                sum.total.cycles.loops += times * target.machine.bound_cycles * terms as f64;
                let open = Open::new(times * trips.mean, at + 1);
                sum.open.push(Open { trips: Some(trips), innermost: true, ..open });
            }
            Inst::IfStart { .. } => {
                top.innermost = false;
                let (times, share) = (top.times, counts.next().unwrap_or(ONCE).mean);
                sum.total.cycles.loops += times;
                sum.open.push(Open::new(times * share, at + 1));
            }
            Inst::LoopEnd | Inst::IfEnd => sum.close(at),
            _ => top.ports.add(inst, target),
        }
    }
    sum.close(allocation.steps.len());
    sum.total
}

/// The loads of one element by an innermost loop, each of another cache line than in the iteration before.
fn columns(body: &[&Inst], line_bytes: i64) -> usize {
    let step = |base: Gpr| {
        let steps = body.iter().filter_map(|inst| match inst {
            Inst::Int { dst, op: GprOp::Add, a, b: Operand::Imm(n) } if *dst == base && *a == base => Some(n.abs()),
            _ => None,
        });
        steps.sum::<i64>()
    };
    let mut lines = FxHashSet::default();
    for inst in body {
        if let Some(lanes) = inst.lanes().filter(|l| l.count == 1 && !inst.writes_memory())
            && step(lanes.addr.base) >= line_bytes
        {
            lines.insert((lanes.addr.base.0, i64::from(lanes.addr.disp).div_euclid(line_bytes)));
        }
    }
    lines.len()
}

struct Sum<'a> {
    function: &'a Function,
    allocation: &'a Allocation,
    target: &'a Target,
    total: Code,
    open: Vec<Open>,
}

impl Sum<'_> {
    /// The operations from the last start or end of a loop on that compute a number of iterations.
    fn terms(&self, at: usize, count: Gpr) -> usize {
        let (mut needed, mut terms) = (FxHashSet::from_iter([count.0]), 0);
        for step in self.allocation.steps[..at].iter().rev() {
            let Step::Inst { origin, .. } = step else { continue };
            let inst = &self.function.insts[*origin as usize];
            if inst.is_control() {
                break;
            }
            let (mut read, mut computes) = (vec![], false);
            inst.registers(|class, access, r| {
                if class == Class::Gpr {
                    computes |= access.writes() && needed.contains(&r);
                    read.extend(access.reads().then_some(r));
                }
            });
            if computes {
                needed.extend(read);
                terms += usize::from(!matches!(inst, Inst::Imm { .. } | Inst::Copy { .. } | Inst::Range { .. }));
            }
        }
        terms
    }

    /// Adds what was opened last and ends before the step `end`.
    fn close(&mut self, end: usize) {
        let Some(closed) = self.open.pop() else { return };
        let machine = &self.target.machine;
        let origin = |s: &Step| match s {
            Step::Inst { origin, .. } => Some(&self.function.insts[*origin as usize]),
            _ => None,
        };
        let body: Vec<&Inst> = self.allocation.steps[closed.start..end].iter().filter_map(origin).collect();
        if closed.innermost {
            self.total.columns += closed.times * columns(&body, machine.line_bytes as i64) as f64;
        }
        let ports = closed.ports.cycles(self.target, closed.innermost);
        self.total.cycles.ports += closed.times * ports;
        let Some(trips) = closed.trips.filter(|trips| trips.mean > 0.0) else { return };
        let leave = match closed.innermost {
            true if trips.mean <= machine.predicted_iterations as f64 => {
                machine.short_loop_cycles + trips.changes * (machine.loop_exit_cycles - machine.short_loop_cycles)
            }
            true => machine.loop_exit_cycles,
            false => 0.0,
        };
        self.total.cycles.loops += closed.times * (machine.loop_cycles + leave / trips.mean);
        if closed.innermost {
            self.total.cycles.chains += closed.times * (chain::cycles(&body, self.target) - ports).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::regalloc;
    use crate::codegen::vcode::text::parse;

    /// Of a loop of 1000 iterations for AVX-512.
    fn price_of(body: &str, before: &str) -> Code {
        let text = format!(
            "function p (serial, 9 gpr, 99 vector registers, 0 scratch bytes) {{
             r0 = argument 0\n r1 = argument 1\n {before}\n r2 = 1000\n loop r2 (at least once) {{\n {body}\n }}\n}}\n"
        );
        let function = &parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))[0];
        let target = Target::avx512();
        price(function, &regalloc::allocate(function, &target).unwrap(), &target)
    }

    fn cycles_of(body: &str, before: &str) -> Execution {
        price_of(body, before).cycles
    }

    #[test]
    fn the_busiest_port_counts() {
        let copy = "v1 = load f32x16 f32 [r0]\n store f32x16 f32 v1, [r1]\n r0 = add r0, 64\n r1 = add r1, 64";
        let one = cycles_of(copy, "");
        let two = cycles_of(&format!("v2 = load f32x16 f32 [r0 + 4]\n v3 = add f32x16 v2, v2\n {copy}"), "");
        // a store takes the time of one and a half loads
        assert!((750.0..1200.0).contains(&one.ports), "{one:?}");
        assert!(two.ports > 1.02 * one.ports, "{two:?}");
        // pointers wait a cycle for themselves
        assert!(one.ports + one.chains < 1200.0, "{one:?}");
        // lanes that lie apart are loaded one by one
        let apart = copy.replace("v1 = load f32x16 f32 [r0]", "v1 = gather f32x16 f32 [r0] stride 400");
        let gathered = cycles_of(&apart, "").ports;
        assert!(gathered > 10.0 * one.ports);
        // and stored so, one after the other
        let both = apart.replace("store f32x16 f32 v1, [r1]", "scatter f32x16 f32 v1, [r1] stride 400");
        assert!(cycles_of(&both, "").ports > 2.0 * gathered);
    }

    #[test]
    fn a_chain_through_a_register_counts_beyond_the_ports() {
        let sum =
            cycles_of("v1 = load f32x16 f32 [r0]\n v0 = add f32x16 v0, v1\n r0 = add r0, 64", "v0 = const f32x16 #0");
        let latency = Target::avx512().machine.add_latency;
        assert!((sum.ports + sum.chains - 1000.0 * latency).abs() < 10.0, "{sum:?}");
    }

    #[test]
    fn additions_of_one_element_follow_each_other_sooner() {
        let of = |body: &str| {
            let sum = cycles_of(&format!("{body}\n r0 = add r0, 4"), "v0 = const f32x1 #0");
            (sum.ports + sum.chains) / 1000.0
        };
        let machine = Target::avx512().machine;
        for (body, expected) in [
            ("v1 = load f32x1 f32 [r0]\n v0 = add f32x1 v0, v1", machine.scalar_add_latency),
            ("v0 = add f32x1 v0, [r0]", machine.scalar_add_latency),
            ("v1 = load f32x1 f32 [r0]\n v0 = add f32x1 v0, v1\n v0 = max f32x1 v0, v1", 2.0 * machine.add_latency),
        ] {
            assert!((of(body) - expected).abs() < 0.2, "{body}: {} and {expected}", of(body));
        }
    }

    #[test]
    fn products_of_one_element_have_fewer_ports_than_sums() {
        let of = |op: &str| {
            let each = |r: usize| format!("v{r} = {op} f32x1 v0, v0\n ");
            let body: String = (1..=30).map(each).collect();
            cycles_of(&format!("{body} store f32x1 f32 v30, [r1]"), "v0 = const f32x1 #0").ports / 1000.0
        };
        let (sums, products) = (of("add"), of("mul"));
        assert!((14.9..17.0).contains(&products) && sums < 0.8 * products, "{sums} {products}");
    }

    #[test]
    fn elements_of_other_lines_are_counted() {
        let column = |step: i64| {
            let loads = "v1 = load f32x1 f32 [r0]\n v2 = load f32x1 f32 [r0 + 4]\n v3 = load f32x1 f32 [r0 + 400]";
            let sums = "v0 = max f32x1 v1, v0\n v0 = max f32x1 v2, v0\n v0 = max f32x1 v3, v0";
            price_of(&format!("{loads}\n {sums}\n r0 = add r0, {step}"), "v0 = const f32x1 #0").columns
        };
        assert_eq!([column(8), column(-4000)], [0.0, 2000.0]);
    }

    #[test]
    fn values_that_find_no_register_are_loaded_again() {
        let (mut before, mut body) = (String::new(), String::new());
        for v in 1..60 {
            before += &format!("v{v} = load f32x16 f32 [r1 + {}]\n ", 64 * v);
            body += &format!("v0 = max f32x16 v0, v{v}\n ");
        }
        let few = cycles_of(
            &body.lines().take(20).collect::<Vec<_>>().join("\n"),
            &format!("v0 = const f32x16 #0\n {before}"),
        );
        let many = cycles_of(&body, &format!("v0 = const f32x16 #0\n {before}"));
        assert!(many.ports > 3.0 * few.ports, "{few:?} {many:?}");
    }
}
