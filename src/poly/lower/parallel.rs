//! The parallel loop of a phase: the leading parallel rows, fused into one loop variable.

use super::loop_over;
use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::Affine;
use crate::expr::interval::ceil_div;
use crate::poly::lower::state::{Lowering, State};
use crate::poly::schedule::{Band, Node, Row, RowKind};
use crate::poly::statement::StatementId;
use crate::runtime::Result;

impl Lowering<'_> {
    /// The phase of a band that starts with parallel rows. The last of them varies fastest in the parallel variable.
    pub(super) fn parallel(
        &mut self,
        band: &Band,
        child: &Node,
        statements: &[StatementId],
        state: &State,
    ) -> Result<Vec<Stmt>> {
        let count = band.rows.iter().take_while(|r| r.kind == RowKind::Parallel).count();
        let (rows, rest) = band.rows.split_at(count);
        // Steps of each row, a partial tile included. A row whose φ an outer one has tiled has the steps of a full tile.
        let mut inside = state.clone();
        let mut steps = vec![];
        for row in rows {
            let (class, next) = self.class(row, &inside)?;
            inside = next;
            let c = &mut inside.classes[class];
            steps.push(ceil_div(c.extent, row.tile));
            c.extent = c.extent.min(row.tile);
        }
        let total = steps.iter().product();
        let t = self.new_var("t", (0, total - 1));
        let mut body = vec![];
        let mut left = Affine::var(t);
        let mut value = vec![Affine::constant(0); rows.len()];
        for i in (0..rows.len()).rev() {
            let outer: i64 = steps[..i].iter().product();
            if steps[i] == 1 {
                continue;
            }
            if outer == 1 {
                value[i] = left.clone();
                break;
            }
            let quotient = self.new_var(&format!("t{i}"), (0, outer - 1));
            body.push(Stmt::Let { var: quotient, value: left.clone(), divisor: steps[i] });
            let v = self.new_var(&rows[i].name, (0, steps[i] - 1));
            body.push(Stmt::Let { var: v, value: left.plus(quotient, -steps[i]), divisor: 1 });
            value[i] = Affine::var(v);
            left = Affine::var(quotient);
        }
        body.extend(self.split(rows, &steps, &value, (rest, child, statements), state)?);
        Ok(vec![loop_over(t, total, LoopKind::Parallel, body)])
    }

    /// The rows, tree and statements `inside` for given values of the parallel rows, full and partial tiles apart.
    fn split(
        &mut self,
        rows: &[Row],
        steps: &[i64],
        value: &[Affine],
        inside: (&[Row], &Node, &[StatementId]),
        state: &State,
    ) -> Result<Vec<Stmt>> {
        let Some((row, inner)) = rows.split_first() else { return self.rows(inside.0, inside.1, inside.2, state) };
        let (class, mut state) = self.class(row, state)?;
        state.coincident &= row.coincident;
        let (base, extent) = (state.classes[class].base.clone(), state.classes[class].extent);
        let (full, left) = (extent / row.tile, extent % row.tile);
        let mut branch = |l: &mut Self, base: Affine, extent: i64| {
            state.classes[class].base = base;
            state.classes[class].extent = extent;
            l.split(inner, &steps[1..], &value[1..], inside, &state)
        };
        let here = full + i64::from(left > 0);
        // In a partial tile of an outer row there are fewer steps than the parallel loop makes.
        let surplus = here < steps[0];
        let v = &value[0];
        if here == 1 {
            let body = branch(self, base, extent.min(row.tile))?;
            let first = v.scale(-1);
            return Ok(if surplus { vec![Stmt::If { conditions: vec![first], body }] } else { body });
        }
        let at_tile = base.add_scaled(v, row.tile);
        if left == 0 && !surplus {
            return branch(self, at_tile, row.tile);
        }
        let var = v.terms[0].0;
        let whole = self.ranges[var.0 as usize];
        self.ranges[var.0 as usize] = (0, full - 1);
        let main = branch(self, at_tile, row.tile)?;
        let mut out = vec![Stmt::If { conditions: vec![v.scale(-1).offset(full - 1)], body: main }];
        if left > 0 {
            self.ranges[var.0 as usize] = (full, full);
            let partial = branch(self, base.offset(full * row.tile), left)?;
            let mut conditions = vec![v.clone().offset(-full)];
            if surplus {
                conditions.push(v.scale(-1).offset(full));
            }
            out.push(Stmt::If { conditions, body: partial });
        }
        self.ranges[var.0 as usize] = whole;
        Ok(out)
    }
}
