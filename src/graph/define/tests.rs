use super::*;
use crate::graph::op::{F32, FusionKind, Layout, PoolKind, ReduceOp, Window};
use crate::poly::normalize::build::build;
use crate::poly::statement::Role;

fn t(dtype: DType, shape: &[i64]) -> TensorType {
    TensorType::new(dtype, shape)
}

fn f(shape: &[i64]) -> TensorType {
    t(DType::F32, shape)
}

fn window(kernel: &[i64], stride: &[i64], dilation: &[i64], pad: &[i64]) -> Window {
    Window {
        kernel: kernel.to_vec(),
        stride: stride.to_vec(),
        dilation: dilation.to_vec(),
        pad_before: pad.to_vec(),
        pad_after: pad.to_vec(),
    }
}

/// One case or more of every operator.
pub(crate) fn cases() -> Vec<(Op, Vec<TensorType>)> {
    let mut out: Vec<(Op, Vec<TensorType>)> = vec![
        (Op::Select, vec![t(DType::Bool, &[3, 1]), f(&[1, 4]), f(&[])]),
        (Op::Cast(DType::I64), vec![f(&[5])]),
        (Op::Sigmoid, vec![f(&[2, 3])]),
        (Op::Silu, vec![f(&[2, 3])]),
        (Op::HardSwish, vec![f(&[2, 3])]),
        (Op::Gelu, vec![f(&[2, 3])]),
        (Op::Elu { alpha: F32::new(1.5), scale: F32::new(1.05), divisor: F32::new(0.5) }, vec![f(&[2, 3])]),
        (Op::ThresholdedRelu { alpha: F32::new(0.25) }, vec![f(&[2, 3])]),
        (Op::PRelu, vec![f(&[2, 3, 4]), f(&[3, 1])]),
        (Op::Transpose { perm: vec![2, 0, 1] }, vec![f(&[2, 3, 4])]),
        (Op::Reshape { shape: vec![4, 1, 3, 2] }, vec![f(&[2, 2, 6])]),
        (Op::Reshape { shape: vec![8, 3] }, vec![f(&[6, 4])]),
        (Op::Expand { shape: vec![2, 3, 4] }, vec![f(&[3, 1])]),
        (Op::Slice { starts: vec![4, 1], ends: vec![-1, 6], steps: vec![-2, 3] }, vec![f(&[5, 7])]),
        (Op::Concat { axis: 1 }, vec![f(&[2, 1, 3]), f(&[2, 4, 3]), f(&[2, 2, 3])]),
        (Op::Pad { before: vec![0, 2], after: vec![1, 0], value: 0x3f80_0000 }, vec![f(&[2, 3])]),
        (Op::Block { block: 4 }, vec![f(&[1, 6, 2, 3])]),
        (Op::Unblock { channels: 6 }, vec![f(&[1, 2, 2, 3, 4])]),
        (Op::Unblock { channels: 8 }, vec![f(&[1, 2, 2, 3, 4])]),
        (Op::Upsample { factors: vec![1, 1, 2, 3] }, vec![f(&[1, 2, 3, 2])]),
        (Op::Gather { axis: 1 }, vec![f(&[2, 5, 3]), t(DType::I64, &[2, 2])]),
        (Op::Gather { axis: 0 }, vec![f(&[5, 3]), t(DType::I32, &[])]),
        (Op::GatherElements { axis: 1 }, vec![f(&[2, 5]), t(DType::I64, &[2, 3])]),
        (Op::Lookup, vec![f(&[5, 3]), t(DType::I32, &[2, 2])]),
        (Op::Table, vec![t(DType::I8, &[256]), t(DType::U8, &[2, 3])]),
        (Op::GatherNd { batch_dims: 1 }, vec![f(&[2, 5, 4, 3]), t(DType::I64, &[2, 3, 2])]),
        (Op::LayerNorm { axis: 1, epsilon: crate::graph::op::F32::new(1e-5) }, vec![f(&[3, 8]), f(&[8]), f(&[8])]),
        (Op::LayerNorm { axis: 1, epsilon: crate::graph::op::F32::new(1e-5) }, vec![f(&[3, 2, 4]), f(&[2, 4])]),
        (Op::MatMul { transpose_a: false, transpose_b: false }, vec![f(&[2, 1, 3, 4]), f(&[5, 4, 6])]),
        (Op::MatMul { transpose_a: true, transpose_b: true }, vec![f(&[4, 3]), f(&[6, 4])]),
    ];
    out.push((
        Op::HardSigmoid { alpha: crate::graph::op::F32::new(0.2), beta: crate::graph::op::F32::new(0.5) },
        vec![f(&[7])],
    ));
    for &op in UnaryOp::ALL {
        let dtype = match op {
            UnaryOp::Not => DType::Bool,
            UnaryOp::CountOnes => DType::I32,
            _ => DType::F32,
        };
        out.push((Op::Unary(op), vec![t(dtype, &[2, 3])]));
    }
    for &op in BinaryOp::ALL {
        let dtype = match op {
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => DType::Bool,
            BinaryOp::ShiftLeft | BinaryOp::ShiftRight => DType::I32,
            _ => DType::F32,
        };
        out.push((Op::Binary(op), vec![t(dtype, &[2, 1]), t(dtype, &[3])]));
    }
    for &op in crate::expr::CompareOp::ALL {
        out.push((Op::Compare(op), vec![t(DType::I64, &[2, 3]), t(DType::I64, &[3])]));
    }
    for &op in ReduceOp::ALL {
        for keep in [false, true] {
            out.push((Op::Reduce { op, axes: vec![0, 2], keep }, vec![f(&[3, 4, 5])]));
        }
    }
    for log in [false, true] {
        out.push((Op::Softmax { axis: 1, log }, vec![f(&[2, 5, 3])]));
    }
    let w = window(&[3, 2], &[2, 1], &[1, 2], &[1, 1]);
    for layout in [Layout::Nchw, Layout::Nhwc, Layout::Blocked(4)] {
        let image = |c: i64| match layout {
            Layout::Nchw => f(&[2, c, 5, 6]),
            Layout::Nhwc => f(&[2, 5, 6, c]),
            Layout::Blocked(b) => f(&[2, (c + b as i64 - 1) / b as i64, 5, 6, b as i64]),
        };
        for kind in
            [PoolKind::Max, PoolKind::Average { count_padding: true }, PoolKind::Average { count_padding: false }]
        {
            out.push((Op::Pool { kind, window: w.clone(), layout }, vec![image(8)]));
        }
        // channels, filters, groups: dense, depthwise, grouped by whole blocks
        for (c, n, group) in [(6, 10, 1), (8, 8, 8), (8, 16, 2)] {
            let conv = Op::Conv { window: w.clone(), group, layout };
            out.push((conv.clone(), vec![image(c), f(&[n, c / group, 3, 2])]));
            out.push((conv, vec![image(c), f(&[n, c / group, 3, 2]), f(&[n])]));
            let transposed = Op::ConvTranspose { window: w.clone(), group, output_pad: vec![1, 0], layout };
            out.push((transposed.clone(), vec![image(c), f(&[c, n / group, 3, 2])]));
            out.push((transposed, vec![image(c), f(&[c, n / group, 3, 2]), f(&[n])]));
        }
        // so many phases that they are an iterator
        let wide = window(&[7, 4], &[5, 4], &[1, 1], &[2, 1]);
        let transposed = Op::ConvTranspose { window: wide, group: 2, output_pad: vec![0, 0], layout };
        out.push((transposed.clone(), vec![image(8), f(&[8, 8, 7, 4])]));
        out.push((transposed, vec![image(8), f(&[8, 8, 7, 4]), f(&[16])]));
    }
    let depthwise = Op::Conv { window: w.clone(), group: 4, layout: Layout::Nhwc };
    out.push((depthwise, vec![f(&[1, 5, 6, 4]), f(&[12, 1, 3, 2])]));
    // a kernel smaller than the stride leaves phases without taps
    let sparse = window(&[1, 2], &[2, 3], &[1, 1], &[0, 0]);
    let transposed = Op::ConvTranspose { window: sparse, group: 1, output_pad: vec![0, 0], layout: Layout::Nchw };
    out.push((transposed, vec![f(&[1, 3, 4, 2]), f(&[3, 2, 1, 2])]));
    for (a, b) in [(DType::U8, DType::I8), (DType::I8, DType::I8), (DType::I8, DType::U8), (DType::U8, DType::U8)] {
        let product = Op::MatMul { transpose_a: false, transpose_b: true };
        out.push((product, vec![t(a, &[2, 3, 5]), t(b, &[4, 5])]));
        for (layout, shape) in [(Layout::Nchw, [2, 6, 5, 7]), (Layout::Nhwc, [2, 5, 7, 6])] {
            let conv = Op::Conv { window: w.clone(), group: 2, layout };
            out.push((conv.clone(), vec![t(a, &shape), t(b, &[4, 3, 3, 2])]));
            out.push((conv, vec![t(a, &shape), t(b, &[4, 3, 3, 2]), t(DType::I32, &[4])]));
        }
    }
    let line = window(&[3], &[1], &[1], &[1]);
    out.push((Op::Conv { window: line, group: 1, layout: Layout::Nchw }, vec![f(&[1, 4, 9]), f(&[5, 4, 3])]));
    out
}

#[test]
fn every_definition_becomes_a_scop_within_bounds() {
    for (op, types) in cases() {
        let program = define(&op, &types).unwrap_or_else(|e| panic!("{op}: {e}"));
        let inferred = infer(&op, &types.iter().collect::<Vec<_>>()).unwrap();
        let y = &program.tensors[types.len()];
        assert_eq!((y.role, y.dtype, &y.shape), (Role::Output, inferred[0].dtype, &inferred[0].shape), "{op}");
        build("case", &program).unwrap_or_else(|e| panic!("{op} of {types:?}: {e}"));
    }
}

#[test]
fn convolutions_keep_one_iteration_order_in_each_layout() {
    let names = |layout, x: &[i64], w: &[i64], group| {
        let op = Op::Conv { window: window(&[3, 3], &[1, 1], &[1, 1], &[1, 1]), group, layout };
        let p = define(&op, &[f(x), f(w)]).unwrap();
        let d = &p.definitions[0];
        let names: Vec<&str> = d.iterators.iter().map(|i| &i.name[..]).collect();
        (names[..d.outer].join(" "), names[d.outer..].join(" "))
    };
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    assert_eq!(names(Layout::Nchw, &[1, 8, 5, 5], &[16, 8, 3, 3], 1), pair("n f h w", "c r s"));
    assert_eq!(names(Layout::Nhwc, &[1, 5, 5, 8], &[16, 8, 3, 3], 1), pair("n h w f", "r s c"));
    assert_eq!(names(Layout::Nhwc, &[1, 5, 5, 8], &[8, 1, 3, 3], 8), pair("n h w f", "r s"));
    assert_eq!(names(Layout::Nchw, &[1, 8, 5, 5], &[16, 4, 3, 3], 2), pair("n g f h w", "c r s"));
    assert_eq!(names(Layout::Blocked(4), &[1, 2, 5, 5, 4], &[16, 8, 3, 3], 1), pair("n fo h w fi", "co r s ci"));
}

#[test]
fn every_sample_of_the_operator_table_is_defined() {
    for (op, types) in Op::samples() {
        assert!(op.arity().contains(&types.len()), "{op}");
        let inferred = infer(op, &types.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{op}: {e}"));
        if op.kind() == FusionKind::Opaque {
            continue;
        }
        let program = define(op, types).unwrap_or_else(|e| panic!("{op}: {e}"));
        let result = &program.tensors[types.len()];
        assert_eq!((result.dtype, &result.shape), (inferred[0].dtype, &inferred[0].shape), "{op}");
        let operands = || types.iter().map(|_| Expr::f32(0.5)).collect();
        assert_eq!(scalar(op, types[0].dtype, operands()).is_some(), op.is_elementwise(), "{op}");
        build("sample", &program).unwrap_or_else(|e| panic!("{op}: {e}"));
    }
}
