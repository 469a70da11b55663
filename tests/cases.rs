//! Cases as text: each file of `tests/cases/` is an input, the line `----`, and the expected output.
//!
//! The lines that begin with `@` say what is done with the input:
//!
//! ```text
//! @stage schedule          the stage that is printed (`explain --stage`); the folder's name is the default
//! @target x86-64-avx2      default x86-64-avx512; any target is compiled on any host
//! @dim N=8                 a size or a dynamic dimension
//! @size SMALL              a set of sizes of the program
//! @schedule tiles          a schedule of the file instead of the one of the ILP
//! @file datasets/x.tile    the input is this file
//! ```
//!
//! An input that begins with `graph` is a graph, one that begins with `function` is VCode, of which the allocation of
//! registers is printed, any other a program of the text language. A failure prints as its message.
//! `TILEWRIGHT_BLESS=1` writes the expected outputs again.

mod common;

use common::{bind, check_all, fixtures, read_tensors, root};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tilewright::graph_text;
use tilewright::internal::codegen::regalloc::allocation::{Place, Step};
use tilewright::internal::codegen::regalloc::{allocate, checker};
use tilewright::internal::codegen::vcode::operands::Class;
use tilewright::internal::codegen::vcode::text;
use tilewright::internal::codegen::vcode::{Function, Inst};
use tilewright::internal::language;
use tilewright::internal::pipeline;
use tilewright::internal::poly::transform::primitive::KEYWORDS;
use tilewright::{Model, Options, Target};

const END: &str = "----\n";

#[derive(Default)]
struct Case {
    directives: BTreeMap<String, Vec<String>>,
    input: String,
    expected: String,
}

impl Case {
    fn read(text: &str) -> Case {
        let (head, expected) = text.split_once(END).unwrap_or((text, ""));
        let mut case = Case { expected: expected.into(), ..Case::default() };
        for line in head.lines() {
            match line.strip_prefix('@') {
                Some(directive) => {
                    let (key, value) = directive.split_once(' ').unwrap_or((directive, ""));
                    case.directives.entry(key.into()).or_default().push(value.trim().into());
                }
                None => case.input.push_str(&format!("{line}\n")),
            }
        }
        case
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.directives.get(key).and_then(|values| values.first()).map(String::as_str)
    }

    fn model(&self) -> tilewright::Result<Model> {
        let input = match self.get("file") {
            Some(file) => fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}")),
            None => self.input.clone(),
        };
        if input.trim_start().starts_with("graph ") {
            return Ok(Model::from_graph(graph_text::parse(&input)?));
        }
        let model = Model::from_program(language::parse("case.tile", &input)?, None, self.get("size"))?;
        match self.get("schedule") {
            Some(name) => model.with_schedule(name),
            None => Ok(model),
        }
    }

    fn output(&self, folder: &str) -> tilewright::Result<String> {
        let stage = self.get("stage").unwrap_or(match folder {
            "graph" => "rewritten",
            "primitives" | "polybench" => "schedule",
            "errors" => "asm",
            stage => stage,
        });
        let target = self.get("target").unwrap_or("x86-64-avx512");
        let target = Target::all().into_iter().find(|t| t.name == target).expect("a target");
        if self.input.starts_with("function ") {
            let functions = text::parse(&self.input)?;
            return functions.iter().map(|f| allocation(f, &target)).collect();
        }
        let dims = self.directives.get("dim").into_iter().flatten();
        let dims = dims.map(|d| d.split_once('=').expect("@dim NAME=VALUE"));
        let options = Options {
            target: Some(target),
            dims: dims.map(|(name, value)| (name.to_string(), value.parse().expect("a size"))).collect(),
            ..Options::default()
        };
        let text = self.model()?.explain(&options, stage.parse()?, None)?;
        Ok(match folder {
            // The schedule functions alone, as Pluto prints them.
            "polybench" => {
                let lines = text.lines().map(|line| line.trim_start_matches("# "));
                lines.filter(|line| line.starts_with("T(")).map(|line| format!("{line}\n")).collect()
            }
            _ => text,
        })
    }
}

/// The function over the registers of the target, by number, with the moves between registers and spill slots.
fn allocation(function: &Function, target: &Target) -> tilewright::Result<String> {
    let allocation = allocate(function, target)?;
    checker::check(function, &allocation, target)?;
    let place = |place: &Place| match place {
        Place::Register(r) => format!("r{r}"),
        Place::Slot(s) => format!("slot {s}"),
    };
    let entry: Vec<String> = allocation.entry.iter().map(|p| p.as_ref().map_or("unused".into(), place)).collect();
    let slots = format!("{} gpr slots, {} vector slots", allocation.slots.gpr, allocation.slots.vector);
    let mut out = format!("function {} (arguments {}; {slots}) {{\n", function.name, entry.join(", "));
    let mut depth = 1;
    for step in &allocation.steps {
        let register = |class: &Class, r: &u8| format!("{}{r}", if *class == Class::Gpr { 'r' } else { 'v' });
        let line = match step {
            Step::Inst { inst, hidden, temporaries, .. } => {
                depth -= usize::from(matches!(inst, Inst::LoopEnd | Inst::IfEnd));
                let hidden = hidden.as_ref().map(|p| format!("  # {}", place(p)));
                let gprs = temporaries.gpr.iter().map(|r| register(&Class::Gpr, r));
                let vectors = temporaries.vector.iter().map(|r| register(&Class::Vector, r));
                let temporaries: Vec<String> = gprs.chain(vectors).collect();
                let overwritten =
                    (!temporaries.is_empty()).then(|| format!("  # overwrites {}", temporaries.join(", ")));
                format!("{inst}{}{}", hidden.unwrap_or_default(), overwritten.unwrap_or_default())
            }
            Step::Again { inst, .. } => format!("{inst}  # again"),
            Step::Store { class, register: r, slot } => format!("slot {slot} = {}", register(class, r)),
            Step::Load { class, register: r, slot, .. } => format!("{} = slot {slot}", register(class, r)),
        };
        out.push_str(&format!("{}{line}\n", "  ".repeat(depth)));
        let opens = matches!(step, Step::Inst { inst: Inst::LoopStart { .. } | Inst::IfStart { .. }, .. });
        depth += usize::from(opens);
    }
    Ok(out + "}\n")
}

fn case_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).filter(|p| p.is_file()).collect();
    files.sort();
    files
}

/// Runs the cases of one folder.
fn run(folder: &str) {
    let bless = std::env::var_os("TILEWRIGHT_BLESS").is_some();
    let files = case_files(&root().join("tests/cases").join(folder));
    assert!(!files.is_empty(), "no cases in {folder}");
    let mut wrong = vec![];
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let case = Case::read(&text);
        let mut output = case.output(folder).unwrap_or_else(|e| format!("{e}\n"));
        if !output.ends_with('\n') {
            output.push('\n');
        }
        if bless {
            let head = text.split_once(END).map_or(text.as_str(), |(head, _)| head);
            fs::write(&path, format!("{head}{END}{output}")).unwrap();
        } else if output != case.expected {
            wrong.push(format!("{}\nexpected:\n{}\nis:\n{output}", path.display(), case.expected));
        }
    }
    assert!(wrong.is_empty(), "{}\nTILEWRIGHT_BLESS=1 writes the outputs again", wrong.join("\n"));
}

macro_rules! folders {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*

        #[test]
        fn every_folder_is_run() {
            let names = [$(stringify!($name)),*];
            for entry in fs::read_dir(root().join("tests/cases")).unwrap().map(Result::unwrap) {
                let name = entry.file_name().into_string().unwrap();
                // Rewrite rules and numbers of whole networks, which the tests beside them in `src/graph` hold.
                let elsewhere = ["rules", "networks"].contains(&name.as_str());
                assert!(elsewhere || names.contains(&name.as_str()), "tests/cases/{name} is not run");
            }
        }
    };
}
folders!(graph scop schedule loops vcode primitives errors polybench);

/// Parse after print is the identity on the VCode of all cases and all operator fixtures.
#[test]
fn vcode_parses_to_what_was_printed() {
    let same = |what: &Path, printed: &str| {
        let functions: Vec<&str> = printed.lines().filter(|line| !line.starts_with("# ")).collect();
        let text = functions.join("\n");
        let parsed = text::parse(&text).map_err(|e| format!("{}: {e}", what.display()))?;
        let again: Vec<String> = parsed.iter().map(Function::to_string).collect();
        let lines = |text: &str| text.lines().filter(|l| !l.is_empty()).map(String::from).collect::<Vec<_>>();
        if lines(&again.concat()) == lines(&text) { Ok(()) } else { Err(format!("{}: other text", what.display())) }
    };
    for path in case_files(&root().join("tests/cases/vcode")) {
        let case = Case::read(&fs::read_to_string(&path).unwrap());
        if !case.input.starts_with("function ") {
            same(&path, &case.expected).unwrap();
        }
    }
    let targets = Target::all();
    let fixtures: Vec<(usize, PathBuf)> = fixtures("operators", "onnx").into_iter().enumerate().collect();
    check_all(&fixtures, |(i, path)| {
        let target = Some(targets[i % targets.len()].clone());
        let say = |e| format!("{}: {e}", path.display());
        let model = Model::load(path).map_err(say)?;
        let dims = bind(&model, &read_tensors(&path.with_extension("npy"))[..model.inputs().len()]);
        let options = Options { target, dims, ..Options::default() };
        let text = model.explain(&options, pipeline::Stage::Vcode, None).map_err(say)?;
        same(path, text.trim_start_matches("no kernels\n"))
    });
}

#[test]
fn every_primitive_has_a_case_that_it_accepts_and_one_that_it_refuses() {
    let folder = root().join("tests/cases/primitives");
    let wanted: BTreeMap<String, (&str, bool)> = KEYWORDS
        .into_iter()
        .flat_map(|k| [(format!("{k}.txt"), (k, false)), (format!("{k}_refused.txt"), (k, true))])
        .collect();
    let mut wrong = vec![];
    for (file, (keyword, refused)) in &wanted {
        let Ok(text) = fs::read_to_string(folder.join(file)) else {
            wrong.push(format!("tests/cases/primitives/{file} is missing"));
            continue;
        };
        let case = Case::read(&text);
        if !case.input.lines().any(|line| line.split_whitespace().next() == Some(keyword)) {
            wrong.push(format!("{file} has no line that begins with `{keyword}`"));
        }
        if case.expected.is_empty() || case.expected.starts_with("schedule refused: ") != *refused {
            wrong.push(format!("{file} is {}", if *refused { "not refused" } else { "not accepted" }));
        }
        if *refused && !case.expected.lines().next().is_some_and(|line| line.contains(&format!(": `{keyword}"))) {
            wrong.push(format!("{file} is refused for another primitive than `{keyword}`"));
        }
    }
    let names = case_files(&folder).into_iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned());
    wrong.extend(names.filter(|n| !wanted.contains_key(n)).map(|n| format!("{n} is named after no primitive")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
