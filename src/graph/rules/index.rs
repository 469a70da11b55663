//! Rules by the operator at their root.

use crate::graph::egraph::network::{Head, Term};
use crate::graph::rules::pattern::Rule;
use std::collections::BTreeMap;

/// The rules that may match at each mnemonic, asked of the rules when an operator with it is first met, without a
/// list of operators that could be incomplete.
pub struct Index<'a> {
    rules: &'a [Rule],
    words: BTreeMap<String, Vec<usize>>,
}

impl<'a> Index<'a> {
    pub fn new(rules: &'a [Rule]) -> Index<'a> {
        Index { rules, words: BTreeMap::new() }
    }

    /// Positions of the rules that may match at the e-node, in order.
    pub fn candidates(&mut self, term: &Term) -> &[usize] {
        let Head::Op(op) = &term.head else { return &[] };
        let word = op.mnemonic();
        if !self.words.contains_key(word) {
            let list = (0..self.rules.len()).filter(|&r| self.rules[r].may_match(op)).collect();
            self.words.insert(word.to_string(), list);
        }
        &self.words[word]
    }
}
