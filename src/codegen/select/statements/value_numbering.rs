//! Value numbering: the known values of registers within a block.
//!
//! Invariant: values read from memory are forgotten when that memory is written, and all values when a new block begins.

use crate::codegen::loopnest::BufferKind;
use crate::codegen::select::state::Branch;
use crate::codegen::select::state::Val;
use crate::codegen::select::state::{Key, Known, MOST_READS, Span};
use crate::codegen::select::state::{LANE, Selector};
use crate::codegen::select::tree::Node;
use crate::codegen::vcode::operands::Class;
use crate::codegen::vcode::{Inst, VType, Vreg};
use crate::expr::BufferId;
use crate::expr::Var;
use rustc_hash::FxHashMap;

/// The known values of a block (see [`Selector::known_values`]).
pub struct Block {
    values: FxHashMap<Key, Known>,
    integers: Vec<(Node, Var, Option<Span>)>,
    branches: Vec<(Branch, Val)>,
}

impl Selector<'_> {
    /// Returns the key that identifies the value of `inst`.
    pub fn key(&self, inst: Inst) -> Key {
        let (mut versions, mut n) = ([0; MOST_READS], 0);
        inst.registers(|class, access, register| {
            if class == Class::Vector && access.reads() {
                versions[n] = self.versions.get(&Vreg(register)).copied().unwrap_or(0);
                n += 1;
            }
        });
        (inst, versions)
    }

    /// The register that holds what `make(dst)` computes, computing it unless it is known. `span` for loads.
    pub fn emit_from(&mut self, span: Option<Span>, make: impl Fn(Vreg) -> Inst) -> Vreg {
        let key = self.key(make(Vreg(u32::MAX)));
        let now = self.tree.vregs;
        // a load that was used long ago is cheaper done again than kept in a register
        let far = (self.target.vector_registers * 5 / 8) as u32;
        if let Some(earlier) = self.values.get_mut(&key)
            && (earlier.span.is_none() || now - earlier.used < far)
        {
            earlier.used = now;
            return earlier.reg;
        }
        let dst = self.fresh();
        self.out.push(Node::Inst(make(dst)));
        self.remember(key, dst, span);
        dst
    }

    pub fn emit(&mut self, make: impl Fn(Vreg) -> Inst) -> Vreg {
        self.emit_from(None, make)
    }

    /// The register known to hold `key`, for values that more than one node computes.
    pub fn known(&self, key: &Key) -> Option<Vreg> {
        self.values.get(key).map(|v| v.reg)
    }

    pub fn remember(&mut self, key: Key, reg: Vreg, span: Option<Span>) {
        self.values.insert(key, Known { reg, span, used: self.tree.vregs });
    }

    /// `reg` has a new value.
    pub fn changed(&mut self, reg: Vreg) {
        *self.versions.entry(reg).or_insert(0) += 1;
    }

    /// An integer defined by `node(var)`, defined once in a block.
    pub fn integer_node(&mut self, range: (i64, i64), span: Option<Span>, node: impl Fn(Var) -> Node) -> Var {
        let key = node(LANE);
        if let Some((_, v, _)) = self.integers.iter().find(|i| i.0 == key) {
            return *v;
        }
        let var = self.fresh_var();
        self.facts.set_range(var, range);
        self.out.push(node(var));
        self.integers.push((key, var, span));
        var
    }

    /// Forgets the values read from memory `span`, which is written.
    pub fn written(&mut self, span: Span) {
        let slot = |b: BufferId| match self.nest.buffer(b).kind {
            BufferKind::Argument { slot, .. } => Some(slot),
            BufferKind::Local => None,
        };
        let overlaps = |other: &Span| {
            let same =
                other.buffer == span.buffer || slot(other.buffer).is_some() && slot(other.buffer) == slot(span.buffer);
            match (span.bytes, other.bytes) {
                (Some((p, a, b)), Some((q, c, d))) if p == q => same && a < d && c < b,
                _ => same,
            }
        };
        self.values.retain(|_, v| !v.span.as_ref().is_some_and(&overlaps));
        self.integers.retain(|(_, _, s)| !s.as_ref().is_some_and(&overlaps));
        self.branches.retain(|(b, _)| !overlaps(&Span { buffer: b.address.buffer, bytes: None }));
    }

    /// Forgets the values that a branch read from a local buffer in registers, which is written.
    pub fn forget_branches(&mut self, local: BufferId) {
        self.branches.retain(|(b, _)| b.address.buffer != local);
    }

    /// A new block begins in which nothing is known.
    pub fn forget(&mut self) {
        self.values.clear();
        self.integers.clear();
        self.branches.clear();
    }

    /// Returns the values known at this point, to return to them after a branch.
    pub fn known_values(&self) -> Block {
        Block { values: self.values.clone(), integers: self.integers.clone(), branches: self.branches.clone() }
    }

    /// Restores the values known before a branch, except those in memory that it wrote. Versions identify registers.
    pub fn forget_since(&mut self, before: Block) {
        let after = Block {
            values: std::mem::replace(&mut self.values, before.values),
            integers: std::mem::replace(&mut self.integers, before.integers),
            branches: std::mem::replace(&mut self.branches, before.branches),
        };
        // what the branch wrote and read again has another register
        self.values.retain(|k, v| v.span.is_none() || after.values.get(k).is_some_and(|now| now.reg == v.reg));
        self.integers.retain(|i| after.integers.contains(i));
        self.branches.retain(|b| after.branches.contains(b));
    }

    pub fn known_branch(&self, key: &Branch) -> Option<Val> {
        let branch = self.branches.iter().find(|(b, v)| {
            let chunk = if v.uniform { b.chunk } else { key.chunk };
            *b == Branch { chunk, ..key.clone() }
        });
        branch.filter(|_| key.address.gather.is_empty()).map(|b| b.1)
    }

    pub fn remember_branch(&mut self, key: Branch, v: Val) {
        self.branches.push((key, v));
    }

    /// Makes `dst` hold `src`: the instruction that has just computed `src` writes to `dst` instead, or a copy does.
    pub fn move_to(&mut self, dst: Vreg, src: Vreg, ty: VType) {
        if dst == src {
            return;
        }
        let stays = self.versions.contains_key(&src) || self.is_deferred(src);
        let moved = !stays && redirect(&mut self.out, src, dst);
        if moved {
            self.values.retain(|_, v| v.reg != src);
            self.branches.retain(|b| b.1.reg != src);
        } else {
            self.out.push(Node::Inst(Inst::VCopy { dst, src, ty }));
        }
        self.changed(dst);
    }
}

/// Lets the last instruction (or copy and fused operation) of `out` write to `dst` if it has just defined `src`.
fn redirect(out: &mut [Node], src: Vreg, dst: Vreg) -> bool {
    let defines = |inst: &Inst| {
        let mut yes = false;
        inst.registers(|class, access, register| {
            yes |= class == Class::Vector && !access.reads() && register == src.0;
        });
        yes
    };
    let rename = |inst: &mut Inst| {
        inst.registers_mut(&mut |class, access, register| {
            if class == Class::Vector && access.writes() && *register == src.0 {
                *register = dst.0;
            }
        });
    };
    match out {
        [.., Node::Inst(copy @ Inst::VCopy { .. }), Node::Inst(fma)]
            if matches!(&*fma, Inst::VFma { acc, a, b, .. } if *acc == src && *a != dst && *b != dst)
                && defines(copy) =>
        {
            rename(copy);
            rename(fma);
            true
        }
        [.., Node::Inst(last)] if defines(last) => {
            rename(last);
            true
        }
        _ => false,
    }
}
