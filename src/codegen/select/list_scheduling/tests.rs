use super::*;
use crate::codegen::regalloc;
use crate::codegen::select::tree::Root;
use crate::codegen::vcode::text;

/// The lines of a loop's body after scheduling.
fn scheduled_for(target: &Target, body: &str) -> Vec<String> {
    let head = "r0 = argument 0\n r1 = argument 1\n r2 = 8\n loop r2 {";
    let text =
        format!("function f (parallel 1, 4 gpr, 64 vector registers, 0 scratch bytes) {{\n {head}\n{body}\n }}\n}}\n");
    let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
    schedule_loops(&mut function, target);
    let printed = function.to_string();
    let lines: Vec<&str> = printed.lines().map(str::trim).collect();
    let start = lines.iter().position(|line| line.starts_with("loop")).unwrap();
    let end = lines.iter().position(|line| *line == "}").unwrap();
    lines[start + 1..end].iter().map(|line| line.to_string()).collect()
}

fn scheduled(body: &str) -> Vec<String> {
    scheduled_for(&Target::neon(), body)
}

fn place(lines: &[String], part: &str) -> usize {
    lines.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {lines:#?}"))
}

/// Two loads with a product each, the second pair behind the first.
const TWO: &str = "v0 = load f32x4 f32 [r0]\n v1 = mul f32x4 v0, v0\n v2 = load f32x4 f32 [r0 + 16]\n \
                   v3 = mul f32x4 v2, v2\n v4 = add f32x4 v1, v3";

#[test]
fn loads_stand_before_what_waits_for_them() {
    let lines = scheduled(TWO);
    assert!(place(&lines, "[r0 + 16]") < place(&lines, "v1 = mul"), "{lines:#?}");
    assert_eq!(lines.len(), 5);
}

/// Registers that the loop leaves alone are in use all the same: loads wait for others.
#[test]
fn registers_that_live_beside_a_loop_are_counted() {
    let loads: Vec<String> = (0..12).map(|i| format!("v{i} = load f32x4 f32 [r0 + {}]", 16 * i)).collect();
    let uses: Vec<String> = (0..12).map(|i| format!("store f32x4 f32 v{i}, [r0 + {}]", 1024 + 16 * i)).collect();
    let body = loads.iter().zip(&uses).map(|(l, u)| format!("{l}\n {u}")).collect::<Vec<_>>().join("\n ");
    let loads_before_the_first_use = |beside: usize| {
        let before: String =
            (0..beside).map(|i| format!("v{} = load f32x4 f32 [r0 + {}]\n ", 20 + i, 16 * i)).collect();
        let after: String = (0..beside).map(|i| format!("store f32x4 f32 v{}, [r1 + {}]\n ", 20 + i, 16 * i)).collect();
        let text = format!(
            "function f (parallel 1, 4 gpr, 64 vector registers, 0 scratch bytes) {{\n r0 = argument 0\n r1 = argument 1\n r2 = 8\n \
             {before} loop r2 {{\n {body}\n }}\n {after}}}\n"
        );
        let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
        schedule_loops(&mut function, &Target::neon());
        let start = function.insts.iter().position(|i| matches!(i, Inst::LoopStart { .. })).unwrap();
        function.insts[start..].iter().take_while(|i| !i.writes_memory()).filter(|i| i.lanes().is_some()).count()
    };
    assert!(loads_before_the_first_use(0) > 4);
    assert_eq!(loads_before_the_first_use(30), 2);
}

#[test]
fn code_of_processors_that_reorder_stays() {
    for target in [Target::avx2(), Target::avx512()] {
        let lines = scheduled_for(&target, TWO);
        assert!(place(&lines, "[r0 + 16]") > place(&lines, "v1 = mul"), "{lines:#?}");
    }
}

#[test]
fn accesses_that_may_overlap_keep_their_order() {
    let after = |store: &str, load: &str| {
        let body = format!(
            "v0 = load f32x4 f32 [r0 + 64]\n v1 = sqrt f32x4 v0\n store f32x4 f32 v1, {store}\n v2 = load f32x4 f32 {load}\n \
             v3 = mul f32x4 v2, v2\n v4 = mul f32x4 v3, v3"
        );
        let lines = scheduled(&body);
        place(&lines, "v2 = load") > place(&lines, "store")
    };
    assert!(after("[r0]", "[r0]") && after("[r0]", "[r0 + 12]") && after("[r0]", "[r0 + 1*r2]"));
    assert!(!after("[r0]", "[r0 + 16]") && !after("[r0 + 16]", "[r0]"));
    // Arguments do not overlap.
    assert!(!after("[r0]", "[r1]") && !after("[r0 + 1*r2]", "[r1]"));
}

/// A subscript that lies outside is recorded in memory behind what is stored there before.
#[test]
fn records_stay_behind_stores_to_their_extremes() {
    let behind = |slots: &str| {
        let lines = scheduled(&format!(
            "v0 = load f32x4 f32 [r0 + 64]\n v1 = sqrt f32x4 v0\n store f32x4 f32 v1, [r1]\n r3 = inside r2 below 8 else i32 {slots}"
        ));
        place(&lines, "inside") > place(&lines, "store")
    };
    assert!(behind("1 2") && behind("2 1") && !behind("2 3"));
}

/// A pointer keeps its root through sums and copies; what is read from memory, or points into one or the other, has none.
#[test]
fn pointers_have_the_root_that_all_their_definitions_have() {
    let head = "r0 = argument 0\n r1 = argument 1\n r2 = 8\n r3 = add r0, r2\n r4 = r1\n r5 = scratch\n r6 = r0";
    let body = "r4 = add r4, 16\n r3 = sub r3, 8\n r6 = r1\n r7 = add r0, r1\n r8 = mul r2, 4\n r9 = add r8, r5";
    let text = format!(
        "function f (parallel 1, 10 gpr, 0 vector registers, 0 scratch bytes) {{\n {head}\n loop r2 {{\n {body}\n }}\n}}\n"
    );
    let function = text::parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
    let [zero, one] = [0, 1].map(|slot| Some(Root::Argument(slot)));
    let expected = [zero, one, None, zero, one, Some(Root::Scratch), None, None, None, Some(Root::Scratch)];
    assert_eq!(roots::roots(&function.insts, function.gprs), expected);
}

/// A load and a product start in one cycle, two of a kind do not: the loads of later products stand between the products.
#[test]
fn loads_start_beside_products() {
    let load = |i: usize| format!("v{i} = load f32x4 f32 [r0 + {}]", 16 * i);
    let product = |i: usize| format!("v{} += f32x4 v{i} * v{i}", 20 + i);
    let lines = scheduled(&(0..8).map(|i| [load(i), product(i)].join("\n ")).collect::<Vec<_>>().join("\n "));
    let first = place(&lines, "+=");
    assert!((2..=5).contains(&first), "{lines:#?}");
    for pair in lines[first..].windows(2).take(2 * (8 - first)) {
        let of_kind = |part: &str| pair.iter().filter(|line| line.contains(part)).count();
        assert_eq!((of_kind("load"), of_kind("+=")), (1, 1), "{lines:#?}");
    }
}

#[test]
fn a_register_of_an_address_that_changes_keeps_accesses_in_order() {
    let lines = scheduled(
        "v0 = load f32x4 f32 [r0 + 64]\n v1 = sqrt f32x4 v0\n store f32x4 f32 v1, [r0]\n r0 = sub r0, 16\n \
         v2 = load f32x4 f32 [r0 + 16]\n v3 = mul f32x4 v2, v2",
    );
    assert!(place(&lines, "v2 = load") > place(&lines, "store"), "{lines:#?}");
}

#[test]
fn neighbouring_stores_stay_neighbours() {
    let lines = scheduled(
        "v0 = load f32x4 f32 [r0]\n v1 = mul f32x4 v0, v0\n v2 = load f32x4 f32 [r0 + 16]\n v3 = sqrt f32x4 v2\n \
         v4 = sqrt f32x4 v3\n store f32x4 f32 v1, [r1]\n store f32x4 f32 v4, [r1 + 16]\n v5 = load f32x4 f32 [r1 + 32]\n \
         v6 = sqrt f32x4 v5",
    );
    assert_eq!(place(&lines, "v1, [r1]") + 1, place(&lines, "v4, [r1 + 16]"), "{lines:#?}");
    // what the second one stores is there first
    let lines = scheduled(
        "v0 = load f32x4 f32 [r0]\n v1 = load f32x4 f32 [r0 + 16]\n v2 = sqrt f32x4 v1\n v3 = sqrt f32x4 v2\n \
         store f32x4 f32 v3, [r1]\n store f32x4 f32 v0, [r1 + 16]\n v4 = sqrt f32x4 v0",
    );
    assert_eq!(place(&lines, "v3, [r1]") + 1, place(&lines, "v0, [r1 + 16]"), "{lines:#?}");
    assert_eq!(lines.len(), 7);
}

/// 36 loads, each with four products that are added to four of 24 sums: more than registers, since two products start as often as a load.
#[test]
fn loads_wait_while_registers_lack() {
    let step = |i: usize| {
        let product = |k: usize| format!("v{sum} += f32x4 v{0} * v{0}", i + 28, sum = 6 * k + i % 6);
        let load = format!("v{} = load f32x4 f32 [r0 + {}]", i + 28, 16 * i);
        format!("{load}\n {}", (0..4).map(product).collect::<Vec<_>>().join("\n "))
    };
    let lines = scheduled(&(0..36).map(step).collect::<Vec<String>>().join("\n"));
    let (mut live, mut most, mut read) = (24, 0, vec![0; 64]);
    for line in &lines {
        match line.split_once("* v") {
            None => live += 1,
            Some((_, register)) => {
                read[register.parse::<usize>().unwrap()] += 1;
                live -= usize::from(read[register.parse::<usize>().unwrap()] == 4);
            }
        }
        most = most.max(live);
    }
    assert!((30..=32).contains(&most), "{most}: {lines:#?}");
}

#[test]
fn one_result_comes_after_the_other() {
    // two loads, two products of one each, and their stores
    let successors = [vec![2], vec![3], vec![4], vec![5], vec![], vec![]];
    assert_eq!(depth_first::order(&successors, |i| i >= 4), [0, 2, 4, 1, 3, 5]);
}

/// 24 sums of three products each, selected tap by tap: more operands than registers, of which neighbouring sums read the same.
#[test]
fn sums_that_need_more_registers_than_there_are_come_in_turn() {
    let (sums, taps) = (24, 3);
    let (x, w) = (|i: usize| format!("v{}", sums + i), |j: usize| format!("v{}", 60 + j));
    let mut body: Vec<String> = (0..sums).map(|i| format!("v{i} = const f32x4 #0")).collect();
    body.extend((0..sums + taps - 1).map(|i| format!("{} = load f32x4 f32 [r0 + {}]", x(i), 16 * i)));
    body.extend((0..taps).map(|j| format!("{} = load f32x4 f32 [r1 + {}]", w(j), 16 * j)));
    let products = (0..taps).flat_map(|j| (0..sums).map(move |i| (i, j)));
    body.extend(products.map(|(i, j)| format!("v{i} += f32x4 {} * {}", x(i + j), w(j))));
    body.extend((0..sums).map(|i| format!("store f32x4 f32 v{i}, [r3 + {}]", 16 * i)));
    let text = format!(
        "function f (parallel 1, 4 gpr, 64 vector registers, 0 scratch bytes) {{\n r0 = argument 0\n r1 = argument 1\n r3 = argument 2\n \
         r2 = 8\n loop r2 {{\n {}\n }}\n}}\n",
        body.join("\n ")
    );
    let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
    let spilled = |function: &Function| regalloc::allocate(function, &Target::neon()).unwrap().slots.vector;
    assert!(spilled(&function) > 0);
    schedule_loops(&mut function, &Target::neon());
    assert_eq!(spilled(&function), 0, "{function}");
}

#[test]
fn far_accesses_share_an_addition() {
    let lines = scheduled(
        "v0 = load f32x4 f32 [r0 + 69632]\n v1 = load f32x4 f32 [r0 + 69888]\n v2 = load f32x4 f32 [r0 + 65520]\n \
         store f32x4 f32 v0, [r1 + 69632]\n r0 = add r0, 16\n v3 = load f32x4 f32 [r0 + 69632]",
    );
    let additions = lines.iter().filter(|line| line.contains(", 65536")).count();
    // one for each base, and one for what the first base has become
    assert_eq!(additions, 3, "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains(" + 4096]")).count(), 3, "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("[r0 + 65520]")), "{lines:#?}");
}

/// A chain of six operations, for which the loads of the next iteration do not wait.
const CHAIN: &str = "v0 = load f32x4 f32 [r0]\n r0 = add r0, 16\n v1 = mul f32x4 v0, v0\n v2 = mul f32x4 v1, v1\n v3 = mul f32x4 v2, v2\n \
                     v4 = mul f32x4 v3, v3\n v5 = mul f32x4 v4, v4\n store f32x4 f32 v5, [r1]\n r1 = add r1, 16";

fn rotated(iterations: usize, body: &str) -> Function {
    let text = format!(
        "function f (parallel 1, 3 gpr, 8 vector registers, 0 scratch bytes) {{\n r0 = argument 0\n r1 = argument 1\n r2 = {iterations}\n \
         loop r2 (at least once) {{\n {body}\n }}\n}}\n"
    );
    let mut function = text::parse(&text).unwrap_or_else(|e| panic!("{e}")).remove(0);
    schedule_loops(&mut function, &Target::neon());
    function
}

#[test]
fn a_loop_begins_an_iteration_beside_the_one_before() {
    let function = rotated(20, CHAIN);
    let start = function.insts.iter().position(|i| matches!(i, Inst::LoopStart { .. })).unwrap();
    let end = function.insts.iter().position(|i| matches!(i, Inst::LoopEnd)).unwrap();
    assert_eq!(function.insts[..start].iter().filter(|i| i.lanes().is_some()).count(), 1, "{function}");
    assert!(function.insts[end..].iter().any(Inst::writes_memory), "{function}");
    assert_eq!(end - start - 1, CHAIN.lines().count(), "{function}");
    assert!(function.insts.iter().any(|i| matches!(i, Inst::Imm { value: 19, .. })), "{function}");
}

/// Few iterations, and a number that is not known.
#[test]
fn loops_that_may_be_short_stay() {
    let few = rotated(4, CHAIN);
    let unknown = rotated(20, &CHAIN.replace("store f32x4 f32 v5, [r1]", "store f32x4 f32 v5, [r1 + 1*r2]"));
    for function in [few, unknown] {
        let start = function.insts.iter().position(|i| matches!(i, Inst::LoopStart { .. })).unwrap();
        assert!(function.insts[..start].iter().all(|i| i.lanes().is_none()), "{function}");
    }
}
