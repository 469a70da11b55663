//! Sums of tensor instructions and the memory around them: parts of a sum, hints to caches, and groups with fewer terms.

use super::tensors::{compile_product, rows};
use crate::codegen::Target;
use crate::codegen::loopnest::{LoopNest, fused_parts, interpret, parse};
use crate::codegen::select::lower;
use crate::codegen::select::tests::{arguments, run};
use crate::codegen::vcode::{Function, Inst};
use crate::runtime::DType;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// The code of a nest, which computes what the nest does.
fn code(nest: &LoopNest, target: &Target) -> Function {
    let mut want = arguments(nest, &mut StdRng::seed_from_u64(5));
    let mut got = want.clone();
    interpret::run(nest, &mut want).unwrap_or_else(|e| panic!("{e}\n{nest}"));
    let mut functions = lower(nest, target).unwrap_or_else(|e| panic!("{e}\n{nest}"));
    run(&functions, &mut got);
    assert!(got == want, "{nest}\n{}", functions[0]);
    functions.remove(0)
}

fn count(f: &Function, kind: impl Fn(&Inst) -> bool) -> usize {
    f.insts.iter().filter(|i| kind(i)).count()
}

/// Panels of 32 columns and blocks of 32 rows, whose sums are in parts of 128 terms and rest in `T`, in rows of so many columns.
fn in_parts(panels: i64, parts: i64, columns: i64) -> LoopNest {
    let (terms, steps, last) = (128 * parts, 32 * parts, columns - 32);
    let copy = |to: &str, from: &str| format!("unroll m in 0..32 {{ vector n in 0..32 {{ {to} = {from}; }} }}");
    let (block, own) = (format!("T[32*mo + m][n + {last}]"), "P[m][n]");
    let text = format!(
        "kernel product {{ A: u8[64][{terms}] argument 0; B: i8[{panels}][{steps}][32][4] argument 1; C: i32[64][{}] argument 2 written;
         T: i32[64][{columns}] local; P: i32[32][32] local;
         parallel no in 0..{panels} {{
           for mo in 0..2 {{ for m in 0..32 {{ vector n in 0..32 {{ {block} = i32(0); }} }} }}
           for kb in 0..{parts} {{ for mo in 0..2 {{
             {}
             for ko in 0..32 {{ unroll m in 0..32 {{ vector n in 0..32 {{ instruction tdpbusd k in 0..4 {{
               P[m][n] add = (cast i32(A[32*mo + m][128*kb + 4*ko + k]) * cast i32(B[no][32*kb + ko][n][k])); }} }} }} }}
             {} }} }}
           for mo in 0..2 {{ for m in 0..32 {{ vector n in 0..32 {{ C[32*mo + m][32*no + n] = {block}; }} }} }}
         }} }}",
        32 * panels,
        copy(own, &block),
        copy(&block, own)
    );
    let mut nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    fused_parts::fuse(&mut nest);
    nest
}

/// Sums of tiles work in place: the first part begins with zeros, each part loads and stores the sums once, and nothing copies them.
#[test]
fn sums_in_parts_are_summed_where_they_rest() {
    let target = Target::amx().with_instructions(rows());
    for (parts, loops) in [(1, 1), (2, 2), (4, 3)] {
        let f = code(&in_parts(3, parts, 32), &target);
        assert_eq!(count(&f, |i| matches!(i, Inst::TileZero { .. })), 4, "{f}");
        assert_eq!(count(&f, |i| matches!(i, Inst::TileStore { .. })), 4 * loops, "{f}");
        // sums again, and two of each operand
        assert_eq!(count(&f, |i| matches!(i, Inst::TileLoad { .. })), 4 * (loops - 1) + 4 * loops, "{f}");
        // 64 rows of 32 sums, and no block beside them
        assert!(f.to_string().contains(", 8192 scratch bytes"), "{f}");
    }
}

/// Columns that are apart in memory fill no tile: their sums are copied, one after the other.
#[test]
fn sums_of_columns_that_are_apart_are_copied() {
    let target = Target::amx().with_instructions(rows());
    let text = "kernel turned { A: u8[32][64] argument 0; B: i8[16][32][4] argument 1; C: i32[32][32] argument 2 written; P: i32[32][32] local;
      parallel t in 0..1 {
        unroll m in 0..32 { vector n in 0..32 { P[m][n] = C[n][m]; } }
        for ko in 0..16 { unroll m in 0..32 { vector n in 0..32 { instruction tdpbusd k in 0..4 {
          P[m][n] add = (cast i32(A[m][4*ko + k]) * cast i32(B[ko][n][k])); } } } }
        unroll m in 0..32 { vector n in 0..32 { C[n][m] = P[m][n]; } } } }";
    let f = code(&parse::nest(text).unwrap(), &target);
    assert_eq!(count(&f, |i| matches!(i, Inst::TileStore { .. })), 4, "{f}");
}

/// Rows at a distance of 1,024 bytes would meet in four sets of the first cache.
#[test]
fn rows_of_sums_that_would_meet_lie_further_apart() {
    let target = Target::amx().with_instructions(rows());
    let strides = |columns| {
        let f = code(&in_parts(1, 2, columns), &target);
        let stride = |i: &Inst| if let Inst::TileStore { stride, .. } = i { Some(*stride) } else { None };
        f.insts.iter().filter_map(stride).collect::<Vec<i64>>()
    };
    assert_eq!((strides(256), strides(224)), (vec![1024 + 64; 8], vec![896; 8]));
}

/// The rows that the loop around moves pass the first cache, which keeps the part of the panel; the same part of the next panel is fetched
/// meanwhile. What is read once has no hint.
#[test]
fn tiles_that_are_read_again_from_the_second_cache_pass_the_first() {
    let target = Target::amx().with_instructions(rows());
    let hints = |panels| {
        let f = code(&in_parts(panels, 2, 32), &target);
        let streamed = count(&f, |i| matches!(i, Inst::TileLoad { streamed: true, .. }));
        (streamed, count(&f, |i| matches!(i, Inst::Prefetch { .. })))
    };
    // both loops fetch 4,096 bytes in four iterations
    assert_eq!((hints(3), hints(1)), ((4, 2 * 4096 / 64 / 4), (0, 0)));
}

/// Parts keep a panel in the first cache: of a sum of 1,024 halves it takes two, of as many bytes all fit.
#[test]
fn long_sums_of_tiles_are_cut() {
    let tiles = |types, sum, k| {
        let compiled = compile_product([1024, 1024, k], types, sum, &Target::amx().with_instructions(rows()));
        let report = compiled.tiled.report.to_string();
        (report.contains("tdp"), report.contains(" ko/"))
    };
    assert_eq!(tiles([DType::BF16; 2], DType::F32, 1024), (true, true));
    assert_eq!(tiles([DType::BF16; 2], DType::F32, 256), (true, false));
    assert_eq!(tiles([DType::U8, DType::I8], DType::I32, 1024), (true, false));
}

/// Three terms of four are one word with a zero: of the elements behind them where these are in the array, else of those before them, or put
/// together.
#[test]
fn groups_of_fewer_terms_are_read_as_words() {
    let target = Target::avx512_vnni().with_instructions(rows());
    for (shape, first, loads) in [("[9][3]", "0", 1), ("[8][3]", "0", 2), ("[9][3]", "1", 1)] {
        for dtype in ["u8", "i8"] {
            let (a, b) = if dtype == "u8" { ("u8", "i8") } else { ("i8", "u8") };
            let row = if dtype == "u8" { "vpdpbusd" } else { "vpdpbusd_signed" };
            let text = format!(
                "kernel taps {{ X: {a}{shape} argument 0; W: {b}[16][4] argument 1; Y: i32[8][16] argument 2 written; S: i32[16] local;
                 parallel t in 0..8 {{
                   vector f in 0..16 {{ S[f] = i32(0); }}
                   vector f in 0..16 {{ instruction {row} c in 0..3 {{
                     S[f] add = (cast i32(X[t + {first}][c]) * cast i32(W[f][c])); }} }}
                   vector f in 0..16 {{ Y[t][f] = S[f]; }} }} }}"
            );
            let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let f = code(&nest, &target);
            assert_eq!(count(&f, |i| matches!(i, Inst::VBroadcast { .. })), loads, "{f}");
        }
    }
}

/// Copies of halves move their bits.
#[test]
fn halves_are_packed_without_conversions() {
    let nest = parse::nest(
        "kernel pack { X: bf16[4][64] argument 0; Y: i32[2][64] argument 1 written;
         parallel t in 0..2 { vector n in 0..64 {
           Y[t][n] = or(cast i32(bitcast u16(X[2*t][n])), shl(cast i32(bitcast u16(X[2*t + 1][n])), i32(16))); } } }",
    )
    .unwrap();
    for target in [Target::amx(), Target::avx512(), Target::avx2()] {
        let f = code(&nest, &target);
        let operations = |i: &Inst| matches!(i, Inst::VBinary { .. } | Inst::VShift { .. } | Inst::VUnary { .. });
        let vectors = count(&f, |i| matches!(i, Inst::VStore { .. }));
        assert_eq!(count(&f, operations), 2 * vectors, "{f}");
    }
}
