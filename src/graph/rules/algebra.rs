//! Algebra: constants into weights, cancellation and composition of copies, merged products.
//!
//! Expressions of constants are kept; they cost nothing at run time and are folded when chosen.

mod arithmetic;
pub mod copies;
mod products;
mod weights;

use crate::graph::rules::pattern::Keep::{Beside, IfSole, Instead};
use crate::graph::rules::pattern::{Rule, build, equate, rewrite};
use arithmetic::{add_add, distribute_scale, div_constant, mul_mul, operand, sub_constant};
use copies::{
    expand_operand, gather_scalar, reshape_reshape, reshape_slice, same_copy, slice_concat, slice_same, slice_slice,
    transpose_transpose, transpose_units,
};
use products::{
    matmul_shared_input, matmul_shared_input_bias, matmul_transposed_a, matmul_transposed_b, scalar_out_of_product,
    whole_pool,
};
use weights::{
    conv_scale, conv_shift, matmul_scale, pad_before_conv, scale_before_conv, scale_before_matmul, shift_before_conv,
};

#[rustfmt::skip]
pub fn rules() -> Vec<Rule> {
    vec![
        // ---- canonical arithmetic
        build  (Instead, "div-constant",            "(div ?x $c)",                      div_constant),
        build  (Instead, "sub-constant",            "(sub ?x $c)",                      sub_constant),
        rewrite(Instead, "pow-2",                   "(pow ?x 2)",                       "(mul ?x ?x)"),
        rewrite(Instead, "pow-half",                "(pow ?x 0.5)",                     "(sqrt ?x)"),
        rewrite(Instead, "constant-gt",             "(gt $c ?x)",                       "(lt ?x $c)"),
        rewrite(Instead, "constant-ge",             "(ge $c ?x)",                       "(le ?x $c)"),
        rewrite(Instead, "constant-lt",             "(lt $c ?x)",                       "(gt ?x $c)"),
        rewrite(Instead, "constant-le",             "(le $c ?x)",                       "(ge ?x $c)"),
        rewrite(Instead, "select-not",              "(select (not ?c) ?a ?b)",          "(select ?c ?b ?a)"),
        build  (Instead, "mul-1",                   "(mul ?x 1)",                       operand),
        build  (Instead, "add-0",                   "(add ?x 0)",                       operand),
        build  (Instead, "mul-mul",                 "(mul (mul ?x $a) $b)",             mul_mul),
        build  (Instead, "add-add",                 "(add (add ?x $a) $b)",             add_add),
        build  (IfSole,  "distribute-scale",        "(mul (add ?x $a) $b)",             distribute_scale),
        // ---- scale and shift into weights
        build  (IfSole,  "conv-scale",              "(mul (conv@c ...) $s)",            conv_scale),
        build  (IfSole,  "conv-shift",              "(add (conv@c ...) $s)",            conv_shift),
        build  (IfSole,  "scale-conv",              "(conv@c ...)",                     scale_before_conv),
        build  (IfSole,  "shift-conv",              "(conv@c ...)",                     shift_before_conv),
        build  (IfSole,  "conv-transpose-scale",    "(mul (conv_transpose@c ...) $s)",  conv_scale),
        build  (IfSole,  "conv-transpose-shift",    "(add (conv_transpose@c ...) $s)",  conv_shift),
        build  (IfSole,  "matmul-scale",            "(mul (matmul@m ?x $w) $s)",        matmul_scale),
        build  (IfSole,  "scale-matmul",            "(matmul@m (mul ?x $s) $w)",        scale_before_matmul),
        build  (Instead, "pad-conv",                "(conv@c ...)",                     pad_before_conv),
        // ---- copies
        build  (Beside,  "transpose-transpose",     "(transpose@p (transpose@q ?x))",   transpose_transpose),
        build  (Instead, "transpose-units",         "(transpose@p ?x)",                 transpose_units),
        build  (Beside,  "reshape-reshape",         "(reshape@p (reshape@q ?x))",       reshape_reshape),
        build  (Instead, "reshape-same",            "(reshape ?x)",                     operand),
        build  (Instead, "expand-same",             "(expand ?x)",                      operand),
        build  (Instead, "cast-same",               "(cast ?x)",                        operand),
        build  (Instead, "slice-same",              "(slice@s ?x)",                     slice_same),
        build  (Instead, "concat-one",              "(concat ?x)",                      operand),
        build  (Instead, "slice-slice",             "(slice@a (slice@b ?x))",           slice_slice),
        build  (Instead, "slice-concat",            "(slice@a (concat@b ...))",         slice_concat),
        equate (         "copies-are-injective",    "{copy}",                           same_copy),
        build  (Beside,  "reshape-slice",           "(reshape@r (slice@s ?x))",         reshape_slice),
        build  (Instead, "gather-scalar",           "(gather@g ?x $i)",                 gather_scalar),
        build  (Instead, "expand-operand",          "{elementwise}",                    expand_operand),
        // ---- products and reductions
        build  (Beside,  "scalar-matmul-a",         "(matmul@m (mul ?x $s) ?w)",        scalar_out_of_product),
        build  (Beside,  "scalar-matmul-b",         "(matmul@m ?w (mul ?x $s))",        scalar_out_of_product),
        build  (Instead, "matmul-transposed-a",     "(matmul@m (transpose@p ?x) ?w)",   matmul_transposed_a),
        build  (Instead, "matmul-transposed-b",     "(matmul@m ?x (transpose@p ?w))",   matmul_transposed_b),
        build  (Beside,  "matmul-shared",           "(matmul@m ?x $w)",                 matmul_shared_input),
        build  (Beside,  "matmul-shared-bias",      "(add (matmul@m ?x $w) $b)",        matmul_shared_input_bias),
        build  (Instead, "max-pool-whole",          "(max_pool@p ?x)",                  whole_pool),
        build  (Instead, "average-pool-whole",      "(average_pool@p ?x)",              whole_pool),
    ]
}
