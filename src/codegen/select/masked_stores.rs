//! Stores of some lanes: the others are not touched, as another thread may own them.
//!
//! In: a store to memory under a condition that differs from lane to lane. Out: whether the target has an instruction for it.

use crate::codegen::Target;
use crate::codegen::loopnest::{BufferKind, LoopNest};
use crate::codegen::select::value::lane_of;
use crate::codegen::target::Isa;
use crate::expr::{BufferId, Index, Var};

/// Lanes of the shortest vectors that are stored so: 16 bytes.
const LEAST_LANES: i64 = 4;

/// Returns true if instructions store neighbouring elements of lanes that a mask chooses, in all vectors of a loop over `var` with
/// `extent` iterations.
pub fn stores_where(
    nest: &LoopNest,
    target: &Target,
    (var, extent): (Var, i64),
    buffer: BufferId,
    index: &[Index],
) -> bool {
    let b = nest.buffer(buffer);
    let size = b.dtype.bytes();
    let as_wide = size >= 4 && lane_of(b.dtype).is_ok_and(|lane| lane.bytes() == size);
    let forms = index.iter().map(Index::affine).zip(&b.strides);
    let steps: Option<Vec<i64>> = forms.map(|(form, stride)| Some(form?.coefficient(var) * stride)).collect();
    target.isa != Isa::Neon
        && matches!(b.kind, BufferKind::Argument { .. })
        && as_wide
        && extent % LEAST_LANES == 0
        && steps.is_some_and(|steps| steps.iter().sum::<i64>() == 1)
}

#[cfg(test)]
mod tests {
    use crate::codegen::Target;
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::lower;
    use crate::codegen::select::tests::check;
    use crate::codegen::vcode::Inst;

    #[test]
    fn lanes_under_a_condition_of_each_are_stored_under_a_mask() {
        let text = |store: &str| {
            format!(
                "kernel rows {{
                   P: i64[5] argument 0; V: f32[41] argument 1; W: f32[41] argument 2 written; D: f64[41] argument 3 written;
                   B: u8[41] argument 4 written; acc: f32[1] local;
                   for i in 0..4 {{
                     acc[0] = f32(0.0);
                     let a = clamp(P[i], 0, 41) about 7*i; let b = clamp((P[i + 1] + i64(9)), 0, 41) about 7*i + 7;
                     for t in a..b step 16 {{ vector k in 0..16 {{ if b - t - k - 1 >= 0 {{ {store} }} }} }} }} }}"
            )
        };
        let counts = |store: &str| {
            let nest = parse::nest(&text(store)).unwrap_or_else(|e| panic!("{e}\n{store}"));
            check(&nest, 1);
            [Target::avx512(), Target::avx2(), Target::neon()].map(|target| {
                let functions = lower(&nest, &target).unwrap();
                let masked = |i: &&Inst| matches!(i, Inst::VStoreWhere { .. });
                functions.iter().flat_map(|f| &f.insts).filter(masked).count()
            })
        };
        assert_eq!(counts("W[t + k] = (V[t + k] * f32(3.0));"), [1, 2, 0]);
        assert_eq!(counts("W[t + k] = f32(2.0);"), [1, 2, 0]);
        assert_eq!(counts("D[t + k] = cast f64(V[t + k]);"), [2, 4, 0]);
        assert_eq!(counts("W[t + k] = exp(V[t + k]); acc[0] add = W[t + k];"), [1, 2, 0]);
        // bytes and elements apart have no such instruction
        assert_eq!(counts("B[t + k] = u8(2);"), [0; 3]);
        // the next row would wait for what is stored under a mask
        assert_eq!(counts("W[t + k] mul = V[t + k];"), [0; 3]);
        assert_eq!(counts("W[t + k] = (W[t + k] * f32(3.0));"), [0; 3]);
        assert_eq!(counts("W[-t - k + 40] = V[t + k];"), [0; 3]);
    }
}
