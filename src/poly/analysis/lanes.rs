//! The width of the lanes in which a statement is computed.
//!
//! In: a statement. Out: bytes of a lane: of the narrow integers that do for all values on the way (`expr/narrow.rs`), else of
//! the widest element that it reads or writes, of four at least.

use crate::expr::narrow::{Names, is_table_of_bytes};
use crate::expr::{Affine, BufferId, Index};
use crate::poly::analysis::access::references;
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;

/// Bytes of a lane of a statement.
pub fn lane_bytes(scop: &Scop, id: StatementId) -> i64 {
    let s = scop.statement(id);
    let bounds = |a: &Affine| a.bounds(|v| (0, s.iterators.get(v.0 as usize).map_or(i64::MAX >> 32, |i| i.extent - 1)));
    let is_table = |b: BufferId| {
        let tensor = scop.tensor(b);
        is_table_of_bytes(tensor.dtype, &tensor.shape)
    };
    let names = Names { dtype: &|b| scop.tensor(b).dtype, bounds: &bounds, is_table: &is_table };
    let plain = s.subscripts().iter().all(|i| matches!(i, Index::Affine(_)));
    match names.narrowest(scop.tensor(s.target).dtype, &s.body).filter(|_| plain) {
        Some(bytes) => bytes as i64,
        None => references(scop, id).iter().map(|r| r.bytes).fold(4, i64::max),
    }
}
