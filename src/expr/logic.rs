//! Conditions of several parts: negations, conjunctions and disjunctions, in the tree of a text and in typed expressions.

/// The operation on conditions at the root of a condition.
pub enum Logic<'e, C> {
    Not(&'e C),
    And(&'e C, &'e C),
    Or(&'e C, &'e C),
    /// A comparison, or whatever else is true or false.
    Part,
}

/// An expression that is true or false.
pub trait Condition: Sized {
    /// Its root.
    fn logic(&self) -> Logic<'_, Self>;

    /// The parts that all are as said where the condition is `truth`, from left to right, each with whether it holds.
    fn parts(&self, truth: bool) -> Vec<(&Self, bool)> {
        let mut out = vec![];
        collect(self, truth, &mut out);
        out
    }
}

fn collect<'e, C: Condition>(condition: &'e C, truth: bool, out: &mut Vec<(&'e C, bool)>) {
    match (condition.logic(), truth) {
        (Logic::Not(a), _) => collect(a, !truth, out),
        (Logic::And(a, b), true) | (Logic::Or(a, b), false) => {
            collect(a, truth, out);
            collect(b, truth, out);
        }
        _ => out.push((condition, truth)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Word {
        Is(char),
        Not(Box<Word>),
        And(Box<Word>, Box<Word>),
        Or(Box<Word>, Box<Word>),
    }

    impl Condition for Word {
        fn logic(&self) -> Logic<'_, Word> {
            match self {
                Word::Is(_) => Logic::Part,
                Word::Not(a) => Logic::Not(a),
                Word::And(a, b) => Logic::And(a, b),
                Word::Or(a, b) => Logic::Or(a, b),
            }
        }
    }

    #[test]
    fn parts_are_those_that_all_are_as_said() {
        let is = |c: char| Box::new(Word::Is(c));
        let shown = |condition: &Word, truth: bool| -> String {
            let name = |(part, holds): (&Word, bool)| match part {
                Word::Is(c) => format!("{}{c}", if holds { "" } else { "!" }),
                _ => "?".to_string(),
            };
            condition.parts(truth).into_iter().map(name).collect()
        };
        let and = Word::And(is('a'), Box::new(Word::Not(Box::new(Word::Or(is('b'), is('c'))))));
        assert_eq!((shown(&and, true), shown(&and, false)), ("a!b!c".to_string(), "?".to_string()));
        let or = Word::Or(is('a'), Box::new(Word::Not(is('b'))));
        assert_eq!((shown(&or, true), shown(&or, false)), ("?".to_string(), "!ab".to_string()));
    }
}
