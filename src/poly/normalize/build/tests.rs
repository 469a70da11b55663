use super::*;
use crate::poly::samples;

fn text(p: &Program) -> String {
    build("t", p).unwrap().to_string()
}

#[test]
fn convolution_splits_and_inlines_its_epilogue() {
    let g = samples::Conv { size: 56, channels: 64, filters: 32, kernel: 3, stride: 1, pad: 1 };
    assert_eq!(
        text(&samples::conv(g)),
        "\
scop t {
  X: f32[56][56][64] input;
  W: f32[32][64][3][3] constant;
  bias: f32[32] constant;
  Y: f32[56][56][32] output;
  conv: f32[56][56][32] temporary;
  conv_init(h < 56, w < 56, f < 32): conv[h][w][f] = f32(0.0);
  conv_update(h < 56, w < 56, f < 32, c < 64, r < 3, s < 3) if -h - r + 56 >= 0 && h + r - 1 >= 0 && -w - s + 56 >= 0 && \
         w + s - 1 >= 0: conv[h][w][f] add = (X[h + r - 1][w + s - 1][c] * W[f][c][r][s]);
  Y(h < 56, w < 56, f < 32): Y[h][w][f] = max((conv[h][w][f] + bias[f]), f32(0.0));
}
"
    );
}

#[test]
fn pointwise_convolution_is_a_matrix_product() {
    let g = samples::Conv { size: 56, channels: 64, filters: 32, kernel: 1, stride: 1, pad: 0 };
    let text = text(&samples::conv(g));
    assert!(
        text.contains("conv_update(hw < 3136, f < 32, c < 64): conv[hw][f] add = (X[hw][c] * W[f][c]);\n"),
        "{text}"
    );
}

#[test]
fn window_iterators_with_one_value_go() {
    let g = samples::Conv { size: 1, channels: 64, filters: 32, kernel: 3, stride: 1, pad: 1 };
    let text = text(&samples::conv(g));
    assert!(text.contains("conv_update(f < 32, c < 64): conv[f] add = (X[c] * W[f][c][1][1]);\n"), "{text}");
}

#[test]
fn softmax_keeps_its_exponential() {
    let text = text(&samples::softmax(12, 128, 64));
    let statements = text.split_once("total: f32[1536] temporary;\n").unwrap().1;
    assert_eq!(
        statements,
        "  top_init(hi < 1536): top[hi] = f32(#ff800000);
  top_update(hi < 1536, j < 64): top[hi] max = X[hi][j];
  e(hi < 1536, j < 64): e[hi][j] = exp((X[hi][j] - top[hi]));
  total_init(hi < 1536): total[hi] = f32(0.0);
  total_update(hi < 1536, j < 64): total[hi] add = e[hi][j];
  Y(hi < 1536, j < 64): Y[hi][j] = (e[hi][j] / total[hi]);
}
"
    );
}

#[test]
fn elementwise_is_one_loop() {
    let text = text(&samples::elementwise([2, 14, 14, 96]));
    assert!(
        text.contains("Y(nhwc < 37632): Y[nhwc] = max((((X[nhwc] * f32(2.0)) + X[nhwc]) + Z[nhwc]), f32(0.0));"),
        "{text}"
    );
}

#[test]
fn readers_of_an_output_in_the_same_loops_use_the_accumulator() {
    let mut p = samples::maxpool(8, 4, 2, 2, 0);
    let relu = samples::tensor(&mut p, Role::Output, "R", &[1, 4, 4, 4]);
    let load = Expr::load(BufferId(1), samples::vars(4));
    samples::define(&mut p, relu, "n 1, h 4, w 4, c 4", 4, None, vec![], samples::relu(load));
    let text = text(&p);
    assert!(text.contains("  Y(h < 4, w < 4, c < 4): Y[h][w][c] = Y_acc[h][w][c];\n"), "{text}");
    assert!(text.contains("  R(h < 4, w < 4, c < 4): R[h][w][c] = max(Y_acc[h][w][c], f32(0.0));\n"), "{text}");
}
