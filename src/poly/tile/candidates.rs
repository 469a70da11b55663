//! Register blocks that competed, for reports.

use crate::expr::{BufferId, Var};
use crate::poly::tile::plan::Phase;
use crate::poly::tile::register_block::{Block, Problem};
use crate::poly::tile::report::BlockReport;

/// The most blocks of a report.
const SHOWN: usize = 4;

impl Phase<'_> {
    /// Blocks for a report, the best first, with their predicted times where transfers were counted.
    pub(super) fn block_reports<'b>(
        &self,
        problem: &Problem,
        blocks: impl Iterator<Item = (&'b Block, Option<f64>)>,
    ) -> Vec<BlockReport> {
        let mut reports: Vec<BlockReport> =
            blocks.map(|(b, total_ns)| self.block_report(problem, b, total_ns)).collect();
        let time = |r: &BlockReport| (r.total_ns.is_none(), r.total_ns.unwrap_or(r.core_ns));
        reports.sort_by(|a, b| time(a).0.cmp(&time(b).0).then(time(a).1.total_cmp(&time(b).1)));
        reports.truncate(SHOWN);
        reports
    }

    fn block_report(&self, problem: &Problem, block: &Block, total_ns: Option<f64>) -> BlockReport {
        let points = block.unrolled.iter().copied().chain(block.vector);
        let name = |v: Var| &problem.statement.iterator(v).name;
        let points: Vec<String> = points.map(|(v, n)| format!("{} {n}", name(v))).collect();
        let tensor = |i: &usize| problem.references.get(*i).map(|r| r.tensor);
        let mut packed: Vec<BufferId> = block.packed.iter().filter_map(tensor).collect();
        packed.sort();
        packed.dedup();
        let packed = packed.into_iter().map(|id| self.scop.tensor(id).name.clone()).collect();
        let core_ns = (block.cycles + problem.copying(block)) / self.target.machine.clock_ghz;
        BlockReport { block: points.join(" × "), packed, core_ns, total_ns }
    }
}

#[cfg(test)]
mod tests {
    use crate::codegen::Target;
    use crate::poly::analysis::dependence;
    use crate::poly::normalize::build;
    use crate::poly::{ilp, samples, tile};

    #[test]
    fn a_product_reports_the_blocks_that_competed() {
        let scop = build::build("product", &samples::matmul(60, 96, 64)).unwrap();
        let (schedule, _) = ilp::schedule(&scop, &dependence::analyze(&scop).unwrap()).unwrap();
        let tiled = tile::tile(&scop, &schedule, &Target::avx512()).unwrap();
        let [phase] = &tiled.report.phases[..] else { panic!("one phase") };
        assert!((2..=4).contains(&phase.blocks.len()), "{:?}", phase.blocks);
        let best = &phase.blocks[0];
        assert_eq!(best.block, phase.block);
        assert!(best.core_ns > 0.0 && best.total_ns.is_some_and(|total| total >= best.core_ns), "{best:?}");
        let times: Vec<f64> = phase.blocks[1..].iter().map(|b| b.total_ns.unwrap_or(b.core_ns)).collect();
        assert!(times.is_sorted(), "{:?}", phase.blocks);
    }
}
