use super::number::erf;
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

#[test]
fn shifts_out_of_all_bits_leave_the_sign() {
    let b = |op, a: Value, n: i64| binary(op, a, Value::from_i64(a.dtype(), n)).unwrap();
    assert_eq!(b(BinaryOp::ShiftLeft, Value::I32(-8), 2), Value::I32(-32));
    assert_eq!(b(BinaryOp::ShiftRight, Value::I32(-8), 1), Value::I32(-4));
    for n in [-1, 32, 100] {
        assert_eq!(b(BinaryOp::ShiftLeft, Value::I32(-8), n), Value::I32(0), "{n}");
        assert_eq!(b(BinaryOp::ShiftRight, Value::I32(-8), n), Value::I32(-1), "{n}");
        assert_eq!(b(BinaryOp::ShiftRight, Value::I32(8), n), Value::I32(0), "{n}");
    }
    assert_eq!(b(BinaryOp::ShiftRight, Value::U64(u64::MAX), 63), Value::U64(1));
    assert_eq!(b(BinaryOp::ShiftLeft, Value::U8(255), 4), Value::U8(0xf0));
}

#[test]
fn bits_are_seen_as_another_type() {
    assert_eq!(bitcast(DType::I32, Value::F32(1.0)), Value::I32(0x3f80_0000));
    assert_eq!(bitcast(DType::F64, Value::U64(0x3ff0 << 48)), Value::F64(1.0));
    assert_eq!(bitcast(DType::I8, Value::U8(255)), Value::I8(-1));
    assert_eq!(bitcast(DType::F8E5M2, Value::U8(0x3c)).as_f64(), 1.0);
}

#[test]
fn every_number_of_a_storage_type_survives() {
    for dtype in DType::all().filter(|d| d.is_storage()) {
        for byte in (0..=255u8).filter(|&b| storage::canonical(dtype, b) == b) {
            let v = storage::decode(dtype, byte);
            let back = storage::encode(dtype, v);
            // infinities saturate
            let beyond = v.is_infinite();
            assert!(
                back == byte || beyond || v.is_nan() && storage::decode(dtype, back).is_nan(),
                "{dtype} {byte:#x} is {v}"
            );
        }
    }
    let known = [
        (DType::F8E4M3Fn, 0x7e, 448.0),
        (DType::F8E4M3FnUz, 0x7f, 240.0),
        (DType::F8E5M2, 0x7b, 57344.0),
        (DType::F8E5M2FnUz, 0x7f, 57344.0),
        (DType::F8E8M0, 0x80, 2.0),
        (DType::F4E2M1, 0x7, 6.0),
        (DType::I4, 0xf8, -8.0),
        (DType::U2, 3, 3.0),
    ];
    for (dtype, byte, value) in known {
        assert_eq!(storage::decode(dtype, byte), value, "{dtype}");
    }
    assert_eq!(storage::encode(DType::F8E5M2, f64::INFINITY), 0x7b);
    assert_eq!(storage::encode(DType::F8E4M3Fn, 17.0), storage::encode(DType::F8E4M3Fn, 16.0));
}
