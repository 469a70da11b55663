//! Terms of the time of loops, each where it decides.

use super::*;
use crate::codegen::calibration::Calibration;
use crate::codegen::loopnest::parse;

fn priced(text: &str) -> Cost {
    price(&parse::nest(text).unwrap(), &Target::avx512())
}

/// Cycles for each of `n` points.
fn cycles(ns: f64, n: f64) -> f64 {
    ns * Target::avx512().machine.clock_ghz / n
}

fn rows(inside: &str) -> String {
    format!(
        "kernel k {{ X: f32[1000][1000] argument 0; Y: f32[1000][1000] argument 1 written;
           parallel i in 0..999 {{ {inside} }} }}"
    )
}

#[test]
fn vectors_divide_the_work_of_the_ports() {
    let scalar = priced(&rows("for j in 0..992 { Y[i][j] = (X[i][j] * f32(0.5)); }"));
    let vector = priced(&rows("vector j in 0..992 { Y[i][j] = (X[i][j] * f32(0.5)); }"));
    let ratio = scalar.ports / vector.ports;
    assert!((12.0..=20.0).contains(&ratio), "{ratio}");
}

#[test]
fn a_quotient_by_a_constant_takes_no_division() {
    let of = |divisor: &str| priced(&rows(&format!("vector j in 0..992 {{ Y[i][j] = (X[i][j] / {divisor}); }}"))).ports;
    let (power, constant, any) = (of("f32(16.0)"), of("f32(3.0)"), of("X[i][j + 1]"));
    assert!(power < constant && 1.5 * constant < any, "{power} {constant} {any}");
}

#[test]
fn two_terms_of_products_of_16_bits_are_one() {
    let of = |ty: &str, lanes: i64| {
        let text = format!(
            "kernel k {{ X: {ty}[4096] argument 0; H: {ty}[32] argument 1; Y: i32[8][64] argument 2 written; a: i32[64] local;
               parallel t in 0..8 {{
                 vector i in 0..64 {{ a[i] = i32(0); }}
                 for k in 0..32 {{ vector i in 0..64 {{
                   a[i] add = (cast i32(X[{lanes}*i + k + 128*t]) * cast i32(H[k])); }} }}
                 vector i in 0..64 {{ Y[t][i] = a[i]; }} }} }}"
        );
        cycles(priced(&text).ports, 8.0 * 32.0 * 4.0)
    };
    // for two terms of a vector a load, a product and a sum; each term has all of them where lanes are not two elements apart
    assert!(of("i16", 2) < 1.2 && 2.0 * of("i16", 2) < of("i16", 4), "{} {}", of("i16", 2), of("i16", 4));
    assert!(1.5 * of("i16", 2) < of("i32", 1), "{} {}", of("i16", 2), of("i32", 1));
}

#[test]
fn roots_of_vectors_leave_the_divider_where_it_is_busy() {
    let root = |n: usize| {
        let sum = (0..n).fold("sqrt(X[i][j])".to_string(), |sum, k| format!("max({sum}, X[i][j + {k}])"));
        cycles(priced(&rows(&format!("vector j in 0..896 {{ Y[i][j] = {sum}; }}"))).ports, 999.0 * 56.0)
    };
    let [by_divider, by_products] = Target::avx512().machine.root_cycles;
    assert!(by_products <= root(0) && root(0) < by_divider, "{}", root(0));
    // beside much else the divider takes no time of its own
    let others = |n: usize| root(n) - root(n - 1);
    assert!(root(40) < 40.0 * others(40) + by_products, "{} {}", root(40), others(40));
}

#[test]
fn single_elements_have_a_port_more_than_vectors() {
    // as many instructions, of one element and of 16
    let of = |kind: &str, n: i64| {
        let sum = (0..8).fold("X[i][j]".to_string(), |sum, k| format!("max({sum}, X[i][j + {k}])"));
        cycles(priced(&rows(&format!("{kind} j in 0..{n} {{ Y[i][j] = {sum}; }}"))).ports, 999.0 * 62.0)
    };
    let machine = Target::avx512().machine;
    let (scalar, vector) = (of("for", 62), of("vector", 992));
    assert!(scalar < vector && machine.scalar_per_cycle > machine.fma_per_cycle as f64, "{scalar} {vector}");
}

#[test]
fn lanes_in_lines_of_their_own_take_longest() {
    let of = |index: &str| priced(&rows(&format!("vector j in 0..496 {{ Y[i][j] = X{index}; }}"))).ports;
    let (unit, pairs, columns) = (of("[i][j]"), of("[i][2*j]"), of("[j][i]"));
    assert!(1.5 * unit < pairs && pairs < 3.0 * unit && 4.0 * pairs < columns, "{unit} {pairs} {columns}");
}

#[test]
fn a_recurrence_waits_for_the_latency_of_what_lies_between() {
    let sum = priced(&rows("for j in 0..990 { Y[i][j + 1] = (Y[i][j] + X[i][j]); }"));
    let machine = Target::avx512().machine;
    let each = cycles(sum.ports + sum.chains, 999.0 * 990.0);
    assert!((each - machine.scalar_add_latency).abs() < 0.2, "{each}");
    // of vectors
    let text = rows("vector j in 0..16 { Y[i + 1][j] = (Y[i][j] + X[i][j]); }");
    let vectors = priced(&text.replace("parallel i", "parallel t in 0..1 { for i").replace("} }", "} } }"));
    let each = cycles(vectors.ports + vectors.chains, 999.0);
    assert!((each - machine.add_latency).abs() < 0.2, "{each}");
    // over two steps: half of it, which the ports take as well
    let far = priced(&rows("for j in 0..990 { Y[i][j + 2] = (Y[i][j] + X[i][j]); }"));
    assert!(far.chains < 0.6 * sum.chains, "{far:?} {sum:?}");
}

#[test]
fn integers_wait_less_than_floats() {
    let each = |dtype: &str| {
        let cost = priced(&format!(
            "kernel k {{ X: {dtype}[1000][1000] argument 0; Y: {dtype}[1000][1000] argument 1 written;
               parallel i in 0..999 {{ for j in 0..990 {{ Y[i][j + 1] = max((Y[i][j] + X[i][j]), X[i][j + 1]); }} }} }}"
        ));
        cycles(cost.ports + cost.chains, 999.0 * 990.0)
    };
    assert!(each("i32") < 2.5 && each("f32") > 5.0, "{} {}", each("i32"), each("f32"));
}

#[test]
fn a_shift_waits_no_longer_than_a_sum_of_integers() {
    let each = |op: &str| {
        let cost = priced(&format!(
            "kernel k {{ X: u32[1000][1000] argument 0; Y: u32[1000][1000] argument 1 written;
               parallel t in 0..1 {{ for i in 0..999 {{ vector j in 0..16 {{
                 Y[i + 1][j] = or({op}, X[i][j]); }} }} }} }}"
        ));
        cycles(cost.chains, 999.0)
    };
    let (shift, sum) = (each("shl(Y[i][j], u32(1))"), each("(Y[i][j] + u32(1))"));
    assert!(shift <= sum && sum > 0.0, "{shift} {sum}");
}

#[test]
fn what_waits_for_results_hides_transfers() {
    let far =
        |step: &str| priced(&rows(&format!("for j in 0..990 {{ {step} }}")).replace("[1000][1000]", "[4000][4000]"));
    let sum = far("Y[i][j + 1] = (Y[i][j] + X[i][j]);");
    let copy = far("Y[i][j + 1] = (X[i][j + 1] + X[i][j]);");
    // transfers from the second cache wait as well; what is beside arithmetic stays
    let near = Target::avx512().machine.second_exposed * copy.transfers[0];
    assert!(sum.chains > near && near > 0.0, "{sum:?} {copy:?}");
    assert!((copy.exposed - sum.exposed - near).abs() < 1e-6 * near && sum.exposed > 0.0, "{sum:?} {copy:?}");
}

#[test]
fn arithmetic_and_transfers_hide_each_other_but_for_a_share() {
    let roots = |count: usize| {
        let value = (0..count).fold("X[i][16*j + l]".to_string(), |value, _| format!("sqrt({value})"));
        let text = rows(&format!("for j in 0..62 {{ vector l in 0..16 {{ Y[i][16*j + l] = {value}; }} }}"));
        priced(&text.replace("[1000][1000]", "[4000][4000]"))
    };
    let (few, many) = (roots(0), roots(8));
    let far = |cost: &Cost| cost.transfers[1].max(cost.transfers[2]);
    assert!(few.core() < far(&few) && many.core() > far(&many), "{few:?} {many:?}");
    for cost in [few, many] {
        let (longer, shorter) = (cost.core().max(far(&cost)), cost.core().min(far(&cost)));
        let time = cost.nanoseconds();
        assert!((longer + 0.2 * shorter..longer + 0.7 * shorter).contains(&time), "{cost:?}");
    }
}

#[test]
fn what_is_written_to_memory_takes_bandwidth_too() {
    let of = |body: &str| {
        let text = rows(&format!("for j in 0..2000 {{ vector l in 0..16 {{ {body} }} }}"));
        priced(&text.replace("[1000][1000]", "[32000][32000]").replace("0..999", "0..32000"))
    };
    let [read, written] = [of("Y[0][l] add = X[i][16*j + l];"), of("X[i][16*j + l] = f32(1.0);")];
    let [last, memory] = [1, 2].map(|level| written.transfers[level] / read.transfers[level]);
    assert!((0.9..1.1).contains(&last) && (1.5..2.1).contains(&memory), "{read:?} {written:?}");
}

#[test]
fn a_part_of_what_does_not_fit_the_last_cache_is_there() {
    assert_eq!([absent_share(0.2), absent_share(1.0)], [0.0, 0.0]);
    for times in [1.1, 1.5, 2.0, 4.0] {
        let share = absent_share(times);
        assert!((share - 1.0 + (-times * share).exp()).abs() < 0.01, "{times}: {share}");
    }
    assert!(absent_share(1.1) < 0.25 && (0.75..0.85).contains(&absent_share(2.0)) && absent_share(8.0) > 0.99);
}

#[test]
fn updates_at_subscripts_from_data_wait_where_few_places_are() {
    let chains = |bins: i64, bin: &str| {
        priced(&format!(
            "kernel k {{ B: i32[100000] argument 0; H: f32[{bins}] argument 1 written;
               parallel t in 0..1 {{ for j in 0..100000 {{ H[@{bin}] add = f32(1.0); }} }} }}"
        ))
        .chains
    };
    let [two, many, same] = [chains(2, "B[j]"), chains(1000, "B[j]"), chains(1000, "B[7]")];
    assert!(two > 10_000.0 && many < 0.1 * two && same > two, "{two} {many} {same}");
}

#[test]
fn a_recurrence_goes_through_several_statements() {
    let two = priced(
        "kernel k { X: f32[1000] argument 0; A: f32[1001] argument 1 written; B: f32[1001] argument 2 written;
           parallel t in 0..1 { for j in 0..1000 {
             A[j + 1] = (B[j] + X[j]);
             B[j + 1] = (A[j + 1] + X[j]);
           } } }",
    );
    let each = cycles(two.ports + two.chains, 1000.0);
    assert!((each - 2.0 * Target::avx512().machine.scalar_add_latency).abs() < 0.3, "{each}");
}

#[test]
fn a_sum_waits_longer_with_another_operation_or_a_product() {
    let each = |value: &str| {
        let sum = priced(&rows(&format!("for j in 0..990 {{ Y[i][j + 1] = {value}; }}")));
        cycles(sum.ports + sum.chains, 999.0 * 990.0)
    };
    let machine = Target::avx512().machine;
    let fma = machine.fma_latency as f64;
    for (value, expected) in [
        ("(Y[i][j] + X[i][j])", machine.scalar_add_latency),
        ("(Y[i][j] + (X[i][j] * X[i][j]))", fma),
        ("((Y[i][j] * f32(0.5)) + X[i][j])", fma),
        ("max((Y[i][j] + X[i][j]), X[i][j + 1])", machine.add_latency + fma),
    ] {
        assert!((each(value) - expected).abs() < 0.2, "{value}: {} and {expected}", each(value));
    }
}

#[test]
fn what_the_innermost_loop_does_not_change_costs_nothing_in_it() {
    let outside = priced(&rows("vector j in 0..992 { Y[i][j] = (X[i][j] * X[i][0]); }"));
    let division = priced(&rows("for j in 0..992 { Y[i][j] = (X[i][j] * (f32(1.0) / X[i][0])); }"));
    let product = priced(&rows("for j in 0..992 { Y[i][j] = (X[i][j] * X[i][0]); }"));
    assert!(outside.ports < product.ports);
    assert!(division.ports < 1.01 * product.ports, "{division:?} {product:?}");
}

#[test]
fn rows_that_no_prefetcher_follows_start_slowly() {
    let text = |outer: &str, inner: &str| {
        format!(
            "kernel k {{ X: f32[3000][320] argument 0; Y: f32[3000][320] argument 1 written;
               parallel a in 0..1 {{ {outer} {{ {inner} {{ vector c in 0..16 {{
                 Y[t][16*b + c] = X[t][16*b + c];
               }} }} }} }} }}"
        )
    };
    let columns = priced(&text("for b in 0..20", "for t in 0..3000"));
    let lines = priced(&text("for t in 0..3000", "for b in 0..20"));
    assert!(columns.transfers[1] > 1.5 * lines.transfers[1], "{columns:?} {lines:?}");
    // from memory they take longer
    let far = priced(&text("for b in 0..200", "for t in 0..3000").replace("[320]", "[3200]"));
    assert!(far.transfers[2] > 1.5 * far.transfers[1], "{far:?} {columns:?}");
    assert!(columns.nanoseconds() > 1.3 * lines.nanoseconds());
}

#[test]
fn rows_that_the_processor_follows_in_turn_go_on_where_they_were() {
    let of = |rows: i64| {
        let terms: Vec<String> = (1..rows).map(|r| format!("X[{r}][16*b + c]")).collect();
        let sum = terms.iter().fold("X[0][16*b + c]".to_string(), |sum, term| format!("({sum} + {term})"));
        let text = format!(
            "kernel k {{ X: f32[{rows}][160000] argument 0; Y: f32[160000] argument 1 written;
               parallel a in 0..1 {{ for b in 0..10000 {{ vector c in 0..16 {{ Y[16*b + c] = {sum}; }} }} }} }}"
        );
        let nest = crate::codegen::loopnest::parse::nest(&text).unwrap();
        [Target::avx512(), Target::avx2()].map(|target| traffic::traffic(&nest, &target).starts[1])
    };
    let ([few, _], [many, anew]) = (of(4), of(24));
    assert!(many < 10.0 * few && anew > 100.0 * few, "{few} {many} {anew}");
}

/// A tensor instruction is one instruction for the terms that it sums.
#[test]
fn a_tensor_instruction_counts_once_for_its_terms() {
    let text = "kernel t {
  A: u8[64][64] argument 0;
  B: i8[16][32][4] argument 1;
  C: i32[64][32] argument 2 written;
  parallel m in 0..64 {
    for k in 0..16 {
      vector n in 0..32 {
        KIND q in 0..4 {
          C[m][n] add = (cast i32(A[m][4*k + q]) * cast i32(B[k][n][q]));
        }
      }
    }
  }
}
";
    let ports = |kind: &str| priced(&text.replace("KIND", kind)).ports;
    let (one, four) = (ports("instruction vpdpbusd"), ports("unroll"));
    assert!(one * 4.0 < four, "{one} and {four}");
}

#[test]
fn what_two_statements_share_is_computed_once() {
    let of = |second: &str| {
        let both = format!("Y[i][j] = (X[i][j] / (X[i][j + 1] + X[i + 1][j])); Z[i][j] = {second};");
        let text = rows(&format!("vector j in 0..992 {{ {both} }}"));
        priced(&text.replace("parallel", "Z: f32[1000][1000] argument 2 written;\nparallel")).ports
    };
    let (shared, other) =
        (of("(X[i + 1][j] / (X[i][j + 1] + X[i + 1][j]))"), of("(X[i + 1][j] / (X[i][j] + X[i + 1][j]))"));
    assert!(shared < 0.8 * other, "{shared} {other}");
    // a value of what the first statement writes is another one
    let of = |written: &str| {
        let sum = format!("exp(({written}[i][j + 1] + X[i][j]))");
        let text = rows(&format!("for j in 0..992 {{ Y[i][j] = {sum}; Y[i][j + 2] = ({sum} + X[i][j]); }}"));
        priced(&text).ports
    };
    assert!(of("X") < 0.7 * of("Y"), "{} {}", of("X"), of("Y"));
}

#[test]
fn columns_of_rows_that_are_lanes_take_a_share_of_their_gathers() {
    let of = |read: &str| {
        let text = rows(&format!("for j in 0..480 {{ vector v in 0..16 {{ Y[i][v] = (Y[i][v] * {read}); }} }}"));
        priced(&text).ports
    };
    let (column, apart) = (of("X[v][j]"), of("X[v][2*j]"));
    assert!(3.0 * column < apart, "{column} {apart}");
}

#[test]
fn parts_of_a_row_that_lie_apart_are_two_rows() {
    let of = |distance: i64| {
        let sum = format!("(X[i][64*jo + j] + X[i][64*jo + j + {distance}])");
        priced(&rows(&format!("for jo in 0..7 {{ vector j in 0..64 {{ Y[i][64*jo + j] = {sum}; }} }}")))
    };
    let (together, apart) = (of(1), of(500));
    assert!(apart.transfers[1] < 2.0 * together.transfers[1] && together.rows > 0.0, "{together:?} {apart:?}");
    assert!(apart.transfers[0] < 2.0 * together.transfers[0], "{together:?} {apart:?}");
}

#[test]
fn iterations_are_as_far_apart_as_the_step_of_their_loop() {
    let chains = |step: i64, ahead: i64| {
        let text = format!(
            "kernel k {{ X: f32[1600] argument 0 written;
               for t in 0..1584 step {step} {{ vector k in 0..16 {{ X[t + k + {ahead}] = (X[t + k] * f32(3.0)); }} }} }}"
        );
        priced(&text).chains
    };
    // whole vectors in place; every element is in two vectors; what the iteration before stored is read
    assert_eq!(chains(16, 0), 0.0);
    assert!(chains(8, 0) > 0.0 && chains(16, 16) > 0.0);
}

#[test]
fn a_load_waits_for_a_store_that_does_not_forward_to_it() {
    let of = |distance: i64, lanes: i64, body: &str| {
        let text = format!(
            "kernel k {{ X: f32[100][{distance}] argument 0; Y: f32[100][{distance}] argument 1 written;
               parallel i in 0..100 {{ {} }} }}",
            body.replace("LANES", &lanes.to_string())
        );
        priced(&text).chains / 100.0
    };
    let wait = Target::avx512().machine.blocked_load_ns;
    let near = |ns: f64| (0.99..1.01).contains(&(ns / wait));
    let update = "vector j in 0..LANES { Y[i][j] add = X[i][j]; }";
    // the store of a row of 10 meets six elements of the next row, which is loaded just after it
    assert!(near(of(10, 10, update)), "{}", of(10, 10, update));
    assert_eq!([of(16, 10, update), of(16, 16, update)], [0.0; 2]);
    // eight elements fill a register of half the width, which needs no mask
    assert_eq!(of(8, 8, update), 0.0);
    // without masks three elements are an access of three
    let text = "kernel k { X: f32[100][3] argument 0; Y: f32[100][3] argument 1 written;
                parallel i in 0..100 { vector j in 0..3 { Y[i][j] add = X[i][j]; } } }";
    assert_eq!(price(&parse::nest(text).unwrap(), &Target::neon()).chains, 0.0);
    // 16 elements that single stores wrote are no vector that one of them forwards; a vector forwards to its own elements
    let after = |stores: &str, read: &str| {
        of(32, 16, &format!("{stores} vector j in 0..LANES {{ Y[i][j + 16] = {read}[i][j]; }}"))
    };
    let single = "unroll k in 0..16 { Y[i][k] = X[i][k]; }";
    assert!(near(after(single, "Y")), "{}", after(single, "Y"));
    assert_eq!([after(single, "X"), after("vector k in 0..16 { Y[i][k] = X[i][k]; }", "Y")], [0.0; 2]);
    // four elements inside of what a vector wrote: one under a mask forwards to nothing
    let inside = "vector j in 0..LANES { Y[i][j] = X[i][j]; } vector k in 0..4 { Y[i][k + 16] = Y[i][k + 2]; }";
    assert!(near(of(32, 10, inside)), "{}", of(32, 10, inside));
    assert_eq!(of(32, 16, inside), 0.0);
    // accumulators that the loop does not move along stay in registers
    let sums = "unroll k in 0..2 { vector j in 0..LANES { Y[0][LANES*k + j] add = X[i][j]; } }";
    assert!(of(32, 10, sums) < 0.5 * wait, "{}", of(32, 10, sums));
}

#[test]
fn lanes_under_a_mask_are_all_at_work() {
    let sums = |condition: &str| {
        let store = format!("{condition} {{ Y[i][j] = (X[i][j] * X[i][j + 1]); }}");
        priced(&rows(&format!("for k in 0..60 {{ vector j in 0..96 {{ {store} }} }}"))).ports
    };
    let (masked, whole) = (sums("if j - k >= 0"), sums("if k >= 0"));
    assert!(masked > whole, "{masked} {whole}");
}

#[test]
fn columns_side_by_side_cost_less_than_gathers() {
    // real and imaginary parts of rows in lanes, along a loop over the columns
    let of = |second: &str| {
        let store = format!("s[i] add = (A[i][2*j] * A[i][{second}]);");
        let text = format!(
            "kernel k {{ A: f32[16][4096] argument 0; Y: f32[16] argument 1 written; s: f32[16] local;
               parallel t in 0..8 {{
                 vector i in 0..16 {{ s[i] = f32(0.0); }}
                 for j in 0..1000 {{ vector i in 0..16 {{ {store} }} }}
                 vector i in 0..16 {{ Y[i] = s[i]; }} }} }}"
        );
        cycles(priced(&text).ports, 8.0 * 1000.0)
    };
    let (beside, apart) = (of("2*j + 1"), of("2*j + 1024"));
    assert!(3.0 * beside < apart, "{beside} {apart}");
}

#[test]
fn half_vectors_are_cheaper_where_whole_ones_take_two_steps() {
    let of = |name: &str, lanes: i64| {
        let mut target = Target::avx512();
        target.machine = Calibration::of_core(name, &target).unwrap().machine;
        let text = rows(&format!(
            "unroll k in 0..8 {{ vector j in 0..{lanes} {{ Y[i][16*k + j] = (X[i][16*k + j] * X[i][{lanes}*k + 500]); }} }}"
        ));
        cycles(price(&parse::nest(&text).unwrap(), &target).ports, 999.0)
    };
    let share = |name: &str| of(name, 4) / of(name, 16);
    assert!(share("znver4") < 0.7 && share("znver5") > 0.95, "{} {}", share("znver4"), share("znver5"));
}

#[test]
fn vectors_across_lines_that_another_branch_stored_wait() {
    let of = |columns: i64, second: &str| {
        let text = format!(
            "kernel k {{ X: u8[99][{columns}] argument 0; N: u8[99][{columns}] argument 1 written; Y: u8[99][{columns}] argument 2 written;
             parallel once in 0..1 {{ for i in 0..99 {{ for jo in 0..5 {{ vector j in 0..64 {{
               if i - 3 >= 0 {{ N[i][64*jo + j] = (X[i][64*jo + j] + u8(1)); }}
               {second} {{ Y[i][64*jo + j] = (N[i][64*jo + j] + u8(2)); }} }} }} }} }} }}"
        );
        price(&parse::nest(&text).unwrap(), &Target::avx512()).chains
    };
    let waiting = 96.0 * 5.0 * Target::avx512().machine.blocked_load_ns;
    let another = of(401, "if 90 - i >= 0");
    assert!((0.5..1.1).contains(&(another / waiting)), "{another} {waiting}");
    // lines that begin where vectors do
    assert_eq!(of(448, "if 90 - i >= 0"), 0.0);
}
