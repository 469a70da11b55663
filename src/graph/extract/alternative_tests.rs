//! Tests of a value that has two ways to be computed.

use super::candidate::Terms;
use super::constraint_set::Constraints;
use super::exchange::Exchange;
use super::greedy::{self, Greedy};
use super::problem::Problem;
use super::program::Constraint;
use super::tests::unpriced;
use crate::codegen::Target;
use crate::graph::builder::GraphBuilder;
use crate::graph::egraph::convert::{Loaded, load};
use crate::graph::op::Op;
use crate::runtime::{DType, Tensor};

/// `v·a`, where `v` is `x·a`, as the same class as the sum of `v·b` and of `x·b`.
fn product_or_sum() -> Loaded {
    let mut b = GraphBuilder::new("product or sum");
    let [wa, wb] = [0.5f32, 0.25].map(|v| b.constant(Tensor::new(&[16, 16], &[v; 256])));
    let x = b.input("x", DType::F32, &[16, 16]);
    let v = b.matmul(x, wa).unwrap();
    let product = b.matmul(v, wa).unwrap();
    let (second, third) = (b.matmul(v, wb).unwrap(), b.matmul(x, wb).unwrap());
    let sum = b.add(second, third).unwrap();
    b.output("product", product).unwrap();
    b.output("sum", sum).unwrap();
    let mut loaded = load(&b.build().unwrap()).unwrap();
    let [product, sum] = loaded.network.outputs[..] else { panic!("two outputs") };
    loaded.network.egraph.union(product, sum);
    loaded.network.rebuild();
    loaded
}

/// The class with two candidates, those, and the classes that the sum reads: the one that reads `v`, and the other.
fn product_or_sum_sites(problem: &Problem) -> ([usize; 3], [usize; 2]) {
    let both = problem.classes.iter().position(|list| list.len() == 2).unwrap();
    let way = |wanted: fn(&Op) -> bool| problem.classes[both].iter().position(|k| k.op.is_some_and(wanted)).unwrap();
    let (product, sum) = (way(|op| matches!(op, Op::MatMul { .. })), way(|op| matches!(op, Op::Binary(_))));
    let v = problem.classes[both][product].children[0];
    let reads = |&c: &usize| problem.classes[c][0].children.contains(&v);
    let (second, third): (Vec<usize>, Vec<usize>) = problem.classes[both][sum].children.iter().partition(|c| reads(c));
    ([both, product, sum], [second[0], third[0]])
}

/// A value is computed with each of the ways that need it, also where one of several operands needs it and the others do not.
#[test]
fn a_value_is_computed_with_all_ways_that_need_it() {
    let (loaded, target) = (product_or_sum(), Target::avx512());
    let (network, prices) = (&loaded.network, unpriced(&target));
    let problem = Problem::new(network, &network.outputs, &prices, Terms::Current).unwrap();
    let ([both, product, sum], _) = product_or_sum_sites(&problem);
    let rows = Constraints::new(&problem);
    let v = problem.classes[both][product].children[0];
    let mut wanted = vec![(rows.x[v][0], 1), (rows.x[both][product], -1), (rows.x[both][sum], -1)];
    wanted.sort_unstable();
    let is_wanted = |row: &Constraint| {
        let mut terms = row.terms.clone();
        terms.sort_unstable();
        (terms, row.least, row.equal) == (wanted.clone(), 0, false)
    };
    assert!(rows.program.rows.iter().any(is_wanted));
}

/// A cheaper candidate is not taken where an operand of it has no candidate.
#[test]
fn an_exchange_needs_a_candidate_for_each_operand() {
    let (loaded, target) = (product_or_sum(), Target::avx512());
    let (network, prices) = (&loaded.network, unpriced(&target));
    let problem = Problem::new(network, &network.outputs, &prices, Terms::Current).unwrap();
    let ([both, product, sum], operands) = product_or_sum_sites(&problem);
    let measure = |site: (usize, usize), _: &[Option<usize>]| if site == (both, product) { 10.0 } else { 1.0 };
    for missing in [None, Some(operands[0]), Some(operands[1])] {
        let mut chosen = vec![Some(0); problem.classes.len()];
        chosen[both] = Some(product);
        missing.into_iter().for_each(|class| chosen[class] = None);
        let mut exchange = Exchange::new(&problem, &chosen);
        exchange.run(&measure);
        assert_eq!(exchange.chosen[both], Some(if missing.is_none() { sum } else { product }), "{missing:?}");
    }
}

/// Preferred candidates that lie on no cycle stay, also those of classes that read others.
#[test]
fn preferred_candidates_without_a_cycle_stay() {
    let (loaded, target) = (product_or_sum(), Target::avx512());
    let (network, prices) = (&loaded.network, unpriced(&target));
    let problem = Problem::new(network, &network.outputs, &prices, Terms::Current).unwrap();
    let ([both, product, sum], _) = product_or_sum_sites(&problem);
    let (greedy, _) = greedy::solve(&problem, &mut Constraints::new(&problem)).unwrap();
    for way in [product, sum] {
        let mut preferred = vec![Some(0); problem.classes.len()];
        preferred[both] = Some(way);
        assert_eq!(Greedy::acyclic(&problem, &preferred, &greedy).chosen, preferred);
    }
}
