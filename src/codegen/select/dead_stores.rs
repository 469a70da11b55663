//! Dead stores: what a later store overwrites before anything reads it is not stored.
//!
//! In and out: the tree of a phase, whose loads of earlier iterations are in registers already (`scalar_replacement`). An element
//! that each iteration of an unrolled loop updates is stored once, by the last of them.
//! Invariant: memory holds the same when a body ends, and whenever it is read.

use crate::codegen::select::tree::{Loop, Node, Pointer, Tree};
use crate::codegen::vcode::lanes::Lanes;
use crate::codegen::vcode::{Addr, Inst};

/// Removes dead stores.
pub fn remove(mut tree: Tree) -> Tree {
    remove_from(&mut tree.nodes, &tree.pointers);
    tree
}

fn remove_from(body: &mut Vec<Node>, pointers: &[Pointer]) {
    // what later stores write before it is read
    let mut overwritten: Vec<Lanes> = vec![];
    let mut dead = vec![];
    for (index, node) in body.iter_mut().enumerate().rev() {
        match node {
            Node::Inst(inst @ (Inst::VStore { .. } | Inst::VScatter { .. })) => match inst.lanes() {
                Some(lanes) if overwritten.iter().any(|later| is_same(later, &lanes)) => dead.push(index),
                lanes => overwritten.extend(lanes),
            },
            Node::Inst(inst) => overwritten.retain(|later| !inst.is_tile() && !may_read(inst, later, pointers)),
            Node::LoadInt { addr, .. } => overwritten.retain(|later| !shares_root(*addr, later, pointers)),
            Node::Inside { .. } => {
                overwritten.retain(|later| !node.records_in(pointers[later.addr.base.0 as usize].root));
            }
            Node::Loop(Loop { body, .. }) | Node::If { body, .. } => {
                overwritten.clear();
                remove_from(body, pointers);
            }
            Node::Splat { .. }
            | Node::Let { .. }
            | Node::Wrap { .. }
            | Node::Integer { .. }
            | Node::Choose { .. }
            | Node::FirstLane { .. } => {}
        }
    }
    dead.into_iter().for_each(|index| drop(body.remove(index)));
}

/// Returns true if two stores write the same bytes.
fn is_same(a: &Lanes, b: &Lanes) -> bool {
    (a.addr, a.mem, a.stride, a.range()) == (b.addr, b.mem, b.stride, b.range())
}

/// Returns true if an address is in the buffer of a store.
pub fn shares_root(addr: Addr, store: &Lanes, pointers: &[Pointer]) -> bool {
    pointers[addr.base.0 as usize].root == pointers[store.addr.base.0 as usize].root
}

/// Returns false for arithmetic on registers.
fn touches_memory(inst: &Inst) -> bool {
    !matches!(
        inst,
        Inst::VBinary { .. } | Inst::VUnary { .. } | Inst::VFma { .. } | Inst::VCopy { .. } | Inst::VConst { .. }
    )
}

/// Returns true if an instruction may read what a store writes.
pub fn may_read(inst: &Inst, store: &Lanes, pointers: &[Pointer]) -> bool {
    match *inst {
        Inst::VGatherIndex { base, .. } => shares_root(Addr { base, index: None, disp: 0 }, store, pointers),
        _ => match inst.lanes() {
            Some(lanes) => shares_root(lanes.addr, store, pointers) && !lanes.is_apart(store),
            None => touches_memory(inst) && inst.address().is_some_and(|addr| shares_root(addr, store, pointers)),
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::codegen::Target;
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::lower;
    use crate::codegen::select::tests::check;
    use crate::codegen::vcode::Inst;

    /// The stores to `A` that are left of a body that runs in an unrolled loop of three iterations.
    fn stores(body: &str) -> usize {
        let text = format!(
            "kernel p {{ A: f32[400] argument 0 written; B: f32[400] argument 1; J: i64[90] argument 2; K: f32[400] argument 3 written;
             parallel t in 0..2 {{ unroll u in 0..3 {{ vector v in 0..16 {{ {body} }} }} }} }}"
        );
        let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        check(&nest, 3);
        let functions = lower(&nest, &Target::avx512()).unwrap();
        let store = |i: &&Inst| matches!(i, Inst::VStore { .. } | Inst::VScatter { .. });
        functions.iter().flat_map(|f| &f.insts).filter(store).count()
    }

    #[test]
    fn an_element_that_each_iteration_updates_is_stored_once() {
        assert_eq!(stores("A[v + 16*t] = (A[v + 16*t] * B[v + 16*u]);"), 1);
        assert_eq!(stores("A[2*v + 32*t] = (A[2*v + 32*t] * B[v + 16*u]);"), 1);
        // others are read between, beside it
        assert_eq!(stores("A[2*v + 32*t] = (A[2*v + 32*t + 1] * B[v + 16*u]);"), 1);
        assert_eq!(stores("A[v + 16*t] = (A[v + 16*t + 100] * B[v + 16*u]);"), 1);
    }

    #[test]
    fn what_is_overwritten_in_part_is_stored() {
        let text = "kernel p { A: f32[40] argument 0 written; B: f32[40] argument 1;
             parallel t in 0..2 { vector v in 0..16 { A[v + 16*t] = B[v]; } vector w in 0..5 { A[w + 16*t] = B[w + 20]; } } }";
        check(&parse::nest(text).unwrap(), 3);
    }

    #[test]
    fn what_is_read_before_it_is_overwritten_is_stored() {
        assert_eq!(stores("A[v + 16*t] = (A[v + 16*t + 1] * B[v + 16*u]);"), 3);
        assert_eq!(stores("A[2*v + 32*t] = (A[2*v + 32*t + 2] * B[v + 16*u]);"), 3);
        // two halves each, beside subscripts of 64 bits
        assert_eq!(stores("A[v + 16*t] = (A[@J[v + u]] * B[v + 16*u]);"), 6);
        assert_eq!(stores("A[v + 16*t + u] = B[v + 16*u];"), 3);
    }
}
