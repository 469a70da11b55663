use super::*;
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

/// 36 loads, each with two products that are added to two of 24 sums: more than registers, since loads start as often as products.
#[test]
fn loads_wait_while_registers_lack() {
    let step = |i: usize| {
        let product = |sum: usize| format!("v{sum} += f32x4 v{0} * v{0}", i + 28);
        let load = format!("v{} = load f32x4 f32 [r0 + {}]", i + 28, 16 * i);
        [load, product(i % 12), product(12 + i % 12)].join("\n ")
    };
    let lines = scheduled(&(0..36).map(step).collect::<Vec<String>>().join("\n"));
    let (mut live, mut most, mut read) = (24, 0, vec![0; 64]);
    for line in &lines {
        match line.split_once("* v") {
            None => live += 1,
            Some((_, register)) => {
                read[register.parse::<usize>().unwrap()] += 1;
                live -= usize::from(read[register.parse::<usize>().unwrap()] == 2);
            }
        }
        most = most.max(live);
    }
    assert!((30..=32).contains(&most), "{most}: {lines:#?}");
}
