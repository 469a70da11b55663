//! The ILP's schedule in words: what `explain --stage schedule` prints, pasted into the file, compiles to the same bytes.

mod common;

use common::{DEFS, difference, run_seeded};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use tilewright::internal::language;
use tilewright::{File, Model, Options, Stage};

const PROGRAMS: &str = "
def chain(f32(M,K) A, f32(K,N) B, f32(N,K) D) -> (E) {
    C(m,n) +=! A(m,k) * B(k,n)
    E(m,l) +=! C(m,n) * D(n,l)
}
def conv(f32(N,C,H,W) X, f32(F,C,3,3) V) -> (Y) { Y(n,f,h,w) +=! X(n, c, h + r, w + s) * V(f,c,r,s) }
def layer_norm(f32(M,N) X, f32(N) gain, f32(N) bias) -> (Y) {
    sum(m) +=! X(m,n)
    square(m) +=! X(m,n) * X(m,n)
    Y(m,n) = (X(m,n) - sum(m) / N) / sqrt(square(m) / N - sum(m) * sum(m) / (N * N) + 0.00001) * gain(n) + bias(n)
}
def attention(f32(L,D) Q, f32(M,D) K, f32(M,E) V) -> (Y) {
    S(i,j) +=! Q(i,d) * K(j,d)
    Sc(i,j) = S(i,j) / sqrt(f32(D))
    Mx(i) max=! Sc(i,j)
    Ex(i,j) = exp(Sc(i,j) - Mx(i))
    Su(i) +=! Ex(i,j)
    P(i,e) +=! Ex(i,j) * V(j,e)
    Y(i,e) = P(i,e) / Su(i)
}
def embed(i64(B,L) I, f32(V,D) T) -> (Y) { Y(b,l,d) = T(I(b,l), d) }
loop differences(N) {
    inout f64 px[N][4]
    in f64 cx[N]
    temp f64 ar, br
    for i in 0..N {
        ar = cx[i]
        br = ar - px[i][0]
        px[i][0] = ar
        ar = br - px[i][1]
        px[i][1] = br
        px[i][2] = ar
    }
}
loop dot(N) { inout f64 q; in f64 x[N], z[N]; for k in 0..N q += z[k] * x[k] }
loop first_order(N) { inout f64 x[N]; in f64 y[N], z[N]; for i in 1..N x[i] = z[i] * (y[i] - x[i-1]) }
loop update(N, M, K) {
    inout f64 C[N][M]
    in f64 A[K][N], B[M][K]
    for i in 0..N for j in 0..M {
        C[i][j] *= 0.5
        for k in 0..K step -1 C[i][j] -= A[k][i] * B[j][k]
    }
}
loop twice(N) {
    inout f64 A[N], s
    for k in 0..N { A[k] = A[k] + s; s = A[k] - s }
    for i in 0..N step -1 { A[i] = A[i] + s; s = A[i] - s }
}
loop cholesky(N) {
    inout f64 A[N][N]
    for k in 0..N {
        A[k][k] = sqrt(A[k][k])
        for i in k+1..N A[i][k] /= A[k][k]
        for j in k+1..N for i in j..N A[i][j] -= A[i][k] * A[j][k]
    }
}
loop jordan(N) {
    inout f64 B[N]
    in f64 A[N][N]
    temp f64 f
    for k in 0..N for i in 0..N if i != k {
        f = A[i][k]
        B[i] -= f * B[k]
    }
}
loop crossed(N) {
    inout f64 A[120][120], B[200]
    in f64 R[120][120]
    for i in 1..N {
        for j in i - 1..N step -1 B[-i + 5] -= B[j + 1]
        A[i][i] min= R[i][-i + 5] + A[-2*i + 10][i]
    }
}
";

/// Programs of PolyBench that are compiled at LARGE too: there they are tiled, run in waves, or have packed operands. The
/// variable `TILEWRIGHT_WORDS` names sizes at which all are.
const LARGE: &[&str] = &["2mm", "adi", "cholesky", "fdtd-2d", "gemm", "heat-3d", "jacobi-2d", "ludcmp", "seidel-2d"];

/// Program, sizes: loops of one iteration, statements that share loops in another order, temporaries, tensor instructions.
const CASES: &[(&str, &[(&str, i64)])] = &[
    ("gemm", &[("M", 30), ("N", 50), ("K", 40)]),
    ("gemm", &[("M", 500), ("N", 700), ("K", 600)]),
    ("chain", &[("M", 64), ("N", 96), ("K", 128)]),
    ("conv", &[("N", 2), ("C", 16), ("H", 30), ("W", 30), ("F", 32)]),
    ("conv", &[("N", 1), ("C", 16), ("H", 30), ("W", 30), ("F", 32)]),
    ("blur2", &[("M", 200), ("N", 300)]),
    ("softmax", &[("M", 64), ("N", 1000)]),
    ("softmax", &[("M", 1), ("N", 1)]),
    ("layer_norm", &[("M", 64), ("N", 768)]),
    ("attention", &[("L", 21), ("D", 16), ("M", 33), ("E", 9)]),
    ("embed", &[("B", 1), ("L", 1), ("V", 1), ("D", 1)]),
    ("differences", &[("N", 101)]),
    ("dot", &[("N", 1)]),
    ("dot", &[("N", 5001)]),
    ("first_order", &[("N", 1)]),
    ("first_order", &[("N", 2)]),
    ("update", &[("N", 700), ("M", 1), ("K", 5)]),
    ("update", &[("N", 1), ("M", 1), ("K", 1)]),
    ("twice", &[("N", 1)]),
    ("cholesky", &[("N", 2)]),
    ("jordan", &[("N", 26)]),
    ("crossed", &[("N", 5)]),
];

/// The module of a program by the ILP and by its own words; or what is wrong.
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
    let said = found.explain(&options, Stage::Schedule, None).map_err(failed("explain"))?;
    let Some(at) = said.find("\nschedule ") else {
        return Err(format!("{name}: {}", said.lines().last().unwrap_or("nothing said")));
    };
    let pasted =
        model(&format!("{text}{}", &said[at..])).and_then(|m| m.with_schedule("ilp")).map_err(failed("paste"))?;
    let code = |m: Model| m.compile_module(&options).and_then(|m| m.0.to_bytes());
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
    let text = format!("{DEFS}{PROGRAMS}");
    for (name, dims) in CASES {
        check(compare(&format!("{name} {dims:?}"), &text, Some(name), None, dims));
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(programs.len(), 30);
}

/// The report has the chosen schedule and three others, with terms that add up; their words are programs' words: what was
/// a comment, uncommented, is proven and computes the same.
#[test]
fn runners_up_have_terms_and_words() {
    let path = "datasets/programs/haar.tile";
    let (text, options) = (std::fs::read_to_string(path).unwrap(), Options { prices: true, ..Options::default() });
    let model = |text: &str| Model::from_program(File::parse(path, text).unwrap(), None, Some("SMALL")).unwrap();
    let (module, report) = model(&text).compile_module(&options).unwrap();
    let [kernel] = &report.kernels[..] else { panic!("one kernel") };
    assert_eq!(kernel.candidates.len(), 4);
    assert!((kernel.candidates[0].predicted_ns / 1e3 - kernel.predicted_us).abs() < 1e-9);
    for candidate in &kernel.candidates {
        let sum: f64 = candidate.terms.iter().map(|term| term.1).sum();
        assert!((sum / candidate.predicted_ns - 1.0).abs() < 1e-3, "{candidate}");
    }
    let said = model(&text).explain(&options, Stage::Candidates, None).unwrap();
    assert_eq!(File::parse("said.tile", &said).unwrap().schedules.len(), 1);
    let all: Vec<&str> = said.lines().filter(|l| !l.contains("µs")).map(|l| l.trim_start_matches("# ")).collect();
    let all = model(&format!("{text}{}", all.join("\n")));
    let expected = run_seeded(Arc::new(module), 1, 2).unwrap();
    for name in ["ilp", "runner_up_1", "runner_up_2", "runner_up_3"] {
        let (module, report) = all.clone().with_schedule(name).unwrap().compile_module(&options).unwrap();
        assert!(report.kernels[0].candidates[0].name == "by hand" && report.kernels[0].predicted_us > 0.0);
        let found = run_seeded(Arc::new(module), 1, 2).unwrap();
        assert!(found.iter().zip(&expected).all(|(a, b)| difference(a, b, 1e-6).is_none()), "{name}");
    }
}
