//! Small functions, their inputs, and comparison of results.

use crate::codegen::vcode::execute;
use crate::codegen::vcode::{Addr, Function, Gpr, Inst, Vreg};
use crate::runtime::DType;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// An argument buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub dtype: DType,
    pub bytes: Vec<u8>,
}

/// A function with inputs; the interpreter says what they become.
pub struct Case {
    pub function: Function,
    pub buffers: Vec<Buffer>,
    pub range: (i64, i64),
}

impl Case {
    /// The buffers after the run.
    pub fn expected(&self) -> Vec<Vec<u8>> {
        let mut buffers: Vec<Vec<u8>> = self.buffers.iter().map(|b| b.bytes.clone()).collect();
        execute::run(&self.function, &mut buffers, self.range.0, self.range.1)
            .unwrap_or_else(|e| panic!("{e}\n{:#?}", self.function.insts));
        buffers
    }

    /// The first difference in bits, not-a-numbers being all the same.
    pub fn difference(&self, expected: &[Vec<u8>], found: &[Vec<u8>]) -> Option<String> {
        for (k, (expected, found)) in expected.iter().zip(found).enumerate() {
            let dtype = self.buffers[k].dtype;
            for (i, (e, f)) in expected.chunks(dtype.bytes()).zip(found.chunks(dtype.bytes())).enumerate() {
                let both_nan = match dtype {
                    DType::F32 => is_nan32(e) && is_nan32(f),
                    DType::F64 => is_nan64(e) && is_nan64(f),
                    _ => false,
                };
                if e != f && !both_nan {
                    return Some(format!(
                        "{}: element {i} of argument {k} ({dtype}) is {f:02x?}, not {e:02x?}",
                        self.function.name
                    ));
                }
            }
        }
        None
    }
}

fn is_nan32(b: &[u8]) -> bool {
    b.len() == 4 && f32::from_le_bytes([b[0], b[1], b[2], b[3]]).is_nan()
}

fn is_nan64(b: &[u8]) -> bool {
    b.len() == 8 && f64::from_le_bytes(b.try_into().unwrap()).is_nan()
}

/// Elements of `dtype`: ordinary ones, and the special ones of floats unless `tame`.
pub fn data(dtype: DType, count: usize, seed: u64, tame: bool) -> Buffer {
    let mut rng = StdRng::seed_from_u64(seed);
    let bytes = (0..count).flat_map(|_| element(dtype, &mut rng, tame)).collect();
    Buffer { dtype, bytes }
}

fn element(dtype: DType, rng: &mut StdRng, tame: bool) -> Vec<u8> {
    let special = !tame && rng.random_range(0..4) == 0;
    match dtype {
        DType::F32 if special => {
            let all = [f32::NAN, f32::INFINITY, -f32::INFINITY, 0.0, -0.0, 1e-40, f32::MAX, 2.5, -0.5];
            all[rng.random_range(0..all.len())].to_le_bytes().to_vec()
        }
        DType::F64 if special => {
            let all = [f64::NAN, f64::INFINITY, -f64::INFINITY, 0.0, -0.0, 1e-310, f64::MAX, 2.5, -0.5];
            all[rng.random_range(0..all.len())].to_le_bytes().to_vec()
        }
        DType::F32 => rng.random_range(-100f32..100.0).to_le_bytes().to_vec(),
        DType::F64 => rng.random_range(-100f64..100.0).to_le_bytes().to_vec(),
        DType::I64 if special => {
            let all = [i64::MIN, i64::MAX, 0, -1, 1 << 32, (1 << 53) + 1, -(1 << 40) - 1];
            all[rng.random_range(0..all.len())].to_le_bytes().to_vec()
        }
        DType::I64 if rng.random() => rng.random::<i64>().to_le_bytes().to_vec(),
        DType::I64 => rng.random_range(-50i64..50).to_le_bytes().to_vec(),
        DType::I32 if special => rng.random::<i32>().to_le_bytes().to_vec(),
        DType::I32 => rng.random_range(-50i32..50).to_le_bytes().to_vec(),
        DType::I16 | DType::U16 if !special && rng.random() => rng.random_range(0..50u16).to_le_bytes().to_vec(),
        DType::F16 | DType::BF16 | DType::I16 | DType::U16 => rng.random::<u16>().to_le_bytes().to_vec(),
        DType::Bool => vec![rng.random::<bool>() as u8],
        _ => vec![rng.random::<u8>()],
    }
}

/// Builds functions.
#[derive(Default)]
pub struct Builder {
    pub function: Function,
}

impl Builder {
    pub fn new(name: impl Into<String>) -> Builder {
        Builder { function: Function { name: name.into(), ..Function::default() } }
    }
    pub fn gpr(&mut self) -> Gpr {
        self.function.gprs += 1;
        Gpr(self.function.gprs - 1)
    }
    pub fn vreg(&mut self) -> Vreg {
        self.function.vregs += 1;
        Vreg(self.function.vregs - 1)
    }
    pub fn push(&mut self, inst: Inst) {
        self.function.insts.push(inst);
    }
    pub fn argument(&mut self, slot: u32) -> Gpr {
        let dst = self.gpr();
        self.push(Inst::Argument { dst, slot });
        dst
    }
    pub fn imm(&mut self, value: i64) -> Gpr {
        let dst = self.gpr();
        self.push(Inst::Imm { dst, value });
        dst
    }
}

pub fn at(base: Gpr, disp: i32) -> Addr {
    Addr { base, index: None, disp }
}
