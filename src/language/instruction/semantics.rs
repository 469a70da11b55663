//! The meaning of the equation of an instruction: its iterators, the dimensions that they index, and its typed term.

use super::syntax::{Instruction, Operand};
use crate::codegen::instruction::{Iterator, SumOrder};
use crate::expr::syntax::{Expr as Text, Kind, Name, Span, Style};
use crate::expr::{Expr, Var};
use crate::language::environment::Scope;
use crate::language::scope::plain;
use crate::language::source::{Checked, Diagnostic};
use crate::poly::statement::{Role, TensorDecl};
use crate::runtime::error::unknown;
use std::collections::BTreeMap;

/// The equation with its names resolved.
pub struct ResolvedEquation {
    /// Iterators: of the accumulator, of the sum, then dimensions that the term reads at numbers.
    pub iterators: Vec<Iterator>,
    /// The iterators of each operand, the accumulator first.
    pub indices: Vec<Vec<Var>>,
    pub body: Expr,
    pub order: SumOrder,
}

/// Subscript of a dimension of an operand.
#[derive(Clone, PartialEq)]
enum Dimension {
    Iterator(usize),
    /// The term reads elements at numbers.
    Number,
}

struct Resolver<'a> {
    operands: &'a [&'a Operand],
    iterators: Vec<Iterator>,
    /// The operand that each extent is from.
    origins: Vec<usize>,
    /// Subscripts of each operand, where it has been read.
    dimensions: Vec<Option<Vec<Dimension>>>,
}

/// Resolves the equation of `instruction`, whose operands are `operands`.
pub fn resolve(instruction: &Instruction, operands: &[&Operand]) -> Checked<ResolvedEquation> {
    let s = &instruction.semantics;
    let accumulator = &operands[0].name;
    if s.target != *accumulator {
        let message = format!("the equation adds to `{}`, but the accumulator is `{accumulator}`", s.target);
        return Err(Diagnostic::invalid(s.target.span, message));
    }
    let mut resolver =
        Resolver { operands, iterators: vec![], origins: vec![], dimensions: vec![None; operands.len()] };
    resolver.element(0, s.target.span, &s.subscripts)?;
    if let Some(e) = s.subscripts.iter().find(|e| !matches!(e.kind, Kind::Name(_))) {
        return Err(Diagnostic::invalid(e.span, "a subscript of the accumulator is an iterator"));
    }
    resolver.term(&s.value)?;
    if let Some(position) = resolver.dimensions.iter().position(Option::is_none) {
        let name = &operands[position].name;
        return Err(Diagnostic::invalid(name.span, format!("the semantics do not read `{name}`")));
    }
    let free = s.subscripts.len();
    let order = resolver.order(instruction, free)?;
    let indices = resolver.indices();
    let names: Vec<String> = resolver.iterators.iter().map(|i| i.name.clone()).collect();
    let tensor = |o: &&Operand| TensorDecl::new(&*o.name.text, o.dtype, &o.shape[..], Role::Input);
    let arrays: Vec<TensorDecl> = operands.iter().map(tensor).collect();
    let sizes = BTreeMap::new();
    let scope = Scope::new(&sizes, &names, &arrays, &plain, Style::Round);
    let body = scope.value(&s.value, operands[0].dtype)?;
    Ok(ResolvedEquation { iterators: resolver.iterators, indices, body, order })
}

impl Resolver<'_> {
    /// Reads of operands in a term.
    fn term(&mut self, e: &Text) -> Checked<()> {
        let (name, span, subscripts) = match &e.kind {
            Kind::Integer(_) | Kind::Unsigned(_) | Kind::Real(_) | Kind::Bool(_) => return Ok(()),
            Kind::Call(_, operands) => return operands.iter().try_for_each(|e| self.term(e)),
            Kind::Cast(_, a) | Kind::Negate(a) | Kind::Not(a) => return self.term(a),
            Kind::Binary(_, a, b) => return self.term(a).and_then(|()| self.term(b)),
            Kind::Name(name) => (name, e.span, &[][..]),
            Kind::Element(name, subscripts) => (&name.text, name.span.to(e.span), &subscripts[..]),
        };
        match self.operands.iter().position(|o| o.name.text == *name) {
            Some(0) => Err(Diagnostic::invalid(span, format!("a term does not read the accumulator `{name}`"))),
            Some(operand) => self.element(operand, span, subscripts),
            None if self.iterators.iter().any(|i| i.name == *name) => {
                Err(Diagnostic::invalid(span, format!("`{name}` is an iterator: a term is made of elements")))
            }
            None => {
                let names: Vec<&str> = self.operands[1..].iter().map(|o| &*o.name).collect();
                Err(Diagnostic::invalid(span, unknown("operand", name, &names)))
            }
        }
    }

    /// A read of `operand`, or the write of the accumulator.
    fn element(&mut self, operand: usize, span: Span, subscripts: &[Text]) -> Checked<()> {
        let Operand { name, shape, .. } = self.operands[operand];
        if shape.len() != subscripts.len() {
            let message = format!("`{name}` has {} dimensions, but {} subscripts", shape.len(), subscripts.len());
            return Err(Diagnostic::invalid(span, message));
        }
        let mut dimensions = vec![];
        for (e, &extent) in subscripts.iter().zip(shape) {
            let dimension = self.subscript(operand, e, extent)?;
            if dimension != Dimension::Number && dimensions.contains(&dimension) {
                return Err(Diagnostic::invalid(e.span, format!("`{name}` has this iterator twice")));
            }
            dimensions.push(dimension);
        }
        match &self.dimensions[operand] {
            Some(before) if *before != dimensions => {
                let message = format!("`{name}` is read with other iterators before");
                Err(Diagnostic::invalid(span, message))
            }
            _ => {
                self.dimensions[operand] = Some(dimensions);
                Ok(())
            }
        }
    }

    fn subscript(&mut self, operand: usize, e: &Text, extent: i64) -> Checked<Dimension> {
        let name = &self.operands[operand].name;
        match &e.kind {
            Kind::Integer(v) if (0..extent).contains(v) => Ok(Dimension::Number),
            Kind::Integer(v) => {
                Err(Diagnostic::invalid(e.span, format!("{v} is outside of 0..{extent}, the elements of `{name}`")))
            }
            Kind::Name(iterator) => {
                if self.operands.iter().any(|o| o.name.text == *iterator) {
                    return Err(Diagnostic::invalid(e.span, format!("`{iterator}` is an operand, not an iterator")));
                }
                let Some(position) = self.iterators.iter().position(|i| i.name == *iterator) else {
                    self.iterators.push(Iterator { name: iterator.clone(), extent });
                    self.origins.push(operand);
                    return Ok(Dimension::Iterator(self.iterators.len() - 1));
                };
                let first_extent = self.iterators[position].extent;
                if first_extent != extent {
                    let origin = &self.operands[self.origins[position]].name;
                    let message =
                        format!("`{iterator}` has {first_extent} points in `{origin}`, but {extent} in `{name}`");
                    return Err(Diagnostic::invalid(e.span, message));
                }
                Ok(Dimension::Iterator(position))
            }
            _ => {
                let message = format!(
                    "a subscript of an instruction is an iterator or a number: give `{name}` one more dimension, as in \
                     `{name}(j, q)` for `{name}(4*j + q)`"
                );
                Err(Diagnostic::invalid(e.span, message))
            }
        }
    }

    /// The order of the sum; puts the iterators that are summed over in the order that the text gives.
    fn order(&mut self, instruction: &Instruction, free: usize) -> Checked<SumOrder> {
        let Some(order) = &instruction.semantics.order else { return Ok(SumOrder::Ascending) };
        let mut summed: Vec<Iterator> = vec![];
        for name in &order.iterators {
            let names: Vec<&str> = self.iterators[free..].iter().map(|i| &*i.name).collect();
            let Some(position) = names.iter().position(|n| *n == name.text) else {
                return Err(Diagnostic::invalid(name.span, unknown("iterator of the sum", name, &names)));
            };
            if summed.iter().any(|i| i.name == name.text) {
                return Err(Diagnostic::invalid(name.span, format!("`{name}` stands here twice")));
            }
            summed.push(self.iterators[free + position].clone());
        }
        if let Some(left) = self.iterators[free..].iter().find(|i| !summed.contains(i)) {
            let last: &Name = &order.iterators[order.iterators.len() - 1];
            return Err(Diagnostic::invalid(last.span, format!("the sum also runs over `{}`", left.name)));
        }
        // Positions of the old order, for the dimensions that name them.
        let moved = |iterator: usize| match iterator < free {
            true => iterator,
            false => free + summed.iter().position(|i| *i == self.iterators[iterator]).unwrap_or(0),
        };
        for dimension in self.dimensions.iter_mut().flatten().flatten() {
            if let Dimension::Iterator(iterator) = dimension {
                *iterator = moved(*iterator);
            }
        }
        self.iterators.truncate(free);
        self.iterators.extend(summed);
        Ok(order.order)
    }

    /// The iterators of each operand; a dimension that is read at numbers gets one of its own.
    fn indices(&mut self) -> Vec<Vec<Var>> {
        let mut indices = vec![];
        for (operand, dimensions) in self.operands.iter().zip(&self.dimensions) {
            let mut vars = vec![];
            for (d, dimension) in dimensions.iter().flatten().enumerate() {
                let iterator = match dimension {
                    Dimension::Iterator(iterator) => *iterator,
                    Dimension::Number => {
                        let name = format!("{}.{d}", operand.name);
                        self.iterators.push(Iterator { name, extent: operand.shape[d] });
                        self.iterators.len() - 1
                    }
                };
                vars.push(Var(iterator as u32));
            }
            indices.push(vars);
        }
        indices
    }
}
