//! Tables of the library: primitives of schedules, stages, targets, programs of a text.

use crate::errors::OrRaise;
use pyo3::prelude::*;
use tilewright::syntax::{ArgumentForm, FORMS};
use tilewright::{File, Target, instructions};

/// Word before an argument, its name, its kind.
type Argument = (&'static str, &'static str, &'static str);

/// Keyword, documentation, arguments and the argument that may follow, of every primitive.
#[pyfunction]
pub fn primitives() -> Vec<(&'static str, &'static str, Vec<Argument>, Option<Argument>)> {
    let argument = |a: &ArgumentForm| (a.word, a.name, a.kind);
    let row = |form: &tilewright::syntax::PrimitiveForm| {
        let arguments = form.arguments.iter().map(argument).collect();
        (form.keyword, form.doc.trim(), arguments, form.optional.as_ref().map(argument))
    };
    FORMS.iter().map(row).collect()
}

/// The names of the stages that `explain` prints.
#[pyfunction]
pub fn stages() -> Vec<&'static str> {
    tilewright::Stage::NAMES.to_vec()
}

/// The names of the targets, with whether this processor runs them; its default first where that has features of its own.
#[pyfunction]
pub fn targets() -> Vec<(String, bool)> {
    let all = Target::all();
    let host = Target::host().filter(|host| all.iter().all(|target| target.name != host.name));
    host.into_iter().chain(all).map(|target| (target.name.clone(), target.runs_on_host())).collect()
}

/// The programs of a text, each with the names of its schedules and of its sets of sizes.
#[pyfunction]
pub fn program_names(py: Python, name: &str, text: &str) -> PyResult<Vec<(String, Vec<String>, Vec<String>)>> {
    let file = File::parse(name, text).or_raise(py)?;
    let row = |program: &tilewright::syntax::Program| {
        let of = file.schedules.iter().filter(|schedule| *schedule.program == *program.name);
        let schedules = of.map(|schedule| schedule.name.to_string()).collect();
        (program.name.to_string(), schedules, program.sizes.iter().map(|sizes| sizes.name.to_string()).collect())
    };
    Ok(file.programs.iter().map(row).collect())
}

/// The names of the tensor instructions that a text declares, all of which are checked against decoders.
#[pyfunction]
pub fn check_instructions(py: Python, text: &str) -> PyResult<Vec<String>> {
    let rows = instructions::parse("instructions", text).or_raise(py)?;
    Ok(rows.iter().map(|row| row.name.as_str().to_string()).collect())
}
