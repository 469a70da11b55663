//! `def` and `init` to tensor expressions ([`scop::Program`]).
//!
//! Equations are read in their order. Several `=` of one tensor write disjoint parts that must fill it (concatenation);
//! `+=` and its like make a new version of a complete tensor: the reduction of the right-hand side, combined with the
//! version before. A read that a `where` range carries outside of its tensor is guarded and gives zero.

mod indices;
mod padding;

use super::range::Interval;
use super::scope::plain;
use super::source::{Checked, Diagnostic};
use super::syntax::{Array, Assign, Body, Combine, Equation, Program as Def};
use crate::expr::syntax::Span;
use crate::expr::syntax::Style;
use crate::expr::syntax::{Expr as Text, Kind};
use crate::expr::{Access, BinaryOp, BufferId, Expr, Scalar};
use crate::expr::{Affine, Var};
use crate::language::environment::{Reader, Scope};
use crate::poly::analysis::index_range::unbounded_subscript;
use crate::poly::statement::{Definition, Iterator, Program, Role, TensorDecl};
use crate::runtime::DType;
use padding::Frame;
use std::collections::BTreeMap;

type Sizes = BTreeMap<String, i64>;

/// The tensor expressions of a `def`: its inputs in order, then its outputs in order, then temporaries.
pub fn lower(def: &Def, sizes: &Sizes) -> Checked<Program> {
    let Body::Def { inputs, outputs, equations } = &def.body else {
        return Err(Diagnostic::invalid(def.name.span, format!("`{}` is a loop program", def.name)));
    };
    if let Some((_, twice)) = (0..).zip(outputs).find(|(i, o)| outputs[..*i].iter().any(|other| other.name == o.name)) {
        return Err(Diagnostic::invalid(twice.name.span, format!("output `{}` is already defined", twice.name)));
    }
    let mut builder = Builder::new(sizes, Style::Round);
    for input in inputs {
        builder.declare(input, Role::Input)?;
    }
    for output in outputs {
        if let Some((dtype, shape)) = &output.declared {
            let array = Array { access: None, dtype: *dtype, name: output.name.clone(), shape: shape.clone() };
            builder.declare(&array, Role::Output)?;
        }
    }
    equations.iter().try_for_each(|e| builder.equation(e))?;
    let mut order: Vec<BufferId> = (0..inputs.len() as u32).map(BufferId).collect();
    for output in outputs {
        match builder.arrays.iter().position(|a| a.name == *output.name) {
            Some(index) if index >= inputs.len() => order.push(BufferId(index as u32)),
            Some(_) => {
                return Err(Diagnostic::invalid(output.name.span, format!("the output `{}` is an input", output.name)));
            }
            None => {
                return Err(Diagnostic::invalid(
                    output.name.span,
                    format!("nothing defines the output `{}`", output.name),
                ));
            }
        }
    }
    builder.finish(order, def.name.span)
}

/// The tensor expressions of `equations` over arrays that are declared elsewhere: those among `arrays` that they define,
/// in the order of `arrays`.
pub fn lower_initial(equations: &[Equation], arrays: &[TensorDecl], sizes: &Sizes, style: Style) -> Checked<Program> {
    let mut builder = Builder { initial: true, ..Builder::new(sizes, style) };
    builder.arrays = arrays.iter().map(|a| TensorDecl { role: Role::Output, ..a.clone() }).collect();
    builder.parts = vec![vec![]; arrays.len()];
    equations.iter().try_for_each(|e| builder.equation(e))?;
    let written = |i: &usize| !builder.parts[*i].is_empty();
    let order: Vec<BufferId> = (0..arrays.len()).filter(written).map(|i| BufferId(i as u32)).collect();
    let span = equations.first().map_or(Span::default(), |e| e.span);
    builder.finish(order, span)
}

/// The elements that one equation defines: in each dimension first, step, count.
type IndexBox = Vec<(i64, i64, i64)>;

struct Builder<'a> {
    sizes: &'a Sizes,
    style: Style,
    arrays: Vec<TensorDecl>,
    /// The parts of each array that are defined so far.
    parts: Vec<Vec<IndexBox>>,
    definitions: Vec<Definition>,
    /// The equation of each definition.
    spans: Vec<Span>,
    /// True for the equations of `init`.
    initial: bool,
}

impl<'a> Builder<'a> {
    fn new(sizes: &'a Sizes, style: Style) -> Builder<'a> {
        Builder { sizes, style, arrays: vec![], parts: vec![], definitions: vec![], spans: vec![], initial: false }
    }

    fn scope<'s>(&'s self, indices: &'s [String], read: &'s Reader<'s>) -> Scope<'s> {
        Scope::new(self.sizes, indices, &self.arrays, read, self.style)
    }

    fn show(&self, e: &Text) -> String {
        e.show(self.style)
    }

    fn declare(&mut self, array: &Array, role: Role) -> Checked<()> {
        let name = &array.name;
        if self.sizes.contains_key(&name.text) || self.arrays.iter().any(|a| a.name == name.text) {
            return Err(Diagnostic::invalid(name.span, format!("`{name}` is already the name of a size or an array")));
        }
        let shape = shape(&self.scope(&[], &plain), array)?;
        self.add(TensorDecl::new(&name.text, array.dtype, shape, role));
        Ok(())
    }

    fn add(&mut self, array: TensorDecl) -> BufferId {
        self.arrays.push(array);
        self.parts.push(vec![]);
        BufferId(self.arrays.len() as u32 - 1)
    }

    fn equation(&mut self, e: &Equation) -> Checked<()> {
        if self.known(e).is_none_or(|array| self.is_undefined(array)) {
            self.check_recursion(e)?;
        }
        let indices = self.indices(e);
        let ranges = self.ranges(e, &indices)?;
        let conditions = self.conditions(e, &indices)?;
        let has_range: Vec<bool> = indices.iter().map(|i| e.range(i).is_some()).collect();
        let frame = Frame { arrays: &self.arrays, indices: &indices, ranges: &ranges, given: &has_range };
        let read = |span, access, facts: &[Affine]| frame.pad(span, access, facts);
        let scope = self.scope(&indices, &read);
        let dtype = match (self.known(e), scope.dtype(&e.value)?) {
            (Some(array), _) => self.arrays[array.0 as usize].dtype,
            (None, Some(dtype)) => dtype,
            (None, None) => {
                let message = format!(
                    "the element type of `{}` cannot be inferred: convert an operand, as in `f32(…)`",
                    e.target
                );
                return Err(Diagnostic::invalid(e.value.span, message));
            }
        };
        let value = scope.value(&e.value, dtype)?;
        self.check_defined(e, &value)?;
        let write = scope.affine_subscripts(&e.target, &e.subscripts)?;
        let outer = e.outer(&indices);
        let part = part(e, &write, &ranges)?;
        let (reduce, update) = match e.assign {
            Assign::Set if outer < indices.len() => {
                let message = format!(
                    "`{}` is not on the left: a sum over it is written `+=!` (or `*=!`, `min=!`, `max=!`)",
                    indices[outer]
                );
                return Err(Diagnostic::invalid(e.span, message));
            }
            Assign::Set if !conditions.is_empty() => {
                let message = "a condition restricts a reduction: use `select` to choose between values";
                return Err(Diagnostic::invalid(e.span, message));
            }
            Assign::Set => (None, None),
            Assign::Reduce(combine) => (Some(reduction(combine, dtype, e.span)?), None),
            Assign::Update(combine) => {
                let op = reduction(combine, dtype, e.span)?;
                (Some(op), Some(op))
            }
        };
        let definition = Definition {
            target: BufferId(0),
            iterators: iterators(&indices, &ranges),
            outer,
            write,
            computed: vec![],
            reduce: reduce.filter(|_| outer < indices.len() || !conditions.is_empty()),
            conditions,
            body: value,
        };
        let definition = from_zero(definition, &ranges);
        match update {
            Some(op) => self.update(e, definition, part, op),
            None => self.define(e, definition, part, dtype),
        }
    }

    /// Refuses a first equation for an array that reads the array.
    fn check_recursion(&self, e: &Equation) -> Checked<()> {
        let mut place = None;
        e.value.visit(&mut |part| {
            if let Kind::Element(name, _) = &part.kind
                && name == &e.target
            {
                place.get_or_insert(name.span);
            }
        });
        let Some(span) = place else { return Ok(()) };
        let message = match self.initial {
            true => format!(
                "`{0}` is read by the equation that defines it: an equation of `init` reads what others define; give each \
                 element of `{0}` by its indices, or compute it in statements",
                e.target
            ),
            false => format!(
                "`{0}` is read by the equation that defines it: an equation of a `def` reads what others define; a `loop` \
                 can read `{0}` as it is written",
                e.target
            ),
        };
        Err(Diagnostic::invalid(span, message))
    }

    /// Returns true for an array that is not given and that no equation has defined yet.
    fn is_undefined(&self, array: BufferId) -> bool {
        self.arrays[array.0 as usize].role != Role::Input && self.parts[array.0 as usize].is_empty()
    }

    /// The array that an equation defines, where its type and shape are known.
    fn known(&self, e: &Equation) -> Option<BufferId> {
        self.arrays.iter().position(|a| a.name == *e.target).map(|i| BufferId(i as u32))
    }

    /// `=` and `+=!`: a part of a tensor that no equation has read yet.
    fn define(&mut self, e: &Equation, mut definition: Definition, part: IndexBox, dtype: DType) -> Checked<()> {
        let end = |(first, step, count): (i64, i64, i64)| {
            let last = count.checked_sub(1)?.checked_mul(step)?.checked_add(first)?;
            first.max(last).checked_add(1)
        };
        let ends: Option<Vec<i64>> = part.iter().map(|&range| end(range)).collect();
        let ends = ends.ok_or_else(|| Diagnostic::invalid(e.target.span, "its subscripts are too large"))?;
        let target = match self.known(e) {
            Some(id) => id,
            None => {
                if self.sizes.contains_key(&e.target.text) {
                    return Err(Diagnostic::invalid(e.target.span, format!("`{}` is a size", e.target)));
                }
                let shape = vec![0; part.len()];
                self.add(TensorDecl::new(&e.target.text, dtype, shape, Role::Temporary))
            }
        };
        let array = &self.arrays[target.0 as usize];
        let again = |what: &str| Diagnostic::invalid(e.target.span, format!("`{}` {what}", e.target));
        if array.role == Role::Input {
            return Err(again("is an input and cannot be defined"));
        }
        if array.shape.len() != part.len() {
            return Err(again(&format!("has {} dimensions, but {} subscripts", array.shape.len(), part.len())));
        }
        if self.is_read(target) {
            return Err(again("is defined further after an equation has read it"));
        }
        if self.parts[target.0 as usize].iter().any(|other| overlap(other, &part)) {
            return Err(again("is defined twice at some elements"));
        }
        let grows = array.role == Role::Temporary;
        for (extent, end) in self.arrays[target.0 as usize].shape.iter_mut().zip(ends) {
            if end > *extent && !grows {
                return Err(Diagnostic::invalid(e.span, format!("`{}` is defined outside of its shape", e.target)));
            }
            *extent = end.max(*extent);
        }
        self.parts[target.0 as usize].push(part);
        definition.target = target;
        self.push(definition, e.span);
        Ok(())
    }

    fn push(&mut self, definition: Definition, span: Span) {
        self.definitions.push(definition);
        self.spans.push(span);
    }

    /// `+=` and its like: the next version of a complete tensor.
    fn update(&mut self, e: &Equation, mut definition: Definition, part: IndexBox, op: BinaryOp) -> Checked<()> {
        let Some(old) = self.known(e).filter(|id| !self.parts[id.0 as usize].is_empty()) else {
            let message = format!("`{}` is updated before it is defined", e.target);
            return Err(Diagnostic::invalid(e.target.span, message));
        };
        self.check_complete(old, e.span)?;
        let decl = self.arrays[old.0 as usize].clone();
        let rank = decl.shape.len();
        let plainly = definition.write.iter().enumerate().all(|(d, w)| *w == Affine::var(Var(d as u32)))
            && part.iter().zip(&decl.shape).all(|(p, &extent)| *p == (0, 1, extent))
            && definition.outer == rank;
        if !plainly {
            let message = format!("an update covers all of `{}`, with a plain index in each dimension", e.target);
            return Err(Diagnostic::unsupported(e.span, message));
        }
        let version = self.arrays.iter().filter(|a| a.name.starts_with(&format!("{}'", decl.name))).count() + 1;
        self.arrays[old.0 as usize].name = format!("{}'{version}", decl.name);
        self.arrays[old.0 as usize].role = Role::Temporary;
        let all: Vec<Affine> = (0..rank as u32).map(|d| Affine::var(Var(d))).collect();
        let added = match definition.reduce {
            None => definition.body.clone(),
            Some(_) => {
                let name = format!("{}'{version}s", decl.name);
                let reduced = self.add(TensorDecl { name, role: Role::Temporary, ..decl.clone() });
                self.parts[reduced.0 as usize].push(part.clone());
                definition.target = reduced;
                self.push(definition.clone(), e.span);
                Expr::load(reduced, all.clone())
            }
        };
        let new = self.add(decl);
        self.parts[new.0 as usize].push(part);
        let combined = Definition {
            target: new,
            iterators: definition.iterators[..rank].to_vec(),
            outer: rank,
            write: all.clone(),
            computed: vec![],
            reduce: None,
            conditions: vec![],
            body: Expr::binary(op, Expr::load(old, all), added),
        };
        self.push(combined, e.span);
        Ok(())
    }

    /// All that `value` reads has its values.
    fn check_defined(&self, e: &Equation, value: &Expr) -> Checked<()> {
        let mut result = Ok(());
        value.visit_accesses(&mut |a| {
            let array = &self.arrays[a.buffer.0 as usize];
            if array.role != Role::Input && result.is_ok() {
                result = match self.parts[a.buffer.0 as usize].is_empty() {
                    true => {
                        Err(Diagnostic::invalid(e.value.span, format!("`{}` is read before it is defined", array.name)))
                    }
                    false => self.check_complete(a.buffer, e.value.span),
                };
            }
        });
        result
    }

    fn is_read(&self, array: BufferId) -> bool {
        self.definitions.iter().any(|d| d.body.reads(array))
    }

    /// The parts are disjoint, so that counting suffices.
    fn check_complete(&self, array: BufferId, span: Span) -> Checked<()> {
        let decl = &self.arrays[array.0 as usize];
        let count = |p: &IndexBox| p.iter().map(|d| d.2 as i128).product::<i128>();
        let defined: i128 = self.parts[array.0 as usize].iter().map(count).sum();
        let all: i128 = decl.shape.iter().map(|&n| n as i128).product();
        if defined == all {
            return Ok(());
        }
        let message = format!("of `{}` only {defined} of {all} elements {:?} are defined", decl.name, decl.shape);
        Err(Diagnostic::invalid(span, message))
    }

    /// The program with the tensors of `order` first, the temporaries after them.
    fn finish(mut self, mut order: Vec<BufferId>, span: Span) -> Checked<Program> {
        for (i, array) in self.arrays.iter().enumerate() {
            let id = BufferId(i as u32);
            if array.role != Role::Input && !self.parts[i].is_empty() {
                self.check_complete(id, span)?;
            }
        }
        for (i, array) in self.arrays.iter_mut().enumerate() {
            let id = BufferId(i as u32);
            if order.contains(&id) {
                if array.role == Role::Temporary {
                    array.role = Role::Output;
                }
                if array.role == Role::Output && self.parts[i].is_empty() {
                    return Err(Diagnostic::invalid(span, format!("nothing defines the output `{}`", array.name)));
                }
            } else if !self.parts[i].is_empty() {
                array.role = Role::Temporary;
                order.push(id);
            }
        }
        let renumbered = |id: BufferId| BufferId(order.iter().position(|o| *o == id).unwrap_or(0) as u32);
        for d in &mut self.definitions {
            d.target = renumbered(d.target);
            d.body = d.body.rewrite_loads(&mut |a| Expr::Load(Access { buffer: renumbered(a.buffer), ..a }));
        }
        let tensors = order.iter().map(|id| self.arrays[id.0 as usize].clone()).collect();
        let program = Program { tensors, definitions: self.definitions };
        match unbounded_subscript(&program) {
            Some((definition, error)) => Err(Diagnostic { span: self.spans[definition], error }),
            None => Ok(program),
        }
    }
}

/// The extents of a declared array.
pub fn shape(scope: &Scope, array: &Array) -> Checked<Vec<i64>> {
    let mut shape = vec![];
    for e in &array.shape {
        let extent = scope.constant(e)?;
        if extent < 1 {
            let message = format!("dimension {} of `{}` is {extent}: it must be positive", shape.len(), array.name);
            return Err(Diagnostic::invalid(e.span, message));
        }
        shape.push(extent);
    }
    Ok(shape)
}

/// The operation of an update of elements of `dtype`.
pub fn reduction(combine: Combine, dtype: DType, span: Span) -> Checked<BinaryOp> {
    let op = match combine {
        Combine::Add => BinaryOp::Add,
        Combine::Mul => BinaryOp::Mul,
        Combine::Min => BinaryOp::Min,
        Combine::Max => BinaryOp::Max,
        Combine::Sub | Combine::Div => {
            return Err(Diagnostic::invalid(span, "reductions are sums, products, minima and maxima"));
        }
    };
    match Scalar::neutral(op, dtype) {
        Ok(_) if dtype != DType::Bool => Ok(op),
        _ => Err(Diagnostic::invalid(span, format!("{} is not defined for {dtype}", op.name()))),
    }
}

fn iterators(indices: &[String], ranges: &[Interval]) -> Vec<Iterator> {
    let extent = |r: &Interval| r.1 - r.0 + 1;
    indices.iter().zip(ranges).map(|(name, r)| Iterator::new(name, extent(r))).collect()
}

/// Shifts the iterators of an equation to begin at 0.
fn from_zero(d: Definition, ranges: &[Interval]) -> Definition {
    let mut shift = |v: Var| Affine::var(v).offset(ranges[v.0 as usize].0);
    Definition {
        write: d.write.iter().map(|a| a.substitute(&mut shift)).collect(),
        conditions: d.conditions.iter().map(|a| a.substitute(&mut shift)).collect(),
        body: d.body.substitute(&mut shift),
        ..d
    }
}

/// The elements that the left-hand side names.
fn part(e: &Equation, write: &[Affine], ranges: &[Interval]) -> Checked<IndexBox> {
    let mut used: Vec<Var> = vec![];
    let mut out = vec![];
    for (w, text) in write.iter().zip(&e.subscripts) {
        match w.terms[..] {
            [] => out.push((w.constant, 1, 1)),
            [(v, c)] if !used.contains(&v) => {
                let (lo, hi) = ranges[v.0 as usize];
                used.push(v);
                out.push((w.constant + c * if c > 0 { lo } else { hi }, c.abs(), hi - lo + 1));
            }
            _ => {
                let message = "a subscript on the left is a number or a multiple of an index plus a number, and each index is in one subscript";
                return Err(Diagnostic::unsupported(text.span, message));
            }
        }
        if out.last().is_some_and(|p| p.0 < 0) {
            return Err(Diagnostic::invalid(text.span, format!("this subscript of `{}` is negative", e.target)));
        }
    }
    Ok(out)
}

/// Returns true if two parts have a common element.
fn overlap(a: &IndexBox, b: &IndexBox) -> bool {
    a.iter().zip(b).all(|(&(a, s, n), &(b, t, m))| {
        let (low, high) = (a.max(b), (a + s * (n - 1)).min(b + t * (m - 1)));
        let first = low + (a - low).rem_euclid(s);
        // The residues modulo t repeat after t steps of s.
        (0..t).map(|k| first + k * s).take_while(|x| *x <= high).any(|x| (x - b).rem_euclid(t) == 0)
    })
}
