//! Programs of known sizes: a tensor expression or a Scop, and the initial values of its arrays.

use crate::language::source::Diagnostic;
use crate::language::syntax::{Body, File, Program};
use crate::language::{def, element_ranges, loops};
use crate::poly::analysis::index_range;
use crate::poly::analysis::index_range::IndexRange;
use crate::poly::normalize::reassociate::reassociate;
use crate::poly::normalize::{build, textual_order};
use crate::poly::scop::Scop;
use crate::poly::statement::Role;
use crate::poly::transform::primitive;
use crate::runtime::Result;
use std::collections::BTreeMap;

/// A program of known sizes.
#[derive(Clone, Debug)]
pub struct LoweredProgram {
    pub name: String,
    pub sizes: BTreeMap<String, i64>,
    pub computation: Computation,
    /// The initial values of arrays that are not given: its outputs have their names. `None` when none are declared.
    pub initial: Option<crate::poly::statement::Program>,
}

#[derive(Clone, Debug)]
pub enum Computation {
    Def(crate::poly::statement::Program),
    Loop(Scop),
}

impl LoweredProgram {
    /// The arrays that the program knows: inputs, outputs, temporaries.
    pub fn arrays(&self) -> &[crate::poly::statement::TensorDecl] {
        match &self.computation {
            Computation::Def(program) => &program.tensors,
            Computation::Loop(scop) => &scop.tensors,
        }
    }

    /// Returns the Scop from which the ILP starts.
    pub fn normal(&self) -> Result<Scop> {
        self.computation.normal(&self.name)
    }
}

impl Computation {
    /// Returns the Scop from which the ILP starts, with this name.
    pub fn normal(&self, name: &str) -> Result<Scop> {
        match self {
            Computation::Def(program) => build::build(name, program),
            Computation::Loop(scop) => Ok(reassociate(scop)),
        }
    }

    /// Returns the ranges in which subscripts from data must lie.
    pub fn index_ranges(&self) -> Result<Vec<IndexRange>> {
        match self {
            Computation::Def(program) => index_range::index_ranges(program),
            Computation::Loop(scop) => index_range::index_ranges(&scop.as_definitions()),
        }
    }
}

impl File {
    /// Lowers `program` of this file for the sizes `given`, or those of the set called `chosen`.
    ///
    /// # Errors
    /// `Invalid` or `Unsupported` at a place of the text.
    #[doc(hidden)]
    pub fn lower(
        &self,
        program: &Program,
        given: &BTreeMap<String, i64>,
        chosen: Option<&str>,
    ) -> Result<LoweredProgram> {
        let lower = || {
            let sizes = program.bind(given, chosen)?;
            let computation = match &program.body {
                Body::Def { .. } => Computation::Def(def::lower(program, &sizes)?),
                Body::Loop { .. } => Computation::Loop(loops::lower(program, &sizes)?),
            };
            let mut lowered = LoweredProgram { name: program.name.text.clone(), sizes, computation, initial: None };
            let bounding = match &lowered.computation {
                Computation::Loop(scop) => element_ranges::bounding(scop),
                Computation::Def(_) => vec![],
            };
            let derived = element_ranges::initial(lowered.arrays(), &bounding, &program.initial);
            let initial = [program.initial.clone(), derived].concat();
            if !initial.is_empty() {
                for e in &program.initial {
                    if let Some(a) = lowered.arrays().iter().find(|a| a.name == *e.target)
                        && !a.role.is_given()
                    {
                        let message = format!("`{}` has no initial values: the program computes it", e.target);
                        return Err(Diagnostic::invalid(e.target.span, message));
                    }
                }
                let is_input = |a: &&crate::poly::statement::TensorDecl| a.role.is_given() && a.role != Role::Constant;
                let arrays: Vec<crate::poly::statement::TensorDecl> =
                    lowered.arrays().iter().filter(is_input).cloned().collect();
                lowered.initial = Some(def::lower_initial(&initial, &arrays, &lowered.sizes, program.style())?);
            }
            Ok(lowered)
        };
        lower().map_err(|problem| self.source.error(problem))
    }

    /// The schedules for `program`.
    #[doc(hidden)]
    pub fn schedules_of<'f>(&'f self, program: &Program) -> Vec<&'f primitive::Schedule> {
        self.schedules.iter().filter(|s| s.program == program.name).collect()
    }

    /// Returns the Scop of the loops as written, with which schedules by hand begin.
    ///
    /// # Errors
    /// `Invalid` or `Unsupported` at a place of the text.
    #[doc(hidden)]
    pub fn written(&self, lowered: &LoweredProgram) -> Result<Scop> {
        match &lowered.computation {
            Computation::Loop(_) => loops::lower_over_indices(self.program(Some(&lowered.name))?, &lowered.sizes)
                .map_err(|problem| self.source.error(problem)),
            Computation::Def(program) => textual_order::in_loops(&lowered.name, program),
        }
    }
}
