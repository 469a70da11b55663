//! Operators whose results are as large as the data make them: computed where all operands are known. And counts of n-grams,
//! whose pool the attributes say.

use super::node::Source;
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::Op;
use crate::runtime::opaque::{self, View};
use crate::runtime::{DType, Error, Result, Tensor, text};

/// Bytes that a node of such an operator takes at most, by its operands.
pub(super) fn memory_bound(operator: &str, operands: &[&Tensor]) -> u64 {
    let functions =
        [("Compress", "compress"), ("NonMaxSuppression", "nms"), ("NonZero", "nonzero"), ("Unique", "unique")];
    let function = functions.iter().find(|row| row.0 == operator).and_then(|row| opaque::data_dependent(row.1));
    let views: Vec<View> = operands.iter().map(|t| View { dtype: t.dtype, shape: &t.shape, data: &t.data }).collect();
    function.map_or(0, |(_, bound)| bound(&views))
}

impl Importer<'_> {
    /// The results of a data-dependent function of constants, each with its name for errors.
    fn apply_known(
        &mut self,
        function: &str,
        attributes: &[i64],
        operands: &[(&str, ValueId)],
    ) -> Result<Vec<ValueId>> {
        let (apply, bound) = opaque::data_dependent(function)
            .ok_or_else(|| Error::Internal(format!("there is no data-dependent function `{function}`")))?;
        let constant = |&(name, id): &(&str, ValueId)| {
            let unknown = || self.wait(&format!("its {name} depends on the data"));
            self.graph.constant(id).cloned().ok_or_else(unknown)
        };
        let tensors = operands.iter().map(constant).collect::<Result<Vec<_>>>()?;
        let views: Vec<View> =
            tensors.iter().map(|t| View { dtype: t.dtype, shape: &t.shape, data: &t.data }).collect();
        let most = bound(&views);
        if most > self.budget {
            let [most, left] = [most, self.budget].map(text::bytes);
            return Err(Error::Limit(format!(
                "a computed constant may take {most}, {left} are left (`--max-memory`, `Limits::constant_bytes`)"
            )));
        }
        let results = apply(attributes, &views)?;
        results.iter().try_for_each(|t| self.claim(&t.shape, t.dtype))?;
        Ok(results.into_iter().map(|t| self.constant(t)).collect())
    }
}

pub(super) fn non_zero(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    g.apply_known("nonzero", &[], &[("operand", n.input(0)?)])
}

/// The attribute `axis`, counted from the front; none where it is left out.
fn optional_axis(g: &Importer, n: &Source, x: ValueId) -> Result<Vec<i64>> {
    match n.attribute("axis") {
        None => Ok(vec![]),
        Some(_) => Ok(vec![g.axis(n.int("axis", 0), g.rank(x))? as i64]),
    }
}

pub(super) fn compress(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (x, condition) = (n.input(0)?, n.input(1)?);
    let axis = optional_axis(g, n, x)?;
    g.apply_known("compress", &axis, &[("data", x), ("condition", condition)])
}

pub(super) fn unique(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let attributes = [vec![n.flag("sorted", true) as i64], optional_axis(g, n, x)?].concat();
    g.apply_known("unique", &attributes, &[("operand", x)])
}

pub(super) fn non_max_suppression(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let (boxes, scores) = (n.input(0)?, n.input(1)?);
    let most = n.optional(2).unwrap_or_else(|| g.constant(Tensor::new(&[], &[0i64])));
    let share = n.optional(3).unwrap_or_else(|| g.constant(Tensor::new(&[], &[0f32])));
    let mut operands = vec![("boxes", boxes), ("scores", scores), ("limit", most), ("threshold of overlaps", share)];
    operands.extend(n.optional(4).map(|threshold| ("threshold of scores", threshold)));
    g.apply_known("nms", &[n.int("center_point_box", 0)], &operands)
}

/// Counts of n-grams of integers; the text of strings is not a tensor here.
pub(super) fn ngrams(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    if n.attribute("pool_strings").is_some_and(|a| !a.strings.is_empty()) {
        return Err(Error::Unsupported("n-grams of strings".into()));
    }
    let mode = match &*n.string("mode", "") {
        "TF" => 0,
        "IDF" => 1,
        "TFIDF" => 2,
        mode => return Err(Error::Invalid(format!("its mode `{mode}` is none of TF, IDF and TFIDF"))),
    };
    let list = |name: &str| n.ints(name).ok_or_else(|| Error::Invalid(format!("its attribute `{name}` is missing")));
    let places = list("ngram_indexes")?;
    let columns = places.iter().max().map_or(0, |&most| most.saturating_add(1));
    let weights: Vec<i64> = n.floats("weights").unwrap_or_default().iter().map(|w| w.to_bits().into()).collect();
    let mut attributes = vec![mode];
    attributes.extend(["min_gram_length", "max_gram_length", "max_skip_count"].map(|name| n.int(name, 0)));
    attributes.push(columns);
    for list in [list("ngram_counts")?, places, list("pool_int64s")?, weights] {
        attributes.push(list.len() as i64);
        attributes.extend(list);
    }
    if ![DType::I64, DType::I32].contains(&g.ty(x).dtype) {
        return Err(Error::Unsupported(format!("n-grams of {}", g.ty(x).dtype)));
    }
    Ok(vec![g.emit(Op::Opaque { function: "ngrams".into(), attributes }, &[x])?])
}
