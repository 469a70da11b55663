//! Unwind tables: where a kernel's caller and its registers are, at each instruction.
//!
//! In: the machine code of the phases. Out: the bytes of `.eh_frame` and the places in it that hold addresses. What an
//! instruction does to the stack is read from the code itself ([`x86`], [`aarch64`]); between prologue and
//! epilogue no branch leads from one depth of the stack to another, so that one pass in the order of the bytes sees each state. Invariant: at the return the
//! stack is as it was at the entry, or the code is refused.

mod aarch64;
mod change;
mod x86;

use crate::codegen::Isa;
use crate::{Error, Result};
use gimli::constants::{DW_EH_PE_pcrel, DW_EH_PE_sdata4};
use gimli::write::{
    Address, CallFrameInstruction, CommonInformationEntry, EhFrame, EndianVec, FrameDescriptionEntry, FrameTable,
    RelocateWriter, Relocation,
};
use gimli::{DwEhPe, Encoding, Format, LittleEndian, Register};

/// The tables of a module, phase by phase.
pub struct Frames {
    table: FrameTable,
    common: gimli::write::CieId,
    isa: Isa,
}

/// The bytes of `.eh_frame`.
pub struct Table {
    pub bytes: Vec<u8>,
    /// Offset of each address, which is relative to itself, and the offset in the code that it is of.
    pub addresses: Vec<(u64, i64)>,
}

impl Frames {
    /// Tables for the code of an instruction set.
    pub fn new(isa: Isa) -> Frames {
        // Register numbers of the architectures' supplements to System V.
        let (code_factor, return_address, stack, at_entry) = match isa {
            Isa::Avx2 | Isa::Avx512 => (1, Register(16), Register(7), 8),
            Isa::Neon => (4, Register(30), Register(31), 0),
        };
        let encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 1 };
        let mut common = CommonInformationEntry::new(encoding, code_factor, -8, return_address);
        common.fde_address_encoding = DwEhPe(DW_EH_PE_pcrel.0 | DW_EH_PE_sdata4.0);
        common.add_instruction(CallFrameInstruction::Cfa(stack, at_entry));
        if at_entry > 0 {
            common.add_instruction(CallFrameInstruction::Offset(return_address, -at_entry));
        }
        let mut table = FrameTable::default();
        let common = table.add_cie(common);
        Frames { table, common, isa }
    }

    /// Adds a phase whose code starts at `offset`.
    ///
    /// # Errors
    /// `Internal` where its frame is not understood.
    pub fn add(&mut self, code: &[u8], offset: u64) -> Result<()> {
        let changes = match self.isa {
            Isa::Avx2 | Isa::Avx512 => x86::changes(code)?,
            Isa::Neon => aarch64::changes(code)?,
        };
        let length = u32::try_from(code.len()).map_err(|_| Error::Limit("code of more than 4 GiB".into()))?;
        // the only symbol is that of the code
        let mut entry = FrameDescriptionEntry::new(Address::Symbol { symbol: 0, addend: offset as i64 }, length);
        changes.into_iter().for_each(|(code_offset, change)| entry.add_instruction(code_offset, change));
        self.table.add_fde(self.common, entry);
        Ok(())
    }

    /// The bytes of all tables.
    ///
    /// # Errors
    /// `Internal` where a rule has no encoding.
    pub fn finish(self) -> Result<Table> {
        let mut out = EhFrame(Section { bytes: EndianVec::new(LittleEndian), addresses: vec![] });
        self.table.write_eh_frame(&mut out).map_err(|e| Error::Internal(format!("unwind tables: {e}")))?;
        Ok(Table { bytes: out.0.bytes.into_vec(), addresses: out.0.addresses })
    }
}

/// The section while it is written.
struct Section {
    bytes: EndianVec<LittleEndian>,
    addresses: Vec<(u64, i64)>,
}

impl RelocateWriter for Section {
    type Writer = EndianVec<LittleEndian>;

    fn writer(&self) -> &Self::Writer {
        &self.bytes
    }

    fn writer_mut(&mut self) -> &mut Self::Writer {
        &mut self.bytes
    }

    fn relocate(&mut self, relocation: Relocation) {
        self.addresses.push((relocation.offset as u64, relocation.addend));
    }
}
