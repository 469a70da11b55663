//! `--cache` with several processes: at once, killed, without room on the disk.
#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;

use common::root;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const MODEL: &str = "tests/fixtures/operators/pattern_residual_block.onnx";
const PROGRAM: &str = "datasets/programs/edit_distance.tile";

/// A folder with a cache, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_string()
    }

    /// The files of the cache.
    fn names(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.0.path().join("cache")).into_iter().flatten();
        files.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The number of modules in the cache; the other files of its programs are kernels.
    fn modules(&self) -> usize {
        let names = self.names();
        assert!(names.iter().any(|name| name.ends_with(".kernel")) && names.iter().all(|name| !name.ends_with(".tmp")));
        names.iter().filter(|name| name.ends_with(".entry")).count()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.current_dir(root()).arg("--quiet").args(arguments).args(["--cache", &self.path("cache")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> (String, String) {
        finished(self.command(arguments).output().unwrap())
    }
}

/// Standard output and standard error of a success.
fn finished(output: Output) -> (String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, error) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{error}");
    (out, error)
}

#[test]
fn a_second_command_takes_the_module_of_the_first() {
    let folder = Folder::new();
    let compile = |name: &str| folder.run(&["compile", MODEL, "-o", &folder.path(name)]).0;
    let (first, second) = (compile("first.tw"), compile("second.tw"));
    assert!(!first.contains("from the cache") && second.contains("now from the cache"), "{first}{second}");
    let file = |name: &str| std::fs::read(folder.path(name)).unwrap();
    assert!(file("first.tw") == file("second.tw"));
    // The other commands use the same entry, with the same outputs as without it.
    let outputs = |output: (String, String)| output.0;
    let cached = outputs(folder.run(&["run", MODEL]));
    assert_eq!(folder.modules(), 1);
    let without =
        Command::new(env!("CARGO_BIN_EXE_tilewright")).current_dir(root()).args(["--quiet", "run", MODEL]).output();
    assert_eq!(cached, finished(without.unwrap()).0);
    folder.run(&["bench", MODEL, "--seconds", "0.01"]);
    assert_eq!(folder.modules(), 1);
    // Other options have another entry.
    folder.run(&["run", MODEL, "--algorithm", "direct", "--cache-mib", "100"]);
    assert_eq!(folder.modules(), 2);
    folder.run(&["run", PROGRAM, "--dim", "N=8"]);
    assert_eq!(folder.modules(), 3);
    // A module is compiled already.
    let refused = folder.command(&["run", &folder.path("first.tw")]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("do not pass `--cache`"));
}

#[test]
fn processes_that_compile_the_same_at_once_agree() {
    let folder = Folder::new();
    let start = |_| folder.command(&["run", MODEL]).spawn().unwrap();
    let children: Vec<Child> = (0..4).map(start).collect();
    let outputs: Vec<(String, String)> =
        children.into_iter().map(|child| finished(child.wait_with_output().unwrap())).collect();
    assert!(outputs.iter().all(|output| *output == outputs[0]), "{outputs:?}");
    assert_eq!(folder.modules(), 1);
}

#[test]
fn a_process_that_is_killed_leaves_no_torn_entry() {
    let folder = Folder::new();
    let expected = folder.run(&["run", MODEL]);
    let entries = folder.names();
    for milliseconds in [0, 2, 5, 10, 20, 40, 80, 160, 320] {
        std::fs::remove_dir_all(folder.0.path().join("cache")).unwrap();
        let mut child = folder.command(&["run", MODEL]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        // Whatever it left, the next one works, and leaves the same entry.
        assert_eq!(folder.run(&["run", MODEL]), expected);
        assert!(entries.iter().all(|entry| folder.names().contains(entry)));
    }
}

#[test]
fn a_full_disk_costs_the_entry_and_nothing_else() {
    let folder = Folder::new();
    let expected = folder.run(&["run", MODEL]);
    std::fs::remove_dir_all(folder.0.path().join("cache")).unwrap();
    // A limit on the size of files is met in the middle of writing, as a full disk is.
    let limited = "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\"";
    let binary = env!("CARGO_BIN_EXE_tilewright");
    let mut command = Command::new("sh");
    command.current_dir(root()).args([
        "-c",
        limited,
        binary,
        "--quiet",
        "run",
        MODEL,
        "--cache",
        &folder.path("cache"),
    ]);
    let (out, error) = finished(command.output().unwrap());
    assert_eq!(out, expected.0);
    assert!(error.contains("warning: the module is not kept in the cache"), "{error}");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

#[test]
fn a_cache_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    std::fs::create_dir(folder.0.path().join("cache")).unwrap();
    std::fs::set_permissions(folder.0.path().join("cache"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = folder.command(&["run", MODEL]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
    assert!(error.contains("others may write to it (mode 777)") && error.contains("chmod go-w"), "{error}");
}
