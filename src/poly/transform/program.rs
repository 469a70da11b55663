//! Primitives that normalize the program, as for the ILP. They come before all others.

use crate::poly::normalize::{domain_split, index_set_split};
use crate::poly::transform::state::{SourceProgram, Transformed};
use crate::poly::transform::tree_edit::refuse;
use crate::runtime::Result;

/// `normalize`: what the ILP schedules. Of a tensor expression the temporaries are substituted into their readers, sums
/// have accumulators, loops that all arrays use as one are one ([`crate::poly::normalize::build`]); the loops of a loop
/// program begin at 0, its sums add last what they computed last, and a value that is linear in that takes it times one
/// constant ([`crate::poly::normalize::reassociate`]).
///
/// ```text
/// for m for n           for m for n          A(m,n) = 0
///   C(m,n) = 0          for m for n for k    A(m,n) += …
///   for k               for m for n          C(m,n) = A(m,n)
///     C(m,n) += …
/// ```
pub fn normalize(before: &Transformed, original: &SourceProgram) -> Result<Transformed> {
    untouched(before)?;
    if before.scop != original.written {
        return refuse(
            "this primitive starts from the program as written: put it before those that change the program",
        );
    }
    Ok(Transformed::new((original.normal)()?))
}

/// `domain_split`: statements are divided where subscripts and conditions with `%`, `/`, `min` and `max` of indices change from one affine
/// form to another ([`crate::poly::normalize::domain_split`]).
///
/// ```text
/// for x in 0..N                    for x in 0..N - 1
///   B[x] = A[(x + 1) % N]            B[x] = A[x + 1]      B_1
///                                  x = N - 1
///                                    B[x] = A[0]          B_2
/// ```
pub fn domain_split(before: &Transformed) -> Result<Transformed> {
    untouched(before)?;
    Ok(Transformed::new(domain_split::split(&before.scop)?))
}

/// `coalesce`: two loops directly inside of each other that all arrays use as one become one
/// ([`crate::poly::normalize::coalesce`]).
///
/// ```text
/// for j in 0..N                      for jc in 0..3*N
///   for c in 0..3                      Y[jc] = X[jc + 3*s]
///     Y[j][c] = X[j + s][c]
/// ```
pub fn coalesce(before: &Transformed) -> Result<Transformed> {
    untouched(before)?;
    Ok(Transformed::new(crate::poly::normalize::coalesce::coalesce(&before.scop)))
}

/// `index_set_split`: a loop that reads one element of what it updates becomes one for each side of it, and one for the element
/// itself ([`crate::poly::normalize::index_set_split`]). Before it a loop becomes two where the distance of a recurrence in it, as `3*k + 1`,
/// reaches a vector ([`crate::poly::normalize::distance_split`]).
///
/// ```text
/// for j in 0..N              for j in 0..k        S_1
///   A[i][j] min= A[i][k]     j = k                S_2
///                            for j in k + 1..N    S_3
/// ```
pub fn index_set_split(before: &Transformed) -> Result<Transformed> {
    untouched(before)?;
    Ok(Transformed::new(index_set_split::split(&before.scop)?))
}

/// `array_expand`: scalar temporaries that every iteration writes before it reads them have one element for each iteration
/// ([`crate::poly::normalize::array_expansion`]).
///
/// ```text
/// for i               for i
///   t = A[i]            t[i] = A[i]
///   B[i] = t * t        B[i] = t[i] * t[i]
/// ```
pub fn array_expand(before: &Transformed) -> Result<Transformed> {
    untouched(before)?;
    Ok(Transformed::new(crate::poly::normalize::array_expansion::expand(&before.scop)?))
}

/// `statement_split`: of a recurrence along the innermost loop, what does not wait for it becomes a statement before it
/// ([`crate::poly::normalize::statement_split`]).
///
/// ```text
/// for k                            for k
///   A[k] = B[k] * C[k] + A[k-1]      R[k] = B[k] * C[k]
///                                  for k
///                                    A[k] = R[k] + A[k-1]
/// ```
pub fn statement_split(before: &Transformed) -> Result<Transformed> {
    untouched(before)?;
    Ok(Transformed::new(crate::poly::normalize::statement_split::split(&before.scop)?))
}

fn untouched(before: &Transformed) -> Result<()> {
    if before.schedule != before.scop.order {
        return refuse("this primitive changes the program: put it before those that change its order");
    }
    match before.scop.privates.is_empty() && before.packings.is_empty() {
        true => Ok(()),
        false => refuse("this primitive changes the program: put it before copies and private values"),
    }
}
