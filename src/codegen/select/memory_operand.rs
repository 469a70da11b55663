//! Loads that arithmetic alone reads: operands in memory.
//!
//! In and out: a flat function for x86-64. A load that one sum, product or fused product alone reads next becomes its operand, on
//! AVX-512 a broadcast as well. This saves an instruction and a register. In register blocks of one vector of
//! columns each fused product has a broadcast of its own, and both instructions fill half of the front end: a core alone hides
//! that (178 GFLOP/s either way), one whose other hardware thread works does not (107 with broadcasts apart, 171 with operands in
//! memory).
//!
//! A broadcast that several fused products read stays in a register, since each of them would load it again. On Zen 5 a block of 14
//! rows and two vectors of columns takes 2.05 fused products in a cycle so, and 1.87 with two operands in memory for each
//! broadcast; 9 rows and three vectors 2.05 and 1.80, 16 rows and one vector 1.89 either way, whether the other core works or not.
//! (Where the other hardware thread of a core worked, two vectors of columns once took 150 GFLOP/s so, and 165 with operands in memory.)
//! A broadcast of 16 bits is another matter: in a register of its own it takes the port of permutations beside the load, which is one of
//! the two that multiply, so that all tensor instructions that read it load it again, as far as that does not make loads the limit of
//! a loop: 28 products with operands in memory beside 2 loads take 15 cycles, and 14.5 with one of 14 broadcasts in a register.

use crate::codegen::Target;
use crate::codegen::regalloc::liveness::Liveness;
use crate::codegen::select::list_scheduling::{blocks, live_beside, shared_registers};
use crate::codegen::select::uses::{Uses, remove, uses};
use crate::codegen::target::Isa;
use crate::codegen::vcode::lanes::Widening;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Addr, Function, Gpr, Inst, VBinary, VType, Vreg};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;

/// A load whose register holds what an operand in memory would.
struct Load {
    dst: Vreg,
    ty: VType,
    addr: Addr,
    broadcast: bool,
}

/// Gives arithmetic its operands in memory.
pub fn fold(function: &mut Function, target: &Target) {
    if !matches!(target.isa, Isa::Avx2 | Isa::Avx512) {
        return;
    }
    let vectors = uses(function, Class::Vector);
    let runs = runs(function);
    let mut gprs = None;
    let mut folded = BTreeSet::new();
    fold_elements(function, target, &vectors, &runs, &mut folded);
    for index in 0..function.insts.len() {
        let Some(load) = load(&function.insts[index], target) else { continue };
        let Some(readers) = readers(&vectors, load.dst, index, &runs) else { continue };
        let [end] = readers[..] else { continue };
        let gprs = gprs.get_or_insert_with(|| uses(function, Class::Gpr));
        if !registers_of(&load.addr).all(|r| gprs.stays(r.index(), index, end)) {
            continue;
        }
        let Some(combined) = with_operand(&function.insts[end], &load) else { continue };
        function.insts[end] = combined;
        folded.insert(index);
    }
    remove(function, &folded);
}

/// The registers of an address.
fn registers_of(addr: &Addr) -> impl Iterator<Item = Gpr> + use<> {
    addr.index.map(|i| i.0).into_iter().chain([addr.base])
}

/// Gives tensor instructions the broadcasts of 16 bits that they read as operands in memory.
fn fold_elements(
    function: &mut Function,
    target: &Target,
    vectors: &Uses,
    runs: &[usize],
    folded: &mut BTreeSet<usize>,
) {
    if target.isa != Isa::Avx512 {
        return;
    }
    let mut gprs = None;
    let mut candidates = vec![];
    for index in 0..function.insts.len() {
        let Some((addr, elements)) = elements(function, vectors, index, runs) else { continue };
        let gprs = gprs.get_or_insert_with(|| uses(function, Class::Gpr));
        let end = elements.iter().map(|e| e.0).max().unwrap_or(index);
        if registers_of(&addr).all(|r| gprs.stays(r.index(), index, end)) {
            candidates.push((index, elements));
        }
    }
    if candidates.is_empty() {
        return;
    }
    let readers: Vec<(usize, usize)> = candidates.iter().map(|(index, elements)| (*index, elements.len())).collect();
    let kept = kept_in_registers(function, target, &readers);
    for (index, elements) in candidates.into_iter().filter(|(index, _)| !kept.contains(index)) {
        elements.into_iter().for_each(|(reader, inst)| function.insts[reader] = inst);
        folded.insert(index);
    }
}

/// The broadcasts of 16 bits, given with the number of their readers, that stay in registers: those by which the loads of an innermost
/// loop take less time than its arithmetic, where registers last.
fn kept_in_registers(function: &Function, target: &Target, broadcasts: &[(usize, usize)]) -> BTreeSet<usize> {
    let machine = &target.machine;
    let mut kept = BTreeSet::new();
    let Ok(live) = Liveness::compute(function) else { return kept };
    for block in blocks(&function.insts) {
        let inside: Vec<&(usize, usize)> = broadcasts.iter().filter(|(index, _)| block.contains(index)).collect();
        if inside.is_empty() || live_at_most(function, &live, &block) > target.vector_registers {
            continue;
        }
        let count = |kind: fn(&Inst) -> bool| function.insts[block.clone()].iter().filter(|i| kind(i)).count();
        let again: usize = inside.iter().map(|(_, readers)| readers - 1).sum();
        let mut loads = count(reads_memory) + again;
        let mut arithmetic = count(|inst| inst.ty().is_some() && inst.lanes().is_none());
        let cycles = |loads: usize, arithmetic: usize| {
            (loads as f64 / machine.loads_per_cycle as f64).max(arithmetic as f64 / machine.fma_per_cycle as f64)
        };
        for &&(index, readers) in &inside {
            let (fewer, more) = (loads - (readers - 1), arithmetic + 1);
            if cycles(fewer, more) < cycles(loads, arithmetic) {
                (loads, arithmetic) = (fewer, more);
                kept.insert(index);
            }
        }
    }
    kept
}

fn reads_memory(inst: &Inst) -> bool {
    let operand = matches!(inst, Inst::VFmaMemory { .. } | Inst::VBinaryMemory { .. } | Inst::VTensorMemory { .. });
    operand || inst.lanes().is_some() && !inst.writes_memory()
}

/// Vector registers that are live at once in a block of an innermost loop.
fn live_at_most(function: &Function, live: &Liveness, block: &Range<usize>) -> usize {
    let shared = shared_registers(&function.insts, block);
    let mut lives: FxHashMap<u32, Range<usize>> = FxHashMap::default();
    for index in block.clone() {
        function.insts[index].registers(|class, _, r| {
            if class == Class::Vector && !shared[&(class, r)] {
                lives.entry(r).or_insert(index..index).end = index;
            }
        });
    }
    let throughout = shared.iter().filter(|((class, _), shared)| *class == Class::Vector && **shared).count();
    let most = block.clone().map(|index| lives.values().filter(|l| l.contains(&index)).count()).max();
    live_beside(live, block, &shared) + throughout + most.unwrap_or(0)
}

/// The tensor instructions that read a broadcast of 16 bits, where these are all that read it, each with the element in memory, and the
/// address of the element.
fn elements(function: &Function, vectors: &Uses, index: usize, runs: &[usize]) -> Option<(Addr, Vec<(usize, Inst)>)> {
    let Inst::VBroadcast { dst, ty, addr, .. } = function.insts[index] else { return None };
    if ty.lane.bytes() != 2 || function.insts[index].lanes()?.widening() != Some(Widening::Same) {
        return None;
    }
    let in_memory = |&reader: &usize| match function.insts[reader] {
        Inst::VTensor { acc, row, ty, a, b, .. } if acc != dst && (a == dst) != (b == dst) => {
            let n = function.row(row).ok()?.memory_operand()?;
            let other = if a == dst { b } else { a };
            (n == if a == dst { 1 } else { 2 }).then_some((reader, Inst::VTensorMemory { acc, row, ty, other, addr }))
        }
        _ => None,
    };
    let readers = readers(vectors, dst, index, runs)?;
    Some((addr, readers.iter().map(in_memory).collect::<Option<_>>()?))
}

/// For each instruction, the number of its run: within one no loop or conditional begins or ends and no memory is written.
pub fn runs(function: &Function) -> Vec<usize> {
    let ends = |inst: &Inst| usize::from(inst.writes_memory() || inst.is_control());
    let run = |n: &mut usize, inst: &Inst| {
        *n += ends(inst);
        Some(*n)
    };
    function.insts.iter().scan(0, run).collect()
}

/// The instructions that read what is written at `index`; `None` where one of them is in another run, or the value may be
/// another one's.
fn readers(uses: &Uses, loaded: Vreg, index: usize, runs: &[usize]) -> Option<Vec<usize>> {
    let (read, writes) = (uses.read(loaded.index()), uses.written(loaded.index()));
    let written = |read: &usize| writes.iter().rev().find(|&w| w < read);
    let apart = |read: &usize| written(read).is_none_or(|&w| runs[w] != runs[*read]);
    if read.iter().any(apart) {
        return None;
    }
    let readers: Vec<usize> = read.iter().copied().filter(|read| written(read) == Some(&index)).collect();
    (!readers.is_empty()).then_some(readers)
}

/// The load, if its register holds an operand in memory.
fn load(inst: &Inst, target: &Target) -> Option<Load> {
    let lanes = inst.lanes()?;
    if !lanes.ty.lane.is_float() || lanes.widening() != Some(Widening::Same) {
        return None;
    }
    match *inst {
        Inst::VLoad { dst, ty, addr, part: None, .. } => {
            let whole = matches!(ty.bytes(), 16 | 32 | 64);
            whole.then_some(Load { dst, ty, addr, broadcast: false })
        }
        Inst::VBroadcast { dst, ty, addr, .. } => {
            (target.isa == Isa::Avx512).then_some(Load { dst, ty, addr, broadcast: true })
        }
        _ => None,
    }
}

/// The instruction with the load as its operand; `None` where it has no such form.
fn with_operand(inst: &Inst, load: &Load) -> Option<Inst> {
    let &Load { dst: loaded, broadcast, addr, .. } = load;
    match *inst {
        Inst::VFma { acc, negate, ty, a, b } if ty == load.ty && acc != loaded && (a == loaded) != (b == loaded) => {
            let a = if a == loaded { b } else { a };
            Some(Inst::VFmaMemory { acc, negate, ty, a, broadcast, addr })
        }
        Inst::VBinary { dst, op, ty, a, b } if ty == load.ty && (a == loaded) != (b == loaded) => {
            let commutes = matches!(op, VBinary::Add | VBinary::Mul);
            let ordered = matches!(op, VBinary::Sub | VBinary::Div | VBinary::Min | VBinary::Max);
            let a = if a == loaded { b } else { a };
            (commutes || ordered && b == loaded).then_some(Inst::VBinaryMemory { dst, op, ty, a, broadcast, addr })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::text;

    fn folded(body: &str, target: &Target) -> String {
        let text = format!("function f (parallel 1, 4 gpr, 9 vector registers, 0 scratch bytes) {{\n{body}\n}}\n");
        let mut function = text::parse(&text).unwrap().remove(0);
        fold(&mut function, target);
        let text = function.to_string();
        assert_eq!(text::parse(&text).unwrap()[0].insts, function.insts, "{text}");
        text
    }

    const LOADED: &str = "r0 = argument 0\n v0 = load f32x8 f32 [r0]\n v1 = load f32x8 f32 [r0 + 32]\n";

    #[test]
    fn a_load_that_one_instruction_reads_is_its_operand() {
        for (inst, expected) in [
            ("v2 += f32x8 v0 * v1", "v2 += f32x8 v1 * [r0]"),
            ("v2 -= f32x8 v1 * v0", "v2 -= f32x8 v1 * [r0]"),
            ("v2 = mul f32x8 v0, v1", "v2 = mul f32x8 v1, [r0]"),
            ("v2 = sub f32x8 v0, v1", "v2 = sub f32x8 v0, [r0 + 32]"),
            ("v2 = min f32x8 v0, v1", "v2 = min f32x8 v0, [r0 + 32]"),
        ] {
            for target in [Target::avx2(), Target::avx512()] {
                let text = folded(&format!("{LOADED} {inst}"), &target);
                assert!(text.contains(expected) && text.matches("load").count() == 1, "{text}");
            }
            assert_eq!(folded(&format!("{LOADED} {inst}"), &Target::neon()).matches("load").count(), 2);
        }
    }

    #[test]
    fn a_broadcast_that_one_instruction_reads_is_its_operand_on_avx512() {
        let product = |n: usize| format!(" v{} += f32x16 v0 * v1\n", n + 2);
        let body = |products: usize| {
            let products: String = (0..products).map(product).collect();
            format!("r0 = argument 0\n v0 = broadcast f32x16 f32 [r0 + 4]\n{products}")
        };
        let one = folded(&body(1), &Target::avx512());
        assert!(one.contains("v1 * broadcast [r0 + 4]") && !one.contains("v0"), "{one}");
        // Two would load the element twice.
        assert!(folded(&body(2), &Target::avx512()).contains("v0 = broadcast"));
        assert!(folded(&body(1).replace("x16", "x8"), &Target::avx2()).contains("v0 = broadcast"));
    }

    #[test]
    fn a_load_that_may_read_something_else_stays() {
        let sum = "v2 = add f32x8 v0, v8";
        for body in [
            format!("store f32x8 f32 v8, [r1]\n {sum}"),
            format!("r0 = add r0, 4\n {sum}"),
            format!("loop r1 {{\n {sum}\n }}"),
            format!("{sum}\n v3 = add f32x8 v0, v7"),
            "v2 = add f32x8 v0, v0".to_string(),
            "v0 += f32x8 v0 * v8".to_string(),
            "v2 = and f32x8 v0, v8".to_string(),
        ] {
            let text = folded(&format!("r0 = argument 0\n v0 = load f32x8 f32 [r0]\n {body}"), &Target::avx512());
            assert!(text.contains("v0 = load"), "{text}");
        }
        let part = "r0 = argument 0\n v0 = load f32x8 f32 [r0] lanes 0..7\n v2 = add f32x8 v0, v8";
        assert!(folded(part, &Target::avx512()).contains("v0 = load"));
        let around = "r0 = argument 0\n loop r1 {\n v2 = add f32x8 v0, v8\n v0 = load f32x8 f32 [r0]\n }";
        assert!(folded(around, &Target::avx512()).contains("v0 = load"));
    }

    /// The innermost loop of a product of `rows` by 64 columns with sums in f16: broadcasts, operands in memory.
    fn operands_of_halves(rows: usize) -> (usize, usize) {
        let text = format!(
            "kernel p {{ A: f16[{rows}][128] argument 0; B: f16[128][64] argument 1; S: f16[{rows}][64] argument 2 written;
             for k in 0..128 {{ unroll m in 0..{rows} {{ vector n in 0..64 {{
               instruction vfmadd231ph q in 0..1 {{ S[m][n] add = (A[m][k + q] * B[k + q][n]); }} }} }} }} }}"
        );
        let rows = crate::language::instruction::built_in().unwrap();
        let target = Target::by_name("x86-64-avx512-vnni+avx512fp16").unwrap().with_instructions(rows);
        let nest = crate::codegen::loopnest::parse::nest(&text).unwrap();
        let functions = crate::codegen::select::lower(&nest, &target).unwrap();
        let count = |kind: fn(&Inst) -> bool| functions.iter().flat_map(|f| &f.insts).filter(|i| kind(i)).count();
        let broadcast = count(|i| matches!(i, Inst::VBroadcast { .. }));
        (broadcast, count(|i| matches!(i, Inst::VTensorMemory { .. })))
    }

    #[test]
    fn broadcasts_of_halves_share_the_ports_of_loads_and_of_arithmetic() {
        // 2 loads of columns: 28 products take 14 cycles and 30 loads 15, 27 products and a broadcast as many as 29 loads.
        assert_eq!(operands_of_halves(14), (1, 26));
        assert_eq!(operands_of_halves(3), (1, 4));
        // 15 rows have 30 sums in registers, and 2 for the columns.
        assert_eq!(operands_of_halves(15), (0, 30));
    }
}
