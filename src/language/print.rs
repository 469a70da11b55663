//! The syntax tree as text: `parse(print(file)) == file`.

use super::syntax::*;
use crate::expr::syntax::{Expr, Name};
use crate::expr::syntax::{Style, element, list, square};
use std::fmt::{Display, Formatter, Result, Write};

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

fn round(subscripts: &[Expr]) -> String {
    if subscripts.is_empty() { String::new() } else { format!("({})", list(subscripts, |e| e.text(Style::Round, 0))) }
}

pub fn symbol(assign: Assign) -> &'static str {
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
