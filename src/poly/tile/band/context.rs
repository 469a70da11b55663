//! The statements and the target that bands are tiled for.

use crate::codegen::Target;
use crate::expr::Var;
use crate::poly::analysis::dependence::{Dependence, Dependences, Kind};
use crate::poly::analysis::legality::{Unsatisfied, follows_in_lanes};
use crate::poly::schedule::{Node, Row};
use crate::poly::scop::Scop;
use crate::poly::sets::isl::Isl;
use crate::poly::statement::StatementId;

/// Tile sizes that are tried, in values of φ.
pub(super) const SIZES: [i64; 8] = [4, 8, 16, 32, 64, 128, 256, 512];

/// Transformations that tiling may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Phases in the shape of a tensor expression get register blocks and packed operands.
    pub boxes: bool,
    /// Loops of a permutable band are tiled for the caches.
    pub tiles: bool,
    pub vectors: Vectors,
    /// The loop over the vectors of a row that carries nothing stays inside of loops that carry something.
    pub inside: bool,
    /// Such a loop is divided into strips for threads, where the work is large.
    pub strips: bool,
    /// Two rows of a permutable band are tiled, whether a cache holds everything or not: threads run the tiles in waves.
    pub waves: bool,
    /// A loop that carries the sums of several statements, and nothing else, may become a vector; whether it carries more
    /// is for the proof to say.
    pub sums: bool,
    /// Register blocks are chosen for the code that short sums become: without a loop, whose latency the next block hides.
    pub unrolled: bool,
    /// Iterations that are unrolled and jammed (Carr and Kennedy, 1994), or vectors, of the innermost loop that carries nothing where all
    /// loops in it carry something: several chains of dependences run beside each other. 1 for none.
    pub jam: i64,
}

/// Accesses of loops that may become vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vectors {
    /// Loops stay scalar.
    None,
    /// Elements that lie next to each other, or one element for all lanes.
    Contiguous,
    /// The outermost loop that carries nothing, whatever it reads: all that it contains works on vectors.
    Outermost,
    Any,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            boxes: true,
            tiles: true,
            vectors: Vectors::Any,
            inside: false,
            strips: false,
            waves: false,
            sums: false,
            unrolled: false,
            jam: 1,
        }
    }
}

pub struct Bands<'a> {
    pub scop: &'a Scop,
    pub target: &'a Target,
    pub statements: &'a [StatementId],
    /// Where they are known, a loop that carries some may become a vector.
    pub dependences: Option<&'a Dependences>,
    pub isl: Isl,
    pub style: Style,
}

impl Bands<'_> {
    /// The number of iterations of the innermost loop around `statements` that no dependence forbids in one vector: the least
    /// distance of what it carries from a lane to a later one, the loops outside being the others of `all` before it.
    pub(super) fn independent_iterations(&self, row: &Row, all: &[&Row], statements: &Node) -> i64 {
        let Some(dependences) = self.dependences else { return 1 };
        let covers = |d: &&Dependence| [d.source, d.sink].iter().all(|id| row.phi.iter().any(|p| p.0 == *id));
        let forbids = |d: &&Dependence| !(d.kind == Kind::Anti && follows_in_lanes(d, statements));
        let mut least = i64::MAX;
        for d in dependences.list.iter().filter(covers).filter(forbids) {
            let mut outer = all.iter().take_while(|r| **r != row);
            let live = outer.try_fold(Unsatisfied::new(d), |live, outer| live.after(self.scop, d, outer));
            let Some(live) = live else { continue };
            match live.range(&live.distance(self.scop, d, row)) {
                (Some(0), Some(0)) => {}
                (Some(distance), _) => least = least.min(distance),
                (None, _) => return 1,
            }
        }
        least
    }
}

/// Returns the change of the iterators when one row makes a step and the others do not; `None` if it is not an integer
/// vector.
pub(super) fn direction(all: &[&Row], row: &Row, id: StatementId, n: usize) -> Option<Vec<i64>> {
    let theta = |r: &Row| -> Vec<i64> { (0..n as u32).map(|v| r.of(id).coefficient(Var(v))).collect() };
    let others: Vec<Vec<i64>> = all.iter().filter(|r| **r != row).map(|r| theta(r)).collect();
    let free = crate::poly::sets::polyhedron::orthogonal_complement(&others, n);
    let coefficients = theta(row);
    let step = |d: &[i64]| -> i64 { d.iter().zip(&coefficients).map(|(a, b)| a * b).sum() };
    let d = free.into_iter().find(|d| step(d) != 0)?;
    match step(&d) {
        1 => Some(d),
        -1 => Some(d.iter().map(|c| -c).collect()),
        _ => None,
    }
}
