//! Private storage: memory for the elements of a temporary that one iteration of some loops needs.

use crate::codegen::loopnest::Stmt;
use crate::expr::Affine;
use crate::expr::{BufferId, Index};
use crate::poly::lower::contraction::Contraction;
use crate::poly::lower::placement::LOCAL_BYTES;
use crate::poly::lower::state::{Local, Lowering, Placed, Site};
use crate::poly::schedule::Row;
use crate::poly::statement::StatementId;
use crate::poly::storage::{Digit, Private};
use crate::runtime::{Error, Result};

impl Lowering<'_> {
    /// The site with memory for the temporaries whose rows are all known here, private or contracted; `None` when there are
    /// none.
    pub(in crate::poly::lower) fn place_private(
        &mut self,
        statements: &[StatementId],
        site: &Site,
    ) -> Result<Option<Site>> {
        let scop = self.scop;
        let mut out = None;
        for private in &scop.privates {
            if self.is_fixed_here(private, statements, site) {
                let (origin, extents) = self.touched(private, site)?;
                let shape = private.shape(&extents);
                let buffer = self.local(
                    Local::Temporary(private.tensor),
                    &scop.tensor(private.tensor).name,
                    private.tensor,
                    &shape,
                );
                let placed = Placed { tensor: private.tensor, buffer, origin, sums: false };
                out.get_or_insert_with(|| site.clone()).placed.push(placed);
            }
        }
        let placed = self.place_contracted(statements, out.as_ref().unwrap_or(site))?;
        Ok(placed.or(out))
    }

    /// The site with memory for the contracted temporaries whose rows are all known here; `None` when there are none.
    fn place_contracted(&mut self, statements: &[StatementId], site: &Site) -> Result<Option<Site>> {
        self.place_where(statements, site, &|c, _| Some(c.shared))
    }

    /// As for a site, of one step of a serial row whose parts run one after the other with barriers, each on any thread: memory that
    /// all threads share for what lasts longer than a part.
    pub(super) fn place_for_step(&mut self, groups: &[Vec<StatementId>], site: &Site) -> Result<Option<Site>> {
        let within = |users: &[StatementId]| groups.iter().any(|g| users.iter().all(|id| g.contains(id)));
        let lasts = |c: &Contraction, users: &[StatementId]| (c.shared || !within(users)).then_some(true);
        self.place_where(&groups.concat(), site, &lasts)
    }

    /// Places the contracted temporaries of which `shared`, given the statements that use them, says whether threads share them.
    fn place_where(
        &mut self,
        statements: &[StatementId],
        site: &Site,
        shared: &dyn Fn(&Contraction, &[StatementId]) -> Option<bool>,
    ) -> Result<Option<Site>> {
        let contractions = std::mem::take(&mut self.contractions);
        let mut out = None;
        for c in &contractions {
            // The whole of it is in a workspace already: its values outlive iterations of the loops further in.
            if self.tensors[c.private.tensor.0 as usize].is_some() {
                continue;
            }
            if self.is_fixed_here(&c.private, statements, site)
                && let Some(shared) = shared(c, self.users(c.private.tensor))
                && let Some(placed) = self.contracted(&c.private, shared, site)?
            {
                out.get_or_insert_with(|| site.clone()).placed.push(placed);
            }
        }
        self.contractions = contractions;
        Ok(out)
    }

    /// Returns true if a temporary has no memory here yet and all that it takes to find it is known.
    fn is_fixed_here(&self, private: &Private, statements: &[StatementId], site: &Site) -> bool {
        let users = self.users(private.tensor);
        let known = site.placed.iter().any(|p| p.tensor == private.tensor);
        let within = || !users.is_empty() && users.iter().all(|id| statements.contains(id));
        if known || !within() {
            return false;
        }
        let around: Vec<Row> = site.rows.iter().map(|d| d.row()).collect();
        private.is_fixed(users, &around.iter().collect::<Vec<_>>())
    }

    /// Memory for a contracted temporary; `None` where the whole of it is in a workspace, since one iteration touches too much.
    fn contracted(&mut self, private: &Private, shared: bool, site: &Site) -> Result<Option<Placed>> {
        let tensor = private.tensor;
        let t = self.scop.tensor(tensor);
        let (origin, shape) = self.touched(private, site)?;
        let bytes = |shape: &[i64]| shape.iter().product::<i64>().saturating_mul(t.dtype.bytes() as i64);
        let divided = private.rows.iter().any(|r| r.kind.is_shared());
        let most = if divided { LOCAL_BYTES } else { i64::MAX };
        if bytes(&shape) >= bytes(&t.shape) || bytes(&shape) > most {
            if self.tensors[tensor.0 as usize].is_none() {
                self.workspace(tensor)?;
            }
            return Ok(None);
        }
        let buffer = match !shared && bytes(&shape) <= LOCAL_BYTES {
            true => self.local(Local::Temporary(tensor), &t.name, tensor, &shape),
            false => self.shared_workspace(tensor, &shape),
        };
        Ok(Some(Placed { tensor, buffer, origin, sums: false }))
    }

    /// Origin and extents of a box around the elements that are touched at one place.
    fn touched(&mut self, private: &Private, site: &Site) -> Result<(Vec<Affine>, Vec<i64>)> {
        let element = self.new_var("element", (0, 0));
        let inside = site.with(element);
        let dims = inside.vars.len();
        let mut touches: Vec<(StatementId, Vec<Index>, Vec<Affine>)> = vec![];
        for &id in self.users(private.tensor) {
            let s = self.scop.statement(id);
            if s.target == private.tensor {
                touches.push((id, s.subscripts(), vec![]));
            }
            s.visit_accesses(&mut |a| {
                if a.buffer == private.tensor {
                    touches.push((id, a.index.clone(), a.guard.clone()));
                }
            });
        }
        let (mut origin, mut extents) = (vec![], vec![]);
        for (d, &size) in self.scop.tensor(private.tensor).shape.iter().enumerate() {
            let mut shadows = vec![];
            let mut gathers = false;
            for (id, index, guard) in &touches {
                let Some(a) = index[d].affine() else {
                    gathers = true;
                    continue;
                };
                let mut p = self.instances(*id, &inside);
                let mut equal = p.form(a, dims);
                equal[dims - 1] -= 1;
                p.equalities.push(equal);
                guard.iter().for_each(|g| p.inequalities.push(p.form(g, dims)));
                if !self.isl.is_empty(&p)? {
                    shadows.push(self.isl.project(&p, dims)?);
                }
            }
            let (mut best, mut extent) = (Affine::constant(0), size);
            if !gathers && !shadows.is_empty() {
                let hull = self.isl.hull(&shadows)?.as_inequalities();
                let bounds = |sign: i64| {
                    let inside = &inside;
                    let of = hull.iter().filter(move |f| f[dims - 1] == sign);
                    of.map(move |f| {
                        let mut bound = f.clone();
                        bound[dims - 1] = 0;
                        inside.affine(&bound).scale(-sign)
                    })
                };
                for low in bounds(1).chain([Affine::constant(0)]) {
                    for high in bounds(-1).chain([Affine::constant(size - 1)]) {
                        let most = high.add_scaled(&low, -1).bounds(self.range()).1 + 1;
                        if most < extent {
                            (best, extent) = (low.clone(), most);
                        }
                    }
                }
            }
            origin.push(best);
            extents.push(extent.max(1));
        }
        Ok((origin, extents))
    }

    /// Finds the subscripts of the elements that an instance touches in temporaries with a layout; returns their divisions.
    pub(in crate::poly::lower) fn lay_out(
        &mut self,
        id: StatementId,
        value: &[Affine],
        site: &Site,
    ) -> Result<Vec<Stmt>> {
        let scop = self.scop;
        let s = scop.statement(id);
        let mut lets = vec![];
        let mut touched: Vec<(BufferId, Vec<Affine>)> = vec![(s.target, s.write.clone())];
        let mut gathered = s.is_scatter().then_some(s.target);
        s.visit_accesses(&mut |a| match a.index.iter().map(|i| i.affine().cloned()).collect() {
            Some(index) => touched.push((a.buffer, index)),
            None => gathered = Some(a.buffer),
        });
        let layout = |t: BufferId| scop.private(t).map_or(&[][..], |p| &p.layout);
        if let Some(t) = gathered.filter(|t| !layout(*t).is_empty()) {
            return Err(Error::Unsupported(format!("a gather from `{}`, which is packed", scop.tensor(t).name)));
        }
        for (tensor, index) in touched {
            let placed = site.placed.iter().rev().find(|p| p.tensor == tensor && !p.sums);
            let element: Vec<Affine> = index.iter().map(|i| i.compose(value)).collect();
            let (buffer, element, digits) = match (placed, self.tensors[tensor.0 as usize]) {
                (Some(p), _) => {
                    let element = element.iter().zip(&p.origin).map(|(i, o)| i.add_scaled(o, -1)).collect();
                    (p.buffer, element, layout(tensor).to_vec())
                }
                (None, Some(buffer)) => {
                    let fold = self.folds.iter().find(|f| f.tensor == tensor);
                    (buffer, element, fold.map_or(vec![], |f| f.layout.clone()))
                }
                (None, None) => continue,
            };
            // what is divided for memory that is placed here is so for all statements here, for the whole of a tensor it is in other loops too
            if digits.is_empty() || placed.is_some() && self.laid.iter().any(|l| l.0 == buffer && l.1 == element) {
                continue;
            }
            let subscripts = digits.iter().map(|d| self.digit(d, &element, &mut lets)).collect();
            self.laid.push((buffer, element, subscripts));
        }
        Ok(lets)
    }

    fn digit(&mut self, d: &Digit, index: &[Affine], lets: &mut Vec<Stmt>) -> Affine {
        let whole = d.form.compose(index);
        let quotient = self.quotient(whole, d.divisor, lets);
        match d.modulo {
            None => quotient,
            Some(m) => {
                let more = self.quotient(quotient.clone(), m, lets);
                quotient.add_scaled(&more, -m)
            }
        }
    }

    /// ⌊a / by⌋: an affine form where the rest is known to be a digit.
    fn quotient(&mut self, a: Affine, by: i64, lets: &mut Vec<Stmt>) -> Affine {
        if by == 1 {
            return a;
        }
        let (mut whole, mut rest) =
            (Affine::constant(a.constant.div_euclid(by)), Affine::constant(a.constant.rem_euclid(by)));
        for &(x, c) in &a.terms {
            match c % by {
                0 => whole = whole.plus(x, c / by),
                _ => rest = rest.plus(x, c),
            }
        }
        let (lo, hi) = rest.bounds(self.range());
        if lo >= 0 && hi < by {
            return whole;
        }
        let q = self.new_var("q", (lo.div_euclid(by), hi.div_euclid(by)));
        lets.push(Stmt::Let { var: q, value: rest, divisor: by });
        whole.plus(q, 1)
    }
}
