//! Sums of products by an equation of labels: diagonals, sums over labels of one operand, then products of two operands at a
//! time, as matrix products.

use super::arithmetic::count;
use super::node::Source;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::runtime::{Error, Result};
use std::collections::BTreeMap;

/// A letter of the equation, or a dimension of the ellipsis, counted from its last one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// A value with a label for each of its dimensions.
struct Term {
    value: ValueId,
    labels: Vec<Label>,
}

/// The labels of one side; `rank` says how many dimensions the ellipsis has.
fn labels(text: &str, rank: impl Fn(usize) -> Result<usize>) -> Result<Vec<Label>> {
    let letters = text.chars().filter(|c| c.is_ascii_alphabetic()).count();
    let mut out = vec![];
    let mut unread = text;
    while let Some(c) = unread.chars().next() {
        if let Some(after) = unread.strip_prefix("...") {
            if out.iter().any(|l| matches!(l, Label::Ellipsis(_))) {
                return Err(Error::Invalid(format!("`{text}` has two ellipses")));
            }
            out.extend((0..rank(letters)?).rev().map(Label::Ellipsis));
            unread = after;
        } else if c.is_ascii_alphabetic() {
            out.push(Label::Letter(c));
            unread = &unread[1..];
        } else {
            return Err(Error::Invalid(format!("`{text}` is not a list of letters")));
        }
    }
    Ok(out)
}

pub(super) fn einsum(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let equation: String = n.string("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (&equation[..], None),
    };
    let operands = n.present();
    let sides: Vec<&str> = left.split(',').collect();
    if sides.len() != operands.len() {
        return Err(Error::Invalid(format!("`{equation}` is about {} operands, not {}", sides.len(), operands.len())));
    }
    let mut terms = vec![];
    for (text, &value) in sides.iter().zip(&operands) {
        let rank = g.rank(value);
        let misfit = || Error::Invalid(format!("`{text}` does not fit shape {:?}", g.shape(value)));
        let labels = labels(text, |letters| rank.checked_sub(letters).ok_or_else(misfit))?;
        if labels.len() != rank {
            return Err(misfit());
        }
        terms.push(Term { value, labels });
    }
    let mut extents: BTreeMap<Label, i64> = BTreeMap::new();
    let mut uses: BTreeMap<Label, usize> = BTreeMap::new();
    for term in &terms {
        for (&label, &d) in term.labels.iter().zip(g.shape(term.value)) {
            let extent = extents.entry(label).or_insert(1);
            if *extent != d && *extent != 1 && d != 1 {
                return Err(Error::Invalid(format!("a label of `{equation}` has extents {extent} and {d}")));
            }
            *extent = if *extent == 1 { d } else { *extent };
            *uses.entry(label).or_default() += 1;
        }
    }
    let ellipsis = extents.keys().filter(|l| matches!(l, Label::Ellipsis(_))).count();
    let output = match right {
        Some(text) => labels(text, |_| Ok(ellipsis))?,
        None => {
            let dots = (0..ellipsis).rev().map(Label::Ellipsis);
            dots.chain(uses.iter().filter(|(l, n)| matches!(l, Label::Letter(_)) && **n == 1).map(|(l, _)| *l))
                .collect()
        }
    };
    let repeated = output.iter().enumerate().any(|(i, l)| output[..i].contains(l));
    if repeated || output.iter().any(|l| !extents.contains_key(l)) {
        return Err(Error::Invalid(format!("the result of `{equation}` repeats a label or has one of no operand")));
    }
    let mut rest = terms.into_iter();
    let first = rest.next().ok_or_else(|| Error::Invalid("there are no operands".into()))?;
    let mut rest: Vec<Term> = rest.collect();
    rest.reverse();
    let needed = |rest: &[Term], label: &Label| output.contains(label) || rest.iter().any(|t| t.labels.contains(label));
    let mut product = simplified(g, first, &extents, |l| needed(&rest, l))?;
    while let Some(next) = rest.pop() {
        let next = simplified(g, next, &extents, |l| product.labels.contains(l) || needed(&rest, l))?;
        product = contracted(g, product, next, &extents, |l| needed(&rest, l))?;
    }
    let order = places(&product.labels, &output)?;
    Ok(vec![g.permuted(product.value, &order)?])
}

/// The positions of `to` in `from`, which has the same labels.
fn places(from: &[Label], to: &[Label]) -> Result<Vec<usize>> {
    let place = |l: &Label| from.iter().position(|f| f == l);
    let order: Option<Vec<usize>> = to.iter().map(place).collect();
    order.filter(|o| o.len() == from.len()).ok_or_else(|| Error::Internal("a label of a product is lost".into()))
}

/// The value with each label once, in full extent, summed over the labels that are not needed.
fn simplified(
    g: &mut Importer,
    term: Term,
    extents: &BTreeMap<Label, i64>,
    needed: impl Fn(&Label) -> bool,
) -> Result<Term> {
    let Term { mut value, mut labels } = term;
    let full: Vec<i64> = labels.iter().map(|l| extents[l]).collect();
    // a dimension of extent 1 stretches along its own label alone where it is needed
    let stretched: Vec<i64> = (0..labels.len())
        .map(|d| {
            let twice = labels.iter().filter(|l| **l == labels[d]).count() > 1;
            if twice || g.shape(value)[d] != 1 || !needed(&labels[d]) { full[d] } else { 1 }
        })
        .collect();
    value = g.expanded(value, &stretched)?;
    while let Some((a, b)) = pair(&labels) {
        let order: Vec<usize> = (0..labels.len()).filter(|&d| d != a && d != b).chain([a, b]).collect();
        value = g.permuted(value, &order)?;
        let mut shape = g.shape(value).to_vec();
        let extent = shape.pop().unwrap_or(1);
        let last = shape.len() - 1;
        shape[last] = extent * extent;
        value = g.reshape_to(value, shape)?;
        value = g.strided_slice(value, last, 0, extent * extent, extent + 1)?;
        labels = order[..order.len() - 1].iter().map(|&d| labels[d]).collect();
    }
    let gone: Vec<usize> = (0..labels.len()).filter(|&d| !needed(&labels[d])).collect();
    if !gone.is_empty() {
        value = g.sum_over(value, &gone)?;
        labels.retain(|l| needed(l));
    }
    Ok(Term { value, labels })
}

/// Two dimensions of one label.
fn pair(labels: &[Label]) -> Option<(usize, usize)> {
    (0..labels.len()).find_map(|b| labels[..b].iter().position(|l| *l == labels[b]).map(|a| (a, b)))
}

/// The product of two values, summed over the labels that both have and nothing needs.
fn contracted(
    g: &mut Importer,
    a: Term,
    b: Term,
    extents: &BTreeMap<Label, i64>,
    needed: impl Fn(&Label) -> bool,
) -> Result<Term> {
    let of = |x: &Term, y: &Term, shared: bool, kept: bool| -> Vec<Label> {
        x.labels.iter().copied().filter(|l| y.labels.contains(l) == shared && needed(l) == kept).collect()
    };
    let (batch, summed) = (of(&a, &b, true, true), of(&a, &b, true, false));
    let (rows, columns) = (of(&a, &b, false, true), of(&b, &a, false, true));
    let extent = |l: &Label| extents[l];
    let size = |labels: &[Label]| count(&labels.iter().map(extent).collect::<Vec<_>>());
    let mut arranged = |term: &Term, parts: [&[Label]; 3], shape: Vec<i64>| -> Result<ValueId> {
        let labels = parts.concat();
        let order = places(&term.labels, &labels)?;
        let x = g.permuted(term.value, &order)?;
        // shared dimensions of extent 1 stretch
        let whole: Vec<i64> = labels.iter().map(extent).collect();
        let x = g.expanded(x, &whole)?;
        g.reshape_to(x, shape)
    };
    let (many, m, k, n) = (size(&batch), size(&rows), size(&summed), size(&columns));
    let labels = [batch.clone(), rows.clone(), columns.clone()].concat();
    let shape: Vec<i64> = labels.iter().map(extent).collect();
    let y = if summed.is_empty() {
        let x = arranged(&a, [&batch, &rows, &[]], vec![many, m, 1])?;
        let y = arranged(&b, [&batch, &[], &columns], vec![many, 1, n])?;
        g.mul(x, y)?
    } else {
        let x = arranged(&a, [&batch, &rows, &summed], vec![many, m, k])?;
        let y = arranged(&b, [&batch, &summed, &columns], vec![many, k, n])?;
        g.matmul(x, y, false)?
    };
    Ok(Term { value: g.reshape_to(y, shape)?, labels })
}
