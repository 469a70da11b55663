//! List scheduling keeps what programs compute.

use super::random;
use crate::codegen::Target;
use crate::codegen::select::list_scheduling::schedule_loops;

#[test]
fn scheduled_random_programs_compute_the_same() {
    let target = Target::neon();
    let mut reordered = 0;
    for mut case in random::programs(&target) {
        let expected = case.expected();
        let before = case.function.insts.clone();
        schedule_loops(&mut case.function, &target);
        reordered += usize::from(case.function.insts != before);
        let difference = case.difference(&expected, &case.expected());
        assert_eq!(difference, None, "{:#?}", case.function.insts);
    }
    println!("{reordered} programs have another order");
    assert!(reordered > 100, "{reordered}");
}
