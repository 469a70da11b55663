//! Loop coalescing: `(n, h, w)` of a 1×1 convolution becomes one iterator, an elementwise group one loop.
//!
//! Two iterators of a statement become one, `i·extent(j) + j`, when every access uses them only as the subscripts of two
//! adjacent dimensions, `i` (plus a constant) and exactly `j`, with `j` covering its dimension. The two dimensions of the
//! tensor then become one, so every other access to it must allow that too: a merge is a closed set of pairs of iterators
//! and pairs of dimensions, found from one seed, and done completely or not at all. External tensors are reshaped
//! without moving data.
//!
//! In a loop program the loops over `i` and `j` must be directly inside of each other around the same statements, and all accesses to
//! an array that the program writes have the same constant beside `i`: no dependence becomes one between iterations of the
//! merged loop that was one between those of `i`. An array that is only read may have a window there, as
//! `X[j + s][c]` has, the channels of a pixel lying side by side.

use crate::expr::{Affine, Var};
use crate::expr::{BufferId, Expr, Index};
use crate::poly::schedule::{Band, Node, Row, Schedule};
use crate::poly::scop::Scop;
use crate::poly::statement::{Iterator, Statement, StatementId, unused_name};
use std::collections::{BTreeMap, BTreeSet};

/// A merge: the pair (i, j) of iterators by statement, the dimensions d (with d + 1) by tensor.
#[derive(Default)]
struct Merge {
    pairs: BTreeMap<usize, (Var, Var)>,
    dimensions: BTreeMap<BufferId, usize>,
}

/// Merges iterators and dimensions of a tensor expression until nothing more can be merged.
pub fn merge_iterators(scop: &mut Scop) {
    while let Some(merge) = seeds(scop).into_iter().find_map(|(s, i, j)| close(scop, (s, i, j), false)) {
        apply(scop, &merge);
    }
}

/// A loop program in its original order with one loop in place of two wherever that changes no dependence.
pub fn coalesce(scop: &Scop) -> Scop {
    let mut out = scop.clone();
    let candidate = |scop: &Scop, seed| {
        let merge = close(scop, seed, true)?;
        let root = joined(&scop.order.root, scop, &merge)?;
        Some((merge, root))
    };
    while let Some((merge, root)) = seeds(&out).into_iter().find_map(|seed| candidate(&out, seed)) {
        out.order = Schedule { root };
        apply(&mut out, &merge);
    }
    out
}

/// Pairs of iterators that appear side by side in a subscript list, innermost dimensions first.
fn seeds(scop: &Scop) -> Vec<(usize, Var, Var)> {
    let mut pairs = vec![];
    let mut seen = BTreeSet::new();
    for (s, statement) in scop.statements.iter().enumerate() {
        let mut collect = |index: &[Index]| {
            for d in (1..index.len()).rev() {
                if let (Some(i), Some(j)) = (leading(&index[d - 1]), exact(&index[d]))
                    && seen.insert((s, i, j))
                {
                    pairs.push((s, i, j));
                }
            }
        };
        for_each_access(statement, &mut |_, index, _| collect(index));
    }
    pairs
}

/// `v` when the subscript is `v + constant`.
fn leading(index: &Index) -> Option<Var> {
    match index.affine()?.terms[..] {
        [(v, 1)] => Some(v),
        _ => None,
    }
}

/// `v` when the subscript is `v`.
fn exact(index: &Index) -> Option<Var> {
    leading(index).filter(|_| index.affine().is_some_and(|a| a.constant == 0))
}

/// Calls `f(buffer, subscripts, guard)` for the write and every read.
fn for_each_access(statement: &Statement, f: &mut impl FnMut(BufferId, &[Index], &[Affine])) {
    f(statement.target, &statement.subscripts(), &[]);
    for e in values(statement) {
        e.visit_accesses(&mut |a| f(a.buffer, &a.index, &a.guard));
    }
}

/// The body of a statement, and the subscripts of its write that come from data.
fn values(statement: &Statement) -> impl std::iter::Iterator<Item = &Expr> {
    [&statement.body].into_iter().chain(statement.computed.iter().map(|c| &c.1))
}

/// Variant of [`values`] for edits.
fn values_mut(statement: &mut Statement) -> impl std::iter::Iterator<Item = &mut Expr> {
    [&mut statement.body].into_iter().chain(statement.computed.iter_mut().map(|c| &mut c.1))
}

/// The name of the iterator that two of a statement become.
fn joined_name(statement: &Statement, i: Var, j: Var) -> String {
    let [outer, inner] = [i, j].map(|v| &statement.iterator(v).name);
    unused_name(&statement.iterators, &format!("{outer}{inner}"))
}

/// The smallest merge that joins iterators `i` and `j` of statement `s`, or `None` when there is none. `ordered` statements are
/// those of a loop program.
fn close(scop: &Scop, (s, i, j): (usize, Var, Var), ordered: bool) -> Option<Merge> {
    let mut closure =
        Closure { scop, ordered, merge: Merge::default(), open_pairs: vec![(s, i, j)], open_dimensions: vec![] };
    loop {
        if let Some((s, i, j)) = closure.open_pairs.pop() {
            closure.add_pair(s, i, j)?;
        } else if let Some((buffer, d)) = closure.open_dimensions.pop() {
            closure.add_dimensions(buffer, d)?;
        } else {
            return Some(closure.merge);
        }
    }
}

/// A merge that grows until it is closed.
struct Closure<'a> {
    scop: &'a Scop,
    ordered: bool,
    merge: Merge,
    /// Pairs still to be added.
    open_pairs: Vec<(usize, Var, Var)>,
    /// Dimensions still to be added.
    open_dimensions: Vec<(BufferId, usize)>,
}

impl Closure<'_> {
    /// Returns true if a subscript may have more beside its iterator.
    fn has_windows(&self, buffer: BufferId) -> bool {
        self.ordered && !self.scop.tensor(buffer).role.is_written()
    }

    /// Adds the pair of a statement, if all of its accesses allow it.
    fn add_pair(&mut self, s: usize, i: Var, j: Var) -> Option<()> {
        match self.merge.pairs.get(&s) {
            Some(&pair) => return (pair == (i, j)).then_some(()),
            None => self.merge.pairs.insert(s, (i, j)),
        };
        let statement = &self.scop.statements[s];
        let extent = statement.extent(j);
        let uses = |a: &Affine| a.uses(i) || a.uses(j);
        if i == j || statement.domain.iter().any(uses) || values(statement).any(|e| uses_as_value(e, &uses)) {
            return None;
        }
        let relative = |it: (Var, &Iterator)| it.0 != i && it.0 != j && it.1.index.as_ref().is_some_and(uses);
        if self.ordered && statement.vars().zip(&statement.iterators).any(relative) {
            return None;
        }
        let mut possible = true;
        let mut dimensions = vec![];
        for_each_access(statement, &mut |buffer, index, guard| {
            possible &= !guard.iter().any(uses);
            let mut d = 0;
            while d < index.len() {
                if let Some(a) = index[d].affine().filter(|a| uses(a)) {
                    let window = self.has_windows(buffer) && a.coefficient(i) == 1 && !a.uses(j);
                    possible &= (window || leading(&index[d]) == Some(i))
                        && index.get(d + 1).and_then(exact) == Some(j)
                        && self.scop.tensor(buffer).shape[d + 1..].first() == Some(&extent);
                    dimensions.push((buffer, d));
                    d += 1;
                }
                d += 1;
            }
        });
        self.open_dimensions.extend(dimensions);
        possible.then_some(())
    }

    /// Adds two dimensions of a tensor, if all accesses to it allow it.
    fn add_dimensions(&mut self, buffer: BufferId, d: usize) -> Option<()> {
        match self.merge.dimensions.get(&buffer) {
            Some(&dimension) => return (dimension == d).then_some(()),
            None => self.merge.dimensions.insert(buffer, d),
        };
        let windows = self.has_windows(buffer);
        let scattered = |s: &Statement| s.target == buffer && s.is_scatter();
        let mut possible = !self.scop.statements.iter().any(scattered);
        let mut pairs = vec![];
        let mut offsets = BTreeSet::new();
        for (s, statement) in self.scop.statements.iter().enumerate() {
            for_each_access(statement, &mut |other, index, _| {
                if other != buffer {
                    return;
                }
                let pair = self.merge.pairs.get(&s);
                match (&index[d], &index[d + 1]) {
                    (Index::Affine(a), Index::Affine(_)) if a.is_constant() => {}
                    // the pair is in the merge already, where this access was looked at
                    (Index::Affine(a), b) if windows && pair.is_some_and(|p| a.uses(p.0) && exact(b) == Some(p.1)) => {}
                    (a, b) => match (leading(a), exact(b)) {
                        (Some(i), Some(j)) => {
                            offsets.extend(a.affine().map(|a| a.constant));
                            pairs.push((s, i, j))
                        }
                        _ => possible = false,
                    },
                }
            });
        }
        self.open_pairs.extend(pairs);
        (possible && (windows || !self.ordered || offsets.len() <= 1)).then_some(())
    }
}

/// The tree with one row in place of those over each pair, or `None` where other rows or statements are between them.
fn joined(node: &Node, scop: &Scop, merge: &Merge) -> Option<Node> {
    let node = joined_below(node, scop, merge)?;
    let mut rows = BTreeMap::new();
    node.for_each_band(&mut |band| {
        for (id, phi) in band.rows.iter().flat_map(|r| &r.phi) {
            let pair = merge.pairs.get(&(id.0 as usize));
            if pair.is_some_and(|&(i, j)| phi.uses(i) || phi.uses(j)) {
                *rows.entry(id.0 as usize).or_insert(0) += 1;
            }
        }
    });
    merge.pairs.keys().all(|s| rows.get(s) == Some(&1)).then_some(node)
}

fn joined_below(node: &Node, scop: &Scop, merge: &Merge) -> Option<Node> {
    let Node::Band(..) = node else {
        return node.clone().try_map_children(&mut |child| joined_below(&child, scop, merge).ok_or(())).ok();
    };
    let (mut rows, mut below) = (vec![], node);
    while let Node::Band(band, child) = below {
        rows.extend(band.rows.iter().cloned());
        below = child;
    }
    let over_first = |row: &Row| {
        row.phi.iter().any(|(id, phi)| merge.pairs.get(&(id.0 as usize)).is_some_and(|pair| phi.uses(pair.0)))
    };
    if let Some(position) = rows.iter().position(over_first) {
        let inner = (position + 1 < rows.len()).then(|| rows.remove(position + 1))?;
        rows[position] = joined_row(&rows[position], &inner, scop, merge)?;
    }
    let below = joined_below(below, scop, merge)?;
    Some(Node::Band(Band { rows, permutable: false }, Box::new(below)))
}

/// One row in place of two, over the same statements, each in its pair of iterators.
fn joined_row(outer: &Row, inner: &Row, scop: &Scop, merge: &Merge) -> Option<Row> {
    let mut widths = BTreeSet::new();
    let join = |(id, first): &(StatementId, Affine)| {
        let &(i, j) = merge.pairs.get(&(id.0 as usize))?;
        let second = inner.of(*id);
        let width = scop.statement(*id).extent(j);
        widths.insert((width, second.constant));
        let single = first.terms[..] == [(i, 1)] && second.terms[..] == [(j, 1)];
        single.then(|| (*id, first.scale(width).add_scaled(second, 1)))
    };
    let phi: Vec<(StatementId, Affine)> = outer.phi.iter().map(join).collect::<Option<_>>()?;
    let plain = outer.tile == 1 && inner.tile == 1;
    let (first, (i, j)) = phi.first().map(|p| (p.0, merge.pairs[&(p.0.0 as usize)]))?;
    let name = joined_name(scop.statement(first), i, j);
    (plain && widths.len() == 1).then(|| Row { name, phi, ..outer.clone() })
}

/// Returns true if an affine form that `uses` accepts is a value of the expression.
fn uses_as_value(body: &Expr, uses: &impl Fn(&Affine) -> bool) -> bool {
    body.any(&mut |e| matches!(e, Expr::Index(a) if uses(a)))
}

fn apply(scop: &mut Scop, merge: &Merge) {
    let widths: BTreeMap<BufferId, i64> =
        merge.dimensions.iter().map(|(&b, &d)| (b, scop.tensor(b).shape[d + 1])).collect();
    // Two subscripts (a, b) of merged dimensions become a·width + b.
    let join = |buffer: BufferId, index: &mut Vec<Index>| {
        if let Some(&d) = merge.dimensions.get(&buffer) {
            let (a, b) = (index[d].affine().expect("affine"), index[d + 1].affine().expect("affine"));
            index[d] = Index::Affine(a.scale(widths[&buffer]).add_scaled(b, 1));
            index.remove(d + 1);
        }
    };
    for (s, statement) in scop.statements.iter_mut().enumerate() {
        let mut write = statement.write.drain(..).map(Index::Affine).collect();
        join(statement.target, &mut write);
        statement.write = write.into_iter().map(|i| i.affine().expect("affine").clone()).collect();
        for e in values_mut(statement) {
            *e = e.rewrite_loads(&mut |mut a| {
                join(a.buffer, &mut a.index);
                Expr::Load(a)
            });
        }
        if let Some(&(i, j)) = merge.pairs.get(&s) {
            merge_pair(statement, i, j);
            let id = StatementId(s as u32);
            scop.order.root.for_each_band_mut(&mut |band| {
                let forms = band.rows.iter_mut().flat_map(|r| &mut r.phi).filter(|p| p.0 == id);
                forms.for_each(|(_, phi)| *phi = phi.substitute(&mut renamed(i, j)));
            });
        }
    }
    for (&b, &d) in &merge.dimensions {
        let shape = &mut scop.tensors[b.0 as usize].shape;
        shape[d] *= shape.remove(d + 1);
    }
}

/// Replaces `i` by the merged iterator m and removes `j`: forms are in `i·extent(j) + j`, so `j` becomes m and `i` 0.
fn merge_pair(statement: &mut Statement, i: Var, j: Var) {
    let name = joined_name(statement, i, j);
    let iterators = &mut statement.iterators;
    let inner = iterators.remove(j.0 as usize);
    let outer = &mut iterators[shifted(i, j).0 as usize];
    *outer = Iterator::new(name, outer.extent * inner.extent);
    let mut map = renamed(i, j);
    statement.write = statement.write.iter().map(|a| a.substitute(&mut map)).collect();
    statement.domain = statement.domain.iter().map(|a| a.substitute(&mut map)).collect();
    for e in values_mut(statement) {
        *e = e.substitute(&mut map);
    }
}

/// The place of a variable after `j` is removed.
fn shifted(v: Var, j: Var) -> Var {
    if v > j { Var(v.0 - 1) } else { v }
}

/// The variables after a merge: forms in `i·extent(j) + j` are in the merged iterator.
fn renamed(i: Var, j: Var) -> impl FnMut(Var) -> Affine {
    move |v| match v {
        v if v == i => Affine::constant(0),
        v if v == j => Affine::var(shifted(i, j)),
        v => Affine::var(shifted(v, j)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language;
    use crate::language::lowered::Computation;
    use crate::poly::analysis::{dependence, legality};
    use std::collections::BTreeMap;

    /// The loops of each statement of a program after coalescing, from the outermost one.
    fn loops(text: &str) -> Vec<String> {
        let file = language::parse("test", text).unwrap();
        let lowered = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap();
        let Computation::Loop(scop) = lowered.computation else { panic!("a loop program") };
        let out = coalesce(&scop);
        out.verify().unwrap();
        legality::check(&out, &dependence::analyze(&out).unwrap(), &out.order).unwrap();
        let names = |id| out.order.around(&[id]).iter().map(|r| r.name.clone()).collect::<Vec<_>>().join(" ");
        out.ids().map(names).collect()
    }

    #[test]
    fn channels_of_neighbouring_pixels_are_one_loop() {
        let text = "loop p(N = 9) { f32 X[N][N+4][3], k[5]\n f32 H[N][N][3], Y[N][N][3]
            for i in 0..N for j in 0..N for c in 0..3 {
                H[i][j][c] = 0  for s in 0..5 H[i][j][c] += k[s] * X[i][j+s][c] }
            for i in 0..N-1 for j in 0..N for c in 0..3 Y[i][j][c] = H[i+1][j][c] - H[i][j][c] }";
        assert_eq!(loops(text), ["i jc", "i jc s", "i jc"]);
    }

    #[test]
    fn loops_over_all_of_an_array_are_one() {
        let text = "loop p(N = 9) { f32 A[N][N][4], B[N][N][4]
            for i in 0..N for j in 0..N for c in 0..4 B[i][j][c] = A[i][j][c] * 2 }";
        assert_eq!(loops(text), ["ijc"]);
        // the rows of all products of one matrix are the rows of one product
        let text = "loop p(N = 9) { f32 A[N][5][N], B[N][N], C[N][5][N]
            for b in 0..N for i in 0..5 for j in 0..N for k in 0..N C[b][i][j] += A[b][i][k] * B[k][j] }";
        assert_eq!(loops(text), ["bi j k"]);
    }

    #[test]
    fn a_name_that_is_taken_is_longer() {
        let text = "loop p(N = 9) { f32 A[N][N], B[N][N]
            for ij in 0..N for i in 0..N for j in 0..N B[i][j] += A[i][j] * 2 }";
        assert_eq!(loops(text), ["ij ij_"]);
    }

    #[test]
    fn subscripts_from_data_are_accesses() {
        let text = "loop p(N = 9) { u8 X[N][N], Y[N][N], t[256]  i32 h[256]
            for i in 0..N for j in 0..N h[X[i][j]] += 1
            for i in 0..N for j in 0..N Y[i][j] = t[X[i][j]] }";
        assert_eq!(loops(text), ["ij", "ij"]);
        // elements that data choose lie in any row
        let text = "loop p(N = 9) { i32 X[N][N]  f32 A[N][N], B[N][N]
            for i in 0..N for j in 0..N A[X[i][j]][j] += 1
            for i in 0..N for j in 0..N B[i][j] = A[i][j] }";
        assert_eq!(loops(text), ["i j", "i j"]);
    }

    #[test]
    fn loops_stay_where_others_need_them() {
        for (text, stay) in [
            // the next row waits for this one
            ("for i in 0..N-1 for j in 0..N A[i+1][j] = A[i][j] * 2", "i j"),
            // a part of each row
            ("for i in 0..N for j in 0..N-1 A[i][j] = B[i][j] * 2", "i j"),
            ("for i in 0..N for j in 0..N-1 A[i][j+1] = 2", "i j"),
            // an index as a value, a vector along the row, a triangle, columns
            ("for i in 0..N for j in 0..N A[i][j] = f32(j)", "i j"),
            ("for i in 0..N for j in 0..N A[i][j] = x[j]", "i j"),
            ("for i in 0..N for j in i..N A[i][j] = 2", "i j"),
            ("for j in 0..N for i in 0..N A[i][j] = B[i][j]", "j i"),
            // another statement between the two loops
            ("for i in 0..N { x[i] = 0  for j in 0..N A[i][j] = B[i][j] }", "i"),
        ] {
            let program = format!("loop p(N = 9) {{ f32 A[N][N], B[N][N], x[N]\n {text} }}");
            assert_eq!(loops(&program)[0], stay, "{text}");
        }
        let between = "loop p(N = 9) { f32 A[N][N], B[N][N], x[N]
            for i in 0..N { x[i] = 0  for j in 0..N A[i][j] = B[i][j] } }";
        assert_eq!(loops(between), ["i", "i j"]);
    }

    #[test]
    fn loops_stay_where_another_access_needs_both() {
        for (text, stay) in [
            // two of three channels of a window
            (
                "f32 X[N][N+4][3], k[5], H[N][N][2]
                 for i in 0..N for j in 0..N for c in 0..2 {
                     H[i][j][c] = 0  for s in 0..5 H[i][j][c] += k[s] * X[i][j+s][c] }",
                vec!["i j c", "i j c s"],
            ),
            // neighbours, which another statement reads
            (
                "f32 A[N][N], B[N][N]
                 for i in 0..N for j in 0..N A[i][j] = 2
                 for i in 0..N for j in 0..N-1 B[i][j] = A[i][j+1]",
                vec!["i j", "i j"],
            ),
            // a loop that begins at the iteration of another
            ("f32 B[N][N]  for i in 0..N for j in 0..N for k in j..j+3 B[i][j] += 2", vec!["i j k"]),
            // two pairs of loops over one array
            (
                "f32 A[N][N], B[N][N]
                 for i in 0..N for j in 0..N for k in 0..N for l in 0..N B[i][j] += A[i][j] * A[k][l]",
                vec!["i j k l"],
            ),
            // two pairs of dimensions of one array
            (
                "f32 T[N][N][N], V[N][N]
                 for i in 0..N for j in 0..N V[i][j] = T[i][j][0]
                 for j in 0..N for k in 0..N V[j][k] += T[0][j][k]",
                vec!["i j", "j k"],
            ),
            // a subscript from data beside them
            ("i32 X[N][N]  f32 A[N][N][N]  for i in 0..N for j in 0..N A[i][j][X[i][j]] += 1", vec!["i j"]),
        ] {
            assert_eq!(loops(&format!("loop p(N = 9) {{ {text} }}")), stay, "{text}");
        }
    }
}
