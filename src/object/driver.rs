//! The driver: the steps of a module as C99 that any compiler builds.
//!
//! In: a verified module and its signature. Out: the text of a C file. It needs `memcpy`, and the runtime where the module has
//! opaque steps; it allocates nothing, has no state but the memory of the function without a workspace, and leaves the mode
//! of floating-point arithmetic to the kernels, which set it and restore the caller's.

use crate::Result;
use crate::object::names::{comment, literal};
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
    let name = &signature.name;
    let mut steps = Steps::new(module, signature);
    steps.add_all()?;
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
    declarations(&mut out, module, signature, &steps);
    steps.helpers(&mut out);
    let _ = write!(
        out,
        "\n/* The steps, in order. */\nstatic int {name}_steps(struct {name}_state *s) {{\n    (void)s;\n{}    return 0;\n}}\n",
        steps.text
    );
    run(&mut out, module, signature)?;
    tables(&mut out, module, signature, &steps)?;
    Ok(out)
}

/// The kernels, the constants and the addresses of a run.
fn declarations(out: &mut String, module: &Module, signature: &Signature, steps: &Steps) {
    let name = &signature.name;
    let _ = write!(
        out,
        "/* A kernel: addresses of its arguments, first and one-past-last iteration, memory of the thread. */\n\
         typedef void {name}_kernel(void *const *arguments, int64_t first, int64_t last, void *scratch);\n",
    );
    for symbol in signature.symbols.iter().flatten() {
        let _ = writeln!(out, "extern {name}_kernel {symbol} TILEWRIGHT_HIDDEN;");
    }
    if !module.weights().is_empty() && !signature.weights_apart {
        let _ = writeln!(out, "extern const unsigned char {name}_weights[] TILEWRIGHT_HIDDEN;");
    }
    let _ = write!(
        out,
        "\n/* The addresses of a run: intermediate tensors, memory of the threads, constants, arrays of the caller, parts of\n   \
         tensors that move with a loop. */\nstruct {name}_state {{\n    unsigned char *arena;\n    unsigned char *scratch;\n    \
         const unsigned char *weights;\n    const struct tilewright_parallel *parallel;\n    unsigned char *array[{}];\n    \
         unsigned char *window[{}];\n}};\n",
        signature.parameters.len().max(1),
        steps.windows.len().max(1),
    );
}

/// The functions that the header declares.
fn run(out: &mut String, module: &Module, signature: &Signature) -> Result<()> {
    let Signature { name, upper, arena_bytes, .. } = signature;
    let _ = write!(out, "\n{} {{\n    struct {name}_state s = {{0}};\n", signature.run_prototype(module));
    if signature.needs_workspace() {
        let _ = write!(
            out,
            "    if (!workspace) return 1;\n    s.arena = (unsigned char *)(((uintptr_t)workspace + 63) / 64 * 64);\n    \
             s.scratch = s.arena + {arena_bytes};\n"
        );
    } else {
        out.push_str("    (void)workspace;\n");
    }
    match (signature.weights_apart, module.weights().is_empty()) {
        (true, _) => {
            let start: Vec<String> = weights::start(module).iter().map(u8::to_string).collect();
            let _ = write!(
                out,
                "    static const unsigned char start[{HEADER_BYTES}] = {{{}}};\n    if (!weights || \
                 !{name}_equal(weights, start, {HEADER_BYTES})) return 2;\n    s.weights = (const unsigned char *)weights + \
                 {HEADER_BYTES};\n",
                start.join(", ")
            );
        }
        (false, true) => {}
        (false, false) => _ = writeln!(out, "    s.weights = {name}_weights;"),
    }
    out.push_str("    s.parallel = parallel;\n");
    for (i, parameter) in signature.parameters.iter().enumerate() {
        let _ = writeln!(out, "    s.array[{i}] = (unsigned char *)(uintptr_t){};", parameter.name);
    }
    let _ = write!(out, "    return {name}_steps(&s);\n}}\n");
    if signature.has_plain_function() {
        let arguments = signature.parameters.iter().map(|p| p.name.as_str());
        let arguments = arguments.chain(signature.weights_apart.then_some("weights")).map(|name| format!("{name}, "));
        let arguments: String = arguments.collect();
        let result = if signature.fallible { "return" } else { "(void)" };
        let _ = write!(out, "\n{} {{\n", signature.plain_prototype(module));
        let memory = match signature.needs_workspace() {
            true => {
                let _ = writeln!(out, "    static unsigned char workspace[{upper}_WORKSPACE_BYTES(1)];");
                "workspace"
            }
            false => "0",
        };
        let _ = write!(out, "    {result} {name}_run({arguments}{memory}, 0);\n}}\n");
    }
    Ok(())
}

/// Messages, and the names and sizes of inputs and outputs.
fn tables(out: &mut String, module: &Module, signature: &Signature, steps: &Steps) -> Result<()> {
    let name = &signature.name;
    let _ = write!(
        out,
        "\nconst char *{name}_message(int code) {{\n    static const char *const messages[] = {{\n        \"success\",\n"
    );
    steps.messages.iter().for_each(|message| out.push_str(&format!("        {},\n", literal(message))));
    let count = steps.messages.len() + 1;
    let _ = write!(
        out,
        "    }};\n    return code >= 0 && code < {count} ? messages[code] : \"there is no such code\";\n}}\n\n"
    );
    let inputs: Vec<&TensorSpec> = module.inputs().iter().collect();
    let outputs: Vec<&TensorSpec> = module.outputs().iter().map(|output| &output.tensor).collect();
    for (role, specs) in [("input", inputs), ("output", outputs)] {
        // C has no arrays without elements: a null pointer ends the names.
        let names: String = specs.iter().map(|spec| format!("{}, ", literal(&spec.name))).collect();
        let bytes: String =
            specs.iter().map(|spec| Ok(format!("{}, ", spec.bytes()?))).collect::<Result<Vec<_>>>()?.concat();
        let _ = write!(
            out,
            "const char *const {name}_{role}_names[] = {{{names}0}};\nconst size_t {name}_{role}_bytes[] = {{{bytes}0}};\n"
        );
    }
    Ok(())
}
