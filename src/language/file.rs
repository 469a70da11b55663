//! Files of the text language: reading one, and finding a program in it.

use crate::expr::syntax::Style;
use crate::language::parser::parse;
use crate::language::source::Diagnostic;
use crate::language::syntax::{Access, Array, Body, File, Program, assignments};
use crate::poly::transform::primitive;
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result};
use std::path::Path;

/// Bytes of a file.
pub const LONGEST: u64 = 1 << 20;

/// The text of the `.tile` file at `path`.
///
/// # Errors
/// [`Error::Io`] where the file cannot be read, [`Error::Limit`] where it has more than 1 MiB, [`Error::Invalid`] where it is not a
/// text.
pub fn read(path: &Path) -> Result<String> {
    let failed = |e: std::io::Error| Error::Io(format!("cannot read {}: {e}", path.display()));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::Invalid(format!("{} is not a regular file", path.display())));
    }
    let length = metadata.len();
    if length > LONGEST {
        let text = format!("{} has {length} bytes, more than a program text may have", path.display());
        return Err(Error::Limit(text));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    String::from_utf8(bytes)
        .map_err(|_| Error::Invalid(format!("{} is not a .tile text: it is not UTF-8", path.display())))
}

impl Program {
    /// The arrays that have values before the program runs.
    pub fn inputs(&self) -> Vec<&Array> {
        match &self.body {
            Body::Def { inputs, .. } => inputs.iter().collect(),
            Body::Loop { arrays, .. } => {
                let is_input = |a: &&Array| !matches!(a.access, Some(Access::Out | Access::Temporary));
                arrays.iter().filter(is_input).collect()
            }
        }
    }

    /// Names of the arrays that have values after the program ran, in the order of the compiled outputs.
    pub fn outputs(&self) -> Vec<&str> {
        match &self.body {
            Body::Def { outputs, .. } => outputs.iter().map(|output| &*output.name).collect(),
            Body::Loop { arrays, statements, .. } => {
                let is_output = |a: &&Array| match a.access {
                    Some(access) => matches!(access, Access::Out | Access::InOut),
                    None => assignments(statements).iter().any(|s| s.target == a.name),
                };
                arrays.iter().filter(is_output).map(|a| &*a.name).collect()
            }
        }
    }

    /// The style of this program's expressions.
    pub fn style(&self) -> Style {
        match self.body {
            Body::Def { .. } => Style::Round,
            Body::Loop { .. } => Style::Square,
        }
    }
}

impl File {
    /// Reads and parses the `.tile` file at `path`.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read, [`Error::Limit`] where it has more than 1 MiB, and the errors of
    /// [`File::parse`].
    pub fn load(path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let text = read(path)?;
        File::parse(&path.display().to_string(), &text)
    }

    /// Parses the text of a `.tile` file. Messages contain `name`.
    ///
    /// ```
    /// use tilewright::{DType, File, Model, Options, Tensor};
    ///
    /// # fn main() -> tilewright::Result<()> {
    /// let file = File::parse("twice.tile", "def twice(f32(N) x) -> (y) { y(i) = 2.0 * x(i) }")?;
    /// let compiled = Model::from_program(file, None, None)?.compile(&Options::default())?;
    /// let x = Tensor::new(&[3], &[1f32, 2.0, 3.0]);
    /// assert_eq!(compiled.run(&[("x", &x)])?[0].to_vec::<f32>(), [2.0, 4.0, 6.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] with file, line, column and a caret where the text is wrong or a schedule is for a program that
    /// the text does not have; [`Error::Unsupported`] where the text makes sense but is not compiled here.
    pub fn parse(name: &str, text: &str) -> Result<File> {
        let file = parse(name, text)?;
        file.verify()?;
        Ok(file)
    }

    /// Refuses schedules for programs that the file does not have. A file without programs has schedules for others, as
    /// [`Model::with_schedules`](crate::Model::with_schedules) takes them.
    ///
    /// # Errors
    /// [`Error::Invalid`] at the first such schedule.
    pub fn verify(&self) -> Result<()> {
        if self.programs.is_empty() {
            return Ok(());
        }
        let has = |s: &&primitive::Schedule| self.programs.iter().any(|p| p.name == s.program);
        match self.schedules.iter().find(|s| !has(s)) {
            Some(s) => {
                let names: Vec<&str> = self.programs.iter().map(|p| &*p.name).collect();
                let message = format!("`{}`: {}", s.name, unknown("program", &s.program, &names));
                Err(self.source.error(Diagnostic::invalid(s.program.span, message)))
            }
            None => Ok(()),
        }
    }

    /// The program called `name`, or the first one.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the names of the programs where none has this one, or where the file has no program.
    pub fn program(&self, name: Option<&str>) -> Result<&Program> {
        let program = match name {
            None => self.programs.first(),
            Some(name) => self.programs.iter().find(|p| &*p.name == name),
        };
        program.ok_or_else(|| {
            let names: Vec<&str> = self.programs.iter().map(|p| &*p.name).collect();
            Error::Invalid(match (name, &names[..]) {
                (_, []) => format!("{} has no program", self.source.name),
                (name, _) => format!("{}: {}", self.source.name, unknown("program", name.unwrap_or(""), &names)),
            })
        })
    }
}
