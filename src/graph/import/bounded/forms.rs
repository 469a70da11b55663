//! Arithmetic of shapes: integer tensors whose elements follow from the count.
//!
//! In: a node whose operands are such tensors or constants. Out: its results as forms, with nodes of the graph that compute them
//! at run time. Comparisons, minima and maxima are decided for the count of the import.

use super::state::{fixed, is_fixed, product, sum};
use crate::graph::import::importer::Importer;
use crate::graph::import::node::Source;
use crate::graph::import::table::Converter;
use crate::graph::infer::broadcast;
use crate::graph::ir::ValueId;
use crate::runtime::bounds::Form;
use crate::runtime::{DType, Error, Result, Tensor};

/// The most elements of a tensor whose forms are followed.
const MOST_ELEMENTS: usize = 64;

/// Operators that move elements of their first operand, sorted.
const MOVING: [&str; 10] =
    ["Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"];

impl Importer<'_> {
    /// The elements of a small integer tensor as forms; `None` where they are not known.
    pub(super) fn forms(&self, id: ValueId) -> Option<Vec<Form>> {
        if let Some(forms) = self.bounded.as_ref().and_then(|b| b.forms.get(&id)) {
            return Some(forms.clone());
        }
        let tensor = self.graph.constant(id).filter(|t| t.len() <= MOST_ELEMENTS && self.axes(id).is_empty())?;
        match tensor.dtype {
            DType::I64 => Some(tensor.to_vec::<i64>().into_iter().map(fixed).collect()),
            DType::I32 => Some(tensor.to_vec::<i32>().into_iter().map(|v| fixed(v.into())).collect()),
            _ => None,
        }
    }

    /// Returns true if elements of the value are known to depend on the count.
    pub(super) fn is_symbolic(&self, id: ValueId) -> bool {
        self.bounded.as_ref().is_some_and(|b| b.forms.contains_key(&id))
    }

    /// The forms of an operand that must be known.
    pub(super) fn known_forms(&self, id: ValueId, what: &str) -> Result<Vec<Form>> {
        match self.forms(id) {
            Some(forms) => Ok(forms),
            None => Ok(self.integers(id, what)?.into_iter().map(fixed).collect()),
        }
    }

    /// A tensor of these elements.
    pub(in crate::graph::import) fn form_tensor(
        &mut self,
        shape: &[i64],
        forms: &[Form],
        dtype: DType,
    ) -> Result<ValueId> {
        let tensor = |part: fn(&Form) -> i64| Tensor::new(shape, &forms.iter().map(part).collect::<Vec<i64>>());
        if forms.iter().all(|&f| is_fixed(f)) {
            let constant = self.constant(tensor(|f| f.offset));
            return self.cast_to(constant, dtype);
        }
        let value = match forms {
            [form] => {
                let scalar = self.form_value(*form)?;
                self.reshape_to(scalar, shape.to_vec())?
            }
            _ => {
                let count = self.form_value(Form { factor: 1, offset: 0 })?;
                let (factors, offsets) = (self.constant(tensor(|f| f.factor)), self.constant(tensor(|f| f.offset)));
                let scaled = self.mul(count, factors)?;
                self.add(scaled, offsets)?
            }
        };
        let value = self.cast_to(value, dtype)?;
        if let Some(bounded) = self.bounded.as_mut().filter(|_| forms.len() <= MOST_ELEMENTS) {
            bounded.forms.insert(value, forms.to_vec());
        }
        Ok(value)
    }

    /// The results of a node of shape arithmetic; `None` for other nodes.
    pub(super) fn symbolic(&mut self, n: &Source, convert: Converter) -> Result<Option<Vec<ValueId>>> {
        let operands = n.operands();
        let op = n.proto.op_type.as_str();
        if let Some(result) = self.symbolic_cast(n, op, &operands)? {
            return Ok(Some(vec![result]));
        }
        if op == "Concat" || MOVING.binary_search(&op).is_ok() {
            return self.symbolic_moved(n, op, &operands, convert);
        }
        let operands: Option<Vec<ValueId>> = operands.into_iter().collect();
        let Some(operands) = operands else { return Ok(None) };
        let shapes: Vec<&[i64]> = operands.iter().map(|&v| self.shape(v)).collect();
        let Some(shape) = broadcast(shapes.iter().copied()) else { return Ok(None) };
        if op == "Where" {
            return self.symbolic_choice(&operands, &shape);
        }
        let Some(forms) = operands.iter().map(|&v| self.forms(v)).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let operand = |i: usize, place: usize| forms[i][stretched(shapes[i], &shape, place)];
        let count = shape.iter().product::<i64>() as usize;
        if let (Some(compare), 2) = (comparison(op), operands.len()) {
            let holds = |place| compare(self, operand(0, place), operand(1, place)).map(u8::from);
            let data = (0..count).map(holds).collect::<Result<Vec<u8>>>()?;
            let tensor = Tensor { dtype: DType::Bool, shape, data: data.into() };
            return Ok(Some(vec![self.constant(tensor)]));
        }
        if count == 0 {
            return Ok(None);
        }
        let mut results = vec![];
        for place in 0..count {
            let elements: Vec<Form> = (0..forms.len()).map(|i| operand(i, place)).collect();
            match self.symbolic_element(op, &elements)? {
                Some(form) => results.push(form),
                None => return Ok(None),
            }
        }
        let dtype = self.ty(operands[0]).dtype;
        Ok(Some(vec![self.form_tensor(&shape, &results, dtype)?]))
    }

    /// One element of an arithmetic operator.
    fn symbolic_element(&self, op: &str, x: &[Form]) -> Result<Option<Form>> {
        let extreme = |greater: bool| {
            let mut best = x[0];
            for &next in &x[1..] {
                best = if self.at_least(next, best)? == greater { next } else { best };
            }
            Ok::<Form, Error>(best)
        };
        Ok(match (op, x) {
            ("Add", &[a, b]) => Some(sum(a, b, 1)?),
            ("Sub", &[a, b]) => Some(sum(a, b, -1)?),
            ("Neg", &[a]) => Some(sum(fixed(0), a, -1)?),
            ("Abs", &[a]) if self.at_least(a, fixed(0))? => Some(a),
            ("Abs", &[a]) => Some(sum(fixed(0), a, -1)?),
            ("Mul", &[a, b]) => product(a, b),
            ("Max", _) => Some(extreme(true)?),
            ("Min", _) => Some(extreme(false)?),
            // of numbers that are not negative the quotient is rounded down
            ("Div" | "Mod", &[a, b]) if is_fixed(b) && b.offset > 0 && a.factor % b.offset == 0 => {
                if !self.at_least(a, fixed(0))? {
                    return Ok(None);
                }
                Some(match op {
                    "Div" => Form { factor: a.factor / b.offset, offset: a.offset.div_euclid(b.offset) },
                    _ => fixed(a.offset.rem_euclid(b.offset)),
                })
            }
            _ => None,
        })
    }

    /// A cast to another type of integers.
    fn symbolic_cast(&mut self, n: &Source, op: &str, operands: &[Option<ValueId>]) -> Result<Option<ValueId>> {
        let (&[Some(x)], "Cast") = (operands, op) else { return Ok(None) };
        let to = super::super::tensor::dtype(n.int("to", 0) as i32)?;
        let Some(forms) = self.forms(x).filter(|_| matches!(to, DType::I64 | DType::I32)) else { return Ok(None) };
        let shape = self.shape(x).to_vec();
        Ok(Some(self.form_tensor(&shape, &forms, to)?))
    }

    /// Elements that are moved: as the factors and the offsets are.
    fn symbolic_moved(
        &mut self,
        n: &Source,
        op: &str,
        operands: &[Option<ValueId>],
        convert: Converter,
    ) -> Result<Option<Vec<ValueId>>> {
        let data = if op == "Concat" { operands.len() } else { 1 };
        let forms: Option<Vec<Vec<Form>>> = operands.iter().take(data).map(|v| v.and_then(|v| self.forms(v))).collect();
        let Some(forms) = forms else { return Ok(None) };
        if operands.iter().skip(data).flatten().any(|&v| self.graph.constant(v).is_none()) {
            return Ok(None);
        }
        let mut parts: Vec<Vec<Vec<i64>>> = vec![];
        let mut shapes = vec![];
        for part in [|f: &Form| f.factor, |f: &Form| f.offset] {
            let mut inputs = operands.to_vec();
            for (input, forms) in inputs.iter_mut().zip(&forms) {
                let shape = input.map(|v| self.shape(v).to_vec()).unwrap_or_default();
                *input = Some(self.constant(Tensor::new(&shape, &forms.iter().map(part).collect::<Vec<i64>>())));
            }
            let results = n.converted(self, inputs, convert)?;
            let constants: Option<Vec<_>> = results.iter().map(|&v| self.graph.constant(v).cloned()).collect();
            let Some(constants) = constants else { return Ok(None) };
            shapes = constants.iter().map(|t| t.shape.clone()).collect();
            parts.push(constants.iter().map(|t| t.to_vec::<i64>()).collect());
        }
        let dtype = operands.iter().flatten().next().map_or(DType::I64, |&v| self.ty(v).dtype);
        let mut results = vec![];
        for ((shape, factors), offsets) in shapes.iter().zip(&parts[0]).zip(&parts[1]) {
            let elements = factors.iter().zip(offsets).map(|(&factor, &offset)| Form { factor, offset });
            results.push(self.form_tensor(shape, &elements.collect::<Vec<_>>(), dtype)?);
        }
        Ok(Some(results))
    }

    /// `Where` with a known condition.
    fn symbolic_choice(&mut self, operands: &[ValueId], shape: &[i64]) -> Result<Option<Vec<ValueId>>> {
        let &[condition, a, b] = operands else { return Ok(None) };
        let (Some(flags), Some(then), Some(otherwise)) =
            (self.graph.constant(condition).cloned(), self.forms(a), self.forms(b))
        else {
            return Ok(None);
        };
        if !self.axes(condition).is_empty() {
            return Ok(None);
        }
        let choose = |place: usize| match flags.data[stretched(&flags.shape, shape, place)] {
            0 => otherwise[stretched(self.shape(b), shape, place)],
            _ => then[stretched(self.shape(a), shape, place)],
        };
        let forms: Vec<Form> = (0..shape.iter().product::<i64>() as usize).map(choose).collect();
        let dtype = self.ty(a).dtype;
        Ok(Some(vec![self.form_tensor(shape, &forms, dtype)?]))
    }

    /// Decides whether two forms are equal.
    pub(super) fn equal(&self, a: Form, b: Form) -> Result<bool> {
        let difference = sum(a, b, -1)?;
        match &self.bounded {
            Some(bounded) => bounded.is_zero(difference),
            None => Ok(difference == fixed(0)),
        }
    }
}

type Comparison = fn(&Importer, Form, Form) -> Result<bool>;

fn comparison(op: &str) -> Option<Comparison> {
    Some(match op {
        "Equal" => |g, a, b| g.equal(a, b),
        "Less" => |g, a, b| Ok(!g.at_least(a, b)?),
        "LessOrEqual" => |g, a, b| g.at_least(b, a),
        "Greater" => |g, a, b| Ok(!g.at_least(b, a)?),
        "GreaterOrEqual" => |g, a, b| g.at_least(a, b),
        _ => return None,
    })
}

/// The place in a tensor of `shape` of a place in the shape that it is stretched to.
fn stretched(shape: &[i64], to: &[i64], place: usize) -> usize {
    let (mut remainder, mut offset, mut stride) = (place as i64, 0, 1);
    for d in (0..to.len()).rev() {
        let coordinate = remainder % to[d].max(1);
        remainder /= to[d].max(1);
        if let Some(axis) = (d + shape.len()).checked_sub(to.len()) {
            offset += if shape[axis] == 1 { 0 } else { coordinate * stride };
            stride *= shape[axis];
        }
    }
    offset as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_stretched_tensors() {
        let places = |shape: &[i64]| (0..6).map(|p| stretched(shape, &[2, 3], p)).collect::<Vec<_>>();
        assert_eq!(places(&[2, 3]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(places(&[3]), [0, 1, 2, 0, 1, 2]);
        assert_eq!(places(&[2, 1]), [0, 0, 0, 1, 1, 1]);
        assert_eq!(places(&[]), [0; 6]);
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(MOVING.windows(2).all(|w| w[0] < w[1]));
    }
}
