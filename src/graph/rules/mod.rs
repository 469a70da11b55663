//! Rewrite rules: tables of rows, a row a rule.
//!
//! A row has a name, a pattern, and what is put beside the match: a pattern again, or a function that checks its
//! condition and computes attributes. Patterns: `?x` any class, `$c` a class computed from constants, a number an f32
//! constant of that value, `(word p…)` an application, `(word ...)` with any operands, `(word@a …)` the same and
//! remembered; two equal names stand for the same thing. `add`, `mul`, `min` and `max` match modulo commutativity and
//! associativity. `{set}` at the root is any operator of a set.

pub mod algebra;
pub mod blocked;
pub mod constants;
pub mod layout;
pub mod recognize;
#[cfg(test)]
mod tests;

use crate::graph::egraph::{Head, Network, Term};
use crate::graph::expr::{BinaryOp, UnaryOp};
use crate::graph::fusion::is_elementwise;
use crate::graph::op::{Op, ReduceOp};
use egg::Id;
use std::collections::BTreeMap;

/// What becomes of the e-node that a rule matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// The right side stands beside it: the extraction chooses.
    Beside,
    /// The right side is never worse: the e-node is not looked at any more.
    Instead,
    /// The right side is never worse if nothing else uses the operands: an e-node whose operands are used elsewhere stays.
    IfSole,
}

/// One row of a table.
#[derive(Clone, Debug)]
pub struct Rule {
    pub name: &'static str,
    pub keep: Keep,
    left: Left,
    right: Right,
}

#[derive(Clone, Debug)]
enum Left {
    Pattern(Pattern),
    Set(fn(&Op) -> bool),
}

#[derive(Clone)]
pub enum Right {
    Pattern(Pattern),
    /// Checks the condition and builds the equal class.
    Code(fn(&mut Network, &Match) -> Option<Id>),
}

impl std::fmt::Debug for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Right::Pattern(p) => p.fmt(f),
            Right::Code(_) => f.write_str("code"),
        }
    }
}

/// What the names of a pattern stand for.
#[derive(Clone, Debug)]
pub struct Match {
    /// The class and the e-node at the root.
    pub class: Id,
    pub term: Term,
    classes: BTreeMap<char, Id>,
    terms: BTreeMap<char, Term>,
}

impl Match {
    /// The class that `?x` or `$x` stands for.
    pub fn get(&self, name: char) -> Id {
        self.classes[&name]
    }

    /// The operator and operands that `@x` stands for.
    pub fn application(&self, name: char) -> (&Op, &[Id]) {
        apply_parts(&self.terms[&name])
    }

    /// The operator and operands at the root.
    pub fn root(&self) -> (&Op, &[Id]) {
        apply_parts(&self.term)
    }
}

fn apply_parts(term: &Term) -> (&Op, &[Id]) {
    match &term.head {
        Head::Op(op) => (op, &term.children),
        _ => unreachable!("patterns match applications"),
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Pattern {
    Any(char),
    Constant(char),
    Number(f32),
    /// Word, its name for `@`, operands (`None`: any).
    Apply(String, Option<char>, Option<Vec<Pattern>>),
}

/// A row whose right side is a pattern.
pub fn rewrite(keep: Keep, name: &'static str, left: &str, right: &str) -> Rule {
    Rule { name, keep, left: Left::Pattern(Pattern::parse(left)), right: Right::Pattern(Pattern::parse(right)) }
}

/// A row whose right side is built by a function.
pub fn build(keep: Keep, name: &'static str, left: &str, right: fn(&mut Network, &Match) -> Option<Id>) -> Rule {
    let left = match left {
        "{elementwise}" => Left::Set(is_elementwise),
        "{any}" => Left::Set(|_| true),
        pattern => Left::Pattern(Pattern::parse(pattern)),
    };
    Rule { name, keep, left, right: Right::Code(right) }
}

/// The rules that clean up and recognise; they run to the end before layouts multiply what there is.
pub fn clean() -> Vec<Rule> {
    let mut rules = recognize::rules();
    rules.extend(algebra::rules());
    rules
}

/// Every rule; those for channel-blocked layouts when a number of channels for each block is given.
pub fn all(block: Option<usize>) -> Vec<Rule> {
    let mut rules = clean();
    rules.extend(layout::rules());
    rules.extend(block.into_iter().flat_map(blocked::rules));
    rules
}

/// Rules by the word at their root.
pub struct Index {
    words: BTreeMap<String, Vec<usize>>,
}

impl Index {
    pub fn new(rules: &[Rule]) -> Index {
        let mut words = BTreeMap::new();
        for op in representatives() {
            let fits = |rule: &Rule| match &rule.left {
                Left::Set(set) => set(&op),
                Left::Pattern(Pattern::Apply(w, ..)) => w == op.mnemonic(),
                Left::Pattern(_) => unreachable!("the root of a rule is an application"),
            };
            let list = (0..rules.len()).filter(|&i| fits(&rules[i])).collect();
            words.insert(op.mnemonic().to_string(), list);
        }
        Index { words }
    }

    /// The rules that may match at the e-node.
    pub fn candidates(&self, term: &Term) -> &[usize] {
        match &term.head {
            Head::Op(op) => self.words.get(op.mnemonic()).map_or(&[], |l| l),
            _ => &[],
        }
    }
}

impl Rule {
    /// The classes that equal the e-node `term` of `class` by this rule, of the same type.
    pub fn apply(&self, network: &mut Network, class: Id, term: &Term) -> Vec<Id> {
        let start = Match { class, term: term.clone(), classes: BTreeMap::new(), terms: BTreeMap::new() };
        let matches = match &self.left {
            Left::Set(set) if !matches!(&term.head, Head::Op(op) if set(op)) => vec![],
            Left::Set(_) => vec![start],
            Left::Pattern(p) => p.match_term(network, term, &start),
        };
        let mut out = vec![];
        for m in matches {
            let new = match &self.right {
                Right::Pattern(p) => p.instantiate(network, &m),
                Right::Code(f) => f(network, &m),
            };
            out.extend(new.filter(|&n| network.facts(n).types.first() == network.facts(class).types.first()));
        }
        out
    }
}

fn is_commutative(word: &str) -> bool {
    matches!(word, "add" | "mul" | "min" | "max")
}

impl Pattern {
    /// Parses a pattern of a table; panics on a wrong row.
    pub fn parse(text: &str) -> Pattern {
        let spaced = text.replace('(', " ( ").replace(')', " ) ");
        let mut tokens = spaced.split_whitespace().peekable();
        let pattern = parse_tokens(&mut tokens).unwrap_or_else(|| panic!("pattern {text}"));
        assert!(tokens.next().is_none(), "pattern {text}");
        pattern
    }

    fn match_term(&self, network: &Network, term: &Term, m: &Match) -> Vec<Match> {
        let (Pattern::Apply(w, name, operands), Head::Op(op)) = (self, &term.head) else { return vec![] };
        if op.mnemonic() != w {
            return vec![];
        }
        let mut m = m.clone();
        if let Some(name) = name {
            match m.terms.get(name) {
                Some(Term { head, .. }) if *head != term.head => return vec![],
                _ => m.terms.insert(*name, term.clone()),
            };
        }
        match operands {
            None => vec![m],
            Some(list) if is_commutative(w) && list.len() >= 2 => split(list, |first, rest| {
                let first = match_factors(network, w, term.children[0], first, &m);
                first.iter().flat_map(|m| match_factors(network, w, term.children[1], rest, m)).collect()
            }),
            Some(list) if list.len() == term.children.len() => {
                let mut found = vec![m];
                for (p, &c) in list.iter().zip(&term.children) {
                    found = found.iter().flat_map(|m| p.match_class(network, c, m)).collect();
                }
                found
            }
            Some(_) => vec![],
        }
    }

    fn match_class(&self, network: &Network, class: Id, m: &Match) -> Vec<Match> {
        match self {
            Pattern::Any(name) | Pattern::Constant(name) => {
                if matches!(self, Pattern::Constant(_)) && !network.is_constant(class) {
                    return vec![];
                }
                match m.classes.get(name) {
                    Some(&bound) if network.find(bound) != network.find(class) => vec![],
                    Some(_) => vec![m.clone()],
                    None => {
                        let mut m = m.clone();
                        m.classes.insert(*name, network.find(class));
                        vec![m]
                    }
                }
            }
            Pattern::Number(n) => {
                let close = |v: f32| (v - n).abs() <= 1e-4 * n.abs();
                network.scalar(class).is_some_and(close).then(|| m.clone()).into_iter().collect()
            }
            Pattern::Apply(..) => {
                // One application suffices: others in the class lead to equal right sides.
                let terms = network.terms(class).iter().filter(|t| network.is_current(t));
                terms.map(|t| self.match_term(network, t, m)).find(|l| !l.is_empty()).unwrap_or_default()
            }
        }
    }

    fn instantiate(&self, network: &mut Network, m: &Match) -> Option<Id> {
        match self {
            Pattern::Any(name) | Pattern::Constant(name) => Some(m.get(*name)),
            Pattern::Number(n) => Some(network.scalar_f32(*n)),
            Pattern::Apply(w, _, operands) => {
                let op = simple_op(w).expect("an operator without attributes");
                let operands = operands.as_ref().expect("operands");
                let children: Option<Vec<Id>> = operands.iter().map(|p| p.instantiate(network, m)).collect();
                network.op(op, &children?)
            }
        }
    }
}

/// A class against several factors of one product (or terms of one sum).
fn match_factors(network: &Network, word: &str, class: Id, factors: &[&Pattern], m: &Match) -> Vec<Match> {
    if let [one] = factors {
        return one.match_class(network, class, m);
    }
    let mut out = vec![];
    for term in network.terms(class).iter().filter(|t| network.is_current(t)) {
        if matches!(&term.head, Head::Op(op) if op.mnemonic() == word) {
            out.extend(split(factors, |first, rest| {
                let first = match_factors(network, word, term.children[0], first, m);
                first.iter().flat_map(|m| match_factors(network, word, term.children[1], rest, m)).collect()
            }));
        }
        if !out.is_empty() {
            break;
        }
    }
    out
}

/// Tries each way to deal the patterns to two operands, until one succeeds.
fn split<P: std::borrow::Borrow<Pattern>>(
    list: &[P],
    mut attempt: impl FnMut(&[&Pattern], &[&Pattern]) -> Vec<Match>,
) -> Vec<Match> {
    for mask in 1..(1u32 << list.len()) - 1 {
        let part = |bit: u32| -> Vec<&Pattern> {
            let chosen = list.iter().enumerate().filter(|(i, _)| mask >> i & 1 == bit);
            chosen.map(|(_, p)| p.borrow()).collect()
        };
        let found = attempt(&part(1), &part(0));
        if !found.is_empty() {
            return found;
        }
    }
    vec![]
}

fn parse_tokens<'a>(tokens: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Option<Pattern> {
    let token = tokens.next()?;
    if token != "(" {
        return match token.chars().next()? {
            '?' => token.chars().nth(1).map(Pattern::Any),
            '$' => token.chars().nth(1).map(Pattern::Constant),
            _ => token.parse().ok().map(Pattern::Number),
        };
    }
    let head = tokens.next()?;
    let (word, name) = match head.split_once('@') {
        Some((w, n)) => (w, n.chars().next()),
        None => (head, None),
    };
    assert!(representatives().iter().any(|op| op.mnemonic() == word), "no operator is called {word}");
    let mut operands = vec![];
    while *tokens.peek()? != ")" {
        if *tokens.peek()? == "..." {
            tokens.next();
            return (tokens.next()? == ")").then(|| Pattern::Apply(word.into(), name, None));
        }
        operands.push(parse_tokens(tokens)?);
    }
    tokens.next();
    Some(Pattern::Apply(word.into(), name, Some(operands)))
}

fn simple_op(word: &str) -> Option<Op> {
    representatives().into_iter().find(|op| is_elementwise(op) && op.mnemonic() == word)
}

/// One operator of each word.
fn representatives() -> Vec<Op> {
    use crate::graph::op::{F32, Layout, PoolKind, Window};
    let window = || Window { kernel: vec![], stride: vec![], dilation: vec![], pad_before: vec![], pad_after: vec![] };
    let reduce = |op| Op::Reduce { op, axes: vec![], keep: true };
    let layout = Layout::Nchw;
    let unary = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sqrt, UnaryOp::Exp, UnaryOp::Log, UnaryOp::Tanh, UnaryOp::Erf];
    let unary = unary.into_iter().chain([UnaryOp::Floor, UnaryOp::Ceil, UnaryOp::Round, UnaryOp::Not]);
    let binary = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Mod, BinaryOp::Min];
    let binary = binary.into_iter().chain([BinaryOp::Max, BinaryOp::Pow, BinaryOp::And, BinaryOp::Or, BinaryOp::Xor]);
    let mut all: Vec<Op> = unary.map(Op::Unary).chain(binary.map(Op::Binary)).collect();
    all.extend([
        Op::Compare(crate::graph::expr::CompareOp::Eq),
        Op::Select,
        Op::Cast(crate::graph::DType::F32),
        Op::Sigmoid,
        Op::Silu,
        Op::HardSigmoid { alpha: F32::new(1.0 / 6.0), beta: F32::new(0.5) },
        Op::HardSwish,
        Op::Gelu,
        Op::Transpose { perm: vec![] },
        Op::Reshape { shape: vec![] },
        Op::Expand { shape: vec![] },
        Op::Slice { starts: vec![], ends: vec![], steps: vec![] },
        Op::Concat { axis: 0 },
        Op::Pad { before: vec![], after: vec![], value: 0 },
        Op::Block { block: 1 },
        Op::Unblock { channels: 1 },
        Op::Upsample { factors: vec![] },
        Op::Gather { axis: 0 },
        Op::GatherElements { axis: 0 },
        Op::GatherNd { batch_dims: 0 },
        reduce(ReduceOp::Sum),
        reduce(ReduceOp::Mean),
        reduce(ReduceOp::Max),
        reduce(ReduceOp::Min),
        reduce(ReduceOp::Prod),
        Op::Softmax { axis: 0, log: false },
        Op::Softmax { axis: 0, log: true },
        Op::LayerNorm { axis: 0, epsilon: F32::new(0.0) },
        Op::Pool { kind: PoolKind::Max, window: window(), layout },
        Op::Pool { kind: PoolKind::Average { count_padding: false }, window: window(), layout },
        Op::MatMul { transpose_a: false, transpose_b: false },
        Op::Conv { window: window(), group: 1, layout },
        Op::ConvTranspose { window: window(), group: 1, output_pad: vec![], layout },
        Op::Opaque { function: String::new(), attributes: vec![] },
    ]);
    all
}
