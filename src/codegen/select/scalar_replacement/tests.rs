//! Random loops over references with constant distances, run by the interpreters of LoopNest and VCode; and what single
//! loops look like.

use super::*;
use crate::codegen::loopnest::LoopNest;
use crate::codegen::loopnest::{parse, simplify};
use crate::codegen::select::prepare;
use crate::codegen::select::state::{LocalMode, Selector};
use crate::codegen::select::tests::check;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Loads in innermost loops of the first phase for AVX-512, before and after.
fn loads(nest: &LoopNest) -> (usize, usize) {
    let is_load = |i: &Inst| matches!(i, Inst::VLoad { .. } | Inst::VBroadcast { .. } | Inst::VGather { .. });
    innermost(nest, &is_load)
}

/// Instructions of a kind in innermost loops of the first phase for AVX-512, before and after.
pub fn innermost(nest: &LoopNest, is_counted: &dyn Fn(&Inst) -> bool) -> (usize, usize) {
    let target = Target::avx512();
    let prepared = prepare::prepare(&simplify::simplify(nest), &target);
    let locals = vec![LocalMode::Registers { blend: false }; prepared.nest.buffers.len()];
    let selector = Selector::new(&prepared.nest, &target, &prepared.widths, &locals);
    let Some(tree) = prepared.nest.body.first().and_then(|s| selector.phase(s).ok()) else { return (0, 0) };
    let before = count(&tree.nodes, false, is_counted);
    (before, count(&replace_scalars(tree, &target).nodes, false, is_counted))
}

fn count(nodes: &[Node], innermost: bool, is_counted: &dyn Fn(&Inst) -> bool) -> usize {
    let of = |node: &Node| match node {
        Node::Loop(l) => count(&l.body, !l.body.iter().any(has_loop), is_counted),
        Node::If { body, .. } => count(body, innermost, is_counted),
        Node::Inst(inst) => (innermost && is_counted(inst)) as usize,
        _ => 0,
    };
    nodes.iter().map(of).sum()
}

fn parsed(body: &str) -> LoopNest {
    let text = format!(
        "kernel p {{ A: f32[16][90] argument 0 written; B: f32[16][90] argument 1 written; C: f32[16] argument 2 written;
         {body} }}"
    );
    parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[track_caller]
fn assert_loads(body: &str, before: usize, after: usize) {
    let nest = parsed(body);
    check(&nest, 1);
    assert_eq!(loads(&nest), (before, after), "{nest}");
}

#[test]
fn a_stored_value_is_read_from_its_register_in_the_next_iteration() {
    // the triangular bound keeps the loop from being unrolled
    assert_loads("for i in 1..9 { for j in i..60 { A[i][j] = (A[i][j - 1] + B[i][j]); } }", 2, 1);
}

#[test]
fn a_stored_subscript_is_read_from_its_register() {
    let integers = |body: &str| {
        let text = format!(
            "kernel p {{ P: i32[90] argument 0 written; B: i32[90][8] argument 1; Q: i32[90] argument 2 written;
             for i in 1..9 {{ for t in i..60 {{ {body} }} }} }}"
        );
        let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        check(&nest, 1);
        let (target, nest) = (Target::avx512(), simplify::simplify(&nest));
        let prepared = prepare::prepare(&nest, &target);
        let locals = vec![LocalMode::Registers { blend: false }; prepared.nest.buffers.len()];
        let selector = Selector::new(&prepared.nest, &target, &prepared.widths, &locals);
        let tree = selector.phase(&prepared.nest.body[0]).ok().expect("a tree");
        let loads = |tree: &Tree| format!("{:?}", tree.nodes).matches("LoadInt {").count();
        (loads(&tree), loads(&replace_scalars(tree, &target)))
    };
    let before = integers("P[t] = B[t][@and(P[t - 1], i32(7))];");
    assert!(before.0 > 0 && before.1 == 0, "{before:?}");
    // another one may be written in between
    let clobbered = integers("P[t] = B[t][@and(P[t - 1], i32(7))]; P[@and(Q[t], i32(7))] = i32(3);");
    assert!(clobbered.1 > 0, "{clobbered:?}");
    // what is loaded only is loaded twice
    let loaded = integers("Q[t] = (P[t] + B[t][@and(P[t], i32(7))]);");
    assert_eq!(loaded.0, loaded.1);
}

#[test]
fn distances_up_to_the_limit_move_through_registers() {
    assert_loads("for i in 1..9 { for j in i + 4..60 { A[i][j] = (A[i][j - 2] + B[i][j]); } }", 2, 1);
    assert_loads("for i in 1..9 { for j in i + 4..60 { A[i][j] = (A[i][j - 4] + A[i][j - 1]); } }", 2, 0);
    assert_loads("for i in 1..9 { for j in i + 5..60 { A[i][j] = (A[i][j - 5] + B[i][j]); } }", 2, 2);
}

#[test]
fn loops_that_may_be_empty_read_nothing_before_them() {
    assert_loads("for i in 0..9 { for j in i + 1..6 { A[i][j] = (A[i][j - 1] + B[i][j]); } }", 2, 1);
    assert_loads(
        "for i in 1..9 { for j in max(i, -2*i + 12)..min(i + 3, 9) { A[i][j] = (A[i][j - 1] + B[i][j]); } }",
        2,
        1,
    );
}

#[test]
fn carried_values_have_registers_before_invariants() {
    // 24 invariants and 12 values from one iteration to the next, of which each waits for its store otherwise
    let nest = parsed(
        "for i in 1..9 { for j in i..60 { unroll s in 0..12 {
           C[s] = ((C[s] * B[i][s]) + (A[i][j] * B[i][s + 20])); } } }",
    );
    check(&nest, 1);
    let (before, after) = innermost(&nest, &|i| matches!(i, Inst::VStore { .. }));
    assert_eq!((before, after), (12, 0), "{nest}");
    // as many invariants as registers are left stand before the loop
    let (_, after) = loads(&nest);
    assert!((2..=14).contains(&after), "{after}");
}

#[test]
fn rows_that_are_not_written_are_kept_beside_one_that_is() {
    // A[i-1][j-1] is the A[i-1][j] of the iteration before, A[i][j-1] the value stored there
    assert_loads(
        "for i in 1..9 { for j in i..60 { A[i][j] = max(A[i - 1][j - 1], max(A[i - 1][j], A[i][j - 1])); } }",
        3,
        1,
    );
}

#[test]
fn columns_that_lanes_store_do_not_meet_others() {
    let gathers = |body: &str| {
        let nest = parsed(&format!("for j in 2..58 {{ vector v in 0..8 {{ {body} }} }}"));
        check(&nest, 4);
        innermost(&nest, &|i| matches!(i, Inst::VGather { .. }))
    };
    let (before, after) = gathers("A[v][j] = (A[v][j - 1] - A[v][j - 2]);");
    assert!(before > 0 && after == 0, "{before} {after}");
    // the row behind is another lane of what is written
    let (_, after) = gathers("A[v][j] = (A[v][j - 1] - A[v + 1][j - 1]);");
    assert!(after > 0, "{after}");
}

#[test]
fn a_target_that_does_not_move_is_read_before_the_loop() {
    assert_loads("for i in 1..9 { for j in i..60 { C[i] = max(C[i], A[i][j]); } }", 2, 1);
}

#[test]
fn a_target_that_does_not_move_is_written_after_the_loop() {
    let stores = |body: &str| {
        let nest = parsed(body);
        check(&nest, 1);
        innermost(&nest, &|i| matches!(i, Inst::VStore { .. } | Inst::VScatter { .. }))
    };
    let sum = "for i in 1..9 { for j in i..60 { C[i] = max(C[i], A[i][j]); } }";
    assert_eq!(stores(sum), (1, 0));
    // rows of their own
    assert_eq!(stores("for i in 1..9 { for j in i..60 { C[i] = max(C[i], A[i][j]); A[i - 1][j] = C[i]; } }"), (2, 1));
    // the other statement reads it, or writes it
    assert_eq!(stores("for i in 1..9 { for j in i..60 { A[i][12] = B[i][j]; C[i] = A[i][j]; } }"), (2, 1));
    assert_eq!(stores("for i in 1..9 { for j in i..60 { A[i][12] = B[i][j]; A[i][j] = B[i][0]; } }"), (2, 2));
    // twice, in lanes that are no neighbours
    let lanes =
        |v: &str, of: &str| format!("vector {v} in 0..8 {{ C[2 * {v} + 1] = max(C[2 * {v} + 1], {of}[{v}][j]); }}");
    assert_eq!(
        stores(&format!("for i in 1..9 {{ for j in i..60 {{ {} {} }} }}", lanes("u", "A"), lanes("v", "B"))),
        (2, 0)
    );
    // the second store leaves what is between its lanes
    let all = "vector u in 0..15 { C[u + 1] = A[u][j]; }";
    assert_eq!(
        stores(&format!(
            "for i in 1..9 {{ for j in i..60 {{ {all} vector v in 0..8 {{ C[2 * v + 1] = B[v][j]; }} }} }}"
        )),
        (2, 2)
    );
    // no iteration, no store: after the loop under its condition
    assert_eq!(stores("for i in 0..9 { for j in i + 1..6 { C[i] = max(C[i], A[i][j]); } }"), (1, 0));
    assert_eq!(stores("for i in 0..9 { for j in i + 1..min(6, 2*i) { C[i] = A[i][j]; } }"), (1, 0));
    assert_eq!(stores("for i in 0..9 { for j in i + 1..6 { C[i] = max(C[0], A[i][j]); } }"), (1, 1));
}

#[test]
fn some_lanes_of_a_vector_stay_in_its_register() {
    let body =
        |value: &str| format!("for i in 1..9 {{ for j in i..16 {{ vector v in 0..13 {{ C[v] = {value}; }} }} }}");
    assert_loads(&body("max(C[v], A[j][v])"), 2, 1);
    let nest = parsed(&body("max(C[v], A[j][v])"));
    let is_store = |i: &Inst| matches!(i, Inst::VStore { .. });
    assert_eq!(innermost(&nest, &is_store), (1, 0));
    // the lanes beyond are no zeros in the register of a store: what adds all lanes reads memory
    let sum =
        |v: &str| format!("for i in 1..9 {{ for j in i..16 {{ {v} vector v in 0..13 {{ B[i][0] add = C[v]; }} }} }}");
    assert_loads(&sum("vector u in 0..13 { C[u] = (f32(1.0) + A[j][u]); }"), 3, 2);
}

#[test]
fn what_is_read_by_subscripts_from_data_is_written_in_the_loop() {
    let stores = |body: &str| {
        let text = format!(
            "kernel p {{ A: f32[16][90] argument 0 written; C: f32[16] argument 1 written;
             I: i64[90] argument 2 written; J: i64[90] argument 3; {body} }}"
        );
        let nest = parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        check(&nest, 1);
        innermost(&nest, &|i| matches!(i, Inst::VStore { .. } | Inst::VScatter { .. }))
    };
    // a gather, a scalar read, a subscript that is itself written
    let gather = "C[1] = A[i][7]; vector v in 0..16 { A[v][j] = C[@J[v]]; }";
    assert_eq!(stores(&format!("for i in 0..9 {{ for j in i + 8..60 {{ {gather} }} }}")).1, 3);
    let scalar = "C[1] = A[i][j - 1]; A[i][j] = C[@J[j]];";
    assert_eq!(stores(&format!("for i in 0..9 {{ for j in i + 8..60 {{ {scalar} }} }}")).1, 2);
    let subscript = "I[2] = J[j]; A[i][j] = C[@I[2]];";
    assert_eq!(stores(&format!("for i in 0..9 {{ for j in i + 8..60 {{ {subscript} }} }}")).1, 2);
}

#[test]
fn a_value_of_an_earlier_iteration_is_written_after_the_loop() {
    // the values of the last iterations wait in registers, which change at the end of each
    for (count, body) in [
        (4, "C[1] = C[0]; C[0] = A[i][j];"),
        (7, "C[2] = C[1]; C[1] = C[0]; C[0] = A[i][j]; B[i][j] = C[2];"),
        (5, "B[i][j] = (C[0] * f32(0.5)); C[3] = C[2]; C[2] = C[0]; C[0] = B[i][j];"),
    ] {
        let nest = parsed(&format!("for i in 1..9 {{ for j in i..60 {{ {body} }} }}"));
        check(&nest, 1);
        let (before, after) = innermost(&nest, &|i| matches!(i, Inst::VStore { .. } | Inst::VScatter { .. }));
        assert!(after < before && before + after <= count, "{nest}");
    }
}

#[test]
fn a_write_that_may_meet_the_address_ends_the_reuse() {
    assert_loads("for i in 1..9 { for j in i..60 { A[i][j] = A[i][j - 1]; A[i][12] = B[i][j]; } }", 2, 2);
    assert_loads(
        "for i in 1..9 { for j in i..60 { A[i][j] = A[i][j - 1]; if j - 12 >= 0 { A[i][j] = B[i][j]; } } }",
        2,
        2,
    );
    // rows k > i are elsewhere
    assert_loads(
        "for i in 1..9 { for k in i + 1..10 { for j in i..60 { A[k][j] = A[k][j - 1]; A[i][j] = B[i][j]; } } }",
        2,
        1,
    );
}

struct Source(StdRng);

impl Source {
    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.random_range(0..of.len())]
    }

    fn offset(&mut self, reach: i64) -> String {
        let k = self.0.random_range(-reach..=reach);
        if k < 0 { format!(" - {}", -k) } else { format!(" + {k}") }
    }

    fn element(&mut self, move_by: &str, row: &str) -> String {
        let array = self.pick(&["A", "A", "A", "B"]);
        let row = if row == "i" { format!("i{}", self.offset(1)) } else { row.to_string() };
        match self.0.random_range(0..12) {
            0 => format!("{array}[{row}][20]"),
            1 | 2 => self.fixed(),
            _ => format!("{array}[{row}][{move_by}{}]", self.offset(2)),
        }
    }

    /// An element that does not move with a loop.
    fn fixed(&mut self) -> String {
        self.pick(&["C[0]", "C[1]", "C[2]"]).to_string()
    }

    fn statement(&mut self, move_by: &str, row: &str) -> String {
        let fixed = self.0.random_range(0..4) == 0;
        let target = if fixed { self.fixed() } else { self.element(move_by, row) };
        let (a, b) = (self.element(move_by, row), self.element(move_by, row));
        let value = match self.0.random_range(0..4) {
            0 => format!("max({a}, {b})"),
            1 => format!("(({a} * f32(0.5)) + ({b} * f32(0.25)))"),
            2 => format!("min(({a} - f32(0.5)), {b})"),
            _ => a,
        };
        let store = format!("{target} = {value};");
        match self.0.random_range(0..10) {
            0 => format!("if j - 14 >= 0 {{ {store} }}"),
            _ => store,
        }
    }

    /// Statements over elements of rows, some or all lanes of a vector; the loop over `j` moves none or one of the rows.
    fn rows(&mut self) -> String {
        let row = |s: &mut Source| match s.0.random_range(0..4) {
            0 | 1 => "C[v]".to_string(),
            2 => format!("A[i{}][v]", s.offset(1)),
            _ => format!("{}[j][v]", s.pick(&["A", "B"])),
        };
        let statement = |n: i64, s: &mut Source| {
            let (target, a, b) = (row(s), row(s), row(s));
            let value = s.pick(&["max(X, Y)", "((X * f32(0.5)) + (Y * f32(0.25)))", "min((X - f32(0.5)), Y)", "X"]);
            let lanes = s.pick(&["8", "13", "13", "16"]);
            let store =
                format!("{target} = {};", value.replace('X', &a).replace('Y', &b)).replace("[v]", &format!("[v{n}]"));
            format!("vector v{n} in 0..{lanes} {{ {store} }}")
        };
        let statements: Vec<String> = (0..self.0.random_range(1..=3)).map(|n| statement(n, self)).collect();
        let lower = self.pick(&["4", "i", "max(i, 6)"]);
        let upper = self.pick(&["7", "15", "16", "min(i + 8, 15)"]);
        format!("for i in 3..13 {{ for j in {lower}..{upper} {{ {} }} }}", statements.join(" "))
    }

    fn nest(&mut self) -> String {
        let move_by = self.pick(&["j", "j", "j", "2*j", "-j + 40"]);
        let vector = self.0.random_range(0..4) == 0;
        let statements = self.0.random_range(1..=3);
        let statements: Vec<String> =
            (0..statements).map(|_| self.statement(move_by, if vector { "v" } else { "i" })).collect();
        let lower = self.pick(&["4", "i", "i + 3", "max(i, 6)", "max(i, -i + 14)"]);
        let upper = self.pick(&["7", "32", "i + 12", "2*i - 1", "min(i + 8, 25)"]);
        let step = self.pick(&["", "", "", " step 2", " step 3"]);
        let lower = if lower == "i" { "i + 1" } else { lower };
        let body = statements.join(" ");
        // lanes are rows of their own; statements of one vector loop each
        let body = if vector {
            let lanes = self.pick(&["8", "13", "16"]);
            let each = (0..).zip(&statements).map(|(n, s)| {
                let s = s.replace("[v]", &format!("[v{n}]"));
                format!("vector v{n} in 0..{lanes} {{ {s} }}")
            });
            each.collect::<Vec<_>>().join(" ")
        } else {
            body
        };
        format!("for i in 3..13 {{ for j in {lower}..{upper}{step} {{ {body} }} }}")
    }
}

#[test]
fn random_loops_compute_the_same() {
    let mut source = Source(StdRng::seed_from_u64(7));
    let (mut fewer, mut removed, mut all) = (0, 0, 0);
    for seed in 0..120 {
        let nest = parsed(&source.nest());
        check(&nest, seed);
        let (before, after) = loads(&nest);
        assert!(after <= before, "{nest}");
        fewer += usize::from(after < before);
        (removed, all) = (removed + before - after, all + before);
    }
    println!("{fewer} of 120 loops, {removed} of {all} loads");
    assert!(fewer > 30 && removed * 9 > all, "{fewer} of 120 loops, {removed} of {all} loads");
}

#[test]
fn random_rows_compute_the_same() {
    let mut source = Source(StdRng::seed_from_u64(11));
    let mut fewer = 0;
    for seed in 0..120 {
        let nest = parsed(&source.rows());
        check(&nest, seed);
        let (before, after) = loads(&nest);
        assert!(after <= before, "{nest}");
        fewer += usize::from(after < before);
    }
    assert!(fewer > 40, "{fewer} of 120 loops");
}

#[test]
fn a_store_that_nothing_reads_before_the_next_one_goes() {
    let stores = |body: &str| {
        let nest = parsed(body);
        check(&nest, 2);
        innermost(&nest, &|i: &Inst| matches!(i, Inst::VStore { .. }))
    };
    let polynomial = "A[i][16*j + k] = ((A[i][16*j + k] * B[i][16*j + k]) + C[d]);";
    let around = |inside: &str| format!("for i in 0..16 {{ for j in i..5 {{ {inside} }} }}");
    let unrolled = around(&format!("unroll d in 0..4 {{ vector k in 0..16 {{ {polynomial} }} }}"));
    assert_eq!(stores(&unrolled), (4, 1));
    // what lies between may be the same element, or a part of it
    let read = "A[i][j] = B[i][j]; C[j] = A[j][i]; A[i][j] = (B[i][j] + C[j]);";
    assert_eq!(stores(&around(read)).1, 3);
    let part = "vector k in 0..16 { A[i][k] = B[i][k]; } C[j] = A[i][3]; vector m in 0..16 { A[i][m] = C[m]; }";
    assert_eq!(stores(&around(part)).1, 3);
}

#[test]
fn a_branch_reads_what_it_stored_from_its_register() {
    let branch = |body: &str| {
        format!("for i in 1..9 {{ for j in i..60 {{ let k = floor(j / 3); if k - i >= 0 {{ {body} }} }} }}")
    };
    assert_loads(&branch("B[i][j] = A[i][j]; C[i] = (B[i][j] + A[i][j + 1]);"), 3, 2);
    // what another statement may have written is loaded again
    assert_loads(&branch("B[i][j] = A[i][j]; B[i][2*i] = A[i][j + 1]; C[i] = B[i][j];"), 3, 3);
}

#[test]
fn an_address_that_the_body_computes_is_one_in_an_iteration() {
    let body = |read: &str| {
        format!(
            "for i in 1..9 {{ for j in i..60 {{ let k = floor(j / 3); A[i][k] = (B[i][j] * f32(2.0)); C[i] = A[i][{read}]; }} }}"
        )
    };
    assert_loads(&body("k"), 2, 1);
    assert_loads(&body("k + 1"), 2, 2);
}

#[test]
fn columns_of_records_are_loaded_before_others_are_stored() {
    let record = |third: &str| {
        format!(
            "for i in 0..8 {{ for j in i..3 {{ vector k in 0..16 {{ A[i][3*k + j] add = B[i][k]; {third} add = B[j][k]; }} }} }}"
        )
    };
    let kinds = |body: &str| -> String {
        let nest = parsed(body);
        let functions = check(&nest, 1);
        let kind = |i: &Inst| match i {
            Inst::VGather { .. } => "l",
            Inst::VScatter { .. } => "s",
            _ => "",
        };
        functions[0].insts.iter().map(kind).collect()
    };
    assert_eq!(kinds(&record("A[i][3*k + j + 1]")), "llss");
    // an element of the same column
    let same = kinds(&record("A[i][3*k + j + 3]"));
    assert!(same.find('s') < same.rfind('l'), "{same}");
}
