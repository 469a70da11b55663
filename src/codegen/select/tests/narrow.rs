//! Random expressions over integers of 8 and 16 bits, by way of wider ones: narrow lanes compute what the types say.

use super::{arguments, check, run};
use crate::codegen::Target;
use crate::codegen::loopnest::{LoopNest, Stmt, interpret, parse};
use crate::codegen::select::lower;
use crate::codegen::vcode::{Function, Inst, Lane, ShiftOp, VBinary, VUnary};
use crate::expr::scalar::{Value, cast};
use crate::expr::{Affine, BinaryOp, BufferId, CompareOp, Expr, Scalar, UnaryOp, Var};
use crate::runtime::DType;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const NARROW: [DType; 4] = [DType::U8, DType::I8, DType::U16, DType::I16];

struct Generator<'a> {
    rng: &'a mut StdRng,
    /// A read of each narrow type.
    reads: &'a [(DType, Expr)],
}

impl Generator<'_> {
    fn constant(&mut self, dtype: DType) -> Expr {
        let v = *[0, 1, 2, 3, 5, 7, 9, 64, 100, 127, 128, 255, 1000, -1, -3, -128].choose(self.rng).unwrap();
        Expr::Const(Scalar::from(cast(dtype, Value::I64(v))))
    }

    fn leaf(&mut self, dtype: DType) -> Expr {
        if self.rng.random_bool(0.2) {
            return self.constant(dtype);
        }
        let (from, read) = self.reads.choose(self.rng).unwrap().clone();
        if from == dtype { read } else { Expr::cast(dtype, read) }
    }

    fn expression(&mut self, dtype: DType, depth: u32) -> Expr {
        if depth == 0 {
            return self.leaf(dtype);
        }
        let small =
            |rng: &mut StdRng, most| Expr::Const(Scalar::from(cast(dtype, Value::I64(rng.random_range(0..most)))));
        use BinaryOp::*;
        match self.rng.random_range(0..14) {
            0..6 => {
                let op = *[Add, Add, Sub, Mul, Min, Max, And, Or, Xor].choose(self.rng).unwrap();
                Expr::binary(op, self.expression(dtype, depth - 1), self.expression(dtype, depth - 1))
            }
            6 => {
                let op = if self.rng.random() { ShiftLeft } else { ShiftRight };
                let bits = 8 * dtype.bytes() as i64;
                Expr::binary(op, self.expression(dtype, depth - 1), small(self.rng, bits.min(18)))
            }
            7 => {
                let op = if self.rng.random() { Div } else { Mod };
                Expr::binary(op, self.expression(dtype, depth - 1), self.constant(dtype))
            }
            8 => {
                let op = *[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Not].choose(self.rng).unwrap();
                Expr::unary(op, self.expression(dtype, depth - 1))
            }
            9 => Expr::unary(UnaryOp::Abs, Expr::binary(Sub, self.leaf(dtype), self.leaf(dtype))),
            10 | 11 => {
                let of = *[dtype, DType::I32, DType::U8].choose(self.rng).unwrap();
                let op = *CompareOp::ALL.choose(self.rng).unwrap();
                let condition = Expr::compare(op, self.expression(of, depth - 1), self.expression(of, depth - 1));
                Expr::select(condition, self.expression(dtype, depth - 1), self.expression(dtype, depth - 1))
            }
            _ => {
                let of =
                    *[DType::I32, DType::I32, DType::I16, DType::U16, DType::U8, DType::I8].choose(self.rng).unwrap();
                let inner = self.expression(of, depth - 1);
                if of == dtype { inner } else { Expr::cast(dtype, inner) }
            }
        }
    }
}

/// `body` with `value` in place of each stored value.
fn with_value(body: &[Stmt], value: &Expr) -> Vec<Stmt> {
    let each = body.iter().map(|stmt| match stmt {
        Stmt::Store { buffer, index, reduce, .. } => {
            Stmt::Store { buffer: *buffer, index: index.clone(), value: value.clone(), reduce: *reduce }
        }
        other => other.with_body(with_value(other.body(), value)),
    });
    each.collect()
}

/// A nest over `i` and `v`, with a value in place of each that is stored.
fn nest(statement: &str, output: DType, value: impl FnOnce(&[(DType, Expr)]) -> Expr) -> LoopNest {
    let text = format!(
        "kernel p {{ A: u8[200] argument 0; B: i8[200] argument 1; C: u16[200] argument 2; D: i16[200] argument 3;
         O: {output}[200] argument 4 written; parallel i in 0..2 {{ {statement} }} }}"
    );
    let mut nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let place = |k: i64| Affine::var(Var(1)).plus(Var(0), 90).offset(3 * k);
    let read = |(k, &dtype): (usize, &DType)| (dtype, Expr::load(BufferId(k as u32), vec![place(k as i64)]));
    let reads: Vec<(DType, Expr)> = NARROW.iter().enumerate().map(read).collect();
    nest.body = with_value(&nest.body, &value(&reads));
    nest
}

fn is_narrow(inst: &Inst) -> bool {
    matches!(inst, Inst::VBinary { ty, .. } | Inst::VUnary { ty, .. } if ty.lanes > 1 && ty.lane.bytes() < 4)
}

#[test]
fn random_narrow_expressions_compute_the_same() {
    let mut rng = StdRng::seed_from_u64(3);
    let (mut narrow, mut total) = (0, 0);
    for seed in 0..250 {
        let output = *NARROW.choose(&mut rng).unwrap();
        let extent = *[7, 16, 64, 80].choose(&mut rng).unwrap();
        let statement = match rng.random_range(0..4) {
            0 => format!("vector v in 0..{extent} {{ O[i] add = O[0]; }}"),
            1 => format!("vector v in 0..{extent} {{ O[i] max = O[0]; }}"),
            _ => format!("vector v in 0..{extent} {{ O[v + 90*i] = O[0]; }}"),
        };
        let depth = rng.random_range(1..4);
        let nest = nest(&statement, output, |reads| Generator { rng: &mut rng, reads }.expression(output, depth));
        let functions = check(&nest, seed);
        narrow += usize::from(functions.iter().flat_map(|f| &f.insts).any(is_narrow));
        total += 1;
    }
    assert!(narrow * 3 > total, "{narrow} of {total} programs have narrow lanes");
}

/// The types of the arithmetic of a value, for AVX-512.
fn types_of(output: DType, value: impl FnOnce(&dyn Fn(DType) -> Expr) -> Expr) -> Vec<String> {
    let nest = nest("vector v in 0..64 { O[v + 90*i] = O[0]; }", output, |reads| {
        value(&|dtype| reads.iter().find(|r| r.0 == dtype).unwrap().1.clone())
    });
    let functions = check(&nest, 1);
    let mut types: Vec<String> = functions
        .iter()
        .flat_map(|f| &f.insts)
        .filter_map(|i| match i {
            Inst::VBinary { ty, .. } | Inst::VUnary { ty, .. } | Inst::VShift { ty, .. } => {
                Some(format!("{:?}", ty.lane))
            }
            _ => None,
        })
        .collect();
    types.dedup();
    types
}

#[test]
fn lanes_are_as_narrow_as_the_values() {
    let wide = |e: Expr| Expr::cast(DType::I32, e);
    let number = |v: i64| Expr::Const(Scalar::from(cast(DType::I32, Value::I64(v))));
    let (u8s, i16s) = (DType::U8, DType::I16);
    // a sum that wraps, in its own type and by way of a wider one
    assert_eq!(types_of(u8s, |r| r(u8s) + r(u8s)), ["U8"]);
    assert_eq!(types_of(u8s, |r| Expr::cast(u8s, wide(r(u8s)) + wide(r(DType::I8)))), ["U8"]);
    // the sum has nine bits before it is halved
    let halved = |r: &dyn Fn(DType) -> Expr| Expr::binary(BinaryOp::ShiftRight, wide(r(u8s)) + wide(r(u8s)), number(1));
    assert_eq!(types_of(u8s, |r| Expr::cast(u8s, halved(r))), ["U16"]);
    // a difference of bytes has nine bits, its magnitude eight
    let distance = |r: &dyn Fn(DType) -> Expr| Expr::unary(UnaryOp::Abs, wide(r(u8s)) - number(7));
    assert_eq!(types_of(u8s, |r| Expr::cast(u8s, distance(r))), ["U8"]);
    // a product of 32 bits is needed
    let product = |r: &dyn Fn(DType) -> Expr| wide(r(i16s)) * wide(r(i16s));
    let shifted = |r: &dyn Fn(DType) -> Expr| Expr::binary(BinaryOp::ShiftRight, product(r), number(15));
    assert_eq!(types_of(i16s, |r| Expr::cast(i16s, shifted(r))), ["I32"]);
    assert_eq!(types_of(i16s, |r| Expr::cast(i16s, product(r))), ["I16"]);
}

/// Instructions of a kind on whole vectors, for AVX-512.
fn number_of(functions: &[Function], kind: impl Fn(&Inst) -> bool) -> usize {
    functions.iter().flat_map(|f| &f.insts).filter(|i| kind(i)).count()
}

#[test]
fn quotients_by_constants_take_no_division() {
    for (output, divisor) in [(DType::U8, 9), (DType::I16, -7), (DType::U16, 7), (DType::I8, 100)] {
        let nest = nest("vector v in 0..64 { O[v + 90*i] = O[0]; }", output, |reads| {
            let divisor = Expr::Const(Scalar::from(cast(output, Value::I64(divisor))));
            Expr::binary(BinaryOp::Div, reads.iter().find(|r| r.0 == output).unwrap().1.clone(), divisor)
        });
        let functions = check(&nest, 1);
        assert!(number_of(&functions, |i| matches!(i, Inst::VBinary { op: VBinary::MulHigh, .. })) > 0);
        assert_eq!(number_of(&functions, |i| matches!(i, Inst::VBinary { op: VBinary::Div, .. })), 0);
    }
}

#[test]
fn stores_take_values_that_are_not_brought_into_range() {
    // a loop over 32-bit lanes: the sum of bytes needs no mask where it is stored alone
    let text = |second: &str| {
        format!(
            "kernel p {{ A: u8[64] argument 0; O: u8[64] argument 1 written; W: i32[64] argument 2 written;
             vector v in 0..64 {{ O[v] = (A[v] + A[v]); W[v] = {second}; }} }}"
        )
    };
    let masks = |second: &str| {
        let functions = check(&parse::nest(&text(second)).unwrap(), 1);
        number_of(&functions, |i| matches!(i, Inst::VBinary { op: VBinary::And, .. }))
    };
    assert_eq!(masks("cast i32(A[v])"), 0);
    assert!(masks("cast i32((A[v] + A[v]))") > 0);
}

#[test]
fn stores_round_to_bf16_once() {
    let text = |value: &str| {
        format!(
            "kernel p {{ A: bf16[64] argument 0; X: f32[64] argument 1; O: bf16[64] argument 2 written; \
             W: f32[64] argument 3 written; vector v in 0..64 {{ O[v] = cast bf16((cast f32(A[v]) + X[v])); W[v] = {value}; }} }}"
        )
    };
    let rounded = |value: &str| {
        let nest = parse::nest(&text(value)).unwrap();
        let functions = lower(&nest, &Target::amx()).unwrap();
        let narrowed = number_of(&functions, |i| matches!(i, Inst::VUnary { op: VUnary::NarrowBf16, .. }));
        let stored = |i: &Inst| matches!(i, Inst::VStore { ty, mem: DType::BF16, .. } if ty.lane == Lane::F32);
        (narrowed, number_of(&functions, stored))
    };
    let (narrowed, stored) = rounded("X[v]");
    assert!(narrowed == 0 && stored > 0, "{narrowed} roundings, {stored} stores that round");
    // A rounded value that is read too is rounded once, for both.
    let (narrowed, stored) = rounded("cast f32(cast bf16((cast f32(A[v]) + X[v])))");
    assert!(narrowed > 0 && stored == 0, "{narrowed} roundings, {stored} stores that round");
    // Vectors of 256 bits have instructions of AVX2 alone, whatever the processor has beside it.
    let narrow = Target::avx2().with_feature("avx512bf16").unwrap();
    let functions = lower(&parse::nest(&text("X[v]")).unwrap(), &narrow).unwrap();
    assert_eq!(number_of(&functions, |i| matches!(i, Inst::VUnary { op: VUnary::NarrowBf16, .. })), 0);
}

#[test]
fn recurrences_of_halves_stay_in_registers() {
    let functions = check(
        &parse::nest(
            "kernel p { X: i16[100] argument 0; Y: i16[100] argument 1 written;
             parallel t in 0..1 { for i in 0..99 {
               Y[i + 1] = cast i16(shr(((cast i32(X[i + 1]) * i32(8192)) + (cast i32(Y[i]) * i32(24576))), i32(15))); } } }",
        )
        .unwrap(),
        1,
    );
    let loads = |f: &Function| super::innermost(f).iter().filter(|i| matches!(i, Inst::VLoad { .. })).count();
    let products = |f: &Function| {
        super::innermost(f).iter().filter(|i| matches!(i, Inst::VBinary { op: VBinary::MulPairs, .. })).count()
    };
    // one load and two products of each step
    assert_eq!(loads(&functions[0]) * 2, products(&functions[0]), "{}", functions[0]);
    assert_eq!(number_of(&functions, |i| matches!(i, Inst::VShift { op: ShiftOp::Left, .. })), 0, "{}", functions[0]);
}

#[test]
fn every_target_has_narrow_lanes() {
    let nest = nest("vector v in 0..64 { O[v + 90*i] = O[0]; }", DType::U8, |r| r[0].1.clone() + r[0].1.clone());
    for target in Target::all() {
        let functions = lower(&nest, &target).unwrap();
        let lanes = target.vector_bytes as u8;
        let whole = |i: &Inst| matches!(i, Inst::VBinary { ty, .. } if ty.lanes == lanes);
        assert!(number_of(&functions, whole) > 0, "{}: {}", target.name, functions[0]);
    }
}

#[test]
fn what_is_one_of_two_numbers_is_not_brought_into_range() {
    let shifts = |value: &str| {
        let text = format!(
            "kernel p {{ A: i16[100] argument 0 written; B: i16[100] argument 1; C: u8[100] argument 2;
             for j in 0..99 {{ A[j + 1] = {value}; }} }}"
        );
        let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        check(&nest, 5);
        let functions = lower(&nest, &Target::avx512()).unwrap();
        number_of(&functions, |i| matches!(i, Inst::VShift { .. } | Inst::Extend { .. }))
    };
    assert_eq!(shifts("max(min(A[j], B[j]), cast i16(C[j]))"), 0);
    assert_eq!(shifts("select(lt(A[j], i16(3)), max(B[j], B[j + 1]), min(A[j], B[j]))"), 0);
    assert!(shifts("max(min((A[j] + i16(1)), B[j]), B[j + 1])") > 0);
}

#[test]
fn tables_that_the_program_wrote_before_are_looked_up_in_registers() {
    let text = "kernel p { X: u8[256] argument 0; Y: u8[256] argument 1 written; T: u8[256] argument 2 written;
        for k in 0..2 {
          vector t in 0..256 { T[t] = (X[t] + X[-t + 255]); }
          vector i in 0..256 { Y[i] = T[@X[i]]; }
          T[7] = Y[9];
          vector j in 0..256 { Y[j] = (Y[j] + T[@Y[j]]); }
        } }";
    let nest = parse::nest(text).unwrap();
    check(&nest, 6);
    for target in [Target::avx512(), Target::avx2(), Target::neon()] {
        let functions = lower(&nest, &target).unwrap();
        let gathers = number_of(&functions, |i| matches!(i, Inst::VGatherIndex { .. }));
        let lookups = number_of(&functions, |i| matches!(i, Inst::VLookup { .. } | Inst::VShuffle { .. }));
        assert!(gathers == 0 && lookups > 0, "{}: {gathers} {lookups}", target.name);
    }
}

#[test]
fn tables_of_bytes_are_looked_up_in_registers_beside_words() {
    let text =
        "kernel p { X: i32[64] argument 0; Y: i32[64] argument 1 written; T: u8[64] argument 2; S: i8[256] argument 3;
        vector i in 0..64 { Y[i] = (cast i32(T[@and(X[i], i32(63))]) + cast i32(S[@and(X[i], i32(255))])); } }";
    let nest = parse::nest(text).unwrap();
    check(&nest, 6);
    let target = Target::avx512().with_feature("avx512vbmi").unwrap();
    let functions = lower(&nest, &target).unwrap();
    let start = arguments(&nest, &mut StdRng::seed_from_u64(6));
    let (mut want, mut got) = (start.clone(), start);
    interpret::run(&nest, &mut want).unwrap();
    run(&functions, &mut got);
    assert!(got[1].data == want[1].data, "{got:?} {want:?}");
    assert_eq!(number_of(&functions, |i| matches!(i, Inst::VGatherIndex { .. })), 0, "{}", functions[0]);
}

#[test]
fn halves_are_copied_as_their_bits() {
    for dtype in ["f16", "bf16"] {
        let text = format!(
            "kernel p {{ A: {dtype}[67] argument 0; O: {dtype}[67] argument 1 written; Z: {dtype}[67] argument 2 written;
             R: {dtype}[67] argument 3 written; T: {dtype}[40] argument 4 written;
             vector v in 0..67 {{ O[v] = A[v]; Z[v] = {dtype}(#1000); R[v] = A[3]; }}
             vector u in 0..20 {{ T[2*u] = A[3*u]; }}
             for i in 0..3 {{ R[i] = A[2*i]; }} }}"
        );
        let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}"));
        let start = arguments(&nest, &mut StdRng::seed_from_u64(1));
        let mut want = start.clone();
        interpret::run(&nest, &mut want).unwrap();
        for target in Target::all() {
            let mut got = start.clone();
            run(&lower(&nest, &target).unwrap(), &mut got);
            assert!(got.iter().zip(&want).all(|(g, w)| g.data == w.data), "{dtype}, {}", target.name);
        }
        let functions = lower(&nest, &Target::avx512()).unwrap();
        let converted = |i: &Inst| {
            matches!(i, Inst::VUnary { .. })
                || i.lanes().is_some_and(|l| l.ty.lane.is_float())
                || matches!(i, Inst::VShift { .. })
        };
        assert_eq!(number_of(&functions, converted), 0, "{functions:?}");
        assert!(number_of(&functions, |i| matches!(i, Inst::VStore { ty, .. } if ty.lane == Lane::I16)) > 4);
    }
}
