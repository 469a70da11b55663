use crate::codegen::Target;
use crate::codegen::loopnest::parse;
use crate::codegen::select::lower;
use crate::codegen::select::tests::check;
use crate::codegen::vcode::Inst;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// The stores that are left, and the instructions in all.
fn counts(body: &str, seed: u64) -> (usize, usize) {
    let text = format!(
        "kernel p {{ A: u8[800] argument 0 written; B: u8[800] argument 1; F: f32[800] argument 2 written; G: f32[800] argument 3;
         {body} }}"
    );
    let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    check(&nest, seed);
    let functions = lower(&nest, &Target::avx512()).unwrap();
    let insts = || functions.iter().flat_map(|f| &f.insts);
    let stores = insts().filter(|i| matches!(i, Inst::VStore { .. } | Inst::VScatter { .. } | Inst::StoreInt { .. }));
    (stores.count(), insts().count())
}

#[test]
fn pixels_of_four_colours_become_one_vector() {
    let mean = "A[32*i + 4*j + c] = cast u8((((cast i32(B[64*i + 8*j + c]) + cast i32(B[64*i + 8*j + c + 4])) + i32(1)) / i32(2)));";
    let (stores, insts) =
        counts(&format!("parallel i in 0..8 {{ unroll j in 0..8 {{ vector c in 0..4 {{ {mean} }} }} }}"), 1);
    assert!(stores == 1 && insts < 30, "{stores} {insts}");
    // neighbours, and one value of each pixel
    let scaled = "F[32*i + 4*j + c] = ((G[32*i + 4*j + c] * f32(0.5)) + G[c]);";
    assert_eq!(
        counts(&format!("parallel i in 0..8 {{ unroll j in 0..8 {{ vector c in 0..4 {{ {scaled} }} }} }}"), 2).0,
        8
    );
    let scaled = "F[32*i + 4*j + c] = ((G[32*i + 4*j + c] * f32(0.5)) + G[i]);";
    assert_eq!(
        counts(&format!("parallel i in 0..8 {{ unroll j in 0..8 {{ vector c in 0..4 {{ {scaled} }} }} }}"), 2).0,
        2
    );
}

#[test]
fn single_elements_become_a_vector() {
    let each = |body: &str| counts(&format!("parallel i in 0..8 {{ unroll j in 0..8 {{ {body} }} }}"), 3).0;
    assert_eq!(each("F[8*i + j] = (G[8*i + j] * G[100 + i]);"), 1);
    assert_eq!(each("F[8*i + j] = max(G[8*i + j + 1], G[8*i + j]);"), 1);
    // each reads what the one before wrote
    assert_eq!(each("F[8*i + j + 1] = (F[8*i + j] * G[8*i + j]);"), 8);
    // apart, in another order
    assert_eq!(each("F[8*i + j] = G[300 + 3*j];"), 8);
    assert_eq!(each("F[8*i + j] = G[300 - j];"), 8);
}

#[test]
fn totals_of_neighbours_are_combined_together() {
    let fours = |text: &str| {
        let nest = parse::nest(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        check(&nest, 5);
        let functions = lower(&nest, &Target::avx512()).unwrap();
        let insts = || functions.iter().flat_map(|f| &f.insts);
        let single = insts().filter(|i| matches!(i, Inst::VReduce { .. })).count();
        (insts().filter(|i| matches!(i, Inst::VReduceFour { .. })).count(), single)
    };
    let dots = |dtype: &str, rows: i64, extent: i64, op: &str, value: &str| {
        fours(&format!(
            "kernel p {{ A: {dtype}[2][{rows}][{extent}] argument 0; B: {dtype}[{extent}] argument 1; S: {dtype}[2][{rows}] argument 2 written;
             s: {dtype}[1] local;
             parallel t in 0..2 {{ for r in 0..{rows} {{ s[0] = {dtype}(3);
               vector k in 0..{extent} {{ s[0] {op} = {value}; }} S[t][r] = s[0]; }} }} }}"
        ))
    };
    // in lanes of 16 and of 20 terms: whole loops, and those with a rest
    assert_eq!(dots("f32", 32, 16, "add", "(A[t][r][k] * B[k])"), (1, 0));
    assert_eq!(dots("f32", 32, 20, "add", "(A[t][r][k] * B[k])"), (1, 0));
    assert_eq!(dots("i32", 40, 16, "max", "(A[t][r][k] - B[k])"), (1, 0));
    assert_eq!(dots("i32", 4, 16, "min", "(A[t][r][k] - B[k])"), (1, 0));
    // two elements in 16 bytes
    assert_eq!(dots("f64", 32, 16, "add", "(A[t][r][k] * B[k])").0, 0);
}

#[test]
fn random_statements_compute_the_same() {
    let mut rng = StdRng::seed_from_u64(17);
    let mut joined = 0;
    for seed in 0..150 {
        let (copies, lanes) = (*[2, 4, 8, 5].choose(&mut rng).unwrap(), *[1, 2, 4, 3].choose(&mut rng).unwrap());
        let row = copies * lanes;
        let mut element = |name: &str| {
            let step = *[lanes, lanes, 2 * lanes, 0, 3 * lanes].choose(&mut rng).unwrap();
            format!("{name}[{}*i + {step}*j + c + {}]", 2 * row, rng.random_range(0..3) * lanes)
        };
        let (a, b, p) = (element("G"), element("G"), element("B"));
        let (d, q) = (element(if seed % 3 == 0 { "F" } else { "G" }), element(if seed % 4 == 0 { "A" } else { "B" }));
        let first = format!(
            "F[{row}*i + {lanes}*j + c + {}] = (({a} * f32(0.5)) + ({b} - {d}));",
            rng.random_range(0..2) * lanes
        );
        let second = format!("A[{row}*i + {lanes}*j + c] = cast u8(((cast i32({p}) + cast i32({q})) / i32(2)));");
        let body = format!("{first} {second}");
        let text = format!("for i in 0..6 {{ unroll j in 0..{copies} {{ vector c in 0..{lanes} {{ {body} }} }} }}");
        joined += usize::from(counts(&text, seed).0 < (2 * copies) as usize);
    }
    assert!(joined > 8, "{joined}");
}
