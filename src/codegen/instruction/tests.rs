use super::*;
use crate::expr::{Affine, BinaryOp, BufferId};

/// `C(j) += i32(A(q)) * i32(B(j, q))` in 512 bits.
fn vpdpbusd() -> TensorInstruction {
    let operand = |name: &str, dtype, indices: &[u32], form| {
        let indices = indices.iter().map(|&v| Var(v)).collect();
        Operand { name: name.into(), dtype, indices, form, range: None }
    };
    let load = |n: u32, indices: &[u32]| {
        let index = indices.iter().map(|&v| Affine::var(Var(v))).collect();
        Expr::cast(DType::I32, Expr::load(BufferId(n), index))
    };
    TensorInstruction {
        name: InstructionName::new("vpdpbusd").unwrap(),
        features: Features::AVX512VNNI,
        iterators: vec![Iterator { name: "j".into(), extent: 16 }, Iterator { name: "q".into(), extent: 4 }],
        operands: vec![
            operand("C", DType::I32, &[0], Form::Vector),
            operand("A", DType::U8, &[1], Form::Broadcast),
            operand("B", DType::I8, &[0, 1], Form::Vector),
        ],
        constant: None,
        body: Expr::binary(BinaryOp::Mul, load(1, &[1]), load(2, &[0, 1])),
        order: SumOrder::Ascending,
        element: vec![],
        code: vec![Encoding::X86(X86Encoding {
            evex: true,
            vector_bits: 512,
            prefix: 0x66,
            map: 2,
            w: false,
            opcode: 0x50,
            reg: Slot::Operand(0),
            vvvv: Some(Slot::Operand(1)),
            rm: Slot::Operand(2),
            immediate: None,
        })],
    }
}

#[test]
fn evaluation_sums_groups_of_four_bytes() {
    let row = vpdpbusd();
    let a = row.register(1, &[1, 2, 3, 200], 64);
    let b: Vec<u8> = (0..64).map(|n| (n as i8 - 32) as u8).collect();
    let mut c = [7u8; 64];
    let before = i32::from_le_bytes([7; 4]);
    row.evaluate(&mut c, &[&a, &b]).unwrap();
    for j in 0..16 {
        let term = |q: i32| [1, 2, 3, 200][q as usize] * (4 * j as i32 + q - 32);
        let expected = before + (0..4).map(term).sum::<i32>();
        assert_eq!(i32::from_le_bytes(c[4 * j..][..4].try_into().unwrap()), expected, "element {j}");
    }
}

/// The code is what a decoder reads: all registers, each bit of a number set once.
#[test]
fn code_names_the_registers_of_the_operands() {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
    let row = vpdpbusd();
    for registers in [[0u8, 1, 2], [8, 17, 30], [31, 4, 16], [21, 26, 11]] {
        let bytes = row.bytes_of(&registers, &[]);
        let decoded = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
        assert_eq!((decoded.mnemonic(), decoded.len()), (Mnemonic::Vpdpbusd, bytes.len()));
        for (n, &r) in registers.iter().enumerate() {
            assert_eq!(decoded.op_kind(n as u32), OpKind::Register);
            assert_eq!(decoded.op_register(n as u32), Register::ZMM0 + r as u32);
        }
    }
}

/// As above where the prefix is VEX: each of the 16 registers in each field.
#[test]
fn code_of_vex_names_the_registers_of_the_operands() {
    use iced_x86::{Decoder, DecoderOptions, Register};
    let mut row = vpdpbusd();
    if let Encoding::X86(x) = &mut row.code[0] {
        (x.evex, x.vector_bits) = (false, 256);
    }
    for n in 0..16u8 {
        let registers = [n, (n + 5) % 16, (n + 11) % 16];
        let bytes = row.bytes_of(&registers, &[]);
        let decoded = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
        assert_eq!(decoded.len(), bytes.len());
        let found = [0, 1, 2].map(|i| decoded.op_register(i));
        assert_eq!(found, registers.map(|r| Register::YMM0 + u32::from(r)));
    }
}

/// Each slot of an encoding takes the register of its own operand, temporary or constant.
#[test]
fn registers_of_an_encoding_are_those_of_its_slots() {
    let slots = [Slot::Constant, Slot::Temporary(1), Slot::Operand(1)];
    let word =
        Encoding::Aarch64 { word: 0x4e80_9400, registers: slots.into_iter().zip([0, 5, 16]).collect(), low: vec![] };
    assert_eq!(word.registers(), slots);
    let row = TensorInstruction { code: vec![word.clone()], element: vec![word], ..vpdpbusd() };
    let expected = (0x4e80_9400u32 | 31 | 17 << 5 | 9 << 16).to_le_bytes();
    assert_eq!(row.bytes_of(&[3, 9, 12, 31], &[16, 17]), expected);
    assert_eq!(row.bytes_by_element(&[3, 9, 12, 31], &[16, 17]), expected);
    let Encoding::X86(x86) = &vpdpbusd().code[0] else { panic!() };
    assert_eq!(Encoding::X86(x86.clone()).registers(), [0, 1, 2].map(Slot::Operand));
}

/// `C(j) += A(p, q)` in 16 bytes: four terms for each of four sums.
fn four_terms(order: SumOrder) -> TensorInstruction {
    let mut row = vpdpbusd();
    let f32s = |name: &str, indices: &[u32]| Operand {
        name: name.into(),
        dtype: DType::F32,
        indices: indices.iter().map(|&v| Var(v)).collect(),
        form: Form::Vector,
        range: None,
    };
    row.iterators = [("j", 1), ("p", 2), ("q", 2)].map(|(name, extent)| Iterator { name: name.into(), extent }).into();
    row.operands = vec![f32s("C", &[0]), f32s("A", &[1, 2])];
    row.body = Expr::load(BufferId(1), vec![Affine::var(Var(1)), Affine::var(Var(2))]);
    row.order = order;
    row
}

/// Terms of half a unit in the last place are lost or kept by the order of their sum.
#[test]
fn orders_of_sums_round_apart() {
    let (one, small, ulp) = (1.0f32, f32::EPSILON / 2.0, f32::EPSILON);
    let sum = |order, before: f32, terms: [f32; 4]| {
        let terms: Vec<u8> = terms.iter().flat_map(|t| t.to_le_bytes()).collect();
        let mut c = before.to_le_bytes();
        four_terms(order).evaluate(&mut c, &[&terms]).unwrap();
        f32::from_le_bytes(c)
    };
    use SumOrder::{Apart, Ascending, Descending, Grouped};
    // Halves of the last place count where they meet each other first: neighbours, or terms at a distance of two.
    let neighbours = [0.0, 0.0, small, small];
    let distant = [small, 0.0, small, 0.0];
    for (order, terms, expected) in [
        (Ascending, neighbours, one),
        (Descending, neighbours, one),
        (Grouped, neighbours, one + ulp),
        (Grouped, distant, one),
        (Apart, neighbours, one + ulp),
        (Apart, distant, one + ulp),
    ] {
        assert_eq!(sum(order, one, terms), expected, "{order:?} {terms:?}");
    }
    // The sums of groups are added to the accumulator, those of terms apart to each other.
    let across = [small, 0.0, 0.0, small];
    assert_eq!((sum(Grouped, one, across), sum(Apart, one, across)), (one, one + ulp));
}

/// Operands that one order of the factors has found are forgotten where the other order is tried.
#[test]
fn the_other_order_of_factors_starts_anew() {
    let row = vpdpbusd();
    let load = |n: u32| Expr::load(BufferId(n), vec![Affine::var(Var(0))]);
    let value = Expr::binary(BinaryOp::Mul, Expr::cast(DType::I32, load(7)), Expr::cast(DType::I32, load(8)));
    // Either may be operand 1, the first alone operand 2.
    let found = row.unify(&value, &mut |n, part| n == 1 || part.access.buffer == BufferId(7)).unwrap();
    assert_eq!(found.iter().map(|a| a.buffer.0).collect::<Vec<_>>(), [8, 7]);
}

/// Factors and summands may change places, both at once; the operands of other operations may not.
#[test]
fn only_factors_and_summands_change_places() {
    let load = |n: u32| Expr::load(BufferId(n), vec![Affine::var(Var(0))]);
    let fits = &mut |n: usize, part: &Part| part.access.buffer == BufferId(6 + n as u32);
    for op in [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Sub, BinaryOp::Min, BinaryOp::Div] {
        let of = |a: u32, b: u32| Expr::binary(op, load(a), load(b));
        let row = TensorInstruction { body: of(1, 2), ..vpdpbusd() };
        let turned = matches!(op, BinaryOp::Add | BinaryOp::Mul);
        let found = |value: Expr, fits: &mut dyn FnMut(usize, &Part) -> bool| {
            row.unify(&value, fits).map(|found| found.iter().map(|a| a.buffer.0).collect::<Vec<_>>())
        };
        assert_eq!(found(of(7, 8), fits), Some(vec![7, 8]), "{op:?}");
        assert_eq!(found(of(8, 7), fits), turned.then(|| vec![7, 8]), "{op:?}");
        // One factor alone that fits in either place is not enough.
        for (a, b) in [(7, 7), (8, 8), (7, 9), (9, 7), (8, 9), (9, 8)] {
            assert_eq!(found(of(a, b), fits), None, "{op:?} {a} {b}");
        }
    }
}
