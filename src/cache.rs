//! The cache: modules on disk, found by a hash of all that decides their bytes.
//!
//! In: a subject and the options. Out: its module and report, as they were stored, or nothing. Invariants: two
//! compilations that may give different modules have different keys; what is read was written by this user, whole, and is
//! what was written; a failure of the cache never fails a compilation, except that a directory is refused that others may
//! write to.
//!
//! Where values of inputs decide shapes, the key without values leads to the names of these inputs, and the key with their
//! values to the module.

mod directory;
mod entry;
mod kernels;

use crate::graph::content::{Hash, Hasher};
use crate::graph::import::model::OnnxModel;
use crate::graph::ir::Graph;
use crate::language::syntax::File;
use crate::pipeline::report::Report;
use crate::pipeline::{Limits, Options};
use crate::runtime::bounds::Bounds;
use crate::runtime::module::{FORMAT_VERSION, Module};
use crate::runtime::text;
use crate::{Result, Tensor};
use directory::{Directory, Unusable};
use entry::{COMPILER, Entry, VERSION};
pub use kernels::Kernels;
use std::collections::BTreeMap;
use std::io::Write;

/// Sets of inputs whose values decided shapes that are kept for one key.
const MAX_SETS: usize = 64;

/// The order of the statements of what is compiled.
#[derive(Clone, Copy)]
pub enum Order<'a> {
    Ilp,
    Untransformed,
    /// The schedule of this name.
    Named(&'a str),
    /// The schedules of this file.
    File(&'a File),
}

impl Order<'_> {
    fn text(&self) -> String {
        match self {
            Order::Ilp => "ILP".into(),
            Order::Untransformed => "untransformed".into(),
            Order::Named(name) => format!("schedule {name}"),
            Order::File(file) => format!("schedules {file}"),
        }
    }
}

/// A model, a part of one, or a program, with the order of its statements: all that a module is compiled of beside the options.
pub enum Subject<'a> {
    /// A model file.
    Onnx(&'a OnnxModel, Order<'a>),
    Graph(&'a Graph, Order<'a>),
    /// A part of a model that runs in parts.
    Part(&'a Graph),
    /// A model for one of several bindings in a process: constants have the order that the first kernel of all wanted, so that
    /// the module may be another one than of the model alone.
    Beside(&'a Subject<'a>),
    /// A model bound to a capacity. What it is bound to is the same for a range of counts.
    Bound(&'a Subject<'a>, &'a Graph, &'a Option<Bounds>),
    /// A program of a file.
    Program {
        file: &'a File,
        program: Option<&'a str>,
        sizes: Option<&'a str>,
        order: Order<'a>,
    },
}

impl Subject<'_> {
    /// A hash of the subject; `None` where it has none.
    fn content(&self) -> Option<Hash> {
        let mut hasher = Hasher::new("subject");
        match self {
            Subject::Onnx(model, order) => hasher.text("model").part(&model.content()?).text(&order.text()),
            Subject::Graph(graph, order) => hasher.text("graph").part(&graph.content()).text(&order.text()),
            Subject::Part(graph) => hasher.text("part").part(&graph.content()),
            Subject::Beside(model) => hasher.text("beside").part(&model.content()?),
            Subject::Bound(model, graph, bounds) => {
                hasher.text("bound").part(&model.content()?).part(&graph.content()).text(&format!("{bounds:?}"))
            }
            Subject::Program { file, program, sizes, order } => hasher
                .text("program")
                .text(&file.to_string())
                .text(&format!("{program:?} {sizes:?}"))
                .text(&order.text()),
        };
        Some(hasher.finish())
    }

    /// The key of what is compiled for `options`, without values of inputs; `None` where there is none.
    fn key(&self, options: &Options) -> Option<Hash> {
        // Written out, so that who adds an option has to say whether it decides the bytes of a module.
        let Options {
            target: _,
            instructions,
            machine: _,
            threads: _,
            compile_threads: _,
            pool: _,
            dims,
            growing,
            values: _,
            algorithm,
            max_error,
            precision,
            accumulate,
            quotients,
            egraph,
            limits,
            cache: _,
            prices: _,
        } = options;
        let mut hasher = Hasher::new("module");
        hasher.text(COMPILER).text(&format!("{FORMAT_VERSION} {VERSION} {}", cfg!(debug_assertions)));
        hasher
            .part(&self.content()?)
            .text(&format!("{:?}", options.target().ok()?))
            .text(&format!("{instructions:?}"))
            .text(&format!("{dims:?} {growing:?}"));
        hasher
            .text(&format!("{algorithm:?} {:x} {precision} {accumulate} {quotients} {egraph:?}", max_error.to_bits()));
        // How many bindings are kept decides no module.
        hasher.text(&format!("{:?}", Limits { bindings: 0, binding_bytes: None, ..limits.clone() }));
        Some(hasher.finish())
    }
}

/// The key of a module that is for these values.
fn key_of_values<'a>(key: &Hash, values: impl Iterator<Item = (&'a str, &'a Tensor)>) -> Hash {
    let mut hasher = Hasher::new("values");
    hasher.part(key);
    values.for_each(|(name, tensor)| _ = hasher.text(name).tensor(tensor));
    hasher.finish()
}

/// The module and the report from the cache, or those that `compile` makes, which are kept.
///
/// # Errors
/// Those of [`find`] and of `compile`.
pub fn compiled(
    subject: &Subject,
    options: &Options,
    compile: impl FnOnce() -> Result<(Module, Report)>,
) -> Result<(Module, Report)> {
    if let Some(found) = find(subject, options)? {
        return Ok(found);
    }
    let (module, mut report) = compile()?;
    store(subject, options, &module, &mut report);
    Ok((module, report))
}

/// The module and the report that the cache has for these options.
///
/// # Errors
/// `Invalid` where the cache's directory is a file, belongs to another user, or may be written by others; `Unsupported` where
/// the system has no owners of files.
pub fn find(subject: &Subject, options: &Options) -> Result<Option<(Module, Report)>> {
    let Some(cache) = &options.cache else { return Ok(None) };
    let directory = match Directory::open(&cache.directory) {
        Ok(directory) => directory,
        Err(Unusable::Refused(error)) => return Err(error),
        Err(Unusable::Failed(_)) => return Ok(None),
    };
    let Some(key) = subject.key(options) else { return Ok(None) };
    let sets = match entry::read(&directory, &key) {
        Ok(Some(Entry::Module(module, report))) => return Ok(Some((*module, *report))),
        Ok(Some(Entry::Values(sets))) => sets,
        _ => return Ok(None),
    };
    for names in sets {
        let values = names.iter().map(|name| Some((name.as_str(), &**options.values.get(name)?)));
        let Some(values) = values.collect::<Option<BTreeMap<&str, &Tensor>>>() else { continue };
        let key = key_of_values(&key, values.into_iter());
        if let Ok(Some(Entry::Module(module, report))) = entry::read(&directory, &key) {
            return Ok(Some((*module, *report)));
        }
    }
    Ok(None)
}

/// Keeps a module and its report. Where that fails, the report gets a warning.
pub fn store(subject: &Subject, options: &Options, module: &Module, report: &mut Report) {
    if let Err(why) = try_store(subject, options, module, report) {
        let directory = options.cache.iter().map(|cache| format!(" {}", cache.directory.display())).collect::<String>();
        report.warnings.push(format!("the module is not kept in the cache{directory}: {why}"));
    }
}

fn try_store(
    subject: &Subject,
    options: &Options,
    module: &Module,
    report: &Report,
) -> std::result::Result<(), String> {
    let Some(cache) = &options.cache else { return Ok(()) };
    let directory = Directory::open(&cache.directory).map_err(|unusable| unusable.to_string())?;
    let Some(key) = subject.key(options) else {
        return Err("the model's files have changed since it was loaded, or cannot be read".into());
    };
    let names: Vec<String> = module.values().keys().cloned().collect();
    let values = module.values().iter().map(|(name, tensor)| (name.as_str(), tensor));
    let module_key = if names.is_empty() { key } else { key_of_values(&key, values) };
    let write = |key: &Hash, entry: &entry::Draft| {
        let length = entry.length();
        if length > cache.max_bytes {
            let (length, most) = (text::bytes(length), text::bytes(cache.max_bytes));
            return Err(format!("it has {length}, and the cache may have {most}"));
        }
        let written =
            directory.write(length, cache.max_bytes, &[(entry::name(key), &|out: &mut dyn Write| entry.write(out))]);
        written.map_err(|e| e.to_string())
    };
    write(&module_key, &entry::Draft::module(&module_key, module, report)?)?;
    if names.is_empty() {
        return Ok(());
    }
    let mut sets = match entry::read(&directory, &key) {
        Ok(Some(Entry::Values(sets))) => sets,
        _ => vec![],
    };
    if sets.contains(&names) {
        return Ok(());
    }
    sets.push(names);
    let old = sets.len().saturating_sub(MAX_SETS);
    write(&key, &entry::Draft::values(&key, &sets[old..])?)
}
