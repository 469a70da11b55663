use super::*;

#[test]
fn integers_wrap_truncate_and_take_the_divisors_sign() {
    let b = |op, a, b| binary(op, Value::I64(a), Value::I64(b)).unwrap();
    assert_eq!(b(BinaryOp::Div, -7, 2), Value::I64(-3));
    assert_eq!(b(BinaryOp::Mod, -7, 2), Value::I64(1));
    assert_eq!(b(BinaryOp::Mod, 7, -2), Value::I64(-1));
    assert_eq!(b(BinaryOp::Mod, 6, -2), Value::I64(0));
    assert_eq!(b(BinaryOp::Div, 1, 0), Value::I64(0));
    assert_eq!(b(BinaryOp::Add, i64::MAX, 1), Value::I64(i64::MIN));
    let u = |op, a, b| binary(op, Value::U8(a), Value::U8(b)).unwrap();
    assert_eq!(u(BinaryOp::Mod, 200, 7), Value::U8(200 % 7));
    assert_eq!(u(BinaryOp::Mod, 201, 200), Value::U8(1));
}

#[test]
fn extremes_keep_the_first_of_what_does_not_compare() {
    for op in [BinaryOp::Min, BinaryOp::Max] {
        let of = |a: f32, b: f32| f32::binary(op, a, b).unwrap();
        assert!(of(f32::NAN, 1.0).is_nan());
        assert_eq!(of(1.0, f32::NAN), 1.0);
        assert!(of(-0.0, 0.0).is_sign_negative() && of(0.0, -0.0).is_sign_positive());
    }
}

#[test]
fn reductions_keep_not_a_number_in_any_order() {
    let nan = Value::F32(f32::NAN);
    for op in [BinaryOp::Min, BinaryOp::Max] {
        let of = |total, value| accumulate(op, total, value).unwrap().as_f64();
        assert!(of(nan, Value::F32(1.0)).is_nan() && of(Value::F32(1.0), nan).is_nan());
        assert_eq!(of(Value::F32(1.0), Value::F32(1.0)), 1.0);
    }
    let lowest = Expr::Const(Scalar::of(DType::F32, f64::NEG_INFINITY));
    let body = Expr::binary(BinaryOp::Max, lowest, Expr::f32(2.0));
    assert_eq!(numbers_only(BinaryOp::Max, &body), Some(&Expr::f32(2.0)));
    assert_eq!(numbers_only(BinaryOp::Min, &body), None);
}

#[test]
fn halves_round_to_nearest_even_and_survive() {
    for h in 0..=u16::MAX {
        let wide = f16_to_f32(h);
        if !wide.is_nan() {
            assert_eq!(f32_to_f16(wide), h, "{wide}");
        }
    }
    assert_eq!(f32_to_f16(1.0 + 2f32.powi(-11)), 0x3c00);
    assert_eq!(f32_to_f16(1.0 + 3.0 * 2f32.powi(-11)), 0x3c02);
    assert_eq!(f32_to_f16(65520.0), 0x7c00);
    assert_eq!(f32_to_bf16(1.0 + 2f32.powi(-8)), 0x3f80);
}

#[test]
fn erf_agrees_with_tables() {
    for (x, y) in
        [(0.5, 0.5204998778130465), (1.0, 0.8427007929497149), (2.5, 0.999593047982555), (4.0, 0.9999999845827421)]
    {
        assert!((erf(x) - y).abs() < 1e-14 && (erf(-x) + y).abs() < 1e-14, "erf({x}) = {}", erf(x));
    }
}

#[test]
fn casts_saturate_from_floats_and_wrap_between_integers() {
    assert_eq!(cast(DType::I32, Value::F32(-1.9)), Value::I32(-1));
    assert_eq!(cast(DType::U8, Value::F32(300.0)), Value::U8(255));
    assert_eq!(cast(DType::U8, Value::I64(300)), Value::U8(44));
    assert_eq!(cast(DType::Bool, Value::F32(0.25)), Value::Bool(true));
    assert_eq!(cast(DType::I64, Value::F32(f32::NAN)), Value::I64(0));
}

#[test]
fn elements_survive_bytes() {
    for v in [Value::F64(0.1), Value::F16(0.5), Value::BF16(-2.0), Value::I32(-5), Value::I8(-1), Value::Bool(true)] {
        let mut bytes = [0xff; 8];
        v.store(&mut bytes);
        assert_eq!(Value::load(v.dtype(), &bytes), v);
    }
}
