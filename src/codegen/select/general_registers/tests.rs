use super::*;
use crate::codegen::vcode::{execute, text};

/// A function of a loop over 16 elements of A (argument 0) and B (argument 1); v0 and v1 are loaded, `body` computes what is stored.
/// `carried` connects v0 with a sum through all iterations.
fn of(mem: &str, body: &str, carried: bool) -> Function {
    let second = if body.contains("v1") { format!("v1 = load i32x1 {mem} [r1]") } else { String::new() };
    let [first, last] = if carried { ["v0 = xor i32x1 v0, v38", "v38 = add i32x1 v38, v0"] } else { ["", ""] };
    let text = format!(
        "function f (serial, 4 gpr, 40 vector registers, 0 scratch bytes) {{
           r0 = argument 0
           r1 = argument 1
           r2 = 16
           v38 = const i32x1 #7
           loop r2 (at least once) {{
             v0 = load i32x1 {mem} [r0]
             {second}
             {first}
             {body}
             {last}
             r0 = add r0, 4
             r1 = add r1, 4
           }}
         }}"
    );
    text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0)
}

fn function(mem: &str, body: &str) -> Function {
    of(mem, body, true)
}

/// A target on which operations on vector registers take long.
fn slow(mut target: Target) -> Target {
    target.machine.integer_latency = 3.0;
    target
}

/// The function with its integers moved, which computes the same; the numbers of instructions that still work on vector registers.
fn moved(function: &Function) -> (Function, usize) {
    let mut all = vec![];
    for target in [Target::avx512(), Target::avx2(), Target::neon()].map(slow) {
        let mut moved = function.clone();
        move_integers(&mut moved, &target);
        for seed in 0..4 {
            let of = |seed: i64| -> Vec<u8> {
                let numbers = (0..24i64).map(|i| match (i + seed) % 5 {
                    0 => (i * 7 - 40) as i32,
                    1 => i32::MIN + i as i32,
                    2 => i32::MAX - i as i32,
                    3 => (i * 0x1234_5678) as i32,
                    _ => (i + seed) as i32 * -1001,
                });
                numbers.flat_map(i32::to_le_bytes).collect()
            };
            let run = |f: &Function| {
                let mut buffers = [of(seed), of(3 * seed + 1)];
                execute::run(f, &mut buffers, 0, 1).unwrap_or_else(|e| panic!("{e}\n{f}"));
                buffers
            };
            assert_eq!(run(&moved), run(function), "{}\n{function}\n{moved}", target.name);
        }
        all.push(moved);
    }
    let vectors = |inst: &&Inst| {
        let mut named = false;
        inst.registers(|class, _, _| named |= class == Class::Vector);
        named
    };
    let count = all[0].insts.iter().filter(vectors).count();
    (all.remove(0), count)
}

fn is_moved(mem: &str, body: &str) -> Function {
    let (function, vectors) = moved(&function(mem, body));
    assert_eq!(vectors, 0, "{function}");
    function
}

fn count(function: &Function, which: impl Fn(&Inst) -> bool) -> usize {
    function.insts.iter().filter(|inst| which(inst)).count()
}

#[test]
fn every_operation_has_a_form() {
    for op in ["add", "sub", "mul", "min", "max", "and", "or", "xor", "andnot", "mulpairs"] {
        is_moved("i32", &format!("v2 = {op} i32x1 v0, v1\nstore i32x1 i32 v2, [r0]"));
        for constant in ["0", "1", "7", "ffff", "ffffffff", "80000000"] {
            let body = format!(
                "v3 = const i32x1 #{constant}\nv2 = {op} i32x1 v0, v3\nv4 = {op} i32x1 v3, v1\nv5 = add i32x1 v2, v4\nstore i32x1 i32 v5, [r0]"
            );
            is_moved("i32", &body);
        }
        is_moved(
            "i32",
            &format!(
                "v2 = convert i64x1 from i32 v0\nv3 = convert i64x1 from i32 v1\nv4 = {} i64x1 v2, v3\nv5 = convert i32x1 from i64 v4\nstore i32x1 i32 v5, [r1]",
                if op == "mulpairs" { "mul" } else { op }
            ),
        );
    }
    for op in ["abs", "neg", "not"] {
        is_moved("i32", &format!("v2 = {op} i32x1 v0\nstore i32x1 i32 v2, [r0]"));
    }
    for mem in ["i8", "u8", "i16", "u16", "f16", "bf16", "bool"] {
        is_moved(mem, &format!("v2 = xor i32x1 v0, v1\nstore i32x1 {mem} v2, [r0]"));
    }
    for op in ["left", "rightlogical", "rightarithmetic"] {
        for amount in [0, 1, 16, 31, 32, 200] {
            is_moved("i32", &format!("v2 = shift {op} i32x1 v0, {amount}\nstore i32x1 i32 v2, [r0]"));
        }
    }
}

#[test]
fn comparisons_become_choices() {
    for op in ["eq", "ne", "lt", "le", "gt", "ge"] {
        let chosen =
            is_moved("i32", &format!("v2 = {op} i32x1 v0, v1\nv3 = select i32x1 v2, v1, v0\nstore i32x1 i32 v3, [r0]"));
        assert_eq!(count(&chosen, |i| matches!(i, Inst::Choose { .. })), 1, "{chosen}");
        // a constant on the left, a mask as a number, and with another
        is_moved(
            "i32",
            &format!(
                "v4 = const i32x1 #5\nv2 = {op} i32x1 v4, v1\nv3 = and i32x1 v2, v0\nv5 = andnot i32x1 v2, v1\nv6 = sub i32x1 v3, v5\nv7 = xor i32x1 v6, v2\nstore i32x1 i32 v7, [r0]"
            ),
        );
        // an operand that changed since the comparison
        let changed = is_moved(
            "i32",
            &format!(
                "v2 = {op} i32x1 v0, v1\nv0 = add i32x1 v0, v1\nv3 = select i32x1 v2, v1, v0\nstore i32x1 i32 v3, [r0]"
            ),
        );
        assert_eq!(count(&changed, |i| matches!(i, Inst::Choose { .. })), 2, "{changed}");
    }
}

#[test]
fn shifts_there_and_back_extend() {
    for (amount, shift) in
        [(16, "rightarithmetic"), (24, "rightarithmetic"), (16, "rightlogical"), (24, "rightlogical")]
    {
        let body = format!(
            "v2 = add i32x1 v0, v1\nv3 = shift left i32x1 v2, {amount}\nv4 = shift {shift} i32x1 v3, {amount}\nstore i32x1 i32 v4, [r0]"
        );
        let wrapped = is_moved("i32", &body);
        assert_eq!(count(&wrapped, |i| matches!(i, Inst::Shift { .. })), 0, "{wrapped}");
        assert_eq!(count(&wrapped, |i| matches!(i, Inst::Extend { .. })), 1, "{wrapped}");
    }
    for [there, back] in [[16, 15], [8, 16], [24, 16]] {
        let other = format!(
            "v2 = add i32x1 v0, v1\nv3 = shift left i32x1 v2, {there}\nv4 = shift rightarithmetic i32x1 v3, {back}\nstore i32x1 i32 v4, [r0]"
        );
        assert_eq!(count(&is_moved("i32", &other), |i| matches!(i, Inst::Extend { .. })), 0);
    }
}

#[test]
fn quotients_by_constants_are_products_of_integers() {
    for divisor in [3u32, 7, 10, 641, 1_000_003, 2_147_483_647] {
        let inverse = (1.0 / f64::from(divisor)).next_up().to_bits();
        let body = format!(
            "v2 = const f64x1 #{inverse:x}\nv3 = convert f64x1 from i32 v0\nv4 = mul f64x1 v3, v2\nv5 = convert i32x1 from f64 v4\nv6 = sub i32x1 v5, v1\nstore i32x1 i32 v6, [r0]"
        );
        is_moved("i32", &body);
    }
    // another number is another product
    let body = "v2 = const f64x1 #3fb999999999999c\nv3 = convert f64x1 from i32 v0\nv4 = mul f64x1 v3, v2\nv5 = convert i32x1 from f64 v4\nv6 = sub i32x1 v5, v1\nstore i32x1 i32 v6, [r0]";
    assert!(moved(&function("i32", body)).1 > 0);
}

#[test]
fn subscripts_are_addresses() {
    let body =
        "v2 = const i32x1 #7\nv3 = and i32x1 v0, v2\nv4 = gather i32x1 i32 [r1 + v3 as i32]\nstore i32x1 i32 v4, [r0]";
    let text = function("i32", body);
    let (function, vectors) = moved(&text);
    assert_eq!(vectors, 0, "{function}");
}

#[test]
fn what_floats_and_vectors_share_stays() {
    // a mask that chooses floats, and whole vectors
    let mask = "v2 = gt i32x1 v0, v1\nv3 = load f32x1 f32 [r0]\nv4 = load f32x1 f32 [r1]\nv5 = select f32x1 v2, v3, v4\nstore f32x1 f32 v5, [r0]";
    assert!(moved(&function("i32", mask)).1 > 0);
    // converted alone: nothing is saved
    let alone = "v2 = convert f32x1 from i32 v0\nstore f32x1 f32 v2, [r0]";
    assert_eq!(moved(&of("i32", alone, false)).0, of("i32", alone, false));
    let several =
        "v2 = add i32x1 v0, v1\nv3 = xor i32x1 v2, v1\nv4 = convert f32x1 from i32 v3\nstore f32x1 f32 v4, [r0]";
    assert_eq!(moved(&function("i32", several)).1, 3);
}

#[test]
fn more_values_than_registers_stay() {
    let loads: String = (2..20).map(|r| format!("v{r} = add i32x1 v{}, v{}\n", r - 1, r - 2)).collect();
    let sum: String = (2..20).map(|r| format!("v0 = xor i32x1 v0, v{r}\n")).collect();
    let f = function("i32", &format!("{loads}{sum}store i32x1 i32 v0, [r0]"));
    let mut avx2 = f.clone();
    move_integers(&mut avx2, &slow(Target::avx2()));
    assert_eq!(avx2, f);
    let mut neon = f.clone();
    move_integers(&mut neon, &slow(Target::neon()));
    assert_ne!(neon, f);
}

#[test]
fn chains_of_iterations_decide() {
    let is_moved = |body: &str, carried: bool, latency: f64| {
        let before = of("i32", body, carried);
        let mut after = before.clone();
        let mut target = Target::avx512();
        target.machine.integer_latency = latency;
        move_integers(&mut after, &target);
        before != after
    };
    let sum = "v2 = add i32x1 v0, v1\nstore i32x1 i32 v2, [r0]";
    assert!(!is_moved(sum, false, 2.0));
    assert!(!is_moved(sum, true, 1.0));
    assert!(is_moved(sum, true, 2.0));
    // an extreme takes two instructions
    let extremes = "v0 = max i32x1 v0, v1\nv0 = min i32x1 v0, v1\nv0 = max i32x1 v0, v1\nstore i32x1 i32 v0, [r0]";
    assert!(!is_moved(extremes, true, 1.5));
    // a wrap is one instead of two
    let wraps = "v0 = shift left i32x1 v0, 16\nv0 = shift rightarithmetic i32x1 v0, 16\nstore i32x1 i16 v0, [r0]";
    assert!(is_moved(wraps, true, 1.0));
}

#[test]
fn operations_decide_where_chains_are_short() {
    let count = |body: &str| {
        let before = of("i16", body, false);
        let mut after = before.clone();
        move_integers(&mut after, &Target::avx512());
        let is_load = |inst: &Inst| matches!(inst, Inst::LoadInt { .. });
        (count(&before, is_load), count(&after, is_load))
    };
    // loads of less than four bytes into a vector are three instructions
    let sum = "v2 = add i32x1 v0, v1\nv3 = min i32x1 v2, v1\nstore i32x1 i16 v3, [r0]";
    assert_eq!(count(sum), (0, 2));
    // products of vectors are more than one instruction
    let products = |n: usize| (0..n).map(|_| "v0 = mul i32x1 v0, v1\n").collect::<String>();
    let is_moved = |n: usize, ty: &str, mem: &str| {
        let body = products(n).replace("i32x1", ty) + &format!("v2 = add {ty} v0, v1\nstore {ty} {mem} v2, [r0]");
        let text = of(mem, &body, false).to_string().replace(&format!("i32x1 {mem}"), &format!("{ty} {mem}"));
        let before = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0);
        let mut after = before.clone();
        move_integers(&mut after, &Target::avx512());
        before != after
    };
    assert!(!is_moved(0, "i64x1", "i64"));
    assert!(is_moved(2, "i64x1", "i64"));
    // a conditional is part of the iteration
    assert_eq!(count(&format!("if lt r2, 3 {{\n{sum}\n}}")), (0, 2));
    moved(&of("i16", &format!("if lt r2, 3 {{\n{sum}\n}}"), true));
}

#[test]
fn a_lane_that_becomes_a_subscript_moves() {
    // states of an automaton, each the subscript of the next
    for (read, width) in [("i32", "i32"), ("u8", "i32"), ("i64", "i64")] {
        let text = format!(
            "function f (serial, 8 gpr, 4 vector registers, 0 scratch bytes) {{
               r0 = argument 0
               r1 = argument 1
               r2 = 8
               v0 = const {width}x1 #3
               loop r2 (at least once) {{
                 r3 = lane {width}x1 v0
                 r4 = and r3, 7
                 v0 = load {width}x1 {read} [r0 + {}*r4]
                 store {width}x1 {width} v0, [r1]
                 r1 = add r1, 8
               }}
             }}",
            if read == "u8" { 2 } else { width.trim_start_matches('i').parse::<usize>().unwrap() / 8 },
        );
        let function = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).remove(0);
        assert_eq!(moved(&function).1, 0, "{text}");
    }
}
