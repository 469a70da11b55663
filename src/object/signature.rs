//! The C function of a module: its name, its parameters, its memory, its constants and the symbols of its kernels.

use crate::Result;
use crate::object::bindings::Bindings;
use crate::object::names::{Names, identifier};
use crate::runtime::module::{Action, Kernel, Layout, MAX_TRIPS, Module, TensorSpec};

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

impl Parameter {
    /// Type and shape in a binding.
    pub fn spec<'m>(&self, binding: &'m Module) -> &'m TensorSpec {
        match (self.input, self.output) {
            (_, Some(output)) => &binding.outputs()[output].tensor,
            (input, None) => &binding.inputs()[input.unwrap_or_default()],
        }
    }
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
    /// Sizes that the caller gives.
    pub bindings: Bindings,
    /// Pairs of an input and an output, by their numbers, that may be one array of the caller.
    pub states: Vec<(usize, usize)>,
    /// The constants of all bindings.
    pub constants: Layout,
    /// The function takes the address of the constants.
    pub weights_apart: bool,
    /// Some step can fail.
    pub fallible: bool,
    /// Bytes of the largest arena, a multiple of 64.
    pub arena_bytes: u64,
    /// The most bytes of scratch memory of a thread, a multiple of 64.
    pub scratch_bytes: u64,
    /// Symbols of the phases of each kernel, for each binding.
    pub symbols: Vec<Vec<Vec<String>>>,
}

impl Signature {
    /// The function of a verified module.
    ///
    /// # Errors
    /// As [`Bindings::new`].
    pub fn new(module: &Module, name: &str, weights_apart: bool) -> Result<Signature> {
        let (file, name) = (name.to_string(), identifier(name));
        let constants = module.layout();
        let apart = weights_apart && !constants.constants().is_empty();
        let scratch_bytes = module.bindings().map(Module::scratch_bytes).max().unwrap_or_default();
        // pages of their own, so that threads share no cache line
        let scratch_bytes = if scratch_bytes == 0 { 0 } else { scratch_bytes.next_multiple_of(4096) };
        let arena_bytes = module.bindings().map(Module::arena_bytes).max().unwrap_or_default();
        let mut names = Names::with(&["workspace", "parallel", "weights", "s", "start"]);
        if module.bindings().count() > 1 || module.bounds().is_some() {
            names.unique("binding");
        }
        let bindings = Bindings::new(module, &mut names)?;
        let parameters = parameters(module, &bindings, &mut names);
        Ok(Signature {
            file,
            upper: name.to_ascii_uppercase(),
            states: states(module, &parameters),
            parameters,
            weights_apart: apart,
            fallible: module.bindings().any(fallible) || apart || bindings.has_choice(),
            bindings,
            constants,
            arena_bytes: arena_bytes.next_multiple_of(64),
            scratch_bytes,
            symbols: symbols(module, &name),
            name,
        })
    }

    /// Returns true if an input and an output, by their numbers, may be one array of the caller.
    pub fn is_state(&self, input: u32, output: u32) -> bool {
        self.states.contains(&(input as usize, output as usize))
    }

    /// The inputs of a binding that the caller gives.
    pub fn inputs<'m>(&self, binding: &'m Module) -> Vec<&'m TensorSpec> {
        let inputs = binding.inputs().iter().enumerate();
        inputs.filter(|(i, _)| self.bindings.counted != Some(*i)).map(|(_, spec)| spec).collect()
    }

    /// The outputs of a binding.
    pub fn outputs<'m>(&self, binding: &'m Module) -> Vec<&'m TensorSpec> {
        binding.outputs().iter().map(|output| &output.tensor).collect()
    }

    /// The name of the function that does the steps of a binding.
    pub fn steps_function(&self, binding: usize) -> String {
        match self.bindings.count {
            1 => format!("{}_steps", self.name),
            _ => format!("{}_steps_{binding}", self.name),
        }
    }

    /// The declaration of the function that chooses a binding, without a semicolon.
    pub fn binding_prototype(&self) -> String {
        format!("int {}_binding({})", self.name, self.bindings.parameters().join(", "))
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
            let element = p.spec(module).dtype.c_type();
            format!("{}{element} *{}", if p.output.is_none() { "const " } else { "" }, p.name)
        };
        let mut list = self.bindings.parameters();
        list.extend(self.parameters.iter().map(declare));
        if self.weights_apart {
            list.push("const void *weights".into());
        }
        list
    }
}

/// The inputs in their order, then the outputs; an output that has name and memory of an input is one parameter with it.
fn parameters(module: &Module, bindings: &Bindings, names: &mut Names) -> Vec<Parameter> {
    let mut parameters: Vec<Parameter> = vec![];
    let mut taken = vec![false; module.outputs().len()];
    for (i, spec) in module.inputs().iter().enumerate().filter(|(i, _)| bindings.counted != Some(*i)) {
        let in_place = |o: &usize| module.outputs()[*o].tensor.name == spec.name && may_share(module, i, *o);
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

/// May an input and an output be one array, whatever the binding?
fn may_share(module: &Module, input: usize, output: usize) -> bool {
    module.bindings().all(|binding| binding.may_share(input, output))
}

/// Pairs of an input and an output with a parameter each that may be one array, each in one pair.
fn states(module: &Module, parameters: &[Parameter]) -> Vec<(usize, usize)> {
    let inputs = parameters.iter().filter(|p| p.output.is_none()).filter_map(|p| p.input);
    let outputs: Vec<usize> = parameters.iter().filter(|p| p.input.is_none()).filter_map(|p| p.output).collect();
    let mut pairs: Vec<(usize, usize)> = vec![];
    for input in inputs {
        let is_free = |o: &usize| pairs.iter().all(|pair| pair.1 != *o) && may_share(module, input, *o);
        let output = outputs.iter().copied().find(is_free);
        pairs.extend(output.map(|output| (input, output)));
    }
    pairs
}

fn fallible(module: &Module) -> bool {
    let fails = |action: &Action| match action {
        Action::CheckIndices { .. } | Action::Opaque { .. } => true,
        Action::Loop { trips, condition, .. } => condition.is_some() && *trips == MAX_TRIPS,
        Action::Kernel { .. } | Action::Copy { .. } | Action::If { .. } => false,
    };
    !module.values().is_empty() || module.all_steps().iter().any(|(step, _)| fails(&step.action))
}

/// A symbol for each phase of each kernel of each binding, which profilers and debuggers show.
fn symbols(module: &Module, name: &str) -> Vec<Vec<Vec<String>>> {
    /// Kernels of fused operators have the names of all of them.
    const LONGEST: usize = 100;
    let mut names = Names::default();
    let mut kernel = |kernel: &Kernel, binding: &str| -> Vec<String> {
        // debuggers take two underscores for a dot of Ada
        let words = identifier(&kernel.name);
        let words: Vec<&str> = words.split('_').filter(|word| !word.is_empty()).collect();
        let plain: String = words.join("_").chars().take(LONGEST).collect();
        let phase = |phase: usize| match kernel.phases.len() {
            1 => names.unique(&format!("{name}_kernel_{plain}{binding}")),
            _ => names.unique(&format!("{name}_kernel_{plain}{binding}_phase{phase}")),
        };
        (0..kernel.phases.len()).map(phase).collect()
    };
    let several = module.bindings().count() > 1;
    let of_binding = |(b, binding): (usize, &Module)| {
        let suffix = if several { format!("_binding{b}") } else { String::new() };
        binding.kernels().iter().map(|k| kernel(k, &suffix)).collect()
    };
    module.bindings().enumerate().map(of_binding).collect()
}
