//! Serial outermost rows around parallel rows: one parallel loop with barriers.

use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::{Affine, Var};
use crate::poly::lower::state::{Lowering, Site, Subtree};
use crate::poly::lower::{condition, loop_over};
use crate::poly::schedule::{Band, Node, Row, SchedulePart};
use crate::poly::sets::polyhedron::Polyhedron;
use crate::poly::statement::StatementId;
use crate::runtime::{Error, Result};

impl Lowering<'_> {
    /// The parts of each step of a serial row, one after the other, as one parallel loop in waves:
    /// `t = width·(parts·step + part) + u`, where u counts the iterations of a part that is divided over threads. The others
    /// run where u is 0.
    pub(in crate::poly::lower) fn steps(&mut self, row: &Row, parts: &[SchedulePart]) -> Result<Vec<Stmt>> {
        if !self.scop.private_to(parts) {
            return Err(Error::refused(format!("memory that lasts for a step of `{}` belongs to no thread", row.name)));
        }
        let groups: Vec<&[SchedulePart]> =
            parts.chunk_by(|a, b| a.parallel().is_none() && b.parallel().is_none()).collect();
        let count = groups.len() as i64;
        let width = parts
            .iter()
            .filter_map(SchedulePart::parallel)
            .map(|r| r.values(self.scop))
            .map(|(lo, hi)| hi - lo + 1)
            .max();
        let (width, (low, high)) = (width.unwrap_or(1), row.values(self.scop));
        let waves = (high - low + 1) * count;
        let t = self.new_var("t", (0, waves * width - 1));
        let wave = self.new_var("wave", (0, waves - 1));
        let u = self.new_var("u", (0, width - 1));
        let step = self.new_var("step", (0, high - low));
        let part = self.new_var("part", (0, count - 1));
        let outer = self.new_var(&row.name, (low, high));
        let mut all = vec![
            Stmt::Let { var: wave, value: Affine::var(t), divisor: width },
            Stmt::Let { var: u, value: Affine::var(t).plus(wave, -width), divisor: 1 },
            Stmt::Let { var: step, value: Affine::var(wave), divisor: count },
            Stmt::Let { var: part, value: Affine::var(wave).plus(step, -count), divisor: 1 },
            Stmt::Let { var: outer, value: Affine::var(step).offset(low), divisor: 1 },
        ];
        let mut site = Site::default().with(outer);
        site.fix(row, Affine::var(outer));
        limit(&mut site, outer, (low, high));
        let statements_of = |group: &[SchedulePart]| group.iter().flat_map(|p| p.statements.clone()).collect();
        let all_statements: Vec<Vec<StatementId>> = groups.iter().map(|g| statements_of(g)).collect();
        let site = self.place_for_step(&all_statements, &site)?.unwrap_or(site);
        for (k, group) in groups.into_iter().enumerate() {
            let mut here = match count {
                1 => vec![],
                _ => vec![Affine::var(part).offset(-(k as i64)), Affine::var(part).scale(-1).offset(k as i64)],
            };
            let body = match group {
                [one] if one.parallel().is_some() => self.divided_part(one, u, &site)?,
                _ => {
                    here.push(Affine::var(u).scale(-1));
                    let ids: Vec<StatementId> = statements_of(group);
                    let children = group.iter().map(|p| (p.statements.clone(), p.node.clone())).collect();
                    self.node(&Node::Sequence(children), &ids, &site)?
                }
            };
            all.extend(condition(here, body));
        }
        Ok(vec![loop_over(t, waves * width, LoopKind::Waves { width }, all)])
    }

    /// The iteration `u` of a part, full and partial tiles apart.
    fn divided_part(&mut self, part: &SchedulePart, u: Var, site: &Site) -> Result<Vec<Stmt>> {
        let Node::Band(Band { rows, .. }, child) = &part.node else { return Ok(vec![]) };
        let tree = Subtree { rows, child, statements: &part.statements };
        let (low, high) = rows[0].values(self.scop);
        let z = self.new_var(&rows[0].name, (low, high));
        let mut inside = site.with(z);
        inside.fix(&rows[0], Affine::var(z));
        limit(&mut inside, z, (low, high));
        let dims = inside.vars.len();
        let Some((shadows, hull)) = self.shadows(&part.statements, &inside)? else { return Ok(vec![]) };
        let exists = self.isl.gist(&hull, &inside.context)?;
        let conditions = exists
            .as_inequalities()
            .into_iter()
            .map(|f| inside.affine(&f))
            .chain([Affine::var(z).scale(-1).offset(high)]);
        let conditions: Vec<Affine> = conditions.collect();
        inside.require(&exists);
        let own = Polyhedron::universe(dims);
        let regions = self.regions(tree, &shadows, &inside, &own)?;
        let body = self.branches(tree.after(1), &regions, &inside)?;
        let value = Stmt::Let { var: z, value: Affine::var(u).offset(low), divisor: 1 };
        Ok([vec![value], condition(conditions, body)].concat())
    }
}

/// Adds the range of a variable in scope to the facts.
fn limit(site: &mut Site, v: Var, (low, high): (i64, i64)) {
    let unit = site.form(&Affine::var(v), site.vars.len());
    site.context.bound(&unit, low, high);
}
