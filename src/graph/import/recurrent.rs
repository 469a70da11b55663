//! `LSTM`, `GRU` and `RNN`: one matrix product of all inputs, then a scan over the steps for each direction.
//!
//! In: a node. Out: its results. The body of the scan is the product of the hidden state with the recurrent weights, which it
//! captures, and elementwise operators. With sequence lengths a step beyond the end of a sequence keeps the states of that
//! sequence and has zeros as its result; backwards these are the first steps, so that the states are still the initial ones. The
//! last states of a sequence without steps are zeros, as ONNX Runtime has them. Lengths outside of the steps are errors, when
//! the node is read or when the model runs.
//! A layer of quantised weights (`DynamicQuantizeLSTM`) quantises the inputs of all steps together, and in each step the
//! hidden states of all sequences together.

use super::activation::{Activation, clipped};
use super::node::Source;
use super::quantize::{Quantised, dynamic_product, exact_weights};
use crate::expr::{BinaryOp, CompareOp};
use crate::graph::import::importer::Importer;
use crate::graph::ir::ValueId;
use crate::graph::op::{Op, ReduceOp};
use crate::graph::tensor_type::TensorType;
use crate::runtime::{DType, Error, Result};

/// The cells. Gates stand in the order in which the standard stacks their weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cell {
    /// input, output, forget, cell
    Lstm {
        input_forget: bool,
    },
    /// update, reset, hidden
    Gru {
        linear_before_reset: bool,
    },
    Rnn,
}

impl Cell {
    fn gates(self) -> i64 {
        match self {
            Cell::Lstm { .. } => 4,
            Cell::Gru { .. } => 3,
            Cell::Rnn => 1,
        }
    }

    /// The gates of each product: the reset gate multiplies the state before the last product, where that is not linear.
    fn products(self) -> &'static [(i64, i64)] {
        match self {
            Cell::Gru { linear_before_reset: false } => &[(0, 2), (2, 3)],
            Cell::Gru { .. } => &[(0, 3)],
            Cell::Lstm { .. } => &[(0, 4)],
            Cell::Rnn => &[(0, 1)],
        }
    }

    /// Default activations of one direction.
    fn activations(self) -> &'static [&'static str] {
        match self {
            Cell::Lstm { .. } => &["Sigmoid", "Tanh", "Tanh"],
            Cell::Gru { .. } => &["Sigmoid", "Tanh"],
            Cell::Rnn => &["Tanh"],
        }
    }
}

pub(super) fn lstm(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    layer(g, n, Cell::Lstm { input_forget: n.flag("input_forget", false) }, None)
}

pub(super) fn quantised_lstm(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    let by = |i: usize| Ok(Quantised { scale: n.input(i)?, zero: n.optional(i + 1) });
    let quantised = Some([by(8)?, by(10)?]);
    layer(g, n, Cell::Lstm { input_forget: n.flag("input_forget", false) }, quantised)
}

pub(super) fn gru(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    layer(g, n, Cell::Gru { linear_before_reset: n.flag("linear_before_reset", false) }, None)
}

pub(super) fn rnn(g: &mut Importer, n: &Source) -> Result<Vec<ValueId>> {
    layer(g, n, Cell::Rnn, None)
}

/// The operands and attributes of a node.
struct Layer {
    cell: Cell,
    /// Steps, batch, features.
    x: ValueId,
    steps: i64,
    batch: i64,
    hidden: i64,
    weights: ValueId,
    recurrent: ValueId,
    /// Scales and zero points of both weights, which then have a row for each of their inputs.
    quantised: Option<[Quantised; 2]>,
    bias: Option<ValueId>,
    /// True for each step (first dimension) and sequence (second) that has data; `None` where all have.
    mask: Option<ValueId>,
    /// Initial states: hidden, cell.
    initial: Vec<Option<ValueId>>,
    peepholes: Option<ValueId>,
    /// For each direction: it goes backwards.
    directions: Vec<bool>,
    activations: Vec<Activation>,
    clip: Option<f32>,
    batch_first: bool,
    /// Results of all steps are read.
    all_steps: bool,
}

fn layer(g: &mut Importer, n: &Source, cell: Cell, quantised: Option<[Quantised; 2]>) -> Result<Vec<ValueId>> {
    let layer = read(g, n, cell, quantised)?;
    let states = layer.initial.len();
    let (mut per_step, mut last) = (vec![], vec![vec![]; states]);
    for direction in 0..layer.directions.len() {
        let results = layer.direction(g, direction)?;
        for (list, &state) in last.iter_mut().zip(&results) {
            let state = layer.of_sequences(g, state)?;
            list.push(g.reshape_to(state, vec![1, layer.batch, layer.hidden])?);
        }
        if let Some(&steps) = results.get(states) {
            per_step.push(g.reshape_to(steps, vec![layer.steps, 1, layer.batch, layer.hidden])?);
        }
    }
    let mut outputs = vec![];
    for list in last {
        let state = join(g, list, 0)?;
        outputs.push(if layer.batch_first { transpose(g, state, &[1, 0, 2])? } else { state });
    }
    let per_step = match layer.all_steps {
        true => join(g, per_step, 1)?,
        false => outputs[0],
    };
    outputs.insert(
        0,
        if layer.batch_first && layer.all_steps { transpose(g, per_step, &[2, 0, 1, 3])? } else { per_step },
    );
    Ok(outputs)
}

fn join(g: &mut Importer, parts: Vec<ValueId>, axis: usize) -> Result<ValueId> {
    if let [one] = parts[..] { Ok(one) } else { g.emit(Op::Concat { axis }, &parts) }
}

fn transpose(g: &mut Importer, x: ValueId, perm: &[usize]) -> Result<ValueId> {
    g.emit(Op::Transpose { perm: perm.to_vec() }, &[x])
}

fn read(g: &mut Importer, n: &Source, cell: Cell, quantised: Option<[Quantised; 2]>) -> Result<Layer> {
    let batch_first = n.flag("layout", false);
    let (x, weights, recurrent) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (bias, lengths) = (n.optional(3), n.optional(4));
    let mut initial = vec![n.optional(5)];
    let mut peepholes = None;
    if let Cell::Lstm { .. } = cell {
        initial.push(n.optional(6));
        peepholes = n.optional(7);
    }
    g.require_float(x)?;
    let directions = match &*n.string("direction", "forward") {
        "forward" => vec![false],
        "reverse" => vec![true],
        "bidirectional" => vec![false, true],
        other => return Err(Error::Invalid(format!("its direction `{other}` is none"))),
    };
    if g.rank(x) != 3 || g.rank(recurrent) != 3 {
        return Err(Error::Invalid("its input or its recurrent weights do not have 3 dimensions".into()));
    }
    let x = if batch_first { transpose(g, x, &[1, 0, 2])? } else { x };
    let &[steps, batch, features] = g.shape(x) else { return Err(Error::Internal("not 3 dimensions".into())) };
    let hidden = g.shape(recurrent)[if quantised.is_some() { 1 } else { 2 }];
    let (count, rows) = (directions.len() as i64, cell.gates() * hidden);
    let mut state_shape = vec![count, batch, hidden];
    if batch_first {
        state_shape.swap(0, 1);
    }
    let stacked = |inputs: i64| if quantised.is_some() { vec![count, inputs, rows] } else { vec![count, rows, inputs] };
    for (operand, shape, what) in [
        (Some(weights), stacked(features), "weights"),
        (Some(recurrent), stacked(hidden), "recurrent weights"),
        (bias, vec![count, 2 * rows], "bias"),
        (lengths, vec![batch], "sequence lengths"),
        (initial[0], state_shape.clone(), "initial hidden state"),
        (initial.get(1).copied().flatten(), state_shape, "initial cell state"),
        (peepholes, vec![count, 3 * hidden], "peepholes"),
    ] {
        if let Some(operand) = operand.filter(|&o| g.shape(o) != shape) {
            return Err(Error::Invalid(format!("its {what} have the shape {:?}, not {shape:?}", g.shape(operand))));
        }
    }
    for (by, weights) in quantised.iter().flatten().zip([weights, recurrent]) {
        check_quantised(g, weights, *by, count, rows)?;
    }
    if n.attribute("hidden_size").is_some() && n.int("hidden_size", 0) != hidden {
        return Err(Error::Invalid(format!("its hidden size is not that of its weights, {hidden}")));
    }
    if batch_first {
        for state in initial.iter_mut().flatten() {
            *state = transpose(g, *state, &[1, 0, 2])?;
        }
    }
    let lengths = lengths.map(|lengths| g.up_to(lengths, steps, "sequence lengths")).transpose()?;
    let x = match lengths.filter(|_| quantised.is_some()) {
        Some(lengths) => without_rest(g, x, lengths)?,
        None => x,
    };
    Ok(Layer {
        cell,
        x,
        steps,
        batch,
        hidden,
        weights,
        recurrent,
        quantised,
        bias,
        mask: lengths.map(|lengths| mask(g, lengths, steps, batch)).transpose()?.flatten(),
        initial,
        peepholes,
        activations: Activation::list(n, cell.activations(), directions.len())?,
        directions,
        clip: n.attribute("clip").map(|_| n.float("clip", 0.0)).filter(|&c| c > 0.0),
        batch_first,
        all_steps: n.wants_output(0),
    })
}

/// The inputs, with zeros after the end of the longest sequence: what stands there does not count when they are quantised.
fn without_rest(g: &mut Importer, x: ValueId, lengths: ValueId) -> Result<ValueId> {
    let longest = g.emit(Op::Reduce { op: ReduceOp::Max, axes: vec![0], keep: false }, &[lengths])?;
    let steps = g.shape(x)[0];
    let places = g.counting(steps, 0, 3)?;
    let counts = g.compare(CompareOp::Lt, places, longest)?;
    let zero = g.scalar_like(x, 0.0)?;
    g.select(counts, x, zero)
}

/// Checks the types of quantised weights, and that their scale and zero point are one for each direction or one for each
/// column of each.
fn check_quantised(g: &Importer, weights: ValueId, by: Quantised, count: i64, rows: i64) -> Result<()> {
    let dtype = g.ty(weights).dtype;
    if !matches!(dtype, DType::I8 | DType::U8) {
        return Err(Error::Invalid(format!("its weights are {dtype}, not numbers of 8 bits")));
    }
    for (value, expected) in [(Some(by.scale), DType::F32), (by.zero, dtype)] {
        let Some(ty) = value.map(|v| g.ty(v)) else { continue };
        if ty.dtype != expected || ![vec![count], vec![count, rows]].contains(&ty.shape) {
            let shape = &ty.shape;
            return Err(Error::Invalid(format!(
                "a scale or zero point of type {} and shape {shape:?} does not fit the weights",
                ty.dtype
            )));
        }
    }
    Ok(())
}

/// True where a sequence has data: bool of steps × batch × 1. `None` where all have.
fn mask(g: &mut Importer, lengths: ValueId, steps: i64, batch: i64) -> Result<Option<ValueId>> {
    let constant = g.graph.constant(lengths).is_some() && steps > 0;
    if constant && g.integers(lengths, "sequence lengths")?.iter().all(|&l| l == steps) {
        return Ok(None);
    }
    let lengths = g.reshape_to(lengths, vec![1, batch, 1])?;
    let places = g.counting(steps, 0, 3)?;
    Ok(Some(g.compare(CompareOp::Lt, places, lengths)?))
}

impl Layer {
    /// The last states of one direction and, where they are read, the hidden states of all steps.
    fn direction(&self, g: &mut Importer, direction: usize) -> Result<Vec<ValueId>> {
        let (batch, hidden, rows) = (self.batch, self.hidden, self.cell.gates() * self.hidden);
        let dtype = g.ty(self.x).dtype;
        let part = |g: &mut Importer, whole: ValueId, shape: &[i64]| {
            let part = g.slice(whole, 0, direction as i64, direction as i64 + 1)?;
            g.reshape_to(part, shape.to_vec())
        };
        let biases = match self.bias {
            Some(bias) => {
                let both = part(g, bias, &[2 * rows])?;
                Some((g.slice(both, 0, 0, rows)?, g.slice(both, 0, rows, 2 * rows)?))
            }
            None => None,
        };
        let (inputs, hidden_bias) = self.input_sums(g, direction, biases)?;
        let mut operands = vec![];
        for initial in &self.initial {
            operands.push(match initial {
                Some(state) => part(g, *state, &[batch, hidden])?,
                None => g.zeros(dtype, &[batch, hidden])?,
            });
        }
        operands.extend(inputs);
        operands.extend(self.mask);
        let recurrent = self.recurrent_weights(g, direction)?;
        operands.extend(&recurrent);
        operands.extend(hidden_bias);
        if let Some(peepholes) = self.peepholes {
            operands.push(part(g, peepholes, &[3 * hidden])?);
        }
        let (carried, scanned) = (self.initial.len(), self.cell.products().len() + self.mask.is_some() as usize);
        let types = operands.iter().enumerate().map(|(i, &v)| {
            let ty = g.ty(v);
            let is_scanned = (carried..carried + scanned).contains(&i);
            TensorType { dtype: ty.dtype, shape: ty.shape[is_scanned as usize..].to_vec() }
        });
        let types: Vec<TensorType> = types.collect();
        let body = g.body(&types, |b, values| self.step(b, direction, recurrent.len(), values))?;
        let reverse = vec![self.directions[direction]; scanned + self.all_steps as usize];
        g.emit_scan(Op::Scan { trips: self.steps, carried, reverse, conditional: false, body }, &operands)
    }

    /// The last states, zeros where a sequence has no step.
    fn of_sequences(&self, g: &mut Importer, state: ValueId) -> Result<ValueId> {
        let Some(mask) = self.mask else { return Ok(state) };
        if self.steps == 0 {
            return g.zeros(g.ty(state).dtype, &[self.batch, self.hidden]);
        }
        let any = g.slice(mask, 0, 0, 1)?;
        let any = g.reshape_to(any, vec![self.batch, 1])?;
        if g.graph.constant(any).is_some_and(|any| any.data.iter().all(|&b| b != 0)) {
            return Ok(state);
        }
        let zero = g.scalar_like(state, 0.0)?;
        g.select(any, state, zero)
    }

    /// The weights of one direction, with their scale and their zero point where they are quantised.
    fn weights_of(&self, g: &mut Importer, direction: usize, second: bool) -> Result<(ValueId, Option<Quantised>)> {
        let part = |g: &mut Importer, whole: ValueId| {
            let part = g.slice(whole, 0, direction as i64, direction as i64 + 1)?;
            let shape = g.shape(part)[usize::from(g.rank(part) > 1)..].to_vec();
            g.reshape_to(part, shape)
        };
        let weights = part(g, if second { self.recurrent } else { self.weights })?;
        let Some(by) = self.quantised.map(|by| by[usize::from(second)]) else { return Ok((weights, None)) };
        let zero = by.zero.map(|zero| part(g, zero)).transpose()?;
        Ok((weights, Some(Quantised { scale: part(g, by.scale)?, zero })))
    }

    /// Recurrent weights that a step reads: a matrix for each product; or exact weights and their scale.
    fn recurrent_weights(&self, g: &mut Importer, direction: usize) -> Result<Vec<ValueId>> {
        let (weights, by) = self.weights_of(g, direction, true)?;
        if let Some(by) = by {
            return Ok(vec![exact_weights(g, weights, by.zero)?, by.scale]);
        }
        let mut matrices = vec![];
        for (start, end) in self.cell.products() {
            let weights = g.slice(weights, 0, start * self.hidden, end * self.hidden)?;
            matrices.push(transpose(g, weights, &[1, 0])?);
        }
        Ok(matrices)
    }

    /// The products of the inputs of all steps with the weights, and the biases that can be added before the steps: steps × batch
    /// × gates, for each product of a step. And the bias of the recurrent product that a gate multiplies.
    fn input_sums(
        &self,
        g: &mut Importer,
        direction: usize,
        biases: Option<(ValueId, ValueId)>,
    ) -> Result<(Vec<ValueId>, Option<ValueId>)> {
        let rows = self.cell.gates() * self.hidden;
        let features = g.shape(self.x)[2];
        let x = g.reshape_to(self.x, vec![self.steps * self.batch, features])?;
        let (weights, by) = self.weights_of(g, direction, false)?;
        let (mut bias, mut inside) = (None, None);
        if let Some((of_inputs, mut of_states)) = biases {
            if self.cell == (Cell::Gru { linear_before_reset: true }) {
                inside = Some(g.slice(of_states, 0, 2 * self.hidden, rows)?);
                let gates = g.slice(of_states, 0, 0, 2 * self.hidden)?;
                let zeros = g.zeros(g.ty(gates).dtype, &[self.hidden])?;
                of_states = g.emit(Op::Concat { axis: 0 }, &[gates, zeros])?;
            }
            bias = Some(g.binary(BinaryOp::Add, of_inputs, of_states)?);
        }
        let mut sums = vec![];
        for (start, end) in self.cell.products() {
            let (start, end) = (start * self.hidden, end * self.hidden);
            let mut sum = match by {
                // a quantised layer has one product
                Some(by) => {
                    let weights = exact_weights(g, weights, by.zero)?;
                    dynamic_product(g, x, weights, by.scale)?
                }
                None => {
                    let weights = g.slice(weights, 0, start, end)?;
                    g.emit(Op::MatMul { transpose_a: false, transpose_b: true }, &[x, weights])?
                }
            };
            if let Some(bias) = bias {
                let bias = g.slice(bias, 0, start, end)?;
                sum = g.binary(BinaryOp::Add, sum, bias)?;
            }
            sums.push(g.reshape_to(sum, vec![self.steps, self.batch, end - start])?);
        }
        Ok((sums, inside))
    }

    /// One step: the next states, and the hidden one again where all are read. Its recurrent weights are `matrices` values.
    fn step(&self, b: &mut Importer, direction: usize, matrices: usize, values: &[ValueId]) -> Result<Vec<ValueId>> {
        let mut values = values.iter().copied();
        let mut next = || values.next().ok_or_else(|| Error::Internal("a step without its values".into()));
        let states = self.initial.iter().map(|_| next()).collect::<Result<Vec<_>>>()?;
        let products = self.cell.products();
        let inputs = products.iter().map(|_| next()).collect::<Result<Vec<_>>>()?;
        let mask = self.mask.map(|_| next()).transpose()?;
        let recurrent = (0..matrices).map(|_| next()).collect::<Result<Vec<_>>>()?;
        let functions = &self.activations[direction * self.cell.activations().len()..];
        let (h, mut further) = (states[0], values.collect::<Vec<_>>());
        let made = match self.cell {
            Cell::Lstm { input_forget } => {
                let peepholes = self.peepholes.and_then(|_| further.pop());
                let product = match (self.quantised, &recurrent[..]) {
                    (Some(_), &[weights, scale]) => dynamic_product(b, h, weights, scale)?,
                    _ => b.product(h, recurrent[0])?,
                };
                let sums = b.binary(BinaryOp::Add, product, inputs[0])?;
                self.lstm_step(b, functions, [states[1], sums], peepholes, input_forget)?
            }
            Cell::Gru { linear_before_reset } => {
                vec![self.gru_step(b, functions, h, [&inputs, &recurrent], further.pop(), linear_before_reset)?]
            }
            Cell::Rnn => {
                let product = b.product(h, recurrent[0])?;
                let sum = b.binary(BinaryOp::Add, product, inputs[0])?;
                vec![self.activate(b, &functions[0], sum)?]
            }
        };
        let (mut results, mut shown) = (made.clone(), made[0]);
        if let Some(mask) = mask {
            let zero = b.scalar_like(h, 0.0)?;
            shown = b.select(mask, made[0], zero)?;
            for (result, &state) in results.iter_mut().zip(&states) {
                *result = b.select(mask, *result, state)?;
            }
        }
        results.extend(self.all_steps.then_some(shown));
        Ok(results)
    }

    fn lstm_step(
        &self,
        b: &mut Importer,
        functions: &[Activation],
        [c, sums]: [ValueId; 2],
        peepholes: Option<ValueId>,
        input_forget: bool,
    ) -> Result<Vec<ValueId>> {
        // Peepholes stand in the order of the gates: input, output, forget.
        let looked = |b: &mut Importer, gate: i64, cell: ValueId| -> Result<ValueId> {
            let sum = self.gate(b, sums, gate)?;
            let Some(peepholes) = peepholes else { return Ok(sum) };
            let weights = b.slice(peepholes, 0, gate * self.hidden, (gate + 1) * self.hidden)?;
            let looked = b.binary(BinaryOp::Mul, weights, cell)?;
            b.binary(BinaryOp::Add, sum, looked)
        };
        let input = looked(b, 0, c)?;
        let input = self.activate(b, &functions[0], input)?;
        let forget = if input_forget {
            let one = b.scalar_like(input, 1.0)?;
            b.binary(BinaryOp::Sub, one, input)?
        } else {
            let forget = looked(b, 2, c)?;
            self.activate(b, &functions[0], forget)?
        };
        let new = self.gate(b, sums, 3)?;
        let new = self.activate(b, &functions[1], new)?;
        let (kept, added) = (b.binary(BinaryOp::Mul, forget, c)?, b.binary(BinaryOp::Mul, input, new)?);
        let cell = b.binary(BinaryOp::Add, kept, added)?;
        let output = looked(b, 1, cell)?;
        let output = self.activate(b, &functions[0], output)?;
        let shown = functions[2].apply(b, cell)?;
        Ok(vec![b.binary(BinaryOp::Mul, output, shown)?, cell])
    }

    fn gru_step(
        &self,
        b: &mut Importer,
        functions: &[Activation],
        h: ValueId,
        [inputs, recurrent]: [&[ValueId]; 2],
        hidden_bias: Option<ValueId>,
        linear_before_reset: bool,
    ) -> Result<ValueId> {
        let gates = 2 * self.hidden;
        let rows = 3 * self.hidden;
        let products = b.product(h, recurrent[0])?;
        let sums = b.binary(BinaryOp::Add, products, inputs[0])?;
        let update = self.gate(b, sums, 0)?;
        let update = self.activate(b, &functions[0], update)?;
        let reset = self.gate(b, sums, 1)?;
        let reset = self.activate(b, &functions[0], reset)?;
        let (of_hidden, inputs) = if linear_before_reset {
            let mut product = b.slice(products, 1, gates, rows)?;
            if let Some(bias) = hidden_bias {
                product = b.binary(BinaryOp::Add, product, bias)?;
            }
            (b.binary(BinaryOp::Mul, reset, product)?, b.slice(inputs[0], 1, gates, rows)?)
        } else {
            let kept = b.binary(BinaryOp::Mul, reset, h)?;
            (b.product(kept, recurrent[1])?, inputs[1])
        };
        let new = b.binary(BinaryOp::Add, of_hidden, inputs)?;
        let new = self.activate(b, &functions[1], new)?;
        // (1 - update)·new + update·h
        let one = b.scalar_like(h, 1.0)?;
        let share = b.binary(BinaryOp::Sub, one, update)?;
        let (added, kept) = (b.binary(BinaryOp::Mul, share, new)?, b.binary(BinaryOp::Mul, update, h)?);
        b.binary(BinaryOp::Add, added, kept)
    }

    /// The columns of one gate.
    fn gate(&self, b: &mut Importer, sums: ValueId, gate: i64) -> Result<ValueId> {
        b.slice(sums, 1, gate * self.hidden, (gate + 1) * self.hidden)
    }

    fn activate(&self, b: &mut Importer, function: &Activation, x: ValueId) -> Result<ValueId> {
        let x = clipped(b, x, self.clip)?;
        function.apply(b, x)
    }
}
