//! Mutations of bytes, and of the messages that they encode.

use super::choices::Choices;
use super::{corpus, network};
use prost::Message;
use tilewright::internal::graph::proto::ModelProto;

/// Changes bytes in one to four of the ways in which files break.
pub fn mutate(c: &mut Choices, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..c.pick(&[1, 1, 1, 2, 4]) {
        if bytes.is_empty() {
            return;
        }
        let (at, length) = (c.below(bytes.len()), 1 + c.below(8));
        match c.below(9) {
            0 => bytes[at] ^= 1 << c.below(8),
            1 => bytes[at] = c.below(256) as u8,
            2 if c.chance(30) => bytes.truncate(at + 1),
            3 => drop(bytes.splice(at..at, vec![c.below(256) as u8; length])),
            4 => drop(bytes.drain(at..(at + length).min(bytes.len()))),
            5 => {
                // a run of the file itself, elsewhere
                let end = (at + c.below(64)).min(bytes.len());
                let (run, to) = (bytes[at..end].to_vec(), c.below(bytes.len()));
                drop(bytes.splice(to..to, run));
            }
            6 => {
                let other = &others[c.below(others.len())];
                let from = c.below(other.len().max(1)).min(other.len());
                let end = (from + c.below(64)).min(other.len());
                drop(bytes.splice(at..at, other[from..end].iter().copied()));
            }
            7 => {
                let word = c.integer().to_le_bytes();
                let end = (at + 1 + c.below(8)).min(bytes.len());
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            _ => bytes[at] = c.pick(&[0, 1, 0x7f, 0x80, 0xff]),
        }
    }
}

fn mutated(c: &mut Choices, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[c.below(corpus.len())].clone();
    mutate(c, &mut bytes, corpus);
    bytes
}

/// A file of the fixtures with changed bytes, or with changed fields: the latter are still messages.
pub fn onnx(c: &mut Choices) -> Vec<u8> {
    let corpus = corpus::onnx();
    if c.chance(50) {
        return mutated(c, corpus);
    }
    let at = c.below(corpus.len());
    let Ok(mut model) = ModelProto::decode(&corpus[at][..]) else { return corpus[at].clone() };
    network::mutate(c, &mut model);
    model.encode_to_vec()
}

/// A module with changed bytes under a right checksum, so that the reader goes on to the description.
pub fn module(c: &mut Choices) -> Vec<u8> {
    let mut bytes = mutated(c, corpus::modules());
    if bytes.len() >= 40 && c.chance(95) {
        let checksum = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

pub fn npy(c: &mut Choices) -> Vec<u8> {
    mutated(c, corpus::npy())
}

pub fn value(c: &mut Choices) -> Vec<u8> {
    mutated(c, corpus::values())
}
