//! The ILP's schedule in words: what `explain --stage schedule` prints, pasted into the file, compiles to the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write;
use tilewright::poly::language;
use tilewright::{Model, Options};

const DEFS: &str = "
def gemm(f32(M,K) A, f32(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def chain(f32(M,K) A, f32(K,N) B, f32(N,K) D) -> (E) {
    C(m,n) +=! A(m,k) * B(k,n)
    E(m,l) +=! C(m,n) * D(n,l)
}
def conv(f32(N,C,H,W) X, f32(F,C,3,3) V) -> (Y) { Y(n,f,h,w) +=! X(n, c, h + r, w + s) * V(f,c,r,s) }
def blur(f32(H,W) In) -> (Out) {
    Bx(y,x)  = (In(y,x) + In(y,x+1) + In(y,x+2)) / 3
    Out(y,x) = (Bx(y,x) + Bx(y+1,x) + Bx(y+2,x)) / 3
}
def softmax(f32(M,N) X) -> (Y) {
    top(m) max=! X(m,n)
    e(m,n) = exp(X(m,n) - top(m))
    total(m) +=! e(m,n)
    Y(m,n) = e(m,n) / total(m)
}
def layer_norm(f32(M,N) X, f32(N) gain, f32(N) bias) -> (Y) {
    sum(m) +=! X(m,n)
    square(m) +=! X(m,n) * X(m,n)
    Y(m,n) = (X(m,n) - sum(m) / N) / sqrt(square(m) / N - sum(m) * sum(m) / (N * N) + 0.00001) * gain(n) + bias(n)
}
";

/// Programs of PolyBench that are compiled at LARGE too: there they are tiled, run in waves, or have packed operands. The
/// variable `TILEWRIGHT_WORDS` names sizes at which all are.
const LARGE: &[&str] = &["2mm", "adi", "cholesky", "fdtd-2d", "gemm", "heat-3d", "jacobi-2d", "ludcmp", "seidel-2d"];

/// The code of a program by the ILP and by its own words; or what is wrong.
fn compare(
    name: &str,
    text: &str,
    program: Option<&str>,
    size: Option<&str>,
    dims: &[(&str, i64)],
) -> Result<(), String> {
    let options = Options {
        dims: dims.iter().map(|(n, v)| (n.to_string(), *v)).collect::<BTreeMap<_, _>>(),
        ..Options::default()
    };
    let failed = |what: &'static str| move |e: tilewright::Error| format!("{name}: {what}: {e}");
    let model = |text: &str| Model::from_program(language::parse(name, text)?, program, size);
    let found = model(text).map_err(failed("parse"))?;
    let said = found.explain(&options, tilewright::pipeline::Stage::Schedule, None).map_err(failed("explain"))?;
    let Some(at) = said.find("\nschedule ") else {
        return Err(format!("{name}: {}", said.lines().last().unwrap_or("nothing said")));
    };
    let pasted =
        model(&format!("{text}{}", &said[at..])).and_then(|m| m.with_schedule("ilp")).map_err(failed("paste"))?;
    let code = |m: Model| m.compile_module(&options).map(|m| m.0.code);
    match (code(found).map_err(failed("compile"))?, code(pasted).map_err(failed("compile the words"))?) {
        (a, b) if a == b => Ok(()),
        (a, b) => Err(format!("{name}: {} bytes by the ILP, {} by its words, not the same", a.len(), b.len())),
    }
}

#[test]
fn what_the_ilp_does_can_be_said() {
    let mut wrong = String::new();
    let mut check = |result: Result<(), String>| {
        if let Err(e) = result {
            let _ = writeln!(wrong, "{e}");
        }
    };
    let sizes = std::env::var("TILEWRIGHT_WORDS").unwrap_or_default();
    let mut programs: Vec<_> = std::fs::read_dir("datasets/polybench").unwrap().map(|e| e.unwrap().path()).collect();
    programs.sort();
    for path in &programs {
        let text = std::fs::read_to_string(path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let large = LARGE.contains(&name).then_some("LARGE");
        for size in sizes.split(',').filter(|s| !s.is_empty()).chain(["SMALL"]).chain(large) {
            check(compare(&format!("{} {size}", path.display()), &text, None, Some(size), &[]));
        }
    }
    for (name, dims) in [
        ("gemm", &[("M", 30), ("N", 50), ("K", 40)][..]),
        ("gemm", &[("M", 500), ("N", 700), ("K", 600)]),
        ("chain", &[("M", 64), ("N", 96), ("K", 128)]),
        ("conv", &[("N", 2), ("C", 16), ("H", 30), ("W", 30), ("F", 32)]),
        ("blur", &[("H", 200), ("W", 300)]),
        ("softmax", &[("M", 64), ("N", 1000)]),
        ("layer_norm", &[("M", 64), ("N", 768)]),
    ] {
        check(compare(name, DEFS, Some(name), None, dims));
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(programs.len(), 30);
}
