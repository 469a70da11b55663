//! Text of attributes, in both directions: each format prints a value between an operator's brackets and parses it again.
//!
//! In: an attribute, or the words between brackets such as `3x3 stride=2x2 nhwc`. Out: the words, or the attribute.
//! Invariant: parsing what a format prints gives the same value.

use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::graph::op::attributes::{F32, Layout, PoolKind, ReduceOp, Window, joined};
use crate::graph::op::body::{self, Body};
use crate::graph::text::words::{Parsed, dtype_named, list};
use crate::runtime::DType;
use std::fmt::Display;
use std::str::FromStr;

/// The mnemonic of an operator and the text between its brackets.
pub struct Attributes<'a> {
    pub mnemonic: &'a str,
    pub text: &'a str,
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

    fn required(&self, key: &str) -> Parsed<&'a str> {
        self.value(key).ok_or_else(|| format!("expected `{key}=`"))
    }
}

fn number<T: FromStr>(text: &str) -> Parsed<T> {
    text.trim().parse().map_err(|_| format!("`{}` is not a number", text.trim()))
}

fn numbers<T: FromStr>(text: &str, separator: &str) -> Parsed<Vec<T>> {
    text.split(separator).filter(|part| !part.trim().is_empty()).map(number).collect()
}

/// How one attribute, or several together, are written.
pub trait Format<T> {
    /// The words of a value; `None` where it is the default, or told by the mnemonic.
    fn print(&self, value: &T) -> Option<String>;
    fn parse(&self, attributes: &Attributes) -> Parsed<T>;
}

/// Told by the mnemonic, through this function.
pub struct Mnemonic<T>(pub fn(&str) -> Option<T>);

impl<T> Format<T> for Mnemonic<T> {
    fn print(&self, _: &T) -> Option<String> {
        None
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<T> {
        (self.0)(attributes.mnemonic).ok_or_else(|| format!("`{}` is not an operator", attributes.mnemonic))
    }
}

pub fn unary(name: &str) -> Option<UnaryOp> {
    UnaryOp::ALL.iter().copied().find(|op| op.name() == name)
}

pub fn binary(name: &str) -> Option<BinaryOp> {
    BinaryOp::ALL.iter().copied().find(|op| op.name() == name)
}

pub fn compare(name: &str) -> Option<CompareOp> {
    CompareOp::ALL.iter().copied().find(|op| op.name() == name)
}

/// A number as the whole text.
pub struct Whole;

impl<T: Display + FromStr> Format<T> for Whole {
    fn print(&self, value: &T) -> Option<String> {
        Some(value.to_string())
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<T> {
        number(attributes.text)
    }
}

/// An element type as the whole text.
pub struct ElementType;

impl Format<DType> for ElementType {
    fn print(&self, value: &DType) -> Option<String> {
        Some(value.to_string())
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<DType> {
        dtype_named(attributes.text)
    }
}

/// `key=value`.
pub struct Key(pub &'static str);

impl<T: Display + FromStr> Format<T> for Key {
    fn print(&self, value: &T) -> Option<String> {
        Some(format!("{}={value}", self.0))
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<T> {
        number(attributes.required(self.0)?)
    }
}

/// `key=1e-5`.
pub struct Scientific(pub &'static str);

impl Format<F32> for Scientific {
    fn print(&self, value: &F32) -> Option<String> {
        Some(format!("{}={:e}", self.0, value.get()))
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<F32> {
        number(attributes.required(self.0)?)
    }
}

/// `group=2`; left out where it is 1.
pub struct Group;

impl Format<i64> for Group {
    fn print(&self, value: &i64) -> Option<String> {
        (*value != 1).then(|| format!("group={value}"))
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<i64> {
        attributes.value("group").map_or(Ok(1), number)
    }
}

/// A word that is there or not.
pub struct Flag(pub &'static str);

impl Format<bool> for Flag {
    fn print(&self, value: &bool) -> Option<String> {
        value.then(|| self.0.to_string())
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<bool> {
        Ok(attributes.has(self.0))
    }
}

/// Numbers as the whole text, with this separator.
pub struct List(pub &'static str);

impl<T: Display + FromStr> Format<Vec<T>> for List {
    fn print(&self, value: &Vec<T>) -> Option<String> {
        Some(joined(value, self.0))
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<Vec<T>> {
        numbers(attributes.text, self.0)
    }
}

/// `key=1,2`.
pub struct KeyList(pub &'static str);

impl<T: Display + FromStr> Format<Vec<T>> for KeyList {
    fn print(&self, value: &Vec<T>) -> Option<String> {
        Some(format!("{}={}", self.0, joined(value, ",")))
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<Vec<T>> {
        numbers(attributes.required(self.0)?, ",")
    }
}

/// Starts, ends and steps as the whole text: `0..3, 5..1 by -2`.
pub struct Ranges;

type Triple = (Vec<i64>, Vec<i64>, Vec<i64>);

impl Format<Triple> for Ranges {
    fn print(&self, (starts, ends, steps): &Triple) -> Option<String> {
        let range = |d: usize| match steps[d] {
            1 => format!("{}..{}", starts[d], ends[d]),
            step => format!("{}..{} by {step}", starts[d], ends[d]),
        };
        Some(joined(&(0..starts.len()).map(range).collect::<Vec<_>>(), ", "))
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<Triple> {
        let (mut starts, mut ends, mut steps) = (vec![], vec![], vec![]);
        for range in list(attributes.text) {
            let (range, step) = range.split_once(" by ").unwrap_or((range, "1"));
            let (start, end) =
                range.split_once("..").ok_or_else(|| format!("expected `start..end`, found `{range}`"))?;
            starts.push(number(start)?);
            ends.push(number(end)?);
            steps.push(number(step)?);
        }
        Ok((starts, ends, steps))
    }
}

/// Padding before and after each dimension as the first word: `0,2:1,0`.
pub struct Sides;

impl Format<(Vec<i64>, Vec<i64>)> for Sides {
    fn print(&self, (before, after): &(Vec<i64>, Vec<i64>)) -> Option<String> {
        Some(format!("{}:{}", joined(before, ","), joined(after, ",")))
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<(Vec<i64>, Vec<i64>)> {
        let (before, after) = attributes.word(0)?.split_once(':').ok_or("expected `before:after`")?;
        Ok((numbers(before, ",")?, numbers(after, ",")?))
    }
}

/// A reduction's name as the first word.
pub struct Reduction;

impl Format<ReduceOp> for Reduction {
    fn print(&self, value: &ReduceOp) -> Option<String> {
        Some(value.name().to_string())
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<ReduceOp> {
        let word = attributes.word(0)?;
        let op = ReduceOp::ALL.iter().find(|op| op.name() == word);
        op.copied().ok_or_else(|| format!("`{word}` is not a reduction"))
    }
}

/// The operation of an update as a word; left out where an update replaces.
pub struct Update;

impl Format<Option<BinaryOp>> for Update {
    fn print(&self, value: &Option<BinaryOp>) -> Option<String> {
        value.map(|op| op.name().to_string())
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<Option<BinaryOp>> {
        Ok(attributes.words().find_map(binary))
    }
}

/// The mnemonic tells the kind of a pool, `count_padding` that an average counts padding.
pub struct PoolKinds;

impl Format<PoolKind> for PoolKinds {
    fn print(&self, value: &PoolKind) -> Option<String> {
        (*value == PoolKind::Average { count_padding: true }).then(|| "count_padding".to_string())
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<PoolKind> {
        Ok(match attributes.mnemonic {
            "max_pool" => PoolKind::Max,
            _ => PoolKind::Average { count_padding: attributes.has("count_padding") },
        })
    }
}

/// `nchw`, `nhwc` or `nchw16c`.
pub struct LayoutWord;

impl Format<Layout> for LayoutWord {
    fn print(&self, value: &Layout) -> Option<String> {
        Some(value.to_string())
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<Layout> {
        let layouts = attributes.words().filter_map(|word| match word {
            "nchw" => Some(Layout::Nchw),
            "nhwc" => Some(Layout::Nhwc),
            _ => word.strip_prefix("nchw")?.strip_suffix('c')?.parse().ok().map(Layout::Blocked),
        });
        layouts.last().ok_or_else(|| "expected a layout: `nchw`, `nhwc` or `nchw16c`".into())
    }
}

/// `3x3 stride=2x2 dilation=2x2 pad=1x1:0x0`.
pub struct Windows;

impl Format<Window> for Windows {
    fn print(&self, value: &Window) -> Option<String> {
        Some(value.to_string())
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<Window> {
        let kernel: Vec<i64> = numbers(attributes.word(0)?, "x")?;
        let ones = vec![1; kernel.len()];
        let list = |key: &str, default: &[i64]| match attributes.value(key) {
            Some(text) => numbers(text, "x"),
            None => Ok(default.to_vec()),
        };
        let pads = attributes.value("pad").map(|pad| pad.split_once(':').unwrap_or((pad, pad)));
        let (pad_before, pad_after) = match pads {
            Some((before, after)) => (numbers(before, "x")?, numbers(after, "x")?),
            None => (vec![0; kernel.len()], vec![0; kernel.len()]),
        };
        Ok(Window { stride: list("stride", &ones)?, dilation: list("dilation", &ones)?, kernel, pad_before, pad_after })
    }
}

/// `dilation=2,1`; left out where it is 1 for each element of the named list.
pub struct Dilations(pub &'static str);

impl Format<Vec<i64>> for Dilations {
    fn print(&self, value: &Vec<i64>) -> Option<String> {
        value.iter().any(|&d| d != 1).then(|| format!("dilation={}", joined(value, ",")))
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<Vec<i64>> {
        match attributes.value("dilation") {
            Some(dilation) => numbers(dilation, ","),
            None => Ok(vec![1; numbers::<i64>(attributes.required(self.0)?, ",")?.len()]),
        }
    }
}

/// `output_pad=1x0`; left out where it is 0 in each dimension of the window.
pub struct OutputPad;

impl Format<Vec<i64>> for OutputPad {
    fn print(&self, value: &Vec<i64>) -> Option<String> {
        value.iter().any(|&p| p != 0).then(|| format!("output_pad={}", joined(value, "x")))
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<Vec<i64>> {
        match attributes.value("output_pad") {
            Some(pad) => numbers(pad, "x"),
            None => Ok(vec![0; Windows.parse(attributes)?.kernel.len()]),
        }
    }
}

/// `key={ … }`: the text of a graph.
pub struct Block(pub &'static str);

impl Format<Body> for Block {
    fn print(&self, value: &Body) -> Option<String> {
        Some(format!("{}={value}", self.0))
    }
    fn parse(&self, attributes: &Attributes) -> Parsed<Body> {
        let text = body::block(attributes.text, self.0).ok_or_else(|| format!("expected `{}={{ … }}`", self.0))?;
        Body::parse(text)
    }
}
