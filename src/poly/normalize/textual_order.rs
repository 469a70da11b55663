//! Textual order: the loops of a tensor expression as a person would write them. Schedules by hand start from it; it
//! prints as C.
//!
//! In: a tensor expression. Out: a Scop with the same tensors. Each definition is a nest of its own; a reduction starts
//! from its neutral element inside of the loops that name the element: `for m for n { C = 0; for k C += … }`.

use crate::expr::{Affine, Var};
use crate::expr::{Expr, Scalar};
use crate::poly::schedule::{Band, Node, Row, Schedule};
use crate::poly::scop::Scop;
use crate::poly::statement::{Iterator, Program, Statement, StatementId};
use crate::runtime::Result;

/// The loops of a tensor expression. The initialisation of `C` is called `C_init`.
pub fn in_loops(name: &str, program: &Program) -> Result<Scop> {
    let mut scop = Scop { name: name.into(), tensors: program.tensors.clone(), ..Scop::default() };
    let mut nests = vec![];
    for d in &program.definitions {
        let dtype = program.tensors[d.target.0 as usize].dtype;
        let name = program.tensors[d.target.0 as usize].name.clone();
        let mut add = |name: String, iterators: &[Iterator], reduce, domain: &[Affine], body| {
            scop.statements.push(Statement {
                name,
                iterators: iterators.to_vec(),
                domain: domain.to_vec(),
                target: d.target,
                write: d.write.clone(),
                computed: d.computed.clone(),
                reduce,
                body,
            });
            StatementId(scop.statements.len() as u32 - 1)
        };
        let outer = &d.iterators[..d.outer];
        let mut children = vec![];
        if let Some(op) = d.reduce.filter(|_| !d.is_scatter()) {
            let start = add(format!("{name}_init"), outer, None, &[], Expr::Const(Scalar::neutral(op, dtype)?));
            children.push((vec![start], Node::Leaf));
        }
        let id = add(name, &d.iterators, d.reduce, &d.conditions, d.body.clone());
        children.push((vec![id], nest(&d.iterators, d.outer..d.iterators.len(), &[id], Node::Leaf)));
        let ids: Vec<StatementId> = children.iter().map(|c| c.0[0]).collect();
        let inner = if children.len() == 1 { children.remove(0).1 } else { Node::Sequence(children) };
        nests.push((ids.clone(), nest(&d.iterators, 0..d.outer, &ids, inner)));
    }
    scop.order = Schedule { root: if nests.len() == 1 { nests.remove(0).1 } else { Node::Sequence(nests) } };
    Ok(scop)
}

/// Loops over some of the iterators around `inner`.
fn nest(iterators: &[Iterator], range: std::ops::Range<usize>, ids: &[StatementId], inner: Node) -> Node {
    let phi = |v: usize| ids.iter().map(|&id| (id, Affine::var(Var(v as u32)))).collect();
    let row = |v: usize| Row::serial(&*iterators[v].name, phi(v));
    let rows: Vec<Row> = range.map(row).collect();
    if rows.is_empty() { inner } else { Node::Band(Band { rows, permutable: false }, Box::new(inner)) }
}
