//! Schedules written by hand, and the table of all primitives.
//!
//! A row of `primitives!` is a primitive: its keyword, its arguments with the words between them, and the function that
//! carries it out. The enum, its text, the parser ([`crate::language`]), the methods of the builder, the loops that a refusal
//! marks and the call of the function follow from the rows (Exo: `@sched_op`).

use super::argument::{
    Argument, Count, Factor, Instruction, Iterations, Layout, LoopName, NewLoop, NewPair, NewTensor, NewTiles,
    OuterLoop, Pass, Statements, Tensor, TileSizes, view,
};
use super::state::{SourceProgram, Transformed};
use super::{cache, compute, fuse, inline, loops, pack, phase_order, program, rfactor, statements, tensorize};
use crate::expr::syntax::{Name, Span};
use std::fmt::{Display, Formatter, Result};

pub use super::argument::{Loop, Loops, Read};

/// `schedule NAME for PROGRAM { … }`: primitives, applied in turn to the program's original order.
///
/// ```
/// use tilewright::syntax::{Placed, Primitive, Span};
/// use tilewright::{File, Model, Options, Tensor};
///
/// let text = "loop scale(N = 64) { f32 x[N] for i in 0..N x[i] *= 2 } schedule vectors for scale { vectorize i by 8 }";
/// let mut file = File::parse("scale.tile", text)?;
/// let schedule = &mut file.schedules[0];
/// assert_eq!(schedule.primitives[0].primitive.keyword(), "vectorize");
/// schedule.primitives.insert(0, Placed { primitive: Primitive::Reverse { which: "i".into() }, span: Span::default() });
/// assert_eq!(schedule.to_string(), "schedule vectors for scale {\n    reverse i\n    vectorize i by 8\n}\n");
/// let compiled = Model::from_program(file, None, None)?.with_schedule("vectors")?.compile(&Options::default())?;
/// assert_eq!(compiled.run(&[("x", &Tensor::new(&[64], &[1.5f32; 64]))])?[0].to_vec::<f32>(), [3.0; 64]);
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// Name of the schedule.
    pub name: Name,
    /// Name of the program that it is for.
    pub program: Name,
    /// Primitives in the order in which they apply.
    pub primitives: Vec<Placed>,
}

/// A primitive and its place in the text.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// The primitive.
    pub primitive: Primitive,
    /// Place in the text.
    pub span: Span,
}

/// Passes the table to a macro. A row:
///
/// ```text
/// /// One line: an example, then whose word it is. The documentation of the variant and of the builder's method.
/// Variant: keyword | old_keyword ("word before" field: Kind, …) or method ("word" field: Kind) => takes function;
/// ```
///
/// Kinds are those of `argument.rs`; `Kind(field)` has as many elements as that field. The argument after `or` is optional;
/// with it the builder's method has that name. An old keyword is still parsed. The function takes the arguments after
///
/// - `order`: the Scop and its schedule; it returns another schedule,
/// - `program`: the program as it is; it returns another,
/// - `original`: the program as it is, and the one that the schedule began with.
macro_rules! primitives {
    ($rows:ident) => { $rows! {
        /// `split i by 8 -> io, ii`: one loop becomes two (Halide, TVM: split; strip mining).
        Split: split(which: Loop, "by" by: Count, "->" into: NewPair) => order loops::split;
        /// `fuse i, j -> f`: two neighbouring loops become one over both (Halide, TVM: fuse; OpenMP: collapse).
        Fuse: fuse(which: Loops, "->" into: NewLoop) => program fuse::fuse;
        /// `reorder j, i`: the loops in this order, at the places that they had (Halide, TVM; loop interchange).
        Reorder: reorder(which: Loops) => order loops::reorder;
        /// `tile C(i, j) by (8, 16) -> io, jo, ii, ji`: splits and reorders at once (Halide: tile).
        Tile: tile(which: Loops, "by" by: TileSizes(which), "->" into: NewTiles(which)) => order loops::tile;
        /// `skew j by 2*i`: j runs as j + 2·i (Wolfe: loop skewing).
        Skew: skew(which: Loop, "by" factor: Factor, by: OuterLoop) => order loops::skew;
        /// `shift S(i) by 2`: the statement runs 2 iterations later (Kelly and Pugh; Allen and Kennedy: loop alignment).
        Shift: shift(which: Loop, "by" by: Iterations) => order loops::shift;
        /// `reverse i`: from the last iteration to the first (Wolfe: loop reversal).
        Reverse: reverse(which: Loop) => order loops::reverse;
        /// `merge A, B at i`: statements share their loops down to i (loop fusion, Exo: fuse; `fuse` is Halide's here).
        Merge: merge(statements: Statements, "at" at: LoopName) => order statements::merge;
        /// `distribute A, B at i`: statements have loops of their own from i inwards (Allen and Kennedy; Exo: fission).
        Distribute: distribute(statements: Statements, "at" at: LoopName) => order statements::distribute;
        /// `sequence B, A`: statements in this order, at the places that they had (statement reordering).
        Sequence: sequence(statements: Statements) => order phase_order::sequence;
        /// `unroll i`, or `unroll i by 4`: iterations as statements one after the other (Halide, TVM).
        Unroll: unroll(which: Loop) or unroll_by("by" by: Count) => order loops::unroll;
        /// `unroll_and_jam i by 4`: unrolled, the copies inside the inner loops (Callahan, Carr, Kennedy).
        UnrollAndJam: unroll_and_jam(which: Loop, "by" by: Count) => order loops::unroll_and_jam;
        /// `vectorize i`, or `vectorize i by 8`: iterations in the lanes of vectors (Halide, TVM).
        Vectorize: vectorize(which: Loop) or vectorize_by("by" by: Count) => order loops::vectorize;
        /// `parallel i`: iterations on several threads (Halide, TVM).
        Parallel: parallel(which: Loop) => order loops::parallel;
        /// `wavefront i`: this loop and the next one in waves (Lamport: hyperplanes; Wolfe: wavefronts).
        Wavefront: wavefront(which: Loop) => order phase_order::wavefront;
        /// `serial`: all on one thread, without barriers.
        Serial: serial => order phase_order::serial;
        /// `compute_at Bx at y`: computed where an iteration of y needs it (Halide, TVM).
        ComputeAt: compute_at(tensor: Tensor, "at" at: Loop) => program compute::compute_at;
        /// `compute_inline Bx`: computed again at each use (Halide, TVM).
        ComputeInline: compute_inline(tensor: Tensor) => program inline::compute_inline;
        /// `store_at Bx at y`: its memory lives for one iteration of y (Halide).
        StoreAt: store_at(tensor: Tensor, "at" at: Loop) => program compute::store_at;
        /// `cache_read B`: a copy made before the loops; `cache_read B at ko`: of the elements that an iteration of ko reads (TVM).
        CacheRead: cache_read(tensor: Tensor) or cache_read_at("at" at: Loop) => program pack::cache_read;
        /// `cache_write C at no`: a local tile that is written back after one iteration of no (TVM).
        CacheWrite: cache_write(tensor: Tensor, "at" at: Loop) => program cache::cache_write;
        /// `pack B as (n / 16, k, n % 16)`: the layout of a copy, over the loops that read B (Goto and van de Geijn).
        Pack: pack(tensor: Tensor, "as" layout: Layout) => program pack::pack;
        /// `pack_read B as (n / 16, k, n % 16)`, or `pack_read S(B) as …`: read from a copy in this layout (Goto, van de Geijn).
        PackRead: pack_read(read: Read, "as" layout: Layout) => program pack::pack_read;
        /// `rfactor C over ki -> P`: partial results for each ki, combined afterwards (Halide, TVM).
        Rfactor: rfactor(tensor: Tensor, "over" over: Loop, "->" into: NewTensor) => program rfactor::rfactor;
        /// `tensorize C(mi, ni, ki)`, or with `with fma`: the loops become one tensor instruction (TVM).
        Tensorize: tensorize(which: Loops) or tensorize_with("with" with: Instruction) => original tensorize::tensorize;
        /// `peel ii`: the iterations that do not fill the inner loop of a split run in a copy of it (loop peeling).
        Peel: peel(which: Loop) => order loops::peel;
        /// `pad i to 16`: as if the loop had a multiple of 16 iterations; those too many do nothing (Exo, Halide: bounds).
        Pad: pad(which: Loop, "to" to: Count) => order loops::pad;
        /// `normalize`: temporaries inlined, sums in accumulators, loops from 0 on (Allen and Kennedy: loop normalization).
        Normalize: normalize => original program::normalize;
        /// `domain_split`: statements divided where `%`, `/`, `min` and `max` of indices change their form (Griebl, Feautrier, Lengauer).
        DomainSplit: domain_split => program program::domain_split;
        /// `coalesce`: two loops that all arrays use as one are one, arrays lose a dimension (Polychronopoulos: loop coalescing).
        Coalesce: coalesce => program program::coalesce;
        /// `index_set_split`: loops split where a read meets elements that they write (Griebl, Feautrier, Lengauer).
        IndexSetSplit: index_set_split | divide => program program::index_set_split;
        /// `array_expand`: an element of temporaries for each iteration (Feautrier: array expansion; scalar expansion).
        ArrayExpand: array_expand | expand => program program::array_expand;
        /// `statement_split`: what does not wait for a recurrence along the innermost loop, before it (Padua and Wolfe: node splitting).
        StatementSplit: statement_split => program program::statement_split;
    } };
}
pub(crate) use primitives;

/// Calls the function of a row.
macro_rules! call {
    (order $function:path, $before:ident, $original:ident $(, $argument:expr)*) => {
        $function(&$before.scop, &$before.schedule $(, $argument)*)
            .map(|schedule| Transformed { schedule, ..$before.clone() })
    };
    (program $function:path, $before:ident, $original:ident $(, $argument:expr)*) => {
        $function($before $(, $argument)*)
    };
    (original $function:path, $before:ident, $original:ident $(, $argument:expr)*) => {
        $function($before, $original $(, $argument)*)
    };
}

macro_rules! define {
    ($(
        #[$doc:meta]
        $variant:ident: $keyword:ident $(| $alias:ident)* $((
            $($($word:literal)? $field:ident: $kind:ident $(($of:ident))?),*
        ) $(or $longer:ident ($more_word:literal $more:ident: $more_kind:ident))?)? => $takes:ident $function:path;
    )*) => {
        /// One step of a schedule. Each variant shows its text; its fields are the names and numbers of that text.
        #[derive(Clone, PartialEq, Debug)]
        #[allow(missing_docs, reason = "each variant shows its text, which has the fields in their order")]
        pub enum Primitive {
            $(#[$doc] $variant $({ $($field: $kind,)* $($more: Option<$more_kind>,)? })?,)*
        }

        /// The keywords of all primitives.
        pub const KEYWORDS: [&str; [$(stringify!($keyword)),*].len()] = [$(stringify!($keyword)),*];

        /// Old keywords, and the keywords that they are parsed as.
        pub const ALIASES: &[(&str, &str)] = &[$($((stringify!($alias), stringify!($keyword)),)*)*];

        $(pub use $function;)*

        impl Primitive {
            /// The keyword of the primitive.
            pub fn keyword(&self) -> &'static str {
                match self {
                    $(Primitive::$variant { .. } => stringify!($keyword),)*
                }
            }

            /// The arguments, each after the word before it.
            fn arguments(&self) -> Vec<(&'static str, Argument<'_>)> {
                let arguments: Vec<Option<(&'static str, Argument)>> = match self {
                    $(Primitive::$variant $({ $($field,)* $($more,)? })? => vec![$(
                        $(Some((concat!($($word)?), view!($kind $field))),)*
                        $($more.as_ref().map(|value| ($more_word, view!($more_kind value))),)?
                    )?],)*
                };
                arguments.into_iter().flatten().collect()
            }

            /// Applies the primitive, whether or not the resulting order is legal.
            pub(super) fn carry_out(
                &self,
                before: &Transformed,
                original: &SourceProgram,
            ) -> crate::runtime::Result<Transformed> {
                match self {
                    $(Primitive::$variant $({ $($field,)* $($more,)? })? => {
                        call!($takes $function, before, original $($(, $field.pass())* $(, $more.pass())?)?)
                    })*
                }
            }
        }
    };
}
primitives!(define);

/// The text of a primitive: its keyword, then its arguments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PrimitiveForm {
    /// First word.
    pub keyword: &'static str,
    /// An example and what it does, one line.
    pub doc: &'static str,
    /// Arguments in their order.
    pub arguments: &'static [ArgumentForm],
    /// Argument that may follow.
    pub optional: Option<ArgumentForm>,
}

/// An argument in the text of a primitive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArgumentForm {
    /// Word or sign before it; empty where there is none.
    pub word: &'static str,
    /// Name of the argument.
    pub name: &'static str,
    /// Kind of the argument: `Loop`, `Loops`, `Count` …, with the names of [`Loop`] and [`Loops`] for these two.
    pub kind: &'static str,
}

/// The form of an argument, where there is one.
macro_rules! optional {
    () => {
        None
    };
    ($word:literal $name:ident $kind:ident) => {
        Some(ArgumentForm { word: $word, name: stringify!($name), kind: stringify!($kind) })
    };
}

/// The forms of the rows.
macro_rules! forms {
    ($(
        #[doc = $doc:literal]
        $variant:ident: $keyword:ident $(| $alias:ident)* $((
            $($($word:literal)? $field:ident: $kind:ident $(($of:ident))?),*
        ) $(or $longer:ident ($more_word:literal $more:ident: $more_kind:ident))?)? => $takes:ident $function:path;
    )*) => {
        /// The texts of all primitives, from which interfaces of other languages are made.
        pub const FORMS: &[PrimitiveForm] = &[$(PrimitiveForm {
            keyword: stringify!($keyword),
            doc: $doc,
            arguments: &[$($(ArgumentForm {
                word: concat!($($word)?),
                name: stringify!($field),
                kind: stringify!($kind),
            }),*)?],
            optional: optional!($($($more_word $more $more_kind)?)?),
        }),*];
    };
}
primitives!(forms);

/// The keyword that a word of the text stands for.
pub fn keyword(word: &str) -> Option<&'static str> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == word);
    alias.map(|(_, keyword)| *keyword).or_else(|| KEYWORDS.into_iter().find(|keyword| *keyword == word))
}

impl Primitive {
    /// The loops that it names, each with the statement that selects it.
    pub(super) fn loops(&self) -> Vec<(Option<&Name>, &Name)> {
        let mut statement = None;
        let mut loops = vec![];
        for (_, argument) in self.arguments() {
            match argument {
                Argument::Loop(l) => {
                    statement = l.statement.as_ref();
                    loops.push((statement, &l.name));
                }
                Argument::Loops(l) => {
                    statement = l.statement.as_ref();
                    loops.extend(l.names.iter().map(|name| (statement, name)));
                }
                Argument::LoopNames(names) => loops.extend(names.iter().map(|name| (statement, name))),
                _ => {}
            }
        }
        loops
    }

    /// The statements that it lists.
    pub(super) fn statements(&self) -> &[Name] {
        let listed = |(_, argument)| if let Argument::Statements(names) = argument { Some(names) } else { None };
        self.arguments().into_iter().find_map(listed).unwrap_or(&[])
    }
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter) -> Result {
        writeln!(f, "schedule {} for {} {{", self.name, self.program)?;
        self.primitives.iter().try_for_each(|p| writeln!(f, "    {}", p.primitive))?;
        f.write_str("}\n")
    }
}

impl Display for Primitive {
    fn fmt(&self, f: &mut Formatter) -> Result {
        f.write_str(self.keyword())?;
        for (i, (word, argument)) in self.arguments().into_iter().enumerate() {
            match word {
                "" if i == 0 => write!(f, " {argument}")?,
                // `2*` and the loop after it are written together.
                "" => write!(f, "{argument}")?,
                word => write!(f, " {word} {argument}")?,
            }
        }
        Ok(())
    }
}
