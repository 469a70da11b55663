//! Quotients and square roots by an inverse: numbers at the edges of what has one, significands that round badly, and all places of operands.

use super::cases::dtype;
use super::program::{Buffer, Builder, Case, at};
use crate::codegen::vcode::{Inst, Lane, VType, VUnary, text};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Numbers without an inverse that is normal, beside them, and in the middle.
fn edges(lane: Lane) -> Vec<f64> {
    let (least, most) = match lane {
        Lane::F32 => (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
        _ => (f64::MIN_POSITIVE, f64::MAX),
    };
    let ulp = if lane == Lane::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    let most_invertible = 1.0 / least;
    let positive = [
        0.0,
        least / 4.0,
        least,
        least * 1.5,
        1.0,
        1.0 + ulp,
        2.0 - ulp,
        3.0,
        1.0 / 3.0,
        most_invertible / 4.0,
        most_invertible * (0.5 - ulp),
        most_invertible,
        most / 2.0,
        most,
        f64::INFINITY,
        f64::NAN,
    ];
    positive.iter().flat_map(|&x| [x, -x]).collect()
}

/// Pairs of dividend and divisor.
fn pairs(lane: Lane) -> Vec<(f64, f64)> {
    let edges = edges(lane);
    let mut pairs: Vec<_> = edges.iter().flat_map(|&a| edges.iter().map(move |&b| (a, b))).collect();
    let mut rng = StdRng::seed_from_u64(5);
    let ulp = if lane == Lane::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    pairs.extend((0..2048).map(|i| {
        let near_two = 2.0 - ulp * f64::from(rng.random_range(1..40));
        let near_one = 1.0 + ulp * f64::from(rng.random_range(0..40));
        let any = 10f64.powf(rng.random_range(-20.0..20.0)) * if rng.random() { 1.0 } else { -1.0 };
        let divisor = [near_two, near_one, any][i % 3];
        (if i % 2 == 0 { any } else { rng.random_range(-2.0..2.0) }, divisor)
    }));
    pairs
}

fn buffer(lane: Lane, numbers: impl Iterator<Item = f64>) -> Buffer {
    let bytes = numbers.flat_map(|x| match lane {
        Lane::F32 => (x as f32).to_le_bytes().to_vec(),
        _ => x.to_le_bytes().to_vec(),
    });
    Buffer { dtype: dtype(lane), bytes: bytes.collect() }
}

/// All pairs of exponents of f32, those of zero, infinity and not-a-number too, or as many pairs of those of f64, each with
/// significands and signs of its own.
fn all_exponents(lane: Lane, seed: u64) -> Vec<(f64, f64)> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut number = |exponent: u64| match lane {
        Lane::F32 => f64::from(f32::from_bits((exponent as u32) << 23 | rng.random::<u32>() & 0x807f_ffff)),
        _ => f64::from_bits(exponent << 52 | rng.random::<u64>() & 0x800f_ffff_ffff_ffff),
    };
    let of = |e: u64| if lane == Lane::F32 { e } else { e * 8 + e % 8 };
    (0..1 << 16).map(|i| (number(of(i >> 8)), number(of(i & 255)))).collect()
}

/// Quotients of all pairs, one vector after the other.
fn loop_case(ty: VType, pairs: &[(f64, f64)]) -> Case {
    let name = format!("quotients of {} pairs of {:?}", pairs.len(), ty.lane);
    let text = format!(
        "function f (parallel 1, 5 gpr, 4 vector registers, 0 scratch bytes) {{
         r0 = argument 0\n r1 = argument 1\n r2 = argument 2\n r3 = argument 3\n r4 = {}
         loop r4 {{
         v0 = load T M [r0]\n v1 = load T M [r1]\n v2 = inverse T v1\n v3 = quotient T v0, v1, v2
         store T M v3, [r2]\n store T M v2, [r3]
         r0 = add r0, 64\n r1 = add r1, 64\n r2 = add r2, 64\n r3 = add r3, 64\n }}\n}}\n",
        pairs.len() / ty.lanes as usize
    );
    let (lanes, memory) = if ty.lane == Lane::F32 { ("f32x16", "f32") } else { ("f64x8", "f64") };
    let text = text.replace(" T", &format!(" {lanes}")).replace(" M", &format!(" {memory}"));
    let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0);
    function.name = name;
    let zeros = || buffer(ty.lane, pairs.iter().map(|_| 0.0));
    let (dividends, divisors) = (pairs.iter().map(|p| p.0), pairs.iter().map(|p| p.1));
    let buffers = vec![buffer(ty.lane, dividends), buffer(ty.lane, divisors), zeros(), zeros()];
    Case { function, buffers, range: (0, 1) }
}

/// The inverses of the divisors and the quotients; the quotient is new, or takes the place of operand `place`.
fn case(ty: VType, pairs: &[(f64, f64)], place: usize) -> Case {
    let mut b = Builder::new(format!("quotient {ty:?} {place} of {pairs:?}"));
    let [p, q, r, s] = [0, 1, 2, 3].map(|slot| b.argument(slot));
    let [x, y, inverse, new] = [b.vreg(), b.vreg(), b.vreg(), b.vreg()];
    let mem = dtype(ty.lane);
    b.push(Inst::VLoad { dst: x, ty, mem, addr: at(p, 0), part: None });
    b.push(Inst::VLoad { dst: y, ty, mem, addr: at(q, 0), part: None });
    b.push(Inst::VUnary { op: VUnary::Inverse, dst: inverse, ty, a: y });
    b.push(Inst::VStore { src: inverse, ty, mem, addr: at(s, 0), part: None });
    let dst = [new, x, y, inverse][place];
    b.push(Inst::VQuotient { dst, ty, a: x, b: y, inverse });
    b.push(Inst::VStore { src: dst, ty, mem, addr: at(r, 0), part: None });
    let zeros = || buffer(ty.lane, pairs.iter().map(|_| 0.0));
    let (dividends, divisors) = (pairs.iter().map(|p| p.0), pairs.iter().map(|p| p.1));
    let buffers = vec![buffer(ty.lane, dividends), buffer(ty.lane, divisors), zeros(), zeros()];
    Case { function: b.function, buffers, range: (0, 1) }
}

/// The square roots of f32 by an inverse, in a register of their own or in that of the operand.
fn root_case(lanes: u8, numbers: &[f64], new: bool) -> Case {
    let mut b = Builder::new(format!("root of {lanes} lanes {new} of {numbers:?}"));
    let ty = VType { lane: Lane::F32, lanes };
    let [p, q] = [0, 1].map(|slot| b.argument(slot));
    let [x, y] = [b.vreg(), b.vreg()];
    let mem = dtype(ty.lane);
    let dst = if new { y } else { x };
    b.push(Inst::VLoad { dst: x, ty, mem, addr: at(p, 0), part: None });
    b.push(Inst::VUnary { op: VUnary::Root, dst, ty, a: x });
    b.push(Inst::VStore { src: dst, ty, mem, addr: at(q, 0), part: None });
    let buffers = vec![buffer(ty.lane, numbers.iter().copied()), buffer(ty.lane, numbers.iter().map(|_| 0.0))];
    Case { function: b.function, buffers, range: (0, 1) }
}

/// Square roots of f32 of all exponents and both signs, one vector after the other: of any significand, and of those whose root is
/// nearly half way between two numbers, just above and below of squares.
fn root_loop(seed: u64) -> Case {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut numbers = vec![];
    for i in 0..1u32 << 16 {
        let any = i << 23 | rng.random::<u32>() & 0x7f_ffff;
        let root = f32::from_bits(0x3f80_0000 | rng.random::<u32>() & 0xff_ffff);
        let near = (root * root).to_bits() + rng.random_range(0..5) - 2;
        let scale = f32::from_bits((i >> 9 & 0xfe | 1) << 23);
        numbers.push(f64::from(if i & 512 == 0 { f32::from_bits(any) } else { f32::from_bits(near) * scale }));
    }
    let text = format!(
        "function f (parallel 1, 3 gpr, 2 vector registers, 0 scratch bytes) {{
         r0 = argument 0\n r1 = argument 1\n r2 = {}
         loop r2 {{
         v0 = load f32x16 f32 [r0]\n v1 = root f32x16 v0\n store f32x16 f32 v1, [r1]
         r0 = add r0, 64\n r1 = add r1, 64\n }}\n}}\n",
        numbers.len() / 16
    );
    let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0);
    function.name = format!("roots of {} numbers", numbers.len());
    let buffers = vec![buffer(Lane::F32, numbers.iter().copied()), buffer(Lane::F32, numbers.iter().map(|_| 0.0))];
    Case { function, buffers, range: (0, 1) }
}

/// Cases for AVX-512 whose results are square roots.
fn roots() -> Vec<Case> {
    let least = f64::from(f32::from_bits((127 - 100) << 23));
    let near: Vec<f64> = (-2..3).map(|i| least * (1.0 + f64::from(i) * f64::from(f32::EPSILON))).collect();
    let numbers = [edges(Lane::F32), near].concat();
    let mut out = vec![root_loop(7)];
    for lanes in [1, 4, 8, 16] {
        let padded: Vec<f64> = numbers.iter().cycle().copied().take(48).collect();
        let whole = padded.chunks_exact(lanes as usize).enumerate();
        out.extend(whole.map(|(i, numbers)| root_case(lanes, numbers, i % 2 == 0)));
    }
    out
}

/// Cases for AVX-512.
pub fn cases() -> Vec<Case> {
    quotients().into_iter().chain(roots()).chain(scales()).collect()
}

/// Products of all numbers at the edges with powers of two.
fn scales() -> Vec<Case> {
    let mut out = vec![];
    for (lane, bytes) in [Lane::F32, Lane::F64].into_iter().flat_map(|lane| [16, 32, 64].map(|bytes| (lane, bytes))) {
        let powers =
            [0.0, 1.0, -1.0, 0.5, -0.5, 127.0, 128.0, -126.0, -127.0, -150.0, 300.0, 1023.5, -1075.0, 3000.0, -3000.0];
        let pairs: Vec<_> = edges(lane).into_iter().flat_map(|a| powers.map(|b| (a, b))).collect();
        let (ty, step) = (VType { lane, lanes: (bytes / lane.bytes()) as u8 }, bytes);
        let memory = if lane == Lane::F32 { "f32" } else { "f64" };
        let ty = format!("{memory}x{}", ty.lanes);
        let text = format!(
            "function f (parallel 1, 4 gpr, 3 vector registers, 0 scratch bytes) {{
             r0 = argument 0\n r1 = argument 1\n r2 = argument 2\n r3 = {}
             loop r3 {{
             v0 = load {ty} {memory} [r0]\n v1 = load {ty} {memory} [r1]\n v2 = scale {ty} v0, v1
             store {ty} {memory} v2, [r2]
             r0 = add r0, {step}\n r1 = add r1, {step}\n r2 = add r2, {step}\n }}\n}}\n",
            pairs.len() * lane.bytes() / bytes
        );
        let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0);
        function.name = format!("scales of {ty}");
        let numbers = |part: fn(&(f64, f64)) -> f64| buffer(lane, pairs.iter().map(part));
        let buffers = vec![numbers(|p| p.0), numbers(|p| p.1), numbers(|_| 0.0)];
        out.push(Case { function, buffers, range: (0, 1) });
    }
    out
}

fn quotients() -> Vec<Case> {
    let mut out = vec![];
    for lane in [Lane::F32, Lane::F64] {
        for bytes in [16, 32, 64] {
            let ty = VType { lane, lanes: (bytes / lane.bytes()) as u8 };
            let pairs = pairs(lane);
            let whole = pairs.chunks_exact(ty.lanes as usize).enumerate();
            out.extend(whole.map(|(i, pairs)| case(ty, pairs, i % 4)));
        }
        let seed = std::env::var("SEED").map_or(9, |s| s.parse().unwrap());
        out.push(loop_case(VType { lane, lanes: (64 / lane.bytes()) as u8 }, &all_exponents(lane, seed)));
    }
    out
}

/// The interpreter, to which machine code is held, gives the correctly rounded quotient where the rest is normal.
#[test]
fn quotients_are_rounded_correctly() {
    let mut compared = 0;
    for case in quotients() {
        let [dividends, divisors, quotients, _] = &case.expected()[..] else { panic!("four buffers") };
        let size = case.buffers[0].dtype.bytes();
        let read = |bytes: &[u8]| match size {
            4 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
            _ => f64::from_le_bytes(bytes.try_into().unwrap()),
        };
        let (tiny, least) = if size == 4 { (1e-30, f64::from(f32::MIN_POSITIVE)) } else { (1e-290, f64::MIN_POSITIVE) };
        for i in (0..dividends.len()).step_by(size) {
            let [a, b, found] = [dividends, divisors, quotients].map(|v| read(&v[i..][..size]));
            let flushed = |x: f64| if x.abs() < least { x * 0.0 } else { x };
            let expected =
                if size == 4 { f64::from((flushed(a) as f32) / (flushed(b) as f32)) } else { flushed(a) / flushed(b) };
            let same = found.to_bits() == flushed(expected).to_bits() || found.is_nan() && expected.is_nan();
            let rounded = a == 0.0 || a.abs() >= tiny && expected.abs() >= 2.0 * least;
            assert!(same || !rounded, "{a:e} / {b:e} is {found:e}, not {expected:e}");
            compared += usize::from(rounded);
        }
    }
    assert!(compared > 80_000, "{compared}");
}
