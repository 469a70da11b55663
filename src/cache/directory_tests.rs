use super::*;
use std::fs::{OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A cache that is not there yet, in a folder that is removed at the end.
struct Folder {
    path: PathBuf,
    _around: TempDir,
}

impl Folder {
    fn new() -> Folder {
        let around = tempfile::tempdir().unwrap();
        Folder { path: around.path().join("cache"), _around: around }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(&self.path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn set_used(&self, name: &str, seconds_ago: u64) {
        let file = OpenOptions::new().write(true).open(self.path.join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds_ago)).unwrap();
    }
}

fn open(path: &Path) -> Directory {
    Directory::open(path).unwrap_or_else(|e| panic!("{e}"))
}

fn write(
    directory: &Directory,
    name: &str,
    length: u64,
    max_bytes: u64,
    fill: impl Fn(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    directory.write(length, max_bytes, &[(name.to_string(), &fill)])
}

fn put(directory: &Directory, name: &str, bytes: usize, max_bytes: u64) -> io::Result<()> {
    write(directory, name, bytes as u64, max_bytes, |out| out.write_all(&vec![7; bytes]))
}

fn refusal(path: &Path) -> String {
    match Directory::open(path) {
        Err(Unusable::Refused(error)) => error.to_string(),
        Err(Unusable::Failed(error)) => panic!("{error}"),
        Ok(_) => panic!("{} is not refused", path.display()),
    }
}

#[test]
fn a_directory_is_made_for_its_user_alone() {
    let folder = Folder::new();
    let inner = folder.path.join("a/b");
    let directory = open(&inner);
    put(&directory, "x.entry", 5, 100).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&inner), mode(&inner.join("x.entry"))), (0o700, 0o600));
    let mut bytes = vec![];
    directory.read("x.entry").unwrap().unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [7; 5]);
    assert!(directory.read("y.entry").unwrap().is_none());
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let folder = Folder::new();
    open(&folder.path);
    for mode in [0o777, 0o720, 0o702, 0o1777] {
        std::fs::set_permissions(&folder.path, Permissions::from_mode(mode)).unwrap();
        let error = refusal(&folder.path);
        assert!(error.contains("others may write") && error.contains(&format!("{mode:o}")), "{error}");
    }
    std::fs::set_permissions(&folder.path, Permissions::from_mode(0o755)).unwrap();
    let directory = open(&folder.path);
    // A file in place of a directory.
    put(&directory, "x.entry", 5, 100).unwrap();
    assert!(refusal(&folder.path.join("x.entry")).contains("not a directory"));
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let folder = Folder::new();
    open(&folder.path);
    // The superuser gives the folder away; others may not, and try the root of all folders, which is not theirs.
    let path = match std::os::unix::fs::chown(&folder.path, Some(65_534), None) {
        Ok(()) => folder.path.clone(),
        Err(_) => PathBuf::from("/"),
    };
    let error = refusal(&path);
    assert!(error.contains("belongs to user"), "{error}");
}

#[test]
fn files_that_others_may_have_written_are_not_read() {
    let folder = Folder::new();
    let directory = open(&folder.path);
    put(&directory, "x.entry", 5, 100).unwrap();
    for mode in [0o620, 0o602] {
        std::fs::set_permissions(folder.path.join("x.entry"), Permissions::from_mode(mode)).unwrap();
        assert!(directory.read("x.entry").is_err(), "{mode:o}");
    }
    std::fs::set_permissions(folder.path.join("x.entry"), Permissions::from_mode(0o600)).unwrap();
    symlink(folder.path.join("x.entry"), folder.path.join("y.entry")).unwrap();
    assert!(directory.read("x.entry").is_ok() && directory.read("y.entry").is_err());
    if std::os::unix::fs::chown(folder.path.join("x.entry"), Some(65_534), None).is_ok() {
        assert!(directory.read("x.entry").is_err());
    }
    // They are replaced like others.
    for name in ["x.entry", "y.entry"] {
        put(&directory, name, 5, 100).unwrap();
        assert!(directory.read(name).unwrap().is_some());
    }
}

#[test]
fn the_files_that_were_not_used_for_longest_make_room() {
    let folder = Folder::new();
    let directory = open(&folder.path);
    std::fs::write(folder.path.join("notes.txt"), [0; 1000]).unwrap();
    for (name, seconds_ago) in [("a.entry", 10), ("b.entry", 40), ("c.entry", 20), ("d.entry", 30)] {
        put(&directory, name, 25, 100).unwrap();
        folder.set_used(name, seconds_ago);
    }
    put(&directory, "e.entry", 30, 100).unwrap();
    assert_eq!(folder.names(), ["a.entry", "c.entry", "e.entry", "notes.txt"]);
    // A file that is replaced takes no room besides its new one.
    put(&directory, "e.entry", 50, 100).unwrap();
    assert_eq!(folder.names(), ["a.entry", "c.entry", "e.entry", "notes.txt"]);
    put(&directory, "f.entry", 100, 100).unwrap();
    assert_eq!(folder.names(), ["f.entry", "notes.txt"]);
    // What another one wrote meanwhile counts too.
    let other = |out: &mut dyn Write| {
        put(&directory, "g.entry", 60, 200)?;
        folder.set_used("g.entry", 5);
        out.write_all(&[7; 50])
    };
    write(&directory, "h.entry", 50, 100, other).unwrap();
    assert_eq!(folder.names(), ["h.entry", "notes.txt"]);
}

#[test]
fn a_folder_with_the_name_of_an_entry_makes_no_room() {
    let folder = Folder::new();
    let directory = open(&folder.path);
    std::fs::create_dir(folder.path.join("a.entry")).unwrap();
    put(&directory, "b.entry", 60, 100).unwrap();
    folder.set_used("b.entry", 10);
    put(&directory, "c.entry", 60, 100).unwrap();
    assert_eq!(folder.names(), ["a.entry", "c.entry"]);
}

#[test]
fn a_failed_write_leaves_nothing() {
    let folder = Folder::new();
    let directory = open(&folder.path);
    put(&directory, "x.entry", 5, 100).unwrap();
    let full = |out: &mut dyn Write| {
        out.write_all(&[1; 3])?;
        Err(io::ErrorKind::StorageFull.into())
    };
    assert!(write(&directory, "x.entry", 9, 100, full).is_err());
    assert!(write(&directory, "y.entry", 9, 100, full).is_err());
    assert_eq!(folder.names(), ["x.entry"]);
    assert_eq!(std::fs::read(folder.path.join("x.entry")).unwrap(), [7; 5]);
}

#[test]
fn files_of_dead_writers_are_removed() {
    let folder = Folder::new();
    let directory = open(&folder.path);
    for (name, seconds_ago) in [("old", 3600), ("new", 1), ("living", 3600)] {
        let name = format!(".tilewright-{name}.tmp");
        std::fs::write(folder.path.join(&name), [0; 10]).unwrap();
        folder.set_used(&name, seconds_ago);
    }
    let living = File::open(folder.path.join(".tilewright-living.tmp")).unwrap();
    rustix::fs::flock(&living, rustix::fs::FlockOperation::LockExclusive).unwrap();
    put(&directory, "x.entry", 5, 100).unwrap();
    // The new one may not have been locked yet.
    assert_eq!(folder.names(), [".tilewright-living.tmp", ".tilewright-new.tmp", "x.entry"]);
    // A living writer is left alone by others that write meanwhile, and its bytes count.
    let inside = |out: &mut dyn Write| {
        let pending: Vec<String> = folder.names().into_iter().filter(|name| name.ends_with("-0.tmp")).collect();
        pending.iter().for_each(|name| folder.set_used(name, 3600));
        put(&directory, "y.entry", 5, 1000)?;
        out.write_all(&[1; 5])
    };
    write(&directory, "z.entry", 5, 1000, inside).unwrap();
    assert!(folder.names().contains(&"z.entry".to_string()));
}

#[test]
fn any_number_of_writers_leave_whole_files() {
    let folder = Folder::new();
    let paths = [&folder.path; 4];
    std::thread::scope(|scope| {
        for (i, path) in paths.into_iter().enumerate() {
            scope.spawn(move || {
                for _ in 0..40 {
                    let directory = open(path);
                    let fill = |out: &mut dyn Write| out.write_all(&vec![i as u8; 3000]);
                    // room for the entry and a file of each writer: nothing is removed
                    write(&directory, "x.entry", 3000, 5 * 3000, fill).unwrap();
                    let mut bytes = vec![];
                    directory.read("x.entry").unwrap().unwrap().read_to_end(&mut bytes).unwrap();
                    assert!(bytes.len() == 3000 && bytes.iter().all(|b| *b == bytes[0]));
                }
            });
        }
    });
    assert_eq!(folder.names(), ["x.entry"]);
}
