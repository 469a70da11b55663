//! Scop and Schedule as text. [`super::parse`] reads it back: `parse(print(x)) == x`.
//!
//! ```text
//! scop gemm {
//!   A: f32[64][32] input;
//!   B: f32[32][48] constant;
//!   C: f32[64][48] output;
//!   C_acc: f32[64][48] temporary;
//!   C_init(m < 64, n < 48): C_acc[m][n] = f32(0.0);
//!   C_update(m < 64, n < 48, k < 32): C_acc[m][n] add = (A[m][k] * B[k][n]);
//!   C(m < 64, n < 48): C[m][n] = max(C_acc[m][n], f32(0.0));
//! }
//!
//! band permutable
//!   m [parallel coincident] C_init(m), C_update(m), C(m)
//!   n [serial coincident tile 16] C_init(n), C_update(n), C(n)
//!   sequence
//!     {C_init}
//!       leaf
//!     …
//! ```
//! Iterators are `name < extent`; a domain follows them, `if h + r - 1 >= 0 && …`. Expressions are those of a LoopNest.
//! A tensor is `input`, `constant`, `output`, `inout` or `temporary`; ` = {1, 0}` follows where it has literals, and `from 0 to 9` or, of
//! each third element, `from 0 to 9 at 2 step 3` where its elements lie in an interval. When the statements do not run one completely
//! after the other, the word `order` and a tree follow them inside of the braces; then `private B_cache of B` with the
//! rows, and the layout `as (d1 / 16, d0, d1 / 1 % 16)`, of each private temporary. Each row of a band has its name,
//! its kind, flags, tile size and padding, and the time φ of each statement below it.

use crate::codegen::loopnest::print::Names;
use crate::expr::Affine;
use crate::expr::text::literals;
use crate::poly::schedule::{Node, Row, RowKind, Schedule, TimeDimension};
use crate::poly::scop::Scop;
use crate::poly::statement::{ElementRange, Role, Statement, StatementId};
use crate::poly::storage::Digit;
use std::fmt::Write;

pub(super) const ROLES: [(Role, &str); 6] = [
    (Role::Input, "input"),
    (Role::Constant, "constant"),
    (Role::Output, "output"),
    (Role::InOut, "inout"),
    (Role::Temporary, "temporary"),
    (Role::Check, "check"),
];
pub(super) const KINDS: [(RowKind, &str); 5] = [
    (RowKind::Serial, "serial"),
    (RowKind::Parallel, "parallel"),
    (RowKind::Wavefront, "wavefront"),
    (RowKind::Unroll, "unroll"),
    (RowKind::Vector, "vector"),
];

pub(super) fn name_of<T: PartialEq + Copy>(table: &[(T, &'static str)], x: T) -> &'static str {
    table.iter().find(|e| e.0 == x).map_or("?", |e| e.1)
}

/// The word of a kind of loop.
pub(super) fn kind_name(kind: RowKind) -> String {
    match kind {
        RowKind::Instruction(name) => format!("instruction {name}"),
        kind => name_of(&KINDS, kind).into(),
    }
}

impl std::fmt::Display for StatementId {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "S{}", self.0)
    }
}

impl Scop {
    /// The names of the tensors and of the iterators of `statement`.
    pub(crate) fn names(&self, statement: &Statement) -> Names {
        Names {
            buffers: self.tensors.iter().map(|t| t.name.clone()).collect(),
            vars: statement.iterators.iter().map(|it| it.name.clone()).collect(),
        }
    }
}

impl std::fmt::Display for Scop {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        writeln!(f, "scop {} {{", self.name)?;
        for t in &self.tensors {
            let shape: String = t.shape.iter().map(|e| format!("[{e}]")).collect();
            let literals = literals(t.literals.as_ref());
            write!(f, "  {}: {}{shape} {}{literals}", t.name, t.dtype, name_of(&ROLES, t.role))?;
            for ElementRange { offset, stride, lower, upper } in &t.ranges {
                write!(f, " from {lower} to {upper}")?;
                if (*offset, *stride) != (0, 1) {
                    write!(f, " at {offset} step {stride}")?;
                }
            }
            writeln!(f, ";")?;
        }
        for s in &self.statements {
            let names = self.names(s);
            let iterators: Vec<String> = s.iterators.iter().map(|it| format!("{} < {}", it.name, it.extent)).collect();
            write!(f, "  {}({})", s.name, iterators.join(", "))?;
            if !s.domain.is_empty() {
                write!(f, " if {}", names.conditions(&s.domain))?;
            }
            let write = s.subscripts();
            let op = s.reduce.map_or(String::new(), |op| format!("{} ", op.name()));
            writeln!(f, ": {} {op}= {};", names.element(s.target, &write), names.expr(&s.body))?;
        }
        if self.order != Schedule::in_sequence(&self.statements) {
            writeln!(f, "  order")?;
            let mut order = String::new();
            print_node(&self.order.root, self, 2, &|_| false, &mut order);
            write!(f, "{order}")?;
        }
        for p in &self.privates {
            let of = p.source.map_or(String::new(), |t| format!(" of {}", self.tensor(t).name));
            writeln!(f, "  private {}{of}", self.tensor(p.tensor).name)?;
            for row in &p.rows {
                writeln!(f, "    {}", row.print(self))?;
            }
            if !p.layout.is_empty() {
                let rank = self.tensor(p.tensor).shape.len();
                let names = Names { buffers: vec![], vars: (0..rank).map(|d| format!("d{d}")).collect() };
                let digit = |d: &Digit| {
                    let modulo = d.modulo.map_or(String::new(), |m| format!(" % {m}"));
                    format!("{} / {}{modulo}", names.affine(&d.form), d.divisor)
                };
                let digits: Vec<String> = p.layout.iter().map(digit).collect();
                writeln!(f, "    as ({})", digits.join(", "))?;
            }
        }
        writeln!(f, "}}")
    }
}

/// The content of one line of a printed tree.
pub enum Line<'a> {
    Row(&'a Row),
    /// The statements of one part of a sequence.
    Part(&'a [StatementId]),
}

impl Schedule {
    /// The tree as indented text, with the names of `scop`.
    pub fn print(&self, scop: &Scop) -> String {
        self.print_marked(scop, &|_| false)
    }

    /// As [`Schedule::print`], with an arrow at the lines that `marked` chooses.
    pub fn print_marked(&self, scop: &Scop, marked: &dyn Fn(Line) -> bool) -> String {
        let mut out = String::new();
        print_node(&self.root, scop, 0, marked, &mut out);
        out
    }

    /// The schedule as one affine function a statement, `T(S): (t, t + i, 0)`: iterations run in the lexicographic order of
    /// its values. Positions in a sequence are constants. The form of Feautrier (1992) and of Pluto.
    pub fn print_functions(&self, scop: &Scop) -> String {
        let mut out = String::new();
        for id in self.ids() {
            let statement = scop.statement(id);
            let names = scop.names(statement);
            let times = self.path(id).into_iter().map(|step| match step {
                TimeDimension::Position(position) => position.to_string(),
                TimeDimension::Row(row) if row.tile > 1 => format!("({}) / {}", names.affine(row.of(id)), row.tile),
                TimeDimension::Row(row) => names.affine(row.of(id)),
            });
            let times: Vec<String> = times.collect();
            let _ = writeln!(out, "T({}): ({})", statement.name, times.join(", "));
        }
        out
    }

    /// Calls `f` on the statements of each part of each sequence.
    pub fn for_each_part(&self, f: &mut dyn FnMut(&[StatementId])) {
        fn walk(node: &Node, f: &mut dyn FnMut(&[StatementId])) {
            match node {
                Node::Leaf => {}
                Node::Band(_, child) => walk(child, f),
                Node::Sequence(children) => children.iter().for_each(|(ids, child)| {
                    f(ids);
                    walk(child, f);
                }),
            }
        }
        walk(&self.root, f);
    }
}

impl Row {
    fn print(&self, scop: &Scop) -> String {
        let mut words = vec![kind_name(self.kind)];
        if self.coincident {
            words.push("coincident".into());
        }
        if self.tile != 1 {
            words.push(format!("tile {}", self.tile));
        }
        if self.pad != 1 {
            words.push(format!("pad {}", self.pad));
        }
        let time = |(id, phi): &(StatementId, Affine)| {
            let s = scop.statement(*id);
            format!("{}({})", s.name, scop.names(s).affine(phi))
        };
        let times: Vec<String> = self.phi.iter().map(time).collect();
        format!("{} [{}] {}", self.name, words.join(" "), times.join(", "))
    }
}

fn print_node(node: &Node, scop: &Scop, depth: usize, marked: &dyn Fn(Line) -> bool, out: &mut String) {
    let arrow = |line: Line| if marked(line) { "   <--" } else { "" };
    let indent = "  ".repeat(depth);
    match node {
        Node::Leaf => _ = writeln!(out, "{indent}leaf"),
        Node::Sequence(children) => {
            let _ = writeln!(out, "{indent}sequence");
            for (ids, child) in children {
                let names: Vec<&str> = ids.iter().map(|&id| scop.statement(id).name.as_str()).collect();
                let _ = writeln!(out, "{indent}  {{{}}}{}", names.join(", "), arrow(Line::Part(ids)));
                print_node(child, scop, depth + 2, marked, out);
            }
        }
        Node::Band(band, child) => {
            let _ = writeln!(out, "{indent}band{}", if band.permutable { " permutable" } else { "" });
            for row in &band.rows {
                let _ = writeln!(out, "{indent}  {}{}", row.print(scop), arrow(Line::Row(row)));
            }
            print_node(child, scop, depth + 1, marked, out);
        }
    }
}
