//! The sizes that a caller gives: the dimensions in which the bindings of a module differ or that grow, and the binding for each
//! choice of sizes.
//!
//! In: a verified module. Out: the dimensions, what each binding takes of them, and the function in C that chooses. Invariant: the
//! first binding that takes the sizes runs, as in a session. A module of one binding whose sizes are fixed has no dimensions.

use crate::object::names::{Names, number};
use crate::runtime::module::Module;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The sizes of one dimension that a binding takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    pub least: i64,
    pub most: i64,
    /// Of a dimension that grows: its size for a count of 0.
    pub offset: Option<i64>,
}

/// A dimension of which the caller gives the size.
pub struct Dimension {
    /// Its name in the model.
    pub symbol: String,
    /// Its parameter.
    pub name: String,
    /// Sizes that each binding takes.
    pub sizes: Vec<Size>,
}

/// The dimensions of which the caller gives sizes, in alphabetical order.
pub struct Bindings {
    pub count: usize,
    pub dimensions: Vec<Dimension>,
    /// Number of the input that holds the count of what grows: the driver makes it.
    pub counted: Option<usize>,
}

impl Bindings {
    /// The bindings of a verified module; parameters are named by `names`.
    ///
    /// # Errors
    /// `Unsupported` where sizes follow from a count in another way than by an offset, or the bindings' dimensions differ.
    pub fn new(module: &Module, names: &mut Names) -> Result<Bindings> {
        let refuse = |what: &str| Err(Error::Unsupported(format!("an object file of `{}`: {what}", module.name())));
        let counted = |module: &Module| module.bounds().map(|bounds| bounds.input.clone());
        if module.bindings().any(|other| counted(other) != counted(module)) {
            return refuse("only some of its bindings have capacities");
        }
        let mut dimensions = vec![];
        let grown = module.bindings().filter_map(Module::bounds).flat_map(|bounds| bounds.dims.keys());
        let symbols: BTreeSet<&String> = module.bindings().flat_map(|other| other.dims().keys()).chain(grown).collect();
        for symbol in symbols {
            let sizes: Option<Vec<Size>> = module.bindings().map(|other| size(other, symbol)).collect();
            let Some(sizes) = sizes else { return refuse(&format!("the sizes of `{symbol}` are not known")) };
            if sizes.iter().any(|size| size.offset.is_some() || *size != sizes[0]) {
                dimensions.push(Dimension { symbol: symbol.clone(), name: names.unique(symbol), sizes });
            }
        }
        let has_count = |b: usize| dimensions.iter().any(|dimension: &Dimension| dimension.sizes[b].offset.is_some());
        let count = module.bindings().count();
        if module.bounds().is_some() && !(0..count).all(has_count) {
            return refuse("no dimension of it gives the count of what grows");
        }
        let input = counted(module).and_then(|name| module.inputs().iter().position(|spec| spec.name == name));
        Ok(Bindings { count, dimensions, counted: input })
    }

    /// Returns true if the caller gives sizes.
    pub fn has_choice(&self) -> bool {
        !self.dimensions.is_empty()
    }

    /// The parameters: `int64_t batch`, `int64_t length`.
    pub fn parameters(&self) -> Vec<String> {
        self.dimensions.iter().map(|dimension| format!("int64_t {}", dimension.name)).collect()
    }

    /// The names of the parameters.
    pub fn arguments(&self) -> Vec<String> {
        self.dimensions.iter().map(|dimension| dimension.name.clone()).collect()
    }

    /// The count of what grows in a binding, in C.
    pub fn count_of(&self, binding: usize) -> Option<String> {
        self.dimensions.iter().find_map(|dimension| {
            let offset = dimension.sizes[binding].offset?;
            Some(sum(&dimension.name, 1, offset.saturating_neg()))
        })
    }

    /// The number of elements that count, `factor · count + offset`, in terms of a dimension, for people.
    pub fn extent(&self, binding: usize, factor: i64, offset: i64) -> String {
        let growing = self.dimensions.iter().find_map(|dimension| Some((dimension, dimension.sizes[binding].offset?)));
        match growing {
            Some((dimension, base)) => sum(&dimension.name, factor, offset.saturating_sub(factor.saturating_mul(base))),
            None => sum("count", factor, offset),
        }
    }

    /// The sizes of a binding, for messages: `batch=1, length=64`, `past=0 to 63`.
    pub fn describe(&self, binding: usize) -> String {
        let sizes = self.dimensions.iter().map(|d| format!("{}={}", d.symbol, shown(&d.sizes[binding])));
        sizes.collect::<Vec<_>>().join(", ")
    }

    /// The messages of sizes that no binding has: one for each dimension, then one for combinations.
    pub fn messages(&self) -> Vec<String> {
        let each = |dimension: &Dimension| {
            let sizes: Vec<String> = distinct(dimension).iter().map(shown).collect();
            format!(
                "the size of dimension `{}` is not among those of the object: {}",
                dimension.symbol,
                sizes.join(", ")
            )
        };
        let mut messages: Vec<String> = self.dimensions.iter().map(each).collect();
        if self.dimensions.len() > 1 {
            let all: Vec<String> = (0..self.count).map(|binding| self.describe(binding)).collect();
            messages.push(format!("no binding of the object has these sizes together; it has {}", all.join("; ")));
        }
        messages
    }

    /// The function that chooses a binding; the messages of its codes begin at `first`.
    pub fn function(&self, prototype: &str, first: usize) -> String {
        let mut out = format!("\n{prototype} {{\n");
        for binding in 0..self.count {
            let _ = writeln!(out, "    if ({}) return {binding};", self.condition(binding));
        }
        if let [_] = self.dimensions[..] {
            return out + &format!("    return -{first};\n}}\n");
        }
        for (code, dimension) in (first..).zip(&self.dimensions) {
            let takes: Vec<String> = distinct(dimension).iter().map(|size| takes(&dimension.name, size)).collect();
            let _ = writeln!(out, "    if (!({})) return -{code};", takes.join(" || "));
        }
        out + &format!("    return -{};\n}}\n", first + self.dimensions.len())
    }

    /// Is a binding for the sizes?
    fn condition(&self, binding: usize) -> String {
        let mut growing: Option<(&str, i64)> = None;
        let mut parts = vec![];
        for dimension in &self.dimensions {
            let size = &dimension.sizes[binding];
            parts.push(takes(&dimension.name, size));
            match (size.offset, growing) {
                (Some(offset), Some((other, other_offset))) => {
                    // both are in a range of counts: the difference has a number
                    parts.push(format!(
                        "{} - {other} == {}",
                        dimension.name,
                        number(offset.saturating_sub(other_offset))
                    ));
                }
                (Some(offset), None) => growing = Some((&dimension.name, offset)),
                (None, _) => {}
            }
        }
        parts.join(" && ")
    }
}

/// The sizes of a dimension that a binding takes.
fn size(module: &Module, symbol: &str) -> Option<Size> {
    match module.bounds().and_then(|bounds| Some((bounds, bounds.dims.get(symbol)?))) {
        Some((bounds, form)) => {
            let [least, most] = [bounds.least, bounds.most].map(|count| count.checked_add(form.offset));
            (form.factor == 1).then_some(Size { least: least?, most: most?, offset: Some(form.offset) })
        }
        None => module.dims().get(symbol).map(|&size| Size { least: size, most: size, offset: None }),
    }
}

/// The different sizes of a dimension, in the order of the bindings.
fn distinct(dimension: &Dimension) -> Vec<Size> {
    let mut seen = vec![];
    for size in &dimension.sizes {
        let range = Size { offset: None, ..*size };
        if !seen.contains(&range) {
            seen.push(range);
        }
    }
    seen
}

/// Does a binding take the size in this parameter?
fn takes(name: &str, size: &Size) -> String {
    match size.least == size.most {
        true => format!("{name} == {}", number(size.least)),
        false => format!("({name} >= {} && {name} <= {})", number(size.least), number(size.most)),
    }
}

fn shown(size: &Size) -> String {
    match size.least == size.most {
        true => size.least.to_string(),
        false => format!("{} to {}", size.least, size.most),
    }
}

/// `factor * name + offset`.
fn sum(name: &str, factor: i64, offset: i64) -> String {
    let product = if factor == 1 { name.to_string() } else { format!("{factor} * {name}") };
    match offset {
        0 => product,
        1.. => format!("{product} + {offset}"),
        _ => format!("{product} - {}", offset.unsigned_abs()),
    }
}
