//! Rules and patterns: the rows of the tables, and their matching.
//!
//! A row has a name, a pattern, and the right side: another pattern, or a function that checks its
//! condition and computes attributes. Patterns: `?x` any class, `$c` a class computed from constants, `(word p…)` an
//! application, `(word ...)` with any operands, `(word@a …)` the same and remembered; two equal names stand for the same
//! thing. A number is an f32 constant of exactly that value, `~` before it one within [`ULPS`] of it, for those that an
//! exporter had to round. `add`, `mul`, `min` and `max` match modulo commutativity and associativity. `{set}` at the root is
//! any operator of a set.

use crate::graph::egraph::network::{Head, Network, Term};
use crate::graph::op::Op;
use egg::Id;
use std::collections::BTreeMap;

/// Largest distance of a constant from `~n`, in f32 numbers: 1/6 and 1/√2 come rounded, and rounded again by a
/// division.
const ULPS: u32 = 4;

/// The treatment of the e-node that a rule matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// Keeps both sides: the extraction chooses.
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
    /// Two classes that are equal where the left side is found.
    Equal(fn(&Network, &Match) -> Option<(Id, Id)>),
}

impl std::fmt::Debug for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Right::Pattern(p) => p.fmt(f),
            Right::Code(_) | Right::Equal(_) => f.write_str("code"),
        }
    }
}

/// The bindings of a pattern's names.
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
    /// A constant that is this number but for rounding.
    Rounded(f32),
    /// Word, its name for `@`, operands (`None`: any).
    Apply(String, Option<char>, Option<Vec<Pattern>>),
}

/// A row whose right side is a pattern.
pub fn rewrite(keep: Keep, name: &'static str, left: &str, right: &str) -> Rule {
    Rule { name, keep, left: Left::Pattern(Pattern::parse(left)), right: Right::Pattern(Pattern::parse(right)) }
}

/// A row whose right side is built by a function.
pub fn build(keep: Keep, name: &'static str, left: &str, right: fn(&mut Network, &Match) -> Option<Id>) -> Rule {
    Rule { name, keep, left: Left::parse(left), right: Right::Code(right) }
}

/// A row that finds two classes to be equal, beside what it matches.
pub fn equate(name: &'static str, left: &str, equal: fn(&Network, &Match) -> Option<(Id, Id)>) -> Rule {
    Rule { name, keep: Keep::Beside, left: Left::parse(left), right: Right::Equal(equal) }
}

impl Left {
    fn parse(text: &str) -> Left {
        match text {
            "{elementwise}" => Left::Set(Op::is_elementwise),
            "{copy}" => Left::Set(|op| matches!(op, Op::Transpose { .. } | Op::Reshape { .. })),
            pattern => Left::Pattern(Pattern::parse(pattern)),
        }
    }
}

impl Rule {
    /// Returns true if the rule may match at an operator of this mnemonic: a set has all or none of those with one
    /// mnemonic.
    pub fn may_match(&self, op: &Op) -> bool {
        match &self.left {
            Left::Set(set) => set(op),
            Left::Pattern(Pattern::Apply(w, ..)) => w == op.mnemonic(),
            Left::Pattern(_) => unreachable!("the root of a rule is an application"),
        }
    }

    /// Pairs of classes of one type that are equal by this rule at the e-node `term` of `class`. The first of each pair is
    /// `class`, but for rows made by [`equate`].
    pub fn apply(&self, network: &mut Network, class: Id, term: &Term) -> Vec<(Id, Id)> {
        let start = Match { class, term: term.clone(), classes: BTreeMap::new(), terms: BTreeMap::new() };
        let matches = match &self.left {
            Left::Set(set) if !matches!(&term.head, Head::Op(op) if set(op)) => vec![],
            Left::Set(_) => vec![start],
            Left::Pattern(p) => p.match_term(network, term, &start),
        };
        let mut out = vec![];
        for m in matches {
            let equal = match &self.right {
                Right::Pattern(p) => p.instantiate(network, &m).map(|new| (class, new)),
                Right::Code(f) => f(network, &m).map(|new| (class, new)),
                Right::Equal(f) => f(network, &m),
            };
            out.extend(equal.filter(|&(a, b)| network.facts(a).types.first() == network.facts(b).types.first()));
        }
        out
    }
}

/// Returns true if a constant is the positive number `n` up to rounding.
pub fn is_rounded(constant: f32, n: f32) -> bool {
    constant > 0.0 && constant.to_bits().abs_diff(n.to_bits()) <= ULPS
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
            Some(list) if is_commutative(w) && list.len() >= 2 => split(list, |first, factors| {
                let first = match_factors(network, w, term.children[0], first, &m);
                first.iter().flat_map(|m| match_factors(network, w, term.children[1], factors, m)).collect()
            }),
            Some(list) if list.len() == term.children.len() => {
                let mut matches = vec![m];
                for (p, &c) in list.iter().zip(&term.children) {
                    matches = matches.iter().flat_map(|m| p.match_class(network, c, m)).collect();
                }
                matches
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
            Pattern::Number(_) | Pattern::Rounded(_) => {
                let fits = |v: f32| match self {
                    Pattern::Rounded(n) => is_rounded(v, *n),
                    Pattern::Number(n) => v == *n,
                    _ => false,
                };
                network.scalar(class).is_some_and(fits).then(|| m.clone()).into_iter().collect()
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
            Pattern::Number(n) | Pattern::Rounded(n) => Some(network.scalar_f32(*n)),
            Pattern::Apply(w, _, operands) => {
                let op = Op::named(w).filter(|op| op.is_elementwise()).expect("an elementwise operator").clone();
                let operands = operands.as_ref().expect("operands");
                let children: Option<Vec<Id>> = operands.iter().map(|p| p.instantiate(network, m)).collect();
                network.op(op, &children?)
            }
        }
    }
}

/// A class against several factors of one product (or terms of one sum).
fn match_factors(network: &Network, word: &str, class: Id, factors: &[&Pattern], m: &Match) -> Vec<Match> {
    if let [factor] = factors {
        return factor.match_class(network, class, m);
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
        let matches = attempt(&part(1), &part(0));
        if !matches.is_empty() {
            return matches;
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
            '~' => token[1..].parse().ok().map(Pattern::Rounded),
            _ => token.parse().ok().map(Pattern::Number),
        };
    }
    let head = tokens.next()?;
    let (word, name) = match head.split_once('@') {
        Some((w, n)) => (w, n.chars().next()),
        None => (head, None),
    };
    assert!(Op::named(word).is_some(), "no operator is called {word}");
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
