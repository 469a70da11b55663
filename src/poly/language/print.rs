//! The syntax tree as text: `parse(print(file)) == file`.

use super::primitive::{Loop, Loops, Primitive, Schedule};
use super::syntax::*;
use std::fmt::{Display, Formatter, Result, Write};

/// How an element is written: `A(i,j)` in a `def`, `A[i][j]` in a `loop`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Style {
    Round,
    Square,
}

impl Display for File {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let programs = self.programs.iter().map(|p| p.to_string());
        let items: Vec<String> = programs.chain(self.schedules.iter().map(|s| s.to_string())).collect();
        f.write_str(&items.join("\n"))
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter) -> Result {
        match &self.body {
            Body::Def { inputs, outputs, equations } => {
                let input = |a: &Array| format!("{}{} {}", a.dtype, round(&a.shape), a.name);
                let output = |o: &Output| match &o.declared {
                    None => o.name.to_string(),
                    Some((dtype, shape)) => format!("{dtype}{} {}", round(shape), o.name),
                };
                let (inputs, outputs) = (list(inputs, input), list(outputs, output));
                writeln!(f, "def {}({inputs}) -> ({outputs}) {{", self.name)?;
                self.head(f, Style::Round)?;
                equations.iter().try_for_each(|e| writeln!(f, "    {}", e.text(Style::Round)))?;
            }
            Body::Loop { parameters, arrays, statements } => {
                let parameter = |p: &Parameter| match p.value {
                    None => p.name.to_string(),
                    Some(v) => format!("{} = {v}", p.name),
                };
                writeln!(f, "loop {}({}) {{", self.name, list(parameters, parameter))?;
                sizes(&self.sizes, f)?;
                for a in arrays {
                    let access = match a.access {
                        None => "",
                        Some(Access::In) => "in ",
                        Some(Access::Out) => "out ",
                        Some(Access::InOut) => "inout ",
                        Some(Access::Temporary) => "temp ",
                    };
                    writeln!(f, "    {access}{} {}{}", a.dtype, a.name, square(&a.shape))?;
                }
                initial(&self.initial, f, Style::Square)?;
                statements.iter().try_for_each(|s| statement(s, 1, f))?;
            }
        }
        f.write_str("}\n")
    }
}

impl Program {
    fn head(&self, f: &mut Formatter, style: Style) -> Result {
        sizes(&self.sizes, f)?;
        initial(&self.initial, f, style)
    }
}

fn sizes(sizes: &[Sizes], f: &mut Formatter) -> Result {
    for s in sizes {
        let value = |v: &(Name, i64)| format!("{} = {}", v.0, v.1);
        writeln!(f, "    sizes {} {{ {} }}", s.name, list(&s.values, value))?;
    }
    Ok(())
}

fn initial(equations: &[Equation], f: &mut Formatter, style: Style) -> Result {
    if equations.is_empty() {
        return Ok(());
    }
    writeln!(f, "    init {{")?;
    equations.iter().try_for_each(|e| writeln!(f, "        {}", e.text(style)))?;
    writeln!(f, "    }}")
}

fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn round(subscripts: &[Expr]) -> String {
    if subscripts.is_empty() { String::new() } else { format!("({})", list(subscripts, |e| e.text(Style::Round, 0))) }
}

fn square(subscripts: &[Expr]) -> String {
    subscripts.iter().map(|e| format!("[{}]", e.text(Style::Square, 0))).collect()
}

fn element(name: &str, subscripts: &[Expr], style: Style) -> String {
    match style {
        Style::Round => format!("{name}({})", list(subscripts, |e| e.text(style, 0))),
        Style::Square => format!("{name}{}", square(subscripts)),
    }
}

fn symbol(assign: Assign) -> &'static str {
    ASSIGNMENTS.iter().find(|a| a.1 == assign).map_or("=", |a| a.0)
}

impl Equation {
    fn text(&self, style: Style) -> String {
        let target = element(&self.target, &self.subscripts, style);
        let mut out = format!("{target} {} {}", symbol(self.assign), self.value.text(style, 0));
        if !self.conditions.is_empty() {
            let condition = |c: &Condition| match c {
                Condition::Range(name, range) => format!("{name} in {}", range.text(style)),
                Condition::Holds(e) => e.text(style, 0),
            };
            let _ = write!(out, " where {}", list(&self.conditions, condition));
        }
        out
    }
}

impl Range {
    fn text(&self, style: Style) -> String {
        format!("{}..{}", self.lower.text(style, 0), self.upper.text(style, 0))
    }
}

fn statement(s: &Statement, depth: usize, f: &mut Formatter) -> Result {
    let pad = "    ".repeat(depth);
    match s {
        Statement::For { index, range, step, body } => {
            let step = if *step == 1 { String::new() } else { format!(" step {step}") };
            writeln!(f, "{pad}for {index} in {}{step} {{", range.text(Style::Square))?;
            body.iter().try_for_each(|s| statement(s, depth + 1, f))?;
            writeln!(f, "{pad}}}")
        }
        Statement::If { condition, body, otherwise } => {
            writeln!(f, "{pad}if {} {{", condition.text(Style::Square, 0))?;
            body.iter().try_for_each(|s| statement(s, depth + 1, f))?;
            if !otherwise.is_empty() {
                writeln!(f, "{pad}}} else {{")?;
                otherwise.iter().try_for_each(|s| statement(s, depth + 1, f))?;
            }
            writeln!(f, "{pad}}}")
        }
        Statement::Assign(a) => {
            let label = a.label.as_ref().map_or(String::new(), |l| format!("{l}: "));
            let target = element(&a.target, &a.subscripts, Style::Square);
            writeln!(f, "{pad}{label}{target} {} {}", symbol(a.assign), a.value.text(Style::Square, 0))
        }
    }
}

impl Expr {
    /// The text.
    pub fn show(&self, style: Style) -> String {
        self.text(style, 0)
    }

    /// The text, in parentheses where operators that bind with `outside` would take it apart.
    fn text(&self, style: Style, outside: u8) -> String {
        match &self.kind {
            Kind::Integer(v) => v.to_string(),
            Kind::Real(v) if v.is_nan() => "nan".into(),
            Kind::Real(v) => format!("{v:?}"),
            Kind::Bool(v) => v.to_string(),
            Kind::Name(name) => name.clone(),
            Kind::Element(name, subscripts) => element(name, subscripts, style),
            Kind::Call(function, operands) => {
                let name = FUNCTIONS.iter().find(|x| x.1 == *function).map_or("?", |x| x.0);
                format!("{name}({})", list(operands, |e| e.text(style, 0)))
            }
            Kind::Cast(dtype, a) => format!("{dtype}({})", a.text(style, 0)),
            Kind::Negate(a) => format!("-{}", a.text(style, PREFIX)),
            Kind::Not(a) => format!("!{}", a.text(style, PREFIX)),
            Kind::Binary(operator, a, b) => {
                let (symbol, binds) = OPERATORS.iter().find(|o| o.1 == *operator).map_or(("?", 0), |o| (o.0, o.2));
                let left = if binds == COMPARISON { binds + 1 } else { binds };
                let text = format!("{} {symbol} {}", a.text(style, left), b.text(style, binds + 1));
                if binds < outside { format!("({text})") } else { text }
            }
        }
    }
}

impl Display for Loops {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let names = list(&self.names, Name::to_string);
        match &self.statement {
            Some(s) => write!(f, "{s}({names})"),
            None => f.write_str(&names),
        }
    }
}

impl Display for Loop {
    fn fmt(&self, f: &mut Formatter) -> Result {
        match &self.statement {
            Some(s) => write!(f, "{s}({})", self.name),
            None => write!(f, "{}", self.name),
        }
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
        let names = |names: &[Name]| list(names, Name::to_string);
        let by = |by: &Option<i64>| by.map_or(String::new(), |n| format!(" by {n}"));
        match self {
            Primitive::Split { which, by, into } => write!(f, "split {which} by {by} -> {}", names(into)),
            Primitive::Fuse { which, into } => write!(f, "fuse {which} -> {into}"),
            Primitive::Reorder { which } => write!(f, "reorder {which}"),
            Primitive::Tile { which, by, into } => {
                write!(f, "tile {which} by ({}) -> {}", list(by, i64::to_string), names(into))
            }
            Primitive::Skew { which, factor, by } => write!(f, "skew {which} by {factor}*{by}"),
            Primitive::Shift { which, by } => write!(f, "shift {which} by {by}"),
            Primitive::Reverse { which } => write!(f, "reverse {which}"),
            Primitive::Merge { statements, at } => write!(f, "merge {} at {at}", names(statements)),
            Primitive::Distribute { statements, at } => write!(f, "distribute {} at {at}", names(statements)),
            Primitive::Sequence { statements } => write!(f, "sequence {}", names(statements)),
            Primitive::Unroll { which, by: n } => write!(f, "unroll {which}{}", by(n)),
            Primitive::UnrollAndJam { which, by } => write!(f, "unroll_and_jam {which} by {by}"),
            Primitive::Vectorize { which, by: n } => write!(f, "vectorize {which}{}", by(n)),
            Primitive::Parallel { which } => write!(f, "parallel {which}"),
            Primitive::Wavefront { which } => write!(f, "wavefront {which}"),
            Primitive::Serial => f.write_str("serial"),
            Primitive::Normalize => f.write_str("normalize"),
            Primitive::Divide => f.write_str("divide"),
            Primitive::Expand => f.write_str("expand"),
            Primitive::ComputeAt { tensor, at } => write!(f, "compute_at {tensor} at {at}"),
            Primitive::ComputeInline { tensor } => write!(f, "compute_inline {tensor}"),
            Primitive::StoreAt { tensor, at } => write!(f, "store_at {tensor} at {at}"),
            Primitive::CacheRead { tensor, at: Some(at) } => write!(f, "cache_read {tensor} at {at}"),
            Primitive::CacheRead { tensor, at: None } => write!(f, "cache_read {tensor}"),
            Primitive::CacheWrite { tensor, at } => write!(f, "cache_write {tensor} at {at}"),
            Primitive::Pack { tensor, layout } => {
                write!(f, "pack {tensor} as ({})", list(layout, |e| e.text(Style::Round, 0)))
            }
            Primitive::Rfactor { tensor, over, into } => write!(f, "rfactor {tensor} over {over} -> {into}"),
            Primitive::Tensorize { which, with } => {
                write!(f, "tensorize {which}{}", with.as_ref().map_or(String::new(), |w| format!(" with {w}")))
            }
            Primitive::Peel { which } => write!(f, "peel {which}"),
            Primitive::Pad { which, to } => write!(f, "pad {which} to {to}"),
        }
    }
}
