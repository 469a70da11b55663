//! Schedules built in Rust: one method for each primitive of the text language.
//!
//! In: a program that is being built, a chain of primitives. Out: the program with the schedule in its file. A loop is
//! `"i"`, or `("S", "i")` where several statements have loops of that name; several loops are `["i", "j"]`, or `("S",
//! ["i", "j"])`.

use super::{Builder, List};
use crate::expr::syntax::Name;
use crate::expr::syntax::Span;
use crate::poly::transform::primitive::{Loop, Loops, Placed, Primitive, Schedule};

impl From<&str> for Loop {
    fn from(name: &str) -> Loop {
        Loop { statement: None, name: name.into() }
    }
}

impl From<(&str, &str)> for Loop {
    fn from((statement, name): (&str, &str)) -> Loop {
        Loop { statement: Some(statement.into()), name: name.into() }
    }
}

impl<const N: usize> From<[&str; N]> for Loops {
    fn from(names: [&str; N]) -> Loops {
        Loops { statement: None, names: names.map(Name::from).into() }
    }
}

impl<const N: usize> From<(&str, [&str; N])> for Loops {
    fn from((statement, names): (&str, [&str; N])) -> Loops {
        Loops { statement: Some(statement.into()), names: names.map(Name::from).into() }
    }
}

/// Primitives in the order in which they are applied, made by [`Builder::schedule`]. Each method is a primitive of the text
/// language. A loop is `"i"`, or `("S", "i")` where several statements have loops of that name; several loops are
/// `["i", "j"]`, or `("S", ["i", "j"])`.
#[derive(Clone, Debug, Default)]
pub struct Primitives(Vec<Primitive>);

impl Primitives {
    fn then(mut self, primitive: Primitive) -> Primitives {
        self.0.push(primitive);
        self
    }

    /// Splits a loop into blocks of `by` iterations: `into` names the loop over blocks, then the one inside.
    pub fn split(self, which: impl Into<Loop>, by: i64, into: [&str; 2]) -> Primitives {
        self.then(Primitive::Split { which: which.into(), by, into: into.map(Name::from) })
    }

    /// Makes one loop of neighbouring loops, called `into`.
    pub fn fuse(self, which: impl Into<Loops>, into: &str) -> Primitives {
        self.then(Primitive::Fuse { which: which.into(), into: into.into() })
    }

    /// Puts the loops in this order, at the places that they have.
    pub fn reorder(self, which: impl Into<Loops>) -> Primitives {
        self.then(Primitive::Reorder { which: which.into() })
    }

    /// `into`: the loops over tiles, then those inside a tile.
    pub fn tile<const N: usize, const M: usize>(
        self,
        which: impl Into<Loops>,
        by: [i64; N],
        into: [&str; M],
    ) -> Primitives {
        self.then(Primitive::Tile { which: which.into(), by: by.into(), into: into.map(Name::from).into() })
    }

    /// The loop `which` runs as which + factor · by.
    pub fn skew(self, which: impl Into<Loop>, factor: i64, by: &str) -> Primitives {
        self.then(Primitive::Skew { which: which.into(), factor, by: by.into() })
    }

    /// Runs the statement `by` iterations later.
    pub fn shift(self, which: impl Into<Loop>, by: i64) -> Primitives {
        self.then(Primitive::Shift { which: which.into(), by })
    }

    /// Runs a loop from its last iteration to its first.
    pub fn reverse(self, which: impl Into<Loop>) -> Primitives {
        self.then(Primitive::Reverse { which: which.into() })
    }

    /// Makes statements share their loops from the outermost down to `at`.
    pub fn merge<const N: usize>(self, statements: [&str; N], at: &str) -> Primitives {
        self.then(Primitive::Merge { statements: statements.map(Name::from).into(), at: at.into() })
    }

    /// Gives statements loops of their own from `at` inwards.
    pub fn distribute<const N: usize>(self, statements: [&str; N], at: &str) -> Primitives {
        self.then(Primitive::Distribute { statements: statements.map(Name::from).into(), at: at.into() })
    }

    /// Puts statements in this order, at the places that they have.
    pub fn sequence<const N: usize>(self, statements: [&str; N]) -> Primitives {
        self.then(Primitive::Sequence { statements: statements.map(Name::from).into() })
    }

    /// Unrolls a loop completely.
    pub fn unroll(self, which: impl Into<Loop>) -> Primitives {
        self.then(Primitive::Unroll { which: which.into(), by: None })
    }

    /// Unrolls a loop `by` times.
    pub fn unroll_by(self, which: impl Into<Loop>, by: i64) -> Primitives {
        self.then(Primitive::Unroll { which: which.into(), by: Some(by) })
    }

    /// Unrolls a loop `by` times and puts the copies inside the inner loops.
    pub fn unroll_and_jam(self, which: impl Into<Loop>, by: i64) -> Primitives {
        self.then(Primitive::UnrollAndJam { which: which.into(), by })
    }

    /// Makes vectors of a loop, as wide as those of the target.
    pub fn vectorize(self, which: impl Into<Loop>) -> Primitives {
        self.then(Primitive::Vectorize { which: which.into(), by: None })
    }

    /// Makes vectors of a loop, of `by` elements.
    pub fn vectorize_by(self, which: impl Into<Loop>, by: i64) -> Primitives {
        self.then(Primitive::Vectorize { which: which.into(), by: Some(by) })
    }

    /// Divides the iterations of a loop among the threads.
    pub fn parallel(self, which: impl Into<Loop>) -> Primitives {
        self.then(Primitive::Parallel { which: which.into() })
    }

    /// Runs a loop and the next one inside it in waves of independent iterations.
    pub fn wavefront(self, which: impl Into<Loop>) -> Primitives {
        self.then(Primitive::Wavefront { which: which.into() })
    }

    /// Runs everything on one thread, without barriers.
    pub fn serial(self) -> Primitives {
        self.then(Primitive::Serial)
    }

    /// Computes what an iteration of `at` needs of a tensor inside that iteration.
    pub fn compute_at(self, tensor: &str, at: impl Into<Loop>) -> Primitives {
        self.then(Primitive::ComputeAt { tensor: tensor.into(), at: at.into() })
    }

    /// Computes an element of a tensor again at each use.
    pub fn compute_inline(self, tensor: &str) -> Primitives {
        self.then(Primitive::ComputeInline { tensor: tensor.into() })
    }

    /// Keeps memory of a tensor for one iteration of `at` only.
    pub fn store_at(self, tensor: &str, at: impl Into<Loop>) -> Primitives {
        self.then(Primitive::StoreAt { tensor: tensor.into(), at: at.into() })
    }

    /// A copy of the whole tensor, made before the loops.
    pub fn cache_read(self, tensor: &str) -> Primitives {
        self.then(Primitive::CacheRead { tensor: tensor.into(), at: None })
    }

    /// A copy of what one iteration of the loop reads.
    pub fn cache_read_at(self, tensor: &str, at: impl Into<Loop>) -> Primitives {
        self.then(Primitive::CacheRead { tensor: tensor.into(), at: Some(at.into()) })
    }

    /// Makes a local tile of what one iteration of `at` writes, and writes it back afterwards.
    pub fn cache_write(self, tensor: &str, at: impl Into<Loop>) -> Primitives {
        self.then(Primitive::CacheWrite { tensor: tensor.into(), at: at.into() })
    }

    /// `layout`: the subscripts of the copy over the loops that read the tensor, `(name("n") / 16, name("k"), name("n")
    /// % 16)`.
    pub fn pack(self, tensor: &str, layout: impl List) -> Primitives {
        self.then(Primitive::Pack { tensor: tensor.into(), layout: layout.list() })
    }

    /// Makes partial results for each iteration of `over` in a tensor called `into`, and combines them afterwards.
    pub fn rfactor(self, tensor: &str, over: impl Into<Loop>, into: &str) -> Primitives {
        self.then(Primitive::Rfactor { tensor: tensor.into(), over: over.into(), into: into.into() })
    }

    /// Replaces the loops by one tensor instruction of the target.
    pub fn tensorize(self, which: impl Into<Loops>) -> Primitives {
        self.then(Primitive::Tensorize { which: which.into(), with: None })
    }

    /// Replaces the loops by this tensor instruction.
    pub fn tensorize_with(self, which: impl Into<Loops>, instruction: &str) -> Primitives {
        self.then(Primitive::Tensorize { which: which.into(), with: Some(instruction.into()) })
    }

    /// Runs what does not fill the inner loop of a split in a copy of its own.
    pub fn peel(self, which: impl Into<Loop>) -> Primitives {
        self.then(Primitive::Peel { which: which.into() })
    }

    /// Rounds the iterations of a loop up to a multiple of `to`; those added do nothing.
    pub fn pad(self, which: impl Into<Loop>, to: i64) -> Primitives {
        self.then(Primitive::Pad { which: which.into(), to })
    }

    /// Inlines temporaries, keeps sums in accumulators and starts loops at 0.
    pub fn normalize(self) -> Primitives {
        self.then(Primitive::Normalize)
    }

    /// Separates loops where a read meets what they write.
    pub fn divide(self) -> Primitives {
        self.then(Primitive::Divide)
    }

    /// Gives each iteration copies of its scalar temporaries.
    pub fn expand(self) -> Primitives {
        self.then(Primitive::Expand)
    }
}

impl Builder {
    /// A schedule by hand of the program; proven when a model [with it](crate::Model::with_schedule) is compiled.
    ///
    /// ```
    /// use tilewright::DType::F32;
    /// use tilewright::builder::*;
    /// use tilewright::{Model, Options, Tensor};
    ///
    /// let (m, n, k) = (name("m"), name("n"), name("k"));
    /// let file = def("gemm")
    ///     .input(F32, "A", ("M", "K"))
    ///     .input(F32, "B", ("K", "N"))
    ///     .output("C")
    ///     .sizes("SMALL", &[("M", 48), ("N", 64), ("K", 32)])
    ///     .equation(array("C").at((m, n)), "+=!", array("A").at((m, k)) * array("B").at((k, n)))
    ///     .schedule("tiled", |s| {
    ///         s.distribute(["C_init", "C"], "m")
    ///             .tile(("C", ["m", "n"]), [8, 32], ["mo", "no", "mi", "ni"])
    ///             .reorder(("C", ["mo", "no", "k", "mi", "ni"]))
    ///             .unroll("mi")
    ///             .vectorize("ni")
    ///             .parallel("mo")
    ///     })
    ///     .build()?;
    /// let model = Model::from_program(file, None, Some("SMALL"))?.with_schedule("tiled")?;
    /// let (a, b) = (Tensor::zeros(F32, &[48, 32]), Tensor::zeros(F32, &[32, 64]));
    /// let outputs = model.compile(&Options::default())?.run(&[("A", &a), ("B", &b)])?;
    /// assert_eq!(outputs[0].shape, [48, 64]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn schedule(mut self, name: &str, primitives: impl FnOnce(Primitives) -> Primitives) -> Builder {
        let primitives = primitives(Primitives::default()).0;
        let placed = |primitive| Placed { primitive, span: Span::default() };
        let primitives = primitives.into_iter().map(placed).collect();
        self.schedules.push(Schedule { name: name.into(), program: self.program.name.clone(), primitives });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::DType::F32;
    use crate::poly::transform::primitive::KEYWORDS;

    #[test]
    fn every_primitive_is_written_as_in_text() {
        let (i, j, a) = (name("i"), name("j"), array("A"));
        let body = each(i, 0, "N", [each(j, 0, "N", [set_as("S", a.at((i, j)), "+=", 1.0)])]);
        let built = loops("p").size("N", Some(8)).array(F32, "A", ("N", "N")).statement(body).schedule("all", |s| {
            s.normalize()
                .divide()
                .expand()
                .split(("S", "i"), 4, ["io", "ii"])
                .fuse(["io", "ii"], "i2")
                .reorder(("S", ["j", "i2"]))
                .tile(["j", "i2"], [2, 4], ["jo", "io", "ji", "ii"])
                .skew("ii", -2, "jo")
                .shift(("S", "ji"), 3)
                .reverse("io")
                .merge(["S", "T"], "io")
                .distribute(["S", "T"], "io")
                .sequence(["T", "S"])
                .unroll("ii")
                .unroll_by("ii", 2)
                .unroll_and_jam("ji", 2)
                .vectorize("ii")
                .vectorize_by("ii", 4)
                .parallel("jo")
                .wavefront("jo")
                .serial()
                .compute_at("A", ("S", "ji"))
                .compute_inline("A")
                .store_at("A", "jo")
                .cache_read("A")
                .cache_read_at("A", "io")
                .cache_write("A", "io")
                .pack("A", (j / 4, i, j % 4))
                .rfactor("A", "ii", "P")
                .tensorize(["ji", "ii"])
                .tensorize_with(("S", ["ji", "ii"]), "fma")
                .peel("ii")
                .pad("ii", 16)
        });
        let file = built.build().unwrap();
        let text = file.schedules[0].to_string();
        let wanted = "schedule all for p {
    normalize
    divide
    expand
    split S(i) by 4 -> io, ii
    fuse io, ii -> i2
    reorder S(j, i2)
    tile j, i2 by (2, 4) -> jo, io, ji, ii
    skew ii by -2*jo
    shift S(ji) by 3
    reverse io
    merge S, T at io
    distribute S, T at io
    sequence T, S
    unroll ii
    unroll ii by 2
    unroll_and_jam ji by 2
    vectorize ii
    vectorize ii by 4
    parallel jo
    wavefront jo
    serial
    compute_at A at S(ji)
    compute_inline A
    store_at A at jo
    cache_read A
    cache_read A at io
    cache_write A at io
    pack A as (j / 4, i, j % 4)
    rfactor A over ii -> P
    tensorize ji, ii
    tensorize S(ji, ii) with fma
    peel ii
    pad ii to 16
}
";
        assert_eq!(text, wanted);
        let words: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert!(KEYWORDS.iter().all(|k| words.contains(k)));
    }
}
