//! Tensor instructions as text: a user's rows are held to what they declare, by decoders and by this processor.

#[path = "emulator/mod.rs"]
mod emulator;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use tilewright::instructions::{TensorInstruction, built_in, parse};
use tilewright::internal::language::instruction::{built_in_file, parser};
use tilewright::internal::runtime::module::TensorSpec;
use tilewright::{Features, File, Model, Module, Options, Session, Target, Tensor};

const USER: &str = include_str!("instructions/user.tile");

/// The rows of `text` that this processor runs do what they say; the number of rows that ran.
fn run(rows: &[TensorInstruction]) -> usize {
    let here: Vec<&TensorInstruction> = rows.iter().filter(|row| row.runs_on_host()).collect();
    here.iter().for_each(|row| row.check_on_host().unwrap_or_else(|error| panic!("{error}")));
    here.len()
}

#[test]
fn three_rows_that_are_not_built_in_do_what_they_declare() {
    let rows = parse("user.tile", USER).unwrap();
    let names: Vec<String> = rows.iter().map(|row| row.name.to_string()).collect();
    assert_eq!(names, ["vpsadbw_sum", "vpmaddubsw_sum", "vpmadd52luq"]);
    println!("{} of {} rows run here", run(&rows), rows.len());
}

#[test]
fn built_in_rows_do_what_they_declare() {
    let rows = built_in().unwrap();
    println!("{} of {} rows run here", run(rows), rows.len());
}

/// The trials of a row for the emulator.
fn jobs(row: &TensorInstruction) -> Vec<emulator::Job> {
    let code = row.trial_code().unwrap();
    let job = |buffers| emulator::Job {
        name: row.name.to_string(),
        steps: vec![(code.clone(), 0, 0)],
        scratch_bytes: 0,
        buffers,
    };
    row.trials().into_iter().map(job).collect()
}

/// Every row of AArch64 runs against its semantics, on an emulated processor.
#[test]
fn built_in_rows_of_aarch64_do_what_they_declare() {
    let mut rows = built_in().unwrap().to_vec();
    rows.retain(|row| Features::of_architecture("aarch64").contains(row.features));
    assert!(rows.len() >= 7);
    let by_element: Vec<TensorInstruction> = rows.iter().filter_map(TensorInstruction::by_element).collect();
    assert_eq!(by_element.len(), 7);
    rows.extend(by_element);
    let all: Vec<emulator::Job> = rows.iter().flat_map(jobs).collect();
    let Some(results) = emulator::run("instructions", &all) else { return };
    let mut results = results.into_iter();
    for row in &rows {
        let of_row: Vec<_> = results.by_ref().take(row.trials().len()).collect();
        for place in 0..2 {
            let after: Vec<_> = of_row.iter().map(|both| both[place].clone()).collect();
            row.judge(&after).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    // The judge can tell: the first row with the results of the second.
    let wrong: Vec<_> = rows[1].trials();
    assert!(rows[0].judge(&wrong).is_err());
}

/// Rows of a user for AArch64 that are not built in, run by the emulator: what they declare, and one that does something else.
#[test]
fn other_rows_of_aarch64_do_what_they_declare() {
    let text = "instruction distances needs neon {
            acc i32(4) C in vector
            read i32 A broadcast from -1000 to 1000
            read i32(4) B in vector from -1000 to 1000
            C(j) += abs(A - B(j))
            encode \"0100 1110 101 m:5 011111 n:5 d:5\" d = C, n = A, m = B
        }
        instruction minima needs neon {
            acc i32(4) C in vector
            read i32 A broadcast
            read i32(4) B in vector
            temporary t
            C(j) += min(A, B(j))
            encode \"0100 1110 101 m:5 011011 n:5 d:5\" d = t, n = A, m = B
            encode \"0100 1110 101 m:5 100001 n:5 d:5\" d = C, n = C, m = t
        }
        instruction doubles needs neon {
            acc i32(4) C in vector
            read i32(4) B in vector from -8 to 7
            constant i32 two = 2
            C(j) += B(j) * 2
            encode \"0100 1110 101 m:5 100101 n:5 d:5\" d = C, n = two, m = B
        }";
    let right = parse("mine.tile", text).unwrap();
    // Differences of numbers without a sign.
    let wrong = parse("mine.tile", &text.replace("0100 1110 101 m:5 011111", "0110 1110 101 m:5 011111")).unwrap();
    let rows: Vec<&TensorInstruction> = right.iter().chain(&wrong[..1]).collect();
    let all: Vec<emulator::Job> = rows.iter().flat_map(|row| jobs(row)).collect();
    let Some(results) = emulator::run("others", &all) else { return };
    let mut results = results.into_iter();
    for (n, row) in rows.iter().enumerate() {
        let of_row: Vec<_> = results.by_ref().take(row.trials().len()).map(|both| both[0].clone()).collect();
        assert_eq!(row.judge(&of_row).is_ok(), n < right.len(), "{}", row.name);
    }
}

/// `a + b` rounded to odd: towards zero, and the last bit is set where the result is inexact.
fn sum_to_odd(a: f32, b: f32) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let sum = a + b;
    // The error of the sum (Knuth); with it `sum` rounded to odd, which a second rounding to odd keeps right.
    let rest = (a - (sum - (sum - a))) + (b - (sum - a));
    let sum = match sum.to_bits() & 1 == 0 && rest != 0.0 {
        true if (rest > 0.0) == (sum > 0.0) => f64::from_bits(sum.to_bits() + 1),
        true => f64::from_bits(sum.to_bits() - 1),
        false => sum,
    };
    let near = sum as f32;
    let truncated = if f64::from(near).abs() > sum.abs() { f32::from_bits(near.to_bits() - 1) } else { near };
    if f64::from(truncated) == sum { truncated } else { f32::from_bits(truncated.to_bits() | 1) }
}

/// The sums of `bfmmla`, bit by bit: terms `order[0]` are added first, then terms `order[1]`, and both to the accumulator in turn.
fn sums_to_odd(registers: &[Vec<u8>], order: [[usize; 2]; 2]) -> Vec<u8> {
    let half = |n: usize, at: usize| {
        let bits = u16::from_le_bytes([registers[n][2 * at], registers[n][2 * at + 1]]);
        f32::from_bits(u32::from(bits) << 16)
    };
    let sum = |(element, before): (usize, &[u8])| {
        let term = |q: usize| half(1, element / 2 * 4 + q) * half(2, element % 2 * 4 + q);
        let before = f32::from_le_bytes(before.try_into().unwrap());
        let total = order.iter().fold(before, |total, &[p, q]| sum_to_odd(total, sum_to_odd(term(p), term(q))));
        total.to_le_bytes()
    };
    registers[0].chunks_exact(4).enumerate().flat_map(sum).collect()
}

/// Each pair of neighbouring terms has a sum of its own, as the row declares, and all sums are rounded to odd.
#[test]
fn bfmmla_adds_in_the_declared_order() {
    let row = built_in().unwrap().iter().find(|row| row.name.as_str() == "bfmmla").unwrap();
    assert_eq!(row.order.word(), "grouped");
    let Some(results) = emulator::run("order", &jobs(row)) else { return };
    let (mut others, trials) = (0, row.trials());
    for (before, after) in trials.iter().zip(results) {
        assert_eq!(after[0][0], sums_to_odd(before, [[0, 1], [2, 3]]));
        others += usize::from(after[0][0] != sums_to_odd(before, [[0, 2], [1, 3]]));
    }
    assert!(others > 20, "{others} of {} trials depend on the order", trials.len());
}

#[test]
fn all_rows_survive_printing() {
    let file = parser::parse("user.tile", USER).unwrap();
    for file in [file, built_in_file().unwrap()] {
        let printed = parser::parse("printed", &file.to_string()).unwrap();
        assert_eq!(printed, file);
        assert_eq!(printed.to_string(), file.to_string());
    }
}

/// The refusal of the row `name` of the user's file after `from` became `to` in it: by its text, else by this processor;
/// `None` where this processor lacks the row's features.
fn refusal(name: &str, changes: &[(&str, &str)]) -> Option<String> {
    let mut file = parser::parse("user.tile", USER).unwrap();
    file.instructions.retain(|i| i.name.text == name);
    let mut text = file.to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}: {text}");
        text = text.replacen(from, to, 1);
    }
    let rows = match parse("user.tile", &text) {
        Ok(rows) => rows,
        Err(error) => return Some(error.to_string()),
    };
    let row = rows.iter().find(|row| row.runs_on_host())?;
    Some(row.check_on_host().expect_err("the row is wrong").to_string())
}

/// Asserts that the refusal, where there is one, has all `parts`.
fn says(refusal: Option<String>, parts: &[&str]) {
    if let Some(text) = refusal {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn wrong_semantics_are_refused_with_the_values() {
    says(
        refusal("vpsadbw_sum", &[("abs(i64(A(j, q)) - i64(B(j, q)))", "i64(A(j, q)) - i64(B(j, q))")]),
        &[
            "the code of `vpsadbw_sum` does not do what its semantics say: element ",
            " of `C` becomes ",
            ", A = [",
            ", B = [",
        ],
    );
    // The saturation left out, and put at another place.
    let sum = "i32(A(j, 0)) * i32(B(j, 0)) + i32(A(j, 1)) * i32(B(j, 1))";
    let saturated = format!("i16(max(-32768, min(32767, {sum})))");
    says(refusal("vpmaddubsw_sum", &[(&saturated, &format!("i16({sum})"))]), &["`vpmaddubsw_sum`", "element", "`C`"]);
    says(refusal("vpmadd52luq", &[("4503599627370495", "9007199254740991")]), &["`vpmadd52luq`", "element", "`C`"]);
}

/// An instruction that saturates its sums differs from one that wraps only at the ends of the type.
#[test]
fn saturating_sums_are_told_from_wrapping_ones() {
    let file = built_in_file().unwrap();
    for (name, from, to) in [("vpdpbusd", "W0 50", "W0 51"), ("vpdpwssd", "W0 52", "W0 53")] {
        let row = file.instructions.iter().find(|i| i.name.text == name).unwrap().to_string();
        let rows = parse("mine.tile", &row.replacen(name, "mine", 1).replace(from, to)).unwrap();
        if rows[0].runs_on_host() {
            let error = rows[0].check_on_host().unwrap_err().to_string();
            assert!(error.contains("the code of `mine` does not do what its semantics say"), "{error}");
        }
    }
}

#[test]
fn wrong_encodings_are_refused() {
    // The high half of the product: the same operands, the same feature.
    says(refusal("vpmadd52luq", &[("W1 B4", "W1 B5")]), &["`vpmadd52luq` does not do what its semantics say"]);
    // Without a decoder's help: neither an instruction, nor one with these operands or features.
    says(refusal("vpmadd52luq", &[("W1 B4", "W0 B4")]), &["are not an instruction", "user.tile:6:12"]);
    says(refusal("vpsadbw_sum", &[("WIG F6", "WIG E7")]), &["`vpsadbw_sum`: "]);
    says(
        refusal("vpsadbw_sum", &[("needs avx512f avx512bw", "needs avx512f")]),
        &["needs avx512bw, which the row does not name"],
    );
    says(refusal("vpsadbw_sum", &[("rm = t", "rm = A"), ("reg = t", "reg = A")]), &["no encoding names `t`"]);
}

/// The decoder's text has no operands of `bfmmla`: they are those of its definition, and are compared as all others.
#[test]
fn words_that_the_decoder_leaves_open_are_checked() {
    let file = built_in_file().unwrap();
    let row = file.instructions.iter().find(|i| i.name.text == "bfmmla").unwrap().to_string();
    let text = row.replacen("bfmmla", "mine", 1);
    assert_eq!(parse("mine.tile", &text).unwrap().len(), 1);
    // By element of 16 bits a register has four bits, and the fifth one of the field is part of the element's number.
    let lanes = "instruction mine needs fp16 {
        acc f16(8) C in vector
        read f16(8) A in vector
        read f16(8) B in vector
        C(j) += A(j) * B(j)
        encode \"0100 1111 000 m:5 000100 n:5 d:5\" d = C, n = A, m = B
    }";
    let error = parse("mine.tile", lanes).unwrap_err().to_string();
    assert!(error.contains("but the row puts") && error.contains("into its fields"), "{error}");
    // A field of four bits says so.
    let fmla = built_in().unwrap().iter().find(|row| row.name.as_str() == "fmla_8h").unwrap();
    let halves =
        built_in_file().unwrap().instructions.into_iter().find(|i| i.name.text == "fmla_8h").unwrap().to_string();
    let halves = halves.replacen("fmla_8h", "mine", 1);
    assert!(fmla.by_element().is_some() && parse("mine.tile", &halves).is_ok(), "{halves}");
    let error = parse("mine.tile", &halves.replacen("0000 m:4", "000 m:5", 1)).unwrap_err().to_string();
    assert!(error.contains("into its fields"), "{error}");
    let pattern = "\"0110 1110 010 m:5 111011 n:5 d:5\"";
    for (from, to, message) in [
        ("needs bf16", "needs i8mm", "needs bf16, which the row does not name"),
        ("d = C, n = A, m = B", "d = A, n = C, m = B", "writes `A`, which is only read"),
        // Fields exchanged, the word of SVE, of another feature, and of no instruction.
        (pattern, "\"0110 1110 010 m:5 111011 d:5 n:5\"", "writes `A`, which is only read"),
        (pattern, "\"0110 0100 011 m:5 111001 n:5 d:5\"", "an operand that is not a vector register"),
        (pattern, "\"0110 1110 000 m:5 111011 n:5 d:5\"", "`fmmla v3.8h, v14.16b, v9.16b` needs F8F16MM"),
        (pattern, "\"0110 1110 010 m:5 111010 n:5 d:5\"", "is not an instruction"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        let error = parse("mine.tile", &text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(message), "{to}: {error}");
    }
}

#[test]
fn wrong_operand_orders_are_refused() {
    let swapped = [("vvvv = A, rm = B", "vvvv = B, rm = A")];
    // u8 and i8 are not exchanged; sums of differences are symmetric.
    says(refusal("vpmaddubsw_sum", &swapped), &["the code of `vpmaddubsw_sum` does not do", "A = [", "B = ["]);
    says(refusal("vpmadd52luq", &[("reg = C, vvvv = A", "reg = A, vvvv = C")]), &["writes `A`, which is only read"]);
    let rows = parse("user.tile", &USER.replace("vvvv = A, rm = B", "vvvv = B, rm = A").replace("vpmaddubsw", "other"))
        .unwrap();
    let symmetric = rows.iter().find(|row| row.name.to_string() == "vpsadbw_sum").unwrap();
    if symmetric.runs_on_host() {
        symmetric.check_on_host().unwrap();
    }
}

#[test]
fn the_order_of_a_sum_is_checked() {
    let file = built_in_file().unwrap();
    let row = file.instructions.iter().find(|i| i.name.text == "vdpbf16ps").unwrap().to_string();
    let turned = row.replace("vdpbf16ps", "mine").replace("descending", "ascending");
    let rows = parse("user.tile", &turned).unwrap();
    if rows[0].runs_on_host() {
        let error = rows[0].check_on_host().unwrap_err().to_string();
        assert!(error.contains("`mine` adds in another order: its sum is `descending`"), "{error}");
    }
    let row = file.instructions.iter().find(|i| i.name.text == "tdpbf16ps").unwrap().to_string();
    for order in ["ascending", "descending"] {
        let rows = parse("user.tile", &row.replace("tdpbf16ps", "mine").replace("apart", order)).unwrap();
        if rows[0].runs_on_host() {
            let error = rows[0].check_on_host().unwrap_err().to_string();
            assert!(error.contains("`mine` adds in another order: its sum is `apart`"), "{error}");
        }
    }
}

#[test]
fn unknown_features_and_wrong_extents_are_refused() {
    let text = |name, from, to| refusal(name, &[(from, to)]).unwrap();
    let unknown = text("vpmadd52luq", "avx512ifma", "avx512ifna");
    assert!(
        unknown.contains("there is no processor feature `avx512ifna`")
            && unknown.contains("did you mean `avx512ifma`?")
    );
    let wide = refusal("vpmadd52luq", &[("u64(8) C", "u64(16) C"), ("u64(8) B", "u64(16) B")]).unwrap();
    assert!(wide.contains("`C` has 128 bytes, but a register of `vpmadd52luq` has 64"), "{wide}");
    let unequal = text("vpmadd52luq", "u64(8) B", "u64(4) B");
    assert!(unequal.contains("`j` has 8 points in `C`, but 4 in `B`"), "{unequal}");
    let narrow = refusal("vpsadbw_sum", &[("EVEX.512.66.0F.WIG F6", "EVEX.256.66.0F.WIG F6")]).unwrap();
    assert!(narrow.contains("needs avx512vl") || narrow.contains("has 32"), "{narrow}");
}

/// Sums over many operands would take for ever to evaluate.
#[test]
fn iterators_have_few_points() {
    let reads: String = (0..4).map(|n| format!("    read u8(64) A{n} in vector\n")).collect();
    let terms: Vec<String> = (0..4).map(|n| format!("u64(A{n}(q{n}))")).collect();
    let text = USER.replace("    read u64 A broadcast\n", &format!("    read u64 A broadcast\n{reads}"));
    let text = text.replace("A * B(j)", &format!("A * B(j) * {}", terms.join(" * ")));
    let named = "encode \"EVEX.512.66.0F38.W1 B4 /r\" reg = A0, vvvv = A1, rm = A2\n    encode \"EVEX.512.66.0F38.W1 B4 /r\" reg = C, vvvv = A3, rm = A3\n}\n";
    let error =
        parse("user.tile", &text.replacen("rm = B\n}\n", &format!("rm = B\n    {named}"), 3)).unwrap_err().to_string();
    assert!(error.contains("the iterators have 134217728 points, more than 65536"), "{error}");
}

/// Characters that take the place of others.
const CHARACTERS: &[u8] = b"0123456789ABCDEF abcjq(),=\"+*\n";

/// Changed texts are read or refused, and code that a decoder knows is formatted, whatever its bits are.
#[test]
fn changed_texts_are_read_or_refused() {
    let text = [USER, &built_in_file().unwrap().to_string()].concat();
    let file = parser::parse("all.tile", &text).unwrap();
    let mut generator = StdRng::seed_from_u64(17);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..1500 {
        let row = &file.instructions[generator.random_range(0..file.instructions.len())];
        let mut bytes = row.to_string().replacen(&row.name.text, "mine", 1).into_bytes();
        for _ in 0..generator.random_range(1..4) {
            let at = generator.random_range(0..bytes.len());
            match bytes[at] {
                b'0' | b'1' => bytes[at] ^= 1,
                _ => bytes[at] = CHARACTERS[generator.random_range(0..CHARACTERS.len())],
            }
        }
        match parse("mine.tile", &String::from_utf8(bytes).unwrap()) {
            Ok(_) => read += 1,
            Err(error) => {
                assert!(error.to_string().lines().count() == 3, "{error}");
                refused += 1;
            }
        }
    }
    assert!(read > 10 && refused > 200, "{read} read, {refused} refused");
}

/// Patterns of any bits: a word is an instruction with the registers that the row names, or it is refused.
#[test]
fn words_of_any_bits_are_decoded_or_refused() {
    let mut generator = StdRng::seed_from_u64(18);
    let mut read = 0;
    for _ in 0..3000 {
        let bits: String = (0..17).map(|_| if generator.random() { '1' } else { '0' }).collect();
        let pattern = format!("{} m:5 {} n:5 d:5", &bits[..11], &bits[11..]);
        let pattern = if generator.random() { pattern.replacen(&bits[..3], "010", 1) } else { pattern };
        let text = format!(
            "instruction mine needs neon {{\n    acc i32(2) C in vector\n    read i32(2) A in vector\n    read i32(2) B in vector\n    \
             C(j) += A(j) * B(j)\n    encode \"{pattern}\" d = C, n = A, m = B\n}}\n"
        );
        read += usize::from(parse("mine.tile", &text).is_ok());
    }
    assert!(read > 10, "{read}");
}

/// Rows of a user's file compute what a program says, in any size.
#[test]
fn rows_of_a_file_are_matched_and_obeyed() {
    let program = "def sad(u8(M,K) A, u8(N,K) B) -> (C) { C(m,n) +=! abs(i64(A(m,k)) - i64(B(n,k))) }
        def low(u64(M,K) A, u64(K,N) B) -> (C) { C(m,n) +=! bit_and(A(m,k) * B(k,n), 4503599627370495) }";
    let rows: Arc<[TensorInstruction]> = parse("user.tile", USER).unwrap().into();
    let mut generator = StdRng::seed_from_u64(5);
    for (name, row) in [("sad", "vpsadbw_sum"), ("low", "vpmadd52luq")] {
        let wanted = rows.iter().find(|r| r.name.as_str() == row).unwrap();
        if !Target::avx512().runs_on_host() || !Features::host().contains(wanted.features) {
            continue;
        }
        let mut used = 0;
        for _ in 0..12 {
            let sizes = ["M", "K", "N"].map(|size| (size.to_string(), generator.random_range(1..70)));
            let model = |options: &Options| {
                let file = File::parse("user_program.tile", program).unwrap();
                Model::from_program(file, Some(name), None).unwrap().compile_module(options).unwrap()
            };
            let with = Options { instructions: rows.clone(), dims: sizes.clone().into(), ..Options::default() };
            let without = Options { dims: sizes.into(), ..Options::default() };
            let [(found, report), (expected, _)] = [&with, &without].map(model);
            let phases = report.kernels.iter().flat_map(|k| &k.phases);
            used += phases.filter(|p| p.instruction.as_deref() == Some(row)).count();
            let [found, expected] = [found, expected].map(outputs);
            assert!(found.iter().zip(&expected).all(|(a, b)| a.data == b.data), "{name}");
        }
        assert!(used >= 8, "`{row}` in {used} of 12 programs");
    }
}

/// Rows on vectors of AVX-512, by hand: what a lane has of each operand, its loops, and whether the operand in lanes is packed.
const BY_HAND: [(&str, &str, &str, i64); 5] = [
    ("float_distances", "f32(M,K) A, f32(K,N) B", "abs(A(m,k) - B(k,n))", 1),
    ("long_products", "i64(M,K) A, i64(K,N) B", "A(m,k) * B(k,n)", 1),
    ("minima", "i32(M,K) A, i32(K,N) B", "min(A(m,k), B(k,n))", 1),
    ("word_pairs", "i16(M,K) A, i16(K,N) B", "i32(A(m,k)) * i32(B(k,n))", 2),
    ("distances", "u8(M,K) A, u8(N,K) B", "abs(i64(A(m,k)) - i64(B(n,k)))", 8),
];

/// An operand in lanes of one term each stays where it is; others are packed by groups.
#[test]
fn other_rows_are_obeyed_by_hand() {
    let rows: Arc<[TensorInstruction]> = parse("more.tile", include_str!("instructions/more.tile")).unwrap().into();
    assert_eq!(rows.len(), 6);
    println!("{} of 6 rows run here", run(&rows));
    for (row, operands, term, terms) in BY_HAND {
        let pack = match terms {
            1 => String::new(),
            _ => format!("cache_read B\n pack B as (n / 32, k / {terms}, n % 32, k % {terms})\n"),
        };
        let program = format!(
            "def f({operands}) -> (C) {{ sizes S {{ M = 7, N = 64, K = 37 }} C(m,n) +=! {term} }}
            schedule s for f {{ distribute C_init, C at m\n split C(m) by 3 -> mo, mi\n split C(n) by 32 -> no, ni\n
                split C(k) by {terms} -> ko, ki\n reorder C(mo, no, ko, mi, ni, ki)\n {pack} tensorize C(mi, ni, ki) with {row} }}"
        );
        let model = |schedule: Option<&str>| {
            let model =
                Model::from_program(File::parse("program.tile", &program).unwrap(), Some("f"), Some("S")).unwrap();
            if let Some(name) = schedule { model.with_schedule(name).unwrap() } else { model }
        };
        let compiled = |schedule, instructions: &Arc<[TensorInstruction]>| {
            let target = Some(Target::avx512());
            let options = Options { target, instructions: instructions.clone(), ..Options::default() };
            model(schedule).compile_module(&options).unwrap_or_else(|error| panic!("{row}: {error}"))
        };
        let (module, report) = compiled(Some("s"), &rows);
        let used = report.kernels.iter().flat_map(|k| &k.phases).filter(|p| p.instruction.as_deref() == Some(row));
        assert_eq!(used.count(), 1, "{row}: {report}");
        let features = rows.iter().find(|r| r.name.as_str() == row).unwrap().features;
        if Target::avx512().runs_on_host() && Features::host().contains(features) {
            let none: Arc<[TensorInstruction]> = Arc::from([]);
            let [found, expected] = [module, compiled(None, &none).0].map(outputs);
            assert!(found.iter().zip(&expected).all(|(a, b)| a.data == b.data), "{row}");
        }
    }
}

/// The outputs of a module for inputs of its own.
fn outputs(module: Module) -> Vec<Tensor> {
    let seeded = |(i, s): (u64, &TensorSpec)| (s.name.clone(), Tensor::seeded(s.dtype, &s.shape, 1, i, 250));
    let inputs: Vec<(String, Tensor)> = (0..).zip(module.inputs()).map(seeded).collect();
    let inputs: Vec<_> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    Session::new(Arc::new(module), 1).unwrap().run(&inputs).unwrap()
}

/// `vpmaddubsw` saturates sums of pairs: the row is exact for the numbers of its range, and for no wider range.
#[test]
fn a_range_is_what_the_code_computes_exactly() {
    let row = built_in_file().unwrap().instructions.into_iter().find(|i| i.name.text == "vpmaddubsw_of_4_bits_ymm");
    let text = row.unwrap().to_string();
    for (from, to, refused) in [("to 15", "to 128", false), ("to 15", "to 129", true), ("= 1\n", "= 2\n", true)] {
        assert!(text.contains(from), "{text}");
        let rows =
            parse("range.tile", &text.replacen(from, to, 1).replace("vpmaddubsw_of_4_bits_ymm", "mine")).unwrap();
        if !rows[0].runs_on_host() {
            return;
        }
        let error = rows[0].check_on_host().err().map(|e| e.to_string());
        assert_eq!(error.is_some(), refused, "{to}: {error:?}");
        assert!(error.is_none_or(|e| e.contains("does not do what its semantics say")));
    }
}

/// The report of a program that is compiled for `target` with the rows of `text`.
fn report(program: &str, text: &str, target: Target) -> tilewright::Report {
    let instructions: Arc<[TensorInstruction]> = parse("mine.tile", text).unwrap().into();
    let options = Options { target: Some(target), instructions, ..Options::default() };
    let file = File::parse("program.tile", program).unwrap();
    Model::from_program(file, Some("f"), None).unwrap().compile_module(&options).unwrap().1
}

/// A row that the target does not run, and one that computes nothing of the program, have a reason in the report.
#[test]
fn rows_that_are_not_used_have_a_reason() {
    let program = "def f(u8(M,K) A, u8(K,N) B) -> (C) { sizes S { M = 8, N = 64, K = 64 }
        C(m,n) +=! abs(i64(A(m,k)) - i64(B(k,n))) }";
    let lanes = USER.replace("avx512f avx512bw", "avx2").replace("EVEX.512", "VEX.256").replace("W1 D4", "WIG D4");
    let lanes = lanes.replace("i64(8) C", "i64(4) C").replace("u8(8, 8)", "u8(4, 8)");
    let (sad, _) = lanes.split_once("# A pair").unwrap();
    let wide = report(program, sad, Target::avx512());
    let reason =
        "an instruction is not used: `vpsadbw_sum` works on vectors of 256 bits, and x86-64-avx512 has those of 512";
    assert_eq!(wide.warnings, [reason]);
    let narrow = report(program, sad, Target::avx2());
    assert!(narrow.warnings.is_empty(), "{narrow}");
    assert!(narrow.to_string().contains("vector n; vpsadbw_sum"), "{narrow}");
    let (_, ifma) = USER.split_once("# The low 52").unwrap();
    let lacking = report(program, &format!("# {ifma}"), Target::avx512());
    assert!(lacking.warnings[0].contains("`vpmadd52luq` needs avx512ifma, which x86-64-avx512 lacks"), "{lacking}");
    let other = program.replace("abs(i64(A(m,k)) - i64(B(k,n)))", "i64(A(m,k)) * i64(B(k,n))");
    let other = report(&other, sad, Target::avx2());
    let reason = "no tensor instruction: the body of `C_update` is not that of `vpsadbw_sum`";
    assert!(other.to_string().contains(reason), "{other}");
    let words = program.replace("i64(", "i16(");
    let (pairs, _) = USER.split_once("# The low 52").unwrap();
    let words = report(&words, pairs, Target::avx512());
    let reason = "no tensor instruction: `vpmaddubsw_sum` does not sum two operands, each for a lane or for all lanes";
    assert!(words.to_string().contains(reason), "{words}");
}

/// Lanes above the accumulator stay as they are.
#[test]
fn code_that_changes_more_than_the_accumulator_is_refused() {
    let text = "instruction mine needs avx2 {
        acc i32(8) C in vector
        read i32(8) B in vector
        constant i32 one = 1
        temporary t
        C(j) += B(j) + 1
        encode \"VEX.256.66.0F.WIG FE /r\" reg = t, vvvv = B, rm = one
        encode \"VEX.256.66.0F.WIG FE /r\" reg = C, vvvv = C, rm = t
    }";
    let few = text.replace("i32(8)", "i32(4)");
    for (text, error) in [(text, None), (&*few, Some("element 4 of `C` becomes 1, not 0, and `C` has only 4 elements"))]
    {
        let rows = parse("mine.tile", text).unwrap();
        if rows[0].runs_on_host() {
            let found = rows[0].check_on_host().err().map(|e| e.to_string());
            assert!(found.as_deref().map_or(error.is_none(), |f| error.is_some_and(|e| f.contains(e))), "{found:?}");
        }
    }
    let idle = text.replace("reg = C, vvvv = C, rm = t", "reg = t, vvvv = C, rm = t");
    let error = parse("mine.tile", &idle).unwrap_err().to_string();
    assert!(error.contains("no encoding writes the accumulator `C`"), "{error}");
}
