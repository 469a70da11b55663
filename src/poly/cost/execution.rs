//! Cycles of a core: what its ports do, what waits for results of earlier iterations, and the loops themselves.
//!
//! In: explicit loops, with the mean counts of their iterations. Out: an [`Execution`]. The statements between two serial
//! loops are one *block*: a multiset of arithmetic, loads and stores, each as often as the loops that are expanded around
//! it (vectors and unrolled loops) change it. An access that an earlier iteration of the innermost loop made already, and
//! a value that this loop does not change, cost nothing, as code generation keeps them in registers.
//!
//! A loop takes as long as its busiest port, or as its longest cycle of dependences: latencies on the way around divided
//! by the iterations that it spans (the recurrence bound of modulo scheduling: Rau, "Iterative Modulo Scheduling", 1994).

mod access;
mod loops;

use crate::codegen::Target;
use crate::codegen::instruction::TILE_ROWS;
use crate::codegen::loopnest::{BufferKind, LoopKind, LoopNest, Stmt};
use crate::codegen::select::division::quick_divisor;
use crate::codegen::select::pairs;
use crate::codegen::target::Isa;
use crate::expr::narrow::{Names, constant_divisor};
use crate::expr::{Access, Affine, BinaryOp, BufferId, Expr, Index, UnaryOp, Var};
use crate::poly::cost::block::{Expanded, Placed, address_of};
use crate::poly::cost::chain;
use crate::poly::cost::forwarding;
use crate::poly::cost::seen::Seen;
use crate::poly::cost::traffic::Counts;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// Cycles of one run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Execution {
    /// On the busiest ports.
    pub ports: f64,
    /// Beyond that, of loops that wait for earlier iterations, and of loads that wait for stores.
    pub chains: f64,
    /// Starts, counters and branches of loops.
    pub loops: f64,
}

impl Execution {
    pub(super) fn add(&mut self, other: Execution, times: f64) {
        self.ports += times * other.ports;
        self.chains += times * other.chains;
        self.loops += times * other.loops;
    }
}

/// The cycles of `nest`.
pub fn cycles(nest: &LoopNest, target: &Target, counts: &Counts) -> Execution {
    let mut pricer = Pricer {
        nest,
        target,
        counts,
        shares: counts.shares.iter(),
        steps: FxHashMap::default(),
        columns: None,
        moving: vec![],
    };
    pricer.body(&nest.body, None).0
}

struct Pricer<'a> {
    nest: &'a LoopNest,
    target: &'a Target,
    counts: &'a Counts,
    /// Shares of the conditions that are still to come.
    shares: std::slice::Iter<'a, f64>,
    /// Steps of the serial loops around the place.
    steps: FxHashMap<Var, i64>,
    /// The serial loop whose body is priced, and how many of its iterations read columns that are transposed together.
    columns: Option<(Var, i64)>,
    /// That loop, and the integers that change in each of its iterations.
    moving: Vec<Var>,
}

/// Instructions of a quotient of integers by a constant. Unmeasured.
const INTEGER_QUOTIENT: f64 = 4.0;

/// Instructions of a quotient of floats by a constant that is not a power of two. Counted in the code.
const FLOAT_QUOTIENT: f64 = 5.0;

/// Work of the ports in a block.
#[derive(Clone, Copy, Default, Debug)]
struct Work {
    arithmetic: f64,
    /// On the one port that divides: roots, and quotients of single elements.
    divisions: f64,
    /// On that port, where the quotients and roots of vectors are divided.
    divided: f64,
    /// Arithmetic more, where they are products with inverses.
    inverses: f64,
    loads: f64,
    stores: f64,
    /// Cycles that wait for sums over lanes.
    combined: f64,
}

impl Work {
    fn add(&mut self, other: Work, times: f64) {
        self.arithmetic += times * other.arithmetic;
        self.divisions += times * other.divisions;
        self.divided += times * other.divided;
        self.inverses += times * other.inverses;
        self.loads += times * other.loads;
        self.stores += times * other.stores;
        self.combined += times * other.combined;
    }

    fn cycles(&self, target: &Target) -> f64 {
        let machine = &target.machine;
        let of = |arithmetic: f64, divisions: f64| {
            let ports = [
                arithmetic / machine.fma_per_cycle as f64,
                divisions,
                self.loads / machine.loads_per_cycle as f64,
                self.stores,
            ];
            let most = ports.iter().fold(0.0f64, |a, &b| a.max(b));
            most + machine.port_overlap * (ports.iter().sum::<f64>() - most) + self.combined
        };
        let divided = of(self.arithmetic, self.divisions + self.divided);
        divided.min(of(self.arithmetic + self.inverses, self.divisions))
    }
}

/// The variables of an affine form.
fn variables_of(a: &Affine) -> impl Iterator<Item = Var> {
    a.terms.iter().map(|t| t.0)
}

/// The variables of an expression.
fn variables(e: &Expr) -> BTreeSet<Var> {
    let mut out = BTreeSet::new();
    e.visit(&mut |e| match e {
        Expr::Index(a) => out.extend(variables_of(a)),
        Expr::Load(access) => out.extend(access.affine_forms().flat_map(variables_of)),
        _ => {}
    });
    out
}

/// Returns true if half a vector holds the lanes.
fn is_narrow(vector: &Expanded) -> bool {
    vector.lanes.is_some_and(|lanes| 2.0 * vector.trips <= lanes)
}

impl<'a> Pricer<'a> {
    /// One execution of `body`, directly in the serial loop over `inner`; true if no serial loop is in it.
    fn body(&mut self, body: &'a [Stmt], inner: Option<Var>) -> (Execution, bool) {
        let mut total = Execution::default();
        let (mut block, mut straight) = (vec![], true);
        self.collect(body, &mut vec![], 1.0, &mut block, &mut total, &mut straight);
        let work = self.work(&block, inner);
        let of_loop = inner.map(|v| (v, self.step(v)));
        let blocked = forwarding::blocked_loads(self.nest, self.target, &block, of_loop, &|store, buffer, index| {
            self.in_registers(buffer, index, store)
        });
        total.chains += blocked * self.target.machine.blocked_load_ns * self.target.machine.clock_ghz;
        let ports = work.cycles(self.target);
        total.ports += ports;
        if straight && let Some(of_loop) = of_loop {
            total.chains += (chain::cycles(self.nest, self.target, &block, of_loop) - ports).max(0.0);
        }
        (total, straight)
    }

    /// Gathers the stores of `body` up to the next serial loops, and prices these.
    fn collect(
        &mut self,
        body: &'a [Stmt],
        around: &mut Vec<Expanded>,
        share: f64,
        block: &mut Vec<Placed<'a>>,
        total: &mut Execution,
        straight: &mut bool,
    ) {
        for stmt in body {
            match stmt {
                Stmt::Let { var, value, .. } => {
                    self.moving.extend(self.moving.iter().any(|v| value.uses(*v)).then_some(*var));
                }
                // a load, and two operations that bring it into its interval
                Stmt::Read { var, .. } => {
                    self.moving.push(*var);
                    total.loops += share * 3.0 * self.target.machine.bound_cycles;
                }
                Stmt::If { conditions, body } => {
                    let holds = self.shares.next().copied().unwrap_or(1.0);
                    let is_mask = |c: &Affine| around.iter().any(|e| e.lanes.is_some() && c.coefficient(e.var) != 0);
                    let masks = conditions.iter().filter(|c| is_mask(c)).count();
                    let first = block.len();
                    match masks {
                        0 => {
                            total.loops += share;
                            self.collect(body, around, share * holds, block, total, straight);
                            block[first..].iter_mut().for_each(|store| store.branch = first + 1);
                        }
                        // all lanes are at work
                        _ => self.collect(body, around, share, block, total, straight),
                    }
                    block[first..].iter_mut().for_each(|store| store.masks += masks);
                }
                Stmt::Store { buffer, index, value, reduce } => {
                    let terms = around.last().map_or(1, |e| e.terms);
                    let around = around.clone();
                    let reduce = *reduce;
                    block.push(Placed {
                        buffer: *buffer,
                        index,
                        value,
                        reduce,
                        around,
                        share,
                        masks: 0,
                        branch: 0,
                        terms,
                    })
                }
                Stmt::Loop { var, kind, body, .. } => {
                    let trips = self.counts.trips[var.0 as usize];
                    if trips <= 0.0 {
                        continue;
                    }
                    match kind {
                        LoopKind::Unroll | LoopKind::Vector | LoopKind::Instruction(_) => {
                            let together = matches!(kind, LoopKind::Instruction(_));
                            let lanes = (*kind == LoopKind::Vector).then(|| self.lanes(body));
                            let copies = lanes.map_or(trips, |l| (trips / l).ceil());
                            let (copies, terms) = if together { (1.0, trips as i64) } else { (copies, 1) };
                            let row = if let LoopKind::Instruction(name) = kind { Some(*name) } else { None };
                            let tile = row.is_some_and(|name| self.target.is_tile_row(name));
                            let factor = row.map_or(1.0, |name| self.target.factor_of(name));
                            around.push(Expanded { var: *var, copies, lanes, trips, terms, tile, factor });
                            self.collect(body, around, share, block, total, straight);
                            around.pop();
                        }
                        LoopKind::Serial | LoopKind::Parallel | LoopKind::Waves { .. } => {
                            *straight = false;
                            let copies: f64 = around.iter().map(|e| e.copies).product();
                            self.repeat(stmt, share * copies, total);
                        }
                    }
                }
            }
        }
    }

    /// The distance from an iteration of a serial loop to the next.
    fn step(&self, v: Var) -> i64 {
        self.steps.get(&v).copied().unwrap_or(1)
    }

    /// Lanes of a vector loop: those of the narrow integers that do for all statements, else of the widest elements at work.
    fn lanes(&self, body: &[Stmt]) -> f64 {
        let names = Names {
            dtype: &|b| self.nest.buffer(b).dtype,
            bounds: &|_| (i64::MIN, i64::MAX),
            is_table: &|b| self.nest.is_table(b),
        };
        let mut bytes = 1;
        body.iter().for_each(|s| {
            s.visit(&mut |s| {
                if let Stmt::Store { buffer, value, .. } = s {
                    let dtype = self.nest.buffer(*buffer).dtype;
                    if let Some(narrow) = names.narrowest(dtype, value) {
                        bytes = bytes.max(narrow);
                        return;
                    }
                    bytes = bytes.max(dtype.bytes()).max(4);
                    s.expressions().for_each(|e| {
                        e.visit_accesses(&mut |a| bytes = bytes.max(self.nest.buffer(a.buffer).dtype.bytes()))
                    });
                }
            })
        });
        self.target.lanes(bytes) as f64
    }

    fn work(&self, block: &[Placed<'a>], inner: Option<Var>) -> Work {
        let (mut work, machine) = (Work::default(), &self.target.machine);
        let stored = block.iter().filter_map(|s| Some((s.buffer, address_of(self.nest, s.buffer, s.index)?)));
        let mut seen = Seen { addresses: self.addresses(block), stored: stored.collect(), ..Seen::default() };
        for store in block {
            let mut added = Work::default();
            if store.terms > 1 {
                self.tensor(store, inner, &mut added, &mut seen);
                work.add(added, store.share);
                continue;
            }
            if self.adds_pairs(store, inner) {
                self.pairs(store, inner, &mut added, &mut seen);
                work.add(added, store.share);
                continue;
            }
            let factor = store.reduce == Some(BinaryOp::Add) && matches!(store.value, Expr::Binary(BinaryOp::Mul, ..));
            let uses = self.expression(store.value, store, inner, &mut added, &mut seen, factor);
            self.store(store, inner, uses, &mut added, &mut seen);
            added.arithmetic += store.masks as f64 * store.around.iter().map(|e| e.copies).product::<f64>();
            let rate = match store.vector() {
                None => machine.scalar_per_cycle,
                Some(vector) if is_narrow(vector) => machine.narrow_fma_per_cycle as f64,
                Some(_) => machine.fma_per_cycle as f64,
            };
            added.arithmetic *= machine.fma_per_cycle as f64 / rate;
            work.add(added, store.share);
        }
        work
    }

    /// Returns true if a sum in lanes takes two terms at a time.
    fn adds_pairs(&self, store: &Placed, inner: Option<Var>) -> bool {
        let lanes = store.vector();
        let along = |terms: Var| {
            let place = (store.buffer, store.index);
            let loops = (terms, lanes.map(|e| e.var));
            pairs::adds_pairs_along(self.nest, self.target, place, store.value, store.reduce, loops)
        };
        // whole vectors of pairs, where the lanes are the terms
        let short = |e: &&Expanded| e.lanes.is_some_and(|lanes| e.trips < 2.0 * lanes);
        let expanded = || store.around.iter().any(|e| e.trips >= 2.0 && !short(&e) && along(e.var));
        lanes.is_some() && (inner.is_some_and(along) || expanded())
    }

    /// Adds a sum of products of 16 bits: for two terms one instruction that multiplies, one that adds, and a load of each factor.
    fn pairs(&self, store: &Placed<'a>, inner: Option<Var>, work: &mut Work, seen: &mut Seen<'a>) {
        let both = Placed { terms: 2, ..store.clone() };
        let mut pair = Work::default();
        pair.arithmetic += self.copies(store, inner, &variables(store.value));
        store.value.visit_accesses(&mut |access| {
            let uses = access.affine_forms().flat_map(variables_of).collect();
            self.load(access, &both, inner, &uses, &mut pair, seen);
        });
        self.store(store, inner, variables(store.value), &mut pair, seen);
        work.add(Work { arithmetic: pair.arithmetic / 2.0, loads: pair.loads / 2.0, ..pair }, 1.0);
    }

    /// Adds a tensor instruction, whose sum is in registers: itself, and the loads of its operands.
    fn tensor(&self, store: &Placed<'a>, inner: Option<Var>, work: &mut Work, seen: &mut Seen<'a>) {
        if store.around.last().is_some_and(|e| e.tile) {
            return self.tiles(store, work);
        }
        store.value.visit_accesses(&mut |access| {
            let uses = access.affine_forms().flat_map(variables_of).collect();
            self.load(access, store, inner, &uses, work, seen);
        });
        work.arithmetic += store.around.iter().map(|e| e.copies * e.factor).product::<f64>();
    }

    /// Adds the part of an instruction on tiles that falls to one group of terms, of 16 that it takes.
    fn tiles(&self, store: &Placed, work: &mut Work) {
        let machine = &self.target.machine;
        let copies = |lanes: bool| store.around.iter().filter(move |e| e.lanes.is_some() == lanes).map(|e| e.copies);
        let (rows, columns): (f64, f64) = (copies(false).product(), copies(true).product());
        let tiles = (rows / TILE_ROWS as f64).ceil() + columns;
        let share = 1.0 / TILE_ROWS as f64;
        work.arithmetic += share * rows * columns * machine.tile_row_cycles * machine.fma_per_cycle as f64;
        work.loads += share * tiles * machine.tile_load_cycles * machine.loads_per_cycle as f64;
    }

    /// Copies of what changes along `uses`: none where the innermost loop does not change it.
    fn copies(&self, store: &Placed, inner: Option<Var>, uses: &BTreeSet<Var>) -> f64 {
        let changes = |v: &Var| uses.contains(v);
        let expanded = store.around.iter().filter(|e| changes(&e.var)).map(|e| e.copies).product::<f64>();
        match inner {
            Some(v) if !changes(&v) => 0.0,
            _ => expanded,
        }
    }

    /// Adds the arithmetic and the loads of an expression; the variables that it depends on. With `fused` its outermost
    /// operation is part of another one.
    fn expression(
        &self,
        e: &'a Expr,
        store: &Placed,
        inner: Option<Var>,
        work: &mut Work,
        seen: &mut Seen<'a>,
        fused: bool,
    ) -> BTreeSet<Var> {
        let mut uses = BTreeSet::new();
        // loads have their own table, by address
        let repeated =
            !matches!(e, Expr::Load(_) | Expr::Const(_) | Expr::Index(_)) && !fused && !seen.values.insert(e);
        for operand in e.operands() {
            uses.extend(self.expression(operand, store, inner, work, seen, false));
        }
        match e {
            Expr::Load(access) => {
                uses.extend(access.affine_forms().flat_map(variables_of));
                for i in access.index.iter().filter_map(Index::value) {
                    uses.extend(self.expression(i, store, inner, work, seen, false));
                }
                self.load(access, store, inner, &uses, work, seen);
                return uses;
            }
            Expr::Index(a) => uses.extend(variables_of(a)),
            _ => {}
        }
        if fused || repeated {
            return uses;
        }
        let copies = self.copies(store, inner, &uses);
        match e {
            Expr::Const(_) | Expr::Index(_) | Expr::Load(_) => {}
            Expr::Binary(op, _, b) if constant_divisor(*op, b).is_some() => {
                work.arithmetic += copies * INTEGER_QUOTIENT
            }
            Expr::Binary(BinaryOp::Div, _, b) if quick_divisor(b).is_some() => {
                let is_power = quick_divisor(b).is_some_and(|divisor| divisor.to_bits() << 12 == 0);
                work.arithmetic += copies * if is_power { 1.0 } else { FLOAT_QUOTIENT };
            }
            Expr::Binary(BinaryOp::Div, _, b) if self.is_by_inverse(store) => {
                let inverse = if seen.inverses.insert(b) { self.inverse_cycles(store) } else { 0.0 };
                let of_divisor = self.copies(store, inner, &variables(b));
                let machine = &self.target.machine;
                let cycles = copies * machine.quotient_cycles + of_divisor * inverse;
                work.inverses += cycles * machine.fma_per_cycle as f64 - copies;
                work.divided += copies * self.division(e, store);
                work.arithmetic += copies;
            }
            Expr::Unary(UnaryOp::Sqrt, _) if self.is_by_inverse(store) && self.is_single(store) => {
                let machine = &self.target.machine;
                let [divided, multiplied] = machine.root_cycles;
                work.inverses += copies * (multiplied * machine.fma_per_cycle as f64 - 1.0);
                work.divided += copies * divided;
                work.arithmetic += copies;
            }
            Expr::Binary(BinaryOp::Div, ..) | Expr::Unary(UnaryOp::Sqrt, _) => {
                work.divisions += copies * self.division(e, store);
                work.arithmetic += copies;
            }
            Expr::Unary(op, _) => work.arithmetic += copies * op.cost().cycles,
            Expr::Binary(op, ..) => work.arithmetic += copies * op.cost().cycles,
            Expr::Compare(..) | Expr::Select(..) | Expr::Cast(..) | Expr::Bitcast(..) => work.arithmetic += copies,
        }
        uses
    }

    /// Returns true if quotients and roots of whole vectors may be products with inverses.
    fn is_by_inverse(&self, store: &Placed) -> bool {
        self.target.isa == Isa::Avx512 && self.nest.buffer(store.buffer).dtype.is_float() && store.vector().is_some()
    }

    fn is_single(&self, store: &Placed) -> bool {
        self.nest.buffer(store.buffer).dtype.bytes() != 8
    }

    /// Cycles of the inverses of a vector.
    fn inverse_cycles(&self, store: &Placed) -> f64 {
        let [single, double] = self.target.machine.inverse_cycles;
        if self.is_single(store) { single } else { double }
    }

    /// Cycles in which the divider takes no other quotient or root.
    fn division(&self, e: &Expr, store: &Placed) -> f64 {
        if store.vector().is_some() {
            return self.target.machine.division_cycles[usize::from(!self.is_single(store))];
        }
        let all = match e {
            Expr::Unary(op, _) => op.cost().cycles,
            Expr::Binary(op, ..) => op.cost().cycles,
            _ => 0.0,
        };
        all / 2.0
    }

    fn load(
        &self,
        access: &Access,
        store: &Placed,
        inner: Option<Var>,
        uses: &BTreeSet<Var>,
        work: &mut Work,
        seen: &mut Seen<'a>,
    ) {
        let copies = self.copies(store, inner, uses);
        if copies == 0.0 || self.in_registers(access.buffer, &access.index, store) {
            return;
        }
        let address = address_of(self.nest, access.buffer, &access.index);
        if let Some(a) = &address {
            if !seen.made.insert((access.buffer, a.clone())) {
                return;
            }
            // In a register since an iteration before, where no vector is unrolled between.
            if inner
                .is_some_and(|v| seen.carries(access.buffer, a, (v, self.step(v)), self.target.machine.kept_iterations))
            {
                return;
            }
        }
        work.loads += access.guard.len() as f64 * copies;
        if let Some((rows, zips)) = self.transposed(access, store, seen) {
            // each permutation loads its table, and one port permutes
            work.loads += copies * (rows + zips);
            work.arithmetic += copies * zips * self.target.machine.fma_per_cycle as f64;
            return;
        }
        work.loads += copies * self.slots(access.buffer, &access.index, store, false);
    }

    fn store(&self, store: &Placed, inner: Option<Var>, mut uses: BTreeSet<Var>, work: &mut Work, seen: &mut Seen<'a>) {
        seen.written(store.buffer);
        let place: BTreeSet<Var> = store.index.iter().filter_map(Index::affine).flat_map(variables_of).collect();
        let computed = store.index.iter().any(|i| i.value().is_some());
        uses.extend(&place);
        let copies = store.around.iter().filter(|e| uses.contains(&e.var)).map(|e| e.copies).product::<f64>();
        if store.reduce.is_some() {
            work.arithmetic += copies;
            let over_lanes = |e: &&Expanded| e.lanes.is_some() && !place.contains(&e.var);
            if let Some(vector) = store.around.iter().find(over_lanes)
                && inner.is_none_or(|v| place.contains(&v))
            {
                let machine = &self.target.machine;
                let lanes = vector.lanes.unwrap_or(1.0);
                let latency = machine.fma_latency as f64 * (vector.copies / machine.partial_sums).ceil();
                work.combined += latency + machine.combine_cycles * lanes.log2();
            }
            if inner.is_some_and(|v| !place.contains(&v)) && !computed {
                return;
            }
        }
        if self.in_registers(store.buffer, store.index, store) {
            return;
        }
        let address = address_of(self.nest, store.buffer, store.index);
        let places = store.around.iter().filter(|e| place.contains(&e.var)).map(|e| e.copies).product::<f64>();
        let places = if computed { copies } else { places };
        let alone = self.slots(store.buffer, store.index, store, true);
        let slots = self.stored_together(store, seen).map_or(alone, |slots| slots.min(alone));
        work.stores += places * slots * self.target.machine.store_factor / self.target.machine.loads_per_cycle as f64;
        if store.reduce.is_some() {
            work.loads += places * slots;
        }
        if let Some(a) = address {
            seen.made.insert((store.buffer, a));
        }
    }

    /// Returns true if the element is in a register: of a local buffer whose subscripts are constants once loops are
    /// expanded.
    fn in_registers(&self, buffer: BufferId, index: &[Index], store: &Placed) -> bool {
        let expanded = |v: Var| store.around.iter().any(|e| e.var == v);
        let buffer = self.nest.buffer(buffer);
        let few = buffer.span() <= (self.target.vector_registers * self.target.lanes(buffer.dtype.bytes())) as i64;
        let fixed = |i: &Index| i.affine().is_some_and(|a| a.terms.iter().all(|t| expanded(t.0)));
        buffer.literals.is_some() || buffer.kind == BufferKind::Local && few && index.iter().all(fixed)
    }

    /// All places that a block loads or stores.
    fn addresses(&self, block: &[Placed]) -> FxHashSet<(BufferId, Affine)> {
        let mut out = FxHashSet::default();
        for store in block {
            let mut note =
                |buffer, index: &[Index]| out.extend(address_of(self.nest, buffer, index).map(|a| (buffer, a)));
            note(store.buffer, store.index);
            store.value.visit_accesses(&mut |a| note(a.buffer, &a.index));
        }
        out
    }
}
