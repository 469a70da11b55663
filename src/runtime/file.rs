//! Files that others may be reading: written beside the old contents and put in their place at once.
//!
//! In: a path and what to write. Out: the path names the old contents or the new ones, whole, at every moment, also after a
//! crash; whoever has the old file open or mapped keeps it. Invariant: a failure leaves the old file, and no other. What a
//! killed process leaves beside it is removed by a later write in the folder.
//!
//! Streams (pipes, sockets, devices, and links of the process file system such as `/dev/stdout`) have no old contents: they
//! are written straight to.

use crate::{Error, Result};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Start and end of the names of files that are being written.
const PENDING: (&str, &str) = (".tilewright-", ".tmp");
/// A writer has locked its file when that is older than this.
const LOCKED_AFTER: Duration = Duration::from_secs(60);

/// Links that one path may lead through.
const MAX_LINKS: usize = 40;

/// Writes a file with the contents that `fill` writes.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let failed = |e: std::io::Error| Error::Io(format!("cannot write {}: {e}", path.display()));
    match destination(path).map_err(failed)? {
        Destination::Stream => {
            let mut file = OpenOptions::new().write(true).open(path).map_err(failed)?;
            fill(&mut file).map_err(failed)
        }
        Destination::File(target, old) => {
            let mut pending = Pending::beside(&target).map_err(failed)?;
            remove_stale(folder_of(&target));
            pending.complete(old, fill).map_err(failed)
        }
    }
}

/// Refuses a path that [`write`] could not write, without changing the file.
pub fn check_writable(path: &Path) -> Result<()> {
    let failed = |e: std::io::Error| Error::Io(format!("cannot write {}: {e}", path.display()));
    match destination(path).map_err(failed)? {
        Destination::Stream => Ok(()),
        Destination::File(target, _) => Pending::beside(&target).map(|_| ()).map_err(failed),
    }
}

/// Opens a regular file to read. Pipes, which would be waited for, and devices, which may not end, are refused.
pub fn open(path: &Path) -> Result<File> {
    let failed = |e: std::io::Error| Error::Io(format!("cannot open {}: {e}", path.display()));
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::Invalid(format!("{}: not a regular file", path.display())));
    }
    File::open(path).map_err(failed)
}

enum Destination {
    Stream,
    /// A file: the path after following links, and its current metadata.
    File(PathBuf, Option<Metadata>),
}

fn destination(path: &Path) -> std::io::Result<Destination> {
    let mut target = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let metadata = match std::fs::symlink_metadata(&target) {
            Ok(metadata) => metadata,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Destination::File(target, None)),
            Err(e) => return Err(e),
        };
        if metadata.is_dir() {
            return Err(std::io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
        }
        if !metadata.is_symlink() {
            if !metadata.is_file() {
                return Ok(Destination::Stream);
            }
            // A file that its owner has protected is not replaced either.
            OpenOptions::new().write(true).open(&target)?;
            return Ok(Destination::File(target, Some(metadata)));
        }
        if target.starts_with("/proc") {
            return Ok(Destination::Stream);
        }
        let link = std::fs::read_link(&target)?;
        target.pop();
        target.push(link);
    }
    Err(std::io::Error::other("too many links"))
}

/// A new file in the same folder; removed when it is dropped before it has taken its place.
struct Pending<'a> {
    target: &'a Path,
    path: PathBuf,
    file: File,
    in_place: bool,
}

impl Pending<'_> {
    fn beside(target: &Path) -> std::io::Result<Pending<'_>> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = COUNTER.fetch_add(1, Relaxed);
            let path = target.with_file_name(format!("{}{}-{number}{}", PENDING.0, std::process::id(), PENDING.1));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    lock(&file);
                    return Ok(Pending { target, path, file, in_place: false });
                }
                // Left by a process of the same number that was killed.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn complete(
        &mut self,
        old: Option<Metadata>,
        fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        if let Some(old) = old {
            self.file.set_permissions(old.permissions())?;
        }
        let mut buffered = BufWriter::new(&self.file);
        fill(&mut buffered)?;
        buffered.flush()?;
        drop(buffered);
        self.file.sync_all()?;
        std::fs::rename(&self.path, self.target)?;
        self.in_place = true;
        // The new name reaches the disk with the folder. Where folders cannot be synchronised it does so later.
        if let Ok(folder) = File::open(folder_of(self.target)) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Locks a file as long as it is open; returns true if no other process has.
#[cfg(target_os = "linux")]
fn lock(file: &File) -> bool {
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// On systems without a known way to lock no file is taken for stale.
#[cfg(not(target_os = "linux"))]
fn lock(_: &File) -> bool {
    false
}

/// Removes what killed writers have left in a folder: a living one has locked its file.
fn remove_stale(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_pending = name.to_str().is_some_and(|name| name.starts_with(PENDING.0) && name.ends_with(PENDING.1));
        let is_old = |metadata: Metadata| {
            let age = metadata.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
            metadata.is_file() && age.is_some_and(|age| age > LOCKED_AFTER)
        };
        if is_pending && entry.metadata().is_ok_and(is_old) && File::open(entry.path()).is_ok_and(|file| lock(&file)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.in_place {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(all(test, unix))]
#[path = "file_tests.rs"]
mod tests;
