//! Strip-mining of vector loops and unrolling of short serial loops.
//!
//! A long vector loop becomes a loop over a few vectors and a rest. A reduction over many lanes, or over lanes inside of
//! serial loops, goes to a local vector (several registers, so that their latencies overlap) that is reduced once at the
//! end. Innermost serial loops are unrolled, short ones completely.

use crate::codegen::Target;
use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, LoopNest, Stmt};
use crate::codegen::select::columns;
use crate::codegen::select::expansion_cost::{cost, vector_statements};
use crate::codegen::select::lane_segments;
use crate::codegen::select::lane_sums::{LaneSums, are_joined, lane_sums, stores, sums_inside};
use crate::codegen::select::masked_stores::stores_where;
use crate::codegen::select::scalar_expansion;
use crate::codegen::target::Isa;
use crate::expr::Bound;
use crate::expr::interval::{ceil_div, constant_range};
use crate::expr::scalar::numbers_only;
use crate::expr::{Access, BufferId, Expr, Index, Scalar};
use crate::expr::{Affine, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// Largest number of vectors of a loop that is expanded whatever it contains. Unmeasured.
const SHORT: i64 = 4;
/// Largest number of instructions of an expanded vector loop. Unmeasured.
const EXPANDED: i64 = 96;
/// Largest number of vectors of a lane reduction that is expanded without a local vector. Unmeasured.
pub const REDUCED: i64 = 8;

/// Replaces vector loops that are too long to be expanded; unrolls the loops that were there before.
pub fn strip_mine(
    nest: &mut LoopNest,
    target: &Target,
    widths: &mut FxHashMap<Var, usize>,
    private: FxHashMap<Var, Vec<BufferId>>,
    body: Vec<Stmt>,
) -> Vec<Stmt> {
    let declared = nest.vars.len() as u32;
    let in_memory = crate::codegen::select::locals::needs_memory(nest, target, &body).into_iter().collect();
    let mut s = Strip { nest, target, widths, in_memory, private };
    let body = s.statements(body);
    unroll(nest, target, declared, body)
}

struct Strip<'a> {
    nest: &'a mut LoopNest,
    target: &'a Target,
    widths: &'a mut FxHashMap<Var, usize>,
    /// Local buffers that cannot be in registers anyway.
    in_memory: FxHashSet<BufferId>,
    /// Temporaries of each vector loop that have an element for each of its iterations.
    private: FxHashMap<Var, Vec<BufferId>>,
}

/// A vector loop from 0.
struct Vector {
    var: Var,
    extent: i64,
    body: Vec<Stmt>,
}

impl Strip<'_> {
    fn lanes(&self, var: Var) -> i64 {
        (self.target.vector_bytes / self.widths.get(&var).copied().unwrap_or(8)) as i64
    }

    fn statements(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        let (mut out, mut rest) = (vec![], body.into_iter().peekable());
        while let Some(stmt) = rest.next() {
            match self.reduction_in_loops(&stmt, rest.peek()) {
                Some((parts, takes_next)) => {
                    out.extend(parts);
                    takes_next.then(|| rest.next());
                }
                None => out.extend(self.statement(stmt)),
            }
        }
        out
    }

    fn statement(&mut self, stmt: Stmt) -> Vec<Stmt> {
        if matches!(stmt, Stmt::Loop { kind: LoopKind::Vector, .. }) && is_tiled(self.target, &stmt) {
            return vec![stmt];
        }
        match stmt {
            Stmt::Loop { var, lower, upper, kind: LoopKind::Vector, step, body } => {
                match constant_range(&lower, &upper) {
                    Some((0, extent)) => self.vector(Vector { var, extent, body }),
                    _ => vec![Stmt::Loop { var, lower, upper, kind: LoopKind::Serial, step, body }],
                }
            }
            other => vec![other.map_body(|body| self.statements(body))],
        }
    }

    /// A vector loop, in a real loop and a rest when it is long.
    fn vector(&mut self, v: Vector) -> Vec<Stmt> {
        let lanes = self.lanes(v.var);
        let vectors = ceil_div(v.extent, lanes);
        let weight = cost(&v.body).max(1);
        let reduces = crate::codegen::select::statements::accumulates_over(&v.body, v.var);
        let short = vectors <= SHORT || vectors * weight <= EXPANDED || reduces && vectors <= REDUCED && weight < 16;
        if short || self.wants_registers(&v, vectors) {
            return vec![vector_loop(v.var, v.extent, v.body)];
        }
        if let Some(parts) = self.in_segments(&v) {
            return parts;
        }
        if reduces {
            return self.long_reduction(v).unwrap_or_else(|v| vec![vector_loop(v.var, v.extent, v.body)]);
        }
        // A processor that runs instructions in order waits for each result, unless other vectors have something to do.
        let in_order = self.target.isa == Isa::Neon;
        let vectors = match weight {
            ..=6 => 4,
            7..=48 if in_order => 4,
            7..=16 => 2,
            _ => 1,
        };
        let Some(buffers) = self.private.remove(&v.var) else { return self.in_groups(v, vectors, None) };
        let place = self.nest.new_var("place");
        let body = scalar_expansion::contracted(self.nest, &buffers, vectors * lanes, place, &v.body);
        self.in_groups(Vector { body, ..v }, vectors, Some(place))
    }

    /// The loop in segments where conditions over its variable choose lanes of stores that no instruction does under a mask; `None` for another one.
    fn in_segments(&mut self, v: &Vector) -> Option<Vec<Stmt>> {
        let mut unmasked = false;
        lane_segments::visit_guarded(&v.body, v.var, false, &mut |s| {
            let Stmt::Store { buffer, index, .. } = s else { return };
            let in_memory = matches!(self.nest.buffer(*buffer).kind, BufferKind::Argument { .. });
            unmasked |= in_memory && !stores_where(self.nest, self.target, (v.var, v.extent), *buffer, index);
        });
        let first = lane_segments::segments(&v.body, v.var, v.extent);
        if !unmasked || first.len() <= 2 || self.private.contains_key(&v.var) {
            return None;
        }
        let segments = first.windows(2).map(|ends| {
            let (body, var) = (lane_segments::decided(&v.body, v.var, ends[0]), self.copy_var(v.var));
            let body = self.copied(&body, v.var, Affine::var(var).offset(ends[0]), None, var);
            self.vector(Vector { var, extent: ends[1] - ends[0], body })
        });
        Some(segments.collect::<Vec<_>>().concat())
    }

    /// Returns true if the loop works on a local buffer that fits into registers when the loop is expanded.
    fn wants_registers(&self, v: &Vector, vectors: i64) -> bool {
        let mut expands = false;
        let (mut expanded, mut vector) = (FxHashSet::default(), FxHashSet::default());
        crate::codegen::select::locals::visit(&v.body, &mut expanded, &mut vector, &mut |b, index, _, _| {
            let along = index.iter().any(|i| i.affine().is_some_and(|a| a.uses(v.var)));
            let private = self.private.get(&v.var).is_some_and(|p| p.contains(&b));
            expands |=
                along && !private && self.nest.buffer(b).kind == BufferKind::Local && !self.in_memory.contains(&b);
        });
        expands && vectors <= self.target.vector_registers as i64
    }

    /// `for g { vector i { body(g·group + i) } } vector r { body(rest) }`; `place` becomes the place in the group.
    fn in_groups(&mut self, v: Vector, vectors: i64, place: Option<Var>) -> Vec<Stmt> {
        let group = vectors * self.lanes(v.var);
        let (count, remainder) = (v.extent / group, v.extent % group);
        let mut out = vec![];
        if count > 0 {
            let outer = self.nest.new_var(format!("{}o", self.nest.vars[v.var.0 as usize]));
            let inner = self.copy_var(v.var);
            let body = self.copied(&v.body, v.var, Affine::var(inner).plus(outer, group), place, inner);
            out.push(constant_loop(LoopKind::Serial, outer, count, vec![vector_loop(inner, group, body)]));
        }
        if remainder > 0 {
            let inner = self.copy_var(v.var);
            let body = self.copied(&v.body, v.var, Affine::var(inner).offset(count * group), place, inner);
            out.push(vector_loop(inner, remainder, body));
        }
        out
    }

    fn copied(&mut self, body: &[Stmt], var: Var, value: Affine, place: Option<Var>, inner: Var) -> Vec<Stmt> {
        let mut map = FxHashMap::from_iter([(var, value)]);
        map.extend(place.map(|p| (p, Affine::var(inner))));
        copy_with(self.nest, body, &mut map)
    }

    /// Another variable for the same lanes.
    fn copy_var(&mut self, v: Var) -> Var {
        let new = self.nest.new_var(self.nest.vars[v.0 as usize].clone());
        let width = self.widths.get(&v).copied().unwrap_or(8);
        self.widths.insert(new, width);
        new
    }

    /// A long reduction: lanes accumulate into a local vector, which is reduced at the end.
    fn long_reduction(&mut self, v: Vector) -> Result<Vec<Stmt>, Vector> {
        if stores(&v.body).iter().any(|r| r.reduce && r.inside) {
            return Err(v);
        }
        let vectors = if cost(&v.body) <= 8 { REDUCED } else { SHORT };
        let mut parts = Parts::new(v.var, (vectors * self.lanes(v.var)).min(v.extent), self);
        let body = parts.divert(v.body, self);
        let Parts { mut before, after, place, .. } = parts;
        before.extend(self.in_groups(Vector { body, ..v }, vectors, Some(place)));
        before.extend(after);
        Ok(before)
    }

    /// Reductions over lanes inside of serial loops in which the target stays the same: the local vector is set up before
    /// these loops and reduced after them. Where rows are unrolled between, each of their points has a vector of its own. Where `next`
    /// sums into the same elements it goes to the same vector, and is taken.
    fn reduction_in_loops(&mut self, stmt: &Stmt, next: Option<&Stmt>) -> Option<(Vec<Stmt>, bool)> {
        let LaneSums { vector, extent, inner, unrolled } = lane_sums(stmt)?;
        let reductions = stores(inner);
        let vectors = REDUCED.min((extent + self.lanes(vector) - 1) / self.lanes(vector));
        if !unrolled.is_empty() {
            let points: i64 = unrolled.iter().map(|u| u.1).product();
            let plain = inner.iter().all(|s| matches!(s, Stmt::Store { .. }));
            if vectors > 1 || !plain || reductions.len() as i64 * points > self.target.vector_registers as i64 / 2 {
                return None;
            }
        }
        let next = next.filter(|next| {
            let same = |next: &LaneSums| next.extent == extent && self.lanes(next.vector) == self.lanes(vector);
            unrolled.is_empty()
                && sums_inside(next).is_some_and(|n| n.unrolled.is_empty() && same(&n) && are_joined(inner, n.inner))
        });
        let mut parts = Parts { unrolled, ..Parts::new(vector, (vectors * self.lanes(vector)).min(extent), self) };
        let mut nests = vec![];
        for stmt in [Some(stmt), next].into_iter().flatten() {
            let Some(LaneSums { vector: var, .. }) = sums_inside(stmt) else { continue };
            (parts.var, parts.next) = (var, 0);
            nests.push(replace_vector(stmt, &mut |body| {
                let body = parts.divert(body.to_vec(), self);
                self.in_groups(Vector { var, extent, body }, vectors, Some(parts.place))
            }));
        }
        let mut out = parts.before;
        out.extend(nests);
        out.extend(parts.after);
        Some((out, next.is_some()))
    }
}

/// Local vectors that take the place of the targets of a reduction over lanes.
struct Parts {
    var: Var,
    /// Loops that are expanded between the serial ones and the vector, with their extents.
    unrolled: Vec<(Var, i64)>,
    /// Elements of each local vector.
    group: i64,
    /// Stands for the subscript of the local vectors.
    place: Var,
    before: Vec<Stmt>,
    after: Vec<Stmt>,
    /// The local vectors, and how many of them have taken their place in the body that is diverted.
    vectors: Vec<BufferId>,
    next: usize,
}

impl Parts {
    fn new(var: Var, group: i64, s: &mut Strip) -> Parts {
        let (place, unrolled) = (s.nest.new_var("place"), vec![]);
        Parts { var, unrolled, group, place, before: vec![], after: vec![], vectors: vec![], next: 0 }
    }

    fn shape(&self) -> Vec<i64> {
        self.unrolled.iter().map(|u| u.1).chain([self.group]).collect()
    }

    /// A statement for each point of the expanded loops, made from variables of its own and from what takes the place of the
    /// loops' variables.
    fn at_points(&self, s: &mut Strip, make: impl FnOnce(&[Var], &dyn Fn(Var) -> Affine) -> Stmt) -> Stmt {
        let new = |&(v, _): &(Var, i64)| s.nest.new_var(s.nest.vars[v.0 as usize].clone());
        let points: Vec<Var> = self.unrolled.iter().map(new).collect();
        let moved = |v: Var| {
            let position = self.unrolled.iter().position(|u| u.0 == v);
            Affine::var(position.map_or(v, |position| points[position]))
        };
        let inside = make(&points, &moved);
        let around = |inside, (&v, u): (&Var, &(Var, i64))| constant_loop(LoopKind::Unroll, v, u.1, vec![inside]);
        points.iter().zip(&self.unrolled).rev().fold(inside, around)
    }

    /// Turns each `target op= value` of the body into `part[place] op= value`; sets the parts up before, reduces them after.
    fn divert(&mut self, body: Vec<Stmt>, s: &mut Strip) -> Vec<Stmt> {
        let var = self.var;
        let invariant = |index: &[Index]| index.iter().all(|i| i.affine().is_some_and(|a| !a.uses(var)));
        let mut out = vec![];
        for stmt in body {
            out.push(match stmt {
                Stmt::If { .. } | Stmt::Loop { kind: LoopKind::Unroll, .. } => {
                    stmt.map_body(|body| self.divert(body, s))
                }
                Stmt::Store { index, value, reduce: Some(op), .. }
                    if invariant(&index) && self.next < self.vectors.len() =>
                {
                    self.next += 1;
                    let index = vec![Index::Affine(Affine::var(self.place))];
                    Stmt::Store { buffer: self.vectors[self.next - 1], index, value, reduce: Some(op) }
                }
                Stmt::Store { buffer, index, value, reduce: Some(op) } if invariant(&index) => {
                    let target = s.nest.buffer(buffer);
                    let dtype = target.dtype;
                    let name = format!("{}_lanes", target.name);
                    let part = BufferId(s.nest.buffers.len() as u32);
                    s.nest.buffers.push(Buffer::dense(name, dtype, &self.shape(), BufferKind::Local));
                    self.vectors.push(part);
                    self.next += 1;
                    let subscripts = |points: &[Var], v: Var| -> Vec<Index> {
                        points.iter().chain([&v]).map(|&v| Index::Affine(Affine::var(v))).collect()
                    };
                    let neutral = Scalar::neutral(op, dtype).unwrap_or(Scalar { dtype, bits: 0 });
                    let first = s.copy_var(self.var);
                    let start = self.at_points(s, |points, _| {
                        let index = subscripts(points, first);
                        let start = Stmt::Store { buffer: part, index, value: Expr::Const(neutral), reduce: None };
                        vector_loop(first, self.group, vec![start])
                    });
                    self.before.push(start);
                    let last = s.copy_var(self.var);
                    let numbers = numbers_only(op, &value).is_some();
                    let end = self.at_points(s, |points, moved| {
                        let read =
                            Access { buffer: part, index: subscripts(points, last), guard: vec![], otherwise: None };
                        let index = index.iter().filter_map(|i| i.affine()).map(|a| Index::Affine(a.substitute(moved)));
                        let value = Expr::Load(read);
                        let value = if numbers { Expr::binary(op, Expr::Const(neutral), value) } else { value };
                        let end = Stmt::Store { buffer, index: index.collect(), value, reduce: Some(op) };
                        vector_loop(last, self.group, vec![end])
                    });
                    self.after.push(end);
                    let points: Vec<Var> = self.unrolled.iter().map(|u| u.0).collect();
                    Stmt::Store { buffer: part, index: subscripts(&points, self.place), value, reduce: Some(op) }
                }
                other => other,
            });
        }
        out
    }
}

/// The chain of loops `stmt` with the vector loop at its end replaced.
fn replace_vector(stmt: &Stmt, f: &mut dyn FnMut(&[Stmt]) -> Vec<Stmt>) -> Stmt {
    match stmt.body().first() {
        Some(Stmt::Loop { kind: LoopKind::Vector, body, .. }) => stmt.with_body(f(body)),
        Some(inner) => stmt.with_body(vec![replace_vector(inner, f)]),
        None => stmt.clone(),
    }
}

fn constant_loop(kind: LoopKind, var: Var, extent: i64, body: Vec<Stmt>) -> Stmt {
    Stmt::Loop { var, lower: vec![Bound::constant(0)], upper: vec![Bound::constant(extent)], step: 1, kind, body }
}

fn vector_loop(var: Var, extent: i64, body: Vec<Stmt>) -> Stmt {
    constant_loop(LoopKind::Vector, var, extent, body)
}

/// Copies `body` with `var` replaced and the variables of its loops renamed.
pub fn copied(nest: &mut LoopNest, body: &[Stmt], var: Var, value: &Affine) -> Vec<Stmt> {
    let mut map = FxHashMap::from_iter([(var, value.clone())]);
    copy_with(nest, body, &mut map)
}

pub fn copy_with(nest: &mut LoopNest, body: &[Stmt], map: &mut FxHashMap<Var, Affine>) -> Vec<Stmt> {
    fn look(map: &FxHashMap<Var, Affine>, v: Var) -> Affine {
        map.get(&v).cloned().unwrap_or_else(|| Affine::var(v))
    }
    let mut out = vec![];
    for stmt in body {
        out.push(match stmt {
            Stmt::Loop { var, lower, upper, step, kind, body } => {
                let bound = |b: &Bound| Bound { affine: b.affine.substitute(|v| look(map, v)), divisor: b.divisor };
                let (lower, upper) = (lower.iter().map(bound).collect(), upper.iter().map(bound).collect());
                let name = nest.vars[var.0 as usize].clone();
                let new = nest.new_var(name);
                map.insert(*var, Affine::var(new));
                Stmt::Loop { var: new, lower, upper, step: *step, kind: *kind, body: copy_with(nest, body, map) }
            }
            Stmt::Let { var, value, divisor } => {
                let value = value.substitute(|v| look(map, v));
                let name = nest.vars[var.0 as usize].clone();
                let new = nest.new_var(name);
                map.insert(*var, Affine::var(new));
                Stmt::Let { var: new, value, divisor: *divisor }
            }
            Stmt::Read { var, value, range, checked, expected, recorded } => {
                let value = value.substitute(&mut |v| look(map, v));
                let affine = expected.affine.substitute(|v| look(map, v));
                let name = nest.vars[var.0 as usize].clone();
                let new = nest.new_var(name);
                map.insert(*var, Affine::var(new));
                let expected = Bound { affine, divisor: expected.divisor };
                let (range, checked, recorded) = (*range, *checked, *recorded);
                Stmt::Read { var: new, value, range, checked, expected, recorded }
            }
            Stmt::If { conditions, body } => {
                let conditions = conditions.iter().map(|c| c.substitute(|v| look(map, v))).collect();
                Stmt::If { conditions, body: copy_with(nest, body, map) }
            }
            Stmt::Store { buffer, index, value, reduce } => {
                let mut replaced = |v: Var| look(map, v);
                let index = index.iter().map(|i| i.substitute(&mut replaced)).collect();
                let value = value.substitute(&mut replaced);
                Stmt::Store { buffer: *buffer, index, value, reduce: *reduce }
            }
        });
    }
    out
}

/// Unrolls short innermost loops completely and others by a small factor, as long as their variable is below `declared`.
fn unroll(nest: &mut LoopNest, target: &Target, declared: u32, body: Vec<Stmt>) -> Vec<Stmt> {
    let mut out = vec![];
    for stmt in body {
        match stmt {
            Stmt::Loop { kind: LoopKind::Vector, .. } => out.push(stmt),
            stmt if is_tiled(target, &stmt) => out.push(stmt.map_body(|body| unroll(nest, target, declared, body))),
            Stmt::Loop { var, kind: LoopKind::Serial, .. } if var.0 < declared => {
                let l = stmt.map_body(|body| unroll(nest, target, declared, body));
                out.extend(unrolled(nest, target, l));
            }
            other => out.push(other.map_body(|body| unroll(nest, target, declared, body))),
        }
    }
    out
}

/// Returns true for the loops and conditions around an instruction whose sums stay in registers throughout them.
fn is_tiled(target: &Target, stmt: &Stmt) -> bool {
    let mut tiled = false;
    stmt.visit(&mut |s| {
        tiled |=
            matches!(s, Stmt::Loop { kind: LoopKind::Instruction(name), .. } if target.sums_throughout_loops(*name));
    });
    tiled
}

/// Largest numbers of vector statements: of a completely unrolled loop, and of one iteration for unrolling by 4 and by 2.
/// Unmeasured.
const COMPLETE: i64 = 96;
const BY_FOUR: i64 = 8;
const BY_TWO: i64 = 32;

/// Returns true if a body combines lanes, and stores single elements that are neighbours from one iteration over `var` to the
/// next: the totals of four iterations are combined together ([`Inst::VReduceFour`](crate::codegen::vcode::Inst::VReduceFour)).
fn totals_of_neighbours(nest: &LoopNest, body: &[Stmt], var: Var) -> bool {
    let (mut combines, mut neighbours) = (false, false);
    for stmt in body {
        match stmt {
            Stmt::Loop { var: lanes, kind: LoopKind::Vector, body, .. } => {
                combines |= crate::codegen::select::statements::accumulates_over(body, *lanes);
            }
            Stmt::Store { buffer, index, .. } => {
                let buffer = nest.buffer(*buffer);
                let four = buffer.dtype.bytes() == 4;
                neighbours |= four && buffer.place(index).is_some_and(|place| place.coefficient(var) == 1);
            }
            _ => return false,
        }
    }
    combines && neighbours
}

fn unrolled(nest: &mut LoopNest, target: &Target, stmt: Stmt) -> Vec<Stmt> {
    let columns = columns::iterations(nest, target, &stmt);
    let Stmt::Loop { var, lower, upper, step, kind, body } = stmt else { return vec![stmt] };
    let lanes = (target.vector_bytes / 4) as i64;
    let same = |body| vec![Stmt::Loop { var, lower: lower.clone(), upper: upper.clone(), step, kind, body }];
    let (Some((first, end)), Some(size)) = (constant_range(&lower, &upper), vector_statements(&body, lanes)) else {
        return same(body);
    };
    let trips = ceil_div(end - first, step);
    if trips * size <= COMPLETE && trips <= 16 {
        return vec![Stmt::Loop { var, lower, upper, step, kind: LoopKind::Unroll, body }];
    }
    let factor = match size {
        _ if columns.is_some() => columns.unwrap_or(1),
        n if n <= BY_FOUR || n <= BY_TWO && step == 1 && totals_of_neighbours(nest, &body, var) => 4,
        n if n <= BY_TWO => 2,
        _ => 1,
    };
    let factor = if columns.is_some() || trips % factor == 0 || trips >= 4 * factor { factor } else { 1 };
    if factor == 1 {
        return same(body);
    }
    let main = trips / factor * factor;
    let inner = nest.new_var(format!("{}u", nest.vars[var.0 as usize]));
    let copy = copied(nest, &body, var, &Affine::var(var).plus(inner, step));
    let unrolled = Stmt::Loop {
        var: inner,
        lower: vec![Bound::constant(0)],
        upper: vec![Bound::constant(factor)],
        step: 1,
        kind: LoopKind::Unroll,
        body: copy,
    };
    let mut out = vec![Stmt::Loop {
        var,
        lower: vec![Bound::constant(first)],
        upper: vec![Bound::constant(first + main * step)],
        step: factor * step,
        kind: LoopKind::Serial,
        body: vec![unrolled],
    }];
    if main < trips {
        let tail = nest.new_var(nest.vars[var.0 as usize].clone());
        let copy = copied(nest, &body, var, &Affine::var(tail));
        out.push(Stmt::Loop {
            var: tail,
            lower: vec![Bound::constant(first + main * step)],
            upper: vec![Bound::constant(first + trips * step)],
            step,
            kind: LoopKind::Unroll,
            body: copy,
        });
    }
    out
}
