//! Operators from their text: the mnemonic with attributes in brackets, as `Display` of [`Op`] writes them.

use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::op::{F32, Layout, Op, PoolKind, ReduceOp, Window};
use crate::graph::text::words::{Parsed, dtype_named, list};
use crate::runtime::opaque;
use std::str::FromStr;

/// The operator that `text` says, such as `conv[3x3 pad=1x1 nhwc]`.
pub fn parse(text: &str) -> Parsed<Op> {
    let (mnemonic, attributes) = match text.split_once('[') {
        Some((mnemonic, rest)) => {
            (mnemonic, rest.strip_suffix(']').ok_or_else(|| format!("expected `]` after the attributes of `{text}`"))?)
        }
        None => (text, ""),
    };
    let op = operator(mnemonic.trim(), &Attributes { text: attributes.trim() })?;
    // What the operator does not print it did not read.
    match op.to_string() == text.trim() {
        true => Ok(op),
        false => Err(format!("`{text}` is written `{op}`")),
    }
}

fn operator(mnemonic: &str, a: &Attributes) -> Parsed<Op> {
    if let Some(&op) = UnaryOp::ALL.iter().find(|op| op.name() == mnemonic) {
        return Ok(Op::Unary(op));
    }
    if let Some(&op) = BinaryOp::ALL.iter().find(|op| op.name() == mnemonic) {
        return Ok(Op::Binary(op));
    }
    if let Some(&op) = CompareOp::ALL.iter().find(|op| op.name() == mnemonic) {
        return Ok(Op::Compare(op));
    }
    Ok(match mnemonic {
        "select" => Op::Select,
        "cast" => Op::Cast(dtype_named(a.text)?),
        "sigmoid" => Op::Sigmoid,
        "silu" => Op::Silu,
        "hard_sigmoid" => Op::HardSigmoid { alpha: a.real("alpha")?, beta: a.real("beta")? },
        "hard_swish" => Op::HardSwish,
        "gelu" => Op::Gelu,
        "elu" => Op::Elu { alpha: a.real("alpha")?, scale: a.real("scale")?, divisor: a.real("divisor")? },
        "thresholded_relu" => Op::ThresholdedRelu { alpha: a.real("alpha")? },
        "prelu" => Op::PRelu,
        "transpose" => Op::Transpose { perm: numbers(a.text, ',')? },
        "reshape" => Op::Reshape { shape: numbers(a.text, ',')? },
        "expand" => Op::Expand { shape: numbers(a.text, ',')? },
        "slice" => slice(a)?,
        "concat" => Op::Concat { axis: a.number("axis")? },
        "pad" => {
            let (before, after) = a.word(0)?.split_once(':').ok_or("expected `before:after`")?;
            Op::Pad { before: numbers(before, ',')?, after: numbers(after, ',')?, value: a.number("bits")? }
        }
        "block" => Op::Block { block: number(a.text)? },
        "unblock" => Op::Unblock { channels: number(a.text)? },
        "upsample" => Op::Upsample { factors: numbers(a.text, 'x')? },
        "gather" => Op::Gather { axis: a.number("axis")? },
        "gather_elements" => Op::GatherElements { axis: a.number("axis")? },
        "gather_nd" => Op::GatherNd { batch_dims: a.number("batch_dims")? },
        "softmax" => Op::Softmax { axis: a.number("axis")?, log: false },
        "log_softmax" => Op::Softmax { axis: a.number("axis")?, log: true },
        "layer_norm" => Op::LayerNorm { axis: a.number("axis")?, epsilon: a.real("epsilon")? },
        "max_pool" => Op::Pool { kind: PoolKind::Max, window: a.window()?, layout: a.layout()? },
        "average_pool" => {
            let kind = PoolKind::Average { count_padding: a.has("count_padding") };
            Op::Pool { kind, window: a.window()?, layout: a.layout()? }
        }
        "matmul" => Op::MatMul { transpose_a: a.has("a^T"), transpose_b: a.has("b^T") },
        "conv" => Op::Conv { window: a.window()?, group: a.group()?, layout: a.layout()? },
        "conv_transpose" => {
            let window = a.window()?;
            let output_pad = match a.value("output_pad") {
                Some(pad) => numbers(pad, 'x')?,
                None => vec![0; window.kernel.len()],
            };
            Op::ConvTranspose { group: a.group()?, layout: a.layout()?, window, output_pad }
        }
        _ if mnemonic == "reduce" || mnemonic.starts_with("reduce_") => reduce(a)?,
        _ if opaque::lookup(mnemonic).is_some() => {
            Op::Opaque { function: mnemonic.into(), attributes: numbers(a.text, ',')? }
        }
        _ => return Err(format!("`{mnemonic}` is not an operator")),
    })
}

fn reduce(a: &Attributes) -> Parsed<Op> {
    let word = a.word(0)?;
    let op = ReduceOp::ALL.iter().find(|op| op.name() == word);
    let op = *op.ok_or_else(|| format!("`{word}` is not a reduction"))?;
    let axes = numbers(a.value("axes").ok_or("expected `axes=`")?, ',')?;
    Ok(Op::Reduce { op, axes, keep: a.has("keep") })
}

/// `0..3, 5..1 by -2`.
fn slice(a: &Attributes) -> Parsed<Op> {
    let (mut starts, mut ends, mut steps) = (vec![], vec![], vec![]);
    for range in list(a.text) {
        let (range, step) = range.split_once(" by ").unwrap_or((range, "1"));
        let (start, end) = range.split_once("..").ok_or_else(|| format!("expected `start..end`, found `{range}`"))?;
        starts.push(number(start)?);
        ends.push(number(end)?);
        steps.push(number(step)?);
    }
    Ok(Op::Slice { starts, ends, steps })
}

fn number<T: FromStr>(text: &str) -> Parsed<T> {
    text.trim().parse().map_err(|_| format!("`{}` is not a number", text.trim()))
}

fn numbers<T: FromStr>(text: &str, separator: char) -> Parsed<Vec<T>> {
    text.split(separator).filter(|part| !part.trim().is_empty()).map(number).collect()
}

/// The words between the brackets.
struct Attributes<'a> {
    text: &'a str,
}

impl<'a> Attributes<'a> {
    fn words(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.text.split_whitespace()
    }

    fn word(&self, position: usize) -> Parsed<&'a str> {
        self.words().nth(position).ok_or_else(|| "attributes are missing".into())
    }

    fn has(&self, word: &str) -> bool {
        self.words().any(|w| w == word)
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.words().find_map(|word| word.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')))
    }

    fn number<T: FromStr>(&self, key: &str) -> Parsed<T> {
        number(self.value(key).ok_or_else(|| format!("expected `{key}=`"))?)
    }

    fn real(&self, key: &str) -> Parsed<F32> {
        self.number(key).map(F32::new)
    }

    fn group(&self) -> Parsed<i64> {
        self.value("group").map_or(Ok(1), number)
    }

    fn layout(&self) -> Parsed<Layout> {
        let layouts = self.words().filter_map(|word| match word {
            "nchw" => Some(Layout::Nchw),
            "nhwc" => Some(Layout::Nhwc),
            _ => word.strip_prefix("nchw")?.strip_suffix('c')?.parse().ok().map(Layout::Blocked),
        });
        layouts.last().ok_or_else(|| "expected a layout: `nchw`, `nhwc` or `nchw16c`".into())
    }

    /// `3x3 stride=2x2 dilation=2x2 pad=1x1:0x0`.
    fn window(&self) -> Parsed<Window> {
        let kernel: Vec<i64> = numbers(self.word(0)?, 'x')?;
        let ones = vec![1; kernel.len()];
        let list = |key: &str, default: &[i64]| match self.value(key) {
            Some(text) => numbers(text, 'x'),
            None => Ok(default.to_vec()),
        };
        let pads = self.value("pad").map(|pad| pad.split_once(':').unwrap_or((pad, pad)));
        let (pad_before, pad_after) = match pads {
            Some((before, after)) => (numbers(before, 'x')?, numbers(after, 'x')?),
            None => (vec![0; kernel.len()], vec![0; kernel.len()]),
        };
        Ok(Window { stride: list("stride", &ones)?, dilation: list("dilation", &ones)?, kernel, pad_before, pad_after })
    }
}
