use crate::codegen::loopnest::{parse, print, simplify, verify};

fn simplified(text: &str) -> String {
    let nest = simplify::simplify(&parse::nest(text).unwrap());
    verify::verify(&nest).unwrap();
    print::nest(&nest)
}

#[test]
fn padding_becomes_bounds_and_border_tiles() {
    let text = simplified(
        "kernel conv { X: f32[8][16] argument 0; Y: f32[8][16] argument 1 written; a: f32[4] local;
          parallel h in 0..8 { for wo in 0..4 {
            unroll w in 0..4 { a[w] = f32(0.0); }
            for r in 0..3 { for s in 0..3 { unroll w2 in 0..4 {
              if h + r - 1 >= 0 && -h - r + 8 >= 0 && 4*wo + w2 + s - 1 >= 0 && -4*wo - w2 - s + 16 >= 0 {
                a[w2] add = X[h + r - 1][4*wo + w2 + s - 1]; } } } }
            unroll w3 in 0..4 { Y[h][4*wo + w3] = a[w3]; } } } }",
    );
    assert!(text.contains("for r in max(0, -h + 1)..min(3, -h + 9) {"), "{text}");
    assert!(text.contains("for wo in 1..3 {"), "{text}");
    // the interior has no condition; the two border tiles split s into the border and the rest
    assert_eq!(text.matches("for s#2 in 0..3 {").count(), 1, "{text}");
    assert_eq!(text.matches("if ").count(), 2, "{text}");
    assert_eq!(text.matches("if w2").count() + text.matches("if -w2").count(), 2, "{text}");
}

#[test]
fn a_quotient_is_split_by_branches() {
    let text = simplified(
        "kernel rows { X: f32[64] argument 0; Y: f32[64] argument 1 written;
          parallel t in 0..16 { let q = floor(t / 4);
            unroll i in 0..4 { Y[4*t + i] = (X[4*t + i - 1] if 4*t + i - 1 >= 0 else f32(0.0)); }
            unroll j in 0..4 { Y[4*t + j] max = (X[16*q + j + 1] if -16*q - j + 50 >= 0 else f32(0.0)); } } }",
    );
    assert!(text.contains("if t - 1 >= 0 {") && text.contains("if -t >= 0 {"), "{text}");
    assert!(text.contains("q - 3 >= 0") && text.contains("-q + 2 >= 0"), "{text}");
}

#[test]
fn single_iterations_and_dead_branches_vanish() {
    let text = simplified(
        "kernel small { Y: f32[8] argument 0 written;
          for a in 3..4 { for b in 0..0 { Y[b] = f32(1.0); } let c = floor((2*a) / 4);
            if a - 4 >= 0 { Y[0] = f32(2.0); } if a - 3 >= 0 { Y[a + c] = f32(3.0); } } }",
    );
    assert!(text.contains("{\n  Y: f32[8] argument 0 written;\n  Y[4] = f32(3.0);\n}"), "{text}");
}

#[test]
fn a_parallel_loop_is_not_split_by_a_loop_further_in() {
    let text = simplified(
        "kernel window { X: f32[6] argument 0; Y: f32[8][4] argument 1 written;
          parallel t in 0..8 { for s in 0..3 { unroll w in 0..4 { if s + w - 1 >= 0 {
            Y[t][w] add = X[s + w - 1]; } } } } }",
    );
    assert!(text.contains("parallel t in 0..8 {\n    unroll"), "{text}");
}

#[test]
fn divisions_without_a_remainder_vanish_and_others_stand_outside() {
    let text = simplified(
        "kernel digits { Y: f32[4][64] argument 0 written;
          for o in 0..16 { for i in 0..16 { let q = floor((16*o + i) / 16); let r = floor((16*o + i) / 64);
            let same = floor((16*o + i) / 64); Y[r][16*q + i - 64*same] = f32(1.0); } } }",
    );
    assert!(text.contains("let r = floor(o / 4);\n    for i in 0..16 {\n      Y[r][16*o + i - 64*r]"), "{text}");
    assert_eq!(text.matches("floor").count(), 1, "{text}");
}

#[test]
fn a_division_that_was_taken_out_of_a_loop_keeps_its_range() {
    // Where k is 1 the quotient is -1: the last condition does not follow from the others.
    let text = simplified(
        "kernel shared { Y: f32[8] argument 0 written;
          for k in 1..9 {
            for j in 0..2 { let q = floor((k - 3) / 2); Y[q + 4*j + 1] = f32(1.0); }
            let r = floor((k - 3) / 2);
            if -k + 2*r + 3 >= 0 && k - 2*r - 3 >= 0 && k - 3 >= 0 { Y[r + 1] = f32(2.0); } } }",
    );
    assert_eq!(text.matches("floor").count(), 1, "{text}");
    assert!(text.contains("k - 3 >= 0"), "{text}");
}

#[test]
fn a_condition_that_no_iteration_changes_stands_outside_of_two_loops() {
    let unswitched = |condition: &str, rest: &str| {
        simplified(&format!(
            "kernel k {{ A: i32[64][64] argument 0 written; B: i32[64] argument 1;
              parallel i in 0..64 {{ for j in 0..63 {{
                A[i][j + 1] = (A[i][j] + B[j]);
                if {condition} {{ A[i][j + 1] max = B[i]; }} {rest} }} }} }}"
        ))
    };
    let once = unswitched("i - 3 >= 0", "");
    let inside = "A[i][j + 1] = (A[i][j] + B[j]);\n        A[i][j + 1] max = B[i];";
    assert!(once.contains("if i - 3 >= 0 {\n      for j in 0..63 {") && once.contains(inside), "{once}");
    assert!(once.contains("if -i + 2 >= 0 {\n      for j#2 in 0..63 {\n        A[i][j#2 + 1] = "), "{once}");
    assert_eq!((once.matches("if ").count(), once.matches("max =").count()), (2, 1), "{once}");
    // two of them
    let twice = unswitched("i - 3 >= 0", "if -i + 9 >= 0 { A[i][j + 1] add = B[j]; }");
    assert_eq!((twice.matches("for j").count(), twice.matches("add =").count()), (3, 2), "{twice}");
    // one that changes, and one on all of the body
    let changes = unswitched("i + j - 30 >= 0", "");
    assert_eq!((changes.matches("for j").count(), changes.matches("if i + j").count()), (1, 1), "{changes}");
    let all = simplified(
        "kernel k { A: i32[64][64] argument 0 written; parallel i in 0..64 { for j in 0..63 {
           if i - 3 >= 0 { A[i][j + 1] = A[i][j]; } } } }",
    );
    assert_eq!((all.matches("for j").count(), all.matches("if ").count()), (1, 1), "{all}");
}

#[test]
fn comparisons_of_iterators_in_values_are_decided_in_parts_of_loops() {
    let of = |value: &str| {
        simplified(&format!(
            "kernel k {{ A: i32[64][64] argument 0 written; B: i32[64] argument 1;
              parallel i in 0..64 {{ for j in 0..63 {{ A[i][j + 1] = (A[i][j] + {value}); }} }} }}"
        ))
    };
    // one part for each side, one iteration on its own
    let side = of("select(gt(index(j), i64(9)), B[j], i32(0))");
    assert!(side.contains("for j in 0..10 {\n      A[i][j + 1] = (A[i][j] + i32(0));"), "{side}");
    assert!(side.contains("for j#2 in 10..63 {\n      A[i][j#2 + 1] = (A[i][j#2] + B[j#2]);"), "{side}");
    let one = of("select(eq(index(j), i64(9)), B[j], i32(0))");
    assert!(one.contains("A[i][10] = (A[i][9] + B[9]);") && !one.contains("select"), "{one}");
    // guards of what is read
    let guard = of("(B[j - 3] if j - 3 >= 0 else i32(0))");
    assert!(guard.contains("for j in 0..3 {") && !guard.contains("if "), "{guard}");
    // what no iteration changes stands outside of two loops, beside what data decides
    let outside = of("select(and(gt(index(i), i64(2)), gt(B[j], i32(7))), B[j], i32(0))");
    assert!(outside.contains("if i - 3 >= 0 {\n      for j in 0..63 {"), "{outside}");
    assert_eq!((outside.matches("select(gt(B[").count(), outside.matches("i32(0));").count()), (1, 1), "{outside}");
    // of two iterators
    let both = of("select(gt(index(i + j), i64(9)), B[j], i32(0))");
    assert_eq!(
        (both.matches("for j").count(), both.matches("select(gt(index(i + j), i64(9))").count()),
        (1, 1),
        "{both}"
    );
    // always
    let always = of("select(or(lt(index(j), i64(63)), gt(B[j], i32(7))), B[j], i32(0))");
    assert!(always.contains("A[i][j + 1] = (A[i][j] + B[j]);"), "{always}");
}

#[test]
fn divisions_by_computed_powers_of_two_are_shifts_and_masks() {
    let of = |value: &str| {
        let text = simplified(&format!(
            "kernel k {{ A: i64[64][8] argument 0 written; B: i64[64] argument 1;
              parallel i in 0..64 {{ for s in 0..8 {{ A[i][s] = {value}; }} }} }}"
        ));
        text.lines().find(|l| l.contains("] =")).unwrap().trim().to_string()
    };
    assert_eq!(of("(index(i) / shl(i64(1), index(s)))"), "A[i][s] = shr(index(i), index(s));");
    assert_eq!(of("(index(i) / shl(i64(4), index(s)))"), "A[i][s] = shr(index(i), (index(s) + i64(2)));");
    assert_eq!(of("mod(B[i], shl(i64(2), index(s)))"), "A[i][s] = and(B[i], (shl(i64(2), index(s)) - i64(1)));");
    assert_eq!(of("(index(i) + (i64(2) * i64(4096)))"), "A[i][s] = (index(i) + i64(8192));");
    // a quotient is rounded towards zero; a power that the type does not hold is none
    for kept in ["(B[i] / shl(i64(2), index(s)))", "(index(i) / shl(i64(1), index(s + 56)))"] {
        assert_eq!(of(kept), format!("A[i][s] = {kept};"));
    }
}

#[test]
fn what_leaves_its_element_as_it_is_goes_with_its_loop() {
    let text = |kept: &str, op: &str| {
        simplified(&format!(
            "kernel rows {{ X: f32[64] argument 0; Y: f32[64] argument 1 written;
              parallel once in 0..1 {{ for i in 0..64 {{ Y[i] {op} = select(lt(index(i), i64(20)), X[i], {kept}); }} }} }}"
        ))
    };
    for (kept, op) in [("f32(-0.0)", "add"), ("Y[i]", "")] {
        let text = text(kept, op);
        assert!(text.contains("for i in 0..20 {") && !text.contains("..64 {"), "{text}");
    }
    // -0.0 and 0.0 is 0.0
    assert!(text("f32(0.0)", "add").contains("20..64 {"));
}
