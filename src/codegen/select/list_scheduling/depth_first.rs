//! The order of a block that computes one result after the other.
//!
//! In: a block with its dependences. Out: the positions of its instructions in an order that keeps these. Of each store, and each instruction
//! that nothing waits for, in the order of selection, all comes that it needs and that is not there yet. Where neighbouring results read the
//! same, as those of a convolution, few registers hold what is read again. The order knows no latencies.

/// The positions of the instructions of a block, of which those behind each one and those that are ends are given.
pub fn order(successors: &[Vec<usize>], is_end: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut before = vec![vec![]; successors.len()];
    for (from, to) in successors.iter().enumerate() {
        to.iter().for_each(|&to| Vec::push(&mut before[to], from));
    }
    let (mut order, mut taken) = (vec![], vec![false; successors.len()]);
    for last in (0..successors.len()).filter(|&i| is_end(i)) {
        let mut needed = vec![];
        let mut open = vec![last];
        while let Some(i) = open.pop() {
            if !std::mem::replace(&mut taken[i], true) {
                needed.push(i);
                open.extend(&before[i]);
            }
        }
        needed.sort_unstable();
        order.extend(needed);
    }
    order
}
