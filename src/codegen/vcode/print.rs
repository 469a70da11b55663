//! Text of VCode.

use crate::codegen::vcode::{Addr, Function, Inst, LaneRange, Operand, VType};
use std::fmt::Write;

impl std::fmt::Display for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&function(self))
    }
}

/// The text of a function, an instruction a line, indented by loops.
pub fn function(f: &Function) -> String {
    let mut out = String::new();
    let parallel = f.parallel.map_or("serial".to_string(), |n| format!("parallel {n}"));
    let _ = writeln!(
        out,
        "function {} ({parallel}, {} gpr, {} vector registers, {} scratch bytes) {{",
        f.name, f.gprs, f.vregs, f.scratch_bytes
    );
    let mut depth = 1;
    for i in &f.insts {
        if matches!(i, Inst::LoopEnd | Inst::IfEnd) {
            depth -= 1;
        }
        let _ = writeln!(out, "{}{}", "  ".repeat(depth), inst(i));
        if matches!(i, Inst::LoopStart { .. } | Inst::IfStart { .. }) {
            depth += 1;
        }
    }
    out.push_str("}\n");
    out
}

pub fn addr(a: &Addr) -> String {
    let mut out = format!("[r{}", a.base.0);
    if let Some((index, scale)) = a.index {
        let _ = write!(out, " + {scale}*r{}", index.0);
    }
    match a.disp {
        0 => {}
        d if d < 0 => {
            let _ = write!(out, " - {}", d.unsigned_abs());
        }
        d => {
            let _ = write!(out, " + {d}");
        }
    }
    out + "]"
}

pub fn operand(o: Operand) -> String {
    match o {
        Operand::Reg(r) => format!("r{}", r.0),
        Operand::Imm(i) => i.to_string(),
    }
}

pub fn ty(t: VType) -> String {
    format!("{}x{}", format!("{:?}", t.lane).to_lowercase(), t.lanes)
}

pub fn part(p: &Option<LaneRange>) -> String {
    p.map_or(String::new(), |p| format!(" lanes {}..{}", p.first, p.first + p.count))
}

/// One instruction as text.
pub fn inst(i: &Inst) -> String {
    let low = |op: &dyn std::fmt::Debug| format!("{op:?}").to_lowercase();
    match i {
        Inst::Imm { dst, value } => format!("r{} = {value}", dst.0),
        Inst::Copy { dst, src } => format!("r{} = r{}", dst.0, src.0),
        Inst::Int { op, dst, a, b } => format!("r{} = {} r{}, {}", dst.0, low(op), a.0, operand(*b)),
        Inst::LoadInt { dst, addr: a, mem } => format!("r{} = load {mem} {}", dst.0, addr(a)),
        Inst::Prefetch { addr: a } => format!("prefetch {}", addr(a)),
        Inst::Argument { dst, slot } => format!("r{} = argument {slot}", dst.0),
        Inst::Range { dst, which: 0 } => format!("r{} = first", dst.0),
        Inst::Range { dst, .. } => format!("r{} = last", dst.0),
        Inst::Scratch { dst } => format!("r{} = scratch", dst.0),
        Inst::LoopStart { count, at_least_once } => {
            format!("loop r{}{} {{", count.0, if *at_least_once { " (at least once)" } else { "" })
        }
        Inst::LoopEnd | Inst::IfEnd => "}".into(),
        Inst::IfStart { op, a, b } => format!("if {} r{}, {} {{", low(op), a.0, operand(*b)),
        Inst::VConst { dst, ty: t, bits } => format!("v{} = const {} #{bits:x}", dst.0, ty(*t)),
        Inst::VCopy { dst, src, ty: t } => format!("v{} = copy {} v{}", dst.0, ty(*t), src.0),
        Inst::VLoad { dst, ty: t, mem, addr: a, part: p } => {
            format!("v{} = load {} {mem} {}{}", dst.0, ty(*t), addr(a), part(p))
        }
        Inst::VStore { src, ty: t, mem, addr: a, part: p } => {
            format!("store {} {mem} {}, v{}{}", ty(*t), addr(a), src.0, part(p))
        }
        Inst::VBroadcast { dst, ty: t, mem, addr: a } => {
            format!("v{} = broadcast {} {mem} {}", dst.0, ty(*t), addr(a))
        }
        Inst::VGather { dst, ty: t, mem, addr: a, stride, part: p } => {
            format!("v{} = gather {} {mem} {} stride {stride}{}", dst.0, ty(*t), addr(a), part(p))
        }
        Inst::VScatter { src, ty: t, mem, addr: a, stride, part: p } => {
            format!("scatter {} {mem} {} stride {stride}, v{}{}", ty(*t), addr(a), src.0, part(p))
        }
        Inst::VGatherIndex { dst, ty: t, mem, base, index, index_lane, part: p } => {
            let lane = low(index_lane);
            format!("v{} = gather {} {mem} [r{} + v{} as {lane}]{}", dst.0, ty(*t), base.0, index.0, part(p))
        }
        Inst::VSplat { dst, ty: t, src } => format!("v{} = splat {} r{}", dst.0, ty(*t), src.0),
        Inst::VIota { dst, ty: t } => format!("v{} = iota {}", dst.0, ty(*t)),
        Inst::VUnary { op, dst, ty: t, a } => format!("v{} = {} {} v{}", dst.0, low(op), ty(*t), a.0),
        Inst::VBinary { op, dst, ty: t, a, b } => format!("v{} = {} {} v{}, v{}", dst.0, low(op), ty(*t), a.0, b.0),
        Inst::VShift { op, dst, ty: t, a, amount } => {
            format!("v{} = shift {} {} v{}, {amount}", dst.0, low(op), ty(*t), a.0)
        }
        Inst::VFma { acc, ty: t, a, b, negate } => {
            format!("v{} {}= {} v{} * v{}", acc.0, if *negate { "-" } else { "+" }, ty(*t), a.0, b.0)
        }
        Inst::VCompare { op, dst, ty: t, a, b } => format!("v{} = {} {} v{}, v{}", dst.0, low(op), ty(*t), a.0, b.0),
        Inst::VSelect { dst, ty: t, mask, a, b } => {
            format!("v{} = select {} v{}, v{}, v{}", dst.0, ty(*t), mask.0, a.0, b.0)
        }
        Inst::VConvert { dst, to, src, from } => {
            format!("v{} = convert {} from {} v{}", dst.0, ty(*to), low(from), src.0)
        }
        Inst::VReduce { op, dst, ty: t, a } => format!("v{} = reduce {} {} v{}", dst.0, low(op), ty(*t), a.0),
    }
}
