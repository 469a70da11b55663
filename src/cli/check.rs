//! `check`: proves or refuses every schedule of a file.

use super::progress::Progress;
use crate::model_arguments::{bind_once, parse_dim, print, target};
use std::path::PathBuf;
use tilewright::internal::language;
use tilewright::internal::runtime::error::unknown;
use tilewright::{Error, Result};
use tilewright::{Isa, Target};

#[derive(clap::Args)]
pub struct Arguments {
    /// A `.tile` file
    file: PathBuf,
    /// Only the schedules for this program
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// Set of sizes of the programs, for sizes that --dim does not give
    #[arg(long, value_name = "NAME")]
    size: Option<String>,
    /// Target whose instructions `tensorize` chooses from; the best one of this processor by default
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Value of a size
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim)]
    dims: Vec<(String, i64)>,
}

impl Arguments {
    pub fn run(self, progress: &Progress) -> Result<String> {
        let file = tilewright::File::load(&self.file)?;
        let dims = bind_once(&self.dims)?;
        let programs: Vec<&language::syntax::Program> = match &self.program {
            Some(name) => vec![file.program(Some(name))?],
            None => file.programs.iter().filter(|p| !file.schedules_of(p).is_empty()).collect(),
        };
        let is_size = |name: &String| programs.iter().any(|p| p.sizes().contains(name));
        if let Some(name) = dims.keys().find(|name| !is_size(name)) {
            let names: Vec<String> = programs.iter().flat_map(|p| p.sizes()).collect();
            return Err(Error::Invalid(unknown("size of a program with a schedule", name, &names)));
        }
        let isa = match self.target {
            None => Target::host().map_or(Isa::Avx2, |target| target.isa),
            Some(_) => target(self.target.as_deref())?.isa,
        };
        let has_set = |p: &language::syntax::Program| match &self.size {
            None => true,
            Some(name) => p.sizes.iter().any(|set| *set.name == **name),
        };
        let none_has_set = !programs.iter().any(|p| has_set(p));
        let (mut out, mut refused, mut count) = (String::new(), 0, 0);
        for program in &programs {
            if let (Some(name), false, false) = (&self.size, has_set(program), none_has_set) {
                let schedules = file.schedules_of(program).len();
                out.push_str(&format!(
                    "{}: has no set of sizes `{name}`, {schedules} schedules not checked\n",
                    program.name
                ));
                continue;
            }
            let sizes = dims.iter().filter(|d| program.sizes().contains(d.0)).map(|d| (d.0.clone(), *d.1)).collect();
            let lowered = file.lower(program, &sizes, self.size.as_deref())?;
            for schedule in file.schedules_of(program) {
                progress.stage(format!("checking {} for {}", schedule.name, program.name));
                count += 1;
                let verdict = file.schedule(&lowered, schedule, isa).map_or_else(|e| e.to_string(), |_| "legal".into());
                refused += usize::from(verdict != "legal");
                out.push_str(&format!("{} for {}: {verdict}\n", schedule.name, program.name));
            }
        }
        progress.stage("");
        match (count, refused) {
            (0, _) => Err(Error::Invalid(format!("{} has no schedules to check", self.file.display()))),
            (_, 0) => Ok(out),
            (_, _) => {
                print(&out)?;
                Err(Error::refused(format!("{refused} of {count} schedules refused")))
            }
        }
    }
}
