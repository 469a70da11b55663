//! The check of a row against this processor: its code runs on data, and must give what its semantics give.
//!
//! Integers are extreme, random, and at the ends of their types; floats are small integers, whose sums are exact, then random. Integers and sums of small
//! integers are equal; random floats differ by at most 2(n + 1)·u·(|c| + Σ|term|), the bound of a sum of n terms in any order
//! (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2), where u is half a unit in the last place.

use crate::codegen::instruction::{Encoding, SumOrder, TILE_ROW_BYTES, TILE_ROWS, TILES, TensorInstruction};
use crate::expr::Var;
use crate::expr::narrow::dtype_range;
use crate::expr::scalar::Value;
use crate::runtime::executable::Executable;
use crate::runtime::{DType, Error, Features, Result, Tensor};

/// Trials with random data of each kind.
const ROUNDS: u64 = 40;

/// Registers that the test's code uses: those that no calling convention saves and that every encoding can name.
const REGISTERS: usize = 8;

/// The data of the trials whose results are exact.
fn exact_trials() -> impl Iterator<Item = Data> {
    let bytes = [0x00, 0x80, 0x7f, 0xff].map(Data::Extreme).into_iter();
    bytes.chain((0..ROUNDS).map(Data::Integers)).chain((0..ROUNDS).map(Data::Ends))
}

/// The kind of the data of a trial.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Data {
    /// Each byte of an integer; the smallest, the largest and -1 among them.
    Extreme(u8),
    /// Random bits of integers; floats from -8 to 8 without a fraction.
    Integers(u64),
    /// Integers at random among the least and the greatest of their type, 0, and their neighbours, so that sums leave the type; floats as above.
    Ends(u64),
    /// Random bits of integers; floats of many exponents.
    Reals(u64),
}

impl TensorInstruction {
    /// Returns true if this processor has the features that the code needs.
    pub fn runs_on_host(&self) -> bool {
        Features::host().contains(self.features)
    }

    /// Runs the code in this process and compares it with the semantics. Code that this processor refuses ends the process.
    ///
    /// # Errors
    /// [`Error::Invalid`] where [`TensorInstruction::check_code`] finds a difference, and at the first element that the code computes
    /// otherwise, with the values; [`Error::Unsupported`] where this processor
    /// lacks a feature or the row has more than eight operands and temporaries; [`Error::Io`] without executable memory.
    pub fn check_on_host(&self) -> Result<()> {
        if !self.runs_on_host() {
            let missing = self.features.without(Features::host()).names().join(" ");
            return Err(Error::Unsupported(format!("`{}` needs {missing}, which this processor lacks", self.name)));
        }
        self.check_code().map_err(|problem| Error::Invalid(format!("`{}`: {}", self.name, problem.message)))?;
        let code = Executable::new(&self.trial_code()?)?;
        let run = |mut registers: Vec<Vec<u8>>| {
            let arguments: Vec<*mut u8> = registers.iter_mut().map(|r| r.as_mut_ptr()).collect();
            // SAFETY: the code follows the convention of a phase, loads and stores `register_bytes` bytes at each argument, which
            // the registers have, and between that works on these registers alone, as `check_code` has proven; the features
            // that it needs are there.
            unsafe { code.phase(0)(arguments.as_ptr(), 0, 0, std::ptr::null_mut()) };
            registers
        };
        let results: Vec<Vec<Vec<u8>>> = self.trials().into_iter().map(run).collect();
        self.judge(&results)?;
        self.by_element().map_or(Ok(()), |row| row.check_on_host())
    }

    /// The contents of the operands' registers for each trial of the code, those with exact results first.
    pub fn trials(&self) -> Vec<Vec<Vec<u8>>> {
        exact_trials().chain((0..ROUNDS).map(Data::Reals)).map(|data| self.test_data(data)).collect()
    }

    /// Compares the contents of the operands' registers after each of the [trials](TensorInstruction::trials) with the semantics.
    ///
    /// # Errors
    /// [`Error::Invalid`] at the first difference, with the element and the values.
    pub fn judge(&self, results: &[Vec<Vec<u8>>]) -> Result<()> {
        let exact = exact_trials().count();
        let in_order = |order: &SumOrder| TensorInstruction { order: *order, ..self.clone() };
        let mut others: Vec<TensorInstruction> = SumOrder::ALL.iter().map(in_order).collect();
        others.retain(|other| other.order != self.order);
        let mut as_declared = true;
        for (n, (before, after)) in self.trials().iter().zip(results).enumerate() {
            let exactness = if n < exact { Exactness::Equal } else { Exactness::Bounded };
            let expected = self.result_of(before)?;
            self.compare_trial(before, after, &expected, exactness)?;
            as_declared &= n < exact || after[0] == expected;
            others.retain(|other| n < exact || other.result_of(before).is_ok_and(|result| after[0] == result));
        }
        match others.first() {
            Some(other) if !as_declared => {
                let text = format!("`{}` adds in another order: its sum is `{}`", self.name, other.order.word());
                Err(Error::Invalid(text))
            }
            _ => Ok(()),
        }
    }

    /// A phase that loads the operands from the arguments into registers, runs the code, and stores all operands.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the row has more than eight operands and temporaries.
    pub fn trial_code(&self) -> Result<Vec<u8>> {
        let needed = self.registers() + self.temporaries();
        if needed > REGISTERS {
            let text =
                format!("`{}` has {needed} operands, constants and temporaries, more than {REGISTERS}", self.name);
            return Err(Error::Unsupported(text));
        }
        let count = self.registers() as u8;
        let operands: Vec<u8> = (0..count).collect();
        let temporaries: Vec<u8> = (count..count + self.temporaries() as u8).collect();
        if self.is_tile() {
            return Ok(self.tile_trial(&operands, &temporaries));
        }
        let mut code = vec![];
        let aarch64 = matches!(self.code.first(), Some(Encoding::Aarch64 { .. }));
        let transfer = |n: u8, store: bool, code: &mut Vec<u8>| match aarch64 {
            true => {
                let pointer = 0xf940_0009 | (n as u32) << 10; // ldr x9, [x0, 8n]
                let vector = if store { 0x3d80_0120 } else { 0x3dc0_0120 } | n as u32; // str/ldr q, [x9]
                code.extend([pointer, vector].iter().flat_map(|word: &u32| word.to_le_bytes()));
            }
            false => {
                let opcode = if store { 0x7f } else { 0x6f };
                code.extend([0x48, 0x8b, 0x47, 8 * n]); // mov rax, [rdi + 8n]
                match self.vector_bytes() {
                    64 => code.extend([0x62, 0xf1, 0x7e, 0x48, opcode, n << 3]), // vmovdqu32 zmm, [rax]
                    32 => code.extend([0xc5, 0xfe, opcode, n << 3]),             // vmovdqu ymm, [rax]
                    _ => code.extend([0xc5, 0xfa, opcode, n << 3]),              // vmovdqu xmm, [rax]
                }
            }
        };
        operands.iter().for_each(|&n| transfer(n, false, &mut code));
        code.extend(self.bytes_of(&operands, &temporaries));
        operands.iter().for_each(|&n| transfer(n, true, &mut code));
        match aarch64 {
            true => code.extend(0xd65f_03c0u32.to_le_bytes()), // ret
            false => code.extend([0xc5, 0xf8, 0x77, 0xc3]),    // vzeroupper; ret
        }
        Ok(code)
    }

    /// Variant of [`TensorInstruction::trial_code`] for operands in tile registers, all of which are whole.
    fn tile_trial(&self, operands: &[u8], temporaries: &[u8]) -> Vec<u8> {
        let mut code = vec![];
        // mov ecx, 64; lea rax, [rip + shapes]; ldtilecfg [rax]
        code.extend([0xb9, TILE_ROW_BYTES as u8, 0, 0, 0, 0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc4, 0xe2, 0x78, 0x49, 0x00]);
        let transfer = |n: u8, store: bool, code: &mut Vec<u8>| {
            code.extend([0x48, 0x8b, 0x47, 8 * n]); // mov rax, [rdi + 8n]
            // tileloadd or tilestored of tmm at [rax + rcx]
            code.extend([0xc4, 0xe2, if store { 0x7a } else { 0x7b }, 0x4b, 0x04 | n << 3, 0x08]);
        };
        operands.iter().for_each(|&n| transfer(n, false, &mut code));
        code.extend(self.bytes_of(operands, temporaries));
        operands.iter().for_each(|&n| transfer(n, true, &mut code));
        code.extend([0xc4, 0xe2, 0x78, 0x49, 0xc0, 0xc3]); // tilerelease; ret
        let shapes = (code.len() - 12) as u32;
        code[8..12].copy_from_slice(&shapes.to_le_bytes());
        code.extend(tile_shapes(&[(TILE_ROWS, TILE_ROW_BYTES); TILES]));
        code
    }

    /// The bytes of the operands' registers in a trial.
    fn test_data(&self, data: Data) -> Vec<Vec<u8>> {
        let width = self.register_bytes();
        let operand = |n: usize| {
            let (dtype, count) = (self.operands[n].dtype, self.elements(n));
            let elements = within(self.operands[n].range, dtype, elements(dtype, count, data, n as u64));
            match n {
                0 => [elements, vec![0; width]].concat()[..width].to_vec(),
                n => self.register(n, &elements, width),
            }
        };
        let constant = self.constant_bits().map(|(dtype, bits)| {
            let bytes = bits.to_le_bytes();
            bytes[..dtype.bytes()].iter().copied().cycle().take(width).collect()
        });
        (0..self.operands.len()).map(operand).chain(constant).collect()
    }

    /// The values that element `element` of the accumulator is made of.
    fn inputs_of(&self, element: usize, registers: &[Vec<u8>]) -> String {
        let mut point = vec![0i64; self.iterators.len()];
        let mut rest = element as i64;
        for &v in self.operands[0].indices.iter().rev() {
            point[v.0 as usize] = rest % self.extent(v);
            rest /= self.extent(v);
        }
        let kept = &self.operands[0].indices;
        let values = |n: usize| {
            let o = &self.operands[n];
            let free: Vec<Var> = o.indices.iter().copied().filter(|v| !kept.contains(v)).collect();
            let count: i64 = free.iter().map(|&v| self.extent(v)).product();
            let value = |step: i64| {
                let (mut point, mut rest) = (point.clone(), step);
                for &v in free.iter().rev() {
                    point[v.0 as usize] = rest % self.extent(v);
                    rest /= self.extent(v);
                }
                let offset = o.indices.iter().fold(0, |offset, &v| offset * self.extent(v) + point[v.0 as usize]);
                show(Value::load(o.dtype, &registers[n][offset as usize * o.dtype.bytes()..]))
            };
            let values: Vec<String> = (0..count).map(value).collect();
            format!("{} = {}", o.name, if count == 1 { values[0].clone() } else { format!("[{}]", values.join(", ")) })
        };
        (0..self.operands.len()).map(values).collect::<Vec<_>>().join(", ")
    }
}

/// The memory operand of `ldtilecfg` for tile registers of so many rows and bytes of a row.
pub fn tile_shapes(shapes: &[(usize, usize); TILES]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 1; // the palette with eight tiles
    for (n, &(rows, width)) in shapes.iter().enumerate() {
        bytes[16 + 2 * n..][..2].copy_from_slice(&(width as u16).to_le_bytes());
        bytes[48 + n] = rows as u8;
    }
    bytes
}

/// Elements of one operand in a trial.
fn elements(dtype: DType, count: i64, data: Data, operand: u64) -> Vec<u8> {
    let random = |dtype, seed: u64, bound| Tensor::seeded(dtype, &[count], seed, operand, bound).data.to_vec();
    match data {
        Data::Extreme(byte) if !dtype.is_float() => vec![byte; count as usize * dtype.bytes()],
        Data::Integers(seed) | Data::Reals(seed) if !dtype.is_float() => {
            let words = random(DType::U64, seed, u64::MAX);
            words.chunks_exact(8).flat_map(|word| word[..dtype.bytes()].to_vec()).collect()
        }
        Data::Ends(seed) if !dtype.is_float() => ends(&random(DType::U64, seed, 7), dtype),
        Data::Reals(seed) => scattered(&random(DType::U64, seed, u64::MAX), dtype),
        Data::Extreme(seed) => small(&random(DType::U64, seed.into(), 17), dtype),
        Data::Integers(seed) | Data::Ends(seed) => small(&random(DType::U64, seed, 17), dtype),
    }
}

/// Numbers of 0..7 as numbers at the ends of an integer type and beside 0.
fn ends(words: &[u8], dtype: DType) -> Vec<u8> {
    // The greatest number of u64 has all bits set.
    let (least, greatest) = dtype_range(dtype).unwrap_or((0, -1));
    let numbers = [least, least.wrapping_add(1), -1, 0, 1, greatest.wrapping_sub(1), greatest];
    let number = |word: &[u8]| numbers[word[0] as usize].to_le_bytes()[..dtype.bytes()].to_vec();
    words.chunks_exact(8).flat_map(number).collect()
}

/// Elements of an operand: each number in its range, which is the remainder of any other. The ends of a type become those of the range.
fn within(range: Option<(i64, i64)>, dtype: DType, mut elements: Vec<u8>) -> Vec<u8> {
    let Some((least, greatest)) = range else { return elements };
    for element in elements.chunks_exact_mut(dtype.bytes()) {
        let number = Value::load(dtype, element).as_i64();
        let number = match dtype_range(dtype) {
            Some((low, _)) if number == low => least,
            Some((_, high)) if number == high => greatest,
            _ => least + (number - least).rem_euclid(greatest - least + 1),
        };
        element.copy_from_slice(&number.to_le_bytes()[..dtype.bytes()]);
    }
    elements
}

/// Numbers of 0..17 as floats in -8..=8.
fn small(words: &[u8], dtype: DType) -> Vec<u8> {
    let mut bytes = vec![0; words.len() / 8 * dtype.bytes()];
    for (word, element) in words.chunks_exact(8).zip(bytes.chunks_exact_mut(dtype.bytes())) {
        Value::from_f64(dtype, f64::from(word[0]) - 8.0).store(element);
    }
    bytes
}

/// Random words as floats of both signs with exponents from -8 to 7, so that sums in different orders differ.
fn scattered(words: &[u8], dtype: DType) -> Vec<u8> {
    let mut bytes = vec![0; words.len() / 8 * dtype.bytes()];
    for (word, element) in words.chunks_exact(8).zip(bytes.chunks_exact_mut(dtype.bytes())) {
        let word = word.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        let fraction = (word >> 12) as f64 / (1u64 << 52) as f64;
        let value = (1.0 + fraction) * f64::powi(2.0, (word & 15) as i32 - 8);
        Value::from_f64(dtype, if word & 16 == 0 { value } else { -value }).store(element);
    }
    bytes
}

fn show(value: Value) -> String {
    match value {
        Value::U64(v) => v.to_string(),
        v if v.dtype().is_float() => v.as_f64().to_string(),
        v => v.as_i64().to_string(),
    }
}

/// How near the code has to come to the semantics.
#[derive(Clone, Copy, PartialEq)]
enum Exactness {
    Equal,
    /// Floats within the bound of the sum.
    Bounded,
}

/// Half a unit in the last place of 1.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON / 2.0,
        DType::F32 => f64::from(f32::EPSILON) / 2.0,
        DType::F16 => 1.0 / 2048.0,
        _ => 1.0 / 256.0,
    }
}

impl TensorInstruction {
    /// The accumulator's register that the semantics give for these registers.
    fn result_of(&self, before: &[Vec<u8>]) -> Result<Vec<u8>> {
        let mut accumulator = before[0].clone();
        let reads: Vec<&[u8]> = before[1..].iter().map(Vec::as_slice).collect();
        self.evaluate(&mut accumulator, &reads)?;
        Ok(accumulator)
    }

    /// Compares the registers after one trial with those before, and with the result `expected`.
    fn compare_trial(
        &self,
        before: &[Vec<u8>],
        after: &[Vec<u8>],
        expected: &[u8],
        exactness: Exactness,
    ) -> Result<()> {
        if let Some(n) = (1..before.len()).find(|&n| before[n] != after[n]) {
            let operand = self.operands.get(n).map_or("constant".into(), |o| format!("operand `{}`", o.name));
            let text = format!("the code of `{}` changes its {operand}, which is only read", self.name);
            return Err(Error::Invalid(text));
        }
        let target = &self.operands[0];
        let size = target.dtype.bytes();
        let bounds = match exactness == Exactness::Bounded && target.dtype.is_float() {
            true => self.magnitudes(before)?,
            false => vec![],
        };
        for (n, (is, wanted)) in after[0].chunks_exact(size).zip(expected.chunks_exact(size)).enumerate() {
            let (is, wanted) = (Value::load(target.dtype, is), Value::load(target.dtype, wanted));
            let allowed = bounds.get(n).map_or(0.0, |sum| sum * unit(target.dtype) * self.rounding_steps());
            if is == wanted || (is.as_f64() - wanted.as_f64()).abs() <= allowed && target.dtype.is_float() {
                continue;
            }
            let place = match (n as i64) < self.elements(0) {
                true => format!("for {}", self.inputs_of(n, before)),
                false => format!("and `{}` has only {} elements", target.name, self.elements(0)),
            };
            let text = format!(
                "the code of `{}` does not do what its semantics say: element {n} of `{}` becomes {}, not {}, {place}",
                self.name,
                target.name,
                show(is),
                show(wanted)
            );
            return Err(Error::Invalid(text));
        }
        Ok(())
    }

    /// Roundings of a term's value and of each sum, on both sides of the comparison.
    fn rounding_steps(&self) -> f64 {
        2.0 * (self.summed().map(|v| self.extent(v)).product::<i64>() + 1) as f64
    }

    /// `|c| + Σ|term|` of each element of the accumulator, for registers with the elements of the operands.
    fn magnitudes(&self, registers: &[Vec<u8>]) -> Result<Vec<f64>> {
        let reads: Vec<&[u8]> = registers.iter().skip(1).map(Vec::as_slice).collect();
        let target = &self.operands[0];
        let size = target.dtype.bytes();
        let start = registers[0].chunks_exact(size).take(self.elements(0) as usize);
        let mut sums: Vec<f64> = start.map(|bytes| Value::load(target.dtype, bytes).as_f64().abs()).collect();
        self.for_each_term(&registers[0], &reads, |element, term| sums[element] += term.as_f64().abs())?;
        Ok(sums)
    }
}
