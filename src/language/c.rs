//! The untransformed program as plain C, for other compilers: the same loops, the same initial values, a timing `main`.
//!
//! In: what a program computes for known sizes. Out: one C file without dependences but libc and libm. The region between
//! `#pragma scop` and `#pragma endscop` is the program alone; its arrays are static, aligned to 64 bytes, and numbers that
//! exist only inside of it are local. `prog [RUNS [DIR]]` sets the initial values and runs RUNS times (once), prints the
//! milliseconds of each run alone on a line, and writes output number I of the last run to `DIR/output_I.npy`.

mod expression;
mod loops;

use crate::language::lowered::{Computation, LoweredProgram};
use crate::poly::normalize::textual_order;
use crate::poly::scop::Scop;
use crate::poly::statement::{Role, TensorDecl};
use crate::runtime::npy;
use crate::runtime::{DType, Error, Result};
use expression::{HELPERS, type_of};
use std::fmt::Write;

/// The C text. Arrays without initial values are filled as inputs are, from `seed`.
pub fn print(lowered: &LoweredProgram, seed: u64) -> Result<String> {
    let scop = match &lowered.computation {
        Computation::Loop(scop) => scop.clone(),
        Computation::Def(program) => textual_order::in_loops(&lowered.name, program)?,
    };
    let initial = match &lowered.initial {
        Some(program) => textual_order::in_loops("initial", program)?,
        None => Scop::default(),
    };
    let mut names = Names::default();
    let arrays: Vec<String> = scop.tensors.iter().map(|t| names.add(&t.name)).collect();
    let initial_arrays: Vec<String> = (initial.tensors.iter())
        .map(|t| match scop.tensors.iter().position(|a| a.name == t.name && t.role == Role::Output) {
            Some(i) => arrays[i].clone(),
            None => names.add(&t.name),
        })
        .collect();
    let mut out = String::new();
    let sizes: Vec<String> = lowered.sizes.iter().map(|(name, n)| format!("{name} = {n}")).collect();
    let _ = writeln!(out, "// {}({}), untransformed. Use: PROGRAM [RUNS [FOLDER]]", lowered.name, sizes.join(", "));
    out.push_str(
        "#include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <time.h>\n\n",
    );
    out.push_str(HELPERS);
    out.push('\n');
    for (t, name) in scop.tensors.iter().zip(&arrays).filter(|(t, _)| !loops::is_local(t)) {
        declare(&mut out, t, name)?;
    }
    for (t, name) in initial.tensors.iter().zip(&initial_arrays).filter(|(t, _)| t.role == Role::Temporary) {
        declare(&mut out, t, name)?;
    }
    let given: Vec<(usize, &TensorDecl)> = scop.tensors.iter().enumerate().filter(|(_, t)| t.role.is_given()).collect();
    let has_values = |t: &TensorDecl| initial.tensors.iter().any(|i| i.name == t.name && i.role == Role::Output);
    let mut fills = String::new();
    for (position, (i, t)) in given.iter().enumerate().filter(|(_, (_, t))| !has_values(t)) {
        let count: i64 = t.shape.iter().product();
        let (name, value) = (&arrays[*i], seeded(t.dtype)?);
        let start = format!("mix({seed}ull ^ mix({position}ull))");
        let _ = writeln!(
            fills,
            "    for (uint64_t i_ = 0, s_ = {start}; i_ < {count}; i_++) {{\n        uint64_t u_ = mix(s_ + (i_ + 1) * \
             0x9e3779b97f4a7c15ull);\n        (({} *)&{name})[i_] = {value};\n    }}",
            type_of(t.dtype)?
        );
    }
    if !fills.is_empty() {
        out.push_str(MIX);
    }
    out.push_str("\nstatic void set_initial_values(void) {\n");
    out.push_str(&fills);
    if !initial.statements.is_empty() {
        out.push_str(&loops::print(&initial, &initial_arrays, &is_reserved)?);
    }
    out.push_str("}\n\n__attribute__((noinline)) static void run(void) {\n");
    for (t, name) in scop.tensors.iter().zip(&arrays).filter(|(t, _)| loops::is_local(t)) {
        let _ = writeln!(out, "    {};", loops::declaration(name, t.dtype, &t.shape)?);
    }
    out.push_str("#pragma scop\n");
    out.push_str(&loops::print(&scop, &arrays, &is_reserved)?);
    out.push_str("#pragma endscop\n}\n\n");
    out.push_str(SAVE);
    out.push_str(MAIN);
    let outputs = scop.tensors.iter().zip(&arrays).filter(|(t, _)| t.role.is_written() && t.role != Role::Temporary);
    for (i, (t, name)) in outputs.enumerate() {
        let header = npy::header(t.dtype, &t.shape)?;
        let text: String = header.iter().map(|&b| escape(b)).collect();
        let length = header.len();
        let _ = writeln!(out, "        save(argv[2], {i}, \"{text}\", {length}, &{name}, sizeof {name});");
    }
    out.push_str("    }\n    return 0;\n}\n");
    Ok(out)
}

fn declare(out: &mut String, t: &TensorDecl, name: &str) -> Result<()> {
    let declared = loops::declaration(name, t.dtype, &t.shape)?;
    let _ = writeln!(out, "static {declared} __attribute__((aligned(64)));");
    Ok(())
}

fn escape(byte: u8) -> String {
    match byte {
        b'\\' | b'"' => format!("\\{}", byte as char),
        b' '..=b'~' => (byte as char).to_string(),
        _ => format!("\\{byte:03o}"),
    }
}

/// An element from 64 random bits `u_`, as `runtime/random.rs` says it.
fn seeded(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::F64 | DType::F32 => "(float)(u_ >> 40) * (2.0f / 16777216.0f) - 1.0f",
        DType::I64 | DType::I32 | DType::I8 | DType::U8 | DType::Bool => "u_ & 1",
        DType::F16 | DType::BF16 => return Err(Error::Unsupported(format!("{dtype} has no type in plain C"))),
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

/// Words that C, its library or this file use.
const RESERVED: &str = "auto break case char const continue default do double else enum extern float for goto if inline int \
    long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm \
    typeof main run save mix modulo set_initial_values MIN MAX FLOOR_DIV NAN INFINITY i_ s_ u_ argc argv y0 y1 yn j0 j1 jn gamma \
    lgamma tgamma signgam exp exp2 expm1 log log2 log10 log1p sqrt cbrt tanh sinh cosh tan sin cos atan asin acos atan2 acosh \
    asinh atanh erf erfc abs fabs labs floor ceil round rint trunc pow fmod fma fmin fmax fdim hypot ldexp frexp modf drem \
    remainder scalb logb ilogb nan div ldiv time clock index rindex stdin stdout stderr remove rename exit abort free malloc \
    calloc realloc atoi atof system random rand srand printf puts gets getc putc perror environ select unix linux";

fn is_reserved(name: &str) -> bool {
    RESERVED.split_whitespace().any(|word| word == name)
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
