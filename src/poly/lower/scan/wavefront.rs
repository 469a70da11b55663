//! Wavefronts of two rows of tiles (Lamport 1974): one parallel loop with barriers.

use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::Affine;
use crate::poly::lower::condition;
use crate::poly::lower::loop_over;
use crate::poly::lower::state::{Lowering, Site, Subtree};
use crate::poly::sets::polyhedron::{gcd, minus, plus};
use crate::runtime::Result;

impl Lowering<'_> {
    /// The first two rows as one parallel loop in waves: `t = width·wave + u`, where wave is the sum of both rows and u a
    /// permutation of the values of the second, so that any division of u spreads the tiles of a wave over the threads.
    pub(super) fn waves(&mut self, tree: Subtree, site: &Site) -> Result<Vec<Stmt>> {
        let ((first, _), (low, high)) = (tree.rows[0].values(self.scop), tree.rows[1].values(self.scop));
        let width = high - low + 1;
        let waves = tree.rows[0].waves(&tree.rows[1], self.scop);
        let t = self.new_var("t", (0, waves * width - 1));
        let wave = self.new_var("wave", (0, waves - 1));
        let u = self.new_var("u", (0, width - 1));
        let stride = spread(width);
        let turn = self.new_var("turn", (0, stride - 1));
        let z = self.new_var(&tree.rows[1].name, (low, high));
        let mut inside = site.with(wave).with(z);
        inside.fix(&tree.rows[0], Affine::var(wave).plus(z, -1).offset(first + low));
        inside.fix(&tree.rows[1], Affine::var(z));
        let dims = inside.vars.len();
        for (v, (lo, hi)) in [(wave, (0, waves - 1)), (z, (low, high))] {
            let unit = inside.form(&Affine::var(v), dims);
            inside.context.inequalities.push(plus(&unit, -lo));
            inside.context.inequalities.push(minus(hi, &unit));
        }
        let mut shadows = vec![];
        for &id in tree.statements {
            let p = self.instances(id, &inside);
            if !self.isl.is_empty(&p)? {
                shadows.push(self.isl.project(&p, dims)?);
            }
        }
        if shadows.is_empty() {
            return Ok(vec![]);
        }
        let exists = self.isl.gist(&self.isl.hull(&shadows)?, &inside.context)?;
        let conditions = exists.as_inequalities().iter().map(|f| inside.affine(f)).collect();
        inside.require(&exists);
        let body = self.rows(tree.after(2), &inside)?;
        let permuted = Affine::constant(0).plus(u, stride);
        let mut all = vec![
            Stmt::Let { var: wave, value: Affine::var(t), divisor: width },
            Stmt::Let { var: u, value: Affine::var(t).plus(wave, -width), divisor: 1 },
            Stmt::Let { var: turn, value: permuted.clone(), divisor: width },
            Stmt::Let { var: z, value: permuted.plus(turn, -width).offset(low), divisor: 1 },
        ];
        all.extend(condition(conditions, body));
        Ok(vec![loop_over(t, waves * width, LoopKind::Waves { width }, all)])
    }
}

/// A stride that visits all of `0..n`, wide steps apart, when its multiples are taken modulo n: near n over the golden
/// ratio.
fn spread(n: i64) -> i64 {
    let near = (n as f64 * 0.618).round() as i64;
    (near.max(1)..).find(|&s| gcd(&[s, n]) == 1).expect("a prime beyond n")
}
