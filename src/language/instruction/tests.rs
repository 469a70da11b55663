use super::parser::parse;
use super::*;
use crate::codegen::Target;
use crate::codegen::instruction::{Encoding, Form, Slot, SumOrder};
use crate::expr::Var;
use crate::runtime::DType;

const VPDPBUSD: &str = r#"instruction vpdpbusd needs avx512vnni {
    acc i32(16) C in vector
    read u8(4) A broadcast
    read i8(16, 4) B in vector
    C(j) += i32(A(q)) * i32(B(j, q)) summed over q ascending
    encode "EVEX.512.66.0F38.W0 50 /r" reg = C, vvvv = A, rm = B
}
"#;

const SATURATING: &str = r#"instruction pairs needs avx512bw {
    acc i16(32) C in vector
    read u8(32, 2) A in vector
    read i8(32, 2) B in vector
    temporary t
    C(j) += i16(max(-32768, min(32767, i32(A(j, 0)) * i32(B(j, 0)) + i32(A(j, 1)) * i32(B(j, 1)))))
    encode "EVEX.512.66.0F38.WIG 04 /r" reg = t, vvvv = A, rm = B
    encode "EVEX.512.66.0F.WIG FD /r" reg = C, vvvv = C, rm = t
}
"#;

const SDOT: &str = r#"instruction sdot needs dotprod {
    acc i32(4) C in vector
    read i8(4) A broadcast
    read i8(4, 4) B in vector
    C(j) += i32(A(q)) * i32(B(j, q))
    encode "0100 1110 100 m:5 100101 n:5 d:5" d = C, n = A, m = B
}
"#;

const FOUR_BITS: &str = r#"instruction nibbles needs avx2 {
    acc i32(8) C in vector
    read i8(4) A broadcast
    read u8(8, 4) B in vector from 0 to 15
    constant i16 ones = 1
    temporary t
    C(j) += i32(A(q)) * i32(B(j, q))
    encode "VEX.256.66.0F38.WIG 04 /r" reg = t, vvvv = B, rm = A
    encode "VEX.256.66.0F.WIG F5 /r" reg = t, vvvv = t, rm = ones
    encode "VEX.256.66.0F.WIG FE /r" reg = C, vvvv = C, rm = t
}
"#;

fn row(text: &str) -> TensorInstruction {
    let mut rows = parse("rows.tile", text).and_then(|file| declare(&file)).unwrap();
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

#[test]
fn declarations_print_as_they_are_written() {
    for text in [VPDPBUSD, SATURATING, SDOT, FOUR_BITS] {
        let file = parse("rows.tile", text).unwrap();
        assert_eq!(file.to_string(), text);
    }
    let all = [VPDPBUSD, SATURATING, SDOT].join("\n");
    assert_eq!(parse("rows.tile", &all).unwrap().to_string(), all);
}

#[test]
fn a_declaration_is_a_row() {
    let vnni = row(VPDPBUSD);
    let iterators: Vec<(&str, i64)> = vnni.iterators.iter().map(|i| (&*i.name, i.extent)).collect();
    assert_eq!(iterators, [("j", 16), ("q", 4)]);
    let indices: Vec<&[Var]> = vnni.operands.iter().map(|o| &o.indices[..]).collect();
    assert_eq!(indices, [&[Var(0)][..], &[Var(1)], &[Var(0), Var(1)]]);
    assert_eq!((vnni.operands[1].form, vnni.order, vnni.vector_bytes()), (Form::Broadcast, SumOrder::Ascending, 64));
    assert_eq!(vnni.bytes_of(&[8, 17, 30], &[]), [0x62, 0x12, 0x75, 0x40, 0x50, 0xc6]);

    let sdot = row(SDOT);
    let Encoding::Aarch64 { word, registers, .. } = &sdot.code[0] else { panic!("{sdot:?}") };
    assert_eq!(*word, 0x4e80_9400);
    assert_eq!(registers[..], [(Slot::Operand(2), 16), (Slot::Operand(1), 5), (Slot::Operand(0), 0)]);
    assert_eq!(row(&SDOT.replace("B(j, q))\n", "B(j, q)) summed over q descending\n")).order, SumOrder::Descending);
}

/// A constant has a register behind those of the operands, and a range is that of the numbers in trials.
#[test]
fn ranges_and_constants_are_those_of_trials() {
    let row = row(FOUR_BITS);
    assert_eq!(
        (row.operands[2].range, row.constant_bits(), row.temporaries()),
        (Some((0, 15)), Some((DType::I16, 1)), 1)
    );
    let trials = row.trials();
    assert!(trials.iter().all(|t| t.len() == 4 && t[2].iter().all(|&b| b < 16) && t[3] == [1, 0].repeat(16)));
    for end in [0, 15] {
        assert!(trials.iter().any(|t| t[2].iter().all(|&b| b == end)), "{end}");
    }
    let range = |from, to, message, under| refused(FOUR_BITS, from, to, message, under);
    range(
        "from 0 to 15",
        "from 1 to 15",
        "a range of u8 has 0 and lies in 0 to 255",
        "u8(8, 4) B in vector from 1 to 15",
    );
    range("to 15", "to 256", "a range of u8 has 0 and lies in 0 to 255", "u8(8, 4) B in vector from 0 to 256");
    range("C in vector", "C in vector from 0 to 1", "an accumulator has all numbers", "i32(8) C in vector from 0 to 1");
    range("ones = 1", "ones = 32768", "32768 is not a number of i16", "i16 ones = 32768");
    range("constant i16", "constant f32", "a constant is an integer of up to 64 bits, not f32", "f32 ones = 1");
    range("    temporary", "    constant i8 twos = 2\n    temporary", "one constant at most", "constant");
    range("rm = ones", "rm = t", "no encoding names `ones`", "ones");
    let written = FOUR_BITS.replace("reg = t, vvvv = B", "reg = ones, vvvv = B");
    let error = super::parse("rows.tile", &written).unwrap_err().to_string();
    assert!(error.contains("writes the constant, which is only read"), "{error}");
}

/// The code by element is a row of its own, with the operand in the lowest lane.
#[test]
fn code_by_element_is_declared_behind_the_other() {
    let line = "    encode by element \"0100 1111 100 m:5 111000 n:5 d:5\" d = C, n = B, m = A\n";
    let text = SDOT.replace("m = B\n", &format!("m = B\n{line}"));
    assert_eq!(parse("rows.tile", &text).unwrap().to_string(), text);
    let (sdot, plain) = (row(&text), row(SDOT));
    let by_element = sdot.by_element().unwrap();
    assert_eq!((by_element.operands[1].form, by_element.bytes(1)), (Form::Vector, 4));
    assert_eq!(by_element.bytes_of(&[1, 2, 3], &[]), 0x4f82_e061u32.to_le_bytes());
    assert_eq!(sdot.bytes_by_element(&[1, 2, 3], &[]), by_element.bytes_of(&[1, 2, 3], &[]));
    assert_eq!((sdot.bytes_of(&[1, 2, 3], &[]), plain.by_element()), (plain.bytes_of(&[1, 2, 3], &[]), None));
    let refusal = |text: &str| parse("rows.tile", text).and_then(|file| declare(&file)).unwrap_err().to_string();
    let first = text.replace(line, "").replace("    encode", &format!("{line}    encode"));
    assert!(refusal(&first).contains("encodings `by element` stand behind all others"), "{}", refusal(&first));
    let vectors = text.replace("A broadcast", "A in vector");
    assert!(refusal(&vectors).contains("`sdot` has 0 operands that are broadcast, not one"), "{}", refusal(&vectors));
    let x86 = VPDPBUSD
        .replace("rm = B\n", "rm = B\n    encode by element \"EVEX.512.66.0F38.W0 50 /r\" reg = C, vvvv = A, rm = B\n");
    assert!(refusal(&x86).contains("only AArch64 has instructions by element"), "{}", refusal(&x86));
    let wrong = text.replace("sdot", "mine").replace("111000 n:5", "111011 n:5");
    let error = super::parse("rows.tile", &wrong).unwrap_err().to_string();
    assert!(error.contains("`mine`: ") && error.contains("rows.tile:7:"), "{error}");
}

/// A dimension that is read at numbers has an extent, and nothing is summed over it.
#[test]
fn numbers_are_subscripts_of_dimensions_without_an_iterator() {
    let pairs = row(SATURATING);
    assert_eq!((pairs.bytes(1), pairs.temporaries(), pairs.summed().count()), (64, 1, 0));
    let (a, b) = ([255u8; 64], [127u8; 64]);
    let mut c = [0u8; 64];
    pairs.evaluate(&mut c, &[&a, &b]).unwrap();
    assert_eq!(i16::from_le_bytes([c[62], c[63]]), 32767);
}

/// The order of several iterators is the one that the text gives.
#[test]
fn the_order_of_a_sum_names_its_iterators() {
    let text = |order: &str| {
        VPDPBUSD
            .replace("u8(4) A broadcast", "u8(2, 2) A broadcast")
            .replace("i8(16, 4) B", "i8(16, 2, 2) B")
            .replace("A(q)", "A(p, q)")
            .replace("B(j, q)", "B(j, p, q)")
            .replace("summed over q ascending", order)
    };
    let names =
        |row: &TensorInstruction| row.summed().map(|v| row.iterators[v.0 as usize].name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&row(&text(""))), ["p", "q"]);
    let turned = row(&text("summed over q, p ascending"));
    assert_eq!(names(&turned), ["q", "p"]);
    assert_eq!(turned.operands[1].indices, [Var(2), Var(1)]);
}

/// Asserts that `text` with `from` replaced by `to` is refused with `message` at `under`.
fn refused(text: &str, from: &str, to: &str, message: &str, under: &str) {
    let changed = text.replacen(from, to, 1);
    assert_ne!(changed, text, "{from}");
    let error = parse("rows.tile", &changed).and_then(|file| declare(&file)).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 3, "{error}");
    let (first, last) = (lines[2].find('^').unwrap_or(0), lines[2].trim_end().len());
    let marked = lines[1].get(first..last).unwrap_or_default();
    assert!(lines[0].contains(message) && marked == under, "{error}\nmarked: {marked}");
}

#[test]
fn wrong_declarations_say_what_and_where() {
    let x86 = |from, to, message, under| refused(VPDPBUSD, from, to, message, under);
    x86("avx512vnni", "avx512vni", "there is no processor feature `avx512vni`", "avx512vni");
    x86("needs avx512vnni", "needs avx512vnni dotprod", "`dotprod` is a feature of another architecture", "dotprod");
    x86(
        "needs avx512vnni",
        "needs dotprod",
        "an encoding of x86_64, but `vpdpbusd` needs dotprod",
        "\"EVEX.512.66.0F38.W0 50 /r\"",
    );
    x86(
        "acc i32(16) C in vector",
        "acc i32(16) C broadcast",
        "an accumulator stands `in vector`",
        "i32(16) C broadcast",
    );
    x86("    acc i32(16) C in vector\n", "", "`vpdpbusd` has no accumulator", "vpdpbusd");
    x86("read u8(4)", "raed u8(4)", "did you mean `read`?", "raed");
    x86("u8(4) A", "u8(5) A", "`q` has 5 points in `A`, but 4 in `B`", "q");
    x86("i32(16) C", "i32(8) C", "`j` has 8 points in `C`, but 16 in `B`", "j");
    x86("B(j, q)", "B(q)", "`B` has 2 dimensions, but 1 subscripts", "B(q)");
    x86("B(j, q)", "B(2*j, q)", "a subscript of an instruction is an iterator or a number", "2*j");
    x86("B(j, q)", "B(j, 4)", "4 is outside of 0..4, the elements of `B`", "4");
    x86("B(j, q)", "D(j, q)", "there is no operand `D`: there are A, B", "D(j, q)");
    x86("i32(B(j, q))", "i32(B(j, q)) + C(j)", "a term does not read the accumulator `C`", "C(j)");
    x86("i32(A(q))", "A(q)", "`A(q)` is u8", "A(q) * i32(B(j, q))");
    x86("* i32(B(j, q))", "", "the semantics do not read `B`", "B");
    x86("C(j) +=", "D(j) +=", "the equation adds to `D`, but the accumulator is `C`", "D");
    x86("C(j) +=", "C(j) =", "expected `+=`: an instruction adds to its accumulator", "=");
    x86("over q", "over k", "there is no iterator of the sum `k`: there are q", "k");
    x86("ascending", "upwards", "expected `ascending`, `descending`, `apart` or `grouped`", "upwards");
    x86("EVEX.512", "EVEX.1024", "expected the bits of the vectors", "1024");
    x86("EVEX.512", "VEX.512", "expected the bits of the vectors: `128` or `256`", "512");
    x86("0F38", "0F37", "expected a prefix", "0F37");
    x86("50 /r", "5 /r", "expected the opcode, two hexadecimal digits", "5");
    x86("50 /r", "50 /4", "expected `/r`", "/4");
    x86("50 /r", "50 /r ib", "nothing fills the field `imm`", "\"EVEX.512.66.0F38.W0 50 /r ib\"");
    x86("rm = B", "mr = B", "there is no field `mr`: there are reg, vvvv, rm", "mr");
    x86("rm = B", "rm = D", "there is no operand or temporary `D`", "D");
    x86(", rm = B", "", "nothing fills the field `rm`", "\"EVEX.512.66.0F38.W0 50 /r\"");
    x86("rm = B", "rm = A", "no encoding names `B`", "B");
    x86("    C(j)", "    temporary t\n    C(j)", "no encoding names `t`", "t");
    x86("instruction", "def f() -> () {} instruction", "a file of instructions holds only instructions", "def");
    refused(
        SATURATING,
        "read u8(32, 2)",
        "read i32(32, 2)",
        "`A` has 256 bytes, but a register of `pairs` has 64",
        "i32(32, 2) A in vector",
    );
    let arm = |from, to, message, under| refused(SDOT, from, to, message, under);
    arm(
        "read i8(4) A broadcast",
        "read i64(4) A broadcast",
        "`A` has 32 bytes: a broadcast repeats 2, 4 or 8",
        "i64(4) A broadcast",
    );
    arm("0100 1110 100", "0100 1110 10", "a word has 32 bits, not 31", "\"0100 1110 10 m:5 100101 n:5 d:5\"");
    arm(
        "0100 1110 100 m:5",
        "0100 1110 1000 m:4",
        "a field of 4 bits stands in code by element, for the operand that is broadcast",
        "\"0100 1110 1000 m:4 100101 n:5 d:5\"",
    );
    arm("m:5", "m:3", "a field has a name and 5 bits", "m:3");
    arm("d = C, ", "", "nothing fills the field `d`", "\"0100 1110 100 m:5 100101 n:5 d:5\"");
    arm("m = B", "m = 3", "`m` is a register, not a number", "3");
    let twice = parse("rows.tile", &[SDOT, SDOT].join("\n")).unwrap_err().to_string();
    assert!(twice.contains("the instruction `sdot` is already defined"), "{twice}");
    let program = crate::language::parse("p.tile", SDOT).unwrap_err().to_string();
    assert!(program.contains("a program cannot bring instructions along"), "{program}");
}

#[test]
fn built_in_rows_round_trip_and_decode() {
    let file = parse("instructions.tile", BUILT_IN).unwrap();
    let printed = file.to_string();
    assert_eq!(parse("printed", &printed).unwrap(), file);
    assert_eq!(parse("printed", &printed).unwrap().to_string(), printed);
    let rows = built_in().unwrap();
    assert!(rows.len() >= 20, "{}", rows.len());
    for (row, instruction) in rows.iter().zip(&file.instructions) {
        check_code(instruction, row).map_err(|problem| file.source.error(problem)).unwrap();
    }
}

/// Two vectors of one type may change places in a word without any other sign: the decoders see the same registers. By the Arm
/// Architecture Reference Manual the element i, j of a product of matrices sums row i of Vn and row j of Vm, and where one of the
/// factors has unsigned bytes, these stand in Vn (SMMLA, UMMLA, USMMLA, BFMMLA; USDOT).
#[test]
fn first_factors_of_aarch64_stand_in_field_n() {
    let (mut matrices, mut mixed) = (0, 0);
    for row in built_in().unwrap() {
        for encoding in &row.code {
            let Encoding::Aarch64 { registers, .. } = encoding else { continue };
            let operand = |bit: u8| match registers.iter().find(|field| field.1 == bit) {
                Some((Slot::Operand(operand), _)) => &row.operands[*operand as usize],
                _ => panic!("{}: no operand at bit {bit}", row.name),
            };
            let (sums, first, second) = (operand(0), operand(5), operand(16));
            if let [i, j] = sums.indices[..] {
                assert_eq!([first.indices[0], second.indices[0]], [i, j], "{}", row.name);
                matrices += 1;
            }
            if first.dtype != second.dtype {
                assert_eq!((first.dtype, second.dtype), (DType::U8, DType::I8), "{}", row.name);
                mixed += 1;
            }
        }
    }
    assert_eq!((matrices, mixed), (5, 3));
}

#[test]
fn a_target_has_the_rows_of_its_features_and_width() {
    let rows = built_in().unwrap();
    let names = |target: Target| -> Vec<String> {
        target.with_instructions(rows).instructions.iter().map(|row| row.name.to_string()).collect()
    };
    let sums = ["vfmadd231ps", "vfmadd231pd", "vfmadd231ps_by_lanes", "vfmadd231pd_by_lanes"];
    let integers = ["vpmaddwd", "vpmaddubsw_of_4_bits"];
    let rows_of =
        |suffix: &str| -> Vec<String> { sums.iter().chain(&integers).map(|r| format!("{r}{suffix}")).collect() };
    assert_eq!(names(Target::avx512()), rows_of(""));
    assert_eq!(names(Target::avx2()), rows_of("_ymm"));
    assert!(names(Target::avx512_vnni()).contains(&"vpdpbusd".to_string()));
    assert_eq!(names(Target::neon()), ["fmla_4s", "fmla_2d", "fmla_4s_by_lanes", "fmla_2d_by_lanes"]);
}

/// Asserts that the user's row `text`, with `from` replaced by `to`, is refused with `message`.
fn code_refused(text: &str, from: &str, to: &str, message: &str) {
    let name = if text == VPDPBUSD { text.replace(" vpdpbusd ", " mine ") } else { text.replace(" sdot ", " mine ") };
    super::parse("rows.tile", &name).unwrap();
    let changed = name.replace(from, to);
    assert_ne!(changed, name, "{from}");
    let error = super::parse("rows.tile", &changed).unwrap_err().to_string();
    assert!(error.contains(message) && error.lines().count() == 3, "{error}");
}

#[test]
fn code_is_the_instruction_that_a_row_declares() {
    let shadow = super::parse("rows.tile", VPDPBUSD).unwrap_err().to_string();
    assert!(shadow.contains("`vpdpbusd` is the name of a built-in row"), "{shadow}");
    let x86 = |from, to, message| code_refused(VPDPBUSD, from, to, message);
    x86("W0 50", "W0 0F", "are not an instruction");
    x86("needs avx512vnni", "needs fma", "needs avx512vnni, which the row does not name");
    x86("66.0F38.W0 50", "66.0F.WIG FC", "needs avx512bw, which the row does not name");
    x86("needs avx512vnni", "needs avx512bw", "needs avx512vnni, which the row does not name");
    x86("needs avx512vnni", "needs avx512vnni fma", "no encoding needs fma");
    x86("reg = C, vvvv = A", "reg = A, vvvv = C", "writes `A`, which is only read");
    x86("EVEX.512.66.0F38.W0 50", "EVEX.256.66.0F38.W0 50", "`C` has 64 bytes, but a register of `mine` has 32");
    x86("66.0F38.W0 50 /r", "66.0F38.W1 29 /r", "has an operand that is not a vector or tile register");
    let text = SATURATING.replace("reg = t, vvvv = A", "reg = t, vvvv = t").replace("rm = t", "rm = A");
    let error = super::parse("rows.tile", &text).unwrap_err().to_string();
    assert!(error.contains("reads temporary 0, which nothing has written"), "{error}");
    let arm = |from, to, message| code_refused(SDOT, from, to, message);
    arm("0100 1110 100 m:5", "0000 1110 100 m:5", "has 16 bytes, but its register in");
    arm("0100 1110 100 m:5 100101", "0000 0000 000 m:5 000000", "is not an instruction");
    arm("0100 1110 100 m:5 100101", "0100 1110 100 m:5 100111", "needs i8mm, which the row does not name");
    arm("needs dotprod", "needs dotprod i8mm", "no encoding needs i8mm");
    arm("d = C, n = A", "d = A, n = C", "writes `A`, which is only read");
}
