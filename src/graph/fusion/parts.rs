//! Values that are written in parts, and what is computed from them element by element.
//!
//! In: the definitions of a group's nodes as they come. Out: the same with each reader of a concatenation split like the
//! concatenation itself, so that each part is computed from its own operand and the concatenation need not be in memory.

use crate::expr::{Access, BufferId, Expr, Index};
use crate::expr::{Affine, Var};
use crate::poly::statement::{Definition, Iterator, Program, Role, TensorDecl};
use crate::runtime::{Error, Result};
use std::collections::BTreeMap;

/// One part of a value.
#[derive(Clone)]
struct ConcatenationPart {
    iterators: Vec<Iterator>,
    /// Position of the part in the whole.
    write: Vec<Affine>,
    /// The buffer from which its elements can be read.
    buffer: BufferId,
    index: Vec<Affine>,
}

/// The parts of each value that is written in parts.
#[derive(Default)]
pub struct Parts(BTreeMap<BufferId, Vec<ConcatenationPart>>);

impl Parts {
    /// A definition, split when it reads what is written in parts.
    pub fn split(&self, definition: Definition) -> Result<Vec<Definition>> {
        let mut first: Option<Access> = None;
        definition.body.visit_accesses(&mut |a| {
            if first.is_none() && self.0.contains_key(&a.buffer) {
                first = Some(a.clone());
            }
        });
        let Some(access) = first else { return Ok(vec![definition]) };
        let parts = &self.0[&access.buffer];
        (0..parts.len()).map(|i| self.restrict(&definition, &access, i)).collect()
    }

    /// A definition where it reads part `i` by `access`, over the iterators of the part.
    fn restrict(&self, definition: &Definition, access: &Access, i: usize) -> Result<Definition> {
        let part = &self.0[&access.buffer][i];
        let whole = || Error::Internal("a part of a concatenation is read by other than its place".into());
        let mut places: BTreeMap<Var, Affine> = BTreeMap::new();
        for (index, place) in access.index.iter().zip(&part.write) {
            let index = index.affine().ok_or_else(whole)?;
            match index.terms.first() {
                Some(&(v, _)) if *index == Affine::var(v) => _ = places.insert(v, place.clone()),
                Some(_) => return Err(whole()),
                None => {}
            }
        }
        let single = |v: usize| definition.iterators[v].extent == 1;
        let covered = |v: usize| places.contains_key(&Var(v as u32)) || single(v);
        if definition.reduce.is_some() || !(0..definition.iterators.len()).all(covered) {
            return Err(whole());
        }
        let mut map = |v: Var| places.get(&v).cloned().unwrap_or_default();
        let mut right = true;
        let body = definition.body.substitute(&mut map).rewrite(&mut |e| match e {
            Expr::Load(mut read) if self.0.contains_key(&read.buffer) => {
                let matching =
                    self.0[&read.buffer].get(i).filter(|p| p.iterators == part.iterators && p.write == part.write);
                let same_place = read.index.iter().zip(&part.write).all(|(index, place)| index.affine() == Some(place));
                right &= matching.is_some() && same_place;
                if let Some(matching) = matching {
                    read.buffer = matching.buffer;
                    read.index = matching.index.iter().cloned().map(Index::Affine).collect();
                }
                Expr::Load(read)
            }
            e => e,
        });
        if !right {
            return Err(whole());
        }
        Ok(Definition {
            target: definition.target,
            iterators: part.iterators.clone(),
            outer: part.iterators.len(),
            write: definition.write.iter().map(|w| w.substitute(&mut map)).collect(),
            computed: vec![],
            reduce: None,
            conditions: definition.conditions.iter().map(|c| c.substitute(&mut map)).collect(),
            body,
        })
    }

    /// Remembers that `definitions` write one value in parts. Where it is a temporary each part becomes one of its own.
    pub fn add(&mut self, program: &mut Program, definitions: &mut [Definition]) {
        let Some(target) = definitions.first().map(|d| d.target) else { return };
        let decl = &program.tensors[target.0 as usize];
        let (dtype, temporary) = (decl.dtype, decl.role == Role::Temporary);
        let mut parts: Vec<ConcatenationPart> = vec![];
        for d in definitions {
            let write = d.write.clone();
            if temporary {
                let shape = d.iterators.iter().map(|i| i.extent).collect();
                if parts.is_empty() {
                    program.tensors[target.0 as usize].shape = shape;
                } else {
                    d.target = BufferId(program.tensors.len() as u32);
                    let name = format!("t{}", d.target.0);
                    program.tensors.push(TensorDecl::new(name, dtype, shape, Role::Temporary));
                }
                d.write = (0..d.iterators.len() as u32).map(|v| Affine::var(Var(v))).collect();
            }
            parts.push(ConcatenationPart {
                iterators: d.iterators.clone(),
                write,
                buffer: d.target,
                index: d.write.clone(),
            });
        }
        self.0.insert(target, parts);
    }
}
