//! Untrusted input: generators of inputs, and what must hold of each.
//!
//! In: choices, from a seed or from the bytes of a fuzzer. Out: an input, and a complaint where the library panics, calls an
//! error its own defect, or computes something wrong. Signals, time and memory are for the process around to watch:
//! `tests/fuzz.rs` runs the targets with the plain toolchain, `fuzz_targets/` under libFuzzer. The same choices give the same
//! input on every machine.

#![allow(dead_code, reason = "the plain driver does not use what libFuzzer does")]

pub mod bytes;
pub mod check;
pub mod choices;
pub mod corpus;
pub mod growing;
pub mod network;
pub mod nodes;
pub mod operands;
pub mod texts;

use choices::Choices;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A generator of inputs, and what is done with each.
pub struct Target {
    pub name: &'static str,
    /// Extension of a file that holds an input.
    pub extension: &'static str,
    /// Inputs of a plain test run.
    pub count: u64,
    pub make: fn(&mut Choices) -> Vec<u8>,
    /// Returns true if the input was accepted, or a complaint.
    pub check: fn(&[u8]) -> Result<bool, String>,
}

/// All targets. Those whose names end in `_run` compile and run, the others read.
pub const TARGETS: &[Target] = &[
    Target { name: "onnx_read", extension: "onnx", count: 1500, make: bytes::onnx, check: check::onnx_read },
    Target { name: "onnx_run", extension: "onnx", count: 60, make: bytes::onnx, check: check::onnx_run },
    Target { name: "network_read", extension: "onnx", count: 60, make: network::make, check: check::onnx_read },
    Target { name: "network_run", extension: "onnx", count: 40, make: network::make, check: check::onnx_run },
    Target { name: "network_grow", extension: "onnx", count: 100, make: network::make, check: growing::network },
    Target { name: "tile_read", extension: "tile", count: 1500, make: texts::tile, check: check::tile_read },
    Target { name: "tile_run", extension: "tile", count: 25, make: texts::small_tile, check: check::tile_run },
    Target { name: "graph_text", extension: "txt", count: 1500, make: texts::graph, check: check::graph_text },
    Target { name: "module", extension: "tw", count: 1500, make: bytes::module, check: check::module },
    Target { name: "npy", extension: "npy", count: 3000, make: bytes::npy, check: check::npy },
    Target { name: "value", extension: "pb", count: 3000, make: bytes::value, check: check::value },
];

/// The target of this name.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("there is no target `{name}`"))
}

impl Target {
    /// Input `number` of a seed.
    pub fn input(&self, seed: u64, number: u64) -> Vec<u8> {
        (self.make)(&mut Choices::seeded(seed, number))
    }

    /// As `check`; a panic is a complaint.
    pub fn complaint(&self, input: &[u8]) -> Result<bool, String> {
        catch_unwind(AssertUnwindSafe(|| (self.check)(input))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message")))
        })
    }

    /// One input of libFuzzer: choices, where they make the input (`structured`), and otherwise the input itself.
    pub fn fuzz(&self, data: &[u8], structured: bool) {
        let made = structured.then(|| (self.make)(&mut Choices::of(data)));
        if let Err(complaint) = self.complaint(made.as_deref().unwrap_or(data)) {
            panic!("{}: {complaint}", self.name);
        }
    }
}
