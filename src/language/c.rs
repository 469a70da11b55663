//! Programs as plain C, for other compilers: the loops as written or as transformed, the same initial values, a timing
//! `main`.
//!
//! In: what a program computes for known sizes. Out: one C file without dependences but libc and libm. The region between
//! `#pragma scop` and `#pragma endscop` is the untransformed program alone; arrays are static, aligned to 64 bytes, and
//! numbers that exist only inside of it are local. `prog [RUNS [DIR]]` sets the initial values and runs RUNS times (once), prints the
//! milliseconds of each run alone on a line, and writes output number I of the last run to `DIR/output_I.npy`.

mod expression;
mod loops;
mod nest;

use crate::codegen::loopnest::{Buffer, BufferKind, LoopNest};
use crate::language::lowered::{Computation, LoweredProgram};
use crate::object::names::{self, escaped};
use crate::poly::lower::Kernel;
use crate::poly::lower::state::Argument;
use crate::poly::normalize::textual_order;
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, TensorDecl};
use crate::runtime::npy;
use crate::runtime::{DType, Error, Result};
use expression::{HELPERS, type_of};
use std::fmt::Write;

/// The C text of the untransformed program. Arrays without initial values are filled as inputs are, from `seed`.
///
/// # Errors
/// `Unsupported` for element types that C has not.
pub fn print(lowered: &LoweredProgram, seed: u64) -> Result<String> {
    let scop = match &lowered.computation {
        Computation::Loop(scop) => scop.clone(),
        Computation::Def(program) => textual_order::in_loops(&lowered.name, program)?,
    };
    let frame = Frame::new(lowered, &scop.tensors)?;
    let (mut declared, mut body) = (String::new(), String::new());
    for (t, name) in scop.tensors.iter().zip(&frame.arrays).filter(|(t, _)| t.role != Role::Check) {
        match loops::is_local(t) {
            true => _ = writeln!(body, "    {};", loops::declaration(name, t.dtype, &t.shape)?),
            false => declare(&mut declared, t, name)?,
        }
    }
    body.push_str("#pragma scop\n");
    body.push_str(&loops::print(&scop, &frame.arrays, &is_reserved)?);
    body.push_str("#pragma endscop\n");
    frame.print("untransformed", &declared, "", &body, seed)
}

/// The C text of a program after all transformations: the loops of its kernel in the frame of [`print`].
///
/// # Errors
/// As [`print`].
pub fn print_kernel(lowered: &LoweredProgram, kernel: &Kernel, seed: u64) -> Result<String> {
    let tensors = lowered.arrays();
    let mut frame = Frame::new(lowered, tensors)?;
    let function = frame.names.add("kernel");
    let (mut declared, mut arguments) = (String::new(), vec![]);
    for (t, name) in tensors.iter().zip(&frame.arrays).filter(|(t, _)| t.role != Role::Temporary) {
        declare(&mut declared, t, name)?;
    }
    for (argument, slot) in kernel.arguments.iter().zip(0..) {
        let buffers = &kernel.nest.buffers;
        let of_slot = |b: &&Buffer| matches!(b.kind, BufferKind::Argument { slot: own, .. } if own == slot);
        let name = match (argument, buffers.iter().find(of_slot)) {
            (Argument::Tensor(id), _) => frame.arrays[id.0 as usize].clone(),
            (Argument::Workspace { .. }, Some(b)) => {
                let (name, ty, span) = (frame.names.add("workspace"), type_of(b.dtype)?, b.span().max(1));
                let _ = writeln!(declared, "static {ty} {name}[{span}] __attribute__((aligned(64)));");
                name
            }
            _ => return Err(Error::Internal(format!("argument {slot} of `{}` has no array", lowered.name))),
        };
        arguments.push(format!("(void *)&{name}"));
    }
    let loops = nest::print(&kernel.nest, &function, &is_reserved)?;
    let call = format!("    {function}({});\n", arguments.join(", "));
    frame.print("transformed", &declared, &loops, &call, seed)
}

/// The C text of one kernel of a network: a function of its arguments.
///
/// # Errors
/// As [`print`].
pub fn print_function(nest: &LoopNest) -> Result<String> {
    let name = nest::identifier(&nest.name);
    let taken = |n: &str| is_reserved(n) || n == name;
    Ok(format!("#include <math.h>\n#include <stdint.h>\n\n{HELPERS}\n{}", nest::print(nest, &name, &taken)?))
}

/// The program around the loops: arrays, initial values, and `main`.
struct Frame<'a> {
    lowered: &'a LoweredProgram,
    tensors: &'a [TensorDecl],
    /// The names of `tensors` in C.
    arrays: Vec<String>,
    initial: Scop,
    initial_arrays: Vec<String>,
    names: Names,
}

impl<'a> Frame<'a> {
    fn new(lowered: &'a LoweredProgram, tensors: &'a [TensorDecl]) -> Result<Frame<'a>> {
        let initial = match &lowered.initial {
            Some(program) => textual_order::in_loops("initial", program)?,
            None => Scop::default(),
        };
        let mut names = Names::default();
        let arrays: Vec<String> = tensors.iter().map(|t| names.add(&t.name)).collect();
        let initial_arrays: Vec<String> = (initial.tensors.iter())
            .map(|t| match tensors.iter().position(|a| a.name == t.name && t.role == Role::Output) {
                Some(i) => arrays[i].clone(),
                None => names.add(&t.name),
            })
            .collect();
        Ok(Frame { lowered, tensors, arrays, initial, initial_arrays, names })
    }

    /// The file: `declared` are its arrays, `functions` stand before `run`, whose statements are `body`.
    fn print(&self, what: &str, declared: &str, functions: &str, body: &str, seed: u64) -> Result<String> {
        let mut out = String::new();
        let sizes: Vec<String> = self.lowered.sizes.iter().map(|(name, n)| format!("{name} = {n}")).collect();
        let name = &self.lowered.name;
        let _ = writeln!(out, "// {name}({}), {what}. Use: PROGRAM [RUNS [FOLDER]]", sizes.join(", "));
        out.push_str(
            "#include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <time.h>\n\n",
        );
        let _ = write!(out, "{HELPERS}\n{declared}");
        for (t, name) in self.initial.tensors.iter().zip(&self.initial_arrays) {
            if t.role == Role::Temporary {
                declare(&mut out, t, name)?;
            }
        }
        let fills = self.fills(seed)?;
        if !fills.is_empty() {
            out.push_str(MIX);
        }
        let _ = write!(out, "\nstatic void set_initial_values(void) {{\n{fills}");
        if !self.initial.statements.is_empty() {
            out.push_str(&loops::print(&self.initial, &self.initial_arrays, &is_reserved)?);
        }
        out.push_str("}\n\n");
        if !functions.is_empty() {
            let _ = writeln!(out, "{functions}");
        }
        let _ = write!(out, "__attribute__((noinline)) static void run(void) {{\n{body}}}\n\n{SAVE}{MAIN}");
        let written = |t: &TensorDecl| matches!(t.role, Role::Output | Role::InOut);
        let outputs = self.tensors.iter().zip(&self.arrays).filter(|(t, _)| written(t));
        for (i, (t, name)) in outputs.enumerate() {
            let header = npy::header(t.dtype, &t.shape)?;
            let text = escaped(&header);
            let length = header.len();
            let _ = writeln!(out, "        save(argv[2], {i}, \"{text}\", {length}, &{name}, sizeof {name});");
        }
        out.push_str("    }\n    return 0;\n}\n");
        Ok(out)
    }

    /// The statements that fill the arrays without initial values.
    fn fills(&self, seed: u64) -> Result<String> {
        let inputs = self.tensors.iter().zip(&self.arrays).filter(|(t, _)| t.role.is_given());
        let has_values =
            |t: &TensorDecl| self.initial.tensors.iter().any(|i| i.name == t.name && i.role == Role::Output);
        let mut fills = String::new();
        for (position, (t, name)) in inputs.enumerate().filter(|(_, (t, _))| !has_values(t)) {
            let count: i64 = t.shape.iter().product();
            let value = seeded(t.dtype)?;
            let start = format!("mix({seed}ull ^ mix({position}ull))");
            let _ = writeln!(
                fills,
                "    for (uint64_t i_ = 0, s_ = {start}; i_ < {count}; i_++) {{\n        uint64_t u_ = mix(s_ + (i_ + 1) * \
                 0x9e3779b97f4a7c15ull);\n        (({} *)&{name})[i_] = {value};\n    }}",
                type_of(t.dtype)?
            );
        }
        Ok(fills)
    }
}

fn declare(out: &mut String, t: &TensorDecl, name: &str) -> Result<()> {
    let declared = loops::declaration(name, t.dtype, &t.shape)?;
    let _ = writeln!(out, "static {declared} __attribute__((aligned(64)));");
    Ok(())
}

/// An element from 64 random bits `u_`, as in `runtime/random.rs`.
fn seeded(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::F64 | DType::F32 => "(float)(u_ >> 40) * (2.0f / 16777216.0f) - 1.0f",
        dtype if dtype.is_integer() || dtype == DType::Bool => "u_ & 1",
        _ => return Err(Error::Unsupported(format!("{dtype} has no type in plain C"))),
    })
}

const MIX: &str = "
static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}
";

const SAVE: &str = "\
static void save(const char *folder, int number, const char *header, size_t length, const void *data, size_t bytes) {
    char path[4096];
    snprintf(path, sizeof path, \"%s/output_%d.npy\", folder, number);
    FILE *file = fopen(path, \"wb\");
    if (!file || fwrite(header, 1, length, file) != length || fwrite(data, 1, bytes, file) != bytes || fclose(file)) {
        perror(path);
        exit(1);
    }
}

";

const MAIN: &str = "\
int main(int argc, char **argv) {
    int runs = argc > 1 ? atoi(argv[1]) : 1;
    for (int i = 0; i < runs; i++) {
        struct timespec start, end;
        set_initial_values();
        clock_gettime(CLOCK_MONOTONIC, &start);
        run();
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf(\"%.6f\\n\", (end.tv_sec - start.tv_sec) * 1e3 + (end.tv_nsec - start.tv_nsec) * 1e-6);
    }
    if (argc > 2) {
";

/// Words that the library of C or this file use.
const USED: &str = "run save mix modulo set_initial_values MIN MAX FLOOR_DIV DIVIDE DIVIDE_UNSIGNED MODULO_UNSIGNED SHIFT_LEFT SHIFT_RIGHT NAN INFINITY i_ s_ u_ argc argv y0 y1 \
    yn j0 j1 jn gamma lgamma tgamma signgam exp exp2 expm1 log log2 log10 log1p sqrt cbrt tanh sinh cosh tan sin cos atan \
    asin acos atan2 acosh asinh atanh erf erfc abs fabs labs floor ceil round rint trunc pow fmod fma fmin fmax fdim hypot \
    ldexp frexp modf drem remainder scalb logb ilogb nan div ldiv time clock index rindex stdin stdout stderr remove \
    rename exit abort free malloc calloc realloc atoi atof system random rand srand printf puts gets getc putc perror \
    environ select";

fn is_reserved(name: &str) -> bool {
    names::is_reserved(name) || USED.split_whitespace().any(|word| word == name)
}

/// Distinct names that C takes.
#[derive(Default)]
struct Names {
    taken: Vec<String>,
}

impl Names {
    fn add(&mut self, name: &str) -> String {
        let mut name = name.replace('\'', "_");
        while is_reserved(&name) || self.taken.contains(&name) {
            name.push('_');
        }
        self.taken.push(name.clone());
        name
    }
}
