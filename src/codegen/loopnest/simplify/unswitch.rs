//! Loop unswitching (Allen and Kennedy, Optimizing Compilers for Modern Architectures): a condition that does not change in an innermost loop
//! stands outside of two copies of it, in which it is known. What one copy keeps in registers from one iteration to the next would pass through
//! memory where the condition may hold or not.

use super::conditions::{everywhere, is_straight, of_parts};
use super::split::expanded_size;
use super::{Env, Simplifier, resolve};
use crate::codegen::loopnest::simplify::bounds::OldLoop;
use crate::codegen::loopnest::{LoopKind, Stmt};
use crate::expr::Affine;
use crate::expr::interval::Facts;

impl Simplifier<'_> {
    /// The loop; two of them where a condition of a part of its body is the same in all iterations, as far as the budget of copies lasts.
    pub(super) fn unswitched(&mut self, l: &OldLoop, env: &mut Env, facts: &Facts) -> Vec<Stmt> {
        let size = expanded_size(l.body);
        let straight = l.kind == LoopKind::Serial && is_straight(l.body) && size <= self.budget;
        let Some(condition) = straight.then(|| invariant(l, env, facts)).flatten() else {
            return self.loop_parts(l, env, facts);
        };
        self.budget -= size;
        let otherwise = condition.scale(-1).offset(-1);
        let mut out = vec![];
        for condition in [condition, otherwise] {
            let mut inside = facts.clone();
            inside.assume(condition.clone());
            if inside.is_empty() {
                continue;
            }
            let body = self.unswitched(l, &mut env.clone(), &inside);
            if !body.is_empty() {
                out.push(Stmt::If { conditions: vec![condition], body });
            }
        }
        out
    }
}

/// The first condition of a part of the body, or in its values, that is open, and that no iteration changes.
fn invariant(l: &OldLoop, env: &Env, facts: &Facts) -> Option<Affine> {
    let mut parts = vec![];
    of_parts(l.body, &mut parts);
    let everywhere = everywhere(l.body);
    let open = |c: &Affine| !c.uses(l.var) && !everywhere.contains(c) && facts.decide(&resolve(env, c)).is_none();
    parts.into_iter().find(open).map(|c| resolve(env, &c))
}
