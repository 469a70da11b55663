//! The pages show what the commands print, `docs/primitives.md` what the sources say of each primitive, and `docs/options.md` the
//! limits.
//!
//! In a block marked `console` a line that begins with `$ ` is a command, and what follows is its output; a block marked `sh` has
//! commands without outputs; one marked `tile` that begins with `# NAME.tile` is a file of the page's folder. `TILEWRIGHT_BLESS=1` writes outputs and page again.

#[path = "../common/mod.rs"]
mod common;
#[path = "../files/onnx.rs"]
mod onnx;
#[path = "book/shell.rs"]
mod shell;

use common::root;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tilewright::internal::poly::transform::primitive::KEYWORDS;
use tilewright::{File, Limits, Model, Options};

/// Holds a page to its text, or writes it.
fn holds(page: &Path, text: &str) {
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        fs::write(page, text).unwrap();
    }
    let shown = fs::read_to_string(page).unwrap_or_default();
    let differs = shown.lines().zip(text.lines()).find(|(a, b)| a != b);
    assert!(
        shown == text,
        "{} is out of date: TILEWRIGHT_BLESS=1 cargo test -p tilewright-cli --test book\n{differs:?}",
        page.display()
    );
}

/// Runs a line of shell with the command line at hand.
fn run(command: &str, folder: &Path) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_tilewright")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    Command::new("sh").args(["-c", command]).current_dir(folder).env("PATH", path).output().unwrap()
}

/// The standard output of a line of shell.
fn output(command: &str, folder: &Path) -> String {
    let said = run(command, folder);
    assert!(!said.stdout.is_empty(), "`{command}` prints nothing: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap()
}

/// The words without times, which differ from run to run, and which a processor that cannot run the code does not have.
fn settled(text: &str) -> Vec<&str> {
    let text = text.split_whitespace();
    let words: Vec<&str> = text.filter(|word| !["measured", "on", "1", "thread", "thread,"].contains(word)).collect();
    let unit =
        |word: Option<&&str>| word.is_some_and(|w| ["ms", "µs", "GFLOP/s"].contains(&w.trim_matches([',', ')'])));
    let mut kept = vec![];
    for (i, word) in words.iter().enumerate() {
        let time = unit(words.get(i + 1)) && word.trim_matches('(').parse::<f64>().is_ok();
        if !time && !unit(Some(word)) {
            kept.push(*word);
        }
    }
    kept
}

/// The page with the outputs of its commands; lines that differ in times alone stay.
fn with_outputs(page: &str, folder: &Path) -> String {
    let (mut text, mut lines) = (String::new(), page.lines().peekable());
    let mut console = false;
    while let Some(line) = lines.next() {
        text += &format!("{line}\n");
        console = if line.starts_with("```") { line == "```console" } else { console };
        let Some(command) = line.strip_prefix("$ ").filter(|_| console) else { continue };
        let mut shown = String::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with("$ ") && !line.starts_with("```")) {
            shown += &format!("{line}\n");
        }
        let printed = output(command, folder);
        for (i, line) in printed.trim_end().lines().enumerate() {
            let same = shown.lines().nth(i).filter(|old| settled(old) == settled(line));
            text += &format!("{}\n", same.unwrap_or(line));
        }
    }
    text
}

/// A test's folder with the page's files, in which the repository's folders are at their paths.
fn folder(page: &Path, text: &str, test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test).join(page.file_stem().unwrap());
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    for name in ["datasets", "examples", "tests"] {
        std::os::unix::fs::symlink(root().join(name), folder.join(name)).unwrap();
    }
    for block in text.split("```tile\n# ").skip(1) {
        let (name, rest) = block.split_once('\n').unwrap();
        fs::write(folder.join(name), format!("# {name}\n{}", rest.split_once("```").unwrap().0)).unwrap();
    }
    folder
}

/// Compiles the programs of a text with their first sizes; returns how many there are. A file of instructions has none.
fn compile_all(page: &Path, text: &str) -> usize {
    if text.contains("\ninstruction ") {
        return 0;
    }
    let file = File::parse(&page.display().to_string(), text).unwrap_or_else(|e| panic!("{e}"));
    for program in &file.programs {
        let model = Model::from_program(file.clone(), Some(&program.name), None).unwrap();
        model.compile_module(&Options::default()).unwrap_or_else(|e| panic!("{e}"));
    }
    file.programs.len()
}

#[test]
fn pages_show_what_the_commands_print() {
    let (mut commands, mut programs) = (0, 0);
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let page = entry.unwrap().path();
        if page.extension().is_none_or(|e| e != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        let folder = folder(&page, &text, "book");
        holds(&page, &with_outputs(&text, &folder));
        commands += text.matches("\n$ ").count();
        for file in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|e| e == "tile") {
                programs += compile_all(&page, &fs::read_to_string(&file).unwrap());
            }
        }
    }
    assert!(commands > 12 && programs > 2, "only {commands} commands and {programs} programs");
}

/// The limits of the library by default, as a table.
fn limits() -> String {
    let limits = Limits::default();
    let bytes = |n: u64| if n >> 30 > 0 { format!("{} GiB", n >> 30) } else { format!("{} MiB", n >> 20) };
    let binding_bytes = limits.binding_bytes.map_or("a quarter more than the largest, and 16 MiB".to_string(), bytes);
    let rows = [
        ("tensor_bytes", bytes(limits.tensor_bytes), "one tensor"),
        ("arena_bytes", bytes(limits.arena_bytes), "the intermediate tensors that live at once"),
        ("scratch_bytes", bytes(limits.scratch_bytes), "scratch memory of all threads"),
        ("run_bytes", bytes(limits.run_bytes), "the inputs, outputs and intermediate tensors of a run"),
        ("weights_bytes", bytes(limits.weights_bytes), "weights"),
        ("code_bytes", bytes(limits.code_bytes), "machine code"),
        (
            "constant_bytes",
            bytes(limits.constant_bytes),
            "constants that are computed while a network is read, beside four times its weights",
        ),
        ("constant_work", limits.constant_work.to_string(), "operations that computing these takes: `--max-work`"),
        ("nodes", limits.nodes.to_string(), "nodes of a network"),
        ("steps", limits.steps.to_string(), "steps of a loop that the host runs, since it depends on data"),
        ("bindings", limits.bindings.to_string(), "compiled bindings of dynamic dimensions that are kept"),
        ("binding_bytes", binding_bytes, "these bindings, constants that several share once"),
    ];
    rows.iter().map(|(name, value, what)| format!("| `{name}` | {value} | {what} |\n")).collect()
}

#[test]
fn the_page_of_options_has_the_limits() {
    let page = root().join("docs/options.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("|---|---:|---|\n").unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    holds(&page, &format!("{before}|---|---:|---|\n{}\n{after}", limits()));
}

/// Purposes of primitives, with the keywords.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Split, fuse and reorder loops", &["split", "fuse", "reorder", "tile", "skew", "shift", "reverse"]),
    ("Order statements", &["merge", "distribute", "sequence"]),
    (
        "Choose how a loop runs",
        &["parallel", "wavefront", "serial", "vectorize", "unroll", "unroll_and_jam", "tensorize"],
    ),
    ("Handle partial tiles", &["peel", "pad"]),
    ("Choose where a value is computed and stored", &["compute_at", "compute_inline", "store_at"]),
    ("Copy operands and results", &["cache_read", "cache_write", "pack", "pack_read"]),
    ("Split a reduction", &["rfactor"]),
    (
        "Prepare the program as the compiler does",
        &["normalize", "domain_split", "coalesce", "index_set_split", "array_expand", "statement_split"],
    ),
];

/// The documentation above the line of `text` that begins so.
fn documentation(text: &str, line: &str) -> String {
    let (above, _) = text.split_once(&format!("\n{line}")).unwrap_or_else(|| panic!("no line `{line}`"));
    let lines: Vec<&str> = above.lines().rev().map_while(|l| l.trim_start().strip_prefix("///")).collect();
    lines.iter().rev().map(|l| format!("{}\n", l.strip_prefix(' ').unwrap_or(l))).collect()
}

/// A primitive: its row's source, and the documentation of its function, without links to other functions.
fn section(keyword: &str) -> String {
    let folder = root().join("src/poly/transform");
    let table = fs::read_to_string(folder.join("primitive.rs")).unwrap();
    let is_row = |line: &&str| {
        let row = line.split_once(": ").map(|(_, rest)| rest.split([' ', '(']).next());
        row == Some(Some(keyword)) && line.contains(" => ") && line.ends_with(';')
    };
    let row = table.lines().find(is_row).unwrap_or_else(|| panic!("`{keyword}` has no row"));
    let (module, function) = row.trim_end_matches(';').rsplit(' ').next().unwrap().split_once("::").unwrap();
    let source = fs::read_to_string(folder.join(module).with_extension("rs")).unwrap();
    let mut text = documentation(&source, &format!("pub fn {function}("));
    assert!(text.contains("```text\n"), "`{keyword}` has no picture: {module}.rs, {function}");
    while let Some((before, rest)) = text.split_once(" ([`") {
        text = format!("{before}{}", rest.split_once("`])").expect("a link ends").1);
    }
    let row = documentation(&table, row);
    let origin = row.trim_end().strip_suffix(").").and_then(|row| row.rsplit_once(" ("));
    let origin = origin.map_or(String::new(), |(_, origin)| format!("\nElsewhere: {origin}.\n"));
    format!("### {keyword}\n\n{text}{origin}\n")
}

#[test]
fn the_page_of_primitives_is_what_the_sources_say() {
    let listed: BTreeSet<&str> = GROUPS.iter().flat_map(|group| group.1.iter().copied()).collect();
    assert_eq!(listed, BTreeSet::from(KEYWORDS), "a keyword without a group, or a group without its keyword");
    let mut text = "# Primitives\n\n\
        Written by `tests/cli/book.rs` from the documentation in `src/poly/transform`. A schedule is a list of primitives, which apply in turn; \
        the result is proven. Where several statements have a loop of the same name, `S(i)` names that of statement S. `tests/cases/primitives` \
        has a program and the resulting tree for each, and one that is refused.\n\n\
        | to | primitives |\n|---|---|\n"
        .to_string();
    for (purpose, keywords) in GROUPS {
        let links: Vec<String> = keywords.iter().map(|k| format!("[`{k}`](#{k})")).collect();
        text += &format!("| {} | {} |\n", purpose.to_lowercase(), links.join(" "));
    }
    for (purpose, keywords) in GROUPS {
        text += &format!("\n## {purpose}\n\n{}", keywords.iter().map(|k| section(k)).collect::<String>().trim_end());
        text.push('\n');
    }
    holds(&root().join("docs/primitives.md"), &text);
}
