//! Sizes: which ones a program has, and the value of each.

use super::source::{Checked, Diagnostic};
use super::syntax::{Body, Program, Sizes};
use crate::expr::syntax::Span;
use crate::expr::syntax::{Expr, Kind, Name};
use crate::runtime::error::unknown;
use std::collections::BTreeMap;

/// The largest size; products of two subscripts stay inside 64 bits.
const LARGEST: i64 = 1 << 31;

impl Program {
    /// The names of the sizes, in the order in which the program names them.
    pub fn sizes(&self) -> Vec<String> {
        let mut names: Vec<String> = vec![];
        let mut add = |name: &str| {
            if !names.iter().any(|n| n == name) {
                names.push(name.into());
            }
        };
        match &self.body {
            Body::Loop { parameters, .. } => parameters.iter().for_each(|p| add(&p.name)),
            Body::Def { inputs, outputs, .. } => {
                let declared = outputs.iter().filter_map(|o| o.declared.as_ref()).map(|d| &d.1);
                for shape in inputs.iter().map(|i| &i.shape).chain(declared) {
                    for e in shape {
                        e.visit(&mut |e: &Expr| {
                            if let Kind::Name(name) = &e.kind {
                                add(name);
                            }
                        });
                    }
                }
                self.sizes.iter().flat_map(|s| &s.values).for_each(|v| add(&v.0));
            }
        }
        names
    }

    /// A value for each size: given, else from the set of sizes called `chosen`, else the parameter's own, else from the
    /// first set.
    pub fn bind(&self, values: &BTreeMap<String, i64>, chosen: Option<&str>) -> Checked<BTreeMap<String, i64>> {
        let names = self.sizes();
        let no_size = |span: Span, name: &str| {
            Diagnostic::invalid(span, format!("`{}`: {}", self.name, unknown("size", name, &names)))
        };
        if let Some(name) = values.keys().find(|name| !names.contains(name)) {
            return Err(no_size(self.name.span, name));
        }
        for (name, _) in self.sizes.iter().flat_map(|s| &s.values) {
            if !names.contains(&name.text) {
                return Err(no_size(name.span, name));
            }
        }
        let parameters: Vec<&Name> = match &self.body {
            Body::Loop { parameters, .. } => parameters.iter().map(|p| &p.name).collect(),
            Body::Def { .. } => vec![],
        };
        let sets = self.sizes.iter().map(|set| set.values.iter().map(|v| &v.0).collect());
        for names in [parameters].into_iter().chain(sets) {
            if let Some((_, twice)) = (0..).zip(&names).find(|(i, name)| names[..*i].contains(name)) {
                return Err(Diagnostic::invalid(twice.span, format!("the size `{twice}` is already defined")));
            }
        }
        let sets: Vec<&str> = self.sizes.iter().map(|s| &*s.name).collect();
        let set = match chosen {
            None => None,
            Some(name) => match self.sizes.iter().find(|s| &*s.name == name) {
                Some(set) => Some(set),
                None => {
                    let message = format!("`{}`: {}", self.name, unknown("set of sizes", name, &sets));
                    return Err(Diagnostic::invalid(self.name.span, message));
                }
            },
        };
        let mut bound = BTreeMap::new();
        for name in &names {
            let Some(value) = self.value_of(name, values, set) else {
                let sets = if sets.is_empty() { String::new() } else { format!(", or `--size {}`", sets.join("|")) };
                let message =
                    format!("the size `{name}` of `{}` has no value: pass `--dim {name}=<number>`{sets}", self.name);
                return Err(Diagnostic::invalid(self.name.span, message));
            };
            if !(1..=LARGEST).contains(&value) {
                let why = if value < 1 { ": a program without elements is not compiled" } else { "" };
                let message =
                    format!("the size `{name}` of `{}` is {value}, but sizes are 1 to {LARGEST}{why}", self.name);
                let given = values.contains_key(name);
                let place = if given { None } else { self.place_of(name, value) };
                return Err(Diagnostic::invalid(place.unwrap_or(self.name.span), message));
            }
            bound.insert(name.clone(), value);
        }
        Ok(bound)
    }

    /// The place in the text where the size called `name` has this value.
    fn place_of(&self, name: &str, value: i64) -> Option<Span> {
        let of_sets = self.sizes.iter().flat_map(|set| &set.values).map(|v| (&v.0, Some(v.1)));
        let of_parameters = match &self.body {
            Body::Loop { parameters, .. } => &parameters[..],
            Body::Def { .. } => &[],
        };
        let mut all = of_sets.chain(of_parameters.iter().map(|p| (&p.name, p.value)));
        all.find(|(n, v)| n.text == name && *v == Some(value)).map(|(n, _)| n.span)
    }

    /// The sizes that have no value where `values` are given and no set is chosen.
    pub fn unbound(&self, values: &BTreeMap<String, i64>) -> Vec<String> {
        self.sizes().into_iter().filter(|name| self.value_of(name, values, None).is_none()).collect()
    }

    /// The value of a size, as [`Program::bind`] takes it; `set` is the one that was chosen.
    fn value_of(&self, name: &str, values: &BTreeMap<String, i64>, set: Option<&Sizes>) -> Option<i64> {
        let of_set = |set: &Sizes| set.values.iter().find(|v| &*v.0 == name).map(|v| v.1);
        let default = || match &self.body {
            Body::Loop { parameters, .. } => parameters.iter().find(|p| &*p.name == name).and_then(|p| p.value),
            Body::Def { .. } => None,
        };
        let first = || self.sizes.first().filter(|_| set.is_none()).and_then(of_set);
        values.get(name).copied().or_else(|| set.and_then(of_set)).or_else(default).or_else(first)
    }
}
