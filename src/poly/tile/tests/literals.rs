//! Literals in the choice of blocks: their subscripts are unrolled, and their zeros cost nothing.

use super::{compile_stages, evaluate, inputs};
use crate::codegen::Target;
use crate::codegen::select::tests::{difference, run};
use crate::codegen::vcode::{Function, Inst, VBinary};
use crate::poly::lower::state::Argument;
use crate::poly::samples;
use crate::poly::schedule::{Node, Row};
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

/// The loops around several parts of the only phase, or the number of phases.
fn shared(tiles: i64, channels: i64, target: &Target) -> Result<Vec<Row>, usize> {
    let stages = compile_stages(&samples::winograd_input(tiles, channels, true), "w", target);
    assert!(!stages.tiled.report.phases.is_empty(), "{}", stages.tiled.report);
    match (&stages.tiled.schedule.root, stages.tiled.report.phases.len()) {
        (Node::Band(band, child), 1) if matches!(**child, Node::Sequence(_)) => Ok(band.rows.clone()),
        (_, phases) => Err(phases),
    }
}

#[test]
fn the_stages_of_a_transform_share_their_tile_rows_where_a_cache_holds_what_they_exchange() {
    for target in Target::all() {
        let rows = shared(7, 64, &target).unwrap_or_else(|phases| panic!("{}: {phases} phases", target.name));
        assert!(rows.len() == 1 && rows[0].name == "th", "{}: {rows:?}", target.name);
        // 6 x 62 x 4096 elements of a row of tiles are more than any second cache has.
        assert_eq!(shared(15, 4096, &target).unwrap_err(), 2, "{}", target.name);
    }
}
