//! gdb's interface for generated code: a list of ELF images in memory, and a function that gdb has a breakpoint in
//! (JIT Compilation Interface of its manual).

use super::list::Symbol;
use crate::{Error, Result};
use object::elf;
use object::write::StringId;
use object::write::elf::{FileHeader, SectionHeader, Sym, Writer};
use std::arch::global_asm;
use std::sync::Mutex;

/// ELF's number of the architecture.
#[cfg(target_arch = "x86_64")]
pub const MACHINE: elf::Machine = elf::EM_X86_64;
/// ELF's number of the architecture.
#[cfg(target_arch = "aarch64")]
pub const MACHINE: elf::Machine = elf::EM_AARCH64;
/// ELF's number of an architecture that no target has.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub const MACHINE: elf::Machine = elf::EM_NONE;

/// Actions of which gdb is told when it stops in the function.
const REGISTER: u32 = 1;
const UNREGISTER: u32 = 2;

/// The symbols of one module, on gdb's list until this is dropped.
pub struct Entry {
    /// Address of the `Node`.
    node: usize,
    /// The ELF file that the node points to.
    _image: Vec<u8>,
}

#[repr(C)]
struct Node {
    next: *mut Node,
    previous: *mut Node,
    image: *const u8,
    bytes: u64,
}

#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *mut Node,
    first: *mut Node,
}

// The names are gdb's. They are weak, since another compiler in the same program may have them too, with the same meaning.
global_asm!(
    ".text",
    ".weak __jit_debug_register_code",
    ".type __jit_debug_register_code, STT_FUNC",
    "__jit_debug_register_code:",
    "ret",
    ".size __jit_debug_register_code, . - __jit_debug_register_code",
    ".data",
    ".balign 8",
    ".weak __jit_debug_descriptor",
    ".type __jit_debug_descriptor, STT_OBJECT",
    "__jit_debug_descriptor:",
    ".long 1, 0",
    ".quad 0, 0",
    ".size __jit_debug_descriptor, . - __jit_debug_descriptor",
    ".text",
);

// SAFETY: this is what stands above: a function without arguments, and 24 bytes.
unsafe extern "C" {
    fn __jit_debug_register_code();
    static mut __jit_debug_descriptor: Descriptor;
}

/// Held by who changes the list.
static LIST: Mutex<()> = Mutex::new(());

impl Entry {
    /// Tells gdb the symbols of code that lies in place.
    ///
    /// # Errors
    /// [`Error::Internal`] where the image cannot be written.
    pub fn new(code: &[u8], symbols: &[Symbol]) -> Result<Entry> {
        let image = image(code, symbols).map_err(|e| Error::Internal(format!("symbols for gdb: {e}")))?;
        let (image_start, bytes) = (image.as_ptr(), image.len() as u64);
        let _guard = LIST.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: the list is changed under the lock. Its nodes live until they are taken out, and so do their images.
        let node = unsafe {
            let list = &raw mut __jit_debug_descriptor;
            let next = (*list).first;
            let node =
                Box::into_raw(Box::new(Node { next, previous: std::ptr::null_mut(), image: image_start, bytes }));
            if let Some(next) = next.as_mut() {
                next.previous = node;
            }
            (*list).first = node;
            ((*list).relevant, (*list).action) = (node, REGISTER);
            __jit_debug_register_code();
            node
        };
        Ok(Entry { node: node as usize, _image: image })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let _guard = LIST.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: as above; the node was put into the list when this entry was made, and nobody else takes it out.
        unsafe {
            let list = &raw mut __jit_debug_descriptor;
            let node = Box::from_raw(self.node as *mut Node);
            match node.previous.as_mut() {
                Some(previous) => previous.next = node.next,
                None => (*list).first = node.next,
            }
            if let Some(next) = node.next.as_mut() {
                next.previous = node.previous;
            }
            ((*list).relevant, (*list).action) = (self.node as *mut Node, UNREGISTER);
            __jit_debug_register_code();
        }
    }
}

/// An ELF file whose only section with memory is the code, at its address.
fn image(code: &[u8], symbols: &[Symbol]) -> std::result::Result<Vec<u8>, object::write::Error> {
    let mut bytes = vec![];
    let mut writer = Writer::new(object::Endianness::Little, true, &mut bytes);
    writer.reserve_file_header();
    let text_name = writer.add_section_name(b".text");
    let text = writer.reserve_section_index();
    writer.reserve_null_symbol_index();
    let names: Vec<StringId> = symbols.iter().map(|symbol| writer.add_string(symbol.name.as_bytes())).collect();
    for _ in symbols {
        writer.reserve_symbol_index(Some(text));
    }
    writer.reserve_symtab_section_index();
    writer.reserve_strtab_section_index();
    writer.reserve_shstrtab_section_index();
    writer.reserve_symtab();
    writer.reserve_strtab()?;
    writer.reserve_shstrtab()?;
    writer.reserve_section_headers();
    let (e_type, e_machine) = (elf::ET_REL, MACHINE);
    writer.write_file_header(&FileHeader { e_type, e_machine, ..FileHeader::default() })?;
    writer.write_null_symbol();
    for (symbol, name) in symbols.iter().zip(names) {
        let symbol = Sym {
            section: Some(text.0),
            st_name: writer.string_offset(Some(name)),
            st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
            st_other: elf::SymbolOther::default(),
            st_shndx: elf::SHN_UNDEF,
            st_value: symbol.offset as u64,
            st_size: symbol.bytes as u64,
        };
        writer.write_symbol(&symbol);
    }
    writer.write_strtab();
    writer.write_shstrtab();
    writer.write_null_section_header();
    let section = SectionHeader {
        sh_name: writer.section_name_offset(Some(text_name)),
        sh_type: elf::SHT_NOBITS,
        sh_flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
        sh_addr: code.as_ptr() as u64,
        sh_size: code.len() as u64,
        sh_addralign: 16,
        ..SectionHeader::default()
    };
    writer.write_section_header(&section);
    writer.write_symtab_section_header(1);
    writer.write_strtab_section_header();
    writer.write_shstrtab_section_header();
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The images on gdb's list, in its order.
    fn listed() -> Vec<Vec<u8>> {
        let _guard = LIST.lock().unwrap();
        let mut images = vec![];
        // SAFETY: nodes and images live while they are on the list, which is changed under the lock.
        unsafe {
            let (mut entry, mut before) = (__jit_debug_descriptor.first, std::ptr::null_mut());
            while let Some(node) = entry.as_ref() {
                assert_eq!(node.previous, before);
                images.push(std::slice::from_raw_parts(node.image, node.bytes as usize).to_vec());
                (before, entry) = (entry, node.next);
            }
        }
        images
    }

    #[test]
    fn the_list_holds_what_was_not_dropped() {
        let code = [0; 64];
        let entry = |n: usize| {
            let symbol = |name: &str, offset, bytes| Symbol { name: format!("{name}_{n}"), offset, bytes };
            Entry::new(&code, &[symbol("first", 0, 16), symbol("second", 16, 48)]).unwrap()
        };
        let mut entries: Vec<Option<Entry>> = (0..4).map(|n| Some(entry(n))).collect();
        // those of other tests may be there too
        let numbers = || -> Vec<usize> {
            let has = |image: &[u8], name: &str| image.windows(name.len()).any(|bytes| bytes == name.as_bytes());
            let number = |image: Vec<u8>| {
                (0..4).find(|n| has(&image, &format!("\0first_{n}\0")) && has(&image, &format!("\0second_{n}\0")))
            };
            listed().into_iter().filter_map(number).collect()
        };
        assert_eq!(numbers(), [3, 2, 1, 0]);
        // in the middle, the last and the first of the list
        for (dropped, left) in [(2, &[3, 1, 0][..]), (0, &[3, 1]), (3, &[1]), (1, &[])] {
            entries[dropped] = None;
            assert_eq!(numbers(), left);
        }
    }
}
