//! Exact legality of a schedule, with a counterexample.
//!
//! In: a Scop, its dependences, any tree. Out: nothing, or a refusal with a counterexample. For each dependence the
//! tree is walked from the root with the pairs of instances that run at the same time so far; at each row the sink may
//! not be earlier than the source. A row that runs in parallel or in vector lanes may not carry a dependence at all, but for
//! lanes where the source's statement comes first ([`follows_in_lanes`]);
//! the updates of one reduction may be reordered and spread over lanes, but not run in parallel. The distances of two
//! rows in waves must have a positive sum. Intervals prove most rows ([`Reduced`]); where they do not, isl decides.

use crate::expr::Affine;
use crate::poly::analysis::dependence::{Dependence, Dependences, Kind};
use crate::poly::schedule::{Node, Row, RowKind, Schedule, child_of};
use crate::poly::scop::Scop;
use crate::poly::sets::answers::Answers;
use crate::poly::sets::isl::Isl;
use crate::poly::sets::polyhedron::{Form, Polyhedron, Reduced, difference, minus, plus};
use crate::poly::statement::{Iterator, Statement, StatementId};
use crate::poly::storage::Private;
use crate::runtime::refusal::{Instance, Refusal};
use crate::runtime::{Error, Result};
use std::rc::Rc;

/// Refuses `schedule` when it is malformed or breaks a dependence; the message names two instances.
pub fn check(scop: &Scop, dependences: &Dependences, schedule: &Schedule) -> Result<()> {
    check_those(scop, dependences, schedule, &Answers::default(), |_| true)
}

/// [`check`], with answers that proofs of other schedules share.
pub fn check_with(scop: &Scop, dependences: &Dependences, schedule: &Schedule, answers: &Answers) -> Result<()> {
    check_those(scop, dependences, schedule, answers, |_| true)
}

/// [`check`] of a schedule that was legal while the statements of one part of the pair ran before those of the other: of the dependences,
/// those between the parts.
pub fn check_between(
    scop: &Scop,
    dependences: &Dependences,
    schedule: &Schedule,
    pair: &[Vec<StatementId>; 2],
    answers: &Answers,
) -> Result<()> {
    let side = |id: StatementId| pair.iter().position(|part| part.contains(&id));
    check_those(scop, dependences, schedule, answers, |d| {
        side(d.source).zip(side(d.sink)).is_some_and(|(source, sink)| source != sink)
    })
}

/// [`check`] of the dependences that `concerns` names.
fn check_those(
    scop: &Scop,
    dependences: &Dependences,
    schedule: &Schedule,
    answers: &Answers,
    concerns: impl Fn(&Dependence) -> bool,
) -> Result<()> {
    schedule.verify(scop)?;
    crate::poly::verify::check(scop, schedule)?;
    let isl = Isl::with_answers(answers);
    for dependence in dependences.list.iter().filter(|d| concerns(d)) {
        let walk = Walk { scop, isl: &isl, dependence };
        walk.node(&schedule.root, Unsatisfied::new(dependence)).map_err(|e| match e {
            Error::Limit(_) => {
                let [a, b] = [dependence.source, dependence.sink].map(|id| &scop.statement(id).name);
                e.context(&format!("the proof that {b} keeps its order after {a}"))
            }
            e => e,
        })?;
    }
    scop.privates.iter().try_for_each(|p| check_private(scop, dependences, schedule, p, &isl))
}

/// Returns true if `schedule`, which is well formed, keeps the order of the pairs of one more dependence; false also where the proof goes beyond a limit.
///
/// # Errors
/// [`Error::Internal`], a defect.
pub fn keeps(scop: &Scop, schedule: &Schedule, dependence: &Dependence, answers: &Answers) -> Result<bool> {
    let isl = Isl::with_answers(answers);
    let walk = Walk { scop, isl: &isl, dependence };
    match walk.node(&schedule.root, Unsatisfied::new(dependence)) {
        Ok(()) => Ok(true),
        Err(defect @ Error::Internal(_)) => Err(defect),
        Err(_) => Ok(false),
    }
}

/// Refuses a tree in which a value of a private temporary passes from one iteration of a loop to another whose iterations have
/// memory of their own: memory is found below the outermost loops that tell the iterations of the private rows apart, and
/// loops that came among them since then divide it further.
fn check_private(
    scop: &Scop,
    dependences: &Dependences,
    schedule: &Schedule,
    private: &Private,
    isl: &Isl,
) -> Result<()> {
    let users = scop.users(private.tensor);
    let around = schedule.around(&users);
    let Some(mut depth) = (0..=around.len()).find(|&n| private.is_fixed(&users, &around[..n])) else { return Ok(()) };
    // Waves find the values of both rows at once.
    depth += usize::from(depth > 0 && depth < around.len() && around[depth - 1].kind == RowKind::Wavefront);
    let own =
        |row: &&&Row| private.rows.iter().any(|r| r.tile == row.tile && users.iter().all(|&u| r.of(u) == row.of(u)));
    for row in around[..depth].iter().filter(|row| !own(row)) {
        let passes = |d: &&Dependence| d.tensor == private.tensor && (d.kind == Kind::Flow || d.reduction);
        for d in dependences.list.iter().filter(passes) {
            let live = Unsatisfied::new(d);
            if live.coincides(scop, d, row, isl)? {
                continue;
            }
            let inner = private.rows.last().map_or("", |r| &r.name);
            let place = format!(
                ": the memory of `{}` is for one iteration of loop `{inner}` inside of loop `{}`",
                scop.tensor(private.tensor).name,
                row.name
            );
            let walk = Walk { scop, isl, dependence: d };
            for swap in [false, true] {
                let apart = live.apart(scop, d, row, 1, swap);
                walk.refuse(&apart, &format!("in another iteration of loop {} than", row.name), &place)?;
            }
        }
    }
    Ok(())
}

/// The instances of a dependence that no outer row or sequence has ordered yet; copies share them.
#[derive(Clone, Debug)]
pub struct Unsatisfied {
    pub relation: Rc<Polyhedron>,
    pub reduced: Rc<Reduced>,
}

impl Unsatisfied {
    pub fn new(dependence: &Dependence) -> Unsatisfied {
        Unsatisfied::of(dependence.relation.clone())
    }

    fn of(relation: Polyhedron) -> Unsatisfied {
        Unsatisfied { reduced: Rc::new(Reduced::new(&relation)), relation: Rc::new(relation) }
    }

    /// φ of the sink minus φ of the source, over the relation, when the row covers both.
    pub fn distance(&self, scop: &Scop, d: &Dependence, row: &Row) -> Form {
        let (source, sink) = self.times(scop, d, row);
        difference(&sink, &source)
    }

    fn times(&self, scop: &Scop, d: &Dependence, row: &Row) -> (Form, Form) {
        let n = scop.statement(d.source).iterators.len();
        (self.relation.form(row.of(d.source), 0), self.relation.form(row.of(d.sink), n))
    }

    /// The least and the greatest distance in φ, as far as intervals tell.
    pub fn range(&self, distance: &[i64]) -> (Option<i64>, Option<i64>) {
        self.reduced.range(&self.reduced.pull(distance))
    }

    /// The pairs for which ⌊φ/tile⌋ of the sink is at least `gap` more than that of the source, negated when `swap`.
    fn apart(&self, scop: &Scop, d: &Dependence, row: &Row, gap: i64, swap: bool) -> Polyhedron {
        let (mut source, mut sink) = self.times(scop, d, row);
        if swap {
            std::mem::swap(&mut source, &mut sink);
        }
        let mut p = Polyhedron::clone(&self.relation);
        let (a, b) = (p.quotient(source, row.tile), p.quotient(sink, row.tile));
        p.inequalities.push(plus(&difference(&p.widen(b), &p.widen(a)), -gap));
        p
    }

    /// The pairs of which the sum of both rows is less for the sink than for the source, and those of the same sum of
    /// which the first row is greater or less.
    fn against_waves(&self, scop: &Scop, d: &Dependence, rows: [&Row; 2]) -> [Polyhedron; 3] {
        let mut p = Polyhedron::clone(&self.relation);
        let times = rows.map(|row| {
            let (source, sink) = self.times(scop, d, row);
            [p.quotient(source, row.tile), p.quotient(sink, row.tile)]
        });
        let [first, next] = times.map(|[source, sink]| difference(&p.widen(sink), &p.widen(source)));
        let sum: Form = first.iter().zip(&next).map(|(a, b)| a + b).collect();
        let with = |equal: Option<&Form>, negative: Form| {
            let mut out = p.clone();
            out.equalities.extend(equal.cloned());
            out.inequalities.push(negative);
            out
        };
        [with(None, minus(-1, &sum)), with(Some(&sum), plus(&first, -1)), with(Some(&sum), minus(-1, &first))]
    }

    /// The pairs that run at the same time in `row`.
    fn together(&self, scop: &Scop, d: &Dependence, row: &Row) -> Unsatisfied {
        let mut p = Polyhedron::clone(&self.relation);
        let (source, sink) = self.times(scop, d, row);
        if row.tile == 1 {
            p.equalities.push(difference(&sink, &source));
        } else {
            let q = p.add_variable();
            for form in [p.widen(source), p.widen(sink)] {
                p.divide(&form, q, row.tile);
            }
        }
        Unsatisfied::of(p)
    }

    /// Returns true if no pairs are left.
    pub fn is_empty(&self, isl: &Isl) -> Result<bool> {
        isl.is_empty_reduced(&self.relation, &self.reduced)
    }

    /// The pairs left after `row`, `None` when intervals show that none are.
    pub fn after(&self, scop: &Scop, d: &Dependence, row: &Row) -> Option<Unsatisfied> {
        match self.range(&self.distance(scop, d, row)) {
            (Some(0), Some(0)) => Some(self.clone()),
            (Some(lo), _) if lo >= row.tile => None,
            _ => Some(self.together(scop, d, row)).filter(|l| !l.reduced.empty),
        }
    }

    /// Returns true if the row orders no pair against the dependence.
    pub fn respects(&self, scop: &Scop, d: &Dependence, row: &Row, isl: &Isl) -> Result<bool> {
        Ok(self.range(&self.distance(scop, d, row)).0 >= Some(0) || isl.is_empty(&self.apart(scop, d, row, 1, true))?)
    }

    /// Returns true if the row runs the two instances of every pair at the same time.
    pub fn coincides(&self, scop: &Scop, d: &Dependence, row: &Row, isl: &Isl) -> Result<bool> {
        Ok(self.range(&self.distance(scop, d, row)) == (Some(0), Some(0))
            || isl.is_empty(&self.apart(scop, d, row, 1, true))?
                && isl.is_empty(&self.apart(scop, d, row, 1, false))?)
    }
}

/// Returns true if a vector over statements, whose lanes run one statement after the other, keeps the order of a dependence from a lane
/// to a later one: its source comes first among `statements`, or both are the same one, which reads all lanes before it writes them.
pub fn follows_in_lanes(d: &Dependence, statements: &Node) -> bool {
    match statements {
        Node::Leaf => d.source == d.sink && d.kind == Kind::Anti,
        Node::Sequence(children) if children.iter().all(|(_, child)| *child == Node::Leaf) => {
            let [source, sink] = [d.source, d.sink].map(|id| child_of(children, id));
            source < sink || d.source == d.sink && d.kind == Kind::Anti
        }
        _ => false,
    }
}

struct Walk<'a> {
    scop: &'a Scop,
    isl: &'a Isl,
    dependence: &'a Dependence,
}

impl Walk<'_> {
    fn node(&self, node: &Node, mut live: Unsatisfied) -> Result<()> {
        let d = self.dependence;
        match node {
            Node::Leaf if d.reduction => Ok(()),
            Node::Leaf => self.refuse(&live.relation, "at the same time as", ""),
            Node::Sequence(children) => {
                let position = |id: StatementId| child_of(children, id).expect("verified");
                match position(d.source).cmp(&position(d.sink)) {
                    std::cmp::Ordering::Less => Ok(()),
                    std::cmp::Ordering::Equal => self.node(&children[position(d.source)].1, live),
                    std::cmp::Ordering::Greater => self.refuse(&live.relation, "before", ""),
                }
            }
            Node::Band(band, child) => {
                let mut rows = band.rows.iter();
                while let Some(row) = rows.next() {
                    let place = format!(", in loop {}", row.name);
                    if row.kind == RowKind::Wavefront {
                        match self.wavefront(row, rows.next(), &live)? {
                            Some(rest) => live = rest,
                            None => return Ok(()),
                        }
                        continue;
                    }
                    let apart = |swap: bool| live.apart(self.scop, d, row, 1, swap);
                    if !d.reduction && !live.respects(self.scop, d, row, self.isl)? {
                        self.refuse(&apart(true), "before", &place)?;
                    }
                    let lanes = row.kind == RowKind::Vector && !d.reduction;
                    let innermost = rows.as_slice().is_empty();
                    let together = row.kind == RowKind::Parallel || lanes && !(innermost && follows_in_lanes(d, child));
                    if together && !live.coincides(self.scop, d, row, self.isl)? {
                        let word =
                            if row.kind == RowKind::Parallel { "in parallel with" } else { "in one vector with" };
                        self.refuse(&apart(false), word, &place)?;
                        self.refuse(&apart(true), word, &place)?;
                    }
                    match live.after(self.scop, d, row) {
                        Some(rest) => live = rest,
                        None => return Ok(()),
                    }
                }
                self.node(child, live)
            }
        }
    }

    /// Two rows in waves run in the order of their sum, those of one sum in parallel: a dependence must have a positive
    /// sum, or no distance in either. Returns what these rows leave, `None` when intervals show that nothing is left.
    fn wavefront(&self, row: &Row, next: Option<&Row>, live: &Unsatisfied) -> Result<Option<Unsatisfied>> {
        let (scop, d) = (self.scop, self.dependence);
        let Some(next) = next else {
            return Err(Error::refused(format!("loop `{}` is the last of its band and has no waves", row.name)));
        };
        if next.kind == RowKind::Vector {
            let why =
                format!("loop `{}` has no waves with `{}`, whose iterations are in one vector", row.name, next.name);
            return Err(Error::refused(why));
        }
        let place = format!(", in the waves of loops {} and {}", row.name, next.name);
        let [before, beside @ ..] = live.against_waves(scop, d, [row, next]);
        if !d.reduction {
            self.refuse(&before, "before", &place)?;
        }
        for pairs in beside {
            self.refuse(&pairs, "in parallel with", &place)?;
        }
        Ok(live.after(scop, d, row).and_then(|l| l.after(scop, d, next)))
    }

    /// An error with the first pair of `pairs`, if there is one.
    fn refuse(&self, pairs: &Polyhedron, order: &str, place: &str) -> Result<()> {
        if Reduced::new(pairs).empty {
            return Ok(());
        }
        let Some(point) = self.isl.first_point(pairs)? else { return Ok(()) };
        let d = self.dependence;
        let (source, sink) = (self.scop.statement(d.source), self.scop.statement(d.sink));
        let n = source.iterators.len();
        let (first, second) = (&point[..n], &point[n..n + sink.iterators.len()]);
        let writer = if d.kind == Kind::Anti { second } else { first };
        let subscript = |a: &Affine| a.evaluate(|v| writer[v.0 as usize]).to_string();
        let element: Vec<String> = d.element.iter().map(|a| a.as_ref().map_or("?".into(), subscript)).collect();
        let element = format!("{}({})", self.scop.tensor(d.tensor).name, element.join(","));
        let why = match d.kind {
            Kind::Flow => format!("which writes {element} that it reads"),
            Kind::Anti => format!("which reads {element} that it writes"),
            Kind::Output if d.reduction => format!("which updates {element} too"),
            Kind::Output => format!("which writes {element} too"),
        };
        let of = if d.source == d.sink { String::new() } else { format!(" of {}", source.name) };
        let reason = format!(
            "iteration {} of {} would run {order} {}{of}, {why}{place}",
            instance_name(sink, second),
            sink.name,
            instance_name(source, first),
        );
        let instance = |s: &Statement, point: &[i64]| Instance { statement: s.name.clone(), trips: point.to_vec() };
        let instances = Some([instance(sink, second), instance(source, first)]);
        Err(Error::Schedule(Box::new(Refusal { instances, ..*Refusal::new(reason) })))
    }
}

/// An instance as the text of the program counts: the values of its indices, which differ from the trip numbers where a loop
/// does not begin at 0 or has a step.
pub fn instance_name(s: &Statement, point: &[i64]) -> String {
    if s.iterators.is_empty() {
        return "the instance".to_string();
    }
    let named = |(it, x): (&Iterator, &i64)| {
        let index = it.index.as_ref().map_or(*x, |a| a.evaluate(|v| point[v.0 as usize]));
        format!("{}={index}", it.name)
    };
    s.iterators.iter().zip(point).map(named).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Affine, Var};
    use crate::poly::analysis::dependence;
    use crate::poly::normalize::build;
    use crate::poly::schedule::Band;
    use crate::poly::{ilp, samples};

    fn verdict(scop: &Scop, schedule: &Schedule) -> String {
        match check(scop, &dependence::analyze(scop).unwrap(), schedule) {
            Ok(()) => "legal".into(),
            Err(e) => e.to_string(),
        }
    }

    /// The rows of the outer band and the children below of the ILP's schedule of a matrix product.
    fn matmul() -> (Scop, Schedule) {
        let scop = build::build("t", &samples::matmul(8, 6, 4)).unwrap();
        let d = dependence::analyze(&scop).unwrap();
        let schedule = ilp::schedule(&scop, &d).unwrap().0;
        (scop, schedule)
    }

    fn outer(schedule: &mut Schedule) -> (&mut Vec<Row>, &mut Node) {
        let Node::Band(band, child) = &mut schedule.root else { panic!("a band") };
        (&mut band.rows, child)
    }

    #[test]
    fn consumer_before_the_last_update_is_refused() {
        let (scop, mut schedule) = matmul();
        let Node::Sequence(children) = outer(&mut schedule).1 else { panic!("a sequence") };
        children.swap(1, 2);
        assert_eq!(
            verdict(&scop, &schedule),
            "schedule refused: iteration m=0,n=0 of C would run before m=0,n=0,k=0 of C_update, which writes C_acc(0,0) that \
             it reads"
        );
    }

    #[test]
    fn reductions_may_be_reordered_but_not_run_in_parallel() {
        let (scop, mut schedule) = matmul();
        let Node::Sequence(children) = outer(&mut schedule).1 else { panic!("a sequence") };
        let Node::Band(band, _) = &mut children[1].1 else { panic!("a band") };
        band.rows[0].phi[0].1 = Affine::var(Var(2)).scale(-1);
        assert_eq!(verdict(&scop, &schedule), "legal");
        let set_kind = |schedule: &mut Schedule, kind| {
            let Node::Sequence(children) = outer(schedule).1 else { panic!("a sequence") };
            let Node::Band(band, _) = &mut children[1].1 else { panic!("a band") };
            band.rows[0].kind = kind;
        };
        set_kind(&mut schedule, RowKind::Vector);
        assert_eq!(verdict(&scop, &schedule), "legal");
        set_kind(&mut schedule, RowKind::Parallel);
        assert_eq!(
            verdict(&scop, &schedule),
            "schedule refused: iteration m=0,n=0,k=0 of C_update would run in parallel with m=0,n=0,k=1, which updates \
             C_acc(0,0) too, in loop k"
        );
    }

    #[test]
    fn tiles_and_parallel_rows_are_checked() {
        let (scop, mut schedule) = matmul();
        let rows = outer(&mut schedule).0;
        let mut tiles: Vec<Row> =
            rows.iter().map(|r| Row { tile: 3, name: r.name.clone() + "o", ..r.clone() }).collect();
        tiles[0].kind = RowKind::Parallel;
        tiles.append(rows);
        *rows = tiles;
        assert_eq!(verdict(&scop, &schedule), "legal");
        // Shifting the consumer by one splits its tiles from those of the update.
        let rows = outer(&mut schedule).0;
        for r in rows.iter_mut().filter(|r| r.name.starts_with('m')) {
            r.phi[2].1.constant = 1;
        }
        assert_eq!(
            verdict(&scop, &schedule),
            "schedule refused: iteration m=2,n=0 of C would run in parallel with m=2,n=0,k=0 of C_update, which writes \
             C_acc(2,0) that it reads, in loop mo"
        );
        outer(&mut schedule).0[0].kind = RowKind::Serial;
        assert_eq!(verdict(&scop, &schedule), "legal");
        for r in outer(&mut schedule).0.iter_mut().filter(|r| r.name.starts_with('m')) {
            r.phi[2].1.constant = -1;
        }
        assert_eq!(
            verdict(&scop, &schedule),
            "schedule refused: iteration m=0,n=0 of C would run before m=0,n=0,k=0 of C_update, which writes C_acc(0,0) that \
             it reads, in loop mo"
        );
    }

    /// Waves run in the order of the sum of both rows: distance (1, -2) goes back, (1, -1) runs in parallel, (2, -1) is legal.
    #[test]
    fn the_sum_of_two_rows_in_waves_must_not_fall() {
        for (source, words) in
            [("i - 1][j + 2", "would run before"), ("i - 1][j + 1", "in parallel with"), ("i - 2][j + 1", "legal")]
        {
            let text = format!(
                "scop waves {{ A: f32[8][8] inout;
                   S(i < 8, j < 8) if i - 2 >= 0 && -j + 5 >= 0: A[i][j] = A[{source}];
                   order band i [wavefront] S(i) j [serial] S(j) leaf }}"
            );
            let scop = crate::poly::parse::scop(&text).unwrap();
            let said = verdict(&scop, &scop.order);
            assert!(said.contains(words), "{source}: {said}");
            assert!(words == "legal" || said.contains("in the waves of loops i and j"), "{said}");
        }
    }

    /// `t` has one element for each iteration of its private rows. In a loop outside of these, or in waves with one, memory is found
    /// for each iteration of both loops: T runs in the first iteration of n alone and U in all, which is legal in m around n.
    #[test]
    fn private_values_stay_in_an_iteration_of_the_loops_that_divide_memory() {
        let (m, n) = ("m [serial] T(m), U(m)", "n [serial] T(n), U(n)");
        let wave = m.replace("serial", "wavefront");
        for (rows, private, legal) in [
            ([m, n], m.to_string(), true),
            ([n, m], m.to_string(), false),
            ([n, m], format!("{n} {m}"), true),
            ([&wave, n], m.to_string(), false),
            ([&wave, n], format!("{m} {n}"), true),
        ] {
            let first_alone = if private == m { "if -n >= 0" } else { "" };
            let text = format!(
                "scop moved {{ X: f32[4][6] input; Y: f32[4][6] output; t: f32[4] temporary;
                   T(m < 4, n < 6) {first_alone}: t[m] = X[m][0]; U(m < 4, n < 6): Y[m][n] = (t[m] * X[m][n]);
                   order band {} sequence {{T}} leaf {{U}} leaf
                   private t {private} }}",
                rows.join(" ")
            );
            let scop = crate::poly::parse::scop(&text).unwrap();
            let said = verdict(&scop, &scop.order);
            assert_eq!(said == "legal", legal, "{rows:?}, {private}: {said}");
            let why = "the memory of `t` is for one iteration of loop `m` inside of loop `n`";
            assert!(legal || said.contains(why), "{said}");
        }
    }

    /// Without a loop around both statements that tells the copies of `t` apart, there is nowhere to put one.
    #[test]
    fn private_temporaries_need_their_loops_around_them() {
        let text = "scop moved { X: f32[4] input; Y: f32[4] output; t: f32[4] temporary;
            T(m < 4): t[m] = X[m]; U(m < 4): Y[m] = t[m];
            order band m [serial] T(m), U(m) sequence {T} leaf {U} leaf
            private t m [serial] T(m), U(m) }";
        let scop = crate::poly::parse::scop(text).unwrap();
        assert_eq!(verdict(&scop, &scop.order), "legal");
        let alone = |id: StatementId| {
            let rows = vec![Row::serial("m", vec![(id, Affine::var(Var(0)))])];
            (vec![id], Node::Band(Band { rows, permutable: true }, Box::new(Node::Leaf)))
        };
        let apart = Schedule { root: Node::Sequence(scop.ids().map(alone).collect()) };
        assert!(verdict(&scop, &apart).contains("`t` is private to loop `m`, which does not contain all of its uses"));
    }

    #[test]
    fn malformed_trees_are_refused() {
        let (scop, mut schedule) = matmul();
        outer(&mut schedule).0[1].phi.pop();
        assert!(verdict(&scop, &schedule).contains("loop `n` covers {C_init, C_update} where"));
        let (scop, mut schedule) = matmul();
        outer(&mut schedule).0.pop();
        assert!(verdict(&scop, &schedule).contains("several instances of `C_init` run at the same time"));
        let mut missing = scop.order.clone();
        let Node::Sequence(children) = &mut missing.root else { panic!("a sequence") };
        children.pop();
        assert!(verdict(&scop, &missing).contains("a sequence covers {C_init, C_update}"));
    }

    #[test]
    fn equal_times_of_dependent_statements_cannot_be_written() {
        let (scop, _) = matmul();
        let ids: Vec<StatementId> = scop.ids().collect();
        let rows =
            (0..2).map(|v| Row::serial("t", ids.iter().map(|&id| (id, Affine::var(Var(v)))).collect())).collect();
        let schedule = Schedule { root: Node::Band(Band { rows, permutable: true }, Box::new(Node::Leaf)) };
        assert!(verdict(&scop, &schedule).contains("a leaf has the statements {C_init, C_update, C}, not one"));
    }
}
