//! LoopNests as C: a kernel after all transformations, as one function of its arguments.
//!
//! In: a verified nest. Out: a C function with a parameter for each slot of the argument table. A buffer is an array of its
//! shape, padded as its strides say, or flat where they are not those of an array. Local buffers belong to a thread, so the
//! loops that threads divide carry an OpenMP pragma; the other kinds of loops are comments.

use super::expression::{Names, type_of};
use crate::codegen::loopnest::{Buffer, BufferKind, LoopKind, LoopNest, Stmt};
use crate::expr::{Bound, Var};
use crate::runtime::{DType, Error, Result};
use std::fmt::Write;

/// The function `name` for a nest. `reserved` are names that its variables may not have.
///
/// # Errors
/// `Unsupported` for element types that C has not.
pub fn print(nest: &LoopNest, name: &str, reserved: &dyn Fn(&str) -> bool) -> Result<String> {
    let mut buffers: Vec<String> = vec![];
    for b in &nest.buffers {
        let name = unique(&identifier(&b.name), &|n| reserved(n) || buffers.iter().any(|b| b == n));
        buffers.push(name);
    }
    let flat = nest.buffers.iter().map(|b| array_shape(b).is_none().then(|| b.strides.clone())).collect();
    let dtypes: Vec<DType> = nest.buffers.iter().map(|b| b.dtype).collect();
    let vars = vec![String::new(); nest.vars.len()];
    let mut p = Printer { nest, reserved, buffers, flat, dtypes, vars, bound: vec![], out: String::new() };
    let mut parameters: Vec<(u32, String)> = vec![];
    let mut views = String::new();
    for (i, (b, name)) in nest.buffers.iter().zip(&p.buffers).enumerate() {
        if let BufferKind::Argument { slot, written } = b.kind {
            let same = |o: &Buffer| matches!(o.kind, BufferKind::Argument { slot: of, .. } if of == slot);
            if let Some(first) = nest.buffers[..i].iter().position(same) {
                view(&mut views, b, name, &p.buffers[first])?;
                continue;
            }
            let constant = if written { "" } else { "const " };
            parameters.push((slot, format!("{constant}{} {name}{}", type_of(b.dtype)?, dimensions(b, "restrict "))));
        }
    }
    parameters.sort();
    if parameters.iter().zip(0..).any(|(p, slot)| p.0 != slot) {
        return Err(Error::Internal(format!("kernel `{}` has not one buffer for each argument", nest.name)));
    }
    let parameters: Vec<String> = parameters.into_iter().map(|p| p.1).collect();
    let _ = writeln!(p.out, "static void {name}({}) {{", parameters.join(", "));
    for (b, name) in nest.buffers.iter().zip(&p.buffers).filter(|(b, _)| b.kind == BufferKind::Local) {
        let _ = writeln!(p.out, "    static _Thread_local {} {name}{};", type_of(b.dtype)?, dimensions(b, ""));
    }
    p.out.push_str(&views);
    p.statements(&nest.body, 1)?;
    p.out.push_str("}\n");
    Ok(p.out)
}

/// A name of letters, digits and `_`.
pub fn identifier(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_alphabetic()) { plain } else { format!("a{plain}") }
}

fn unique(name: &str, taken: &dyn Fn(&str) -> bool) -> String {
    let mut name = name.to_string();
    while taken(&name) {
        name.push('_');
    }
    name
}

/// The extents of an array whose strides are those of the buffer; `None` where there is none.
fn array_shape(b: &Buffer) -> Option<Vec<i64>> {
    let (&first, &last) = (b.shape.first()?, b.strides.last()?);
    let inner = b.strides.windows(2).zip(&b.shape[1..]).map(|(s, &extent)| {
        let fits = s[1] > 0 && s[0] % s[1] == 0 && s[0] / s[1] >= extent;
        fits.then(|| s[0] / s[1])
    });
    let inner = inner.collect::<Option<Vec<i64>>>().filter(|_| last == 1 && b.span() > 0)?;
    Some([vec![first], inner].concat())
}

/// Declares a pointer to the memory of another argument, with the elements and the shape of `b`.
fn view(out: &mut String, b: &Buffer, name: &str, first: &str) -> Result<()> {
    let shape = array_shape(b).unwrap_or_else(|| vec![b.span().max(1)]);
    let inner: String = shape[1..].iter().map(|n| format!("[{n}]")).collect();
    let pointer = if inner.is_empty() { format!("*{name}") } else { format!("(*{name}){inner}") };
    let ty = type_of(b.dtype)?;
    let _ = writeln!(out, "    {ty} __attribute__((may_alias)) {pointer} = (void *){first};");
    Ok(())
}

/// `[4][8]`, with a qualifier in the first bracket.
fn dimensions(b: &Buffer, qualifier: &str) -> String {
    let shape = array_shape(b).unwrap_or_else(|| vec![b.span().max(1)]);
    shape.iter().enumerate().map(|(d, n)| format!("[{}{n}]", if d == 0 { qualifier } else { "" })).collect()
}

struct Printer<'a> {
    nest: &'a LoopNest,
    reserved: &'a dyn Fn(&str) -> bool,
    buffers: Vec<String>,
    /// Strides of the buffers that are flat arrays.
    flat: Vec<Option<Vec<i64>>>,
    dtypes: Vec<DType>,
    /// Names of the variables that are bound so far.
    vars: Vec<String>,
    /// Variables in scope.
    bound: Vec<Var>,
    out: String,
}

impl Printer<'_> {
    fn statements(&mut self, body: &[Stmt], depth: usize) -> Result<()> {
        let around = self.bound.len();
        for stmt in body {
            match stmt {
                Stmt::Loop { var, lower, upper, step, kind, body } => {
                    let low = self.bounds("MAX", lower, |b| match b.divisor {
                        1 => b.clone(),
                        d => Bound { affine: b.affine.clone().offset(d - 1), divisor: d },
                    });
                    let high = self.bounds("MIN", upper, Bound::clone);
                    let inside = self.bound.len();
                    let name = self.bind(*var);
                    let once = matches!((low.parse::<i64>(), high.parse::<i64>()), (Ok(l), Ok(h)) if h - l <= *step);
                    let comment = match kind {
                        LoopKind::Parallel if !once => {
                            self.line(depth, "#pragma omp parallel for");
                            String::new()
                        }
                        LoopKind::Serial | LoopKind::Parallel => String::new(),
                        LoopKind::Waves { width } => format!(" // waves of {width}"),
                        LoopKind::Unroll => " // unroll".into(),
                        LoopKind::Instruction(name) => format!(" // {name}"),
                        LoopKind::Vector => " // vector".into(),
                    };
                    let step = if *step == 1 { format!("{name}++") } else { format!("{name} += {step}") };
                    self.line(depth, &format!("for (long {name} = {low}; {name} < {high}; {step}) {{{comment}"));
                    self.statements(body, depth + 1)?;
                    self.line(depth, "}");
                    self.bound.truncate(inside);
                }
                Stmt::Let { var, value, divisor } => {
                    let value = self.bound_text(&Bound { affine: value.clone(), divisor: *divisor });
                    let name = self.bind(*var);
                    self.line(depth, &format!("long {name} = {value};"));
                }
                Stmt::Read { var, value, range, .. } => {
                    let value = self.names().expression(value)?;
                    let name = self.bind(*var);
                    let (low, high) = range;
                    self.line(depth, &format!("long {name} = MIN(MAX({value}, {low}), {high});"));
                }
                Stmt::If { conditions, body } => {
                    let conditions = self.names().conditions(conditions);
                    self.line(depth, &format!("if ({conditions}) {{"));
                    self.statements(body, depth + 1)?;
                    self.line(depth, "}");
                }
                Stmt::Store { buffer, index, value, reduce } => {
                    let text = self.names().assignment(*buffer, index, *reduce, value)?;
                    self.line(depth, &text);
                }
            }
        }
        self.bound.truncate(around);
        Ok(())
    }

    /// Brings a variable into scope under a name that nothing in scope has.
    fn bind(&mut self, var: Var) -> String {
        let taken = |n: &str| {
            (self.reserved)(n)
                || self.buffers.iter().any(|b| b == n)
                || self.bound.iter().any(|v| self.vars[v.0 as usize] == n)
        };
        let name = unique(&identifier(&self.nest.vars[var.0 as usize]), &taken);
        self.vars[var.0 as usize] = name.clone();
        self.bound.push(var);
        name
    }

    /// The greatest or the least of the rounded bounds.
    fn bounds(&self, join: &str, bounds: &[Bound], rounded: impl Fn(&Bound) -> Bound) -> String {
        let texts = bounds.iter().map(|b| self.bound_text(&rounded(b)));
        texts.reduce(|a, b| format!("{join}({a}, {b})")).unwrap_or_else(|| "0".into())
    }

    /// ⌊affine / divisor⌋.
    fn bound_text(&self, b: &Bound) -> String {
        let text = self.names().affine(&b.affine);
        if b.divisor == 1 { text } else { format!("FLOOR_DIV({text}, {})", b.divisor) }
    }

    fn names(&self) -> Names<'_> {
        Names { arrays: &self.buffers, dtypes: &self.dtypes, vars: &self.vars, flat: &self.flat }
    }

    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.out, "{}{text}", "    ".repeat(depth));
    }
}
