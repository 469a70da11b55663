//! Stores of interleaved elements: narrow ones are looked up in the members as tables of 16 bytes, wider ones inserted.

use crate::codegen::aarch64::emitter::Emitter;
use crate::codegen::emit::Vectors;
use crate::codegen::vcode::Addr;
use crate::codegen::vcode::lanes::Interleaved;
use crate::runtime::{Error, Result};
use dynasmrt::DynasmApi;

/// Bytes of a register.
const BLOCK: usize = 16;

impl Emitter<'_> {
    /// See [`Inst::VStoreInterleaved`](crate::codegen::vcode::Inst::VStoreInterleaved).
    pub(super) fn interleave(&mut self, group: &Interleaved) -> Result<()> {
        let joined = self.temporaries.vector[0];
        for start in (0..group.bytes()).step_by(BLOCK) {
            let end = group.bytes().min(start + BLOCK);
            match group.mem.bytes() {
                4 | 8 => self.insert_members(group, start, joined),
                _ => self.look_up_members(group, start..end, joined),
            }
            self.store_pieces(group, start..end, joined)?;
        }
        Ok(())
    }

    /// The bytes from `start` on, each a byte of a member.
    fn look_up_members(&mut self, group: &Interleaved, range: std::ops::Range<usize>, d: u8) {
        let index = self.temporaries.vector[1];
        for (k, member) in group.members.iter().enumerate() {
            let from = |byte: usize| match group.source(byte) {
                (member, place) if member == k && byte < range.end => place as u8,
                _ => 0xff,
            };
            self.pooled(index, (range.start..range.start + BLOCK).map(from).collect());
            let m = member.number();
            match k {
                0 => a64!(self ; tbl V(d).b16, {V(m).b16 * 1}, V(index).b16),
                _ => a64!(self ; tbx V(d).b16, {V(m).b16 * 1}, V(index).b16),
            }
        }
    }

    /// The 16 bytes from `start` on, in elements as wide as lanes.
    fn insert_members(&mut self, group: &Interleaved, start: usize, d: u8) {
        let lane = group.ty.lane.bytes();
        for i in 0..BLOCK / lane {
            let (member, byte) = group.source(start + i * lane);
            let (m, from, i) = (group.members[member].number(), (byte / lane) as u32, i as u32);
            match lane {
                4 => a64!(self ; mov V(d).s[i], V(m).s[from]),
                _ => a64!(self ; mov V(d).d[i], V(m).d[from]),
            }
        }
    }

    /// Stores the low bytes of a register as those of a range of the group; the register changes.
    fn store_pieces(&mut self, group: &Interleaved, range: std::ops::Range<usize>, s: u8) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let bytes = [16, 8, 4, 2, 1].into_iter().find(|n| *n <= range.end - at).unwrap_or(1);
            let disp = i32::try_from(i64::from(group.addr.disp) + at as i64);
            let disp = disp.map_err(|_| Error::Limit("an address displacement beyond 2 GiB".into()))?;
            let (b, offset) = self.operand(&Addr { disp, ..group.addr }, bytes as i64);
            self.store_scalar(s, b, offset, bytes);
            at += bytes;
            if at < range.end {
                a64!(self ; ext V(s).b16, V(s).b16, V(s).b16, bytes as u32);
            }
        }
        Ok(())
    }
}
