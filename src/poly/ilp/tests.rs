//! Schedules of the ILP as text goldens.

use super::*;
use crate::expr::{BinaryOp, Expr, UnaryOp};
use crate::language;
use crate::poly::analysis::dependence;
use crate::poly::normalize::{array_expansion, build, index_set_split};
use crate::poly::samples;

/// The schedule of a program; it must come from the integer programs and be legal.
fn scheduled(p: &crate::poly::statement::Program) -> String {
    let scop = build::build("t", p).unwrap();
    let d = dependence::analyze(&scop).unwrap();
    let (schedule, report) = schedule(&scop, &d).unwrap();
    assert_eq!(report.fallback, None);
    legality::check(&scop, &d, &schedule).unwrap();
    schedule.print(&scop)
}

/// A band over all three statements of a reduction, then the reduced loops.
fn reduction(outer: &str, reduced: &str, [init, update, post]: [&str; 3]) -> String {
    let mut out = "band permutable\n".to_string();
    for i in outer.split_whitespace() {
        out += &format!("  {i} [serial coincident] {init}({i}), {update}({i}), {post}({i})\n");
    }
    out += &format!("  sequence\n    {{{init}}}\n      leaf\n    {{{update}}}\n      band permutable\n");
    for i in reduced.split_whitespace() {
        out += &format!("        {i} [serial] {update}({i})\n");
    }
    out + &format!("        leaf\n    {{{post}}}\n      leaf\n")
}

#[test]
fn matrix_product() {
    assert_eq!(scheduled(&samples::matmul(64, 48, 32)), reduction("m n", "k", ["C_init", "C_update", "C"]));
}

#[test]
fn convolution_with_bias_and_relu() {
    let g = samples::Conv { size: 56, channels: 64, filters: 64, kernel: 3, stride: 1, pad: 1 };
    let names = ["conv_init", "conv_update", "Y"];
    assert_eq!(scheduled(&samples::conv(g)), reduction("h w f", "r s c", names));
    assert_eq!(
        scheduled(&samples::conv(samples::Conv { kernel: 7, stride: 2, pad: 3, channels: 3, ..g })),
        reduction("h w f", "r s c", names)
    );
    assert_eq!(scheduled(&samples::conv(samples::Conv { kernel: 1, pad: 0, ..g })), reduction("hw f", "c", names));
}

#[test]
fn depthwise_and_pooling() {
    let names = ["Y_init", "Y_update", "Y"];
    assert_eq!(scheduled(&samples::depthwise(14, 96, 3, 2, 1)), reduction("h w c", "r s", names));
    assert_eq!(scheduled(&samples::maxpool(112, 64, 3, 2, 1)), reduction("h w c", "r s", names));
}

#[test]
fn softmax() {
    assert_eq!(
        scheduled(&samples::softmax(12, 128, 64)),
        "band permutable
  hi [serial coincident] top_init(hi), top_update(hi), e(hi), total_init(hi), total_update(hi), Y(hi)
  sequence
    {top_init}
      leaf
    {top_update}
      band permutable
        j [serial] top_update(j)
        leaf
    {e}
      band permutable
        j [serial coincident] e(j)
        leaf
    {total_init}
      leaf
    {total_update}
      band permutable
        j [serial] total_update(j)
        leaf
    {Y}
      band permutable
        j [serial coincident] Y(j)
        leaf
"
    );
}

#[test]
fn layer_normalisation() {
    let text = scheduled(&samples::layernorm(128, 768));
    assert!(text.starts_with(
        "band permutable
  i [serial coincident] total_init(i), total_update(i), mean(i), square_init(i), square_update(i), inverse(i), Y(i)
  sequence
    {total_init}
"
    ));
}

#[test]
fn sharing_a_loop_must_not_spoil_strides() {
    // A row computed once and added to every row of a matrix: in one loop over columns the matrix would be
    // walked down its columns.
    let mut p = crate::poly::statement::Program::default();
    let x = samples::tensor(&mut p, Role::Input, "X", &[64]);
    let z = samples::tensor(&mut p, Role::Input, "Z", &[32, 64]);
    let y = samples::tensor(&mut p, Role::Output, "Y", &[32, 64]);
    let e = samples::tensor(&mut p, Role::Temporary, "e", &[64]);
    let exp = Expr::unary(UnaryOp::Exp, Expr::load(x, samples::vars(1)));
    samples::define(&mut p, e, "j 64", 1, None, vec![], exp);
    let sum = samples::add(Expr::load(z, samples::vars(2)), Expr::load(e, vec![samples::v(1)]));
    samples::define(&mut p, y, "i 32, j 64", 2, None, vec![], sum);
    assert_eq!(
        scheduled(&p),
        "sequence
  {e}
    band permutable
      j [serial coincident] e(j)
      leaf
  {Y}
    band permutable
      i [serial coincident] Y(i)
      j [serial coincident] Y(j)
      leaf
"
    );
}

#[test]
fn shared_loops_are_iterators_of_one_length() {
    // Concatenation along the columns: 20 and 33 of them.
    let mut p = crate::poly::statement::Program::default();
    let a = samples::tensor(&mut p, Role::Input, "A", &[6, 20]);
    let b = samples::tensor(&mut p, Role::Input, "B", &[6, 33]);
    let y = samples::tensor(&mut p, Role::Output, "Y", &[6, 53]);
    samples::define(&mut p, y, "i 6, j 20", 2, None, vec![], Expr::load(a, samples::vars(2)));
    samples::define(&mut p, y, "i 6, j 33", 2, None, vec![], Expr::load(b, samples::vars(2)));
    p.definitions[1].write[1].constant = 20;
    assert_eq!(
        scheduled(&p),
        "band permutable
  i [serial coincident] Y(i), Y_2(i)
  sequence
    {Y}
      band permutable
        j [serial coincident] Y(j)
        leaf
    {Y_2}
      band permutable
        j [serial coincident] Y_2(j)
        leaf
"
    );
}

#[test]
fn many_statements_share_their_rows() {
    // Twelve times: divide each row by its sum.
    let mut p = crate::poly::statement::Program::default();
    let mut x = samples::tensor(&mut p, Role::Input, "X", &[64, 96]);
    let y = samples::tensor(&mut p, Role::Output, "Y", &[64, 96]);
    for k in 0..12 {
        let total = samples::tensor(&mut p, Role::Temporary, &format!("total{k}"), &[64]);
        let next = if k == 11 { y } else { samples::tensor(&mut p, Role::Temporary, &format!("x{k}"), &[64, 96]) };
        let load = |t, n| Expr::load(t, samples::vars(n));
        samples::define(&mut p, total, "i 64, j 96", 1, Some(BinaryOp::Add), vec![], load(x, 2));
        let quotient = Expr::binary(BinaryOp::Div, load(x, 2), load(total, 1));
        let quotient = Expr::unary(UnaryOp::Exp, quotient);
        samples::define(&mut p, next, "i 64, j 96", 2, None, vec![], quotient);
        x = next;
    }
    let text = scheduled(&p);
    assert!(
        text.starts_with("band permutable\n  i [serial coincident] total0_init(i), total0_update(i), x0(i), "),
        "{text}"
    );
    assert_eq!(text.lines().filter(|l| l.trim_start().starts_with("j [")).count(), 24);
}

#[test]
fn elementwise() {
    assert_eq!(
        scheduled(&samples::elementwise([1, 14, 14, 96])),
        "band permutable\n  hwc [serial coincident] Y(hwc)\n  leaf\n"
    );
}

/// The Scop of a loop program as the ILP gets it.
fn loops(text: &str, sizes: &[(&str, i64)]) -> Scop {
    let file = language::parse("t", text).unwrap();
    let sizes = sizes.iter().map(|&(name, n)| (name.to_string(), n)).collect();
    let lowered = file.lower(file.program(None).unwrap(), &sizes, None).unwrap();
    array_expansion::expand(&index_set_split::split(&lowered.normal().unwrap()).unwrap()).unwrap()
}

/// Eight statements that write c before eight that read it an iteration later: what fails for one statement of each fails for all.
#[test]
fn clusters_that_cannot_share_a_row_are_tried_once() {
    let (writes, reads) = ("c[i] = 0.5 * c[i] ".repeat(8), "y[i] = y[i] + c[i - 1] ".repeat(8));
    let scop = loops(
        &format!(
            "loop p() {{ inout f32 c[64]  inout f32 y[80][64] for i in 1..64 {{ {writes}{} }} }}",
            reads.replace("y[i]", "y[0][i]")
        ),
        &[],
    );
    let d = dependence::analyze(&scop).unwrap();
    let (schedule, report) = schedule(&scop, &d).unwrap();
    assert!(matches!(&schedule.root, Node::Sequence(children) if children.len() == 2), "{schedule:?}");
    assert!(report.programs < 8 * 8, "{report}");
}

/// Programs that once took minutes: name, number of entries that suffice, text.
const HARD: &[(&str, usize, &str)] = &[
    (
        "one element, three loops, two of them windows around the first",
        5_000,
        "loop p() { in f64 R[20]  out f64 s
            for i in 0..20 for j in max(0, i-2)..min(20, i+3) for k in max(0, i-2)..min(20, i+3) s = R[j] }",
    ),
    (
        "elements that the outer loop reads, written in windows around it: three parts",
        60_000,
        "loop p() { in f64 R[20]  inout f64 s[20]
            for i in 0..20 for j in max(0, i-2)..min(20, i+3) for k in max(0, i-2)..min(20, i+3) s[j] = R[k] + 0.5 * s[i] }",
    ),
    (
        "dilation in place: nine parts",
        2_000_000,
        "loop p() { inout f64 A[12][12]
            for i in 0..12 for j in 0..12 for y in max(0, i-1)..min(12, i+2) for x in max(0, j-1)..min(12, j+2)
                A[i][j] = max(A[i][j], 0.9 * A[y][x]) }",
    ),
    (
        "dilation in place, repeated",
        5_000_000,
        "loop p() { inout f64 A[9][9]
            for t in 0..3 for i in 0..9 for j in 0..9 for y in max(0, i-1)..min(9, i+2) for x in max(0, j-1)..min(9, j+2)
                A[i][j] = max(A[i][j], 0.9 * A[y][x]) }",
    ),
    (
        "all pairs of elements of a matrix in place",
        2_000_000,
        "loop p() { inout f64 A[10][10]
            for i in 0..10 for j in 0..10 for y in 0..10 for x in 0..10 A[i][j] = max(A[i][j], 0.9 * A[y][x]) }",
    ),
];

#[test]
fn hard_programs_have_schedules_for_little_effort() {
    for (what, enough, text) in HARD {
        let scop = loops(text, &[]);
        let (_, report) = schedule(&scop, &dependence::analyze(&scop).unwrap()).unwrap();
        assert_eq!(report.fallback, None, "{what}");
        assert!(report.entries <= *enough, "{what}: {report}");
    }
}

#[test]
fn every_program_of_polybench_has_a_schedule_for_a_quarter_of_the_effort() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/polybench");
    let mut entries = vec![];
    for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).filter(|p| p.extension().is_some()) {
        let text = std::fs::read_to_string(&path).unwrap();
        let small = if path.ends_with("floyd-warshall.tile") { [("N", 7)].as_slice() } else { &[] };
        let scop = loops(&text, small);
        let (_, report) = schedule(&scop, &dependence::analyze(&scop).unwrap()).unwrap();
        assert_eq!(report.fallback, None, "{path:?}");
        assert!(report.entries <= MAX_EFFORT / 4, "{path:?}: {report}");
        entries.push(report.entries);
    }
    entries.sort();
    assert!(entries.len() == 30 && entries[15] < 10_000, "{entries:?}");
}

#[test]
fn what_takes_more_effort_keeps_its_order_and_says_so() {
    let scop = loops(HARD[1].2, &[]);
    let d = dependence::analyze(&scop).unwrap();
    let (found, report) = schedule_within(&scop, &d, Effort { left: 1000 }).unwrap();
    legality::check(&scop, &d, &found).unwrap();
    let why = "limit exceeded: the integer programs took more than 1000 entries of linear relaxations";
    assert_eq!(report.fallback, Some(format!("original order of s_1, s_2, s_3 kept: {why}")));
    assert_eq!(report.entries, 1000);
    assert_eq!(found, flags::flag(&scop, &d, &scop.order).unwrap());
}

#[test]
fn tiles_repeat_reads_that_run_along_lines() {
    // Below a column of tiles A[i][k] is read again for each, along its lines; below a row of tiles A[k][j] across them.
    let text = "loop lu() { inout f64 A[40][40]
        for i in 0..40 {
            for j in 0..i { for k in 0..j A[i][j] -= A[i][k] * A[k][j]  A[i][j] /= A[j][j] }
            for j in i..40 for k in 0..i A[i][j] -= A[i][k] * A[k][j] } }";
    let scop = loops(text, &[]);
    let (found, _) = schedule(&scop, &dependence::analyze(&scop).unwrap()).unwrap();
    let Node::Band(band, _) = &found.root else { panic!("a band") };
    assert_eq!(band.rows.iter().map(|r| &*r.name).collect::<Vec<_>>(), ["j", "i", "k"]);
}

#[test]
fn contiguous_iterators_are_held_back() {
    let text = "loop chain(N = 60) { inout f64 M[N][N]
        for i in 0..N step -1 for j in i+1..N for k in i..j M[i][j] min= M[i][k] + M[k+1][j] }";
    let file = language::parse("t.tile", text).unwrap();
    let lowered = file.lower(file.program(None).unwrap(), &Default::default(), None).unwrap();
    let language::lowered::Computation::Loop(scop) = lowered.computation else { panic!("a loop program") };
    let d = dependence::analyze(&scop).unwrap();
    let (near, _) = schedule(&scop, &d).unwrap();
    let found = schedule_contiguous(&scop, &d, &near).unwrap().expect("`k` is innermost");
    let names = |s: &Schedule| {
        let path = s.path(StatementId(0));
        let rows = path.iter().filter_map(|step| match step {
            TimeDimension::Row(row) if row.tile == 1 => Some(row.name.clone()),
            _ => None,
        });
        rows.collect::<Vec<_>>().concat()
    };
    assert_eq!([names(&near), names(&found)], ["ijk", "ikj"]);
    legality::check(&scop, &d, &found).unwrap();
    assert_eq!(schedule_contiguous(&scop, &d, &found).unwrap().map(|f| names(&f)), None, "`j` is innermost");
}
