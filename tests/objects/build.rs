//! Builds programs in C of object files and runs them.

use crate::common::{root, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tilewright::internal::runtime::bounds::{at_capacity, count_of, resized};
use tilewright::module::TensorSpec;
use tilewright::{AsView, Module, ObjectFiles, ObjectOptions, Tensor};

/// A module and inputs for one of its bindings, in its order.
pub struct Case {
    pub name: String,
    pub module: Arc<Module>,
    /// Number of the binding.
    pub binding: usize,
    /// The sizes that choose it, in alphabetical order of the dimensions.
    pub sizes: Vec<i64>,
    /// Without the one that holds the count of what grows; of exact sizes.
    pub inputs: Vec<Tensor>,
}

impl Case {
    /// A module of one binding.
    pub fn new(name: String, module: Arc<Module>, inputs: Vec<Tensor>) -> Case {
        Case { name, module, binding: 0, sizes: vec![], inputs }
    }

    /// The binding.
    pub fn bound(&self) -> &Module {
        self.module.bindings().nth(self.binding).unwrap()
    }

    /// The input that holds the count.
    fn counted(&self) -> Option<&str> {
        self.module.bounds().map(|bounds| bounds.input.as_str())
    }

    /// The bytes of all inputs of the binding, in its order.
    fn module_inputs(&self) -> Vec<u8> {
        let Some(bounds) = self.bound().bounds() else { return bits(&self.inputs).concat() };
        let specs = self.bound().inputs();
        let shapes: Vec<(&str, &[i64])> = specs.iter().map(|spec| (&*spec.name, &spec.shape[..])).collect();
        let given = specs.iter().filter(|spec| spec.name != bounds.input);
        let views: Vec<_> = given.map(|spec| &*spec.name).zip(self.inputs.iter().map(AsView::view)).collect();
        let count = count_of(bounds, &shapes, &views).unwrap();
        let all = at_capacity(bounds, &shapes, &views, count).unwrap();
        let tensor = |spec: &TensorSpec| all.iter().find(|input| input.0 == spec.name).unwrap().1.data.to_vec();
        specs.iter().flat_map(tensor).collect()
    }

    /// The inputs as the arrays that C programs give: what grows at its capacity, with zeros at the end.
    fn arrays(&self) -> Vec<Tensor> {
        let specs = self.bound().inputs().iter().filter(|spec| Some(spec.name.as_str()) != self.counted());
        specs.zip(&self.inputs).map(|(spec, tensor)| resized(&tensor.view(), &spec.shape)).collect()
    }
}

/// A folder of a test's own, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tilewright-objects-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns true if a program can be started.
pub fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs a command to its end.
fn finish(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output.stdout
}

pub fn bits(outputs: &[Tensor]) -> Vec<Vec<u8>> {
    outputs.iter().map(|tensor| tensor.data.to_vec()).collect()
}

/// A compiler and what runs its programs.
pub struct Toolchain {
    compiler: &'static str,
    /// Words in front of a program.
    emulator: &'static [&'static str],
    /// The architecture, where it is not this one.
    cross: Option<&'static str>,
}

impl Toolchain {
    /// The compiler of this machine.
    pub fn host() -> Option<Toolchain> {
        match runs("gcc") {
            true => Some(Toolchain { compiler: "gcc", emulator: &[], cross: None }),
            false => {
                skip::not_installed("the package gcc, to build programs in C");
                None
            }
        }
    }

    /// A compiler for AArch64, and the emulator.
    pub fn emulated() -> Option<Toolchain> {
        const EMULATOR: &[&str] = &["qemu-aarch64-static", "-cpu", "max"];
        let compiler = "aarch64-linux-gnu-gcc";
        for (program, package) in [(EMULATOR[0], "qemu-user-static"), (compiler, "gcc-aarch64-linux-gnu")] {
            if !runs(program) {
                skip::not_installed(&format!("the package {package}, to run AArch64 code"));
                return None;
            }
        }
        Some(Toolchain { compiler, emulator: EMULATOR, cross: Some("aarch64-unknown-linux-gnu") })
    }

    /// `gcc` with warnings as errors.
    pub fn compile(&self, folder: &Folder) -> Command {
        let mut command = Command::new(self.compiler);
        command.current_dir(&folder.0);
        command.args(["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"]);
        // the emulator has no libraries of the other architecture
        command.args(self.cross.map(|_| "-static"));
        command
    }

    /// A program with its emulator.
    pub fn run(&self, folder: &Folder, program: &str) -> Command {
        let program = folder.0.join(program);
        let mut command = match self.emulator {
            [] => Command::new(program),
            [emulator, arguments @ ..] => {
                let mut command = Command::new(emulator);
                command.args(arguments).arg(program);
                command
            }
        };
        command.current_dir(&folder.0);
        command
    }

    /// `cargo`, for the package of the runtime.
    fn cargo(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(root()).args(words).args(["--package", "tilewright-runtime"]);
        if let Some(target) = self.cross {
            command.args(["--target", target]).env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", self.compiler);
            command.args(["--config", "target.aarch64-unknown-linux-gnu.rustflags=[\"-Ctarget-feature=+crt-static\"]"]);
        }
        command
    }

    /// The folder in which cargo leaves what it builds for this toolchain.
    fn built(&self) -> PathBuf {
        // this test is in target/debug/deps
        let test = std::env::current_exe().unwrap();
        let debug = test.ancestors().nth(2).unwrap();
        match self.cross {
            Some(target) => debug.parent().unwrap().join(target).join("debug"),
            None => debug.to_path_buf(),
        }
    }

    /// Builds `libtilewright_runtime.a`.
    pub fn has_runtime(&self) -> bool {
        finish(&mut self.cargo(&["rustc", "--lib", "--crate-type", "staticlib"]));
        self.built().join("libtilewright_runtime.a").exists()
    }

    /// Adds the archive of the runtime where a case needs it.
    fn link_runtime<'c>(&self, compile: &'c mut Command, cases: &[Case]) -> &'c mut Command {
        let files = |case: &Case| ObjectFiles::new(&case.module, &ObjectOptions::default()).unwrap();
        if cases.iter().any(|case| !files(case).runtime_functions.is_empty()) {
            compile.arg(self.built().join("libtilewright_runtime.a")).args(["-lm", "-ldl", "-lpthread"]);
        }
        compile
    }

    /// The outputs of the library itself, in a program for this toolchain. `None` where Rust has no library for it.
    pub fn library_outputs(&self, cases: &[Case]) -> Option<Vec<Vec<Vec<u8>>>> {
        let sysroot = finish(Command::new("rustc").current_dir(root()).args(["--print", "sysroot"]));
        let library = Path::new(String::from_utf8_lossy(&sysroot).trim()).join("lib/rustlib").join(self.cross?);
        if !library.exists() {
            skip::not_installed("the standard library for AArch64 (rustup target add aarch64-unknown-linux-gnu)");
            return None;
        }
        finish(&mut self.cargo(&["build", "--example", "run_module"]));
        let folder = Folder::new("library");
        let mut names = vec![];
        for (i, case) in cases.iter().enumerate() {
            case.bound().save(folder.0.join(format!("{i}.tw"))).unwrap();
            std::fs::write(folder.0.join(format!("{i}.in")), case.module_inputs()).unwrap();
            names.push(i.to_string());
        }
        let program = self.built().join("examples/run_module");
        let mut command = Command::new(self.emulator[0]);
        finish(command.args(&self.emulator[1..]).arg(program).args(names).current_dir(&folder.0));
        Some(
            cases
                .iter()
                .enumerate()
                .map(|(i, case)| read_outputs(&folder, &format!("{i}.out"), case.bound()))
                .collect(),
        )
    }

    /// Runs a case that fails; returns the message.
    pub fn failure(&self, folder: &Folder, case: &Case) -> String {
        write_files(folder, case, 0, false);
        std::fs::write(folder.0.join("main.c"), main_text(std::slice::from_ref(case), false)).unwrap();
        std::fs::write(folder.0.join("0.in"), bits(&case.arrays()).concat()).unwrap();
        let mut compile = self.compile(folder);
        compile.args(["-o", "main", "main.c", "m0.c", "m0.o"]);
        finish(self.link_runtime(&mut compile, std::slice::from_ref(case)));
        let output = self.run(folder, "main").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a program in C on the object of a case; returns what it prints. `options` are the compiler's.
    pub fn program(&self, folder: &Folder, case: &Case, weights_apart: bool, source: &str, options: &[&str]) -> String {
        write_files(folder, case, 0, weights_apart);
        std::fs::write(folder.0.join("main.c"), source).unwrap();
        std::fs::write(folder.0.join("0.in"), bits(&case.arrays()).concat()).unwrap();
        finish(self.compile(folder).args(options).args(["-o", "main", "main.c", "m0.c", "m0.o"]));
        String::from_utf8(finish(&mut self.run(folder, "main"))).unwrap()
    }

    /// Steps through each kernel of a case, in a debugger; returns after how many of its instructions the stack leads to `main`,
    /// and of how many.
    pub fn unwind(&self, folder: &Folder, case: &Case) -> (usize, usize) {
        write_files(folder, case, 0, false);
        std::fs::write(folder.0.join("main.c"), main_text(std::slice::from_ref(case), false)).unwrap();
        std::fs::write(folder.0.join("0.in"), bits(&case.arrays()).concat()).unwrap();
        finish(self.compile(folder).args(["-g", "-DSERIAL", "-o", "main", "main.c", "m0.c", "m0.o"]));
        std::fs::write(folder.0.join("script.py"), SCRIPT).unwrap();
        let mut gdb = Command::new("gdb");
        gdb.current_dir(&folder.0).args(["-q", "-batch", "-nx", "-ex", "set debuginfod enabled off"]);
        let text = finish(gdb.args(["-ex", "source script.py", "main"]));
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find_map(|line| line.strip_prefix("unwound ")).unwrap_or_else(|| panic!("{text}"));
        let numbers: Vec<usize> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        (numbers[0], numbers[1])
    }
}

/// Stops at each phase, and looks at the stack behind each of its first and last instructions.
const SCRIPT: &str = r#"
import gdb
gdb.execute("set pagination off")
symbols = [line.split()[-1] for line in gdb.execute("info functions ^m0_kernel_", to_string=True).splitlines() if " m0_kernel_" in line]
for symbol in symbols:
    gdb.execute("break *&%s" % symbol, to_string=True)
gdb.execute("run", to_string=True)
seen = total = 0
def look():
    global seen, total
    names, frame = [], gdb.newest_frame()
    while frame is not None and len(names) < 20:
        names.append(frame.name())
        frame = frame.older()
    total += 1
    if names[0].startswith("m0_kernel_") and "main" in names and "m0_steps" in names or "m0_run" in names and "main" in names:
        seen += 1
phases = 0
while gdb.selected_inferior().pid and phases < 4:
    phases += 1
    name = gdb.newest_frame().name()
    start = int(gdb.parse_and_eval("(long)&" + name))
    architecture, addresses, at, text = gdb.selected_frame().architecture(), [], start, ""
    while not text.startswith("ret"):
        line = architecture.disassemble(at)[0]
        addresses.append(at)
        at, text = at + line["length"], line["asm"]
    sp = int(gdb.parse_and_eval("(long)$sp"))
    for _ in range(40):
        look()
        gdb.execute("stepi", to_string=True)
        if gdb.newest_frame().name() != name:
            break
    if gdb.newest_frame().name() == name:
        for address in addresses[-12:]:
            gdb.execute("tbreak *%d" % address, to_string=True)
        while int(gdb.parse_and_eval("(long)$pc")) != addresses[-1]:
            gdb.execute("continue", to_string=True)
            look()
        gdb.execute("stepi", to_string=True)
    assert int(gdb.parse_and_eval("(long)$sp")) == sp + 8
    for number in gdb.breakpoints():
        if number.temporary:
            number.delete()
    gdb.execute("continue", to_string=True)
print("unwound", seen, total)
"#;

/// Writes the files of a case under the name `mN`.
fn write_files(folder: &Folder, case: &Case, number: usize, weights_apart: bool) {
    let options = ObjectOptions { name: format!("m{number}"), weights_apart };
    let files = ObjectFiles::new(&case.module, &options).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    files.write(&folder.0).unwrap();
}

/// The outputs of each case, by one program that runs all of them. Each runs twice: on three threads in a workspace at an odd
/// address, and by the function without a workspace, in place where outputs may have the arrays of inputs; both must agree.
pub fn build_and_run(toolchain: &Toolchain, cases: &[Case], weights_apart: bool) -> Vec<Vec<Vec<u8>>> {
    let folder = Folder::new("programs");
    let mut sources = vec!["main.c".to_string()];
    for (i, case) in cases.iter().enumerate() {
        write_files(&folder, case, i, weights_apart);
        std::fs::write(folder.0.join(format!("{i}.in")), bits(&case.arrays()).concat()).unwrap();
        sources.extend([format!("m{i}.c"), format!("m{i}.o")]);
    }
    std::fs::write(folder.0.join("main.c"), main_text(cases, weights_apart)).unwrap();
    let mut compile = toolchain.compile(&folder);
    compile.args(["-o", "main"]).args(sources);
    finish(toolchain.link_runtime(&mut compile, cases));
    finish(&mut toolchain.run(&folder, "main"));
    let read = |(i, case): (usize, &Case)| {
        let [threads, plain] =
            ["threads", "plain"].map(|how| read_outputs(&folder, &format!("{i}.{how}"), case.bound()));
        assert!(threads == plain, "{}", case.name);
        plain
    };
    cases.iter().enumerate().map(read).collect()
}

pub fn read_outputs(folder: &Folder, name: &str, module: &Module) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(folder.0.join(name)).unwrap();
    let mut rest = &bytes[..];
    let mut take = |n: usize| {
        let (head, tail) = rest.split_at(n);
        rest = tail;
        head.to_vec()
    };
    let outputs = module.outputs().iter().map(|o| take(o.tensor.bytes().unwrap() as usize)).collect();
    assert!(rest.is_empty(), "{name}");
    outputs
}

/// For each parameter the input and the output that it is: as docs/linking.md says.
fn parameters(case: &Case) -> Vec<(Option<usize>, Option<usize>)> {
    let module = &case.module;
    let mut list = vec![];
    let mut taken = vec![];
    for (i, input) in module.inputs().iter().enumerate().filter(|(_, i)| Some(i.name.as_str()) != case.counted()) {
        let same = |o: &usize| module.outputs()[*o].tensor.name == input.name && module.may_share(i, *o);
        let output = (0..module.outputs().len()).find(same);
        taken.extend(output);
        list.push((Some(i), output));
    }
    list.extend((0..module.outputs().len()).filter(|o| !taken.contains(o)).map(|o| (None, Some(o))));
    list
}

/// The parameter that each one may share its array with: of an output that of an input, where every binding allows it.
fn in_place(case: &Case, list: &[(Option<usize>, Option<usize>)]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..list.len()).collect();
    for (i, parameter) in list.iter().enumerate() {
        let (Some(input), None) = *parameter else { continue };
        let may = |o: usize| case.module.bindings().all(|binding| binding.may_share(input, o));
        let free = |p: &usize| list[*p].0.is_none() && places[*p] == *p && list[*p].1.is_some_and(may);
        if let Some(p) = (0..list.len()).find(free) {
            places[p] = i;
        }
    }
    places
}

/// A program that reads N.in and writes N.threads and N.plain for each case.
fn main_text(cases: &[Case], weights_apart: bool) -> String {
    let mut text = String::from(include_str!("main.c"));
    for (i, _) in cases.iter().enumerate() {
        text += &format!("#include \"m{i}.h\"\n");
    }
    for (i, case) in cases.iter().enumerate() {
        let (list, module) = (parameters(case), case.bound());
        let apart = weights_apart && case.module.bindings().any(|binding| !binding.weights().is_empty());
        let bytes = |(input, output): &(Option<usize>, Option<usize>)| match (input, output) {
            (Some(input), _) => module.inputs()[*input].bytes().unwrap(),
            (None, output) => module.outputs()[output.unwrap()].tensor.bytes().unwrap(),
        };
        text += &format!("static void run_{i}(void) {{\n");
        for (p, parameter) in list.iter().enumerate() {
            text += &format!("    void *p{p} = exactly({});\n", bytes(parameter));
        }
        let weights = if apart { format!("whole(\"m{i}.weights\")") } else { "0".into() };
        text += &format!("    void *weights = {weights};\n    (void)weights;\n");
        let inputs = list.iter().enumerate().filter(|(_, p)| p.0.is_some());
        let read: String = inputs.map(|(p, parameter)| format!("fill(p{p}, {}, in); ", bytes(parameter))).collect();
        let places = [(0..list.len()).collect(), in_place(case, &list)];
        let [written, written_in_place] = [0, 1].map(|how: usize| {
            let written = (0..module.outputs().len()).map(|o| {
                let p = list.iter().position(|parameter| parameter.1 == Some(o)).unwrap();
                format!("drain(p{}, {}, out); ", places[how][p], bytes(&list[p]))
            });
            written.collect::<String>()
        });
        let [mut arguments, plain] = [0, 1].map(|how: usize| {
            let mut arguments: Vec<String> = case.sizes.iter().map(i64::to_string).collect();
            arguments.extend(places[how].iter().map(|p: &usize| format!("p{p}")));
            arguments.extend(apart.then(|| "weights".to_string()));
            arguments
        });
        let plain = plain.join(", ");
        arguments.extend(["workspace".into(), "&three_threads".into()]);
        let upper = format!("M{i}");
        text += &format!(
            "    FILE *in = open_file(\"{i}.in\", \"rb\"), *out = open_file(\"{i}.threads\", \"wb\");\n    {read}\n    \
             char *memory = (char *)exactly({upper}_WORKSPACE_BYTES(3) + 1), *workspace = memory + 1;\n    \
             check(m{i}_run({}), m{i}_message);\n    {written}\n    fclose(in);\n    fclose(out);\n    \
             in = open_file(\"{i}.in\", \"rb\");\n    out = open_file(\"{i}.plain\", \"wb\");\n    {read}\n    m{i}({plain});\n    \
             {written_in_place}\n    fclose(in);\n    fclose(out);\n}}\n",
            arguments.join(", ")
        );
    }
    text += "int main(void) {\n";
    (0..cases.len()).for_each(|i| text += &format!("    run_{i}();\n"));
    text + "    return 0;\n}\n"
}
