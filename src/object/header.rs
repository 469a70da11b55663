//! The header: prototypes, sizes, and the names and shapes of inputs and outputs.

use crate::Result;
use crate::object::names::{Names, comment};
use crate::object::signature::{Parameter, Signature};
use crate::object::weights::HEADER_BYTES;
use crate::runtime::bounds::BoundedAxis;
use crate::runtime::module::Module;
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
///
/// # Errors
/// `Invalid` where a size has no number.
pub fn header(module: &Module, signature: &Signature) -> Result<String> {
    let upper = &signature.upper;
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
    if signature.bindings.has_choice() {
        bindings(&mut out, signature);
    }
    arrays(&mut out, module, signature);
    functions(&mut out, module, signature);
    tables(&mut out, signature);
    out.push_str("\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
    Ok(out)
}

/// Macros with the numbers of inputs and outputs and with sizes in bytes.
fn sizes(out: &mut String, module: &Module, signature: &Signature) -> Result<()> {
    let Signature { upper, arena_bytes, scratch_bytes, .. } = signature;
    let _ = write!(
        out,
        "\n#define {upper}_INPUTS {}\n#define {upper}_OUTPUTS {}\n",
        signature.inputs(module).len(),
        signature.outputs(module).len()
    );
    let several = signature.bindings.count > 1;
    if signature.bindings.has_choice() {
        let (count, dimensions) = (signature.bindings.count, signature.bindings.dimensions.len());
        let _ = write!(out, "#define {upper}_BINDINGS {count}\n#define {upper}_DIMENSIONS {dimensions}\n");
    }
    let _ = writeln!(out, "\n/* Bytes of the arrays{}. */", if several { ", the most of any binding" } else { "" });
    let mut names = Names::default();
    for parameter in &signature.parameters {
        let macro_name = names.unique(&format!("{upper}_BYTES_{}", parameter.name.to_ascii_uppercase()));
        let bytes = module.bindings().map(|binding| parameter.spec(binding).bytes()).collect::<Result<Vec<u64>>>()?;
        let _ = writeln!(out, "#define {macro_name} {}", bytes.iter().max().unwrap_or(&0));
    }
    if signature.weights_apart {
        let _ = write!(
            out,
            "\n/* Bytes of the contents of {}.weights. */\n#define {upper}_BYTES_OF_WEIGHTS {}\n",
            comment(&signature.file),
            signature.constants.constants().len() + HEADER_BYTES as u64
        );
    }
    let bytes = match signature.needs_workspace() {
        true => format!("((size_t){} + (size_t)(threads) * {scratch_bytes})", arena_bytes + 64),
        false => "((size_t)(threads) * 0)".into(),
    };
    let _ = write!(
        out,
        "\n/* Bytes of the workspace of a run on so many threads{}. */\n#define {upper}_WORKSPACE_BYTES(threads) {bytes}\n\n",
        if several { ", enough for every binding" } else { "" }
    );
    Ok(())
}

/// The bindings, and the function that chooses one.
fn bindings(out: &mut String, signature: &Signature) {
    let (name, bindings) = (&signature.name, &signature.bindings);
    out.push_str("/* Sizes of dimensions, of which the first binding that takes them runs:\n");
    for b in 0..bindings.count {
        let _ = writeln!(out, "     binding {b}: {}", comment(&bindings.describe(b)));
    }
    let _ = write!(
        out,
        "   {name}_binding returns its number; or, where no binding takes the sizes, the negative of the code that {name}_run\n   \
         returns for them. */\n{};\n\n",
        signature.binding_prototype()
    );
}

/// Types and shapes of the parameters, and what holds for all of them.
fn arrays(out: &mut String, module: &Module, signature: &Signature) {
    let several = signature.bindings.count > 1;
    let order = if several { "; with several shapes they are those of the bindings, in their order" } else { "" };
    let _ = writeln!(out, "/* Arrays, row-major{order}:");
    for parameter in &signature.parameters {
        let dtype = parameter.spec(module).dtype;
        let role = match (parameter.input, parameter.output) {
            (Some(_), Some(_)) => "read and written",
            (Some(_), None) => "read",
            _ => "written",
        };
        let held = if dtype.is_half() { ", as its 16 bits" } else { "" };
        let shapes: Vec<String> = module.bindings().map(|b| format!("{:?}", parameter.spec(b).shape)).collect();
        let alike = shapes.iter().all(|shape| *shape == shapes[0]);
        let shapes = if alike { shapes[0].clone() } else { shapes.join(" ") };
        let _ = writeln!(out, "     {}: {dtype}{shapes}{held}, {role}", parameter.name);
        capacities(out, module, signature, parameter);
    }
    if signature.weights_apart {
        let _ =
            writeln!(out, "     weights: the contents of {}.weights, at a multiple of 64", comment(&signature.file));
    }
    let parameter = |input: Option<usize>, output: Option<usize>| {
        let mut same = signature.parameters.iter().filter(|p| p.input == input && p.output == output);
        same.next().map(|p| p.name.as_str()).unwrap_or_default()
    };
    out.push_str("   Each is aligned as its elements are. An array that is written overlaps no other one");
    for (i, &(input, output)) in signature.states.iter().enumerate() {
        let (read, written) = (parameter(Some(input), None), parameter(None, Some(output)));
        let _ = write!(
            out,
            "{}\n   {written} may be the array of {read}, which is then changed in place",
            if i == 0 { ", but:" } else { ";" }
        );
    }
    out.push_str(
        ".\n   Floating-point arithmetic \
         rounds to nearest, traps nothing and takes subnormal numbers for zero, whatever the\n   caller's mode, which is kept. \
         */\n",
    );
}

/// The elements that count along the dimensions of an array whose extent is a capacity.
fn capacities(out: &mut String, module: &Module, signature: &Signature, parameter: &Parameter) {
    let axes = |binding: &Module| -> Vec<BoundedAxis> {
        let Some(bounds) = binding.bounds() else { return vec![] };
        match (parameter.input, parameter.output) {
            (Some(input), _) => bounds.inputs[input].clone(),
            (None, output) => bounds.outputs[output.unwrap_or_default()].clone(),
        }
    };
    let line = |binding: usize, axis: &BoundedAxis| {
        let extent = signature.bindings.extent(binding, axis.count.factor, axis.count.offset);
        let beyond = if axis.zero { "zeros" } else { "anything" };
        format!("       dimension {} holds {extent} elements, then {beyond}\n", axis.axis)
    };
    let of_binding = |(b, binding)| axes(binding).iter().map(|axis| line(b, axis)).collect::<String>();
    let texts: Vec<String> = module.bindings().enumerate().map(of_binding).collect();
    match texts.iter().all(|text| *text == texts[0]) {
        true => out.push_str(&texts[0]),
        false => {
            for (b, text) in texts.iter().enumerate() {
                let _ = write!(out, "       binding {b}:\n{text}");
            }
        }
    }
}

/// Prototypes.
fn functions(out: &mut String, module: &Module, signature: &Signature) {
    let Signature { name, upper, .. } = signature;
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
}

/// Names and sizes of inputs, outputs and dimensions, for programs that look them up.
fn tables(out: &mut String, signature: &Signature) {
    let Signature { name, upper, .. } = signature;
    let rows = match signature.bindings.has_choice() {
        true => [format!("[{upper}_BINDINGS][{upper}_INPUTS + 1]"), format!("[{upper}_BINDINGS][{upper}_OUTPUTS + 1]")],
        false => ["[]", "[]"].map(String::from),
    };
    let of_bindings = if signature.bindings.has_choice() { " for each binding" } else { "" };
    let _ = write!(
        out,
        "\n/* Names and bytes of the inputs and outputs, in the model's order{of_bindings}. */\n\
         extern const char *const {name}_input_names[];\nextern const size_t {name}_input_bytes{};\n\
         extern const char *const {name}_output_names[];\nextern const size_t {name}_output_bytes{};\n",
        rows[0], rows[1]
    );
    if signature.bindings.has_choice() {
        let _ = write!(
            out,
            "\n/* Names of the dimensions, in the order of the parameters, and the smallest and largest size that each binding takes. \
             */\nextern const char *const {name}_dimension_names[];\n\
             extern const int64_t {name}_dimension_sizes[{upper}_BINDINGS][{upper}_DIMENSIONS][2];\n"
        );
    }
}
