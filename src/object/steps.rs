//! The steps of a module as statements of C.
//!
//! In: one binding of a verified module. Out: the statements; the functions that they call and the message of each failure are
//! added to those of the other bindings. The statements do what a session does, in its order (`runtime/session.rs`).

use crate::object::helpers::Helpers;
use crate::object::names::{comment, literal, number};
use crate::object::signature::{Parameter, Signature};
use crate::runtime::DType;
use crate::runtime::check_indices::wrong_side;
use crate::runtime::module::{Action, BufferPlace, BufferRef, Carried, MAX_TRIPS, Module, Step};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The statements so far.
pub struct Steps<'m> {
    module: &'m Module,
    binding: usize,
    signature: &'m Signature,
    pub text: String,
    helpers: &'m mut Helpers,
    /// The buffers that move with loops, with their number in the state of a run.
    windows: BTreeMap<BufferRef, usize>,
    indent: usize,
}

impl<'m> Steps<'m> {
    /// No statements yet; `module` is the binding of this number.
    pub fn new(module: &'m Module, binding: usize, signature: &'m Signature, helpers: &'m mut Helpers) -> Steps<'m> {
        let moving = module.buffers().iter().enumerate();
        let moving = moving.filter(|(_, buffer)| matches!(buffer.place, BufferPlace::Window { .. }));
        let windows: BTreeMap<BufferRef, usize> =
            moving.enumerate().map(|(n, (buffer, _))| (BufferRef(buffer as u32), n)).collect();
        helpers.windows = helpers.windows.max(windows.len());
        Steps { module, binding, signature, text: String::new(), helpers, windows, indent: 1 }
    }

    /// Adds the checks of inputs, all steps, and the copies of outputs that no step writes in place.
    pub fn add_all(&mut self) -> Result<()> {
        self.add_values()?;
        self.add_list(self.module.steps())?;
        for (o, output) in self.module.outputs().iter().enumerate() {
            let source = self.module.buffers()[output.source.0 as usize].place;
            if source != BufferPlace::Output(o as u32) {
                let to = self.array(|p| p.output == Some(o))?;
                let from = self.address(output.source)?;
                self.copy(&to, &from, output.tensor.bytes()?);
            }
        }
        Ok(())
    }

    /// Adds a line.
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{:1$}{text}", "", 4 * self.indent);
    }

    /// Compares the inputs whose values the module was compiled for.
    fn add_values(&mut self) -> Result<()> {
        for (name, value) in self.module.values() {
            let Some(input) = self.module.inputs().iter().position(|spec| spec.name == *name) else { continue };
            self.helpers.has_comparisons = true;
            let code = self
                .helpers
                .code(format!("input `{name}` decides shapes and has another value than the module was compiled for"));
            let bytes: Vec<String> = value.data.iter().map(u8::to_string).collect();
            let (array, function) = (self.array(|p| p.input == Some(input))?, &self.signature.name);
            if bytes.is_empty() {
                continue;
            }
            let compare = format!("if (!{function}_equal({array}, value, {})) return {code};", bytes.len());
            self.line("{");
            self.line(&format!("    static const unsigned char value[] = {{{}}};", bytes.join(", ")));
            self.line(&format!("    {compare}"));
            self.line("}");
        }
        Ok(())
    }

    fn add_list(&mut self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| self.add(step))
    }

    fn add(&mut self, step: &Step) -> Result<()> {
        match &step.action {
            Action::Kernel { kernel, arguments } => self.add_kernel(step, *kernel, arguments),
            Action::Opaque { function, attributes, inputs, outputs } => {
                self.add_opaque(step, function, attributes, [inputs, outputs])
            }
            Action::Copy { from, to } => {
                let places = [*from, *to].map(|buffer| self.module.buffers()[buffer.0 as usize].place);
                let bytes = self.module.buffers()[to.0 as usize].bytes()?;
                let (from, to) = (self.address(*from)?, self.address(*to)?);
                match places {
                    // the caller may give one array for both
                    [BufferPlace::Input(i), BufferPlace::Output(o)] if self.signature.is_state(i, o) && bytes > 0 => {
                        self.line(&format!("if ({to} != {from}) memcpy({to}, {from}, {bytes});"));
                    }
                    _ => self.copy(&to, &from, bytes),
                }
                Ok(())
            }
            Action::CheckIndices { tensor, offset, stride, lower, upper } => {
                self.add_check(*tensor, (*offset, *stride), (*lower, *upper))
            }
            Action::Loop { number, trips, condition, carried, body } => {
                self.add_loop(step, (*number, *trips), *condition, carried, body)
            }
            Action::If { condition, then, otherwise } => {
                let condition = self.address(*condition)?;
                self.line(&format!("/* {} */", comment(&step.name)));
                self.line(&format!("if (*({condition})) {{"));
                self.indented(then)?;
                self.line("} else {");
                self.indented(otherwise)?;
                self.line("}");
                Ok(())
            }
        }
    }

    fn indented(&mut self, steps: &[Step]) -> Result<()> {
        self.indent += 1;
        self.add_list(steps)?;
        self.indent -= 1;
        Ok(())
    }

    fn add_kernel(&mut self, step: &Step, kernel: u32, arguments: &[BufferRef]) -> Result<()> {
        let phases = &self.module.kernels()[kernel as usize].phases;
        let addresses: Vec<String> = arguments.iter().map(|&a| self.address(a)).collect::<Result<_>>()?;
        let table = if addresses.is_empty() { "0".into() } else { addresses.join(", ") };
        self.line(&format!("{{ /* {} */", comment(&step.name)));
        self.line(&format!("    void *table[] = {{{table}}};"));
        for (phase, symbol) in phases.iter().zip(&self.signature.symbols[self.binding][kernel as usize]) {
            match phase.parallel {
                None => self.line(&format!("    {symbol}(table, 0, 1, s->scratch);")),
                Some(count) => {
                    self.helpers.has_parallel = true;
                    let width = phase.wave.unwrap_or(count).max(1);
                    self.line(&format!("    {}_phase(s, {symbol}, table, {count}, {width});", self.signature.name));
                }
            }
        }
        self.line("}");
        Ok(())
    }

    fn add_opaque(
        &mut self,
        step: &Step,
        function: &str,
        attributes: &[i64],
        operands: [&[BufferRef]; 2],
    ) -> Result<()> {
        self.helpers.has_opaque = true;
        let code = self.helpers.code(format!("step `{}`: the function `{function}` refuses its operands", step.name));
        let list = |values: &[i64]| match values {
            [] => "0".to_string(),
            _ => values.iter().map(|&value| number(value)).collect::<Vec<_>>().join(", "),
        };
        self.line(&format!("{{ /* {} */", comment(&step.name)));
        self.line(&format!("    static const int64_t attributes[] = {{{}}};", list(attributes)));
        let mut views = [vec![], vec![]];
        for (n, &operand) in operands.into_iter().flatten().enumerate() {
            let buffer = &self.module.buffers()[operand.0 as usize];
            self.line(&format!("    static const int64_t shape{n}[] = {{{}}};", list(&buffer.shape)));
            let (address, rank, dtype) = (self.address(operand)?, buffer.shape.len(), buffer.dtype as u32);
            views[usize::from(n >= operands[0].len())].push(format!("{{{address}, shape{n}, {rank}, {dtype}}}"));
        }
        for (role, views) in ["in", "out"].into_iter().zip(&views) {
            let views = if views.is_empty() { "{0, 0, 0, 0}".into() } else { views.join(", ") };
            self.line(&format!("    const struct tilewright_view {role}[] = {{{views}}};"));
        }
        let call = format!(
            "tilewright_opaque_1({}, attributes, {}, in, {}, out, {})",
            literal(function),
            attributes.len(),
            views[0].len(),
            views[1].len()
        );
        self.line(&format!("    if ({call}) return {code};"));
        self.line("}");
        Ok(())
    }

    fn add_check(&mut self, tensor: BufferRef, elements: (u64, u64), range: (i64, i64)) -> Result<()> {
        let buffer = &self.module.buffers()[tensor.0 as usize];
        let (lower, upper) = range;
        // beyond i64 a subscript is negative, and outside
        let element = if buffer.dtype == DType::U64 { DType::I64.c_type() } else { buffer.dtype.c_type() };
        let count = buffer.bytes()? / buffer.dtype.bytes() as u64;
        let code =
            self.helpers.code(format!("an index in tensor `{}` lies {}", buffer.name, wrong_side(buffer.dtype, range)));
        self.helpers.checked.insert(element);
        let (first, stride) = (elements.0.min(count), elements.1.clamp(1, count.max(1)));
        let call = format!(
            "{}_outside_{element}({}, {count}, {first}, {stride}, {}, {})",
            self.signature.name,
            self.address(tensor)?,
            number(lower),
            number(upper)
        );
        self.line(&format!("if ({call}) return {code};"));
        Ok(())
    }

    fn add_loop(
        &mut self,
        step: &Step,
        (loop_number, trips): (u32, u64),
        condition: Option<BufferRef>,
        carried: &[Carried],
        body: &[Step],
    ) -> Result<()> {
        let bytes = |module: &Module, value: &Carried| module.buffers()[value.current.0 as usize].bytes();
        self.line(&format!("/* {} */", comment(&step.name)));
        for value in carried {
            let (to, from) = (self.address(value.current)?, self.address(value.initial)?);
            self.copy(&to, &from, bytes(self.module, value)?);
        }
        let t = format!("t{loop_number}");
        self.line(&format!("for (int64_t {t} = 0; {t} < {trips}; {t}++) {{"));
        self.indent += 1;
        let condition = condition.map(|condition| self.address(condition)).transpose()?;
        if let Some(condition) = &condition {
            self.line(&format!("if (!*({condition})) break;"));
        }
        for (buffer, window) in self.windows.clone() {
            if let BufferPlace::Window { of, offset, stride, number: of_loop } =
                self.module.buffers()[buffer.0 as usize].place
                && of_loop == loop_number
            {
                let (of, stride) = (self.address(of)?, number(stride));
                self.line(&format!("s->window[{window}] = {of} + ({offset} + {t} * {stride});"));
            }
        }
        self.add_list(body)?;
        for value in carried {
            let (to, from) = (self.address(value.current)?, self.address(value.next)?);
            self.copy(&to, &from, bytes(self.module, value)?);
        }
        self.indent -= 1;
        self.line("}");
        if let Some(condition) = condition.filter(|_| trips == MAX_TRIPS) {
            let code = self.helpers.code(format!("`{}` does not end after {MAX_TRIPS} times", step.name));
            self.line(&format!("if (*({condition})) return {code};"));
        }
        Ok(())
    }

    /// Copies one buffer to another; two that are one array are left alone.
    fn copy(&mut self, to: &str, from: &str, bytes: u64) {
        if to != from && bytes > 0 {
            self.line(&format!("memcpy({to}, {from}, {bytes});"));
        }
    }

    /// The address of a buffer.
    fn address(&self, buffer: BufferRef) -> Result<String> {
        match self.module.buffers()[buffer.0 as usize].place {
            BufferPlace::Input(i) if self.signature.bindings.counted == Some(i as usize) => {
                Ok("(unsigned char *)&s->count".into())
            }
            BufferPlace::Input(i) => self.array(|p| p.input == Some(i as usize)),
            BufferPlace::Output(o) => self.array(|p| p.output == Some(o as usize)),
            BufferPlace::Arena(offset) => Ok(format!("s->arena + {offset}")),
            BufferPlace::Weights(offset) => {
                let place = match self.module.buffers()[buffer.0 as usize].bytes()? {
                    0 => Some(0),
                    _ => self.signature.constants.offset(self.binding, offset),
                };
                let place = place.ok_or_else(|| Error::Internal(format!("constant {} has no place", buffer.0)))?;
                Ok(format!("(unsigned char *)(uintptr_t)(s->weights + {place})"))
            }
            BufferPlace::Window { .. } => match self.windows.get(&buffer) {
                Some(window) => Ok(format!("s->window[{window}]")),
                None => Err(Error::Internal(format!("buffer {} has no window", buffer.0))),
            },
        }
    }

    /// The address of an array of the caller.
    fn array(&self, is_it: impl Fn(&Parameter) -> bool) -> Result<String> {
        let position = self.signature.parameters.iter().position(is_it);
        let array = position.map(|position| format!("s->array[{position}]"));
        array.ok_or_else(|| Error::Internal("a buffer of no parameter".into()))
    }
}
