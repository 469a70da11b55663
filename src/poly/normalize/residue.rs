//! Residue classes: a temporary that is written with a stride becomes one dense tensor for each class.
//!
//! In: definitions. Out: definitions of the same outputs. Where every write of a temporary along one dimension is
//! `s·i + c` with `0 ≤ c < s`, as each phase of a transposed convolution writes its own positions, the temporary becomes
//! `s` temporaries, `t[s·i + c] = t_c[i]`, and every definition that reads it along an iterator of its own becomes one
//! definition for each class. So each phase and what follows it are dense loops over the same iterators that can be fused.

use crate::expr::interval::ceil_div;
use crate::expr::{Access, BufferId, Expr, Index};
use crate::expr::{Affine, Var};
use crate::poly::statement::{Definition, Iterator, Role, TensorDecl};

/// Programs do not grow beyond this many definitions.
const MAX_DEFINITIONS: usize = 64;

/// Splits temporaries until none is written with a stride.
pub fn split_residues(mut definitions: Vec<Definition>, tensors: &mut Vec<TensorDecl>) -> Vec<Definition> {
    let count = definitions.len();
    let mut t = 0;
    while t < tensors.len() {
        let strided_dimension = (0..tensors[t].shape.len()).find_map(|d| Strided::find(&definitions, tensors, t, d));
        match strided_dimension {
            Some(strided) => definitions = strided.split(definitions, tensors),
            None => t += 1,
        }
    }
    if definitions.len() > count { follow_producers(definitions) } else { definitions }
}

/// Moves each definition as early as its reads allow, so that a class is used while it is in the cache.
fn follow_producers(definitions: Vec<Definition>) -> Vec<Definition> {
    let mut out: Vec<Definition> = vec![];
    for d in definitions {
        let mut read = vec![];
        d.body.visit_accesses(&mut |a| read.push(a.buffer));
        let after = out.iter().rposition(|p| read.contains(&p.target)).map_or(out.len(), |i| i + 1);
        out.insert(after, d);
    }
    out
}

/// A dimension of a temporary that is written with a stride.
struct Strided {
    tensor: BufferId,
    dimension: usize,
    stride: i64,
    /// Tensor of each class.
    classes: Vec<BufferId>,
}

/// `(v, s, c)` of a subscript `s·v + c`.
fn single(a: &Affine) -> Option<(Var, i64, i64)> {
    match a.terms[..] {
        [(v, s)] => Some((v, s, a.constant)),
        _ => None,
    }
}

impl Strided {
    fn find(definitions: &[Definition], tensors: &[TensorDecl], t: usize, dimension: usize) -> Option<Strided> {
        let tensor = BufferId(t as u32);
        if tensors[t].role != Role::Temporary {
            return None;
        }
        let mut writes = definitions.iter().filter(|d| d.target == tensor).map(|d| single(&d.write[dimension]));
        let stride = definitions.iter().find(|d| d.target == tensor).and_then(|d| single(&d.write[dimension]))?.1;
        if stride < 2 || !writes.all(|w| w.is_some_and(|(_, s, c)| s == stride && (0..s).contains(&c))) {
            return None;
        }
        let this = Strided { tensor, dimension, stride, classes: vec![] };
        let mut count = 0;
        for d in definitions {
            count += if this.iterators(d)?.is_empty() { 1 } else { stride as usize };
        }
        (count <= MAX_DEFINITIONS).then_some(this)
    }

    /// The free iterators along which `d` reads the dimension whole; `None` when it reads in another way.
    fn iterators(&self, d: &Definition) -> Option<Vec<Var>> {
        let mut residues = vec![];
        let mut possible = true;
        d.body.visit_accesses(&mut |a| {
            if a.buffer == self.tensor {
                match a.index[self.dimension].affine().and_then(single) {
                    Some((v, 1, 0)) if (v.0 as usize) < d.outer => residues.push(v),
                    Some((_, s, c)) if s == self.stride && (0..s).contains(&c) => {}
                    _ => possible = false,
                }
            }
        });
        residues.sort();
        residues.dedup();
        (possible && residues.len() <= 1).then_some(residues)
    }

    fn split(mut self, definitions: Vec<Definition>, tensors: &mut Vec<TensorDecl>) -> Vec<Definition> {
        let whole = tensors[self.tensor.0 as usize].clone();
        for class in 0..self.stride {
            let mut part =
                TensorDecl { name: format!("{}_{class}", whole.name), literals: None, panel: None, ..whole.clone() };
            part.shape[self.dimension] = ceil_div(part.shape[self.dimension] - class, self.stride);
            if class == 0 {
                tensors[self.tensor.0 as usize] = part;
                self.classes.push(self.tensor);
            } else {
                tensors.push(part);
                self.classes.push(BufferId(tensors.len() as u32 - 1));
            }
        }
        let mut out = vec![];
        for d in definitions {
            match self.iterators(&d).expect("found")[..] {
                [] => out.push(self.redirect(d)),
                [v] => out
                    .extend((0..self.stride).filter_map(|class| self.class_of(&d, v, class)).map(|d| self.redirect(d))),
                _ => unreachable!("one iterator at most"),
            }
        }
        out
    }

    /// The part of `d` in which iterator `v` is `stride·v + class`; `None` when that is empty.
    fn class_of(&self, d: &Definition, v: Var, class: i64) -> Option<Definition> {
        let i = v.0 as usize;
        let extent = ceil_div(d.iterators[i].extent - class, self.stride);
        if extent <= 0 {
            return None;
        }
        let mut map = |x: Var| if x == v { Affine::var(v).scale(self.stride).offset(class) } else { Affine::var(x) };
        let mut iterators = d.iterators.clone();
        iterators[i] = Iterator { extent, ..iterators[i].clone() };
        Some(Definition {
            target: d.target,
            iterators,
            outer: d.outer,
            write: d.write.iter().map(|a| a.substitute(&mut map)).collect(),
            computed: vec![],
            reduce: d.reduce,
            conditions: d.conditions.iter().map(|a| a.substitute(&mut map)).collect(),
            body: d.body.substitute(&mut map),
        })
    }

    /// Writes and reads of the tensor go to the tensor of their class.
    fn redirect(&self, mut d: Definition) -> Definition {
        let locate = |a: &Affine| {
            let (v, _, class) = single(a).expect("found");
            (self.classes[class as usize], Affine::var(v))
        };
        d.body = d.body.rewrite_reads(self.tensor, &mut |mut a| {
            let (buffer, subscript) = locate(a.index[self.dimension].affine().expect("found"));
            a.index[self.dimension] = Index::Affine(subscript);
            Expr::Load(Access { buffer, ..a })
        });
        if d.target == self.tensor {
            let (target, subscript) = locate(&d.write[self.dimension]);
            (d.target, d.write[self.dimension]) = (target, subscript);
        }
        d
    }
}
