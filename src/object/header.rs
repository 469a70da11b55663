//! The header: prototypes, sizes, and the names and shapes of inputs and outputs.

use crate::Result;
use crate::object::names::{Names, comment};
use crate::object::signature::{Parameter, Signature, c_type};
use crate::object::weights::HEADER_BYTES;
use crate::runtime::module::{Module, TensorSpec};
use crate::runtime::text;
use std::fmt::Write;

/// The callback of parallel loops; the headers of several models may stand in one program.
const PARALLEL: &str = "\
#ifndef TILEWRIGHT_PARALLEL
#define TILEWRIGHT_PARALLEL
/* Runs the iterations of a parallel loop on several threads. `run` calls `body(context, first, last, thread)` for ranges
   that together hold each iteration from 0 to count - 1 once, in any order and at the same time; calls at the same time
   have different values of `thread`, from 0 to threads - 1. It returns when all calls have returned, and what they wrote
   is seen by the caller. The results have the same bits for any ranges and any number of threads. */
struct tilewright_parallel {
    int threads;
    void (*run)(void *state, int64_t count, void (*body)(void *context, int64_t first, int64_t last, int thread),
                void *context);
    void *state;
};
#endif
";

/// The text of the header.
pub fn header(module: &Module, signature: &Signature) -> Result<String> {
    let Signature { name, upper, .. } = signature;
    let mut out = String::new();
    let features = module.platform().features.names().join(", ");
    let _ = write!(
        out,
        "/* {}: made by tilewright {} for {}.\n   The processor must have: {features}. It is not asked. */\n#ifndef {upper}_H\n\
         #define {upper}_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n",
        comment(module.name()),
        env!("CARGO_PKG_VERSION"),
        comment(module.target()),
    );
    out.push_str(PARALLEL);
    sizes(&mut out, module, signature)?;
    functions(&mut out, module, signature)?;
    let _ = write!(
        out,
        "\n/* Names and bytes of the inputs and outputs, in the model's order. */\n\
         extern const char *const {name}_input_names[];\nextern const size_t {name}_input_bytes[];\n\
         extern const char *const {name}_output_names[];\nextern const size_t {name}_output_bytes[];\n\n\
         #ifdef __cplusplus\n}}\n#endif\n#endif\n",
    );
    Ok(out)
}

/// Macros with the numbers of inputs and outputs and with sizes in bytes.
fn sizes(out: &mut String, module: &Module, signature: &Signature) -> Result<()> {
    let Signature { upper, arena_bytes, scratch_bytes, .. } = signature;
    let _ = write!(
        out,
        "\n#define {upper}_INPUTS {}\n#define {upper}_OUTPUTS {}\n\n/* Bytes of the arrays. */\n",
        module.inputs().len(),
        module.outputs().len()
    );
    let mut names = Names::default();
    for parameter in &signature.parameters {
        let macro_name = names.unique(&format!("{upper}_BYTES_{}", parameter.name.to_ascii_uppercase()));
        let _ = writeln!(out, "#define {macro_name} {}", spec(module, parameter).bytes()?);
    }
    if signature.weights_apart {
        let _ = write!(
            out,
            "\n/* Bytes of the contents of {}.weights. */\n#define {upper}_BYTES_OF_WEIGHTS {}\n",
            comment(&signature.file),
            module.weights().len() + HEADER_BYTES as u64
        );
    }
    let bytes = match signature.needs_workspace() {
        true => format!("((size_t){} + (size_t)(threads) * {scratch_bytes})", arena_bytes + 64),
        false => "((size_t)(threads) * 0)".into(),
    };
    let _ = write!(
        out,
        "\n/* Bytes of the workspace of a run on so many threads. */\n#define {upper}_WORKSPACE_BYTES(threads) {bytes}\n\n"
    );
    Ok(())
}

/// Prototypes, with types and shapes of the parameters.
fn functions(out: &mut String, module: &Module, signature: &Signature) -> Result<()> {
    let Signature { name, upper, .. } = signature;
    out.push_str("/* Arrays, row-major:\n");
    for parameter in &signature.parameters {
        let spec = spec(module, parameter);
        let role = match (parameter.input, parameter.output) {
            (Some(_), Some(_)) => "read and written",
            (Some(_), None) => "read",
            _ => "written",
        };
        let held = if c_type(spec.dtype) == "uint16_t" && spec.dtype.is_float() { ", as its 16 bits" } else { "" };
        let _ = writeln!(out, "     {}: {}{:?}{held}, {role}", parameter.name, spec.dtype, spec.shape);
    }
    if signature.weights_apart {
        let _ =
            writeln!(out, "     weights: the contents of {}.weights, at a multiple of 64", comment(&signature.file));
    }
    out.push_str(
        "   Each is aligned as its elements are. An array that is written overlaps no other one.\n   Floating-point arithmetic \
         rounds to nearest, traps nothing and takes subnormal numbers for zero, whatever the\n   caller's mode, which is kept. \
         */\n",
    );
    let workspace = match signature.needs_workspace() {
        true => format!(
            "`workspace` has {upper}_WORKSPACE_BYTES(parallel ? parallel->threads : 1) bytes, at any address, and no\n   \
             other run uses it at the same time."
        ),
        false => "`workspace` may be null: it is not used.".into(),
    };
    let _ = write!(
        out,
        "\n/* Runs once. {workspace} Where `parallel` is null, loops\n   run on the caller's thread. Any number of threads may \
         call it at the same time. Returns 0, or the number of the step\n   that failed, which {name}_message describes; what is \
         written is not defined then. */\n{};\n",
        signature.run_prototype(module)
    );
    if signature.has_plain_function() {
        let memory = match signature.needs_workspace() {
            true => {
                let bytes = text::bytes(signature.arena_bytes + signature.scratch_bytes);
                format!("in {bytes} of static memory: one call at a time")
            }
            false => "from any number of threads at the same time".into(),
        };
        let _ = write!(
            out,
            "\n/* As {name}_run on the caller's thread, {memory}. */\n{};\n",
            signature.plain_prototype(module)
        );
    }
    let _ = write!(
        out,
        "\n/* Describes a result of {name}_run; the text is constant. */\nconst char *{name}_message(int code);\n"
    );
    Ok(())
}

/// Type and shape of a parameter.
fn spec<'m>(module: &'m Module, parameter: &Parameter) -> &'m TensorSpec {
    match (parameter.input, parameter.output) {
        (_, Some(output)) => &module.outputs()[output].tensor,
        (input, None) => &module.inputs()[input.unwrap_or_default()],
    }
}
