//! Reads that leave their tensor: zero where that is asked for, else an error with the place.

use crate::expr::syntax::Span;
use crate::expr::{Access, Index, Scalar};
use crate::expr::{Affine, Var};
use crate::language::range::Interval;
use crate::language::source::{Checked, Diagnostic};
use crate::poly::statement::TensorDecl;

/// The indices of an equation and the reads that they allow.
pub(super) struct Frame<'a> {
    pub arrays: &'a [TensorDecl],
    pub indices: &'a [String],
    pub ranges: &'a [Interval],
    /// True for each index whose range is written.
    pub given: &'a [bool],
}

impl Frame<'_> {
    /// Guards a read that leaves its tensor where a `where` range says so, or outside of `facts`; any other such read is
    /// an error.
    pub fn pad(&self, span: Span, mut access: Access, facts: &[Affine]) -> Checked<Access> {
        let decl = &self.arrays[access.buffer.0 as usize];
        let range = |v: Var| self.ranges[v.0 as usize];
        let mut guard = vec![];
        for (d, index) in access.index.iter().enumerate() {
            let Index::Affine(form) = index else { continue };
            let below = Affine::constant(decl.shape[d] - 1).add_scaled(form, -1);
            for inside in [form, &below] {
                if inside.bounds(range).0 >= 0 {
                    continue;
                }
                let selected = facts.iter().any(|f| inside.add_scaled(f, -1).bounds(range).0 >= 0);
                if !selected && !form.terms.iter().any(|t| self.given[t.0.0 as usize]) {
                    return Err(self.outside(span, decl, d, form, inside));
                }
                guard.push(inside.clone());
            }
        }
        if !guard.is_empty() {
            access.guard = guard;
            access.otherwise = Some(Scalar::of(decl.dtype, 0.0));
        }
        Ok(access)
    }

    /// With the corner of the box where `inside` is least.
    fn outside(&self, span: Span, decl: &TensorDecl, d: usize, form: &Affine, inside: &Affine) -> Diagnostic {
        let corner = |v: Var| {
            let (lo, hi) = self.ranges[v.0 as usize];
            if inside.coefficient(v) > 0 { lo } else { hi }
        };
        let values: Vec<String> =
            form.terms.iter().map(|t| format!("{}={}", self.indices[t.0.0 as usize], corner(t.0))).collect();
        let (value, extent) = (form.evaluate(corner), decl.shape[d]);
        let place = if values.is_empty() { String::new() } else { format!(" at {}", values.join(", ")) };
        let message = format!(
            "subscript {d} of `{}` is {value}{place}, outside of 0..{extent}; where an index has a range (`where i in 0..N`) \
             such reads give zero",
            decl.name
        );
        Diagnostic::invalid(span, message)
    }
}
