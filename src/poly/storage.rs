//! Private temporaries, of which each iteration of some loops has a copy: the storage of caches and tiles of schedules
//! by hand, and of what lowering contracts.
//!
//! In the Scop such a temporary has the subscripts of a whole tensor; two instances access the same element only where
//! they agree in the rows of its [`Private`]. So iterations of these rows may run in any order and on any thread, and memory
//! holds what one iteration touches (the lowering finds the box), in the order that `layout` says. Invariant, checked with
//! every schedule: the rows are fixed by loops around all statements that use the temporary, and no value passes from one
//! iteration of these loops to another.

use crate::expr::BufferId;
use crate::expr::{Affine, Var};
use crate::poly::schedule::Row;
use crate::poly::sets::polyhedron::orthogonal_complement;
use crate::poly::statement::StatementId;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Private {
    pub tensor: BufferId,
    /// The tensor that it is a copy of.
    pub source: Option<BufferId>,
    /// Each value of these rows, which cover all statements that use it, has a copy.
    pub rows: Vec<Row>,
    /// The dimensions in memory, over those of the box that an iteration touches; row-major when empty.
    pub layout: Vec<Digit>,
}

/// `⌊form / divisor⌋`, of that the rest modulo `modulo` where there is one. [`Var`] d is dimension d.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Digit {
    pub form: Affine,
    pub divisor: i64,
    pub modulo: Option<i64>,
}

impl Digit {
    /// One more than the greatest value over a box of these extents.
    fn extent(&self, extents: &[i64]) -> i64 {
        let last = self.form.bounds(|v| (0, extents[v.0 as usize] - 1)).1.div_euclid(self.divisor);
        self.modulo.map_or(last, |m| last.min(m - 1)) + 1
    }
}

/// The shape in memory, in this layout, of a box of these extents.
pub(super) fn shape(layout: &[Digit], extents: &[i64]) -> Vec<i64> {
    layout.iter().map(|d| d.extent(extents)).collect()
}

impl Private {
    /// The shape in memory of a box of these extents.
    pub fn shape(&self, extents: &[i64]) -> Vec<i64> {
        match self.layout.is_empty() {
            true => extents.to_vec(),
            false => shape(&self.layout, extents),
        }
    }

    /// Returns true if the values of `around`, rows above all `users`, determine those of [`Private::rows`].
    pub fn is_fixed(&self, users: &[StatementId], around: &[&Row]) -> bool {
        self.rows.iter().all(|row| is_fixed(row, users, around))
    }
}

/// Returns true if `around` has a finer row of the same φ, or points whose φ add up to that of `row`.
pub(super) fn is_fixed(row: &Row, users: &[StatementId], around: &[&Row]) -> bool {
    let same = |r: &&&Row| row.tile % r.tile == 0 && users.iter().all(|id| r.of(*id) == row.of(*id));
    if around.iter().find(same).is_some() {
        return true;
    }
    // One vector for each row: the coefficients for each statement, then the constants, which all may have in common.
    let width = 1 + row.phi.iter().flat_map(|p| &p.1.terms).map(|t| t.0.0 as usize + 1).max().unwrap_or(0);
    let width =
        around.iter().flat_map(|r| &r.phi).flat_map(|p| &p.1.terms).fold(width, |w, t| w.max(t.0.0 as usize + 2));
    let vector = |r: &Row| -> Vec<i64> {
        let coefficients = |id: &StatementId| {
            let phi = r.of(*id);
            (0..width - 1).map(|v| phi.coefficient(Var(v as u32))).chain([phi.constant]).collect::<Vec<_>>()
        };
        users.iter().flat_map(coefficients).collect()
    };
    let vectors: Vec<Vec<i64>> = around.iter().filter(|r| r.tile == 1).map(|r| vector(r)).collect();
    adds_up(&vectors, &vector(row), width)
}

/// Returns true if some multiples of `forms` add up to `wanted`, but for a constant that all parts have in common. Each is one
/// vector of parts of `width` numbers, the last of which is the part's constant.
pub(super) fn adds_up(forms: &[Vec<i64>], wanted: &[i64], width: usize) -> bool {
    let shift: Vec<i64> = (0..wanted.len()).map(|k| i64::from(k % width == width - 1)).collect();
    let vectors: Vec<Vec<i64>> = forms.iter().cloned().chain([shift]).collect();
    let dot = |c: &Vec<i64>| c.iter().zip(wanted).map(|(a, b)| a * b).sum::<i64>();
    orthogonal_complement(&vectors, wanted.len()).iter().all(|c| dot(c) == 0)
}
