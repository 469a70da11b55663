//! Live ranges of temporaries: a temporary that is used for several values becomes one temporary for each of them.
//!
//! In: a loop program. Out: the same program, where two assignments to a temporary without dimensions write two temporaries unless a read may
//! see the value of either. The first live range keeps the name, and so does one that a read before any assignment sees; statements keep their names.
//! Its interval, and the iteration that it is for, are those of one value alone then (renaming: R. Cytron, J. Ferrante, "What's in a name? The value
//! of renaming for parallelism detection and storage allocation", ICPP 1987). Assignments that reach a read are one live range, as is an update with what it updates.

use super::syntax::{Access, Array, Assign, Body, Program, Statement};
use crate::expr::syntax::{Expr as Text, Kind, Name};
use std::collections::{BTreeMap, BTreeSet};

/// The program with a temporary for each live range; `None` where there is nothing to rename.
pub fn renamed(program: &Program) -> Option<Program> {
    let mut out = program.clone();
    let Body::Loop { parameters, arrays, statements } = &mut out.body else { return None };
    let mut ranges = LiveRanges::of(arrays, statements);
    let mut taken: BTreeSet<String> = arrays.iter().map(|a| a.name.text.clone()).collect();
    taken.extend(parameters.iter().map(|p| p.name.text.clone()));
    taken.extend(indices(statements));
    let added = ranges.choose_names(arrays, taken);
    if added.is_empty() {
        return None;
    }
    arrays.extend(added);
    ranges.walk(Purpose::Rename, statements);
    Some(out)
}

/// The temporaries without dimensions of which every read sees an assignment of the program.
pub fn assigned_before_read(program: &Program) -> BTreeSet<String> {
    let Body::Loop { arrays, statements, .. } = &program.body else { return BTreeSet::new() };
    let mut ranges = LiveRanges::of(arrays, &mut statements.clone());
    let entries: Vec<usize> = ranges.variables.values().copied().collect();
    let read: BTreeSet<usize> = entries.into_iter().filter(|entry| ranges.read.contains(entry)).collect();
    ranges.variables.retain(|_, entry| !read.contains(entry));
    ranges.variables.into_keys().collect()
}

/// The number of times that statements name each name, as a target or in an expression.
pub fn occurrences(statements: &[Statement]) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    visit(statements, &mut |s| {
        let mut add = |name: &str| *out.entry(name.to_string()).or_default() += 1;
        for e in expressions(s) {
            e.visit(&mut |e| {
                if let Kind::Name(name) | Kind::Element(Name { text: name, .. }, _) = &e.kind {
                    add(name);
                }
            });
        }
        if let Statement::Assign(a) = s {
            add(&a.target.text);
        }
    });
    out
}

/// Calls `f` on all statements, outer ones first.
fn visit<'s>(statements: &'s [Statement], f: &mut impl FnMut(&'s Statement)) {
    for s in statements {
        f(s);
        match s {
            Statement::For { body, .. } => visit(body, f),
            Statement::If { body, otherwise, .. } => [body, otherwise].into_iter().for_each(|block| visit(block, f)),
            Statement::Assign(_) => {}
        }
    }
}

/// The expressions of a statement itself.
fn expressions(s: &Statement) -> Vec<&Text> {
    match s {
        Statement::For { range, .. } => vec![&range.lower, &range.upper],
        Statement::If { condition, .. } => vec![condition],
        Statement::Assign(a) => a.subscripts.iter().chain([&a.value]).collect(),
    }
}

/// The indices of loops.
fn indices(statements: &[Statement]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    visit(statements, &mut |s| {
        if let Statement::For { index, .. } = s {
            out.insert(index.text.clone());
        }
    });
    out
}

/// The purpose of a walk over the statements.
#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    /// The values at the end.
    Reach,
    /// Joining the values that one read may see.
    Join,
    /// Writing the new names.
    Rename,
}

/// For each variable the definitions whose value it may have.
type Values = Vec<BTreeSet<usize>>;

/// The definitions of the temporaries: first one for each variable, the value that it has before the program, then the assignments in their order.
struct LiveRanges {
    /// Variables, each with its place, which is its first definition.
    variables: BTreeMap<String, usize>,
    /// Each definition's variable.
    of: Vec<usize>,
    /// A definition of the same live range that is before it, or itself.
    leader: Vec<usize>,
    /// Definitions that a read may see.
    read: BTreeSet<usize>,
    /// The new names of live ranges, by their first definition.
    names: BTreeMap<usize, String>,
    /// The next assignment of a walk.
    next: usize,
}

impl LiveRanges {
    fn of(arrays: &[Array], statements: &mut [Statement]) -> LiveRanges {
        let mut other = indices(statements);
        other.extend(with_dimensions(statements));
        let is_variable = |a: &&Array| {
            let once = arrays.iter().filter(|b| b.name == a.name).count() == 1;
            a.access == Some(Access::Temporary) && a.shape.is_empty() && once && !other.contains(&a.name.text)
        };
        let names = arrays.iter().filter(is_variable).map(|a| a.name.text.clone());
        let variables: BTreeMap<String, usize> = names.zip(0..).collect();
        let of: Vec<usize> = (0..variables.len()).collect();
        let mut out =
            LiveRanges { leader: of.clone(), of, variables, read: BTreeSet::new(), names: BTreeMap::new(), next: 0 };
        out.walk(Purpose::Join, statements);
        out
    }

    /// Gives live ranges new names, all but the first of each variable; returns their arrays.
    fn choose_names(&mut self, arrays: &[Array], mut taken: BTreeSet<String>) -> Vec<Array> {
        let mut out = vec![];
        for (name, &variable) in &self.variables {
            let array = arrays.iter().find(|a| a.name.text == *name).expect("an array");
            let mut leaders: Vec<usize> = (self.variables.len()..self.of.len())
                .filter(|&d| self.of[d] == variable && self.leader(d) == d)
                .collect();
            // the value before the program has no assignment: what is joined with it has its number, and the name
            if (self.variables.len()..self.of.len()).all(|d| self.of[d] != variable || self.leader(d) != variable) {
                leaders = leaders.split_off(leaders.len().min(1));
            }
            let mut numbers = 2..;
            for leader in leaders {
                let free = numbers.by_ref().map(|n| format!("{name}_{n}")).find(|name| !taken.contains(name));
                let free = free.expect("a number");
                taken.insert(free.clone());
                out.push(Array { name: Name { text: free.clone(), span: array.name.span }, ..array.clone() });
                self.names.insert(leader, free);
            }
        }
        out
    }

    /// The first definition of a live range.
    fn leader(&self, mut definition: usize) -> usize {
        while self.leader[definition] != definition {
            definition = self.leader[definition];
        }
        definition
    }

    fn join(&mut self, definitions: &BTreeSet<usize>) {
        let leaders: BTreeSet<usize> = definitions.iter().map(|&d| self.leader(d)).collect();
        if let Some(&first) = leaders.first() {
            leaders.iter().for_each(|&leader| self.leader[leader] = first);
        }
    }

    fn walk(&mut self, purpose: Purpose, statements: &mut [Statement]) {
        self.next = self.variables.len();
        let mut values: Values = (0..self.variables.len()).map(|v| BTreeSet::from([v])).collect();
        self.block(purpose, statements, &mut values);
    }

    fn block(&mut self, purpose: Purpose, statements: &mut [Statement], values: &mut Values) {
        for s in statements {
            match s {
                Statement::For { range, body, .. } => {
                    self.read(purpose, &mut range.lower, values);
                    self.read(purpose, &mut range.upper, values);
                    if purpose != Purpose::Reach {
                        // an iteration sees what another one leaves
                        let first = self.next;
                        let mut left = values.clone();
                        self.block(Purpose::Reach, body, &mut left);
                        self.next = first;
                        merge(values, left);
                    }
                    let before = values.clone();
                    self.block(purpose, body, values);
                    merge(values, before);
                }
                Statement::If { condition, body, otherwise } => {
                    self.read(purpose, condition, values);
                    let mut other = values.clone();
                    self.block(purpose, body, values);
                    self.block(purpose, otherwise, &mut other);
                    merge(values, other);
                }
                Statement::Assign(a) => {
                    a.subscripts.iter_mut().chain([&mut a.value]).for_each(|e| self.read(purpose, e, values));
                    let Some(&variable) = self.variables.get(&a.target.text) else { continue };
                    let definition = self.next;
                    self.next += 1;
                    if self.of.len() == definition {
                        self.of.push(variable);
                        self.leader.push(definition);
                    }
                    if purpose == Purpose::Join && a.assign != Assign::Set {
                        let updated: BTreeSet<usize> = values[variable].iter().copied().chain([definition]).collect();
                        self.read.extend(&values[variable]);
                        self.join(&updated);
                    }
                    values[variable] = BTreeSet::from([definition]);
                    if purpose == Purpose::Rename
                        && let Some(name) = self.names.get(&self.leader(definition))
                    {
                        let target = Name { text: name.clone(), span: a.target.span };
                        let written = std::mem::replace(&mut a.target, target);
                        a.label.get_or_insert(written);
                    }
                }
            }
        }
    }

    /// A value that is read where the variables have these.
    fn read(&mut self, purpose: Purpose, e: &mut Text, values: &Values) {
        match &mut e.kind {
            Kind::Name(name) => {
                let Some(&variable) = self.variables.get(name) else { return };
                match purpose {
                    Purpose::Reach => {}
                    Purpose::Join => {
                        self.read.extend(&values[variable]);
                        self.join(&values[variable]);
                    }
                    Purpose::Rename => {
                        let leader = values[variable].first().map(|&d| self.leader(d));
                        if let Some(new) = leader.and_then(|leader| self.names.get(&leader)) {
                            name.clone_from(new);
                        }
                    }
                }
            }
            Kind::Element(_, operands) | Kind::Call(_, operands) => {
                operands.iter_mut().for_each(|e| self.read(purpose, e, values));
            }
            Kind::Cast(_, a) | Kind::Negate(a) | Kind::Not(a) => self.read(purpose, a, values),
            Kind::Binary(_, a, b) => {
                self.read(purpose, a, values);
                self.read(purpose, b, values);
            }
            Kind::Integer(_) | Kind::Unsigned(_) | Kind::Real(_) | Kind::Bool(_) => {}
        }
    }
}

/// Adds values that variables may have as well.
fn merge(values: &mut Values, others: Values) {
    values.iter_mut().zip(others).for_each(|(all, other)| all.extend(other));
}

/// Names that have subscripts.
fn with_dimensions(statements: &[Statement]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    visit(statements, &mut |s| {
        for e in expressions(s) {
            e.visit(&mut |e| {
                if let Kind::Element(name, _) = &e.kind {
                    out.insert(name.text.clone());
                }
            });
        }
        if let Statement::Assign(a) = s
            && !a.subscripts.is_empty()
        {
            out.insert(a.target.text.clone());
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{assigned_before_read, renamed};
    use crate::language::syntax::{File, Program};

    fn program(statements: &str) -> Program {
        let text = format!("loop p(N = 8) {{ in f32 x[N]  inout f32 y[N]  temp f32 t, u {statements} }}");
        let mut file = crate::language::parse("p.tile", &text).unwrap_or_else(|e| panic!("{e}"));
        file.programs.remove(0)
    }

    /// The statements with their new names, in one line.
    fn names(statements: &str) -> String {
        let written = program(statements);
        let program = renamed(&written).unwrap_or(written);
        let text = File { programs: vec![program], ..File::default() }.to_string();
        text.split_once("for").expect("a loop").1.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_assignment_that_no_read_shares_has_a_temporary_of_its_own() {
        let chain = names("for i in 0..N { t = x[i]  u = t * 2  t = t + u  y[i] = t }");
        assert_eq!(chain, "i in 0..N { t = x[i] u = t * 2 t: t_2 = t + u y[i] = t_2 } }");
        let loops = names("for i in 0..N { t = x[i]  y[i] = t }  for i in 0..N { t = 2  y[i] += t }");
        assert!(loops.ends_with("{ t: t_2 = 2 y[i] += t_2 } }"), "{loops}");
        // within a branch, and a name that is taken
        let branch = names("for i in 0..N { t = x[i]  if t > 1 { u = t  u = u * u  y[i] = u } }");
        assert!(branch.contains("{ u = t u: u_2 = u * u y[i] = u_2 }"), "{branch}");
        let taken = names("for t_2 in 0..N { t = x[t_2]  y[t_2] = t  t = 3  y[t_2] += t }");
        assert!(taken.contains("t: t_3 = 3"), "{taken}");
    }

    #[test]
    fn assignments_that_a_read_may_see_stay_together() {
        for statements in [
            "for i in 0..N { t = 0  for j in 0..N t = t + x[j]  y[i] = t }",
            "for i in 0..N { t = 0  t += x[i]  y[i] = t }",
            "for i in 0..N { t = 0  if x[i] > 0 t = x[i]  y[i] = t }",
            "for i in 0..N { if x[i] > 0 t = x[i] else t = 1  y[i] = t }",
            // of an earlier iteration
            "for i in 0..N { if i > 0 y[i] = t  t = x[i] }",
            // a loop without iterations leaves the first
            "for i in 0..N { t = 1  for j in 0..i t = x[j]  y[i] = t }",
        ] {
            assert!(renamed(&program(statements)).is_none(), "{statements}");
        }
        // the value before the program keeps the name
        let first = names("for i in 0..N { y[i] = t  t = x[i]  u = t  t = 2  y[i] = u + t }");
        assert!(first.contains("t: t_2 = x[i] u = t_2 t = 2"), "{first}");
    }

    #[test]
    fn reads_before_an_assignment_are_found() {
        let of = |statements: &str| assigned_before_read(&program(statements)).into_iter().collect::<Vec<_>>();
        assert_eq!(of("for i in 0..N { t = x[i]  if t > 1 { u = t  y[i] = u } }"), ["t", "u"]);
        assert_eq!(of("for i in 0..N { t = x[i]  if t > 1 u = t  y[i] = u }"), ["t"]);
        assert_eq!(of("u = 1  for i in 0..N { t = x[i]  if t > 1 u = t  y[i] = u }"), ["t", "u"]);
        assert_eq!(of("for i in 0..N { t += x[i]  u = t }"), ["u"]);
    }
}
