//! Small programs that the tests of this folder share.

use crate::codegen::Target;
use crate::expr::{Affine, Var};
use crate::expr::{BinaryOp, BufferId, Expr, Literals, Scalar, UnaryOp};
use crate::language::{self, lowered::Computation};
use crate::poly::scop::Scop;
use crate::poly::statement::{Definition, Iterator, Program, Role, TensorDecl};
use crate::runtime::DType;

/// The first program of a text, which has loops and the sizes that it needs.
pub fn loops(text: &str) -> Scop {
    let file = language::parse("test", text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let lowered = file.lower(file.program(None).unwrap(), &Default::default(), None);
    let Computation::Loop(scop) = lowered.unwrap_or_else(|e| panic!("{e}\n{text}")).computation else {
        panic!("a loop program: {text}")
    };
    scop
}

/// Adds a tensor and returns its id.
pub fn tensor(p: &mut Program, role: Role, name: &str, shape: &[i64]) -> BufferId {
    p.tensors.push(TensorDecl::new(name, DType::F32, shape, role));
    BufferId(p.tensors.len() as u32 - 1)
}

/// The target, with the built-in tensor instructions where it has none.
pub fn with_rows(target: Target) -> Target {
    let rows = crate::language::instruction::built_in().expect("the built-in rows");
    if target.instructions.is_empty() { target.with_instructions(rows) } else { target }
}

pub fn v(i: u32) -> Affine {
    Affine::var(Var(i))
}

pub fn vars(n: u32) -> Vec<Affine> {
    (0..n).map(v).collect()
}

/// A definition that writes its first `outer` iterators in order. `iterators`: `"h 8, w 8"`.
pub fn define(
    p: &mut Program,
    target: BufferId,
    iterators: &str,
    outer: u32,
    reduce: Option<BinaryOp>,
    conditions: Vec<Affine>,
    body: Expr,
) {
    let iterators = iterators
        .split(',')
        .filter_map(|part| part.trim().split_once(' '))
        .map(|(name, extent)| Iterator::new(name, extent.parse().expect("an extent")))
        .collect();
    p.definitions.push(Definition {
        target,
        iterators,
        outer: outer as usize,
        write: vars(outer),
        computed: vec![],
        reduce,
        conditions,
        body,
    });
}

pub fn add(a: Expr, b: Expr) -> Expr {
    Expr::binary(BinaryOp::Add, a, b)
}
pub fn mul(a: Expr, b: Expr) -> Expr {
    Expr::binary(BinaryOp::Mul, a, b)
}
pub fn sub(a: Expr, b: Expr) -> Expr {
    Expr::binary(BinaryOp::Sub, a, b)
}
pub fn relu(a: Expr) -> Expr {
    Expr::binary(BinaryOp::Max, a, Expr::f32(0.0))
}

/// `C[m][n] = Σ_k A[m][k]·B[k][n]`.
pub fn matmul(m: i64, n: i64, k: i64) -> Program {
    let mut p = Program::default();
    let a = tensor(&mut p, Role::Input, "A", &[m, k]);
    let b = tensor(&mut p, Role::Constant, "B", &[k, n]);
    let c = tensor(&mut p, Role::Output, "C", &[m, n]);
    let body = mul(Expr::load(a, vec![v(0), v(2)]), Expr::load(b, vec![v(2), v(1)]));
    define(&mut p, c, &format!("m {m}, n {n}, k {k}"), 2, Some(BinaryOp::Add), vec![], body);
    p
}

/// Geometry of a square convolution in NHWC order with weights in FCRS order.
#[derive(Clone, Copy)]
pub struct Conv {
    pub size: i64,
    pub channels: i64,
    pub filters: i64,
    pub kernel: i64,
    pub stride: i64,
    pub pad: i64,
}

/// Convolution, bias and ReLU, as three definitions.
pub fn conv(g: Conv) -> Program {
    let Conv { size, channels, filters, kernel, stride, pad } = g;
    let out = (size + 2 * pad - kernel) / stride + 1;
    let mut p = Program::default();
    let x = tensor(&mut p, Role::Input, "X", &[1, size, size, channels]);
    let w = tensor(&mut p, Role::Constant, "W", &[filters, channels, kernel, kernel]);
    let b = tensor(&mut p, Role::Constant, "bias", &[filters]);
    let y = tensor(&mut p, Role::Output, "Y", &[1, out, out, filters]);
    let t = tensor(&mut p, Role::Temporary, "conv", &[1, out, out, filters]);
    let u = tensor(&mut p, Role::Temporary, "biased", &[1, out, out, filters]);
    // n h w f c r s
    let (row, column) =
        (v(1).scale(stride).plus(Var(5), 1).offset(-pad), v(2).scale(stride).plus(Var(6), 1).offset(-pad));
    let inside = |a: &Affine| [a.clone(), Affine::constant(size - 1).add_scaled(a, -1)];
    let conditions = inside(&row).into_iter().chain(inside(&column)).collect();
    let body = mul(Expr::load(x, vec![v(0), row, column, v(4)]), Expr::load(w, vec![v(3), v(4), v(5), v(6)]));
    let outer = format!("n 1, h {out}, w {out}, f {filters}");
    let all = format!("{outer}, c {channels}, r {kernel}, s {kernel}");
    define(&mut p, t, &all, 4, Some(BinaryOp::Add), conditions, body);
    define(&mut p, u, &outer, 4, None, vec![], add(Expr::load(t, vars(4)), Expr::load(b, vec![v(3)])));
    define(&mut p, y, &outer, 4, None, vec![], relu(Expr::load(u, vars(4))));
    p
}

/// Depthwise convolution, NHWC.
pub fn depthwise(size: i64, channels: i64, kernel: i64, stride: i64, pad: i64) -> Program {
    let out = (size + 2 * pad - kernel) / stride + 1;
    let mut p = Program::default();
    let x = tensor(&mut p, Role::Input, "X", &[1, size, size, channels]);
    let w = tensor(&mut p, Role::Constant, "W", &[channels, 1, kernel, kernel]);
    let y = tensor(&mut p, Role::Output, "Y", &[1, out, out, channels]);
    let (row, column) =
        (v(1).scale(stride).plus(Var(4), 1).offset(-pad), v(2).scale(stride).plus(Var(5), 1).offset(-pad));
    let inside = |a: &Affine| [a.clone(), Affine::constant(size - 1).add_scaled(a, -1)];
    let conditions = inside(&row).into_iter().chain(inside(&column)).collect();
    let body =
        mul(Expr::load(x, vec![v(0), row, column, v(3)]), Expr::load(w, vec![v(3), Affine::constant(0), v(4), v(5)]));
    let all = format!("n 1, h {out}, w {out}, c {channels}, r {kernel}, s {kernel}");
    define(&mut p, y, &all, 4, Some(BinaryOp::Add), conditions, body);
    p
}

/// Maximum over windows, NHWC.
pub fn maxpool(size: i64, channels: i64, kernel: i64, stride: i64, pad: i64) -> Program {
    let out = (size + 2 * pad - kernel) / stride + 1;
    let mut p = Program::default();
    let x = tensor(&mut p, Role::Input, "X", &[1, size, size, channels]);
    let y = tensor(&mut p, Role::Output, "Y", &[1, out, out, channels]);
    let (row, column) =
        (v(1).scale(stride).plus(Var(4), 1).offset(-pad), v(2).scale(stride).plus(Var(5), 1).offset(-pad));
    let inside = |a: &Affine| [a.clone(), Affine::constant(size - 1).add_scaled(a, -1)];
    let conditions = inside(&row).into_iter().chain(inside(&column)).collect();
    let body = Expr::load(x, vec![v(0), row, column, v(3)]);
    let all = format!("n 1, h {out}, w {out}, c {channels}, r {kernel}, s {kernel}");
    define(&mut p, y, &all, 4, Some(BinaryOp::Max), conditions, body);
    p
}

/// Softmax over the last of four dimensions.
pub fn softmax(heads: i64, rows: i64, columns: i64) -> Program {
    let mut p = Program::default();
    let full = [1, heads, rows, columns];
    let x = tensor(&mut p, Role::Input, "X", &full);
    let y = tensor(&mut p, Role::Output, "Y", &full);
    let m = tensor(&mut p, Role::Temporary, "top", &[1, heads, rows]);
    let e = tensor(&mut p, Role::Temporary, "e", &full);
    let s = tensor(&mut p, Role::Temporary, "total", &[1, heads, rows]);
    let all = format!("b 1, h {heads}, i {rows}, j {columns}");
    define(&mut p, m, &all, 3, Some(BinaryOp::Max), vec![], Expr::load(x, vars(4)));
    let shifted = sub(Expr::load(x, vars(4)), Expr::load(m, vars(3)));
    define(&mut p, e, &all, 4, None, vec![], Expr::unary(UnaryOp::Exp, shifted));
    define(&mut p, s, &all, 3, Some(BinaryOp::Add), vec![], Expr::load(e, vars(4)));
    define(
        &mut p,
        y,
        &all,
        4,
        None,
        vec![],
        Expr::binary(BinaryOp::Div, Expr::load(e, vars(4)), Expr::load(s, vars(3))),
    );
    p
}

/// Layer normalisation over the last of three dimensions.
pub fn layernorm(rows: i64, columns: i64) -> Program {
    let mut p = Program::default();
    let full = [1, rows, columns];
    let x = tensor(&mut p, Role::Input, "X", &full);
    let scale = tensor(&mut p, Role::Constant, "scale", &[columns]);
    let bias = tensor(&mut p, Role::Constant, "bias", &[columns]);
    let y = tensor(&mut p, Role::Output, "Y", &full);
    let total = tensor(&mut p, Role::Temporary, "total", &[1, rows]);
    let mean = tensor(&mut p, Role::Temporary, "mean", &[1, rows]);
    let centered = tensor(&mut p, Role::Temporary, "centered", &full);
    let square = tensor(&mut p, Role::Temporary, "square", &[1, rows]);
    let inverse = tensor(&mut p, Role::Temporary, "inverse", &[1, rows]);
    let all = format!("b 1, i {rows}, j {columns}");
    let outer = format!("b 1, i {rows}");
    let n = || Expr::f32(1.0 / columns as f32);
    let row = |t| Expr::load(t, vars(2));
    define(&mut p, total, &all, 2, Some(BinaryOp::Add), vec![], Expr::load(x, vars(3)));
    define(&mut p, mean, &outer, 2, None, vec![], mul(row(total), n()));
    define(&mut p, centered, &all, 3, None, vec![], sub(Expr::load(x, vars(3)), row(mean)));
    let c = || Expr::load(centered, vars(3));
    define(&mut p, square, &all, 2, Some(BinaryOp::Add), vec![], mul(c(), c()));
    let root = Expr::unary(UnaryOp::Sqrt, add(mul(row(square), n()), Expr::f32(1e-5)));
    define(&mut p, inverse, &outer, 2, None, vec![], Expr::binary(BinaryOp::Div, Expr::f32(1.0), root));
    let normal = mul(c(), row(inverse));
    define(
        &mut p,
        y,
        &all,
        3,
        None,
        vec![],
        add(mul(normal, Expr::load(scale, vec![v(2)])), Expr::load(bias, vec![v(2)])),
    );
    p
}

/// `Y = relu((X · 2 + X) + Z)` on four dimensions.
pub fn elementwise(shape: [i64; 4]) -> Program {
    let mut p = Program::default();
    let x = tensor(&mut p, Role::Input, "X", &shape);
    let z = tensor(&mut p, Role::Input, "Z", &shape);
    let y = tensor(&mut p, Role::Output, "Y", &shape);
    let a = tensor(&mut p, Role::Temporary, "a", &shape);
    let b = tensor(&mut p, Role::Temporary, "b", &shape);
    let all = format!("n {}, h {}, w {}, c {}", shape[0], shape[1], shape[2], shape[3]);
    define(&mut p, a, &all, 4, None, vec![], mul(Expr::load(x, vars(4)), Expr::f32(2.0)));
    define(
        &mut p,
        b,
        &all,
        4,
        None,
        vec![],
        add(add(Expr::load(a, vars(4)), Expr::load(x, vars(4))), Expr::load(z, vars(4))),
    );
    define(&mut p, y, &all, 4, None, vec![], relu(Expr::load(b, vars(4))));
    p
}

/// The input transform of Winograd's convolution F(4, 3): `P`, the values of the 6 × 6 matrix in row-major order.
const WINOGRAD_INPUT: [f32; 36] = [
    4., 0., -5., 0., 1., 0., 0., -4., -4., 1., 1., 0., 0., 4., -4., -1., 1., 0., //
    0., -2., -1., 2., 1., 0., 0., 2., -1., -2., 1., 0., 0., 4., 0., -5., 0., 1.,
];

/// `V[a][b][th][tw][c] = Σ_k P[b][k]·T[th][a][4·tw + k][c]` with `T[th][a][w][c] = Σ_k P[a][k]·X[4·th + k][w][c]`, for
/// `tiles` × `tiles` tiles.
pub fn winograd_input(tiles: i64, channels: i64, literals: bool) -> Program {
    let mut p = Program::default();
    let size = 4 * tiles + 2;
    let matrix = tensor(&mut p, Role::Constant, "P", &[6, 6]);
    let values = Literals::new(WINOGRAD_INPUT.map(Scalar::f32));
    p.tensors[0].literals = literals.then_some(values);
    let x = tensor(&mut p, Role::Input, "X", &[size, size, channels]);
    let t = tensor(&mut p, Role::Temporary, "T", &[tiles, 6, size, channels]);
    let y = tensor(&mut p, Role::Output, "V", &[6, 6, tiles, tiles, channels]);
    let row = v(0).scale(4).plus(Var(4), 1);
    let body = mul(Expr::load(matrix, vec![v(1), v(4)]), Expr::load(x, vec![row, v(2), v(3)]));
    let iterators = format!("th {tiles}, a 6, w {size}, c {channels}, k 6");
    define(&mut p, t, &iterators, 4, Some(BinaryOp::Add), vec![], body);
    let column = v(3).scale(4).plus(Var(5), 1);
    let body = mul(Expr::load(matrix, vec![v(1), v(5)]), Expr::load(t, vec![v(2), v(0), column, v(4)]));
    let iterators = format!("a 6, b 6, th {tiles}, tw {tiles}, c {channels}, k 6");
    define(&mut p, y, &iterators, 5, Some(BinaryOp::Add), vec![], body);
    p
}
