//! The C interface as programs in C and C++ see it: the header, the examples, wrong use, the symbols of the library.

#[path = "../skip/mod.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tilewright::{Isa, Target};

const MODEL: &str = "tests/fixtures/operators/matmul_bias_relu.onnx";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|p| p.join("datasets").is_dir()).expect("the repository")
}

fn folder_of_header() -> PathBuf {
    root().join("src/capi")
}

/// The folder in which cargo has left the library: that of this test.
fn folder_of_library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// A folder of a test's own, with the library under the names of its installation, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tilewright-capi-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let library = folder_of_library().join("libtilewright_capi.so");
        for name in ["libtilewright.so.1", "libtilewright.so"] {
            std::os::unix::fs::symlink(&library, path.join(name)).unwrap();
        }
        Folder(path)
    }

    /// Builds a program with warnings as errors; `None` where there is no compiler.
    fn build(&self, compiler: &str, arguments: &[&str], source: &str) -> Option<PathBuf> {
        if !Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success()) {
            skip::not_installed(&format!("the package {compiler}, to build programs"));
            return None;
        }
        let program = self.0.join("program");
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-pthread"]).args(arguments);
        command.arg("-I").arg(folder_of_header()).arg("-o").arg(&program).arg(root().join(source));
        command.arg("-L").arg(&self.0).arg("-ltilewright");
        succeeds(&mut command);
        Some(program)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }

    /// A program that finds the library here.
    fn run(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(root()).env("LD_LIBRARY_PATH", &self.0);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (text, error) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{text}{error}");
    text.into_owned()
}

#[test]
fn the_header_is_what_the_sources_declare() {
    let folder = folder_of_header();
    let configuration = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let mut bindings = cbindgen::Builder::new().with_config(configuration);
    for file in ["entry", "handle", "options", "run", "session", "status", "tensor"] {
        bindings = bindings.with_src(folder.join(file).with_extension("rs"));
    }
    let mut generated = vec![];
    bindings.generate().unwrap().write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();
    let path = folder.join("tilewright.h");
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == generated,
        "src/capi/tilewright.h is old: TILEWRIGHT_BLESS=1 cargo test -p tilewright-capi writes it"
    );
}

#[test]
fn the_examples_run() {
    let folder = Folder::new("examples");
    let Some(program) = folder.build("gcc", &["-std=c99"], "examples/c/run_model.c") else { return };
    let text = succeeds(folder.run(&program).arg(MODEL));
    assert!(text.contains("input a: type 1, shape [5, 20], 400 bytes\noutput y: type 1, shape [5, 33]"), "{text}");
    let program_text = "datasets/polybench/gemm.tile";
    let text = succeeds(folder.run(&program).args([program_text, "NI=3", "NJ=4", "NK=5"]));
    assert!(text.contains("output C: type 0, shape [3, 4], 96 bytes\n"), "{text}");
    let failed = folder.run(&program).arg("README.md").output().unwrap();
    assert!(failed.status.code() == Some(1) && !failed.stderr.is_empty());
    let Some(program) = folder.build("g++", &["-std=c++17"], "examples/c/run_model.cpp") else { return };
    assert_eq!(succeeds(folder.run(&program).arg(MODEL)), "y: 660 bytes\n");
}

/// The lines of C that the page of linking shows of the interface.
#[test]
fn the_page_shows_a_program_that_runs() {
    let page = std::fs::read_to_string(root().join("docs/linking.md")).unwrap();
    let lines = page.split("```c\n").find(|block| block.starts_with("tilewright_session session;")).unwrap();
    let lines = lines.split("```").next().unwrap();
    let folder = Folder::new("page");
    std::os::unix::fs::symlink(root().join(MODEL), folder.0.join("model.onnx")).unwrap();
    let text = format!(
        "#include <stdio.h>\n#include \"tilewright.h\"\nstatic float x[5 * 20], y[5 * 33];\n\
         int main(void) {{\n    y[0] = -1;\n{lines}    return y[0] < 0;\n}}\n"
    );
    std::fs::write(folder.0.join("page.c"), text).unwrap();
    let Some(program) = folder.build("gcc", &["-std=c99"], &folder.file("page.c")) else { return };
    assert_eq!(succeeds(folder.run(&program).current_dir(&folder.0)), "");
}

#[test]
fn an_installed_library_is_found_by_pkg_config() {
    if !Command::new("pkg-config").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip::not_installed("the package pkg-config");
    }
    let folder = Folder::new("install");
    let built = folder.0.join("built");
    std::fs::create_dir(&built).unwrap();
    let library = "libtilewright_capi.so";
    std::os::unix::fs::symlink(folder_of_library().join(library), built.join(library)).unwrap();
    // the archives are large, and nothing is linked with them here
    for archive in ["libtilewright_capi.a", "libtilewright_runtime.a"] {
        std::fs::write(built.join(archive), archive).unwrap();
    }
    let prefix = folder.0.join("prefix");
    succeeds(Command::new(root().join("scripts/install")).arg(&prefix).arg("").arg(&built));
    let ask = |options: &[&str]| {
        let mut command = Command::new("pkg-config");
        succeeds(command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(options).arg("tilewright"))
    };
    assert_eq!(ask(&["--modversion"]).trim_end(), env!("CARGO_PKG_VERSION"));
    let flags = ask(&["--cflags", "--libs"]);
    let program = folder.0.join("program");
    let mut compile = Command::new("gcc");
    compile.args(["-std=c99", "-o"]).arg(&program).arg(root().join("examples/c/run_model.c"));
    succeeds(compile.args(flags.split_whitespace()));
    let mut run = Command::new(&program);
    run.current_dir(root()).env("LD_LIBRARY_PATH", prefix.join("lib"));
    assert!(succeeds(run.arg(MODEL)).contains("output y"));
}

#[test]
fn wrong_use_is_a_status() {
    let folder = Folder::new("wrong");
    let Some(program) = folder.build("gcc", &["-std=c99"], "tests/capi/wrong_use.c") else { return };
    for target in Target::all().into_iter().filter(Target::runs_on_host) {
        let text = succeeds(folder.run(&program).args([MODEL, &target.name, &folder.file("m.tw")]));
        assert_eq!(text, "0 failures\n", "{}", target.name);
        let mut kept = std::fs::read_dir(folder.file("m.tw.cache")).unwrap().map(|entry| entry.unwrap().path());
        assert!(kept.any(|path| path.extension().is_some_and(|e| e == "entry")), "nothing is cached");
    }
}

#[test]
fn a_forked_process_uses_the_library() {
    let folder = Folder::new("fork");
    let Some(program) = folder.build("gcc", &["-std=c99"], "tests/capi/fork.c") else { return };
    let text = succeeds(folder.run(&program).args([MODEL, &Target::host().unwrap().name]));
    assert_eq!(text, "0 failures\n");
}

/// Valgrind knows no AVX-512.
#[test]
fn memory_is_used_as_it_may_be() {
    let Some(target) = Target::all().into_iter().find(|t| t.isa == Isa::Avx2 && t.runs_on_host()) else {
        return skip::no_hardware("AVX2, for code that valgrind runs");
    };
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip::not_installed("the package valgrind");
    }
    let folder = Folder::new("valgrind");
    let Some(program) = folder.build("gcc", &["-std=c99", "-g"], "tests/capi/wrong_use.c") else { return };
    let mut command = folder.run("valgrind");
    command.args([
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
    ]);
    let text = succeeds(command.arg(&program).args([MODEL, &target.name, &folder.file("m.tw")]));
    assert_eq!(text, "0 failures\n");
}

#[test]
fn the_library_exports_its_functions_alone() {
    let library = folder_of_library().join("libtilewright_capi.so");
    let text = succeeds(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert!(names.len() > 15 && names.iter().all(|name| name.starts_with("tilewright_")), "{names:?}");
    let header = std::fs::read_to_string(folder_of_header().join("tilewright.h")).unwrap();
    // drivers of object files call this one, which their own text declares
    let declared = |name: &&&str| header.contains(&format!(" {name}(")) || header.contains(&format!("*{name}("));
    let missing: Vec<_> = names.iter().filter(|name| !declared(name)).collect();
    assert_eq!(missing, [&"tilewright_opaque_1"]);
    let dynamic = succeeds(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("libtilewright.so.1"), "{dynamic}");
}
