//! Random primitives that fit the tree that they are for: those that only move loops, and those that change the program.

use super::programs::Maker;
use rand::Rng;
use tilewright::internal::expr::syntax::Name;
use tilewright::internal::expr::{Expr, Index};
use tilewright::internal::language;
use tilewright::internal::poly::schedule::TimeDimension;
use tilewright::internal::poly::scop::Scop;
use tilewright::internal::poly::statement::{Role, Statement, StatementId};
use tilewright::internal::poly::transform::primitive::{Loop, Loops, Primitive};
use tilewright::internal::poly::transform::state::Transformed;

impl Maker {
    /// A primitive about loops and statements that there are. New loops are numbered by `fresh`.
    pub fn primitive(&mut self, state: &Transformed, fresh: &mut usize) -> Primitive {
        let ids: Vec<StatementId> = state.scop.ids().collect();
        if ids.is_empty() {
            return Primitive::Serial;
        }
        let id = self.pick(&ids);
        let statement = Some(Name::from(&*state.scop.statement(id).name));
        let rows: Vec<Name> = state
            .schedule
            .path(id)
            .iter()
            .filter_map(|s| if let TimeDimension::Row(r) = s { Some(Name::from(&*r.name)) } else { None })
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
        if self.chance(35) {
            return self.change(state, id, &rows, &names);
        }
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

    /// A primitive that changes the program, about a statement and its loops; `names` are new ones.
    fn change(&mut self, state: &Transformed, id: StatementId, rows: &[Name], names: &[Name]) -> Primitive {
        let scop = &state.scop;
        let s = scop.statement(id);
        let at = format!("{}({})", s.name, self.pick(rows));
        let read = read_by(scop, s);
        let target = &scop.tensor(s.target).name;
        let any = if read.is_empty() { target.clone() } else { self.pick(&read).0 };
        let packed: Vec<(String, Vec<String>)> =
            state.packings.iter().flat_map(|p| read_by(scop, scop.statement(p.statement))).collect();
        let is_packed =
            |r: &&(String, Vec<String>)| state.packings.iter().any(|p| scop.tensor(p.access.buffer).name == r.0);
        let copied = packed.iter().find(is_packed).cloned();
        let inner: Vec<&str> = rows[rows.len().saturating_sub(self.pick(&[1, 2, 3]))..].iter().map(|n| &**n).collect();
        let temporary = |name: &str| scop.tensors.iter().any(|t| t.role == Role::Temporary && t.name == name);
        let moved = read.iter().map(|r| r.0.clone()).find(|r| temporary(r)).unwrap_or_else(|| any.clone());
        if let (Some((name, loops)), true) = (&copied, self.chance(50)) {
            return parse(&format!("pack {name} as ({})", self.layout(loops)));
        }
        let summed: Vec<&Name> = match s.reduce {
            Some(_) => rows.iter().filter(|r| !written_along(scop, state, id, r)).collect(),
            None => vec![],
        };
        if !summed.is_empty() && self.chance(30) {
            let over = self.pick(&summed);
            return parse(&match self.chance(60) {
                true => format!("rfactor {target} over {}({over}) -> {}", s.name, names[0]),
                false => format!("tensorize {}({}){}", s.name, inner.join(", "), self.pick(&["", " with fma"])),
            });
        }
        parse(&match self.random.random_range(0..17) {
            0..=4 => format!("compute_at {moved} at {at}"),
            5..=6 => format!("store_at {moved} at {at}"),
            7..=8 => format!("compute_inline {moved}"),
            9..=10 => format!("cache_read {any} at {at}"),
            11 => format!("cache_read {any}"),
            12..=13 => format!("cache_write {target} at {at}"),
            14 => format!("tensorize {}({})", s.name, inner.join(", ")),
            15 => format!("pad {at} to {}", self.pick(&[4, 8, 16])),
            _ => self.pick(&["expand", "divide", "serial"]).to_string(),
        })
    }

    /// These loops, some as a tile and the points in it, in any order.
    fn layout(&mut self, loops: &[String]) -> String {
        let mut parts: Vec<String> = vec![];
        for name in loops {
            match self.pick(&[0, 0, 2, 4, 8]) {
                0 => parts.push(name.clone()),
                by => parts.extend([format!("{name} / {by}"), format!("{name} % {by}")]),
            }
        }
        for i in (1..parts.len()).rev() {
            parts.swap(i, self.random.random_range(0..=i));
        }
        parts.join(", ")
    }
}

fn parse(primitive: &str) -> Primitive {
    let file = language::parse("primitive", &format!("schedule s for p {{ {primitive} }}"));
    file.unwrap_or_else(|e| panic!("{primitive}: {e}")).schedules[0].primitives[0].primitive.clone()
}

/// Returns true if the element that the statement writes changes along one of its loops.
fn written_along(scop: &Scop, state: &Transformed, id: StatementId, name: &Name) -> bool {
    let path = state.schedule.path(id);
    path.iter().any(|step| match step {
        TimeDimension::Row(r) if r.name == **name => {
            r.of(id).terms.iter().any(|t| scop.statement(id).write.iter().any(|w| w.uses(t.0)))
        }
        _ => false,
    })
}

/// The tensors that a statement reads, each with the loops in its subscripts.
fn read_by(scop: &Scop, s: &Statement) -> Vec<(String, Vec<String>)> {
    let mut out: Vec<(String, Vec<String>)> = vec![];
    let mut add = |a: &tilewright::internal::expr::Access| {
        let used = s.iterators.iter().zip(s.vars());
        let used = used.filter(|(_, v)| a.index.iter().filter_map(Index::affine).any(|i| i.uses(*v)));
        out.push((scop.tensor(a.buffer).name.clone(), used.map(|(it, _)| it.name.clone()).collect()));
    };
    Expr::visit_accesses(&s.body, &mut add);
    out
}
