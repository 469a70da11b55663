//! Files of the text language: reading one, and finding a program in it.

use crate::expr::syntax::Style;
use crate::language::parser::parse;
use crate::language::source::Problem;
use crate::language::syntax::{Access, Array, Body, File, Program};
use crate::poly::transform::primitive;
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result};
use std::path::Path;

/// Reads and parses a file.
pub fn load(path: &Path) -> Result<File> {
    let failed = |e: std::io::Error| Error::Io(format!("cannot read {}: {e}", path.display()));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::Invalid(format!("{} is no regular file", path.display())));
    }
    let length = metadata.len();
    if length > LONGEST {
        return Err(Error::Limit(format!("{} has {length} bytes, which is no program text", path.display())));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::Invalid(format!("{} is no text: it is not UTF-8", path.display())))?;
    let file = parse(&path.display().to_string(), &text)?;
    file.verify()?;
    Ok(file)
}

/// Bytes of a file.
pub const LONGEST: u64 = 1 << 20;

impl Program {
    /// The arrays that have values before the program runs.
    pub fn inputs(&self) -> Vec<&Array> {
        match &self.body {
            Body::Def { inputs, .. } => inputs.iter().collect(),
            Body::Loop { arrays, .. } => {
                let given = |a: &&Array| !matches!(a.access, Some(Access::Out | Access::Temporary));
                arrays.iter().filter(given).collect()
            }
        }
    }

    /// How this program writes expressions.
    pub fn style(&self) -> Style {
        match self.body {
            Body::Def { .. } => Style::Round,
            Body::Loop { .. } => Style::Square,
        }
    }
}

impl File {
    /// Refuses schedules for programs that the file does not have.
    pub fn verify(&self) -> Result<()> {
        let has = |s: &&primitive::Schedule| self.programs.iter().any(|p| p.name == s.program);
        match self.schedules.iter().find(|s| !has(s)) {
            Some(s) => {
                let names: Vec<&str> = self.programs.iter().map(|p| &*p.name).collect();
                let message = format!("`{}`: {}", s.name, unknown("program", &s.program, &names));
                Err(self.source.error(Problem::invalid(s.program.span, message)))
            }
            None => Ok(()),
        }
    }

    /// The program called `name`, or the only or first one.
    pub fn program(&self, name: Option<&str>) -> Result<&Program> {
        let found = match name {
            None => self.programs.first(),
            Some(name) => self.programs.iter().find(|p| &*p.name == name),
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = self.programs.iter().map(|p| &*p.name).collect();
            Error::Invalid(match (name, &names[..]) {
                (_, []) => format!("{} has no program", self.source.name),
                (name, _) => format!("{}: {}", self.source.name, unknown("program", name.unwrap_or(""), &names)),
            })
        })
    }
}
