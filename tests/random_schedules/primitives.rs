//! Random primitives that fit the tree that they are for.

use super::programs::Maker;
use rand::Rng;
use tilewright::poly::language::primitive::{Loop, Loops, Primitive};
use tilewright::poly::language::syntax::Name;
use tilewright::poly::schedule::Step;
use tilewright::poly::scop::StatementId;
use tilewright::poly::transform::Transformed;

impl Maker {
    /// A primitive about loops and statements that there are. New loops are numbered by `fresh`.
    pub fn primitive(&mut self, state: &Transformed, fresh: &mut usize) -> Primitive {
        let ids: Vec<StatementId> = state.scop.ids().collect();
        let id = self.pick(&ids);
        let statement = Some(Name::from(&*state.scop.statement(id).name));
        let rows: Vec<Name> = state
            .schedule
            .path(id)
            .iter()
            .filter_map(|s| if let Step::Row(r) = s { Some(Name::from(&*r.name)) } else { None })
            .collect();
        let mut new = |base: &str| {
            *fresh += 1;
            Name::from(&*format!("{base}{fresh}"))
        };
        let names: Vec<Name> = (0..4).map(|_| new("l")).collect();
        if rows.is_empty() {
            return Primitive::Serial;
        }
        let name = self.pick(&rows);
        let other = self.pick(&rows);
        let which = Loop { statement: statement.clone(), name: name.clone() };
        let mut some: Vec<Name> = ids.iter().map(|i| Name::from(&*state.scop.statement(*i).name)).collect();
        while some.len() > 2 && self.chance(50) {
            let at = self.random.random_range(0..some.len());
            some.remove(at);
        }
        let by = self.pick(&[2, 3, 4, 8]);
        match self.random.random_range(0..34) {
            0..=4 => Primitive::Split { which, by, into: [names[0].clone(), names[1].clone()] },
            5..=9 => {
                let mut names = rows.clone();
                names.truncate(rows.len().clamp(1, 3));
                for i in (1..names.len()).rev() {
                    names.swap(i, self.random.random_range(0..=i));
                }
                Primitive::Reorder { which: Loops { statement, names } }
            }
            10..=11 if name != other => Primitive::Tile {
                which: Loops { statement, names: vec![name, other] },
                by: vec![by, self.pick(&[2, 4, 5])],
                into: names,
            },
            12..=14 => Primitive::Skew { which, factor: self.pick(&[1, 1, 2, -1]), by: other },
            15..=16 => Primitive::Shift { which, by: self.pick(&[1, 2, -1, -2]) },
            17 => Primitive::Reverse { which },
            18..=19 => Primitive::Merge { statements: some, at: name },
            20..=21 => Primitive::Distribute { statements: some, at: name },
            22 => Primitive::Sequence { statements: some.into_iter().rev().collect() },
            23 => Primitive::Unroll { which, by: self.chance(70).then_some(by) },
            24 => Primitive::UnrollAndJam { which, by },
            25..=27 => Primitive::Vectorize { which, by: self.chance(70).then_some(by) },
            28..=30 => Primitive::Parallel { which },
            31 => Primitive::Wavefront { which },
            32 => Primitive::Peel { which },
            _ => Primitive::Fuse { which: Loops { statement, names: vec![name, other] }, into: names[0].clone() },
        }
    }
}
