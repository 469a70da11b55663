//! The text form of a graph.
//!
//! In: the text that `Display` of [`Graph`] writes, or one written by hand. Out: a verified graph. Invariant: the text of a
//! parsed graph parses to the same graph. By hand, a value may have any name (`%x`), the type of an operator's result may
//! be left out, and a constant may be `seeded(7)`: the contents of [`Tensor::seeded`].
//!
//! ```text
//! graph layer {
//!     %x: f32[1,3,8,8] = input "x"
//!     %w: f32[4,3,3,3] = constant seeded(1)
//!     %y = conv[3x3 pad=1x1 nchw](%x, %w)  # first
//!     output %y "y"
//! }
//! ```

pub mod words;

use crate::expr::scalar::Value as Element;
use crate::graph::infer::infer;
use crate::graph::ir::{Graph, Node, Source, Value, ValueId};
use crate::graph::op::Op;
use crate::graph::tensor_type::TensorType;
use crate::runtime::{DType, Error, Result, Tensor};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use words::{Parsed, list, parts, tensor_type};

/// Constants with more elements than this are elided in the text that `Display` writes.
const SHOWN: usize = 8;

/// Bytes of a constant that a text gives by a seed.
const MOST_SEEDED: usize = 512 << 20;

/// The text of a graph with every element of its constants, so that it can be parsed.
pub fn print(graph: &Graph) -> String {
    write_graph(graph, usize::MAX)
}

/// A line for each input, constant, node and output; constants with few elements show them.
impl std::fmt::Display for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&write_graph(self, SHOWN))
    }
}

fn write_graph(graph: &Graph, shown: usize) -> String {
    let mut text = format!("graph {} {{\n", graph.name);
    for &id in &graph.inputs {
        let value = graph.value(id);
        let _ = writeln!(text, "    {id}: {} = input {}", value.ty, quote(&value.name));
    }
    for (i, value) in graph.values.iter().enumerate() {
        if let Source::Constant(t) = &value.source {
            let _ = writeln!(text, "    {}: {} = constant {}", ValueId(i as u32), value.ty, elements(t, shown));
        }
    }
    for node in &graph.nodes {
        let outputs: Vec<String> = node.outputs.iter().map(|&id| format!("{id}: {}", graph.value(id).ty)).collect();
        let inputs: Vec<String> = node.inputs.iter().map(ValueId::to_string).collect();
        let _ = writeln!(text, "    {} = {}({})  # {}", outputs.join(", "), node.op, inputs.join(", "), node.name);
    }
    for &id in &graph.outputs {
        let _ = writeln!(text, "    output {id} {}", quote(&graph.value(id).name));
    }
    text.push_str("}\n");
    text
}

/// Up to `shown` elements of a tensor. Floating-point elements have the fewest digits that give the same value.
pub fn elements(t: &Tensor, shown: usize) -> String {
    let size = t.dtype.bytes();
    let texts = t.data.chunks_exact(size).take(shown).map(|bytes| match Element::load(t.dtype, bytes) {
        Element::F64(v) => v.to_string(),
        Element::Bool(v) => v.to_string(),
        v if t.dtype.is_float() => (v.as_f64() as f32).to_string(),
        v => v.as_i64().to_string(),
    });
    let texts: Vec<String> = texts.collect();
    format!("[{}{}]", texts.join(", "), if t.len() > shown { ", …" } else { "" })
}

/// Reads a graph. Fails with [`Error::Invalid`], which names the line.
///
/// # Errors
/// [`Error::Invalid`] with the number of the line that is wrong.
pub fn parse(text: &str) -> Result<Graph> {
    let mut parser = Parser::default();
    let mut lines = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    let fail = |line: usize, why: String| Error::Invalid(format!("graph text, line {}: {why}", line + 1));
    match lines.next() {
        Some((n, line)) => parser.header(line.trim()).map_err(|why| fail(n, why))?,
        None => return Err(Error::Invalid("the text holds no graph".into())),
    }
    let mut closed = false;
    for (n, line) in lines {
        if closed {
            return Err(fail(n, "text follows the end of the graph".into()));
        }
        closed = line.trim() == "}";
        if !closed {
            parser.line(line.trim()).map_err(|why| fail(n, why))?;
        }
    }
    if !closed {
        return Err(Error::Invalid("the graph is not closed with `}`".into()));
    }
    let graph = parser.finish();
    graph.verify().map_err(|e| Error::Invalid(e.to_string()))?;
    Ok(graph)
}

#[derive(Default)]
struct Parser {
    graph: Graph,
    values: HashMap<String, ValueId>,
}

impl Parser {
    fn header(&mut self, line: &str) -> Parsed<()> {
        let name = line.strip_prefix("graph").and_then(|rest| rest.strip_suffix('{'));
        self.graph.name = name.ok_or("expected `graph NAME {`")?.trim().to_string();
        Ok(())
    }

    fn line(&mut self, line: &str) -> Parsed<()> {
        if let Some(rest) = line.strip_prefix("output ") {
            return self.output(rest);
        }
        let (left, right) = line.split_once(" = ").ok_or("expected `%value = …` or `output %value \"name\"`")?;
        if let Some(name) = right.strip_prefix("input ") {
            let name = quoted(name)?;
            let (label, ty) = typed(left)?;
            let id = self.define(label, name, ty, Source::Input)?;
            self.graph.inputs.push(id);
            return Ok(());
        }
        if let Some(contents) = right.strip_prefix("constant ") {
            let (label, ty) = typed(left)?;
            let tensor = constant(&ty, contents.trim())?;
            let name = format!("constant_{}", self.graph.values.len());
            self.define(label, name, ty, Source::Constant(Arc::new(tensor)))?;
            return Ok(());
        }
        self.node(left, right)
    }

    fn output(&mut self, rest: &str) -> Parsed<()> {
        let (label, name) = rest.split_once(' ').ok_or("expected `output %value \"name\"`")?;
        let id = self.value(label)?;
        self.graph.values[id.0 as usize].name = quoted(name)?;
        self.graph.outputs.push(id);
        Ok(())
    }

    fn node(&mut self, left: &str, right: &str) -> Parsed<()> {
        let (call, name) = match right.rsplit_once("  # ") {
            Some((call, name)) => (call.trim(), name.trim().to_string()),
            None => (right.trim(), String::new()),
        };
        let open = call.rfind('(').ok_or("expected `operator[attributes](%operand, …)`")?;
        let operands = call[open + 1..].strip_suffix(')').ok_or("expected `)` after the operands")?;
        let op: Op = Op::parse(&call[..open])?;
        let inputs = list(operands).map(|label| self.value(label)).collect::<Parsed<Vec<ValueId>>>()?;
        let types: Vec<&TensorType> = inputs.iter().map(|&id| &self.graph.value(id).ty).collect();
        let types = infer(&op, &types).map_err(|e| e.to_string())?;
        let labels = parts(left);
        if labels.len() != types.len() {
            return Err(format!("`{op}` has {} results, not {}", types.len(), labels.len()));
        }
        let index = self.graph.nodes.len() as u32;
        let name = if name.is_empty() { format!("{}_{index}", op.mnemonic()) } else { name };
        let mut results = vec![];
        for (o, (label, ty)) in labels.into_iter().zip(types).enumerate() {
            let (label, declared) = match label.split_once(':') {
                Some(_) => typed(label).map(|(label, ty)| (label, Some(ty)))?,
                None => (label, None),
            };
            if let Some(declared) = declared.filter(|declared| *declared != ty) {
                return Err(format!("{label} is declared as {declared}, but `{op}` gives {ty}"));
            }
            results.push(self.define(label, format!("{name}.{o}"), ty, Source::Node(index, o as u32))?);
        }
        self.graph.nodes.push(Node { name, origins: vec![], op, inputs, outputs: results });
        Ok(())
    }

    fn value(&self, label: &str) -> Parsed<ValueId> {
        let label = label.trim();
        self.values.get(label).copied().ok_or_else(|| format!("value {label} is not defined"))
    }

    fn define(&mut self, label: &str, name: String, ty: TensorType, source: Source) -> Parsed<ValueId> {
        if !label.starts_with('%') || label.len() == 1 {
            return Err(format!("`{label}` is not a value: values are written `%name`"));
        }
        ty.check().map_err(|e| e.to_string())?;
        let id = ValueId(self.graph.values.len() as u32);
        if self.values.insert(label.to_string(), id).is_some() {
            return Err(format!("value {label} is already defined"));
        }
        self.graph.values.push(Value { name, ty, source });
        Ok(id)
    }

    /// The graph. Values keep the numbers of the text where these are exactly 0..n.
    fn finish(self) -> Graph {
        let Parser { mut graph, values } = self;
        let mut numbers: Vec<usize> = vec![usize::MAX; values.len()];
        for (label, id) in &values {
            match label[1..].parse::<usize>() {
                Ok(n) if n < values.len() => numbers[id.0 as usize] = n,
                _ => return graph,
            }
        }
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        if sorted.iter().enumerate().any(|(i, &n)| i != n) {
            return graph;
        }
        let renumber = |id: &mut ValueId| *id = ValueId(numbers[id.0 as usize] as u32);
        graph.inputs.iter_mut().chain(&mut graph.outputs).for_each(renumber);
        graph.nodes.iter_mut().flat_map(|n| n.inputs.iter_mut().chain(&mut n.outputs)).for_each(renumber);
        let mut numbered: Vec<(usize, Value)> = numbers.iter().copied().zip(graph.values).collect();
        numbered.sort_by_key(|(n, _)| *n);
        graph.values = numbered.into_iter().map(|(_, value)| value).collect();
        graph
    }
}

/// A name in quotes, as [`quoted`] reads it, on one line.
fn quote(name: &str) -> String {
    let json = serde_json::Value::from(name).to_string();
    crate::runtime::text::name(&json).into_owned()
}

fn quoted(text: &str) -> Parsed<String> {
    let text = text.trim();
    serde_json::from_str(text).map_err(|_| format!("expected a name in quotes, found `{text}`"))
}

/// `%x: f32[1,2]`.
fn typed(text: &str) -> Parsed<(&str, TensorType)> {
    let (label, ty) = text.split_once(':').ok_or("expected `%value: type[shape]`")?;
    Ok((label.trim(), tensor_type(ty)?))
}

/// `[1, 2, 3]` or `seeded(7)`; integers of a seeded constant are 0 or 1.
pub fn constant(ty: &TensorType, text: &str) -> Parsed<Tensor> {
    ty.check().map_err(|e| e.to_string())?;
    if let Some(seed) = text.strip_prefix("seeded(").and_then(|t| t.strip_suffix(')')) {
        let seed = seed.parse().map_err(|_| format!("`{seed}` is not a seed"))?;
        if ty.bytes() > MOST_SEEDED {
            return Err(format!("{ty} has more than the {MOST_SEEDED} bytes of a seeded constant"));
        }
        return Ok(Tensor::seeded(ty.dtype, &ty.shape, seed, 0, 2));
    }
    let inside = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let inside = inside.ok_or("expected `[element, …]` or `seeded(number)`")?;
    if inside.contains('…') {
        return Err("the elements are elided: write all of them, or `seeded(number)`".into());
    }
    // before memory is taken for what the text only announces
    let count = list(inside).count();
    if count as i64 != ty.elements() {
        return Err(format!("{count} elements for {ty}"));
    }
    let mut tensor = Tensor::zeros(ty.dtype, &ty.shape);
    for (element, bytes) in list(inside).zip(tensor.data.chunks_exact_mut(ty.dtype.bytes())) {
        parse_element(ty.dtype, element)?.store(bytes);
    }
    Ok(tensor)
}

fn parse_element(dtype: DType, text: &str) -> Parsed<Element> {
    let wrong = || format!("`{text}` is not of type {dtype}");
    match dtype {
        DType::Bool => text.parse().map(Element::Bool).map_err(|_| wrong()),
        DType::F32 => text.parse().map(Element::F32).map_err(|_| wrong()),
        _ if dtype.is_float() => text.parse().map(|v| Element::from_f64(dtype, v)).map_err(|_| wrong()),
        _ => {
            let value: i64 = text.parse().map_err(|_| wrong())?;
            let element = Element::from_i64(dtype, value);
            if element.as_i64() == value { Ok(element) } else { Err(wrong()) }
        }
    }
}

#[cfg(test)]
mod tests;
