//! The directory of the cache: whose it is, and files that appear and vanish whole.
//!
//! Invariants: the directory and each file that is read belong to this user, and nobody else may write there. All is done
//! relative to the open directory, so that a path that is changed under it changes nothing. A file has its name only when it
//! is complete; a writer that ends early leaves a file without a name of an entry, which the next writer removes. Files that
//! are read or mapped keep their contents when they are replaced or removed.

use crate::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// End of the names of entries: of modules and what leads to them, and of kernels.
pub const EXTENSIONS: [&str; 2] = [".entry", ".kernel"];

/// Writes the contents of a file.
pub type Fill<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;

/// Why a directory cannot be used.
pub enum Unusable {
    /// It is not safe, or is not a directory.
    Refused(Error),
    Failed(io::Error),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Unusable::Refused(error) => error.fmt(f),
            Unusable::Failed(error) => error.fmt(f),
        }
    }
}

#[cfg(unix)]
pub use here::Directory;

#[cfg(unix)]
mod here {
    use super::*;
    use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, openat, renameat, unlinkat};
    use std::io::{BufWriter, ErrorKind};
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, SystemTime};

    /// Start and end of the names of files that are being written.
    const PENDING: (&str, &str) = (".tilewright-", ".tmp");
    /// A writer has locked its file when that is older than this.
    const LOCKED_AFTER: Duration = Duration::from_secs(60);
    /// Where files cannot be locked, a writer is taken for dead after this.
    const DEAD_AFTER: Duration = Duration::from_secs(24 * 3600);
    /// Bits of a mode that let others write.
    const OTHERS_WRITE: u32 = 0o022;

    /// An open directory.
    pub struct Directory(File);

    /// A file that is there for others to read.
    struct CacheFile {
        used: SystemTime,
        name: String,
        bytes: u64,
    }

    impl Directory {
        /// Opens a directory, which is made where there is none.
        pub fn open(path: &Path) -> Result<Directory, Unusable> {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            let flags = (OFlags::DIRECTORY | OFlags::CLOEXEC).bits() as i32;
            let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
            let refused = |why: String| Unusable::Refused(Error::Invalid(format!("cache {}: {why}", path.display())));
            let directory = match opened {
                Ok(directory) => directory,
                Err(e) if e.kind() == ErrorKind::NotADirectory => return Err(refused("it is not a directory".into())),
                Err(e) => return Err(Unusable::Failed(made.err().unwrap_or(e))),
            };
            let metadata = directory.metadata().map_err(Unusable::Failed)?;
            let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
            if owner != user {
                return Err(refused(format!(
                    "it belongs to user {owner}, not to user {user}, who would run what is in it: name a directory of your own"
                )));
            }
            if metadata.mode() & OTHERS_WRITE != 0 {
                let mode = metadata.mode() & 0o7777;
                return Err(refused(format!(
                    "others may write to it (mode {mode:o}), and what is in it is run: take that right away with `chmod go-w`"
                )));
            }
            Ok(Directory(directory))
        }

        /// Opens a file to read; `None` where there is none.
        ///
        /// # Errors
        /// The reason why it must not be used.
        pub fn read(&self, name: &str) -> Result<Option<File>, String> {
            let file = match self.open_file(name) {
                Ok(file) => file,
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e.to_string()),
            };
            let metadata = file.metadata().map_err(|e| e.to_string())?;
            let own = metadata.uid() == rustix::process::geteuid().as_raw();
            if !metadata.is_file() || !own || metadata.mode() & OTHERS_WRITE != 0 {
                return Err("it is not a file that this user alone may write".into());
            }
            Ok(Some(file))
        }

        fn open_file(&self, name: &str) -> io::Result<File> {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            Ok(openat(&self.0, name, flags, Mode::empty())?.into())
        }

        /// Writes files of `length` bytes together, each with its name and what fills it, and removes those that were not used for
        /// longest, so that all together have at most `max_bytes`.
        pub fn write(&self, length: u64, max_bytes: u64, files: &[(String, Fill)]) -> io::Result<()> {
            let names: Vec<&str> = files.iter().map(|(name, _)| &name[..]).collect();
            self.make_room(length, max_bytes, &names)?;
            files.iter().try_for_each(|(name, fill)| self.add(name, fill))?;
            // Another writer may have taken the room meanwhile.
            self.make_room(0, max_bytes, &[])
        }

        fn add(&self, name: &str, fill: Fill) -> io::Result<()> {
            let mut pending = Pending::new(self)?;
            let mut out = BufWriter::new(&pending.file);
            fill(&mut out)?;
            out.flush()?;
            drop(out);
            pending.file.set_modified(SystemTime::now())?;
            renameat(&self.0, &pending.name, &self.0, name)?;
            pending.complete = true;
            Ok(())
        }

        /// Removes files until `bytes` more fit, not counting `replaced`.
        fn make_room(&self, bytes: u64, max_bytes: u64, replaced: &[&str]) -> io::Result<()> {
            let mut files = self.files()?;
            files.retain(|file| !replaced.contains(&&file.name[..]));
            files.sort_by(|a, b| (a.used, &a.name).cmp(&(b.used, &b.name)));
            let mut total = files.iter().fold(bytes, |sum, file| sum.saturating_add(file.bytes));
            for file in files {
                if total <= max_bytes {
                    break;
                }
                if is_entry(&file.name) {
                    self.remove(&file.name)?;
                    total -= file.bytes;
                }
            }
            Ok(())
        }

        /// Entries, and files of living writers. Those of dead ones are removed; what else is there is not the cache's.
        fn files(&self) -> io::Result<Vec<CacheFile>> {
            let mut files = vec![];
            for file_entry in Dir::read_from(&self.0)? {
                let file_entry = file_entry?;
                let Ok(name) = file_entry.file_name().to_str() else { continue };
                let pending = name.starts_with(PENDING.0) && name.ends_with(PENDING.1);
                if !pending && !is_entry(name) {
                    continue;
                }
                // Another process may have removed it.
                let Ok(file) = self.open_file(name) else { continue };
                let metadata = file.metadata()?;
                if !metadata.is_file() {
                    continue;
                }
                let used = metadata.modified()?;
                if pending && is_dead(&file, used) {
                    self.remove(name)?;
                    continue;
                }
                files.push(CacheFile { used, name: name.to_string(), bytes: metadata.len() });
            }
            Ok(files)
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            match unlinkat(&self.0, name, AtFlags::empty()) {
                Err(rustix::io::Errno::NOENT) | Ok(()) => Ok(()),
                Err(e) => Err(e.into()),
            }
        }
    }

    fn is_entry(name: &str) -> bool {
        EXTENSIONS.iter().any(|extension| name.ends_with(extension))
    }

    /// Returns true if nobody writes a pending file any more: a living writer has locked it.
    fn is_dead(file: &File, modified: SystemTime) -> bool {
        let age = SystemTime::now().duration_since(modified).unwrap_or_default();
        if age <= LOCKED_AFTER {
            // a lock that is tried here might keep the writer from taking its own
            return false;
        }
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => true,
            Err(rustix::io::Errno::WOULDBLOCK) => false,
            Err(_) => age > DEAD_AFTER,
        }
    }

    /// A file that is being written; removed when it is dropped before it is complete.
    struct Pending<'a> {
        directory: &'a Directory,
        name: String,
        file: File,
        complete: bool,
    }

    impl Pending<'_> {
        fn new(directory: &Directory) -> io::Result<Pending<'_>> {
            static COUNTER: AtomicU64 = AtomicU64::new(0);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            loop {
                let number = COUNTER.fetch_add(1, Ordering::Relaxed);
                let name = format!("{}{}-{number}{}", PENDING.0, std::process::id(), PENDING.1);
                match openat(&directory.0, &name, flags, Mode::RUSR | Mode::WUSR) {
                    Ok(file) => {
                        // Where files cannot be locked, the age decides.
                        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
                        return Ok(Pending { directory, name, file: file.into(), complete: false });
                    }
                    // Left by a process of the same number that was killed.
                    Err(rustix::io::Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
    }

    impl Drop for Pending<'_> {
        fn drop(&mut self) {
            if !self.complete {
                let _ = self.directory.remove(&self.name);
            }
        }
    }
}

/// A directory of a system whose files have no owner and mode, so that no directory is safe.
#[cfg(not(unix))]
pub struct Directory;

#[cfg(not(unix))]
impl Directory {
    pub fn open(path: &Path) -> Result<Directory, Unusable> {
        let why = format!("cache {}: this system does not say who may write to a directory", path.display());
        Err(Unusable::Refused(Error::Unsupported(why)))
    }

    pub fn read(&self, _: &str) -> Result<Option<File>, String> {
        Ok(None)
    }

    pub fn write(&self, _: u64, _: u64, _: &[(String, Fill)]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, unix))]
#[path = "directory_tests.rs"]
mod tests;
