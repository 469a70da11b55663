use crate::codegen::Target;
use crate::codegen::loopnest::parse;
use crate::codegen::select::lower;
use crate::codegen::select::tests::check;
use crate::codegen::vcode::Inst;
use crate::runtime::DType;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Gathers and scatters that are left, and zips, for AVX-512.
fn counts(body: &str, seed: u64) -> (usize, usize) {
    let text = format!(
        "kernel p {{ A: f32[400] argument 0 written; B: f32[400] argument 1; C: f64[400] argument 2 written;
         J: i64[90] argument 3; {body} }}"
    );
    let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    check(&nest, seed);
    let functions = lower(&nest, &Target::avx512()).unwrap();
    let count = |is: fn(&Inst) -> bool| functions.iter().flat_map(|f| &f.insts).filter(|i| is(i)).count();
    let strided = count(|i| matches!(i, Inst::VGather { .. } | Inst::VScatter { .. }));
    (strided, count(|i| matches!(i, Inst::VZip { .. })))
}

#[test]
fn elements_that_fill_a_stretch_are_moved_as_neighbours() {
    let each = |body: &str| counts(&format!("parallel i in 0..3 {{ vector v in 0..16 {{ {body} }} }}"), 1);
    let pairs = "A[2*v + 64*i] = (B[2*v] - B[2*v + 1]); A[2*v + 64*i + 1] = B[2*v + 1];";
    assert_eq!(each(pairs), (0, 4));
    let four = "A[4*v + 64*i] = B[4*v + 3]; A[4*v + 64*i + 1] = B[4*v + 1];
        A[4*v + 64*i + 2] = B[4*v + 2]; A[4*v + 64*i + 3] = B[4*v];";
    assert_eq!(each(four), (0, 16));
    // one of two, none beside it
    assert_eq!(each("A[v + 16*i] = (B[2*v] - B[2*v + 5]);"), (2, 0));
    // read before both are written
    assert_eq!(each("A[2*v + 64*i] = A[2*v + 64*i + 1]; A[2*v + 64*i + 1] = B[v];"), (1, 2));
    // read between the two, where they lie or anywhere
    assert_eq!(each("A[2*v + 32*i] = B[v]; A[v + 200] = A[2*v + 32*i + 1]; A[2*v + 32*i + 1] = B[v + 16];").1, 0);
    let read = |at: &str| {
        let first = "vector v in 0..16 { A[2*v + 32*i] = B[v]; }";
        let last = "vector x in 0..16 { A[2*x + 32*i + 1] = B[x + 16]; }";
        let body = format!("{first} vector w in 0..16 {{ C[w] = cast f64(A[{at}]); }} {last}");
        counts(&format!("parallel i in 0..3 {{ {body} }}"), 1).1
    };
    assert_eq!(read("w + 32*i"), 0);
    assert_eq!(read("2*w + 32*i + 2"), 0);
    // between the two, beside what was stored before
    assert!(read("2*w + 32*i + 1") > 0);
    assert_eq!(each("A[2*v + 64*i + 8] = B[v]; A[v + 300] = A[@J[v]]; A[2*v + 64*i + 9] = B[v + 16];").1, 0);
}

#[test]
fn columns_are_loaded_by_rows_and_transposed() {
    let columns = |n: i64, rest: &str| {
        counts(&format!("parallel i in 0..2 {{ unroll k in 0..{n} {{ vector v in 0..16 {{ {rest} }} }} }}"), 2)
    };
    assert_eq!(columns(4, "A[v + 16*k + 64*i] = B[20*v + k];"), (0, 20));
    assert_eq!(columns(8, "A[v + 16*k + 128*i] = B[24*v - k + 7];"), (0, 32));
    assert_eq!(columns(16, "A[v + 16*k] = B[24*v + k + i];"), (0, 64));
    // lanes of eight bytes
    let wide = "unroll k in 0..8 { vector v in 0..8 { A[v + 8*k] = cast f32(C[24*v + k]); } }";
    assert_eq!(counts(&format!("for i in 0..2 {{ {wide} }}"), 2), (0, 24));
    // too few, not neighbours, written between
    assert_eq!(columns(3, "A[v + 16*k + 64*i] = B[20*v + k];"), (3, 0));
    assert_eq!(columns(4, "A[v + 16*k + 64*i] = B[20*v + 2*k];"), (4, 0));
    assert_eq!(counts("for i in 0..2 { unroll k in 0..4 { vector v in 0..16 { C[v + 16*k] = cast f64(A[20*v + k]); } A[k + 21] = B[i]; } }", 2).1, 0);
}

#[test]
fn groups_that_would_fill_the_registers_are_not_made() {
    let rows = |n: i64| {
        let body = format!(
            "unroll s in 0..2 {{ unroll k in 0..{n} {{ vector v in 0..16 {{ A[v + 16*k] add = B[2*v + 16*k + s]; }} }} }}"
        );
        counts(&format!("parallel i in 0..2 {{ {body} }}"), 7)
    };
    assert_eq!(rows(6).0, 0);
    let (strided, zips) = rows(14);
    assert!(strided >= 10 && zips >= 10, "{strided} {zips}");
}

/// The strided stores that are left of four bytes beside each other, and the stores of whole words.
fn quarters(body: &str) -> (usize, usize) {
    let text = format!(
        "kernel p {{ A: u8[400] argument 0 written; B: i32[16] argument 1;
         for i in 0..4 {{ unroll c in 0..4 {{ vector v in 0..16 {{ {body} }} }} }} }}"
    );
    let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    check(&nest, 9);
    let functions = lower(&nest, &Target::avx512()).unwrap();
    let count = |is: fn(&Inst) -> bool| functions.iter().flat_map(|f| &f.insts).filter(|i| is(i)).count();
    (count(|i| matches!(i, Inst::VScatter { .. })), count(|i| matches!(i, Inst::VStore { mem: DType::I32, .. })))
}

#[test]
fn four_bytes_of_a_word_are_stored_as_one() {
    assert_eq!(quarters("A[4*v + c + 64*i] = cast u8((B[v] + cast i32(index(c))));"), (0, 4));
    // in place, each beside the others
    assert_eq!(quarters("A[4*v + c + 64*i] = cast u8((B[v] * cast i32(A[4*v + c + 64*i])));"), (0, 4));
    // each reads what the one before wrote
    assert_eq!(quarters("A[4*v + c + 64*i + 4] = cast u8((B[v] * cast i32(A[4*v + c + 64*i + 3])));"), (16, 0));
    assert_eq!(quarters("A[3*v + c + 64*i] = cast u8((B[v] + cast i32(index(c))));").1, 0);
}

/// Gathers and scatters that are left, and zips, of integers of 8 and 16 bits.
fn narrow_counts(body: &str) -> (usize, usize) {
    let text = format!(
        "kernel p {{ A: u8[400] argument 0 written; B: i8[400] argument 1; C: i16[400] argument 2 written;
         D: u16[400] argument 3; parallel i in 0..2 {{ vector v in 0..64 {{ {body} }} }} }}"
    );
    let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    check(&nest, 5);
    let functions = lower(&nest, &Target::avx512()).unwrap();
    let count = |is: fn(&Inst) -> bool| functions.iter().flat_map(|f| &f.insts).filter(|i| is(i)).count();
    let strided = count(|i| matches!(i, Inst::VGather { .. } | Inst::VScatter { .. }));
    (strided, count(|i| matches!(i, Inst::VZip { .. })))
}

#[test]
fn narrow_elements_are_moved_as_neighbours() {
    // in lanes of their own width
    assert_eq!(narrow_counts("A[2*v] = (A[2*v + 1] + A[2*v]); A[2*v + 1] = A[2*v + 200];").0, 1);
    assert_eq!(narrow_counts("C[2*v] = (cast i16(D[2*v]) - cast i16(D[2*v + 1])); C[2*v + 1] = i16(3);"), (0, 8));
    // bytes in lanes of 16 bits: pairs
    let pairs = "C[v] = (cast i16(B[2*v]) - cast i16(B[2*v + 1]));";
    assert_eq!(narrow_counts(pairs), (0, 0));
    let four = "C[v] = ((cast i16(A[4*v]) - cast i16(A[4*v + 1])) + (cast i16(A[4*v + 2]) * cast i16(A[4*v + 3])));";
    assert_eq!(narrow_counts(four), (0, 4));
    let stored = "A[2*v] = cast u8((C[v] + i16(1))); A[2*v + 1] = cast u8((C[v] - i16(1)));";
    assert_eq!(narrow_counts(stored), (0, 0));
}

#[test]
fn two_bytes_in_lanes_of_four_are_loaded_as_one_word() {
    let of = |dtype: &str, right: &str| {
        let text = format!(
            "kernel p {{ A: {dtype}[200] argument 0; B: i32[96] argument 1 written; parallel i in 0..2 {{ vector v in 0..48 {{
             B[48*i + v] = ((cast i32(A[2*v + i]) * i32(70000)) - cast i32({right})); }} }} }}"
        );
        let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        check(&nest, 3);
        let functions = lower(&nest, &Target::avx512()).unwrap();
        functions.iter().flat_map(|f| &f.insts).filter(|i| matches!(i, Inst::VGather { .. })).count()
    };
    assert_eq!(["u8", "i8"].map(|dtype| of(dtype, "A[2*v + i + 1]")), [0, 0]);
    assert!(of("u8", "A[2*v + i + 3]") > 0);
}

/// Scatters that are left and stores of interleaved elements, of all targets, of a kernel that stores `n` elements of type `dtype` from
/// values of type `value` side by side in each iteration, `count` at a time.
fn stored_together(dtype: &str, value: &str, n: usize, count: usize) -> Vec<(usize, usize)> {
    let store = |k: usize| format!("A[{n}*v + {k} + {}*i] = cast {dtype}((B[v + {k}] + B[v + 2*i]));", n * count);
    let body: String = (0..n).map(store).collect();
    let text = format!(
        "kernel p {{ A: {dtype}[{}] argument 0 written; B: {value}[{}] argument 1;
         parallel i in 0..2 {{ vector v in 0..{count} {{ {body} }} }} }}",
        2 * n * count,
        count + 4
    );
    let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    check(&nest, 13);
    let of = |target: Target| {
        let functions = lower(&nest, &target).unwrap();
        let count = |is: fn(&Inst) -> bool| functions.iter().flat_map(|f| &f.insts).filter(|i| is(i)).count();
        let scatters = count(|i| matches!(i, Inst::VScatter { .. }));
        (scatters, count(|i| matches!(i, Inst::VStoreInterleaved { .. })))
    };
    [Target::avx2(), Target::avx512(), Target::neon()].map(of).into()
}

#[test]
fn elements_that_fill_the_gaps_of_each_other_are_stored_together() {
    for (dtype, value) in [("u8", "i32"), ("i8", "i32"), ("i16", "i32"), ("u8", "f32"), ("f32", "f32"), ("f64", "f64")]
    {
        for (scatters, together) in stored_together(dtype, value, 3, 64) {
            assert!(
                (scatters, together > 0) == (0, true),
                "{dtype} from {value}: {scatters} scatters, {together} stores"
            );
        }
    }
    // the rest of a vector is stored by its lanes
    assert!(stored_together("u8", "i32", 3, 66).into_iter().all(|(scatters, together)| scatters > 0 && together > 0));
    // two bytes of lanes of four
    assert!(stored_together("u8", "i32", 2, 64).into_iter().all(|(scatters, together)| scatters == 0 && together > 0));
}

#[test]
fn random_interleaved_statements_compute_the_same() {
    let mut rng = StdRng::seed_from_u64(11);
    let mut zips = 0;
    for seed in 0..150 {
        let lanes = *[4, 8, 13, 16, 40].choose(&mut rng).unwrap();
        let distance = *[2, 2, 4, 3, 8].choose(&mut rng).unwrap();
        let array = if rng.random_bool(0.3) { ("C", "f64(0.5)") } else { ("A", "f32(0.5)") };
        let mut element =
            |name: &str, k: i64| format!("{name}[{distance}*V + {} + i]", k + rng.random_range(0..2) * distance);
        // what a vector loop reads of the array that it writes lies between its own elements
        let statements = (0..distance).map(|k| {
            let (a, b) = (element(array.0, (k + 1) % distance), element(array.0, (k + distance - 1) % distance));
            let b = if array.0 == "A" { element("B", k) } else { b };
            let store = format!("{} = (({a} * {}) + {b});", element(array.0, k), array.1);
            format!("vector V in 0..{lanes} {{ {store} }}").replace('V', &format!("v{k}"))
        });
        let body: Vec<String> = statements.collect();
        zips += counts(&format!("for i in 0..7 {{ {} }}", body.join(" ")), seed).1;
    }
    assert!(zips > 300, "{zips}");
}
