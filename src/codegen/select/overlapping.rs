//! Updates of neighbouring elements in whole vectors of which the last two overlap.
//!
//! In: the statements of a vector loop over elements from data, each of which is stored in its place. Out: statements of the same meaning
//! in which a range of at least a vector is done in whole vectors, the last of which ends where the range ends. It is computed first and
//! stored last: it has read the elements as they were, so that those of two vectors get the same value twice. Nothing outside of
//! the range is touched, no lane is masked, and the next range begins behind what was stored, where its loads wait for nothing. A
//! shorter range has narrower vectors, one of less than the narrowest single elements.

use crate::codegen::loopnest::dynamic_loops::{substituted, vector_of};
use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, LoopNest, Stmt};
use crate::expr::{Access, Affine, Bound, BufferId, Expr, Index, Var};

/// Elements of the narrowest vectors: 16 bytes of f32.
const LEAST_WIDTH: i64 = 4;
/// Bytes of the smallest elements. The lanes of smaller ones in registers depend on the loop that computes them.
const LEAST_BYTES: usize = 4;

/// Elements from `first` to the one before `stop`, in vectors of `width` lanes; `tile` is the first element of a vector.
pub struct Elements<'a> {
    pub tile: Var,
    pub lane: Var,
    pub width: i64,
    pub first: &'a Affine,
    pub stop: &'a Affine,
    pub body: &'a [Stmt],
}

/// The statements of `elements`; `None` where one does more than to update its own element.
pub fn overlapping(nest: &mut LoopNest, elements: &Elements) -> Option<Vec<Stmt>> {
    let updates = updates(nest, elements)?;
    let extent = elements.stop.add_scaled(elements.first, -1);
    let mut out = vec![elements.singles(nest)];
    for width in widths(elements.width) {
        let fits = extent.clone().offset(-width);
        let shorter = fits.clone().scale(-1).offset(-1);
        let vectors = elements.vectors(nest, &updates, width);
        out =
            vec![Stmt::If { conditions: vec![fits], body: vectors }, Stmt::If { conditions: vec![shorter], body: out }];
    }
    Some(out)
}

/// The widths of the vectors, the narrowest ones first.
fn widths(widest: i64) -> Vec<i64> {
    let narrower = |width: &i64| (*width > LEAST_WIDTH).then(|| (width / 4).max(LEAST_WIDTH));
    let mut all: Vec<i64> = std::iter::successors(Some(widest), narrower).collect();
    all.reverse();
    all
}

/// An element that each iteration stores.
struct Update {
    buffer: BufferId,
    index: Vec<Index>,
    /// It is read before it is stored.
    is_read: bool,
}

/// The elements that statements store; `None` where they access others of the same buffers.
fn updates(nest: &LoopNest, elements: &Elements) -> Option<Vec<Update>> {
    let mut all: Vec<Update> = vec![];
    for stmt in elements.body {
        let Stmt::Store { buffer, index, .. } = stmt else { return None };
        let moves = |a: &Affine| {
            let step = a.coefficient(elements.lane);
            step != 0 && a.coefficient(elements.tile) == step
        };
        let target = nest.buffer(*buffer);
        let in_memory = matches!(target.kind, BufferKind::Argument { .. }) && target.dtype.bytes() >= LEAST_BYTES;
        if !in_memory || !index.iter().filter_map(Index::affine).any(moves) {
            return None;
        }
        if !all.iter().any(|update| update.buffer == *buffer) {
            all.push(Update { buffer: *buffer, index: index.clone(), is_read: false });
        }
    }
    let mut stored: Vec<BufferId> = vec![];
    for stmt in elements.body {
        let Stmt::Store { buffer, index, reduce, .. } = stmt else { return None };
        let mut own = true;
        let mut note = |buffer: BufferId, index: &[Index], is_read: bool| {
            if let Some(update) = all.iter_mut().find(|update| update.buffer == buffer) {
                own &= update.index == index;
                update.is_read |= is_read && !stored.contains(&buffer);
            }
        };
        let mut guarded = false;
        for e in stmt.expressions() {
            e.visit_accesses(&mut |a| {
                guarded |= !a.guard.is_empty();
                note(a.buffer, &a.index, true);
            });
        }
        note(*buffer, index, reduce.is_some());
        if !own || guarded {
            return None;
        }
        stored.push(*buffer);
    }
    Some(all)
}

impl Elements<'_> {
    /// A form of the vector that begins at `first`, in the lane `lane`.
    fn at<'f>(&'f self, first: &'f Affine, lane: &'f Affine) -> impl FnMut(Var) -> Affine + 'f {
        |v| match v {
            v if v == self.tile => first.clone(),
            v if v == self.lane => lane.clone(),
            v => Affine::var(v),
        }
    }

    fn body_at(&self, first: &Affine, lane: &Affine) -> Vec<Stmt> {
        self.body.iter().map(|s| substituted(s, &mut self.at(first, lane))).collect()
    }

    /// A serial loop from the first element to the one before `end`.
    fn steps(&self, tile: Var, end: Affine, step: i64, body: Vec<Stmt>) -> Stmt {
        let bound = |affine: Affine| vec![Bound { affine, divisor: 1 }];
        let (lower, upper) = (bound(self.first.clone()), bound(end));
        Stmt::Loop { var: tile, lower, upper, step, kind: LoopKind::Serial, body }
    }

    fn singles(&self, nest: &mut LoopNest) -> Stmt {
        let tile = copy_of(nest, self.tile);
        let body = self.body_at(&Affine::var(tile), &Affine::constant(0));
        self.steps(tile, self.stop.clone(), 1, body)
    }

    /// Vectors of `width` lanes over at least as many elements.
    fn vectors(&self, nest: &mut LoopNest, updates: &[Update], width: i64) -> Vec<Stmt> {
        let last = self.stop.clone().offset(-width);
        let registers: Vec<BufferId> = updates.iter().map(|u| register_of(nest, u.buffer, width)).collect();
        let [early, lane, late] = [0; 3].map(|_| copy_of(nest, self.lane));
        let index_of = |update: &Update, lane: Var| -> Vec<Index> {
            let lane = Affine::var(lane);
            update.index.iter().map(|i| i.substitute(&mut self.at(&last, &lane))).collect()
        };
        let store = |buffer, index, value| Stmt::Store { buffer, index, value: Expr::Load(value), reduce: None };
        let pairs = || updates.iter().zip(&registers);
        let mut computed = vec![];
        for (update, &register) in pairs().filter(|(update, _)| update.is_read) {
            computed.push(store(register, in_lane(early), element(update.buffer, index_of(update, early))));
        }
        let kept = |buffer: BufferId| updates.iter().position(|u| u.buffer == buffer).map(|n| registers[n]);
        let body = self.body_at(&last, &Affine::var(early));
        computed.extend(body.iter().map(|s| in_registers(s, early, &kept)));
        let tile = copy_of(nest, self.tile);
        let body = self.body_at(&Affine::var(tile), &Affine::var(lane));
        let stored = pairs().map(|(u, &register)| store(u.buffer, index_of(u, late), element(register, in_lane(late))));
        vec![
            vector_of(early, width, computed),
            self.steps(tile, last.clone(), width, vec![vector_of(lane, width, body)]),
            vector_of(late, width, stored.collect()),
        ]
    }
}

fn copy_of(nest: &mut LoopNest, var: Var) -> Var {
    nest.new_var(nest.vars[var.0 as usize].clone())
}

/// A local vector for elements of a buffer.
fn register_of(nest: &mut LoopNest, buffer: BufferId, width: i64) -> BufferId {
    let target = nest.buffer(buffer);
    let register = Buffer::dense(format!("{}_last", target.name), target.dtype, &[width], BufferKind::Local);
    nest.buffers.push(register);
    BufferId(nest.buffers.len() as u32 - 1)
}

fn in_lane(lane: Var) -> Vec<Index> {
    vec![Index::Affine(Affine::var(lane))]
}

fn element(buffer: BufferId, index: Vec<Index>) -> Access {
    Access { buffer, index, guard: vec![], otherwise: None }
}

/// A store with lanes of local vectors in place of the elements of buffers that have one.
fn in_registers(s: &Stmt, lane: Var, register: &dyn Fn(BufferId) -> Option<BufferId>) -> Stmt {
    let Stmt::Store { buffer, index, value, reduce } = s else { return s.clone() };
    let value = value.rewrite_loads(&mut |access| match register(access.buffer) {
        Some(register) => Expr::Load(element(register, in_lane(lane))),
        None => Expr::Load(access),
    });
    match register(*buffer) {
        Some(register) => Stmt::Store { buffer: register, index: in_lane(lane), value, reduce: *reduce },
        None => Stmt::Store { buffer: *buffer, index: index.clone(), value, reduce: *reduce },
    }
}

#[cfg(test)]
mod tests {
    use crate::codegen::Target;
    use crate::codegen::loopnest::{LoopNest, parse, verify};
    use crate::codegen::select::lower;
    use crate::codegen::select::peeling::peel;
    use crate::codegen::select::tests::check;
    use crate::codegen::vcode::{Function, Inst};

    /// Rows of data, of which `store` updates the element `t + k`, one after the other.
    fn rows(about: i64, store: &str) -> LoopNest {
        let text = format!(
            "kernel rows {{
               P: i64[9] argument 0; S: f32[8] argument 1; V: f32[90] argument 2 written; W: f32[90] argument 3 written;
               D: f64[90] argument 4 written; B: u8[90] argument 5 written;
               parallel once in 0..1 {{ for i in 0..8 {{
                 let a = clamp(P[i], 0, 90) about {about}*i; let b = clamp((P[i] + P[i + 1]), 0, 90) about {about}*i + {about};
                 for t in a..b step 16 {{ vector k in 0..16 {{ if b - t - k - 1 >= 0 {{ {store} }} }} }} }} }} }}"
        );
        parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{store}"))
    }

    fn functions(about: i64, store: &str) -> Vec<Function> {
        let nest = rows(about, store);
        // of rows of any length: the interpreters take numbers from -4 to 20
        check(&nest, 1);
        Target::all().iter().flat_map(|target| lower(&nest, target).unwrap()).collect()
    }

    #[test]
    fn the_last_vector_of_a_row_ends_with_it() {
        let has = |store: &str| {
            let mut nest = rows(30, store);
            peel(&mut nest, &Target::avx512());
            verify::verify(&nest).unwrap_or_else(|e| panic!("{e}\n{nest}"));
            nest.to_string().contains("_last")
        };
        for store in [
            "V[t + k] mul = S[i];",
            "V[t + k] = (V[t + k] * f32(3.0));",
            "D[t + k] add = cast f64(V[t + k]);",
            "V[t + k] add = f32(1.0); W[t + k] = V[t + k]; W[t + k] mul = S[i];",
        ] {
            assert!(has(store), "{store}");
            for f in functions(30, store) {
                let masked = |i: &Inst| matches!(i, Inst::VLoadWhere { .. } | Inst::VStoreWhere { .. });
                assert!(!f.insts.iter().any(masked), "{f}");
            }
        }
        // other elements, elements of other rows, and lanes whose width depends on the loop
        for store in [
            "V[t + k] = (V[-t - k + 89] * S[i]);",
            "V[t + k] mul = f32(2.0); V[t + k] add = V[i];",
            "B[t + k] add = u8(1);",
        ] {
            assert!(!has(store), "{store}");
        }
    }

    #[test]
    fn rows_are_expected_to_take_the_vectors_of_their_length() {
        for (about, first) in [(30, true), (8, false)] {
            let f = &lower(&rows(about, "V[t + k] mul = S[i];"), &Target::avx512()).unwrap()[0];
            let start = f.insts.iter().position(|i| matches!(i, Inst::IfStart { .. })).unwrap();
            let Inst::IfStart { op, a, b } = f.insts[start] else { unreachable!() };
            let Inst::Expect { count, iterations } = f.insts[start - 1] else { panic!("{f}") };
            let crate::codegen::vcode::Operand::Imm(least) = b else { panic!("{f}") };
            assert!(count == a && op.holds(&iterations, &least) == first, "{f}");
        }
    }

    #[test]
    fn the_loop_over_whole_vectors_holds_nothing_that_stays() {
        let f = &lower(&rows(30, "V[t + k] = (V[t + k] / S[i]);"), &Target::avx512()).unwrap()[0];
        let (mut body, mut inside) = (vec![], false);
        for inst in &f.insts {
            match inst {
                Inst::LoopStart { .. } => (body, inside) = (vec![], true),
                Inst::LoopEnd => break,
                inst if inside => body.push(inst),
                _ => {}
            }
        }
        let quotient = |i: &&Inst| matches!(i, Inst::VQuotient { .. });
        assert!(body.len() == 4 && body.iter().any(quotient), "{f}");
    }
}
