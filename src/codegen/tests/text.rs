//! The text form of VCode: print and parse are inverse, and a line that is not an instruction is named.

use super::{cases, random, registers};
use crate::codegen::Target;
use crate::codegen::vcode::text::parse;
use crate::codegen::vcode::{Addr, Function, Gpr, Inst};

fn assert_parses(function: &Function) {
    let text = function.to_string();
    let parsed = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(parsed, std::slice::from_ref(function), "{text}");
}

#[test]
fn the_text_of_a_function_parses_to_the_function() {
    for target in [Target::avx2(), Target::avx512(), Target::neon()] {
        let bytes = target.vector_bytes;
        cases::all(bytes).iter().for_each(|case| assert_parses(&case.function));
        random::programs(&target).iter().for_each(|case| assert_parses(&case.function));
    }
    for (target, mr, nv) in registers::blocks() {
        assert_parses(&registers::product_block(&target, mr, nv, 10, 3).function);
    }
    let extremes = [i32::MIN, -1, 0, i32::MAX].map(|disp| {
        let addr = Addr { base: Gpr(0), index: Some((Gpr(u32::MAX), 8)), disp };
        [Inst::Prefetch { addr }, Inst::Imm { dst: Gpr(1), value: i64::MIN }]
    });
    let function = Function { name: "a (b)".into(), insts: extremes.concat(), ..Function::default() };
    assert_parses(&Function { parallel: Some(8), wave: Some(2), ..function });
}

#[test]
fn several_functions_follow_one_another() {
    let function = |name: &str| Function { name: name.into(), gprs: 3, vregs: 2, ..Function::default() };
    let text = format!("{}\n{}", function("a"), function("b"));
    assert_eq!(parse(&text).unwrap(), [function("a"), function("b")]);
}

const TEXT: &str = "function f (serial, 2 gpr, 1 vector registers, 0 scratch bytes) {
  r0 = argument 0
  r1 = 8
  loop r1 (at least once) {
    v0 = load f32x8 f32 [r0 + 4*r1 - 32] lanes 0..3
    store f32x8 f32 v0, [r0]
  }
}
";

#[test]
fn errors_name_the_line() {
    parse(TEXT).unwrap();
    let wrong = [
        ("argument 0", "argument x", "line 2: `x`"),
        ("r1 = 8", "r1 = eight", "line 3: `eight`"),
        ("(at least once)", "(once)", "line 4: `(once) {`"),
        ("load f32x8", "load f32", "line 5: `f32 f32"),
        ("load f32x8", "loadf32x8", "line 5: `loadf32x8"),
        ("- 32]", "* 32]", "line 5: `* 32]"),
        ("0..3", "4..3", "line 5: `"),
        ("v0, [r0]", "v0, [r0] r1", "line 6: `r1`"),
        ("serial", "cereal", "line 1: `function f"),
        ("  }\n}", "  }\n}\n}", "line 9: `}`"),
        ("  }\n}", "  }\n", "not closed"),
    ];
    for (from, to, message) in wrong {
        let error = parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(message), "`{to}` gives: {error}");
    }
}
