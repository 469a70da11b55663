//! Literals in the choice of blocks: their subscripts are unrolled, and their zeros cost nothing.

use super::{compile_stages, evaluate, inputs};
use crate::codegen::Target;
use crate::codegen::select::tests::{difference, run};
use crate::codegen::vcode::{Function, Inst, VBinary};
use crate::poly::lower::state::Argument;
use crate::poly::samples;
use crate::poly::statement::Role;
use crate::runtime::{DType, Tensor};

/// Products and sums; broadcasts.
fn counts(functions: &[Function]) -> [usize; 2] {
    let count = |kind: &dyn Fn(&Inst) -> bool| functions.iter().flat_map(|f| &f.insts).filter(|i| kind(i)).count();
    let is_sum = |op: &VBinary| matches!(op, VBinary::Add | VBinary::Sub | VBinary::Mul);
    [
        count(&|i| matches!(i, Inst::VFma { .. }) || matches!(i, Inst::VBinary { op, .. } if is_sum(op))),
        count(&|i| matches!(i, Inst::VBroadcast { .. })),
    ]
}

#[test]
fn the_input_transform_of_winograd_reads_no_matrix() {
    let [unknown, known] = [false, true].map(|literals| samples::winograd_input(2, 40, literals));
    let given = inputs(&known);
    let want = evaluate(&known, &given);
    for target in Target::all() {
        let [before, after] = [&unknown, &known].map(|p| compile_stages(p, "w", &target));
        let ([work, loads], [less, none]) = (counts(&before.vcode), counts(&after.vcode));
        assert!(none == 0 && loads > 0, "{}: {}", target.name, after.tiled.report);
        assert!(less * 3 <= work * 2, "{}: {less} of {work}", target.name);
        let (slow, fast) = (before.tiled.report.predicted_ns, after.tiled.report.predicted_ns);
        assert!(fast < slow, "{}: {fast} and {slow}", target.name);
        let mut arguments: Vec<Tensor> = after
            .kernel
            .arguments
            .iter()
            .map(|a| match a {
                Argument::Tensor(b) if after.scop.tensor(*b).role == Role::Output => {
                    Tensor::zeros(DType::F32, &want[0].shape)
                }
                Argument::Tensor(b) => given[b.0 as usize].clone(),
                Argument::Packed(pack) => pack.apply(&given[pack.source.0 as usize]),
                Argument::Workspace { bytes } => Tensor::zeros(DType::U8, &[*bytes as i64]),
            })
            .collect();
        run(&after.vcode, &mut arguments);
        let output = |a: &Argument| matches!(a, Argument::Tensor(b) if after.scop.tensor(*b).role == Role::Output);
        let output = after.kernel.arguments.iter().position(output).unwrap();
        assert!(difference(&arguments[output], &want[0]) < 1e-6, "{}", target.name);
    }
}
