//! The cases of rules, `tests/cases/rules/*.txt`: for each table of rules a document, for each rule a section.
//!
//! ```text
//! rule mul-mul
//!
//! (mul (mul x:f32[2,5] 3) $b:f32[5])
//! => (mul x (mul 3 $b))
//!
//! # Integers wrap where floats round.
//! w = (cast[i64] x:f32[4])
//! (mul (mul w $a:i64[]=[3]) $a)
//! =/>
//! ```
//!
//! An expression is `(operator[attributes] operand …)`. A leaf is declared where it is first written: `x:f32[2]` is an
//! input, `$c:f32[2]` a constant of numbers that depend only on their order, `$c:f32[2]=[1,2]` one of these elements; `2`
//! is a constant of one f32. On lines before the expression stand definitions `d = (…)` and equations `a == b` of values
//! that are equal though the graph does not show it. `=>` is what the rule builds at a node of the expression; `=/>` says that
//! it applies at none. `TILEWRIGHT_BLESS=1` writes the lines with `=>` again.

use super::{Sample, assert_close, graph_of, inputs};
use crate::graph::egraph::network::{Head, Network};
use crate::graph::interpret;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::graph::rules;
use crate::graph::rules::pattern::Rule;
use crate::graph::text::words::tensor_type;
use crate::graph::text::{constant, elements};
use crate::runtime::DType;
use egg::Id;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::path::PathBuf;

const APPLIES_NOWHERE: &str = "=/>";

/// A paragraph of a document: an expression and what a rule makes of it.
pub struct Case {
    pub rule: String,
    paragraph: String,
}

impl Case {
    pub fn applies(&self) -> bool {
        !self.paragraph.lines().any(|line| line == APPLIES_NOWHERE)
    }

    /// Adds the values to a sample; returns that of the expression.
    pub fn build(&self, sample: &mut Sample) -> ValueId {
        self.read(sample).0
    }

    fn read(&self, sample: &mut Sample) -> (ValueId, BTreeMap<String, ValueId>) {
        sample.words = self.rule.ends_with("words");
        sample.halved = self.rule.ends_with("strassen");
        sample.stored = self.rule.ends_with("widened");
        let (mut root, mut names) = (None, BTreeMap::new());
        for line in self.paragraph.lines().filter(|line| !line.starts_with(['#', '='])) {
            let mut value = |text| expression(sample, &mut names, &mut tokens(text).into_iter().peekable());
            if let Some((a, b)) = line.split_once(" == ") {
                let pair = (value(a), value(b));
                sample.equal.push(pair);
            } else if let Some((name, text)) = line.split_once(" = ") {
                let value = value(text);
                names.insert(name.to_string(), value);
            } else {
                root = Some(value(line));
            }
        }
        (root.unwrap_or_else(|| panic!("{}: no expression", self.rule)), names)
    }

    /// The paragraph with the lines `=>` that the rule gives, both sides of which compute the same.
    fn apply(&self, rule: &Rule) -> String {
        let mut s = Sample::default();
        let (root, named) = self.read(&mut s);
        let (mut network, class) = s.network(root);
        let names = named.iter().map(|(name, v)| (network.find(class[v.0 as usize]), name.clone())).collect();
        let given = inputs(&mut s);
        let head = self.paragraph.lines().filter(|line| !line.starts_with("=>"));
        let mut out: Vec<String> = head.map(String::from).collect();
        for id in (0..network.egraph.nodes().len()).map(Id::from) {
            let term = network.egraph.id_to_node(id).clone();
            for (a, b) in rule.apply(&mut network, id, &term) {
                let run = |id| interpret::run(&graph_of(&network, &s.graph, id), &given).unwrap();
                assert_close(&run(a), &run(b), rule.name);
                let left = (network.find(a) != network.find(id)).then(|| print(&network, &names, a) + " == ");
                out.push(format!("=> {}{}", left.unwrap_or_default(), print(&network, &names, b)));
            }
        }
        out.join("\n")
    }
}

/// Parentheses and atoms; blanks and parentheses inside of brackets belong to the atom.
fn tokens(text: &str) -> Vec<&str> {
    let (mut out, mut start, mut depth) = (vec![], None, 0);
    for (i, c) in text.char_indices() {
        depth += i32::from(c == '[') - i32::from(c == ']');
        let parenthesis = matches!(c, '(' | ')');
        if depth == 0 && (parenthesis || c.is_whitespace()) {
            out.extend(start.take().map(|s| &text[s..i]));
            out.extend(parenthesis.then(|| &text[i..=i]));
        } else {
            start = start.or(Some(i));
        }
    }
    out.extend(start.map(|s| &text[s..]));
    out
}

fn expression<'a>(
    sample: &mut Sample,
    names: &mut BTreeMap<String, ValueId>,
    tokens: &mut Peekable<impl Iterator<Item = &'a str>>,
) -> ValueId {
    let token = tokens.next().expect("an expression");
    if token == "(" {
        let op = tokens.next().expect("an operator");
        let op = Op::parse(op).unwrap_or_else(|e| panic!("{op}: {e}"));
        let mut operands = vec![];
        while tokens.next_if_eq(&")").is_none() {
            operands.push(expression(sample, names, tokens));
        }
        return sample.op(op, &operands);
    }
    if let Ok(number) = token.parse() {
        return sample.n(number);
    }
    let Some((name, declared)) = token.split_once(':') else {
        return *names.get(token).unwrap_or_else(|| panic!("{token} is not declared"));
    };
    let (ty, contents) = declared.split_once('=').map_or((declared, None), |(ty, c)| (ty, Some(c)));
    let ty = tensor_type(ty).unwrap_or_else(|e| panic!("{token}: {e}"));
    let value = match contents {
        Some(contents) => sample.constant(constant(&ty, contents).unwrap_or_else(|e| panic!("{token}: {e}"))),
        None if ty.dtype != DType::F32 => panic!("{token}: inputs and constants without elements are f32"),
        None if name.starts_with('$') => sample.c(&ty.shape),
        None => sample.x(&ty.shape),
    };
    assert_eq!(names.insert(name.to_string(), value), None, "{token} is declared twice");
    value
}

fn print(network: &Network, names: &BTreeMap<Id, String>, id: Id) -> String {
    if let Some(name) = names.get(&network.find(id)) {
        return name.clone();
    }
    let term = network.egraph.id_to_node(id);
    match &term.head {
        Head::Op(op) => {
            let operands = term.children.iter().map(|&c| format!(" {}", print(network, names, c)));
            format!("({op}{})", operands.collect::<String>())
        }
        Head::Constant(i) => {
            let t = &network.egraph.analysis.constants[*i as usize];
            match network.scalar(id).filter(|_| t.shape.is_empty()) {
                Some(number) => number.to_string(),
                None => format!("$:{}={}", network.ty(id), elements(t, usize::MAX).replace(", ", ",")),
            }
        }
        Head::Input(_) | Head::Output(_) => unreachable!("inputs have names, samples no operators of several outputs"),
    }
}

fn documents() -> Vec<(PathBuf, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/rules");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|p| (p.clone(), std::fs::read_to_string(p).unwrap())).collect()
}

/// The cases of a document; a heading is the name of a rule.
fn paragraphs(document: &str) -> impl Iterator<Item = std::result::Result<Case, &str>> {
    let mut rule = "";
    document.trim_end().split("\n\n").map(move |paragraph| match paragraph.strip_prefix("rule ") {
        Some(name) => {
            rule = name;
            Err(paragraph)
        }
        None => Ok(Case { rule: rule.into(), paragraph: paragraph.into() }),
    })
}

/// All cases.
pub fn all() -> Vec<Case> {
    let documents = documents();
    documents.iter().flat_map(|(_, text)| paragraphs(text).flatten().collect::<Vec<_>>()).collect()
}

#[test]
fn rules_do_what_their_cases_say() {
    let table = rules::all(Some(4));
    let mut wrong = vec![];
    for (file, text) in documents() {
        let mut out = vec![];
        for paragraph in paragraphs(&text) {
            let case = match paragraph {
                Err(heading) => {
                    out.push(heading.to_string());
                    continue;
                }
                Ok(case) => case,
            };
            let rule = table.iter().find(|r| r.name == case.rule);
            let Some(rule) = rule else { panic!("{}: no rule is called `{}`", file.display(), case.rule) };
            let is = case.apply(rule);
            let applies = is.lines().any(|line| line.starts_with("=>"));
            if is != case.paragraph || applies != case.applies() {
                wrong.push((applies == case.applies(), format!("{}:\n{}\nis:\n{is}\n", rule.name, case.paragraph)));
            }
            out.push(is);
        }
        if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
            std::fs::write(&file, out.join("\n\n") + "\n").unwrap();
            wrong.retain(|(same_intent, _)| !same_intent);
        }
    }
    let wrong: Vec<String> = wrong.into_iter().map(|w| w.1).collect();
    assert!(wrong.is_empty(), "{}\nTILEWRIGHT_BLESS=1 writes the results again", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_case_where_it_applies_and_one_where_it_does_not() {
    let cases = all();
    let mut missing = vec![];
    for rule in rules::all(Some(4)) {
        for applies in [true, false] {
            if !cases.iter().any(|c| c.rule == rule.name && c.applies() == applies) {
                missing.push(format!(
                    "{} has no case where it {}",
                    rule.name,
                    ["does not apply", "applies"][usize::from(applies)]
                ));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
