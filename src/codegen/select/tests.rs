//! Lowering for the vectors of every target, run by the interpreter of VCode and compared with the interpreter of LoopNest.

use crate::codegen::Target;
use crate::codegen::loopnest::{BufferKind, LoopNest};
use crate::codegen::loopnest::{interpret, parse, simplify};
use crate::codegen::select::lower;
use crate::codegen::vcode::execute;
use crate::codegen::vcode::{Function, Inst, Lane, VBinary};
use crate::expr::{CompareOp, Literals};
use crate::runtime::{DType, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Random contents for the arguments: multiples of 1/8 so that sums are exact, zeros of both signs, sometimes what is not
/// a number; small integers, subscripts `0..3`.
pub fn arguments(nest: &LoopNest, rng: &mut StdRng) -> Vec<Tensor> {
    let mut slots: Vec<Option<Tensor>> = vec![];
    let literals = nest.buffers.iter().any(|b| b.literals.is_some());
    for b in &nest.buffers {
        let BufferKind::Argument { slot, .. } = b.kind else { continue };
        let n = b.span();
        let tensor = match b.dtype {
            DType::F32 => Tensor::new(&[n], &random(rng, n, |r| real(r) as f32)),
            DType::F64 => Tensor::new(&[n], &random(rng, n, real)),
            DType::I64 => Tensor::new(&[n], &random(rng, n, |r| r.random_range(0..3i64))),
            DType::I32 => Tensor::new(&[n], &random(rng, n, |r| r.random_range(-50..50i32))),
            DType::U32 => Tensor::new(&[n], &random(rng, n, |r| r.random::<u32>())),
            DType::I16 => Tensor::new(&[n], &random(rng, n, |r| r.random::<i16>())),
            DType::U16 => Tensor::new(&[n], &random(rng, n, |r| r.random::<u16>())),
            DType::I8 => Tensor::new(&[n], &random(rng, n, |r| r.random_range(-128..=127i8))),
            DType::U8 => Tensor::new(&[n], &random(rng, n, |r| r.random_range(0..=255u8))),
            DType::Bool => {
                Tensor { dtype: DType::Bool, shape: vec![n], data: random(rng, n, |r| r.random_range(0..2)).into() }
            }
            _ => Tensor::zeros(b.dtype, &[n]),
        };
        let tensor = match &b.literals {
            Some(literals) => of_literals(literals, b.dtype),
            // what literals are multiplied with is finite
            None if literals => map_floats(tensor, |v| if v.is_nan() { 2.5 } else { v }),
            None => tensor,
        };
        slots.resize(slots.len().max(slot as usize + 1), None);
        slots[slot as usize] = Some(tensor);
    }
    slots.into_iter().map(|t| t.expect("every slot")).collect()
}

fn of_literals(literals: &Literals, dtype: DType) -> Tensor {
    let bytes = literals.values().iter().flat_map(|s| s.bits.to_le_bytes()[..dtype.bytes()].to_vec());
    Tensor { dtype, shape: vec![literals.values().len() as i64], data: bytes.collect::<Vec<u8>>().into() }
}

/// The floats of a tensor after `f`.
fn map_floats(t: Tensor, f: impl Fn(f64) -> f64) -> Tensor {
    match t.dtype {
        DType::F32 => {
            Tensor::new(&t.shape, &t.to_vec::<f32>().into_iter().map(|v| f(v as f64) as f32).collect::<Vec<_>>())
        }
        DType::F64 => Tensor::new(&t.shape, &t.to_vec::<f64>().into_iter().map(f).collect::<Vec<_>>()),
        _ => t,
    }
}

fn real(rng: &mut StdRng) -> f64 {
    match rng.random_range(-40..=32) {
        -40..-32 if rng.random_range(0..16) == 0 => f64::NAN,
        -40..-36 => -0.0,
        -36..-32 => 0.0,
        eighths => f64::from(eighths) / 8.0,
    }
}

fn random<T>(rng: &mut StdRng, n: i64, mut one: impl FnMut(&mut StdRng) -> T) -> Vec<T> {
    (0..n).map(|_| one(rng)).collect()
}

/// Runs a lowered nest, each wave of a parallel phase in two parts.
pub fn run(functions: &[Function], arguments: &mut [Tensor]) {
    let mut buffers: Vec<Vec<u8>> = arguments.iter_mut().map(|t| std::mem::take(&mut t.data).into()).collect();
    for f in functions {
        let halves = |start: i64, n: i64| [(start, start + n / 2), (start + n / 2, start + n)];
        let ranges: Vec<(i64, i64)> = match f.parallel {
            None => vec![(0, 1)],
            Some(n) => {
                let width = f.wave.unwrap_or(n).max(1);
                (0..n).step_by(width as usize).flat_map(|start| halves(start, width.min(n - start))).collect()
            }
        };
        for (first, last) in ranges.into_iter().filter(|r| r.0 < r.1) {
            execute::run(f, &mut buffers, first, last).unwrap_or_else(|e| panic!("{e}\n{f}"));
        }
    }
    arguments.iter_mut().zip(buffers).for_each(|(t, b)| t.data = b.into());
}

/// Greatest difference from `want`, relative to its greatest value; infinite for other bits of integers and
/// for a zero of the other sign, not a number where one of both is none.
pub fn difference(got: &Tensor, want: &Tensor) -> f64 {
    let floats = |t: &Tensor| -> Vec<f64> {
        match t.dtype {
            DType::F32 => t.to_vec::<f32>().into_iter().map(|v| v as f64).collect(),
            _ => t.to_vec::<f64>(),
        }
    };
    if !got.dtype.is_float() {
        return if got.data == want.data { 0.0 } else { f64::INFINITY };
    }
    let (got, want) = (floats(got), floats(want));
    let scale = want.iter().filter(|v| v.is_finite()).fold(1e-30, |m: f64, v| m.max(v.abs()));
    let one = |(g, w): (&f64, &f64)| match g == w {
        true if g.is_sign_negative() == w.is_sign_negative() => 0.0,
        true => f64::INFINITY,
        false if g.is_nan() && w.is_nan() => 0.0,
        false => (g - w).abs() / scale,
    };
    got.iter().zip(&want).map(one).fold(0.0, |m, d| if d <= m { m } else { d })
}

/// Lowers `nest` (as it is and simplified) for every target and compares; returns the functions of AVX-512.
pub fn check(nest: &LoopNest, seed: u64) -> Vec<Function> {
    let start = arguments(nest, &mut StdRng::seed_from_u64(seed));
    let literals = nest.buffers.iter().any(|b| b.literals.is_some());
    // literals do not keep the sign of a zero
    let comparable = |t: &Tensor| map_floats(t.clone(), |v| if literals { v + 0.0 } else { v });
    let mut want = start.clone();
    interpret::run(nest, &mut want).unwrap_or_else(|e| panic!("{e}\n{nest}"));
    let simple = simplify::simplify(nest);
    let mut got = start.clone();
    interpret::run(&simple, &mut got).unwrap_or_else(|e| panic!("{e}\n{nest}\nsimplified\n{simple}"));
    let bytes = |all: &[Tensor]| all.iter().map(|t| t.data.clone()).collect::<Vec<_>>();
    assert!(bytes(&got) == bytes(&want), "seed {seed}\n{nest}\nsimplified\n{simple}\ngot {got:?}\nwant {want:?}");
    for target in Target::all() {
        for nest in [nest, &simple] {
            let functions = lower(nest, &target).unwrap_or_else(|e| panic!("{e}\n{nest}"));
            let mut got = start.clone();
            run(&functions, &mut got);
            for (slot, (g, w)) in got.iter().zip(&want).enumerate() {
                let d = difference(&comparable(g), &comparable(w));
                let text: Vec<String> = functions.iter().map(|f| f.to_string()).collect();
                assert!(
                    d < 2e-6,
                    "{}: argument {slot} differs by {d}, seed {seed}\n{nest}\n{}\ngot {g:?}\nwant {w:?}",
                    target.name,
                    text.join("")
                );
            }
        }
    }
    lower(&simple, &Target::avx512()).unwrap()
}

fn check_text(text: &str) -> Vec<Function> {
    check(&parse::nest(text).unwrap(), 1)
}

fn count(f: &Function, kind: impl Fn(&Inst) -> bool) -> usize {
    f.insts.iter().filter(|i| kind(i)).count()
}

#[test]
fn a_register_tile_loads_each_column_and_row_once() {
    let f = check_text(
        "kernel gemm {
          A: f32[28][12] argument 0; B: f32[2][12][32] argument 1; C: f32[28][64] argument 2 written;
          acc: f32[14][32] local;
          parallel t in 0..2 { for n in 0..2 {
            unroll i in 0..14 { vector j in 0..32 { acc[i][j] = f32(0.0); } }
            for k in 0..12 { unroll i2 in 0..14 { vector j2 in 0..32 {
              acc[i2][j2] add = (A[14*t + i2][k] * B[n][k][j2]); } } }
            unroll i3 in 0..14 { vector j3 in 0..32 { C[14*t + i3][32*n + j3] = max(acc[i3][j3], f32(0.0)); } }
          } } }",
    );
    let inner: Vec<&Inst> = innermost(&f[0]);
    // two vectors of columns: both products read one broadcast
    let products = inner.iter().filter(|i| matches!(i, Inst::VFma { .. })).count();
    let steps = products / 28;
    assert!(steps >= 1, "{}", f[0]);
    let loads = inner.iter().filter(|i| matches!(i, Inst::VLoad { .. })).count();
    let rows = inner.iter().filter(|i| matches!(i, Inst::VBroadcast { .. })).count();
    assert_eq!((products, loads, rows), (28 * steps, 2 * steps, 14 * steps), "{}", f[0]);
    assert_eq!(inner.len(), steps * (2 + 14 + 28) + 2, "{}", f[0]);
}

#[test]
fn a_tile_of_broken_rows_stays_in_registers() {
    let f = check_text(
        "kernel edge {
          A: f32[5][12] argument 0; B: f32[12][48] argument 1; C: f32[5][37] argument 2 written;
          acc: f32[1][5][37] local;
          parallel t in 0..1 {
            unroll i in 0..5 { vector j in 0..37 { acc[0][i][j] = f32(0.0); } }
            for k in 0..12 { unroll i2 in 0..5 { vector j2 in 0..37 { acc[0][i2][j2] add = (A[i2][k] * B[k][j2]); } } }
            unroll i3 in 0..5 { vector j3 in 0..37 { C[i3][j3] = acc[0][i3][j3]; } }
          } }",
    );
    assert_eq!(f[0].scratch_bytes, 0, "{}", f[0]);
}

/// The instructions of the longest innermost loop.
fn innermost(f: &Function) -> Vec<&Inst> {
    let (mut start, mut best) = (0, vec![]);
    for (i, inst) in f.insts.iter().enumerate() {
        match inst {
            Inst::LoopStart { .. } => start = i + 1,
            Inst::LoopEnd if start > 0 => {
                let body: Vec<&Inst> = f.insts[start..i].iter().collect();
                if body.len() > best.len() {
                    best = body;
                }
                start = 0;
            }
            _ => {}
        }
    }
    best
}

/// Operations that round once give every bit of their definition.
#[test]
fn zeros_have_signs_and_what_is_not_a_number_stays() {
    for ty in ["f32", "f64"] {
        let rows = ["neg(A[i])", "abs(A[i])", "floor(A[i])", "ceil(A[i])", "round(A[i])"].into_iter().chain([
            "(A[i] + B[i])",
            "(A[i] - B[i])",
            "(A[i] * B[i])",
            "min(A[i], B[i])",
            "max(A[i], B[i])",
            "select(lt(A[i], B[i]), A[i], B[i])",
        ]);
        let lines = rows.enumerate().map(|(row, e)| {
            format!("vector i#{row} in 0..1003 {{ Y[{row}][i#{row}] = {}; }}", e.replace("[i]", &format!("[i#{row}]")))
        });
        let body: String = lines.collect();
        check_text(&format!(
            "kernel exact {{ A: {ty}[1003] argument 0; B: {ty}[1003] argument 1; Y: {ty}[11][1003] argument 2 written; {body} }}"
        ));
    }
}

#[test]
fn a_padded_convolution() {
    check_text(
        "kernel conv {
          X: f32[5][9][3] argument 0; W: f32[3][3][3][20] argument 1; Y: f32[5][9][20] argument 2 written;
          bias: f32[20] argument 3; acc: f32[3][20] local;
          parallel t in 0..5 {
            for wo in 0..3 {
              unroll wi in 0..3 { vector f in 0..20 { acc[wi][f] = f32(0.0); } }
              for r in 0..3 { for s in 0..3 { for c in 0..3 {
                unroll wi2 in 0..3 { vector f2 in 0..20 {
                  if t + r - 1 >= 0 && -t - r + 5 >= 0 && 3*wo + wi2 + s - 1 >= 0 && -3*wo - wi2 - s + 9 >= 0 {
                    acc[wi2][f2] add = (X[t + r - 1][3*wo + wi2 + s - 1][c] * W[r][s][c][f2]); } } } } } }
              unroll wi3 in 0..3 { vector f3 in 0..20 { Y[t][3*wo + wi3][f3] = (acc[wi3][f3] + bias[f3]); } }
            } } }",
    );
}

#[test]
fn guarded_reads_along_vectors_and_rows() {
    check_text(
        "kernel pad {
          X: f32[4][21] argument 0; Y: f32[6][25] argument 1 written; Z: f32[6][25] argument 2 written;
          parallel h in 0..6 {
            vector w in 0..25 {
              Y[h][w] = (X[h - 1][w - 2] if h - 1 >= 0 && -h + 4 >= 0 && w - 2 >= 0 && -w + 22 >= 0 else f32(1.5)); }
            for s in 0..5 { vector w2 in 0..20 {
              Z[h][w2 + s] = (X[2][w2 + s - 2] if w2 + s - 2 >= 0 && -w2 - s + 22 >= 0 else f32(0.0)); } }
          } }",
    );
}

#[test]
fn one_element_for_all_lanes_is_read_inside_of_its_buffer() {
    check_text(
        "kernel band {
          X: f32[9] argument 0; Y: f32[12][16] argument 1 written; I: u8[11] argument 2; J: u8[12][64] argument 3 written;
          for i in 0..12 {
            vector j in 0..16 { Y[i][j] = (X[i - 3] if i - j - 3 >= 0 && -i + 11 >= 0 else f32(1.5)); }
            vector j2 in 0..16 { Y[i][j2] add = (X[i] if -i - j2 + 8 >= 0 else f32(0.0)); }
            vector j3 in 0..64 { J[i][j3] = (I[i - 1] if i - 2*j3 - 1 >= 0 && -i + 4*j3 + 3 >= 0 else u8(7)); }
          } }",
    );
}

#[test]
fn neighbours_under_a_guard_of_each_lane_are_loaded_under_a_mask() {
    let text = "kernel triangle {
          L: f32[37][16] argument 0; Y: f32[40][16] argument 1 written; D: f64[7] argument 2; Z: f64[40][13] argument 3 written;
          for i in 0..40 {
            vector j in 0..16 { Y[i][j] = (L[i - 3][j] if i - j - 3 >= 0 && -i + 39 >= 0 else f32(0.0)); }
            vector j2 in 0..13 { Z[i][j2] = (D[j2 - 2] if j2 - 2 >= 0 && i - j2 >= 0 && -j2 + 8 >= 0 else f64(1.5)); }
          } }";
    check_text(text);
    let f = lower(&parse::nest(text).unwrap(), &Target::avx512()).unwrap();
    let count = |of: fn(&Inst) -> bool| f[0].insts.iter().filter(|i| of(i)).count();
    assert!(count(|i| matches!(i, Inst::VLoadWhere { .. })) >= 2, "{}", f[0]);
    assert_eq!(count(|i| matches!(i, Inst::VGatherIndex { .. })), 0, "{}", f[0]);
    // zeros are what the load leaves outside of the mask
    let selects = |lane: Lane| {
        let of_lane = |i: &&Inst| matches!(i, Inst::VSelect { ty, .. } | Inst::VChoose { ty, .. } if ty.lane == lane);
        f[0].insts.iter().filter(of_lane).count()
    };
    assert!(selects(Lane::F32) == 0 && selects(Lane::F64) > 0, "{}", f[0]);
}

#[test]
fn totals_of_whole_registers_take_what_is_not_a_number_by_a_mask() {
    let text = "kernel largest {
          X: f32[3][256] argument 0; Y: f32[3] argument 1 written; m: f32[1] local;
          parallel i in 0..3 {
            m[0] = f32(#ff800000);
            vector j in 0..256 { m[0] max = X[i][j]; }
            Y[i] = m[0];
          } }";
    check_text(text);
    let chosen = |target: &Target| {
        let f = lower(&parse::nest(text).unwrap(), target).unwrap();
        f[0].insts.iter().filter(|i| matches!(i, Inst::VChoose { op: CompareOp::Ne, .. })).count()
    };
    // of 16 registers, 8 begin totals
    assert!(chosen(&Target::avx512()) >= 8);
    assert_eq!(chosen(&Target::avx2()), 0);
}

#[test]
fn a_reduction_over_lanes_under_a_condition_is_added_where_it_holds() {
    let nest = "kernel p { B: f32[3] argument 0 written; W: f32[12] argument 1; Y: f32[9] argument 2 written;
        parallel once in 0..1 { for k in 0..3 { vector i in 0..9 { Y[i] = W[i]; if -k + 1 >= 0 { B[k] add = W[i + k]; } } } } }";
    check(&parse::nest(nest).unwrap(), 1);
}

#[test]
fn reductions_over_lanes() {
    check_text(
        "kernel softmax {
          X: f32[5][45] argument 0; Y: f32[5][45] argument 1 written; m: f32[1] local; s: f32[1] local; e: f32[45] local;
          parallel i in 0..5 {
            m[0] = f32(#ff800000);
            vector j in 0..45 { m[0] max = X[i][j]; }
            s[0] = f32(0.0);
            vector j2 in 0..45 { e[j2] = exp((X[i][j2] - m[0])); }
            vector j3 in 0..45 { s[0] add = e[j3]; }
            vector j4 in 0..45 { Y[i][j4] = (e[j4] / s[0]); }
          } }",
    );
    check_text(
        "kernel dot { A: f32[3][70] argument 0; B: f32[70] argument 1; C: f32[3] argument 2 written;
          N: i32[70] argument 3; M: i32[3] argument 4 written;
          for i in 0..3 { C[i] = f32(0.0); vector k in 0..70 { C[i] add = (A[i][k] * B[k]); }
            M[i] = i32(7); vector k2 in 0..70 { M[i] min = N[k2]; } } }",
    );
}

#[test]
fn totals_of_narrow_values_are_wide() {
    for value in ["cast i64(X[j])", "i64(5)", "index(j + 3)", "select(gt(X[j], i32(12)), index(j), i64(999))"] {
        for op in ["add", "mul", "min", "max"] {
            check_text(&format!(
                "kernel k {{
                    X: i32[17] argument 0;
                    Y: i64[1] argument 1 written;
                    vector j in 0..17 {{ Y[0] {op} = {value}; }}
                }}"
            ));
        }
    }
}

#[test]
fn casts_masks_and_integers() {
    check_text(
        "kernel mixed {
          X: f32[40] argument 0; M: bool[40] argument 1; I: i64[40] argument 2; U: u8[40] argument 3; S: i8[40] argument 4;
          Y: f32[40] argument 5 written; N: bool[40] argument 6 written; J: i64[40] argument 7 written;
          V: u8[40] argument 8 written; K: i32[40] argument 9 written; T: i8[40] argument 10 written;
          vector i in 0..40 {
            Y[i] = select(M[i], X[i], cast f32(I[i]));
            N[i] = or(lt(X[i], f32(0.0)), not(M[i]));
            J[i] = ((I[i] * index(3*i - 7)) + cast i64(M[i]));
            V[i] = (U[i] + cast u8(X[i]));
            K[i] = cast i32((X[i] * f32(10.0)));
            T[i] = (S[i] * S[i]);
          } }",
    );
    check_text(
        "kernel divide {
          A: i32[33] argument 0; B: i32[33] argument 1; C: i64[33] argument 2; Q: i32[33] argument 3 written;
          R: i32[33] argument 4 written; S: i64[33] argument 5 written; F: f32[33] argument 6; G: f32[33] argument 7 written;
          parallel t in 0..3 { vector i in 0..11 {
            Q[11*t + i] = (A[11*t + i] / B[11*t + i]);
            R[11*t + i] = mod(A[11*t + i], B[11*t + i]);
            S[11*t + i] = ((C[11*t + i] - i64(1000000007)) / (C[11*t + i] - i64(1)));
            G[11*t + i] = mod(F[11*t + i], f32(1.375));
          } } }",
    );
}

#[test]
fn quotients_of_iterators_by_minus_one_have_the_lanes_of_unknown_divisors() {
    check_text(
        "kernel negate {
          Q: i32[40] argument 0 written; R: i32[40] argument 1 written;
          vector i in 0..40 {
            Q[i] = cast i32((index(3*i - 7) / i64(-1)));
            R[i] = cast i32(mod(index(3*i - 7), i64(-1)));
          } }",
    );
}

#[test]
fn gathers_scatters_and_strides() {
    check_text(
        "kernel gather {
          T: f32[3][19] argument 0; I: i64[20] argument 1; Y: f32[20][19] argument 2 written;
          Z: f32[20] argument 3 written; R: f32[19][3] argument 4 written; J: i32[3] argument 5 written;
          parallel i in 0..20 { vector j in 0..19 { Y[i][j] = T[@I[i]][j]; } }
          vector k in 0..20 { Z[k] = T[@I[k]][5]; }
          for h in 0..3 { vector w in 0..19 { R[w][h] = T[h][18 - w]; } J[h] = cast i32(I[@select(lt(I[h], i64(1)), (I[h] + i64(4)), I[h])]); }
        }",
    );
}

#[test]
fn loops_with_computed_bounds_and_divisions() {
    check_text(
        "kernel bounds {
          X: f32[12][40] argument 0; Y: f32[12][40] argument 1 written; Z: f64[40] argument 2 written; D: f64[40] argument 3;
          parallel t in 0..12 {
            let q = floor((2*t + 1) / 5);
            for k in max(0, t - 3, ceil((t - 1) / 2))..min(12, floor((3*t + 9) / 2)) step 2 {
              vector i in 0..37 { Y[t][i + 3] = (X[k][i] + X[t - q][i + 3]); }
              if t - 2*q >= 0 && -k + 9 >= 0 { Y[t][0] = X[q][k]; }
            } }
          vector j in 0..40 { Z[j] = sqrt(abs((D[j] - cast f64(X[3][j])))); }
        }",
    );
}

#[test]
fn functions_of_floats() {
    check_text(
        "kernel functions {
          X: f32[50] argument 0; D: f64[50] argument 1; Y: f32[4][50] argument 2 written; E: f64[2][50] argument 3 written;
          vector i in 0..50 { Y[0][i] = erf(X[i]); }
          vector i2 in 0..50 { Y[1][i2] = tanh(X[i2]); }
          vector i3 in 0..50 { Y[2][i3] = (f32(1.0) / (f32(1.0) + exp(neg(X[i3])))); }
          vector i4 in 0..50 { Y[3][i4] = pow(abs(X[i4]), (X[i4] / f32(3.0))); }
          vector i5 in 0..50 { E[0][i5] = pow(D[i5], f64(3.0)); E[1][i5] = log((abs(D[i5]) + f64(0.5))); }
        }",
    );
}

#[test]
fn shorter_vectors_in_the_same_registers() {
    let f = check_text(
        "kernel tails {
          X: f32[3][40] argument 0; Y: f32[3][40] argument 1 written; a: f32[32] local;
          parallel t in 0..3 {
            vector i in 0..32 { a[i] = X[t][i]; }
            vector i2 in 0..20 { a[i2] = (a[i2] * f32(2.0)); }
            vector i3 in 0..32 { Y[t][i3] = a[i3]; }
            vector i4 in 0..8 { a[i4] = X[t][i4 + 32]; }
            vector i5 in 0..8 { Y[t][i5 + 32] = a[i5]; }
          } }",
    );
    assert_eq!(f[0].scratch_bytes, 0);
    assert!(count(&f[0], |i| matches!(i, Inst::VSelect { .. })) > 0);
}

#[test]
fn long_vectors_become_loops() {
    let f = check_text(
        "kernel long {
          X: f32[3][700] argument 0; Y: f32[3][700] argument 1 written; S: f32[3] argument 2 written;
          T: f64[3] argument 3 written; D: f64[3][150] argument 4; I: i32[400] argument 5; M: i32[1] argument 6 written;
          parallel t in 0..3 {
            vector i in 0..700 { Y[t][i] = ((X[t][i] * X[t][i]) + f32(1.0)); }
            S[t] = f32(3.0);
            vector j in 0..700 { S[t] add = (X[t][j] * Y[t][j]); }
            T[t] = f64(-1000.0);
            vector k in 0..150 { T[t] max = D[t][k]; }
          }
          for once in 0..1 { M[0] = i32(5); vector l in 0..400 { M[0] add = I[l]; Y[0][l] = cast f32(I[l]); } } }",
    );
    assert!(f.iter().all(|f| f.scratch_bytes == 0 && f.insts.len() < 260), "{} {}", f[0].insts.len(), f[0]);
}

#[test]
fn reductions_over_rows_and_lanes() {
    check_text(
        "kernel mean {
          X: f32[6][9][21] argument 0; Y: f32[6] argument 1 written; Z: f32[6] argument 2 written; s: f32[1] local;
          parallel c in 0..6 {
            s[0] = f32(0.0);
            for h in 0..9 { vector w in 0..21 { s[0] add = X[c][h][w]; } }
            Y[c] = (s[0] * f32(0.5));
            Z[c] = f32(-100.0);
            for h2 in 0..9 { if c + h2 - 3 >= 0 { vector w2 in 0..21 { if w2 - h2 >= 0 { Z[c] max = X[c][h2][w2]; } } } }
          } }",
    );
}

/// The lanes of a block of sums are added once, after the loop.
#[test]
fn blocks_of_sums_over_lanes() {
    let f = check_text(
        "kernel products {
          X: f32[4][48] argument 0; Y: f32[2][48] argument 1; Z: f32[4][2] argument 2 written; s: f32[4][2] local;
          parallel c in 0..2 {
            unroll i in 0..4 { unroll j in 0..2 { s[i][j] = f32(0.0); } }
            for k in 0..6 { unroll i2 in 0..4 { unroll j2 in 0..2 { vector l in 0..4 {
              s[i2][j2] add = (X[i2][24*c + 4*k + l] * Y[j2][24*c + 4*k + l]); } } } }
            unroll i3 in 0..4 { unroll j3 in 0..2 { if -c + 0 >= 0 { Z[i3][j3] = s[i3][j3]; } } }
          } }",
    );
    let sums = f[0].insts.iter().filter(|i| matches!(i, Inst::VReduce { .. })).count();
    assert_eq!(sums, 8, "{}", f[0]);
}

#[test]
fn vectors_along_a_guarded_row() {
    check_text(
        "kernel pool {
          X: f32[3][10][25] argument 0; Y: f32[3][5][13] argument 1 written; a: f32[2][7] local;
          parallel c in 0..3 {
            for h in 0..5 { for wo in 0..2 {
              unroll i in 0..2 { vector w in 0..7 { a[i][w] = f32(#ff800000); } }
              for r in 0..3 { for s in 0..3 { vector w2 in 0..7 {
                if 2*h + r - 1 >= 0 && -2*h - r + 10 >= 0 && 14*wo + 2*w2 + s - 1 >= 0 && -14*wo - 2*w2 - s + 25 >= 0 {
                  a[0][w2] max = X[c][2*h + r - 1][14*wo + 2*w2 + s - 1]; } } } }
              vector w3 in 0..7 { if -7*wo - w3 + 12 >= 0 { Y[c][h][7*wo + w3] = a[0][w3]; } } } } } }",
    );
}

#[test]
fn a_local_buffer_with_its_vectors_across() {
    let f = check_text(
        "kernel across {
          X: f32[32][20] argument 0; Y: f32[20][32] argument 1 written; a: f32[32][4] local;
          parallel t in 0..5 {
            unroll i in 0..4 { vector j in 0..32 { a[j][i] = f32(0.5); } }
            for k in 0..3 { unroll i2 in 0..4 { vector j2 in 0..32 { a[j2][i2] add = X[j2][4*t + i2]; } } }
            unroll i3 in 0..4 { vector j3 in 0..32 { Y[4*t + i3][j3] = a[j3][i3]; } } } }",
    );
    assert_eq!(f[0].scratch_bytes, 0);
}

#[test]
fn single_elements_are_divided_in_one_lane() {
    let lanes = |text: &str| -> Vec<u8> {
        let divisions = |inst: &Inst| match inst {
            Inst::VBinary { op: VBinary::Div, ty, .. } => Some(ty.lanes),
            _ => None,
        };
        check_text(text)[0].insts.iter().filter_map(divisions).collect()
    };
    let chain = "kernel c { A: f64[40] argument 0 written;
      parallel once in 0..1 { for i in 1..40 { A[i] = ((A[i - 1] + A[i]) / f64(4.0)); } } }";
    assert!(lanes(chain).iter().all(|&n| n == 1) && !lanes(chain).is_empty());
    let vector = "kernel v { A: f64[40] argument 0; B: f64[40] argument 1 written;
      parallel once in 0..1 { vector i in 0..40 { B[i] = (A[i] + (A[3] / f64(4.0))); } } }";
    assert!(lanes(vector).iter().all(|&n| n > 1) && !lanes(vector).is_empty());
}

#[test]
fn scalar_statements_compute_in_one_lane() {
    let f = check_text(
        "kernel chain {
          X: i32[40] argument 0; Y: i32[41] argument 1 written;
          for i in 0..40 { Y[i + 1] = max((X[i] + i32(3)), (Y[i] - i32(1))); }
        }",
    );
    let wide = |i: &Inst| match i {
        Inst::VBroadcast { .. } => true,
        Inst::VLoad { ty, .. } | Inst::VBinary { ty, .. } | Inst::VConst { ty, .. } => ty.lanes > 1,
        _ => false,
    };
    assert_eq!(count(&f[0], wide), 0, "{}", f[0]);
}

mod literals;
mod long_quotients;
mod narrow;
mod pairs;
pub mod passes;
mod waves;

#[test]
fn a_subscript_that_all_lanes_share_takes_no_lanes() {
    let nest = parse::nest(
        "kernel rows { column: i64[5] argument 0; B: f32[5][64] argument 1; C: f32[5][64] argument 2 written;
           parallel t in 0..5 { vector k in 0..64 { C[t][k] = (B[@column[t]][k] * f32(2)); } } }",
    )
    .unwrap();
    let functions = lower(&simplify::simplify(&nest), &Target::avx512()).unwrap();
    assert!(functions[0].to_string().contains("f32x16"), "{}", functions[0]);
}
