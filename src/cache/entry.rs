//! The file of an entry.
//!
//! | bytes | contents |
//! |---|---|
//! | 0..8 | magic |
//! | 8..12 | version of this format |
//! | 12..16 | CRC-32 of all that follows, up to the module |
//! | 16..48 | the entry's key |
//! | 48..56 | where the module starts, a multiple of 4,096; 0 where there is none |
//! | 56..64 | length of the file |
//! | 64..72 | length of the description |
//! | 72.. | description (postcard): the report of the module, sets of names of inputs, or a kernel |
//! | to the end | the module, as `Module::save` writes it, with a checksum of its own |
//!
//! All numbers are little-endian.

use super::directory::{Directory, EXTENSIONS};
use crate::graph::content::Hash;
use crate::pipeline::linkable::LinkableKernel;
use crate::pipeline::report::Report;
use crate::runtime::module::{Module, Weights};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::SystemTime;

/// The compiler: its version and its sources.
pub const COMPILER: &str = concat!(env!("CARGO_PKG_VERSION"), " ", env!("TILEWRIGHT_SOURCES"));
/// Version of the format.
pub const VERSION: u32 = 2;
const MAGIC: [u8; 8] = *b"tilecch\x1a";
const HEADER: usize = 72;
/// Modules start at a page, so that they can be mapped.
const PAGE: usize = 4096;

/// Contents of an entry.
pub enum Entry {
    Module(Box<Module>, Box<Report>),
    /// Names of inputs, in sets: the values of all inputs of one of them lead to a module.
    Values(Vec<Vec<String>>),
    Kernel(Box<LinkableKernel>),
}

#[derive(Serialize, Deserialize)]
enum Description {
    Module(Box<Report>),
    Values(Vec<Vec<String>>),
    Kernel(Box<LinkableKernel>),
}

/// The name of the file of a module, or of what leads to it.
pub fn name(key: &Hash) -> String {
    digits(key) + EXTENSIONS[0]
}

/// The name of the file of a kernel.
pub fn kernel_name(key: &Hash) -> String {
    digits(key) + EXTENSIONS[1]
}

fn digits(key: &Hash) -> String {
    key.iter().fold(String::new(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// An entry that is to be written.
pub struct Draft {
    head: Vec<u8>,
    /// The bytes of the module before its weights, and the weights.
    module: Option<(Vec<u8>, Weights)>,
}

impl Draft {
    pub fn module(key: &Hash, module: &Module, report: &Report) -> Result<Draft, String> {
        let report = Report { cached: true, ..report.clone() };
        let (start, weights) = module.file_parts().map_err(|e| e.to_string())?;
        let length = start.len() + weights.len() as usize;
        let head = head(key, &Description::Module(report.into()), Some(length))?;
        Ok(Draft { head, module: Some((start, weights)) })
    }

    pub fn values(key: &Hash, sets: &[Vec<String>]) -> Result<Draft, String> {
        Ok(Draft { head: head(key, &Description::Values(sets.to_vec()), None)?, module: None })
    }

    pub fn kernel(key: &Hash, kernel: &LinkableKernel) -> Result<Draft, String> {
        Ok(Draft { head: head(key, &Description::Kernel(kernel.clone().into()), None)?, module: None })
    }

    /// Length of the file.
    pub fn length(&self) -> u64 {
        let module = self.module.as_ref().map_or(0, |(start, weights)| start.len() as u64 + weights.len());
        self.head.len() as u64 + module
    }

    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.head)?;
        let Some((start, weights)) = &self.module else { return Ok(()) };
        out.write_all(start)?;
        weights.chunks().try_for_each(|bytes| out.write_all(bytes))
    }
}

/// All bytes before a module of `module` bytes.
fn head(key: &Hash, description: &Description, module: Option<usize>) -> Result<Vec<u8>, String> {
    let description = postcard::to_stdvec(description).map_err(|e| format!("it cannot be written: {e}"))?;
    let end = HEADER + description.len();
    let start = end.next_multiple_of(PAGE);
    let (offset, length) = module.map_or((0, end), |bytes| (start, start + bytes));
    let mut out = [&MAGIC[..], &VERSION.to_le_bytes(), &[0; 4], key].concat();
    for n in [offset, length, description.len()] {
        out.extend_from_slice(&(n as u64).to_le_bytes());
    }
    out.extend_from_slice(&description);
    out.resize(if module.is_some() { start } else { end }, 0);
    let crc = crc32fast::hash(&out[16..]);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    Ok(out)
}

/// An entry that can be used, which counts as used now; `None` where there is none of this version.
///
/// # Errors
/// The reason why an entry cannot be used. It is replaced when its module has been compiled again.
pub fn read(directory: &Directory, key: &Hash) -> Result<Option<Entry>, String> {
    read_named(directory, key, &name(key))
}

/// The kernel of a key, as [`read`] reads entries.
pub fn read_kernel(directory: &Directory, key: &Hash) -> Option<LinkableKernel> {
    match read_named(directory, key, &kernel_name(key)) {
        Ok(Some(Entry::Kernel(kernel))) => Some(*kernel),
        _ => None,
    }
}

fn read_named(directory: &Directory, key: &Hash, name: &str) -> Result<Option<Entry>, String> {
    let Some(mut file) = directory.read(name)? else { return Ok(None) };
    let entry = parse(&mut file, key)?;
    if entry.is_some() {
        // Where the time of its last use cannot be written, the entry goes earlier.
        let _ = file.set_modified(SystemTime::now());
    }
    Ok(entry)
}

fn parse(file: &mut File, key: &Hash) -> Result<Option<Entry>, String> {
    let io = |e: io::Error| e.to_string();
    let damaged = || "damaged".to_string();
    let length = file.metadata().map_err(io)?.len();
    let mut head = vec![0; HEADER];
    file.read_exact(&mut head).map_err(io)?;
    let word = |offset: usize| u32::from_le_bytes(head[offset..offset + 4].try_into().expect("four bytes"));
    let long = |offset: usize| u64::from_le_bytes(head[offset..offset + 8].try_into().expect("eight bytes"));
    if head[..8] != MAGIC || word(8) != VERSION {
        return Ok(None);
    }
    let (crc, offset, described) = (word(12), long(48), long(64));
    let end = if offset == 0 { length } else { offset };
    let fits = end <= length && (HEADER as u64).checked_add(described).is_some_and(|d| d <= end);
    if head[16..48] != *key || long(56) != length || !offset.is_multiple_of(PAGE as u64) || !fits {
        return Err(damaged());
    }
    file.take(end - HEADER as u64).read_to_end(&mut head).map_err(io)?;
    if head.len() as u64 != end || crc32fast::hash(&head[16..]) != crc {
        return Err(damaged());
    }
    let description = &head[HEADER..HEADER + described as usize];
    match postcard::from_bytes(description).map_err(|e| e.to_string())? {
        Description::Values(sets) => Ok(Some(Entry::Values(sets))),
        Description::Kernel(kernel) => Ok(Some(Entry::Kernel(kernel))),
        Description::Module(_) if offset == 0 => Err(damaged()),
        Description::Module(report) => {
            // SAFETY: the file and its directory belong to this user, and nobody else may write there (`Directory`); this
            // user's cache puts modules there that the compiler made, and never changes a file that has its name.
            let module = unsafe { Module::map(file, offset) }.map_err(|e| e.to_string())?;
            Ok(Some(Entry::Module(module.into(), report)))
        }
    }
}
