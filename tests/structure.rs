//! Rules of the source tree: no circles of files, upward imports, long functions and files, paths of one machine, names of
//! registries, `unsafe` without a reason, documentation that does not begin with its subject.

#[path = "structure/modules.rs"]
mod modules;

use modules::Modules;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a folder, without what is built or belongs to version control.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if name == "target" || name == ".git" {
            continue;
        } else if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// `file:line: text` of every line of every source file below `folder` for which `wrong` holds.
fn lines(folder: &str, wrong: impl Fn(&Path, &[&str], usize) -> bool) -> Vec<String> {
    let mut found = vec![];
    for path in files(&root().join(folder)) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate().filter(|(i, _)| wrong(&path, &lines, *i)) {
            found.push(format!("{}:{}: {line}", path.strip_prefix(root()).unwrap().display(), i + 1));
        }
    }
    found
}

/// The order of each folder's modules, lowest first: each knows only those before it. Modules of one row know nothing of
/// each other. A folder that is not listed has no order, but no circles either.
const ORDER: [(&str, &[&[&str]]); 6] = [
    (
        "",
        &[
            &["runtime"],
            &["expr"],
            &["codegen"],
            &["poly", "object"],
            &["graph", "language"],
            &["pipeline"],
            &["cache"],
            &["staged"],
            &["model"],
            &["compiled"],
            &["stateful"],
            &["cli", "python", "capi"],
        ],
    ),
    (
        "codegen",
        &[
            &["machine"],
            &["instruction"],
            &["target"],
            &["calibration"],
            &["loopnest"],
            &["vcode"],
            &["regalloc"],
            &["constant_pool"],
            &["emit"],
            &["select", "x86", "aarch64"],
            &["assemble", "disassemble"],
            &["probe"],
        ],
    ),
    (
        "poly",
        &[
            &["sets"],
            &["statement"],
            &["schedule", "domain"],
            &["storage"],
            &["scop"],
            &["verify"],
            &["print"],
            &["parse", "packing"],
            &["analysis"],
            &["instruction", "normalize", "cost"],
            &["ilp"],
            &["tile"],
            &["lower", "predict"],
            &["plan"],
            &["reference", "transform"],
        ],
    ),
    ("poly::sets", &[&["polyhedron"], &["answers"], &["generators", "isl"]]),
    (
        "expr",
        &[
            &["affine", "choice", "logic"],
            &["expression", "interval"],
            &["scalar"],
            &["float_interval"],
            &["dynamic_bounds", "literals", "narrow"],
            &["piecewise"],
            &["text", "syntax"],
        ],
    ),
    (
        "pipeline",
        &[
            &["laps", "options", "report", "sharing"],
            &["kernel", "unit"],
            &["linkable"],
            &["steps", "words"],
            &["link"],
            &["program"],
        ],
    ),
];

fn modules() -> Modules {
    let mut modules = Modules::default();
    let roots = [
        ("src/lib.rs", ""),
        ("src/runtime/lib.rs", "runtime"),
        ("src/cli/main.rs", "cli"),
        ("src/python/lib.rs", "python"),
        ("src/capi/lib.rs", "capi"),
    ];
    for (file, at) in roots {
        modules.add(&root().join(file), at);
    }
    modules
}

#[test]
fn each_room_knows_only_those_below() {
    let modules = modules();
    for (folder, order) in ORDER {
        let listed: BTreeSet<String> = order.iter().flat_map(|row| row.iter().map(|m| m.to_string())).collect();
        let unlisted: Vec<_> = modules.children(folder).difference(&listed).cloned().collect();
        assert!(unlisted.is_empty(), "{folder} has modules without a place in its order: {unlisted:?}");
    }
    let mut upward = vec![];
    for ((user, used), path) in modules.edges() {
        let common = user.iter().zip(&used).take_while(|(a, b)| a == b).count();
        let folder = user[..common].join("::");
        let Some((_, order)) = ORDER.iter().find(|(f, _)| *f == folder) else { continue };
        let floor =
            |path: &[String]| order.iter().position(|row| path.get(common).is_some_and(|m| row.contains(&&**m)));
        if let (Some(a), Some(b)) = (floor(&user), floor(&used))
            && b >= a
        {
            upward.push(format!("{} names {path}", modules.file(&user).strip_prefix(root()).unwrap().display()));
        }
    }
    assert!(upward.is_empty(), "{} paths lead up or across:\n{}", upward.len(), upward.join("\n"));
}

#[test]
fn no_two_files_need_each_other() {
    let modules = modules();
    let edges = modules.edges();
    assert!(edges.len() > 1000, "only {} edges are seen", edges.len());
    let mut below: BTreeMap<&[String], Vec<&[String]>> = BTreeMap::new();
    for (user, used) in edges.keys() {
        below.entry(user).or_default().push(used);
    }
    // The transitive dependencies of a file.
    let reach = |start: &[String]| -> BTreeSet<Vec<String>> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(next) = open.pop() {
            for used in below.get(next).into_iter().flatten() {
                if seen.insert(used.to_vec()) {
                    open.push(used);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&[String], BTreeSet<Vec<String>>> = below.keys().map(|m| (*m, reach(m))).collect();
    let circular = |a: &[String], b: &[String]| all.get(b).is_some_and(|r| r.contains(a));
    let found: Vec<String> = (edges.iter())
        .filter(|((user, used), _)| circular(user, used))
        .map(|((user, used), path)| format!("{} -> {}: {path}", user.join("::"), used.join("::")))
        .collect();
    assert!(found.is_empty(), "{} edges lie on circles:\n{}", found.len(), found.join("\n"));
}

#[test]
fn nothing_belongs_to_one_machine() {
    // Written in two parts, so that this file does not find itself.
    let words: Vec<String> =
        [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/op", "t/"), ("crates", ".io"), ("py", "pi.org")]
            .iter()
            .map(|(a, b)| format!("{a}{b}"))
            .collect();
    let found = lines("", |path, lines, i| {
        path.file_name().is_some_and(|n| n != "Cargo.lock") && words.iter().any(|w| lines[i].contains(w.as_str()))
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_unsafe_block_says_why_it_is_safe() {
    let says = |path: &Path, lines: &[&str], i: usize| {
        let code = lines[i].split("//").next().unwrap();
        let marks = ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"];
        path.extension().is_some_and(|e| e == "rs")
            && marks.iter().any(|mark| code.contains(mark))
            && !code.contains("unsafe extern \"C\" fn(")
            && !lines[i.saturating_sub(8)..=i].iter().any(|l| l.contains("SAFETY") || l.contains("# Safety"))
    };
    let found = [lines("src", says), lines("fuzz", says)].concat();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_test_is_ignored_and_nothing_is_left_to_do() {
    let words: Vec<String> = [("#[ign", "ore"), ("todo", "!("), ("unimple", "mented!("), ("dbg", "!(")]
        .map(|(a, b)| format!("{a}{b}"))
        .into();
    for folder in ["src", "tests", "fuzz"] {
        let found = lines(folder, |path, lines, i| {
            path.extension().is_some_and(|e| e == "rs") && words.iter().any(|w| lines[i].contains(w.as_str()))
        });
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

/// A comment says what a thing is or does, not that it says so.
#[test]
fn documentation_begins_with_its_subject() {
    let found: Vec<String> = (["src", "tests", "fuzz", "examples", "benches"].into_iter())
        .flat_map(|folder| {
            lines(folder, |path, lines, i| {
                let mark = |line: &str| ["///", "//!"].into_iter().find(|mark| line.trim_start().starts_with(mark));
                let Some(own) = mark(lines[i]) else { return false };
                let text = lines[i].trim_start().trim_start_matches(own).trim_start();
                let first = i == 0 || mark(lines[i - 1]) != Some(own);
                let words = ["What ", "Whether ", "The same "];
                path.extension().is_some_and(|e| e == "rs") && first && words.iter().any(|w| text.starts_with(w))
            })
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_crate_root_lists_what_is_public() {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let folders: Vec<&str> = text.lines().filter(|l| l.starts_with("pub mod") && l.ends_with(';')).collect();
    assert!(folders.is_empty(), "public as a whole: {}", folders.join(" "));
}

/// Names that the crate roots make public: types, and the files of functions and modules.
fn public_names() -> (BTreeSet<String>, BTreeSet<PathBuf>) {
    let (mut types, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (file, folder) in [("src/lib.rs", "src"), ("src/runtime/lib.rs", "src/runtime")] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let text = text.split("pub mod internal").next().unwrap();
        let reexports = text.split("pub use ").skip(1).map(|t| t.split(';').next().unwrap());
        for path in reexports.filter(|path| !path.contains("runtime")) {
            let words = path.split(|c: char| !c.is_alphanumeric() && c != '_');
            let words: Vec<&str> = words.filter(|w| !w.is_empty() && *w != "crate").collect();
            let names = words.iter().filter(|w| w.starts_with(|c: char| c.is_uppercase()));
            types.extend(names.map(|w| w.to_string()));
            if words.last().is_some_and(|w| w.starts_with(|c: char| c.is_lowercase())) {
                let file = |n: usize| root().join(folder).join(words[..n].join("/")).with_extension("rs");
                paths.extend((1..=words.len()).map(file).rfind(|path| path.is_file()));
            }
        }
        let modules = text.lines().filter_map(|l| l.strip_prefix("pub mod ")?.strip_suffix(';'));
        paths.extend(modules.map(|name| root().join(folder).join(name).with_extension("rs")));
    }
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        let name = |l: &str| {
            l.strip_prefix("pub struct ")
                .or(l.strip_prefix("pub enum "))?
                .split([' ', '<', '('])
                .next()
                .map(String::from)
        };
        types.extend(text.lines().filter_map(name));
    }
    (types, paths)
}

/// The public fallible functions of a file that belong to `types`, or to no type if `functions`, and say no errors.
fn undocumented_errors(path: &Path, types: &BTreeSet<String>, functions: bool, seen: &mut usize) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut listed = functions;
    let mut silent = vec![];
    for (i, line) in lines.iter().enumerate() {
        if let Some(block) = line.strip_prefix("impl") {
            let block = block.trim_start_matches("<'_>").trim_start_matches("<'a>").trim_start();
            listed = types.contains(block.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default());
        } else if line.starts_with('}') {
            listed = functions;
        }
        let code = line.trim_start();
        if !listed || !(code.starts_with("pub fn ") || code.starts_with("pub unsafe fn ")) {
            continue;
        }
        let signature: String = lines[i..].iter().flat_map(|l| [*l, " "]).collect();
        let above = lines[..i].iter().rev().map(|l| l.trim());
        let above: Vec<&str> = above.take_while(|l| l.starts_with("///") || l.starts_with("#[")).collect();
        if signature.split('{').next().unwrap().contains("-> Result<") && !above.contains(&"#[doc(hidden)]") {
            *seen += 1;
            if !above.contains(&"/// # Errors") {
                silent.push(format!("{}:{}: {code}", path.strip_prefix(root()).unwrap().display(), i + 1));
            }
        }
    }
    silent
}

#[test]
fn public_fallible_functions_document_their_errors() {
    let (types, modules) = public_names();
    let (mut silent, mut seen) = (vec![], 0);
    for path in files(&root().join("src")).iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
        silent.extend(undocumented_errors(path, &types, modules.contains(path), &mut seen));
    }
    assert!(seen > 40 && types.len() > 60, "only {seen} functions of {} types are seen", types.len());
    assert!(silent.is_empty(), "no `# Errors`:\n{}", silent.join("\n"));
}

/// The pages that people read, with their text.
fn pages() -> Vec<(String, String)> {
    let names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "datasets/README.md"];
    let book = files(&root().join("docs")).into_iter().filter(|path| path.extension().is_some_and(|e| e == "md"));
    let paths = names.iter().map(|name| root().join(name)).chain(book);
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    paths.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

/// The anchors that a page's headings have.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.split("```").step_by(2).flat_map(|text| text.lines().filter(|l| l.starts_with('#')));
    let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    headings
        .map(|h| {
            h.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages = pages();
    let summary = &pages.iter().find(|(name, _)| name == "docs/SUMMARY.md").unwrap().1;
    let (mut wrong, mut checked) = (vec![], 0);
    for (name, text) in &pages {
        let folder = root().join(name).parent().unwrap().to_path_buf();
        let book = name.strip_prefix("docs/");
        if let Some(page) = book
            && page != "SUMMARY.md"
            && !summary.contains(&format!("]({page})"))
        {
            wrong.push(format!("{name} is not in docs/SUMMARY.md"));
        }
        let prose: String = text.split("```").step_by(2).collect();
        for link in prose.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.contains("://") {
                continue;
            }
            checked += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { root().join(name) } else { folder.join(path) };
            // What leads out of docs/ leads nowhere in the book.
            let reached = target.exists() && (book.is_none() || !path.contains('/'));
            let headings = || anchors(&fs::read_to_string(&target).unwrap());
            if !reached || !(anchor.is_empty() || headings().contains(&anchor.to_string())) {
                wrong.push(format!("{name} links to {link}"));
            }
        }
    }
    assert!(checked > 60, "only {checked} links are seen");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The words of the code spans and code blocks of a page, span by span.
fn code_of(page: &str) -> Vec<Vec<&str>> {
    let mut spans = vec![];
    for (i, block) in page.split("```").enumerate() {
        match i % 2 {
            0 => spans.extend(block.split('`').skip(1).step_by(2).map(|span| span.split_whitespace().collect())),
            _ => spans.extend(block.lines().map(|line| line.split('#').next().unwrap().split_whitespace().collect())),
        }
    }
    spans
}

#[test]
fn pages_name_what_exists() {
    let known: Vec<String> = (files(root()).iter())
        .map(|p| format!("/{}", p.strip_prefix(root()).unwrap().display().to_string().replace('\\', "/")))
        .collect();
    let exists = |path: &str| {
        let end = format!("/{}", path.trim_end_matches('/'));
        let (source, folder) = (format!("{end}.rs"), format!("{end}/"));
        known.iter().any(|k| k.ends_with(&end) || k.ends_with(&source) || k.contains(&folder))
    };
    let is_path = |word: &str| {
        let plain = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c));
        let named = [".rs", ".py", ".md", ".sh", ".json", ".txt"].iter().any(|ending| word.ends_with(ending));
        // `fo/8` is a loop over tiles.
        let tiles = word.rsplit('/').next().is_some_and(|end| end.parse::<u32>().is_ok());
        plain
            && (named || word.contains('/'))
            && !word.starts_with(['.', '/'])
            && !word.starts_with("target/")
            && !tiles
    };
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let is_target = |word: &str| makefile.lines().any(|l| l.starts_with(&format!("{word}:")));
    let tests: String = known
        .iter()
        .filter(|k| k.ends_with(".rs"))
        .map(|k| fs::read_to_string(root().join(&k[1..])).unwrap())
        .collect();
    let (mut missing, mut checked) = (vec![], 0);
    for (page, text) in pages() {
        for span in code_of(&text) {
            let mut check = |what: &str, word: &str, holds: bool| {
                checked += 1;
                if !holds {
                    missing.push(format!("{page}: {what} `{word}`"));
                }
            };
            span.iter().filter(|w| is_path(w)).for_each(|w| check("path", w, exists(w)));
            if let ["make", target, ..] = span[..] {
                check("target", target, is_target(target));
            }
            let option = |name: &str| span.iter().position(|w| *w == name).filter(|_| span.contains(&"cargo"));
            let filter = option("--lib").or(option("--test").map(|i| i + 1));
            if let Some(name) = option("--test").and_then(|i| span.get(i + 1)) {
                check("test file", name, exists(&format!("{name}.rs")));
            }
            if let Some(name) = filter.and_then(|i| span.get(i + 1)) {
                check("test", name, tests.contains(&format!("fn {name}")) || tests.contains(&format!(" {name}")));
            }
        }
    }
    assert!(checked > 150, "only {checked} names are checked");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Most lines of a function, and of a file.
const LONGEST: (usize, usize) = (80, 600);

/// Files whose functions may be longer: one search, or one scan of polyhedra, that shares its state throughout.
const LONG_FUNCTIONS: [&str; 3] = ["src/poly/tile/phase", "src/poly/tile/band", "src/poly/lower"];

/// Functions of tests that are tables: a row for each case.
const TABLES: [(&str, &str); 4] = [
    ("src/codegen/tests/cases.rs", "arithmetic"),
    ("src/codegen/tests/cases.rs", "scalars"),
    ("src/graph/define/tests.rs", "cases"),
    ("tests/kernels.rs", "cases"),
];

/// Each function's name, its first line and number of lines; formatted code closes a function at its own indentation.
fn functions(text: &str) -> Vec<(&str, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = vec![];
    for (i, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indentation = &line[..line.len() - code.len()];
        let mut words = code
            .split_whitespace()
            .skip_while(|word| word.starts_with("pub") || ["const", "unsafe", "extern", "\"C\"", "in"].contains(word));
        let (Some("fn"), Some(rest)) = (words.next(), words.next()) else { continue };
        let name = rest.split(['(', '<']).next().unwrap_or_default();
        let end = lines[i..].iter().position(|l| l.strip_prefix(indentation) == Some("}"));
        if !code.ends_with([';', '}'])
            && let Some(end) = end
        {
            functions.push((name, i + 1, end + 1));
        }
    }
    functions
}

#[test]
fn functions_and_files_stay_short() {
    let (mut long, mut tables) = (vec![], 0);
    let mut counted = 0;
    let all = ["src", "tests", "benches", "examples", "fuzz"].map(|folder| files(&root().join(folder))).concat();
    for path in all.iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
        let (text, file) = (fs::read_to_string(path).unwrap(), path.strip_prefix(root()).unwrap().to_string_lossy());
        let length = text.lines().count();
        if length > LONGEST.1 {
            long.push(format!("{file} has {length} lines"));
        }
        let functions = functions(&text);
        counted += functions.len();
        if LONG_FUNCTIONS.iter().any(|prefix| file.starts_with(prefix)) {
            continue;
        }
        for (name, line, length) in functions {
            if length > LONGEST.0 && TABLES.contains(&(&file, name)) {
                tables += 1;
            } else if length > LONGEST.0 {
                long.push(format!("{file}:{line}: {name} has {length} lines"));
            }
        }
    }
    assert!(counted > 2000, "only {counted} functions are seen");
    assert_eq!(tables, TABLES.len(), "a function of `TABLES` is not longer than others");
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// A change that no test notices is explained for code that is there.
#[test]
fn equivalent_mutants_are_of_lines_that_exist() {
    let text = fs::read_to_string(root().join("tests/mutants/equivalent.txt")).unwrap();
    let blocks: Vec<Vec<&str>> = text.split("\n\n").map(|b| b.trim().lines().collect()).collect();
    let mutants: Vec<_> = blocks.iter().filter(|b| !b[0].starts_with('#')).collect();
    assert!(mutants.len() > 5, "only {} mutants are seen", mutants.len());
    for mutant in mutants {
        let [file, old, new, _] = mutant[..] else { panic!("not four lines: {mutant:?}") };
        // a line that is taken out has nothing in its place
        let (old, new) = (old.strip_prefix("- ").unwrap(), new.strip_prefix("+").unwrap().trim_start());
        let code = fs::read_to_string(root().join(file)).unwrap();
        assert!(old != new && code.lines().any(|l| l.trim() == old), "{file} has no line `{old}`");
    }
}
