//! Schedules built in Rust: one method for each primitive of the text language.
//!
//! In: a program that is being built, a chain of primitives. Out: the program with the schedule in its file. A loop is
//! `"i"`, or `("S", "i")` where several statements have loops of that name; several loops are `["i", "j"]`, or `("S",
//! ["i", "j"])`.

use super::{Builder, List};
use crate::expr::syntax::{Expr, Name, Span};
use crate::poly::transform::argument::{
    Count, Factor, Instruction, Iterations, Layout, Loop, LoopName, Loops, NewLoop, NewPair, NewTensor, NewTiles,
    OuterLoop, Read, Statements, Tensor, TileSizes,
};
use crate::poly::transform::primitive::{Placed, Primitive, Schedule, primitives};

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

impl From<&str> for Read {
    fn from(tensor: &str) -> Read {
        Read { statement: None, tensor: tensor.into() }
    }
}

impl From<(&str, &str)> for Read {
    fn from((statement, tensor): (&str, &str)) -> Read {
        Read { statement: Some(statement.into()), tensor: tensor.into() }
    }
}

/// Rust for an argument that a primitive has as `T`.
///
/// | argument | in Rust |
/// | --- | --- |
/// | a loop `i`, `S(i)` | `"i"`, `("S", "i")` |
/// | loops `i, j`, `S(i, j)` | `["i", "j"]`, `("S", ["i", "j"])` |
/// | reads `B`, `S(B)` | `"B"`, `("S", "B")` |
/// | a name | `"B"` |
/// | names | `["A", "B"]` |
/// | numbers | `8`, `[8, 16]` |
/// | a layout | `(name("n") / 16, name("k"), name("n") % 16)` |
pub trait Argument<T> {
    /// The argument as the primitive has it.
    fn argument(self) -> T;
}

impl<T: Into<Loop>> Argument<Loop> for T {
    fn argument(self) -> Loop {
        self.into()
    }
}

impl<T: Into<Loops>> Argument<Loops> for T {
    fn argument(self) -> Loops {
        self.into()
    }
}

impl<T: Into<Read>> Argument<Read> for T {
    fn argument(self) -> Read {
        self.into()
    }
}

impl Argument<Name> for &str {
    fn argument(self) -> Name {
        self.into()
    }
}

impl Argument<[Name; 2]> for [&str; 2] {
    fn argument(self) -> [Name; 2] {
        self.map(Name::from)
    }
}

impl<const N: usize> Argument<Vec<Name>> for [&str; N] {
    fn argument(self) -> Vec<Name> {
        self.map(Name::from).into()
    }
}

impl Argument<i64> for i64 {
    fn argument(self) -> i64 {
        self
    }
}

impl<const N: usize> Argument<Vec<i64>> for [i64; N] {
    fn argument(self) -> Vec<i64> {
        self.into()
    }
}

impl<T: List> Argument<Vec<Expr>> for T {
    fn argument(self) -> Vec<Expr> {
        self.list()
    }
}

/// The method with the argument that may be absent, where there is one.
macro_rules! longer {
    (#[$doc:meta] $variant:ident [$($field:ident: $kind:ident),*]) => {};
    (#[$doc:meta] $variant:ident [$($field:ident: $kind:ident),*] $longer:ident $more:ident: $more_kind:ident) => {
        #[$doc]
        pub fn $longer(self $(, $field: impl Argument<$kind>)*, $more: impl Argument<$more_kind>) -> Primitives {
            self.then(Primitive::$variant { $($field: $field.argument(),)* $more: Some($more.argument()) })
        }
    };
}

/// Methods for each row of the table: one that has its keyword, and one with the argument that may be absent.
macro_rules! methods {
    ($(
        #[$doc:meta]
        $variant:ident: $keyword:ident $(| $alias:ident)* $((
            $($($word:literal)? $field:ident: $kind:ident $(($of:ident))?),*
        ) $(or $longer:ident ($more_word:literal $more:ident: $more_kind:ident))?)? => $takes:ident $function:path;
    )*) => {$(
        #[$doc]
        pub fn $keyword(self $($(, $field: impl Argument<$kind>)*)?) -> Primitives {
            self.then(Primitive::$variant $({ $($field: $field.argument(),)* $($more: None,)? })?)
        }

        $(longer! { #[$doc] $variant [$($field: $kind),*] $($longer $more: $more_kind)? })?
    )*};
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

    primitives!(methods);
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
    use crate::poly::transform::primitive::{FORMS, KEYWORDS};

    const WANTED: &str = "schedule all for p {
    normalize
    domain_split
    coalesce
    index_set_split
    array_expand
    statement_split
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
    pack_read A as (i, j)
    pack_read S(A) as (j, i)
    rfactor A over ii -> P
    tensorize ji, ii
    tensorize S(ji, ii) with fma
    peel ii
    pad ii to 16
}
";

    #[test]
    fn every_primitive_is_written_as_in_text() {
        let (i, j, a) = (name("i"), name("j"), array("A"));
        let body = each(i, 0, "N", [each(j, 0, "N", [set_as("S", a.at((i, j)), "+=", 1.0)])]);
        let built = loops("p").size("N", Some(8)).array(F32, "A", ("N", "N")).statement(body).schedule("all", |s| {
            s.normalize()
                .domain_split()
                .coalesce()
                .index_set_split()
                .array_expand()
                .statement_split()
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
                .pack_read("A", (i, j))
                .pack_read(("S", "A"), (j, i))
                .rfactor("A", "ii", "P")
                .tensorize(["ji", "ii"])
                .tensorize_with(("S", ["ji", "ii"]), "fma")
                .peel("ii")
                .pad("ii", 16)
        });
        let file = built.build().unwrap();
        let text = file.schedules[0].to_string();
        assert_eq!(text, WANTED);
        let words: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert!(KEYWORDS.iter().all(|k| words.contains(k)));
        let tile = FORMS.iter().find(|form| form.keyword == "tile").unwrap();
        let words: Vec<_> = tile.arguments.iter().map(|a| (a.word, a.name, a.kind)).collect();
        assert_eq!(words, [("", "which", "Loops"), ("by", "by", "TileSizes"), ("->", "into", "NewTiles")]);
        assert!(tile.doc.contains("`tile C(i, j) by (8, 16) -> io, jo, ii, ji`"));
        let unroll = FORMS.iter().find(|form| form.keyword == "unroll").unwrap();
        assert_eq!(unroll.optional.map(|a| (a.word, a.kind)), Some(("by", "Count")));
        assert!(FORMS.iter().map(|form| form.keyword).eq(KEYWORDS));
    }
}
