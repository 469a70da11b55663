//! The driver: the steps of a module as C99 that any compiler builds.
//!
//! In: a verified module and its signature. Out: the text of a C file. It needs `memcpy`, and the runtime where the module has
//! opaque steps; it has no state but the memory of the function without a workspace and a copy of large constants
//! ([`large_pages`]), and leaves the mode of floating-point arithmetic to the kernels, which set it and restore the caller's.

use crate::Result;
use crate::object::helpers::{FIRST_SIZE_CODE, Helpers};
use crate::object::large_pages;
use crate::object::names::{comment, literal, number};
use crate::object::signature::Signature;
use crate::object::steps::Steps;
use crate::object::weights::{self, HEADER_BYTES};
use crate::runtime::module::{Module, TensorSpec};
use std::fmt::Write;

/// The text of the driver.
///
/// # Errors
/// `Invalid` where a size has no number, `Unsupported` where a step cannot be written in C.
pub fn driver(module: &Module, signature: &Signature) -> Result<String> {
    let mut helpers = Helpers::new(signature);
    let mut steps = String::new();
    for (b, binding) in module.bindings().enumerate() {
        let mut of_binding = Steps::new(binding, b, signature, &mut helpers);
        of_binding.add_all()?;
        let _ = write!(
            steps,
            "\n/* The steps{}, in order. */\nstatic int {}(struct {}_state *s) {{\n    (void)s;\n{}    return 0;\n}}\n",
            match signature.bindings.count {
                1 => String::new(),
                _ => format!(" for {}", comment(&signature.bindings.describe(b))),
            },
            signature.steps_function(b),
            signature.name,
            of_binding.text
        );
    }
    let mut out = String::new();
    let _ = write!(
        out,
        "/* {}: made by tilewright {} for {}. Compile this file with any C99 compiler and link it with the object. */\n\
         #include \"{}.h\"\n#include <string.h>\n\n\
         #if defined(__GNUC__)\n#define TILEWRIGHT_HIDDEN __attribute__((visibility(\"hidden\")))\n#else\n\
         #define TILEWRIGHT_HIDDEN\n#endif\n\n",
        comment(module.name()),
        env!("CARGO_PKG_VERSION"),
        comment(module.target()),
        signature.file
    );
    declarations(&mut out, signature, &helpers);
    out.push_str(&helpers.functions(signature));
    out.push_str(&large_pages::functions(signature));
    out.push_str(&steps);
    if signature.bindings.has_choice() {
        out.push_str(&signature.bindings.function(&signature.binding_prototype(), FIRST_SIZE_CODE));
    }
    run(&mut out, module, signature);
    messages(&mut out, signature, &helpers);
    tables(&mut out, module, signature)?;
    Ok(out)
}

/// The kernels, the constants and the addresses of a run.
fn declarations(out: &mut String, signature: &Signature, helpers: &Helpers) {
    let name = &signature.name;
    let _ = write!(
        out,
        "/* A kernel: addresses of its arguments, first and one-past-last iteration, memory of the thread. */\n\
         typedef void {name}_kernel(void *const *arguments, int64_t first, int64_t last, void *scratch);\n",
    );
    for symbol in signature.symbols.iter().flatten().flatten() {
        let _ = writeln!(out, "extern {name}_kernel {symbol} TILEWRIGHT_HIDDEN;");
    }
    if !signature.constants.constants().is_empty() && !signature.weights_apart {
        let _ = writeln!(out, "extern const unsigned char {name}_weights[] TILEWRIGHT_HIDDEN;");
    }
    let _ = write!(
        out,
        "\n/* The addresses of a run: intermediate tensors, memory of the threads, constants, arrays of the caller, parts of\n   \
         tensors that move with a loop. */\nstruct {name}_state {{\n    unsigned char *arena;\n    unsigned char *scratch;\n    \
         const unsigned char *weights;\n    const struct tilewright_parallel *parallel;\n{}    unsigned char *array[{}];\n    \
         unsigned char *window[{}];\n}};\n",
        if signature.bindings.counted.is_some() { "    int64_t count;\n" } else { "" },
        signature.parameters.len().max(1),
        helpers.windows.max(1),
    );
}

/// The functions that the header declares.
fn run(out: &mut String, module: &Module, signature: &Signature) {
    let Signature { name, arena_bytes, .. } = signature;
    let _ = write!(out, "\n{} {{\n    struct {name}_state s = {{0}};\n", signature.run_prototype(module));
    if signature.bindings.has_choice() {
        let sizes = signature.bindings.arguments().join(", ");
        let _ = write!(out, "    int binding = {name}_binding({sizes});\n    if (binding < 0) return -binding;\n");
    }
    if signature.needs_workspace() {
        let _ = write!(
            out,
            "    if (!workspace) return 1;\n    s.arena = (unsigned char *)(((uintptr_t)workspace + 63) / 64 * 64);\n    \
             s.scratch = s.arena + {arena_bytes};\n"
        );
    } else {
        out.push_str("    (void)workspace;\n");
    }
    match (signature.weights_apart, signature.constants.constants().is_empty()) {
        (true, _) => {
            let start: Vec<String> =
                weights::start(signature.constants.constants()).iter().map(u8::to_string).collect();
            let _ = write!(
                out,
                "    static const unsigned char start[{HEADER_BYTES}] = {{{}}};\n    if (!weights || \
                 !{name}_equal(weights, start, {HEADER_BYTES})) return 2;\n    s.weights = (const unsigned char *)weights + \
                 {HEADER_BYTES};\n",
                start.join(", ")
            );
        }
        (false, true) => {}
        (false, false) if large_pages::copies_constants(signature) => {
            _ = writeln!(out, "    s.weights = {name}_constants();");
        }
        (false, false) => _ = writeln!(out, "    s.weights = {name}_weights;"),
    }
    out.push_str("    s.parallel = parallel;\n");
    for (i, parameter) in signature.parameters.iter().enumerate() {
        let _ = writeln!(out, "    s.array[{i}] = (unsigned char *)(uintptr_t){};", parameter.name);
    }
    dispatch(out, signature);
    if signature.has_plain_function() {
        let arguments = signature.parameters.iter().map(|p| p.name.clone());
        let arguments = signature.bindings.arguments().into_iter().chain(arguments);
        let arguments = arguments.chain(signature.weights_apart.then(|| "weights".into()));
        let arguments: String = arguments.map(|name| format!("{name}, ")).collect();
        let result = if signature.fallible { "return" } else { "(void)" };
        let _ = write!(out, "\n{} {{\n", signature.plain_prototype(module));
        let memory = match signature.needs_workspace() {
            true => {
                out.push_str(&large_pages::workspace(signature));
                "workspace"
            }
            false => "0",
        };
        let _ = write!(out, "    {result} {name}_run({arguments}{memory}, 0);\n}}\n");
    }
}

/// The end of a run: the steps of the binding that was chosen.
fn dispatch(out: &mut String, signature: &Signature) {
    let bindings = &signature.bindings;
    let count = |b: usize| bindings.count_of(b).map(|count| format!("s.count = {count};"));
    if bindings.count == 1 {
        count(0).iter().for_each(|count| _ = writeln!(out, "    {count}"));
        let _ = write!(out, "    return {}(&s);\n}}\n", signature.steps_function(0));
        return;
    }
    out.push_str("    switch (binding) {\n");
    for b in 0..bindings.count {
        // a compiler wants a return for every value
        let label = if b + 1 == bindings.count { "default".to_string() } else { format!("case {b}") };
        let _ = writeln!(out, "    {label}:");
        count(b).iter().for_each(|count| _ = writeln!(out, "        {count}"));
        let _ = writeln!(out, "        return {}(&s);", signature.steps_function(b));
    }
    out.push_str("    }\n}\n");
}

/// The function that describes codes.
fn messages(out: &mut String, signature: &Signature, helpers: &Helpers) {
    let name = &signature.name;
    let _ = write!(
        out,
        "\nconst char *{name}_message(int code) {{\n    static const char *const messages[] = {{\n        \"success\",\n"
    );
    helpers.messages.iter().for_each(|message| out.push_str(&format!("        {},\n", literal(message))));
    let count = helpers.messages.len() + 1;
    let _ = write!(
        out,
        "    }};\n    return code >= 0 && code < {count} ? messages[code] : \"there is no such code\";\n}}\n\n"
    );
}

/// The names and sizes of inputs and outputs, and of bindings.
fn tables(out: &mut String, module: &Module, signature: &Signature) -> Result<()> {
    let (name, bindings) = (&signature.name, &signature.bindings);
    for role in ["input", "output"] {
        let specs = |module| match role {
            "input" => signature.inputs(module),
            _ => signature.outputs(module),
        };
        // C has no arrays without elements: a null pointer ends the names.
        let names: String = specs(module).iter().map(|spec| format!("{}, ", literal(&spec.name))).collect();
        let _ = writeln!(out, "const char *const {name}_{role}_names[] = {{{names}0}};");
        let bytes = |module| -> Result<String> {
            let all = specs(module).into_iter().map(TensorSpec::bytes).collect::<Result<Vec<u64>>>()?;
            Ok(all.iter().map(|bytes| format!("{bytes}, ")).collect::<String>() + "0")
        };
        let _ = match bindings.has_choice() {
            false => writeln!(out, "const size_t {name}_{role}_bytes[] = {{{}}};", bytes(module)?),
            true => {
                let rows = module.bindings().map(bytes).collect::<Result<Vec<_>>>()?;
                let columns = specs(module).len() + 1;
                let rows = rows.join("},\n    {");
                writeln!(out, "const size_t {name}_{role}_bytes[][{columns}] = {{\n    {{{rows}}},\n}};")
            }
        };
    }
    if bindings.has_choice() {
        let names: Vec<String> = bindings.dimensions.iter().map(|dimension| literal(&dimension.symbol)).collect();
        let row = |b: usize| {
            let sizes = bindings.dimensions.iter().map(|dimension| &dimension.sizes[b]);
            let sizes = sizes.map(|size| format!("{{{}, {}}}", number(size.least), number(size.most)));
            format!("    {{{}}},\n", sizes.collect::<Vec<_>>().join(", "))
        };
        let rows: String = (0..bindings.count).map(row).collect();
        let _ = write!(
            out,
            "const char *const {name}_dimension_names[] = {{{}, 0}};\nconst int64_t {name}_dimension_sizes[][{}][2] = \
             {{\n{rows}}};\n",
            names.join(", "),
            names.len()
        );
    }
    Ok(())
}
