use crate::graph::extract::program::{How, Program, Row};

fn at_least(terms: &[(usize, i32)], least: i32) -> Row {
    Row { terms: terms.to_vec(), least, equal: false }
}

/// Triangles of which each edge needs one of its ends, in a chain of which each joint needs one as well.
fn triangles(count: usize) -> Program {
    let mut program = Program { cost: vec![], rows: vec![] };
    for t in 0..count {
        let first = 3 * t;
        program.cost.extend([10.0, 10.0, 10.0]);
        for (a, b) in [(0, 1), (1, 2), (0, 2)] {
            program.rows.push(at_least(&[(first + a, 1), (first + b, 1)], 1));
        }
        if t > 0 {
            program.rows.push(at_least(&[(first - 1, 1), (first, 1)], 1));
        }
    }
    program
}

#[test]
fn an_integral_relaxation_is_the_answer() {
    let row = Row { terms: vec![(0, 1), (1, 1)], least: 1, equal: true };
    let program = Program { cost: vec![3.0, 2.0], rows: vec![row] };
    let solved = program.solve(&[true, false]).unwrap();
    assert_eq!((solved.values, solved.bound, solved.how), (vec![false, true], 2.0, How::Relaxation));
}

#[test]
fn what_no_answer_is_below_is_kept() {
    let program = Program { cost: vec![3.0, 2.0], rows: vec![at_least(&[(0, 1), (1, 1)], 1)] };
    assert_eq!(program.solve(&[false, true]).unwrap().how, How::Start);
}

#[test]
fn pieces_of_an_open_relaxation_are_solved_and_proven() {
    // A relaxation takes half of each corner; each triangle needs two whole ones.
    for count in [1, 2, 5] {
        let program = triangles(count);
        let solved = program.solve(&vec![true; 3 * count]).unwrap();
        assert!(program.holds(&solved.values));
        assert_eq!(program.total(&solved.values), 20.0 * count as f64);
        assert!(solved.bound > 20.0 * count as f64 - 1e-3, "{count}: {}", solved.bound);
        assert!(matches!(solved.how, How::Pieces(_)));
    }
}

#[test]
fn a_part_holds_the_rest() {
    let program = triangles(2);
    let part = program.part(&[2, 3], &[true, true, false, false, true, true]).unwrap();
    assert_eq!(part.cost, [10.0, 10.0]);
    let values = part.solve(&[true, true]).unwrap().values;
    assert_eq!(values.iter().filter(|v| **v).count(), 1);
}
