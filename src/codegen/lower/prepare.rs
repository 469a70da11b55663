//! LoopNest to LoopNest, with the target's vectors in mind: which loops are expanded and in which lanes.

use crate::codegen::Target;
use crate::codegen::expr::{Expr, Var};
use crate::codegen::interval::Facts;
use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::codegen::lower::value::{buffer_width, widest};
use std::collections::HashMap;

/// A nest that the selection takes as it is.
pub struct Prepared {
    pub nest: LoopNest,
    /// Bytes of the widest lane type at work in each vector loop.
    pub widths: HashMap<Var, usize>,
}

pub fn prepare(nest: &LoopNest, _target: &Target) -> Prepared {
    let mut widths = HashMap::new();
    vector_widths(nest, &nest.body, &mut Facts::new(nest.vars.len()), &mut widths);
    Prepared { nest: nest.clone(), widths }
}

/// Finds the widest lane type in each vector loop; returns that of `body`.
fn vector_widths(nest: &LoopNest, body: &[Stmt], facts: &mut Facts, widths: &mut HashMap<Var, usize>) -> usize {
    let mut most = 4;
    for stmt in body {
        most = most.max(match stmt {
            Stmt::Loop { var, lower, upper, step, kind, body } => {
                let mut inside = facts.clone();
                inside.enter_loop(*var, lower, upper, *step);
                let width = vector_widths(nest, body, &mut inside, widths);
                if *kind == LoopKind::Vector {
                    widths.insert(*var, width);
                }
                width
            }
            Stmt::If { conditions, body } => {
                let mut inside = facts.clone();
                conditions.iter().for_each(|c| inside.assume(c.clone()));
                vector_widths(nest, body, &mut inside, widths)
            }
            Stmt::Let { var, value, divisor } => {
                facts.bind(*var, value, *divisor);
                4
            }
            Stmt::Store { buffer, index, value, .. } => {
                let subscripts = index.iter().filter_map(|i| match i {
                    crate::codegen::expr::Index::Value(e) => Some(widest_of(nest, facts, e)),
                    crate::codegen::expr::Index::Affine(_) => None,
                });
                subscripts.max().unwrap_or(4).max(widest_of(nest, facts, value)).max(buffer_width(nest, *buffer))
            }
        });
    }
    most
}

fn widest_of(nest: &LoopNest, facts: &Facts, e: &Expr) -> usize {
    widest(nest, facts, e)
}
