//! Arguments that several commands share: which model, and how it is compiled.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tilewright::Algorithm;
use tilewright::CacheOptions;
use tilewright::Calibration;
use tilewright::Target;
use tilewright::{Accumulate, Error, Limits, Model, Precision, Quotients, Result};

/// The most bindings of one module.
const MAX_BINDINGS: usize = 256;

/// Headings of options in the help.
const COMPILER: &str = "Compiler";
const LIMITS: &str = "Limits";
const CACHE: &str = "Cache";

/// The model and the options of its compilation.
#[derive(Args)]
pub struct ModelArguments {
    /// An ONNX file or a `.tile` program; `run` and `bench` also take a module made by `compile`
    pub model: PathBuf,
    /// Program of a .tile file; the first one by default
    #[arg(long, value_name = "NAME")]
    pub program: Option<String>,
    /// Schedule of the .tile file, instead of the compiler's; or a .tile file of schedules, as `explain --stage schedule` prints
    /// them: in a network each is for the kernel that it names
    #[arg(long, value_name = "NAME|FILE")]
    pub schedule: Option<String>,
    /// Set of sizes of a .tile program, for sizes that --dim does not give
    #[arg(long, value_name = "NAME")]
    pub size: Option<String>,
    /// Compile for this target, one of `tilewright targets`; the best one of this processor by default
    #[arg(long, value_name = "NAME", help_heading = COMPILER)]
    pub target: Option<String>,
    /// Use the tensor instructions that this file declares, beside the built-in ones; each is tried in a
    /// process of its own first
    #[arg(long, value_name = "FILE.tile", help_heading = COMPILER)]
    pub instructions: Option<PathBuf>,
    /// Constants of the cost model: of a core by its name, as `tilewright targets` lists them, `generic` for the target's table,
    /// or a file that `tilewright calibrate` wrote; the table by default, and for loop programs without `--target` this processor's core
    #[arg(long, value_name = "NAME|FILE", help_heading = COMPILER)]
    pub machine: Option<String>,
    /// Price the loops of every kernel, for `explain`.
    #[arg(skip)]
    pub prices: bool,
    /// Size of a dynamic dimension, or of a program; others are taken from the inputs, or are 1. `compile` takes several
    /// sizes of each, as `length=64,128`, and writes one module or object for all
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dims)]
    pub dims: Vec<(String, Vec<i64>)>,
    /// Apply only the first N rewrites to a network; halving N finds a rewrite that breaks it
    #[arg(long, value_name = "N", help_heading = COMPILER)]
    pub stop_after: Option<usize>,
    /// Largest error bound of a fast algorithm of a convolution or product, relative to max|x|·Σ|w|, from 0 (no fast algorithm) to 1
    /// [default: 1e-4]
    #[arg(long, value_name = "E", value_parser = parse_error_bound, allow_hyphen_values = true, help_heading = COMPILER)]
    pub max_error: Option<f64>,
    /// Algorithm of a network's convolutions and large products: the cheapest for each, or one wherever it applies, to compare
    #[arg(long, value_name = "A", value_parser = choice::<Algorithm>(Algorithm::NAMES), help_heading = COMPILER)]
    pub algorithm: Option<Algorithm>,
    /// Operands of a network's products and convolutions of f32. Those of 16 bits are rounded and take half the memory; sums stay
    /// in f32, but with `--accumulate f16` [default: f32]
    #[arg(long, value_name = "P", value_parser = choice::<Precision>(Precision::NAMES), help_heading = COMPILER)]
    pub precision: Option<Precision>,
    /// Sums of a network's products of f16: those in f16 take less time on processors that add in f16, and have its error
    /// [default: f32]
    #[arg(long, value_name = "S", value_parser = choice::<Accumulate>(Accumulate::NAMES), help_heading = COMPILER)]
    pub accumulate: Option<Accumulate>,
    /// Quotients and square roots of f32: rounded correctly, or on targets with AVX-512 and AArch64 within three units in the last
    /// place, which takes less time [default: exact]
    #[arg(long, value_name = "Q", value_parser = choice::<Quotients>(Quotients::NAMES), help_heading = COMPILER)]
    pub quotients: Option<Quotients>,
    /// Dimensions that grow, of the commands that have such.
    #[arg(skip)]
    pub grow: Vec<String>,
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Memory and work that compiling and running may take.
#[derive(Args, Clone, Default)]
pub struct LimitArguments {
    /// Most bytes of a tensor, of the weights, and of all tensors of a run together, such as 500MB or 8GiB; the limit of
    /// computed constants follows it [default: 2GiB for what a run needs]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = LIMITS)]
    pub max_memory: Option<u64>,
    /// Most operations that computing constants while a network is read may take [default: 8589934592]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    pub max_work: Option<u64>,
}

impl LimitArguments {
    /// The limits that were asked for.
    pub fn limits(&self) -> Limits {
        let limits = self.max_memory.map_or_else(Limits::default, Limits::within);
        Limits { constant_work: self.max_work.unwrap_or(limits.constant_work), ..limits }
    }
}

/// A number of bytes, with a unit of 1000 (`kB`, `MB`, `GB`) or 1024 (`KiB`, `MiB`, `GiB`).
fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err("expected a number of bytes, such as 2GiB, 500MB or 1048576".into()),
    };
    let bytes = text[..end].parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    bytes.filter(|n| *n > 0).ok_or_else(|| "expected a number of bytes, such as 2GiB, 500MB or 1048576".into())
}

/// Modules on disk.
#[derive(Args)]
pub struct CacheArguments {
    /// Keep compiled modules in this directory, and take from there what was compiled before. It is made for this user alone
    #[arg(long, value_name = "DIR", help_heading = CACHE)]
    cache: Option<PathBuf>,
    /// Largest size of the cache, after which the modules that were not used for longest are removed
    #[arg(long, value_name = "MIB", requires = "cache", default_value_t = 10 << 10, help_heading = CACHE,
        value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    cache_mib: u64,
}

impl CacheArguments {
    /// The cache asked for.
    pub fn options(&self) -> Option<CacheOptions> {
        let directory = self.cache.clone()?;
        Some(CacheOptions { directory, max_bytes: self.cache_mib << 20 })
    }
}

impl ModelArguments {
    /// The file of schedules that is asked for.
    pub fn schedule_file(&self) -> Option<&Path> {
        self.schedule.as_deref().map(Path::new).filter(|path| path.extension().is_some_and(|e| e == "tile"))
    }

    /// The model with the schedules that are asked for.
    pub fn scheduled(&self, model: Model) -> Result<Model> {
        match (self.schedule_file(), &self.schedule) {
            (Some(file), _) => Ok(model.with_schedules(tilewright::File::load(file)?)),
            (None, Some(name)) => model.with_schedule(name),
            (None, None) => Ok(model),
        }
    }

    /// The target asked for, that of the constants, or the best that runs here.
    pub fn target(&self) -> Result<Target> {
        match self.machine()? {
            None => target(self.target.as_deref()),
            Some(constants) => {
                let named = self.target.as_deref().unwrap_or(&constants.target);
                constants.apply(target(Some(named))?)
            }
        }
    }

    /// The constants asked for.
    pub fn machine(&self) -> Result<Option<Calibration>> {
        let Some(machine) = self.machine.as_deref() else { return Ok(None) };
        let is_name =
            Calibration::cores().contains(&machine) || !Path::new(machine).exists() && !machine.contains(['.', '/']);
        match is_name {
            true => Calibration::of_core(machine, &target(self.target.as_deref())?).map(Some),
            false => Calibration::load(Path::new(machine)).map(Some),
        }
    }

    /// The dimensions given, each once.
    pub fn dims(&self) -> Result<BTreeMap<String, i64>> {
        let mut bindings = self.bindings()?;
        match bindings.pop() {
            Some(dims) if bindings.is_empty() => Ok(dims),
            _ => Err(Error::Invalid("only `compile` takes several sizes of a dimension".into())),
        }
    }

    /// Every combination of the sizes given, in their order.
    pub fn bindings(&self) -> Result<Vec<BTreeMap<String, i64>>> {
        let mut bindings = vec![BTreeMap::new()];
        for (name, sizes) in &self.dims {
            if bindings[0].contains_key(name) {
                return Err(Error::Invalid(format!("dimension `{name}` is bound twice")));
            }
            if sizes.iter().enumerate().any(|(i, size)| sizes[..i].contains(size)) {
                return Err(Error::Invalid(format!("dimension `{name}` has a size twice")));
            }
            if bindings.len() * sizes.len() > MAX_BINDINGS {
                return Err(Error::Limit(format!("more than {MAX_BINDINGS} combinations of sizes")));
            }
            let with = |dims: &BTreeMap<String, i64>, size: i64| {
                let mut dims = dims.clone();
                dims.insert(name.clone(), size);
                dims
            };
            bindings = bindings.iter().flat_map(|dims| sizes.iter().map(move |&size| with(dims, size))).collect();
        }
        Ok(bindings)
    }
}

/// Names with their sizes; an error for a name that comes twice.
pub fn bind_once(pairs: &[(String, i64)]) -> Result<BTreeMap<String, i64>> {
    let mut dims = BTreeMap::new();
    for (name, size) in pairs {
        if dims.insert(name.clone(), *size).is_some() {
            return Err(Error::Invalid(format!("dimension `{name}` is bound twice")));
        }
    }
    Ok(dims)
}

pub fn parse_dim(text: &str) -> std::result::Result<(String, i64), String> {
    // The last `=`: names may contain one.
    let (name, size) = text.rsplit_once('=').ok_or("expected NAME=N")?;
    match size.parse() {
        Ok(size) if size >= 0 && !name.is_empty() => Ok((name.to_string(), size)),
        _ => Err(wrong_size(name, size)),
    }
}

fn parse_dims(text: &str) -> std::result::Result<(String, Vec<i64>), String> {
    let (name, sizes) = text.rsplit_once('=').ok_or("expected NAME=N")?;
    let of = |size: &str| size.parse().ok().filter(|&size| size >= 0).ok_or_else(|| wrong_size(name, size));
    let sizes = sizes.split(',').map(of).collect::<std::result::Result<Vec<i64>, String>>()?;
    if name.is_empty() { Err(wrong_size(name, "")) } else { Ok((name.to_string(), sizes)) }
}

/// The message for a size that is none, or has no name.
fn wrong_size(name: &str, size: &str) -> String {
    if name.is_empty() {
        return "expected the name of a size before `=`, as in `N=64`".into();
    }
    format!("`{size}` is not a size: sizes are whole numbers from 0 to {}, as in `{name}=64`", i64::MAX)
}

/// Reads one of the values with these names.
pub fn choice<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = Error> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

fn parse_error_bound(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(bound) if (0.0..=1.0).contains(&bound) => Ok(bound),
        _ => Err("expected a number from 0 to 1".into()),
    }
}

/// The target of this name, or the best that runs here.
pub fn target(name: Option<&str>) -> Result<Target> {
    match name {
        None => Target::host().ok_or_else(|| {
            Error::Unsupported("this processor runs none of the targets: see `tilewright targets`".into())
        }),
        Some(name) => Target::by_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_bytes, parse_dim, parse_dims};

    #[test]
    fn sizes_are_named_where_they_are_wrong() {
        assert_eq!(parse_dims("N=64,128"), Ok(("N".into(), vec![64, 128])));
        for (text, wrong) in
            [("N=-1", "-1"), ("a=b=x", "x"), ("N=64,", ""), ("N=99999999999999999999", "99999999999999999999")]
        {
            let message = parse_dims(text).unwrap_err();
            assert!(
                message.starts_with(&format!("`{wrong}` is not a size: sizes are whole numbers from 0 to ")),
                "{message}"
            );
            assert!(parse_dim(text).is_err(), "{text}");
        }
        assert!(parse_dims("=64").unwrap_err().contains("the name of a size"));
    }

    #[test]
    fn bytes_have_units() {
        for (text, bytes) in [("2GiB", 2 << 30), ("500MB", 500_000_000), ("7", 7), ("1 kib", 1024), ("3k", 3000)] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "0", "-1", "1.5GB", "2 parsecs", "99999999999TB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
