//! Constants of one processor, in a file: an explicit input of the compilation, in place of the table of its target.

use crate::codegen::machine::{Core, Machine};
use crate::codegen::target::Target;
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result, file};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// Most bytes that are read of a file; those of `calibrate` have a few thousand.
const LONGEST: u64 = 1 << 20;

/// Name of the tables of the targets.
const GENERIC: &str = "generic";

/// Constants of cost of a processor that runs code for a target, as `tilewright calibrate` measures them. What is compiled
/// depends on them, and on nothing else of the processor: the same file gives the same bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Name of the target, such as `x86-64-avx512`.
    pub target: String,
    /// Its constants; those that have no probe are the table's.
    pub machine: Machine,
}

impl Calibration {
    /// The table of a target.
    pub fn of(target: &Target) -> Calibration {
        Calibration { target: target.name.clone(), machine: target.machine }
    }

    /// The constants of a core that is known by name, for a target: `generic` is the target's own table.
    ///
    /// # Errors
    /// [`Error::Invalid`] where no core has this name, the message names those that exist, and where it does not run the target.
    pub fn of_core(name: &str, target: &Target) -> Result<Calibration> {
        let machine = match name {
            GENERIC => Target::by_name(&target.name)?.machine,
            name => {
                let Some(core) = Core::ALL.into_iter().find(|core| core.name == name) else {
                    return Err(Error::Invalid(unknown("processor core", name, &Calibration::cores())));
                };
                if core.vector_bytes != target.vector_bytes {
                    let target = &target.name;
                    return Err(Error::Invalid(format!("the constants of {name} are not for {target}")));
                }
                core.machine
            }
        };
        Ok(Calibration { target: target.name.clone(), machine })
    }

    /// The names that [`Calibration::of_core`] knows.
    pub fn cores() -> Vec<&'static str> {
        [GENERIC].into_iter().chain(Core::ALL.iter().map(|core| core.name)).collect()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be read, [`Error::Invalid`] where it is not a regular file, otherwise those of
    /// [`Calibration::parse`], with its name.
    pub fn load(path: &Path) -> Result<Calibration> {
        let mut text = String::new();
        let read = file::open(path)?.take(LONGEST).read_to_string(&mut text);
        read.map_err(|e| Error::Io(format!("cannot read {}: {e}", path.display())))?;
        Calibration::parse(&text).map_err(|e| e.context(&path.display().to_string()))
    }

    /// Reads JSON, as [`Calibration::to_json`] writes it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a field that is missing, unknown or of another type, a target that does not exist, and a
    /// constant that is not plausible; the message names the field.
    pub fn parse(text: &str) -> Result<Calibration> {
        let read: Calibration = serde_json::from_str(text)
            .map_err(|e| Error::Invalid(format!("this is not a file that `tilewright calibrate` wrote: {e}")))?;
        Target::by_name(&read.target)?;
        read.machine.check()?;
        Ok(read)
    }

    /// The file's text: JSON with a line for each constant.
    pub fn to_json(&self) -> String {
        // Numbers and names always have a text.
        serde_json::to_string_pretty(self).expect("numbers and names have a text") + "\n"
    }

    /// The target with these constants.
    ///
    /// # Errors
    /// [`Error::Invalid`] where they belong to another target, or are not plausible.
    pub fn apply(&self, target: Target) -> Result<Target> {
        if target.name != self.target {
            let (own, other) = (&self.target, &target.name);
            return Err(Error::Invalid(format!("the machine's constants are those of {own}, not of {other}")));
        }
        self.machine.check()?;
        Ok(Target { machine: self.machine, loop_machine: self.machine, ..target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_have_names() {
        for name in Calibration::cores() {
            let of = |target: Target| Calibration::of_core(name, &target);
            let found = of(Target::avx512()).unwrap();
            found.machine.check().unwrap();
            assert_eq!(found.machine == Target::avx512().machine, name == GENERIC, "{name}");
            assert_eq!(of(Target::avx2()).is_ok(), name == GENERIC, "{name}");
        }
        let refused = Calibration::of_core("znver6", &Target::avx512()).unwrap_err().to_string();
        assert!(refused.contains("there are generic, znver4, znver5"), "{refused}");
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        for target in Target::all() {
            let mut calibration = Calibration::of(&target);
            calibration.machine.clock_ghz = 4.1;
            let text = calibration.to_json();
            assert_eq!(Calibration::parse(&text).unwrap(), calibration);
            assert_eq!(Calibration::parse(&text).unwrap().to_json(), text);
            assert_eq!(calibration.apply(target).unwrap().machine.clock_ghz, 4.1);
        }
    }

    #[test]
    fn errors_name_the_field() {
        let text = Calibration::of(&Target::avx512()).to_json();
        for (from, to, words) in [
            ("\"clock_ghz\": 3.2", "\"clock_ghz\": 3200", "`clock_ghz` is 3200 (GHz); between 0.13 and 85"),
            ("\"clock_ghz\": 3.2", "\"clock_ghz\": -1", "`clock_ghz` is -1"),
            ("\"clock_ghz\": 3.2", "\"clock_ghz\": \"fast\"", "invalid type: string \"fast\""),
            ("\"clock_ghz\": 3.2,", "", "missing field `clock_ghz`"),
            ("\"clock_ghz\"", "\"clock\"", "unknown field `clock`"),
            ("\"cache_fill\": 0.7", "\"cache_fill\": 1.5", "`cache_fill` is 1.5 (share); between 0 and 1"),
            ("49152", "4915200", "`cache_bytes`: each cache is larger"),
            ("\"weights_level\": 2", "\"weights_level\": 4", "`weights_level` is 4"),
            ("x86-64-avx512", "x86-64-avx51", "x86-64-avx512"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Calibration::parse(&text.replacen(from, to, 1)).unwrap_err();
            assert!(error.to_string().contains(words), "{words}: {error}");
        }
        let error = Calibration::of(&Target::avx512()).apply(Target::neon()).unwrap_err();
        assert!(error.to_string().contains("those of x86-64-avx512, not of aarch64-neon"), "{error}");
    }
}
