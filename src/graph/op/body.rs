//! The graph inside of an operator, as its text.
//!
//! Operators are values with an order and a hash, so a body is the one text that prints its graph. Invariant: the text has one
//! line, `{ statement; statement }`, with the types of all values, from which the types of inputs and outputs are read.

use crate::graph::tensor_type::TensorType;
use crate::graph::text::words::{Parsed, parts, tensor_type};
use rustc_hash::FxHashSet;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::{Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A graph inside of an operator. Two bodies are equal where their texts are.
#[derive(Clone, Debug)]
pub struct Body {
    contents: Arc<Contents>,
    /// Of each node, in the order of the text; none where they are not known.
    origins: Arc<[Origins]>,
}

#[derive(Debug)]
struct Contents {
    text: String,
    inputs: Vec<TensorType>,
    outputs: Vec<TensorType>,
}

/// The nodes of the model file that a node of a body comes from, and those of the nodes of the bodies inside of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origins {
    /// As [`Node::origins`](crate::graph::ir::Node::origins).
    pub own: Vec<Arc<str>>,
    /// One list for each body of its operator.
    pub inside: Vec<Arc<[Origins]>>,
}

impl Origins {
    /// Adds those of an equal node.
    fn merge(&mut self, other: &Origins) {
        add_new(&mut self.own, &other.own);
        if self.inside.is_empty() {
            self.inside = other.inside.clone();
        }
        self.inside.iter_mut().zip(&other.inside).for_each(|(all, other)| *all = merged(all, other));
    }
}

/// The origins of the nodes of two equal bodies.
fn merged(a: &Arc<[Origins]>, b: &Arc<[Origins]>) -> Arc<[Origins]> {
    if a == b || a.len() != b.len() {
        return if a.is_empty() { b.clone() } else { a.clone() };
    }
    let mut all = a.to_vec();
    all.iter_mut().zip(&b[..]).for_each(|(all, other)| all.merge(other));
    all.into()
}

/// Adds to a list what it does not have, in one pass over both.
pub fn add_new<'a>(list: &mut Vec<Arc<str>>, more: impl IntoIterator<Item = &'a Arc<str>>) {
    let mut present: FxHashSet<Arc<str>> = list.iter().cloned().collect();
    list.extend(more.into_iter().filter(|origin| present.insert(Arc::clone(origin))).cloned());
}

impl Body {
    /// Reads `{ %0: f32[2] = input "x"; %1: f32[2] = exp(%0); output %1 "y" }`.
    ///
    /// # Errors
    /// The reason where there are no braces around statements, or an input or output has no type. The statements
    /// themselves are checked where the body becomes a graph.
    pub fn parse(text: &str) -> Parsed<Body> {
        let text = text.trim();
        let inside = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
        let inside = inside.ok_or("expected `{ statement; … }`")?;
        if text.contains('\n') {
            return Err("a body is written in one line".into());
        }
        let mut types: HashMap<&str, TensorType> = HashMap::new();
        let (mut inputs, mut outputs) = (vec![], vec![]);
        for statement in split(inside) {
            if let Some(output) = statement.strip_prefix("output ") {
                let label = output.split(' ').next().unwrap_or_default();
                let ty = types.get(label).ok_or_else(|| format!("the output {label} has no type"))?;
                outputs.push(ty.clone());
                continue;
            }
            let (left, right) = statement.split_once(" = ").ok_or("expected `%value: type = …`")?;
            for value in parts(left) {
                let (label, ty) = value.split_once(':').ok_or_else(|| format!("`{value}` has no type"))?;
                let ty = tensor_type(ty)?;
                if right.starts_with("input ") {
                    inputs.push(ty.clone());
                }
                types.insert(label.trim(), ty);
            }
        }
        let contents = Contents { text: text.to_string(), inputs, outputs };
        Ok(Body { contents: Arc::new(contents), origins: Arc::default() })
    }

    /// Types of the inputs.
    pub fn inputs(&self) -> &[TensorType] {
        &self.contents.inputs
    }

    /// Types of the outputs.
    pub fn outputs(&self) -> &[TensorType] {
        &self.contents.outputs
    }

    /// The origins of the nodes, in the order of the text; none where they are not known.
    pub fn origins(&self) -> &Arc<[Origins]> {
        &self.origins
    }

    /// The body with the origins of its nodes.
    pub fn with_origins(self, origins: Arc<[Origins]>) -> Body {
        Body { origins, ..self }
    }

    /// Adds the origins of the nodes of an equal body.
    pub fn merge_origins(&mut self, other: &Body) {
        self.origins = merged(&self.origins, &other.origins);
    }

    /// The statements, one after the other.
    pub fn statements(&self) -> Vec<&str> {
        let inside = self.contents.text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
        split(inside.unwrap_or_default())
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        self.contents.text == other.contents.text
    }
}

impl Eq for Body {}

impl Hash for Body {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.contents.text.hash(state);
    }
}

impl PartialOrd for Body {
    fn partial_cmp(&self, other: &Body) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Body {
    fn cmp(&self, other: &Body) -> Ordering {
        self.contents.text.cmp(&other.contents.text)
    }
}

impl Display for Body {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        f.write_str(&self.contents.text)
    }
}

/// Positions in the text outside of quotes, each with its character and the number of braces around it.
fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char, usize)> {
    let (mut quoted, mut escaped, mut depth) = (false, false, 0usize);
    text.char_indices().filter_map(move |(i, c)| {
        if quoted {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
            return None;
        }
        match c {
            '"' => quoted = true,
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        Some((i, c, depth))
    })
}

/// The parts between semicolons that stand outside of inner braces.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start) = (vec![], 0);
    for (i, c, depth) in outside_quotes(text) {
        if c == ';' && depth == 0 {
            parts.push(text[start..i].trim());
            start = i + 1;
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|p| !p.is_empty());
    parts
}

/// The `{ … }` after `key=` outside of other braces.
pub fn block<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let opening = |i: usize| text[..i].strip_suffix('=').and_then(|t| t.strip_suffix(key)).is_some();
    let start = outside_quotes(text).find(|&(i, c, depth)| c == '{' && depth == 1 && opening(i))?.0;
    let end = outside_quotes(text).find(|&(i, c, depth)| i > start && c == '}' && depth == 0)?.0;
    Some(&text[start..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_types_of_its_text() {
        let inner = "if[then={ output %1 \"}\" } else={ output %2 \"o;0\" }](%0, %1)";
        let text = format!(
            "{{ %0: f32[2,3] = input \"a;}}\\\"\"; %1: i64[] = input \"b\"; %2: f32[4] = {inner}; output %2 \"y\"; output %0 \"z\" }}"
        );
        let body = Body::parse(&text).unwrap();
        let shown = |types: &[TensorType]| types.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        assert_eq!(shown(body.inputs()), ["f32[2,3]", "i64[]"]);
        assert_eq!(shown(body.outputs()), ["f32[4]", "f32[2,3]"]);
        assert_eq!(body.statements().len(), 5);
        assert_eq!(body.to_string(), text);
        assert_eq!(block("trips=2 then={ a={ b } } else={ c }", "else"), Some("{ c }"));
        assert_eq!(block("trips=2 then={ a={ b } } else={ c }", "then"), Some("{ a={ b } }"));
        assert_eq!(block("trips=2 then={ a={ b } }", "a"), None);
    }

    #[test]
    fn wrong_texts_are_refused() {
        for (text, reason) in [
            ("%0: f32[2] = input \"x\"", "expected `{"),
            ("{ output %0 \"x\" }", "%0 has no type"),
            ("{ %0 = input \"x\" }", "`%0` has no type"),
            ("{ %0: f32[a] = input \"x\" }", "`a` is not an extent"),
            ("{ nonsense }", "expected `%value"),
            ("{ %0: f32[2] = input \"x\";\n output %0 \"y\" }", "one line"),
        ] {
            let error = Body::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
