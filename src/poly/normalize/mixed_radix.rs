//! Mixed radix: a dimension that is written as `s·g + f` becomes two.
//!
//! In: definitions. Out: definitions of the same outputs. Where every write of a temporary along one dimension is `s·g + f`
//! with `0 ≤ f < s`, as a convolution with `s` filters a group writes its channels, the dimension becomes `(g, f)`, and an
//! iterator that reads it whole becomes two, `i = s·g + f`. So what follows a grouped operator has the loops of that
//! operator and can be fused with it. An iterator that reads less than the whole, as what follows tiles that reach beyond
//! the result, becomes two with a condition.

use crate::expr::interval::ceil_div;
use crate::expr::{Affine, Var};
use crate::expr::{BufferId, Expr, Index};
use crate::poly::statement::{Definition, Iterator, Role, TensorDecl, ranges};

/// Splits temporaries until no dimension is written with two digits.
pub fn split_digits(definitions: &mut [Definition], tensors: &mut [TensorDecl]) {
    for t in 0..tensors.len() {
        while let Some(digits) = (0..tensors[t].shape.len()).find_map(|d| Digits::find(definitions, tensors, t, d)) {
            definitions.iter_mut().for_each(|d| digits.split(d));
            let Digits { dimension, radix, .. } = digits;
            let shape = &mut tensors[t].shape;
            shape[dimension] /= radix;
            shape.insert(dimension + 1, radix);
        }
    }
}

/// A dimension of a temporary whose subscripts are `radix·high + low`.
struct Digits {
    tensor: BufferId,
    dimension: usize,
    radix: i64,
}

impl Digits {
    fn find(definitions: &[Definition], tensors: &[TensorDecl], t: usize, dimension: usize) -> Option<Digits> {
        let tensor = BufferId(t as u32);
        if tensors[t].role != Role::Temporary {
            return None;
        }
        let writers = || definitions.iter().filter(|d| d.target == tensor);
        let radix = writers().find_map(|d| d.write[dimension].terms.iter().map(|t| t.1).find(|&c| c > 1))?;
        let this = Digits { tensor, dimension, radix };
        let extent = tensors[t].shape[dimension];
        let written = writers().all(|d| this.digits(&d.write[dimension], d).is_some());
        (extent % radix == 0 && written && definitions.iter().all(|d| this.iterators(d).is_some())).then_some(this)
    }

    /// The high and the low digit of a subscript.
    fn digits(&self, a: &Affine, d: &Definition) -> Option<(Affine, Affine)> {
        let digit = |of: &dyn Fn(i64) -> bool, constant: i64, scale: i64| Affine {
            terms: a.terms.iter().filter(|t| of(t.1)).map(|t| (t.0, t.1 / scale)).collect(),
            constant,
        };
        let high = digit(&|c| c % self.radix == 0, a.constant.div_euclid(self.radix), self.radix);
        let low = digit(&|c| c % self.radix != 0, a.constant.rem_euclid(self.radix), 1);
        let (least, most) = low.bounds(ranges(&d.iterators));
        (least >= 0 && most < self.radix).then_some((high, low))
    }

    /// The iterators of `d` that read the dimension without digits and have to be split; `None` when it is read in
    /// another way.
    fn iterators(&self, d: &Definition) -> Option<Vec<Var>> {
        let mut iterators = vec![];
        let mut possible = true;
        d.body.visit_accesses(&mut |a| {
            if a.buffer == self.tensor {
                match a.index[self.dimension].affine() {
                    Some(a) if self.digits(a, d).is_some() => {}
                    Some(a) => match a.terms[..] {
                        [(v, 1)] if a.constant == 0 && self.divides(d, v) => iterators.push(v),
                        _ => possible = false,
                    },
                    None => possible = false,
                }
            }
        });
        iterators.sort();
        iterators.dedup();
        possible.then_some(iterators)
    }

    /// Returns true if the iterator has whole high digits, or may leave out values of the last one.
    fn divides(&self, d: &Definition, v: Var) -> bool {
        d.reduce.is_none() || d.iterators[v.0 as usize].extent % self.radix == 0
    }

    fn split(&self, d: &mut Definition) {
        for v in self.iterators(d).expect("found").into_iter().rev() {
            self.split_iterator(d, v);
        }
        let digits = |a: &Affine| self.digits(a, d).expect("found");
        let body = d.body.rewrite_reads(self.tensor, &mut |mut a| {
            let (high, low) = digits(a.index[self.dimension].affine().expect("found"));
            a.index[self.dimension] = Index::Affine(high);
            a.index.insert(self.dimension + 1, Index::Affine(low));
            Expr::Load(a)
        });
        if d.target == self.tensor {
            let (high, low) = digits(&d.write[self.dimension]);
            d.write[self.dimension] = high;
            d.write.insert(self.dimension + 1, low);
        }
        d.body = body;
    }

    /// Iterator `v` becomes two.
    fn split_iterator(&self, d: &mut Definition, v: Var) {
        let index = v.0 as usize;
        let Iterator { name, extent, .. } = d.iterators[index].clone();
        let digit = |suffix: &str, extent| Iterator::new(format!("{name}{suffix}"), extent);
        let high = ceil_div(extent, self.radix);
        d.iterators.splice(index..=index, [digit("h", high), digit("l", self.radix)]);
        d.outer += usize::from(index < d.outer);
        let low = Var(v.0 + 1);
        let mut map = |x: Var| match x {
            x if x == v => Affine::var(low).plus(v, self.radix),
            x if x > v => Affine::var(Var(x.0 + 1)),
            x => Affine::var(x),
        };
        d.write = d.write.iter().map(|a| a.substitute(&mut map)).collect();
        d.conditions = d.conditions.iter().map(|a| a.substitute(&mut map)).collect();
        if extent % self.radix != 0 {
            d.conditions.push(Affine::constant(extent - 1).add_scaled(&map(v), -1));
        }
        d.body = d.body.substitute(&mut map);
    }
}
