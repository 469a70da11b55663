//! LoopNest to VCode: vectors, unrolling, registers for local buffers, addresses.
//!
//! Each top-level statement of the nest becomes a function. `prepare` decides on vectors and unrolling (`narrow` on integers of 8 and 16 bits, `turned_sums` on the direction of sums, `guarded_updates` and `reverse_if_conversion` on branches), `select`
//! expands statements to vector instructions over symbolic addresses, `hoist` moves invariants out of innermost loops,
//! `common_values` leaves out what stands there twice, `scalar_replacement` keeps what the next iterations load again in registers, `prefetch` asks for panels before they
//! are needed, `interleave` loads and stores interleaved elements as neighbours, `waves` moves out of the parallel loop what iterations of a wave share, `address` gives pointers registers and bumps them, and
//! `invariant_integers` writes what loops compute of integers before the loops in which it does not change. Of the flat function
//! `scaled_index` folds products of subscripts into addresses, `stored_bits` leaves out what stores drop, `single_lane` computes in
//! as few lanes as are used, `tree_height` puts the operands last that iterations wait for, `general_registers` keeps integers of one lane in general-purpose registers, `choose` joins a comparison with the selection that reads its mask (AVX-512), `memory_operand` gives
//! arithmetic operands in memory and `three_operands` fused products a result beside their operands (x86-64), and `list_scheduling` orders the instructions of innermost loops (AArch64).
//! The nest's meaning (`interpret.rs`) is kept, except that sums over vector lanes are taken in another (fixed) order
//! and that products in sums are fused; `literal` states what it assumes of the operands of literals.

pub mod access;
pub mod address;
mod backward;
mod builder;
mod choose;
pub mod columns;
mod common_values;
mod constant_copies;
pub mod constant_division;
pub mod conversion;
mod dead_code;
mod dead_stores;
pub mod division;
pub mod expansion_cost;
mod floor_division;
pub mod general_registers;
mod guarded_updates;
pub mod half_precision;
mod half_sums;
pub mod hoist;
pub mod instruction;
pub mod integer;
pub mod interleave;
mod invariant_integers;
pub mod known_range;
mod lane_segments;
mod lane_sums;
pub mod list_scheduling;
pub mod literal;
pub mod locals;
mod masked_stores;
pub mod math;
pub mod matrices;
pub mod memory_operand;
pub mod narrow;
mod overlapping;
pub mod pairs;
mod peeling;
pub mod point_loops;
pub mod prefetch;
pub mod prepare;
pub mod quotients;
mod recorded_subscripts;
pub mod register_pressure;
mod reverse_if_conversion;
pub mod scalar_expansion;
pub mod scalar_replacement;
pub mod scaled_index;
pub mod single_lane;
pub mod state;
pub mod statements;
pub mod stored_bits;
pub mod strip_mine;
mod subscript;
mod sums_in_place;
pub mod superword;
mod table;
pub mod three_operands;
pub mod tile_pass;
pub mod tiles;
pub mod tree;
mod tree_height;
mod turned_sums;
mod unswitching;
mod uses;
pub mod value;
mod vector_range;
mod waves;
pub mod wrapping;

use crate::codegen::Target;
use crate::codegen::instruction::TensorInstruction;
use crate::codegen::loopnest::{LoopKind, LoopNest, Stmt};
use crate::codegen::select::locals::needs_memory;
use crate::codegen::select::state::{LocalMode, Selector, Stop};
use crate::codegen::vcode::{Function, Inst, VType};
use crate::expr::BufferId;
use crate::expr::Var;
use crate::expr::interval::ceil_div;
use crate::runtime::{Error, Result};
use rustc_hash::FxHashMap;

/// One function for each phase of `nest`.
pub fn lower(nest: &LoopNest, target: &Target) -> Result<Vec<Function>> {
    crate::codegen::loopnest::verify::verify(nest)?;
    let prepared = prepare::prepare(nest, target);
    let nest = &prepared.nest;
    let phases = nest.body.iter().enumerate();
    phases.map(|(i, stmt)| lower_phase(nest, target, &prepared.widths, stmt, format!("{}.{i}", nest.name))).collect()
}

fn lower_phase(
    nest: &LoopNest,
    target: &Target,
    widths: &FxHashMap<Var, usize>,
    stmt: &Stmt,
    name: String,
) -> Result<Function> {
    let mut locals = vec![LocalMode::Registers { blend: false }; nest.buffers.len()];
    let mut scratch = 0i64;
    let mut to_memory = |locals: &mut Vec<LocalMode>, b: BufferId| -> Result<u64> {
        let buffer = nest.buffer(b);
        locals[b.0 as usize] = LocalMode::Memory { offset: scratch };
        let bytes = buffer.bytes().and_then(|n| Some(n.checked_add(63)? & !63));
        scratch = bytes.map_or(Err(too_large(&nest.name)), |n| grown(scratch, n))?;
        Ok(scratch as u64)
    };
    let mut bytes = 0;
    for b in needs_memory(nest, target, std::slice::from_ref(stmt)) {
        bytes = to_memory(&mut locals, b)?;
    }
    let parallel = match stmt {
        Stmt::Loop { lower, upper, step, kind, .. } if kind.is_parallel() => {
            let first = lower.iter().map(|b| ceil_div(b.affine.constant, b.divisor)).max().unwrap_or(0);
            let end = upper.iter().map(|b| b.affine.constant.div_euclid(b.divisor)).min().unwrap_or(0);
            Some(ceil_div(end - first, *step).max(0))
        }
        _ => None,
    };
    let wave = match stmt {
        Stmt::Loop { kind: LoopKind::Waves { width }, .. } => Some(*width),
        _ => None,
    };
    // each retry settles one buffer, twice at most
    for _ in 0..=2 * nest.buffers.len() {
        let mut selector = Selector::new(nest, target, widths, &locals);
        selector.tree.scratch_bytes = bytes;
        match selector.phase(stmt) {
            Ok(tree) => {
                let tree = scalar_replacement::replace_scalars(common_values::share(tree), target);
                let tree = superword::join(dead_stores::remove(tree), target);
                let tree = interleave::interleave(tree, target);
                let tree = waves::hoist(prefetch::prefetch_panels(tree, target), wave);
                let function = address::flatten(tree, name, parallel)?;
                let mut function = Function { wave, ..function };
                let named = |row: &&TensorInstruction| {
                    function.insts.iter().any(|i| {
                        matches!(i, Inst::VTensor { row: name, .. } | Inst::TileTensor { row: name, .. } if *name == row.name)
                    })
                };
                function.instructions = target.instructions.iter().filter(named).cloned().collect();
                tiles::finish(&mut function);
                scaled_index::fold(&mut function);
                stored_bits::store_low_bits(&mut function);
                single_lane::narrow(&mut function);
                dead_code::remove_unread(&mut function);
                tree_height::reduce(&mut function, target);
                general_registers::move_integers(&mut function, target);
                choose::join(&mut function, target);
                quotients::divide(&mut function, target);
                memory_operand::fold(&mut function, target);
                three_operands::join(&mut function, target);
                constant_copies::load(&mut function, target);
                list_scheduling::schedule_loops(&mut function, target);
                return Ok(function);
            }
            Err(Stop::Failed(e)) => return Err(e),
            Err(Stop::Retry(b, LocalMode::Memory { .. })) => bytes = to_memory(&mut locals, b)?,
            Err(Stop::Retry(b, mode)) => locals[b.0 as usize] = mode,
        }
    }
    Err(Error::Internal(format!("{}: local buffers find no place", nest.name)))
}

/// `scratch` and `bytes` more, as far as memory can be addressed.
fn grown(scratch: i64, bytes: i64) -> Result<i64> {
    scratch.checked_add(bytes).ok_or_else(|| too_large("a kernel"))
}

fn too_large(kernel: &str) -> Error {
    Error::Limit(format!("the scratch memory of {kernel} is larger than the address space"))
}

/// Returns true if some instruction loads or stores several lanes.
pub fn has_vectors(f: &Function) -> bool {
    f.insts.iter().any(|inst| match inst {
        Inst::VLoad { ty, .. }
        | Inst::VLoadWhere { ty, .. }
        | Inst::VStoreWhere { ty, .. }
        | Inst::VStore { ty, .. }
        | Inst::VGather { ty, .. }
        | Inst::VScatter { ty, .. }
        | Inst::VStoreInterleaved { ty, .. }
        | Inst::VFmaMemory { ty, .. }
        | Inst::VBinaryMemory { ty, .. } => ty.lanes > 1,
        _ => false,
    })
}

/// Returns true if every innermost loop works on vectors: none stores only single elements. The outermost loop of a
/// phase that runs once does not count as a loop.
pub fn vectorized(f: &Function) -> bool {
    // for each open loop: single stores, vector accesses, loops inside
    let mut open: Vec<(bool, bool, bool)> = vec![];
    let once = f.parallel.is_none_or(|n| n <= 1);
    for inst in &f.insts {
        match inst {
            Inst::LoopStart { .. } => {
                if let Some(outer) = open.last_mut() {
                    outer.2 = true;
                }
                open.push((false, false, false));
            }
            Inst::LoopEnd => {
                if let Some((true, false, false)) = open.pop()
                    && !(once && open.is_empty())
                {
                    return false;
                }
            }
            Inst::StoreInt { .. } | Inst::VStore { ty: VType { lanes: 1, .. }, .. } => {
                if let Some(l) = open.last_mut() {
                    l.0 = true;
                }
            }
            Inst::VStore { .. } | Inst::VStoreWhere { .. } => {
                if let Some(l) = open.last_mut() {
                    l.1 = true;
                }
            }
            Inst::VLoad { ty, .. }
            | Inst::VLoadWhere { ty, .. }
            | Inst::VGather { ty, .. }
            | Inst::VScatter { ty, .. }
            | Inst::VStoreInterleaved { ty, .. }
            | Inst::VFmaMemory { ty, .. }
            | Inst::VBinaryMemory { ty, .. }
                if ty.lanes > 1 =>
            {
                if let Some(l) = open.last_mut() {
                    l.1 = true;
                }
            }
            _ => {}
        }
    }
    true
}

#[cfg(test)]
pub(crate) mod tests;
