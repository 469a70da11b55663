//! A file of constants beside an object: 64 bytes that name what is in it, then the constants as in the module.

use crate::runtime::module::Weights;

/// Bytes before the constants, a multiple of their alignment.
pub const HEADER_BYTES: usize = 64;

/// The start of the file, which the driver compares: a word, the length and the checksum of the constants.
pub fn start(constants: &Weights) -> [u8; HEADER_BYTES] {
    let mut checksum = crc32fast::Hasher::new();
    constants.chunks().for_each(|chunk| checksum.update(chunk));
    let mut start = [0; HEADER_BYTES];
    start[..18].copy_from_slice(b"tilewright weights");
    start[24..32].copy_from_slice(&constants.len().to_le_bytes());
    start[32..36].copy_from_slice(&checksum.finalize().to_le_bytes());
    start
}

/// The contents of the file.
pub fn file(constants: &Weights) -> Vec<u8> {
    let mut bytes = start(constants).to_vec();
    constants.chunks().for_each(|chunk| bytes.extend_from_slice(chunk));
    bytes
}
