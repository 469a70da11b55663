//! The ELF object: code with a symbol for each phase of a kernel, constants, and unwind tables.
//!
//! In: a verified module and the names of its kernels. Out: a relocatable object. Symbols are hidden: a library that is linked
//! from the object exports the driver's functions alone. The stack is not executable.

use crate::codegen::Isa;
use crate::object::signature::Signature;
use crate::object::unwind;
use crate::runtime::module::{Module, WEIGHTS_ALIGNMENT};
use crate::{Error, Result};
use object::write::{Object, Relocation, SectionId, StandardSection, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationEncoding, RelocationFlags, RelocationKind, SectionKind,
    SymbolFlags, SymbolKind, SymbolScope,
};

/// Alignment of the code: phases begin at multiples of it.
const CODE_ALIGNMENT: u64 = 64;

/// The bytes of the object.
///
/// # Errors
/// `Unsupported` for an architecture without objects, `Internal` where the frame of a kernel is not understood.
pub fn object(module: &Module, signature: &Signature) -> Result<Vec<u8>> {
    let (architecture, isa) = match module.platform().architecture.as_str() {
        "x86_64" => (Architecture::X86_64, Isa::Avx2),
        "aarch64" => (Architecture::Aarch64, Isa::Neon),
        other => return Err(Error::Unsupported(format!("object files for the architecture `{other}`"))),
    };
    let mut object = Object::new(BinaryFormat::Elf, architecture, Endianness::Little);
    object.add_file_symbol(signature.name.clone().into_bytes());
    let text = object.section_id(StandardSection::Text);
    let mut frames = unwind::Frames::new(isa);
    for (binding, symbols) in module.bindings().zip(&signature.symbols) {
        let start = object.append_section_data(text, binding.code(), CODE_ALIGNMENT);
        for (kernel, symbols) in binding.kernels().iter().zip(symbols) {
            for (phase, symbol) in kernel.phases.iter().zip(symbols) {
                let code = usize::try_from(phase.offset).ok().zip(usize::try_from(phase.offset + phase.bytes).ok());
                let Some(code) = code.and_then(|(start, end)| binding.code().get(start..end)) else {
                    return Err(Error::Internal(format!("the code of `{}` lies outside of the module", kernel.name)));
                };
                let offset = start + phase.offset;
                add_symbol(&mut object, symbol, SymbolKind::Text, text, offset, phase.bytes);
                frames.add(code, offset).map_err(|e| e.context(&format!("kernel `{}`", kernel.name)))?;
            }
        }
    }
    let constants = signature.constants.constants();
    if !constants.is_empty() && !signature.weights_apart {
        let data = object.section_id(StandardSection::ReadOnlyData);
        let mut start = None;
        for chunk in constants.chunks() {
            let alignment = if start.is_none() { WEIGHTS_ALIGNMENT as u64 } else { 1 };
            let offset = object.append_section_data(data, chunk, alignment);
            start.get_or_insert(offset);
        }
        let name = format!("{}_weights", signature.name);
        let (offset, bytes) = (start.unwrap_or_default(), constants.len());
        add_symbol(&mut object, &name, SymbolKind::Data, data, offset, bytes);
    }
    add_frames(&mut object, frames, text)?;
    // Without this section a linker makes the stack executable.
    object.add_section(vec![], b".note.GNU-stack".to_vec(), SectionKind::Other);
    object.write().map_err(|e| Error::Internal(format!("an ELF object: {e}")))
}

fn add_symbol(object: &mut Object, name: &str, kind: SymbolKind, section: SectionId, value: u64, size: u64) {
    object.add_symbol(Symbol {
        name: name.into(),
        value,
        size,
        kind,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    });
}

/// Adds `.eh_frame`, whose addresses are relative to themselves.
fn add_frames(object: &mut Object, frames: unwind::Frames, text: SectionId) -> Result<()> {
    let table = frames.finish()?;
    let section = object.add_section(vec![], b".eh_frame".to_vec(), SectionKind::ReadOnlyData);
    object.append_section_data(section, &table.bytes, 8);
    let symbol = object.section_symbol(text);
    for (offset, addend) in table.addresses {
        let flags = RelocationFlags::Generic {
            kind: RelocationKind::Relative,
            encoding: RelocationEncoding::Generic,
            size: 32,
        };
        let added = object.add_relocation(section, Relocation { offset, symbol, addend, flags });
        added.map_err(|e| Error::Internal(format!("unwind tables: {e}")))?;
    }
    Ok(())
}
