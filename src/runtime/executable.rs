//! Executable memory: machine code that is written once and then can only be read and executed.
//!
//! In: the bytes of one module's position-independent code. Out: addresses that can be called. Invariant: the pages are
//! never writable and executable at once, and their contents do not change after [`Executable::new`] returns.

use crate::{Error, Result};
use memmap2::{Mmap, MmapMut};

/// A kernel phase. SAFETY of a call: the arguments are those that the module says, of the sizes that it says. Argument
/// table, first and one-past-last iteration of the parallel loop, scratch memory of the thread. The convention is that of
/// System V on every operating system: the code is the same.
#[cfg(target_arch = "x86_64")]
pub type PhaseFn = unsafe extern "sysv64" fn(arguments: *const *mut u8, first: i64, last: i64, scratch: *mut u8);

/// A kernel phase. SAFETY of a call: as on x86-64; on AArch64 every system has this convention.
#[cfg(not(target_arch = "x86_64"))]
pub type PhaseFn = unsafe extern "C" fn(arguments: *const *mut u8, first: i64, last: i64, scratch: *mut u8);

/// Code pages of one module.
#[derive(Debug)]
pub struct Executable {
    pages: Mmap,
}

impl Executable {
    /// Copies `code` to fresh pages and makes them executable.
    pub fn new(code: &[u8]) -> Result<Executable> {
        let failed = |e: std::io::Error| Error::Io(format!("executable memory of {} bytes: {e}", code.len()));
        let mut pages = MmapMut::map_anon(code.len().max(1)).map_err(failed)?;
        pages[..code.len()].copy_from_slice(code);
        let pages = pages.make_exec().map_err(failed)?;
        synchronize_instructions(&pages);
        Ok(Executable { pages })
    }

    /// The code, where it lies.
    pub fn bytes(&self) -> &[u8] {
        &self.pages
    }

    /// The phase whose code starts at `offset`.
    ///
    /// Panics when `offset` lies outside the code; whether a function of the right convention starts there is what a
    /// caller of the returned pointer vouches for.
    pub fn phase(&self, offset: usize) -> PhaseFn {
        let start: *const u8 = &self.pages[offset];
        // SAFETY: a data pointer and a function pointer have the same representation on every supported architecture, the
        // pointer is not null, and calling it is unsafe in its turn.
        unsafe { std::mem::transmute::<*const u8, PhaseFn>(start) }
    }
}

/// Makes freshly written code visible to instruction fetch; x86 needs nothing.
#[cfg(not(target_arch = "aarch64"))]
fn synchronize_instructions(_code: &[u8]) {}

/// Makes freshly written code visible to instruction fetch.
#[cfg(target_arch = "aarch64")]
fn synchronize_instructions(code: &[u8]) {
    use std::arch::asm;
    let range = code.as_ptr_range();
    let (mut line, end) = (range.start as usize & !15, range.end as usize);
    let start = line;
    // SAFETY: cache maintenance by address changes no memory; every address lies in `code` (rounded down to 16 bytes).
    unsafe {
        while line < end {
            asm!("dc cvau, {0}", in(reg) line, options(nostack, preserves_flags));
            line += 16;
        }
        asm!("dsb ish", options(nostack, preserves_flags));
        line = start;
        while line < end {
            asm!("ic ivau, {0}", in(reg) line, options(nostack, preserves_flags));
            line += 16;
        }
        asm!("dsb ish", "isb", options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `*arguments[0] = last - first`, as machine code of the host.
    #[cfg(target_arch = "x86_64")]
    pub const STORE_COUNT: &[u8] = &[
        0x48, 0x8b, 0x07, // mov rax, [rdi]
        0x48, 0x29, 0xf2, // sub rdx, rsi
        0x48, 0x89, 0x10, // mov [rax], rdx
        0xc3, // ret
    ];

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn code_runs_from_any_offset() {
        let mut code = vec![0xcc; 5];
        code.extend_from_slice(STORE_COUNT);
        let executable = Executable::new(&code).unwrap();
        let mut cell = 0u64;
        let arguments = [(&raw mut cell).cast::<u8>()];
        // SAFETY: the code above follows the convention and writes 8 bytes through the first argument.
        unsafe { executable.phase(5)(arguments.as_ptr(), 3, 45, std::ptr::null_mut()) };
        assert_eq!(cell, 42);
    }

    #[test]
    fn pages_are_never_writable_and_executable() {
        let executable = Executable::new(&[0xc3; 100]).unwrap();
        let address = executable.phase(0) as usize;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| {
            let (start, fields) = line.split_once('-').unwrap();
            let end = fields.split(' ').next().unwrap();
            let parse = |s: &str| usize::from_str_radix(s, 16).unwrap();
            (parse(start)..parse(end)).contains(&address)
        });
        assert_eq!(line.unwrap().split(' ').nth(1), Some("r-xp"));
    }
}
