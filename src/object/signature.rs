//! The C function of a module: its name, its parameters, its memory and the symbols of its kernels.

use crate::object::names::{Names, identifier};
use crate::runtime::DType;
use crate::runtime::module::{Action, Kernel, MAX_TRIPS, Module};

/// The most bytes of static memory for the function without a workspace.
const MOST_STATIC: u64 = 1 << 30;

/// An array of the caller.
pub struct Parameter {
    pub name: String,
    /// Number of the module's input that it is.
    pub input: Option<usize>,
    /// Number of the module's output that it is: both where the function works in place.
    pub output: Option<usize>,
}

/// The name, parameters and memory that header, driver and object have in common.
pub struct Signature {
    /// Name of the files, without endings.
    pub file: String,
    /// The function's name.
    pub name: String,
    /// In upper case, for macros.
    pub upper: String,
    pub parameters: Vec<Parameter>,
    /// The function takes the address of the constants.
    pub weights_apart: bool,
    /// Some step can fail.
    pub fallible: bool,
    /// Bytes of the arena, a multiple of 64.
    pub arena_bytes: u64,
    /// Bytes of scratch memory of a thread, a multiple of 64.
    pub scratch_bytes: u64,
    /// Symbols of the phases of each kernel.
    pub symbols: Vec<Vec<String>>,
}

impl Signature {
    /// The function of a verified module.
    pub fn new(module: &Module, name: &str, weights_apart: bool) -> Signature {
        let (file, name) = (name.to_string(), identifier(name));
        let apart = weights_apart && !module.weights().is_empty();
        let scratch_bytes = module.scratch_bytes();
        // pages of their own, so that threads share no cache line
        let scratch_bytes = if scratch_bytes == 0 { 0 } else { scratch_bytes.next_multiple_of(4096) };
        Signature {
            file,
            upper: name.to_ascii_uppercase(),
            parameters: parameters(module),
            weights_apart: apart,
            fallible: fallible(module) || apart,
            arena_bytes: module.arena_bytes().next_multiple_of(64),
            scratch_bytes,
            symbols: symbols(module, &name),
            name,
        }
    }

    /// Returns true if a run needs memory beside its arguments.
    pub fn needs_workspace(&self) -> bool {
        self.arena_bytes + self.scratch_bytes > 0
    }

    /// Returns true if there is a function without a workspace, whose memory is static.
    pub fn has_plain_function(&self) -> bool {
        self.arena_bytes.saturating_add(self.scratch_bytes) <= MOST_STATIC
    }

    /// The declaration of the function without a workspace, without a semicolon.
    pub fn plain_prototype(&self, module: &Module) -> String {
        let list = self.parameter_list(module);
        let list = if list.is_empty() { "void".to_string() } else { list.join(", ") };
        format!("{} {}({list})", if self.fallible { "int" } else { "void" }, self.name)
    }

    /// The declaration of the function with a workspace and a callback, without a semicolon.
    pub fn run_prototype(&self, module: &Module) -> String {
        let mut list = self.parameter_list(module);
        list.push("void *workspace".into());
        list.push("const struct tilewright_parallel *parallel".into());
        format!("int {}_run({})", self.name, list.join(", "))
    }

    fn parameter_list(&self, module: &Module) -> Vec<String> {
        let declare = |p: &Parameter| {
            let dtype = match (p.input, p.output) {
                (_, Some(output)) => module.outputs()[output].tensor.dtype,
                (Some(input), None) => module.inputs()[input].dtype,
                (None, None) => DType::U8,
            };
            format!("{}{} *{}", if p.output.is_none() { "const " } else { "" }, c_type(dtype), p.name)
        };
        let mut list: Vec<String> = self.parameters.iter().map(declare).collect();
        if self.weights_apart {
            list.push("const void *weights".into());
        }
        list
    }
}

/// The type of an element in C; types that C lacks are integers of their size.
pub fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::I64 => "int64_t",
        DType::I32 => "int32_t",
        DType::I16 => "int16_t",
        DType::I8 | DType::I4 | DType::I2 => "int8_t",
        DType::U64 => "uint64_t",
        DType::U32 => "uint32_t",
        DType::U16 | DType::F16 | DType::BF16 => "uint16_t",
        _ => "uint8_t",
    }
}

/// The inputs in their order, then the outputs; an output that has name and memory of an input is one parameter with it.
fn parameters(module: &Module) -> Vec<Parameter> {
    let mut names = Names::with(&["workspace", "parallel", "weights", "s", "start"]);
    let mut parameters: Vec<Parameter> = vec![];
    let mut taken = vec![false; module.outputs().len()];
    for (i, spec) in module.inputs().iter().enumerate() {
        let in_place = |o: &usize| module.outputs()[*o].tensor.name == spec.name && module.may_share(i, *o);
        let output = (0..module.outputs().len()).find(in_place);
        output.into_iter().for_each(|o| taken[o] = true);
        parameters.push(Parameter { name: names.unique(&spec.name), input: Some(i), output });
    }
    for (o, spec) in module.outputs().iter().enumerate().filter(|(o, _)| !taken[*o]) {
        let again = module.inputs().iter().any(|input| input.name == spec.tensor.name);
        let name = if again { format!("{}_out", spec.tensor.name) } else { spec.tensor.name.clone() };
        parameters.push(Parameter { name: names.unique(&name), input: None, output: Some(o) });
    }
    parameters
}

fn fallible(module: &Module) -> bool {
    let fails = |action: &Action| match action {
        Action::CheckIndices { .. } | Action::Opaque { .. } => true,
        Action::Loop { trips, condition, .. } => condition.is_some() && *trips == MAX_TRIPS,
        Action::Kernel { .. } | Action::Copy { .. } | Action::If { .. } => false,
    };
    !module.values().is_empty() || module.all_steps().iter().any(|(step, _)| fails(&step.action))
}

/// A symbol for each phase of each kernel, which profilers and debuggers show.
fn symbols(module: &Module, name: &str) -> Vec<Vec<String>> {
    /// Kernels of fused operators have the names of all of them.
    const LONGEST: usize = 100;
    let mut names = Names::default();
    let kernel = |kernel: &Kernel| {
        // debuggers take two underscores for a dot of Ada
        let words = identifier(&kernel.name);
        let words: Vec<&str> = words.split('_').filter(|word| !word.is_empty()).collect();
        let plain: String = words.join("_").chars().take(LONGEST).collect();
        let phase = |phase: usize| match kernel.phases.len() {
            1 => names.unique(&format!("{name}_kernel_{plain}")),
            _ => names.unique(&format!("{name}_kernel_{plain}_phase{phase}")),
        };
        (0..kernel.phases.len()).map(phase).collect()
    };
    module.kernels().iter().map(kernel).collect()
}
