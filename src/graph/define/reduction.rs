//! Reductions of axes, softmax, layer normalization and the matrix product.

use crate::expr::Affine;
use crate::expr::{BinaryOp, BufferId, CompareOp, Expr, UnaryOp};
use crate::graph::define::space::{Build, Space, constant, exp};
use crate::graph::op::ReduceOp;
use crate::runtime::DType;

/// The iterators of `shape`: those of `axes` reduced, in one order of memory. Subscripts of the operand, and of a tensor of
/// the same rank in which the axes have extent 1.
struct Axes {
    space: Space,
    operand: Vec<Affine>,
    kept: Vec<Affine>,
}

fn reduced(shape: &[i64], axes: &[usize]) -> Axes {
    let mut space = Space::new();
    let mut operand = vec![Affine::constant(0); shape.len()];
    let mut kept = operand.clone();
    for d in (0..shape.len()).filter(|d| !axes.contains(d)) {
        operand[d] = space.iterator(format!("i{d}"), shape[d]);
        kept[d] = operand[d].clone();
    }
    space.reduced();
    for &d in axes {
        operand[d] = space.iterator(format!("r{d}"), shape[d]);
    }
    Axes { space, operand, kept }
}

pub(super) fn reduce(b: &mut Build, op: ReduceOp, axes: &[usize], keep: bool) {
    let shape = b.inputs[0].shape.clone();
    let dtype = b.output.dtype;
    let output = b.output.shape.clone();
    let count: i64 = axes.iter().map(|&a| shape[a]).product();
    let Axes { space, operand, kept } = reduced(&shape, axes);
    let rank = shape.len();
    let write: Vec<Affine> = (0..rank).filter(|d| keep || !axes.contains(d)).map(|d| kept[d].clone()).collect();
    let x = Expr::load(b.input(0), operand);
    let value = |buffer: BufferId, s: &Space| Expr::load(buffer, s.subscripts());
    let space_out = Space::over(&output);
    let (combine, body) = match op {
        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::LogSum => (BinaryOp::Add, x),
        ReduceOp::Max => (BinaryOp::Max, x),
        ReduceOp::Min => (BinaryOp::Min, x),
        ReduceOp::Prod => (BinaryOp::Mul, x),
        ReduceOp::SumSquare | ReduceOp::L2 => (BinaryOp::Add, x.clone() * x),
        ReduceOp::L1 => (BinaryOp::Add, Expr::unary(UnaryOp::Abs, x)),
        ReduceOp::LogSumExp => {
            let (most, m) = (b.temporary("most", &output), b.temporary("m", &output));
            b.define(most, space.clone(), write.clone(), Some(BinaryOp::Max), vec![], numbers(dtype, x.clone()));
            // an infinity would be subtracted from itself
            let greatest = value(most, &space_out);
            let infinite = Expr::unary(UnaryOp::Abs, greatest.clone());
            let infinite = Expr::compare(CompareOp::Eq, infinite, constant(dtype, f64::INFINITY));
            b.assign(m, space_out.clone(), Expr::select(infinite, constant(dtype, 0.0), greatest));
            (BinaryOp::Add, exp(x - Expr::load(m, write.clone())))
        }
    };
    let finish: Option<Box<dyn Fn(Expr) -> Expr>> = match op {
        ReduceOp::Mean if dtype.is_float() => Some(Box::new(|s| s * constant(dtype, 1.0 / count as f64))),
        ReduceOp::Mean => Some(Box::new(|s| s / constant(dtype, count as f64))),
        ReduceOp::L2 => Some(Box::new(|s| Expr::unary(UnaryOp::Sqrt, s))),
        ReduceOp::LogSum | ReduceOp::LogSumExp => Some(Box::new(|s| Expr::unary(UnaryOp::Log, s))),
        _ => None,
    };
    let Some(finish) = finish else {
        return b.define(b.target(), space, write, Some(combine), vec![], body);
    };
    let s = b.temporary("s", &output);
    b.define(s, space, write, Some(combine), vec![], body);
    let mut y = finish(value(s, &space_out));
    if op == ReduceOp::LogSumExp {
        let m = BufferId(s.0 - 1);
        y = y + value(m, &space_out);
    }
    b.assign(b.target(), space_out, y);
}

/// The body of a greatest element that leaves not-a-number out. It reaches the result by the sum of the exponentials,
/// so that the greatest element need not keep it.
fn numbers(dtype: DType, x: Expr) -> Expr {
    if dtype.is_float() { Expr::binary(BinaryOp::Max, constant(dtype, f64::NEG_INFINITY), x) } else { x }
}

/// Greatest element, exponentials, their sum, quotient; of the logarithm: without the exponentials as a tensor.
pub(super) fn softmax(b: &mut Build, axis: usize, log: bool) {
    let shape = b.inputs[0].shape.clone();
    let dtype = b.output.dtype;
    let rows: Vec<i64> = (0..shape.len()).filter(|&d| d != axis).map(|d| shape[d]).collect();
    let Axes { space, operand, .. } = reduced(&shape, &[axis]);
    let domain = Space::over(&shape);
    let of_row: Vec<Affine> = (0..shape.len()).filter(|&d| d != axis).map(|d| domain.var(d)).collect();
    let m = b.temporary("m", &rows);
    let row = space.subscripts();
    let x = |index: &[Affine]| Expr::load(BufferId(0), index.to_vec());
    b.define(m, space.clone(), row.clone(), Some(BinaryOp::Max), vec![], numbers(dtype, x(&operand)));
    let shifted = x(&domain.subscripts()) - Expr::load(m, of_row.clone());
    if log {
        let (s, l) = (b.temporary("s", &rows), b.temporary("l", &rows));
        let body = exp(x(&operand) - Expr::load(m, row.clone()));
        b.define(s, space.clone(), row.clone(), Some(BinaryOp::Add), vec![], body);
        let each = Space::over(&rows);
        let sum = Expr::load(s, each.subscripts());
        b.assign(l, each, Expr::unary(UnaryOp::Log, sum));
        return b.assign(b.target(), domain, shifted - Expr::load(l, of_row));
    }
    let (e, s, r) = (b.temporary("e", &shape), b.temporary("s", &rows), b.temporary("r", &rows));
    b.assign(e, domain.clone(), exp(shifted));
    b.define(s, space.clone(), row, Some(BinaryOp::Add), vec![], Expr::load(e, operand));
    let each = Space::over(&rows);
    let sum = Expr::load(s, each.subscripts());
    b.assign(r, each, constant(dtype, 1.0) / sum);
    let body = Expr::load(e, domain.subscripts()) * Expr::load(r, of_row);
    b.assign(b.target(), domain, body);
}

/// Mean, variance around it, then scale and bias.
pub(super) fn layer_norm(b: &mut Build, axis: usize, epsilon: f32) {
    let shape = b.inputs[0].shape.clone();
    let dtype = b.output.dtype;
    let rows = shape[..axis].to_vec();
    let axes: Vec<usize> = (axis..shape.len()).collect();
    let count: i64 = shape[axis..].iter().product();
    let share = || constant(dtype, 1.0 / count as f64);
    let Axes { space, operand, .. } = reduced(&shape, &axes);
    let row = space.subscripts();
    let each = || Space::over(&rows);
    let [s, mean, v, r] = ["s", "mean", "v", "r"].map(|name| b.temporary(name, &rows));
    let x = Expr::load(b.input(0), operand);
    b.define(s, space.clone(), row.clone(), Some(BinaryOp::Add), vec![], x.clone());
    b.assign(mean, each(), Expr::load(s, row.clone()) * share());
    let d = x - Expr::load(mean, row.clone());
    b.define(v, space, row.clone(), Some(BinaryOp::Add), vec![], d.clone() * d);
    let variance = Expr::load(v, row.clone()) * share() + constant(dtype, epsilon as f64);
    b.assign(r, each(), constant(dtype, 1.0) / Expr::unary(UnaryOp::Sqrt, variance));
    let domain = Space::over(&shape);
    let centered = Expr::load(b.input(0), domain.subscripts()) - Expr::load(mean, row.clone());
    let mut y = centered * Expr::load(r, row) * b.broadcast(1, &domain);
    if b.inputs.len() == 3 {
        y = y + b.broadcast(2, &domain);
    }
    b.assign(b.target(), domain, y);
}

pub(super) fn matmul(b: &mut Build, transpose_a: bool, transpose_b: bool) {
    let output = b.output.shape.clone();
    let batch = output.len() - 2;
    let shape_a = &b.inputs[0].shape;
    let depth = shape_a[shape_a.len() - if transpose_a { 2 } else { 1 }];
    let mut space = Space::new();
    let batches: Vec<Affine> = (0..batch).map(|d| space.iterator(format!("b{d}"), output[d])).collect();
    let m = space.iterator("m", output[batch]);
    let n = space.iterator("n", output[batch + 1]);
    space.reduced();
    let k = space.iterator("k", depth);
    let operand = |i: usize, row: &Affine, column: &Affine, transposed: bool| {
        let shape = &b.inputs[i].shape;
        let batch_dims = shape.len() - 2;
        let subscript = |d: usize| {
            let stretched = shape[d] == 1 && output[d + batch - batch_dims] != 1;
            if stretched { Affine::constant(0) } else { batches[d + batch - batch_dims].clone() }
        };
        let mut index: Vec<Affine> = (0..batch_dims).map(subscript).collect();
        index.extend(if transposed { [column.clone(), row.clone()] } else { [row.clone(), column.clone()] });
        Expr::load(b.input(i), index)
    };
    let body = b.widened(0, operand(0, &m, &k, transpose_a)) * b.widened(1, operand(1, &k, &n, transpose_b));
    let write = space.subscripts();
    b.define(b.target(), space, write, Some(BinaryOp::Add), vec![], body);
}

/// The sums of each block, in the type of the products, then the sum of these times factors and scales.
pub(super) fn block_product(b: &mut Build, packed: bool) {
    let shape = b.inputs[0].shape.clone();
    let (rows, blocks, terms, columns) = (shape[0], shape[1], shape[2], b.output.shape[1]);
    let (whole, numbers) = (b.inputs[0].dtype != DType::F32, b.inputs[1].dtype);
    let dtype = if whole { DType::I32 } else { DType::F32 };
    let sums = b.temporary_of(dtype, "s", &[rows, columns, blocks]);
    let half = if packed { terms / 2 } else { terms };
    let mut space = Space::new();
    // Rows and columns are those of the result: their loops are around both sums.
    let (row, column) = (space.iterator("m", rows), space.iterator("n", columns));
    let block = space.iterator("b", blocks);
    space.reduced();
    let term = space.iterator("k", half);
    let x = |first: i64| {
        let index = vec![row.clone(), block.clone(), term.clone().offset(first)];
        Expr::load(b.input(0), index)
    };
    let weight = || Expr::load(b.input(1), vec![block.clone(), term.clone(), column.clone()]);
    let product =
        |x: Expr, w: Expr| if whole { Expr::cast(dtype, x) * Expr::cast(dtype, w) } else { x * Expr::cast(dtype, w) };
    let four_bits = |w: Expr| Expr::binary(BinaryOp::And, w, constant(numbers, 15.0));
    let body = match packed {
        true => {
            let high = Expr::binary(BinaryOp::ShiftRight, weight(), constant(numbers, 4.0));
            product(x(0), four_bits(weight())) + product(x(half), four_bits(high))
        }
        false => product(x(0), weight()),
    };
    let write = space.subscripts();
    b.define(sums, space, write, Some(BinaryOp::Add), vec![], body);
    let mut space = Space::new();
    let (row, column) = (space.iterator("m", rows), space.iterator("n", columns));
    space.reduced();
    let block = space.iterator("b", blocks);
    let of_row = |i: usize| Expr::load(b.input(i), vec![row.clone(), block.clone()]);
    let of_column = |i: usize| Expr::load(b.input(i), vec![block.clone(), column.clone()]);
    let mut sum = Expr::load(sums, vec![row.clone(), column.clone(), block.clone()]);
    if whole {
        let offset = match b.inputs.len() {
            6 => of_row(4) * Expr::cast(dtype, of_column(5)),
            _ => of_row(4),
        };
        sum = Expr::cast(DType::F32, sum + offset) * of_row(3);
    }
    let write = space.subscripts();
    b.define(b.target(), space, write, Some(BinaryOp::Add), vec![], sum * of_column(2));
}
