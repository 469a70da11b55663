use super::*;

fn f32(shape: &[i64]) -> TensorType {
    TensorType { dtype: DType::F32, shape: shape.to_vec() }
}

fn shape(op: &Op, inputs: &[&TensorType]) -> Vec<i64> {
    infer(op, inputs).unwrap()[0].shape.clone()
}

#[test]
fn shapes_broadcast_as_in_numpy() {
    assert_eq!(broadcast([&[2, 1, 3][..], &[4, 1]]), Some(vec![2, 4, 3]));
    assert_eq!(broadcast([&[][..], &[0, 5], &[1, 1]]), Some(vec![0, 5]));
    assert_eq!(broadcast([&[2][..], &[3]]), None);
}

#[test]
fn a_convolution_has_the_same_extents_in_every_layout() {
    let window = Window {
        kernel: vec![3, 3],
        stride: vec![2, 1],
        dilation: vec![1, 2],
        pad_before: vec![1, 2],
        pad_after: vec![1, 2],
    };
    let op = |layout| Op::Conv { window: window.clone(), group: 1, layout };
    let w = f32(&[20, 5, 3, 3]);
    assert_eq!(shape(&op(Layout::Nchw), &[&f32(&[1, 5, 9, 7]), &w]), [1, 20, 5, 7]);
    assert_eq!(shape(&op(Layout::Nhwc), &[&f32(&[1, 9, 7, 5]), &w]), [1, 5, 7, 20]);
    assert_eq!(shape(&op(Layout::Blocked(8)), &[&f32(&[1, 1, 9, 7, 8]), &w]), [1, 3, 5, 7, 8]);
    let pool = Op::Pool { kind: PoolKind::Max, window: window.clone(), layout: Layout::Blocked(8) };
    assert_eq!(shape(&pool, &[&f32(&[1, 3, 9, 7, 8])]), [1, 3, 5, 7, 8]);
    assert!(infer(&op(Layout::Nchw), &[&f32(&[1, 6, 9, 7]), &w]).is_err());
}

#[test]
fn slices_count_in_both_directions() {
    let slice = |start, end, step| Op::Slice { starts: vec![start], ends: vec![end], steps: vec![step] };
    assert_eq!(shape(&slice(1, 8, 3), &[&f32(&[8])]), [3]);
    assert_eq!(shape(&slice(7, -1, -2), &[&f32(&[8])]), [4]);
    assert_eq!(shape(&slice(5, 2, 1), &[&f32(&[8])]), [0]);
    assert!(infer(&slice(0, 9, 1), &[&f32(&[8])]).is_err());
    assert!(infer(&slice(0, 4, 0), &[&f32(&[8])]).is_err());
}

#[test]
fn huge_extents_are_refused() {
    let up = Op::Upsample { factors: vec![i64::MAX / 2, 4] };
    assert!(matches!(infer(&up, &[&f32(&[4, 4])]), Err(Error::Invalid(_))));
    let pad = Op::Pad { before: vec![i64::MAX], after: vec![1], value: 0 };
    assert!(infer(&pad, &[&f32(&[4])]).is_err());
}

#[test]
fn products_of_bytes_are_summed_in_i32() {
    let of = |dtype, shape: &[i64]| TensorType::new(dtype, shape);
    let mm = Op::MatMul { transpose_a: false, transpose_b: false };
    let ones = vec![1];
    let window =
        Window { kernel: ones.clone(), stride: ones.clone(), dilation: ones, pad_before: vec![0], pad_after: vec![0] };
    let conv = Op::Conv { window, group: 1, layout: Layout::Nchw };
    for a in [DType::I8, DType::U8] {
        for b in [DType::I8, DType::U8] {
            let product = infer(&mm, &[&of(a, &[2, 3]), &of(b, &[3, 4])]).unwrap();
            assert_eq!(product, [of(DType::I32, &[2, 4])]);
            let (x, w) = (of(a, &[1, 3, 5]), of(b, &[2, 3, 1]));
            assert_eq!(infer(&conv, &[&x, &w, &of(DType::I32, &[2])]).unwrap(), [of(DType::I32, &[1, 2, 5])]);
            assert!(infer(&conv, &[&x, &w, &of(a, &[2])]).is_err());
        }
        assert!(infer(&mm, &[&of(a, &[2, 3]), &of(DType::I32, &[3, 4])]).is_err());
        assert!(infer(&mm, &[&of(a, &[2, 3]), &of(DType::F32, &[3, 4])]).is_err());
        assert!(infer(&mm, &[&of(a, &[2, 3]), &of(DType::I16, &[3, 4])]).is_err());
    }
    let words = [&of(DType::I16, &[2, 3]), &of(DType::I16, &[3, 4])];
    assert_eq!(infer(&mm, &words).unwrap(), [of(DType::I32, &[2, 4])]);
}

#[test]
fn products_batch_and_transpose() {
    let mm = |a, b| Op::MatMul { transpose_a: a, transpose_b: b };
    assert_eq!(shape(&mm(false, false), &[&f32(&[7, 1, 2, 3]), &f32(&[5, 3, 4])]), [7, 5, 2, 4]);
    assert_eq!(shape(&mm(true, true), &[&f32(&[3, 2]), &f32(&[4, 3])]), [2, 4]);
    let message = infer(&mm(false, true), &[&f32(&[2, 3]), &f32(&[3, 4])]).unwrap_err().to_string();
    assert!(message.contains("inner extents 3 and 4"), "{message}");
}
