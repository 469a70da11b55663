//! Rewrite rules: tables with one rule a row. `pattern.rs` defines a row.

pub mod algebra;
pub mod algorithm;
pub mod blocked;
pub mod bytes;
pub mod constants;
pub mod index;
pub mod layout;
pub mod pattern;
pub mod precision;
pub mod recognize;
pub mod strassen;
#[cfg(test)]
mod tests;
pub mod toom_cook;

use algorithm::Algorithm;
use pattern::Rule;

/// The rules that clean up and recognize; they run to the end before layouts multiply the e-nodes.
pub fn clean() -> Vec<Rule> {
    let mut rules = recognize::rules();
    // Before scales of activations go into weights.
    rules.extend(bytes::rules());
    rules.extend(algebra::rules());
    rules
}

/// Every rule; those for channel-blocked layouts when a number of channels for each block is given.
pub fn all(block: Option<usize>) -> Vec<Rule> {
    let mut rules = with_algorithm(Algorithm::Cheapest, block);
    rules.extend(precision::rules());
    rules
}

/// The rules that compute convolutions by this algorithm; one that is given leaves out channel-blocked layouts, where there
/// is the direct one only.
pub fn with_algorithm(algorithm: Algorithm, block: Option<usize>) -> Vec<Rule> {
    let block = block.filter(|_| !matches!(algorithm, Algorithm::Winograd(_)));
    let mut rules = clean();
    rules.extend(layout::rules());
    rules.extend(algorithm::rules(algorithm));
    rules.extend(block.into_iter().flat_map(blocked::rules));
    rules
}

/// The names of all rules.
pub fn names() -> Vec<&'static str> {
    all(Some(4)).iter().map(|r| r.name).collect()
}
