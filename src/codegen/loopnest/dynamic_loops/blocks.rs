//! Blocks of elements that all loops of a body unroll, as unroll and jam leaves them.

use crate::codegen::loopnest::{Accesses, LoopKind, LoopNest, Stmt};
use crate::expr::{Affine, Bound, BufferId, Expr, Index, Var};
use rustc_hash::FxHashMap;

/// The variables of the loops that are unrolled `width` times.
pub fn unrolled_over(body: &[Stmt], width: i64) -> Vec<Var> {
    let mut out = vec![];
    body.iter().for_each(|s| s.visit(&mut |s| out.extend(element(s, width))));
    out
}

/// The variable of a loop that is unrolled `width` times.
fn element(s: &Stmt, width: i64) -> Option<Var> {
    match s {
        Stmt::Loop { var, lower, upper, step: 1, kind: LoopKind::Unroll, .. } => {
            let constant = |bounds: &[Bound], n: i64| matches!(bounds, [b] if *b == Bound::constant(n));
            (constant(lower, 0) && constant(upper, width)).then_some(*var)
        }
        _ => None,
    }
}

/// Returns true if a loop over `var` runs blocks of `width` elements `width · var + k` that could run one after the other: each statement of
/// its body is in one loop over k that is unrolled, what it writes to memory is of its element, and a register has the value of one.
/// `all` are the accesses of the nest.
pub fn are_apart(body: &[Stmt], var: Var, width: i64, all: &Accesses) -> bool {
    let mut found = Found { width, inside: vec![], accesses: FxHashMap::default(), forms: vec![], apart: true };
    found.body(body, None);
    let Found { inside, accesses, forms, apart, .. } = found;
    let mut written = accesses.iter().filter(|(_, accesses)| accesses.iter().any(|a| a.written));
    let mut own = |(buffer, accesses): (&BufferId, &Vec<Element>)| {
        let dimensions = accesses[0].index.len();
        (0..dimensions).any(|d| {
            // the same form of the element in all accesses, over nothing else from inside
            let form = |access: &Element| {
                let a = access.index[d].affine()?;
                let c = a.coefficient(access.element);
                let rest = a.clone().plus(access.element, -c);
                (c != 0 && !inside.iter().any(|v| rest.uses(*v))).then_some((c, rest))
            };
            let Some((c, rest)) = form(&accesses[0]) else { return false };
            let of_block = rest.coefficient(var) == width * c;
            let filled = accesses[0].filled && all.get(buffer) == Some(&accesses.len());
            (of_block || filled && !rest.uses(var))
                && accesses.iter().all(|a| form(a).as_ref() == Some(&(c, rest.clone())))
        })
    };
    let in_step = |(a, k): &(Affine, Var)| !a.uses(var) || a.coefficient(var) == width * a.coefficient(*k);
    apart && forms.iter().all(in_step) && written.all(&mut own)
}

/// An access to an element of a buffer, for an element of the block.
struct Element {
    index: Vec<Index>,
    element: Var,
    written: bool,
    /// Assigns the element without a look at it.
    filled: bool,
}

struct Found {
    width: i64,
    /// Variables of the loops of the body.
    inside: Vec<Var>,
    /// In their order.
    accesses: FxHashMap<BufferId, Vec<Element>>,
    /// All forms, each with the element of the block.
    forms: Vec<(Affine, Var)>,
    apart: bool,
}

impl Found {
    fn body(&mut self, body: &[Stmt], k: Option<Var>) {
        for s in body {
            match (s, k) {
                (
                    Stmt::Loop { kind: LoopKind::Parallel | LoopKind::Waves { .. } | LoopKind::Instruction(_), .. },
                    _,
                ) => {
                    self.apart = false;
                }
                (Stmt::Loop { var, lower, upper, body, .. }, _) => {
                    self.inside.push(*var);
                    self.apart &= lower.iter().chain(upper).all(|b| b.affine.is_constant());
                    let own = element(s, self.width);
                    self.apart &= own.is_none() || k.is_none();
                    self.body(body, k.or(own));
                }
                (Stmt::Store { buffer, index, reduce, .. }, Some(element)) => {
                    self.forms.extend(index.iter().filter_map(|i| Some((i.affine()?.clone(), element))));
                    s.expressions().for_each(|e| {
                        e.visit(&mut |e| match e {
                            Expr::Index(a) => self.forms.push((a.clone(), element)),
                            Expr::Load(a) => {
                                self.forms.extend(a.affine_forms().map(|a| (a.clone(), element)));
                                self.note(a.buffer, &a.index, element, [false; 2]);
                            }
                            _ => {}
                        })
                    });
                    self.note(*buffer, index, element, [true, reduce.is_none()]);
                }
                _ => self.apart = false,
            }
        }
    }

    fn note(&mut self, buffer: BufferId, index: &[Index], element: Var, [written, filled]: [bool; 2]) {
        let access = Element { index: index.to_vec(), element, written, filled };
        self.accesses.entry(buffer).or_default().push(access);
    }
}

/// A statement of the block `from` as one of the block `to`, whose loops are unrolled `n` times instead of `width`.
pub fn with_width(nest: &mut LoopNest, s: &Stmt, (from, to): (Var, Var), (width, n): (i64, i64)) -> Stmt {
    renamed(nest, s, &mut FxHashMap::from_iter([(from, to)]), (width, n))
}

fn renamed(nest: &mut LoopNest, s: &Stmt, names: &mut FxHashMap<Var, Var>, (width, n): (i64, i64)) -> Stmt {
    match s {
        Stmt::Loop { var, lower, upper, step, kind, body } => {
            let new = nest.new_var(nest.vars[var.0 as usize].clone());
            names.insert(*var, new);
            let upper = if element(s, width).is_some() { vec![Bound::constant(n)] } else { upper.clone() };
            let body = body.iter().map(|s| renamed(nest, s, names, (width, n))).collect();
            Stmt::Loop { var: new, lower: lower.clone(), upper, step: *step, kind: *kind, body }
        }
        s => super::elements::substituted(s, &mut |v| Affine::var(names.get(&v).copied().unwrap_or(v))),
    }
}
