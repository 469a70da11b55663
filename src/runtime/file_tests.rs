//! Old or new contents, whole, at every moment; nothing left behind.

use super::*;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A fresh folder, and a file `f` in it that says `old`.
fn fresh(name: &str) -> (PathBuf, PathBuf) {
    let folder = std::env::temp_dir().join(format!("tilewright-file-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("f");
    std::fs::write(&file, "old").unwrap();
    (folder, file)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn put<'a>(text: &'a str) -> impl FnOnce(&mut dyn Write) -> std::io::Result<()> + 'a {
    move |out| out.write_all(text.as_bytes())
}

#[test]
fn readers_see_the_old_contents_until_the_new_ones_are_whole() {
    let (folder, file) = fresh("readers");
    let mut reader = File::open(&file).unwrap();
    write(&file, |out| {
        out.write_all(&[b'n'; 100_000])?;
        out.flush()?;
        assert_eq!(std::fs::read(&file)?, b"old");
        out.write_all(b"ew")
    })
    .unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    assert_eq!(std::fs::read(&file).unwrap().len(), 100_002);
    assert_eq!(names(&folder), ["f"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_failure_leaves_the_old_file_and_no_other() {
    let (folder, file) = fresh("failure");
    let error = write(&file, |out| {
        out.write_all(&[0; 100_000])?;
        Err(std::io::Error::other("no space"))
    });
    assert!(matches!(error, Err(Error::Io(m)) if m.contains("no space") && m.contains("/f")));
    assert_eq!(std::fs::read(&file).unwrap(), b"old");
    let panicked = std::panic::catch_unwind(|| write(&file, |_| panic!("wanted")));
    assert!(panicked.is_err());
    assert_eq!((names(&folder), std::fs::read(&file).unwrap()), (vec!["f".to_string()], b"old".to_vec()));
    assert!(write(&folder, put("x")).unwrap_err().to_string().contains("folder"));
    assert!(write(&folder.join("none/f"), put("x")).is_err());
    check_writable(&file).unwrap();
    check_writable(&folder.join("new")).unwrap();
    assert!(check_writable(&folder).is_err());
    assert_eq!(names(&folder), ["f"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn permissions_and_links_stay() {
    let (folder, file) = fresh("links");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let (link, dangling) = (folder.join("link"), folder.join("dangling"));
    symlink("f", &link).unwrap();
    symlink("made", &dangling).unwrap();
    write(&link, put("new")).unwrap();
    write(&dangling, put("made")).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read(&file).unwrap(), b"new");
    assert_eq!(std::fs::read(folder.join("made")).unwrap(), b"made");
    assert_eq!(names(&folder), ["dangling", "f", "link", "made"]);
    symlink("loop", folder.join("loop")).unwrap();
    assert!(write(&folder.join("loop"), put("x")).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn streams_are_written_straight_to() {
    write(Path::new("/dev/null"), put("x")).unwrap();
    assert!(Path::new("/dev/null").exists());
    if Path::new("/dev/full").exists() {
        assert!(write(Path::new("/dev/full"), put("x")).is_err());
    }
    assert!(open(Path::new("/dev/zero")).unwrap_err().to_string().contains("regular"));
}

#[test]
fn writers_of_one_file_do_not_mix() {
    let (folder, file) = fresh("writers");
    std::thread::scope(|scope| {
        for letter in ["a", "b", "c"] {
            let file = &file;
            scope.spawn(move || {
                for _ in 0..10 {
                    write(file, put(&letter.repeat(50_000))).unwrap();
                }
            });
        }
    });
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.len() == 50_000 && text.chars().all(|c| text.starts_with(c)));
    assert_eq!(names(&folder), ["f"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn what_killed_writers_leave_is_removed() {
    let (folder, file) = fresh("stale");
    let long_ago = SystemTime::now() - 2 * LOCKED_AFTER;
    let leave = |name: &str, modified: SystemTime| {
        let left = File::create(folder.join(name)).unwrap();
        left.set_modified(modified).unwrap();
        left
    };
    let living = leave(".tilewright-1-0.tmp", long_ago);
    assert!(lock(&living));
    drop(leave(".tilewright-2-0.tmp", long_ago));
    drop(leave(".tilewright-3-0.tmp", SystemTime::now()));
    drop(leave("others.tmp", long_ago));
    write(&file, put("new")).unwrap();
    assert_eq!(names(&folder), [".tilewright-1-0.tmp", ".tilewright-3-0.tmp", "f", "others.tmp"]);
    drop(living);
    write(&file, put("newer")).unwrap();
    assert_eq!(names(&folder), [".tilewright-3-0.tmp", "f", "others.tmp"]);
    std::fs::remove_dir_all(folder).unwrap();
}
