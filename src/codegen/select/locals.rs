//! Local buffers that registers cannot hold.

use crate::codegen::Target;
use crate::codegen::loopnest::{BufferKind, LoopKind, LoopNest, Stmt};
use crate::codegen::select::value;
use crate::expr::{Affine, Var};
use crate::expr::{BufferId, Index};
use crate::runtime::DType;
use rustc_hash::FxHashSet;

/// The local buffers whose elements are not known at compile time, or are more than the registers hold.
pub(super) fn needs_memory(nest: &LoopNest, target: &Target, body: &[Stmt]) -> Vec<BufferId> {
    let mut in_memory = FxHashSet::default();
    let (mut expanded, mut vector) = (FxHashSet::default(), FxHashSet::default());
    visit(body, &mut expanded, &mut vector, &mut |buffer, index, expanded, vector| {
        let b = nest.buffer(buffer);
        if b.kind != BufferKind::Local {
            return;
        }
        let mut linear = Affine::constant(0);
        let mut in_registers = b.dtype != DType::Bool;
        for (i, stride) in index.iter().zip(&b.strides) {
            match i {
                Index::Affine(a) => linear = linear.add_scaled(a, *stride),
                Index::Value(_) => in_registers = false,
            }
        }
        in_registers &= linear.terms.iter().all(|t| expanded.contains(&t.0));
        let lanes = target.vector_bytes / value::lane_of(b.dtype).map_or(4, |l| l.bytes());
        let is_vector = linear.terms.iter().any(|t| vector.contains(&t.0));
        let size = b.span() as usize;
        let vectors = if is_vector { size.div_ceil(lanes) } else { size };
        if !in_registers || vectors > target.vector_registers {
            in_memory.insert(buffer);
        }
    });
    let mut in_memory: Vec<BufferId> = in_memory.into_iter().collect();
    in_memory.sort();
    in_memory
}

pub(super) type Visit<'a> = dyn FnMut(BufferId, &[Index], &FxHashSet<Var>, &FxHashSet<Var>) + 'a;

/// Calls `f` on each access in `body`, with the variables that are constants once loops are expanded.
pub(super) fn visit(body: &[Stmt], expanded: &mut FxHashSet<Var>, vector: &mut FxHashSet<Var>, f: &mut Visit) {
    for stmt in body {
        match stmt {
            Stmt::Loop { var, kind, body, .. } => {
                if matches!(kind, LoopKind::Unroll | LoopKind::Vector) {
                    expanded.insert(*var);
                }
                if *kind == LoopKind::Vector {
                    vector.insert(*var);
                }
                visit(body, expanded, vector, f);
            }
            Stmt::If { body, .. } => visit(body, expanded, vector, f),
            Stmt::Let { var, value, .. } => {
                if value.terms.iter().all(|t| expanded.contains(&t.0)) {
                    expanded.insert(*var);
                }
            }
            Stmt::Read { value, .. } => value.visit_accesses(&mut |a| f(a.buffer, &a.index, expanded, vector)),
            Stmt::Store { buffer, index, .. } => {
                f(*buffer, index, expanded, vector);
                for e in stmt.expressions() {
                    e.visit_accesses(&mut |a| f(a.buffer, &a.index, expanded, vector));
                }
            }
        }
    }
}
