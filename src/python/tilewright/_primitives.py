"""The methods of schedules, one for each primitive: written by `tests/python/make_primitives.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._schedule import Schedule

#: A loop, or a statement and its loop.
Loop = str | tuple[str, str]
#: Loops, or a statement and its loops.
Loops = Sequence[str] | tuple[str, Sequence[str]]
#: An array that is read, or a statement and the array that it reads.
Read = str | tuple[str, str]


class Primitives:
    """One method for each primitive."""

    def _then(self, keyword: str, *values: Any) -> Schedule:
        raise NotImplementedError

    def split(self, which: Loop, by: int, into: tuple[str, str] | Sequence[str]) -> Schedule:
        """`split i by 8 -> io, ii`: one loop becomes two (Halide, TVM: split; strip mining)."""
        return self._then("split", which, by, into)

    def fuse(self, which: Loops, into: str) -> Schedule:
        """`fuse i, j -> f`: two neighbouring loops become one over both (Halide, TVM: fuse; OpenMP: collapse)."""
        return self._then("fuse", which, into)

    def reorder(self, which: Loops) -> Schedule:
        """`reorder j, i`: the loops in this order, at the places that they had (Halide, TVM; loop interchange)."""
        return self._then("reorder", which)

    def tile(self, which: Loops, by: Sequence[int], into: Sequence[str]) -> Schedule:
        """`tile C(i, j) by (8, 16) -> io, jo, ii, ji`: splits and reorders at once (Halide: tile)."""
        return self._then("tile", which, by, into)

    def skew(self, which: Loop, factor: int, by: str) -> Schedule:
        """`skew j by 2*i`: j runs as j + 2·i (Wolfe: loop skewing)."""
        return self._then("skew", which, factor, by)

    def shift(self, which: Loop, by: int) -> Schedule:
        """`shift S(i) by 2`: the statement runs 2 iterations later (Kelly and Pugh; Allen and Kennedy: loop
        alignment)."""
        return self._then("shift", which, by)

    def reverse(self, which: Loop) -> Schedule:
        """`reverse i`: from the last iteration to the first (Wolfe: loop reversal)."""
        return self._then("reverse", which)

    def merge(self, statements: Sequence[str], at: str) -> Schedule:
        """`merge A, B at i`: statements share their loops down to i (loop fusion, Exo: fuse; `fuse` is Halide's
        here)."""
        return self._then("merge", statements, at)

    def distribute(self, statements: Sequence[str], at: str) -> Schedule:
        """`distribute A, B at i`: statements have loops of their own from i inwards (Allen and Kennedy; Exo:
        fission)."""
        return self._then("distribute", statements, at)

    def sequence(self, statements: Sequence[str]) -> Schedule:
        """`sequence B, A`: statements in this order, at the places that they had (statement reordering)."""
        return self._then("sequence", statements)

    def unroll(self, which: Loop, by: int | None = None) -> Schedule:
        """`unroll i`, or `unroll i by 4`: iterations as statements one after the other (Halide, TVM)."""
        return self._then("unroll", which, by)

    def unroll_and_jam(self, which: Loop, by: int) -> Schedule:
        """`unroll_and_jam i by 4`: unrolled, the copies inside the inner loops (Callahan, Carr, Kennedy)."""
        return self._then("unroll_and_jam", which, by)

    def vectorize(self, which: Loop, by: int | None = None) -> Schedule:
        """`vectorize i`, or `vectorize i by 8`: iterations in the lanes of vectors (Halide, TVM)."""
        return self._then("vectorize", which, by)

    def parallel(self, which: Loop) -> Schedule:
        """`parallel i`: iterations on several threads (Halide, TVM)."""
        return self._then("parallel", which)

    def wavefront(self, which: Loop) -> Schedule:
        """`wavefront i`: this loop and the next one in waves (Lamport: hyperplanes; Wolfe: wavefronts)."""
        return self._then("wavefront", which)

    def serial(self) -> Schedule:
        """`serial`: all on one thread, without barriers."""
        return self._then("serial")

    def compute_at(self, tensor: str, at: Loop) -> Schedule:
        """`compute_at Bx at y`: computed where an iteration of y needs it (Halide, TVM)."""
        return self._then("compute_at", tensor, at)

    def compute_inline(self, tensor: str) -> Schedule:
        """`compute_inline Bx`: computed again at each use (Halide, TVM)."""
        return self._then("compute_inline", tensor)

    def store_at(self, tensor: str, at: Loop) -> Schedule:
        """`store_at Bx at y`: its memory lives for one iteration of y (Halide)."""
        return self._then("store_at", tensor, at)

    def cache_read(self, tensor: str, at: Loop | None = None) -> Schedule:
        """`cache_read B`: a copy made before the loops; `cache_read B at ko`: of the elements that an iteration of ko
        reads (TVM)."""
        return self._then("cache_read", tensor, at)

    def cache_write(self, tensor: str, at: Loop) -> Schedule:
        """`cache_write C at no`: a local tile that is written back after one iteration of no (TVM)."""
        return self._then("cache_write", tensor, at)

    def pack(self, tensor: str, layout: Sequence[str]) -> Schedule:
        """`pack B as (n / 16, k, n % 16)`: the layout of a copy, over the loops that read B (Goto and van de Geijn)."""
        return self._then("pack", tensor, layout)

    def pack_read(self, read: Read, layout: Sequence[str]) -> Schedule:
        """`pack_read B as (n / 16, k, n % 16)`, or `pack_read S(B) as …`: read from a copy in this layout (Goto, van de
        Geijn)."""
        return self._then("pack_read", read, layout)

    def rfactor(self, tensor: str, over: Loop, into: str) -> Schedule:
        """`rfactor C over ki -> P`: partial results for each ki, combined afterwards (Halide, TVM)."""
        return self._then("rfactor", tensor, over, into)

    def tensorize(self, which: Loops, with_: str | None = None) -> Schedule:
        """`tensorize C(mi, ni, ki)`, or with `with fma`: the loops become one tensor instruction (TVM)."""
        return self._then("tensorize", which, with_)

    def peel(self, which: Loop) -> Schedule:
        """`peel ii`: the iterations that do not fill the inner loop of a split run in a copy of it (loop peeling)."""
        return self._then("peel", which)

    def pad(self, which: Loop, to: int) -> Schedule:
        """`pad i to 16`: as if the loop had a multiple of 16 iterations; those too many do nothing (Exo, Halide:
        bounds)."""
        return self._then("pad", which, to)

    def normalize(self) -> Schedule:
        """`normalize`: temporaries inlined, sums in accumulators, loops from 0 on (Allen and Kennedy: loop
        normalization)."""
        return self._then("normalize")

    def domain_split(self) -> Schedule:
        """`domain_split`: statements divided where `%`, `/`, `min` and `max` of indices change their form (Griebl,
        Feautrier, Lengauer)."""
        return self._then("domain_split")

    def coalesce(self) -> Schedule:
        """`coalesce`: two loops that all arrays use as one are one, arrays lose a dimension (Polychronopoulos: loop
        coalescing)."""
        return self._then("coalesce")

    def index_set_split(self) -> Schedule:
        """`index_set_split`: loops split where a read meets elements that they write (Griebl, Feautrier, Lengauer)."""
        return self._then("index_set_split")

    def array_expand(self) -> Schedule:
        """`array_expand`: an element of temporaries for each iteration (Feautrier: array expansion; scalar
        expansion)."""
        return self._then("array_expand")

    def statement_split(self) -> Schedule:
        """`statement_split`: what does not wait for a recurrence along the innermost loop, before it (Padua and Wolfe:
        node splitting)."""
        return self._then("statement_split")
