//! `jit-PID.dump`, the format of Linux (tools/perf/Documentation/jitdump-specification.txt): `perf record -k mono`, then
//! `perf inject --jit` puts the names in.

use super::list::Symbol;
use memmap2::{Mmap, MmapOptions};
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{Error, Result, Write};
use std::path::Path;
use std::sync::Mutex;

const MAGIC: u32 = 0x4A69_5444;
const VERSION: u32 = 1;
const HEADER_BYTES: u32 = 40;
/// Number of the record of code that was loaded.
const CODE_LOAD: u32 = 0;
/// Bytes of such a record before its name.
const LOAD_BYTES: usize = 56;

/// The file of one process.
struct Dump {
    pid: u32,
    file: File,
    /// `perf` finds the file by this mapping, which it records: it must be executable.
    _marker: Mmap,
    records: u64,
}

static DUMP: Mutex<Option<Dump>> = Mutex::new(None);

/// Adds symbols of `code` to the file of this process in a folder.
pub fn write(folder: &Path, code: &[u8], symbols: &[Symbol]) -> Result<()> {
    let mut dump = DUMP.lock().unwrap_or_else(|e| e.into_inner());
    // a process that was forked has a file of its own
    if dump.as_ref().is_none_or(|dump| dump.pid != std::process::id()) {
        *dump = Some(Dump::new(folder)?);
    }
    dump.as_mut().map_or(Ok(()), |dump| symbols.iter().try_for_each(|symbol| dump.add(code, symbol)))
}

impl Dump {
    fn new(folder: &Path) -> Result<Dump> {
        let pid = std::process::id();
        let path = folder.join(format!("jit-{pid}.dump"));
        let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        let machine = u32::from(super::gdb::MACHINE.0);
        let mut header: Vec<u8> =
            [MAGIC, VERSION, HEADER_BYTES, machine, 0, pid].iter().flat_map(|n| n.to_ne_bytes()).collect();
        header.extend(now().to_ne_bytes());
        header.extend(0u64.to_ne_bytes()); // flags
        file.write_all(&header)?;
        // SAFETY: nobody reads the mapping.
        let marker = unsafe { MmapOptions::new().len(header.len()).map_exec(&file)? };
        Ok(Dump { pid, file, _marker: marker, records: 0 })
    }

    fn add(&mut self, code: &[u8], symbol: &Symbol) -> Result<()> {
        let Some(code) = code.get(symbol.offset..symbol.offset + symbol.bytes) else {
            return Err(Error::other("a kernel lies outside of its module"));
        };
        let address = code.as_ptr() as u64;
        let total = LOAD_BYTES + symbol.name.len() + 1 + code.len();
        let total = u32::try_from(total).map_err(|_| Error::other("a kernel is too large for the format"))?;
        let thread = gettid().as_raw_nonzero().get().unsigned_abs();
        let mut record = vec![];
        record.extend([CODE_LOAD, total].iter().flat_map(|n| n.to_ne_bytes()));
        record.extend(now().to_ne_bytes());
        record.extend([self.pid, thread].iter().flat_map(|n| n.to_ne_bytes()));
        record.extend([address, address, code.len() as u64, self.records].iter().flat_map(|n| n.to_ne_bytes()));
        record.extend(symbol.name.as_bytes());
        record.push(0);
        record.extend(code);
        self.records += 1;
        self.file.write_all(&record)
    }
}

/// Nanoseconds of the clock that `perf record -k mono` takes.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_lengths_that_they_declare() {
        let folder = std::env::temp_dir().join(format!("tilewright-jitdump-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let code: Vec<u8> = (0..100).collect();
        let symbol = |name: &str, offset, bytes| Symbol { name: name.into(), offset, bytes };
        write(&folder, &code, &[symbol("first", 0, 30), symbol("second", 64, 36)]).unwrap();
        write(&folder, &code, &[symbol("third", 30, 1)]).unwrap();
        assert!(write(&folder, &code, &[symbol("outside", 90, 11)]).is_err());
        let path = folder.join(format!("jit-{}.dump", std::process::id()));
        let data = std::fs::read(&path).unwrap();
        let u32_at = |offset: usize| u32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
        let u64_at = |offset: usize| u64::from_ne_bytes(data[offset..offset + 8].try_into().unwrap());
        let machine = u32::from(super::super::gdb::MACHINE.0);
        assert_eq!([0, 4, 8, 12, 20].map(u32_at), [MAGIC, 1, 40, machine, std::process::id()]);
        // perf sees no other mappings
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let marker = maps.lines().find(|line| line.ends_with(&path.display().to_string())).unwrap();
        assert!(marker.contains(" r-xs "), "{marker}");
        let (mut offset, mut found, mut time) = (40, vec![], u64_at(24));
        while offset < data.len() {
            assert!((time..=now()).contains(&u64_at(offset + 8)));
            time = u64_at(offset + 8);
            assert_eq!(
                [offset + 16, offset + 20].map(u32_at),
                [std::process::id(), gettid().as_raw_nonzero().get() as u32]
            );
            assert_eq!(u64_at(offset + 24), u64_at(offset + 32));
            let (length, bytes) = (u32_at(offset + 4) as usize, u64_at(offset + 40) as usize);
            assert_eq!((u32_at(offset), u64_at(offset + 48)), (CODE_LOAD, found.len() as u64));
            let name = &data[offset + LOAD_BYTES..offset + length - bytes - 1];
            found.push((String::from_utf8(name.to_vec()).unwrap(), u64_at(offset + 32) - code.as_ptr() as u64, bytes));
            assert_eq!(data[offset + length - bytes..offset + length][0] as u64, found.last().unwrap().1);
            offset += length;
        }
        assert_eq!(found, [("first".into(), 0, 30), ("second".into(), 64, 36), ("third".into(), 30, 1)]);
        // SAFETY: the child only writes, and ends; no other thread of this process writes such files.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let written = write(&folder, &code, &[symbol("in the child", 0, 30)]);
            // SAFETY: it ends the process.
            unsafe { libc::_exit(i32::from(written.is_err())) };
        }
        let mut status = -1;
        // SAFETY: `status` is there to be written.
        assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));
        assert_eq!(std::fs::read(&path).unwrap(), data);
        let of_child = std::fs::read(folder.join(format!("jit-{child}.dump"))).unwrap();
        assert_eq!(of_child[20..24], child.to_ne_bytes());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
