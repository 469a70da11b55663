//! Errors in texts: one message with the place and what was expected.

use std::collections::BTreeMap;
use tilewright::internal::language::parser::parse;

/// The error of `text`, its first program lowered with all sizes 8: the place, the message, and the underlined words.
fn problem(text: &str) -> (String, String, String) {
    let error = match parse("t.tile", text) {
        Ok(file) => {
            let given: BTreeMap<String, i64> = file.programs[0].sizes().into_iter().map(|s| (s, 8)).collect();
            file.lower(&file.programs[0], &given, None).expect_err(text)
        }
        Err(e) => e,
    };
    let error = error.to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 3, "{error}");
    let (_, rest) = lines[0].split_once("t.tile:").unwrap_or_else(|| panic!("{error}"));
    let (place, message) = rest.split_once(": ").unwrap();
    let marked = |at: &(usize, char)| lines[2].chars().nth(at.0) == Some('^');
    let under: String = lines[1].chars().enumerate().filter(marked).map(|c| c.1).collect();
    (place.into(), message.into(), under)
}

/// The message begins with `expected`, and `under` is underlined.
fn says(text: &str, expected: &str, under: &str) {
    let (place, message, marked) = problem(text);
    assert!(message.starts_with(expected) && marked == under, "{text}\n{place}: {message}\nunder: {marked}");
}

#[test]
fn the_place_is_shown() {
    let error =
        parse("gemm.tile", "def gemm(f32(M,K) A) -> (C) {\n    # a comment\n    C(m) +=! A(m,k]\n}").unwrap_err();
    let expected =
        "invalid: gemm.tile:3:19: expected `,` or `)`, found `]`\n        C(m) +=! A(m,k]\n                      ^";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn words_of_other_languages_are_answered_with_what_to_write() {
    says(
        "loop f(N) { f64 x[N] while x[0] > 1 { x[0] = 1 } }",
        "there is no `while`: a loop runs over a range",
        "while",
    );
    says("loop f(N) { f64 x[N] let y = 3 }", "there is no `let`: declare an array without subscripts", "let");
    says("loop f(N) { f64 x[N] const K = 3 }", "there is no `const`: a number with a name is a size", "const");
    says(
        "def f(f32(N) X) -> (Y) { Y(i) = Y(i-1) + X(i) }",
        "`Y` is read by the equation that defines it: an equation of a `def` reads what others define; a `loop` can",
        "Y",
    );
    says(
        "loop f(N) { f64 x[N] for i in 0..N x[i] = 0 } schedule s for f { vectorise i }",
        "there is no primitive `vectorise`: there are ",
        "vectorise",
    );
    let (_, message, _) = problem("loop f(N) { f64 x[N] x[0] = 0 } schedule s for f { vectorise i }");
    assert!(message.ends_with("did you mean `vectorize`?"), "{message}");
}

/// Texts of C and Python are answered with what stands in their place.
#[test]
fn texts_of_other_languages_are_answered_with_what_to_write() {
    let foreign = |statement: &str, message: &str, under: &str| {
        says(&format!("loop f(N) {{ i32 x[N] temp i32 s {statement} }}"), message, under);
    };
    for (statement, foreign_text, instead) in [
        ("x[0] = x[0] > 0 ? 1 : 2", "?", "write `select(condition, a, b)`"),
        ("x[0] = x[0] >> 2", ">>", "write `shr(a, b)`"),
        ("x[0] = 1 << 2", "<<", "write `shl(a, b)`"),
        ("x[0] = x[0] & 2", "&", "write `bit_and(a, b)`"),
        ("x[0] = x[0] | 2", "|", "write `bit_or(a, b)`"),
        ("x[0] = x[0] ^ 2", "^", "write `bit_xor(a, b)`"),
        ("x[0] = ~x[0]", "~", "write `bit_not(a)`"),
        ("x[0] = x[0] ** 2", "**", "write `pow(a, b)`"),
        ("x[0] %= 2", "%=", "write `x = x % n`"),
        ("x[0]++", "++", "write `+= 1`"),
        ("x[0] = 1 // one", "//", "a comment begins with `#`, and integers are divided by `/`"),
        ("/* one */ x[0] = 1", "/*", "a comment begins with `#`"),
        ("for i in 0..=3 x[i] = 1", "..=", "a range ends before its upper bound"),
        ("x[0] = 1 return x", "return", "the outputs of a loop program are the arrays that it writes"),
        ("for i in 0..N { x[i] = 1 break; }", "break", "a loop runs over all of its range"),
        ("for i in 0..N if i > 1 and i < 4 x[i] = 1", "and", "write `&&`"),
        ("for i in 0..N if i > 1 x[i] = 1 elif i > 0 x[i] = 2", "elif", "write `else if`"),
    ] {
        foreign(statement, &format!("there is no `{foreign_text}`: {instead}"), foreign_text);
    }
    foreign("x[0]--", "there is no `--`: write `-= 1`", "-");
    for (number, instead) in
        [("0x10", "16"), ("0b101", "5"), ("1_000", "1000"), ("2u", "2"), ("2f", "2.0"), ("2.5f", "2.5"), ("2.", "2.0")]
    {
        let message = format!("`{number}` is not how a number is written: write {instead}");
        foreign(&format!("x[0] = {number}"), &message, number);
    }
    foreign(
        "for (int i = 0; i < N; i += 1) x[i] = 1",
        "expected the name of the loop's index, as in `for i in 0..N`",
        "(",
    );
    foreign(
        "for i in range(N) x[i] = 1",
        "there is no function `range`, and a `loop` writes elements as A[i][j]: write `0..n`",
        "range",
    );
    foreign("x[0, 0] = 1", "expected `]`, since a `loop` writes elements as A[i][j], found `,`", ",");
    foreign("s = 1 i32 t", "arrays are declared before the statements, a variable as in `temp i32 s`", "i32");
    foreign("s = 1 temp i32 t", "arrays are declared before the statements", "temp");
    foreign("x[0] = 1 init { x[i] = 1 }", "`init` stands before the statements", "init");
    says(
        "loop f(N) { i32 x[N] temp i32 s = 1 x[0] = s }",
        "expected the end of the declaration: a value is assigned in a statement, found `=`",
        "=",
    );
    says("loop f(N) { i32 x[N] x[0] 3 }", "expected `=`, or an update such as `+=` or `max=`, found 3", "3");
}

/// A word where an element type should stand is answered with the types that there are, and the one that was meant.
#[test]
fn unknown_element_types() {
    let meant = |text: &str, expected: &str, word: &str, end: &str| {
        says(text, expected, word);
        let (_, message, _) = problem(text);
        assert!(message.ends_with(end), "{text}\n{message}");
    };
    let unknown = |word: &str| format!("there is no element type `{word}`");
    for (word, near) in [
        ("f33", "f32"),
        ("F32", "f32"),
        ("float", "f32"),
        ("double", "f64"),
        ("int", "i32"),
        ("int32_t", "i32"),
        ("uint8", "u8"),
        ("float16", "f16"),
        ("bfloat16", "bf16"),
    ] {
        let end = format!("; did you mean `{near}`?");
        meant(&format!("loop p(N) {{ {word} A[N], B[N] for i in 0..N B[i] = A[i] }}"), &unknown(word), word, &end);
        // behind another declaration, and in a loop, where no declaration stands
        meant(&format!("loop p(N) {{ f32 A[N] {word} t A[0] = 1 }}"), &unknown(word), word, &end);
        meant(&format!("loop p(N) {{ f32 A[N] for i in 0..N {{ {word} t = 1 }} }}"), &unknown(word), word, &end);
        let expected = format!("expected an element type, found `{word}`");
        meant(&format!("loop p(N) {{ in {word} A[N] A[0] = 1 }}"), &expected, word, &end);
        let expected = format!("expected an element type, as in `f32(M,N) A`, found `{word}`");
        meant(&format!("def p({word}(N) A) -> (B) {{ B(i) = A(i) }}"), &expected, word, &end);
        meant(&format!("def p(f32(N) A) -> ({word}(N) B) {{ B(i) = A(i) }}"), &expected, word, &end);
        let call = format!("loop p(N) {{ f32 A[N] A[0] = {word}(3) }}");
        meant(&call, &format!("there is no function `{word}`"), word, &end);
    }
    meant(
        "loop p(N) { quad A[N] A[0] = 1 }",
        &unknown("quad"),
        "quad",
        ": there are f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, bool",
    );
    says(
        "loop p(N) { f32 A[N] fro i in 0..N A[i] = 1 }",
        "there is no statement `fro`: there are for, if; did you mean",
        "fro",
    );
    let kinds = "there is no kind of array `tmp`: there are in, out, inout, temp; did you mean `temp`?";
    says("loop p(N) { tmp f32 A[N] A[0] = 1 }", kinds, "tmp");
}

#[test]
fn syntax() {
    says("deff x", "expected `def`, `loop` or `schedule`, found `deff`", "deff");
    says("def exp() -> () {}", "expected the name of the definition, found `exp`, which is a function", "exp");
    says("def f(M A) -> () {}", "expected an element type, as in `f32(M,N) A`, found `M`", "M");
    says("def f() -> (Y) { Y(i) : 2 }", "expected `=`, or an update such as `+=`, `max=` or `+=!`, found `:`", ":");
    says("def f() -> (Y) { Y(i) = 2 * }", "expected an expression, found `}`", "}");
    says("def f() -> (Y) { Y(i) = X[i] }", "expected `(`: a `def` writes elements as A(i,j), found `[`", "[");
    says("def f() -> (Y) { Y(i) = select(i, 2) }", "`select` has 3 operands, not 2", ")");
    says("def f() -> (Y) { Y(i) = i < 2 < 3 }", "comparisons do not chain: join them with `&&`", "<");
    says("def f() -> (Y) { Y(i) = 2", "expected an equation or `}`, found the end of the text", "");
    says("def f() -> () {} def f() -> () {}", "the program `f` is already defined", "f");
    says("loop f(N = x) {}", "expected the value of the size, found `x`", "x");
    says("loop f(N) { f64 A[N for i", "expected `]`, found `for`, which is a keyword", "for");
    says("loop f(N) { for i in 0..N step 0 A[i] = 0 }", "a step of 0 never ends", "0");
    says("loop f(N) { A(i) = 0 }", "expected `=`", "(");
    says(
        "loop f(N) { f64 A[N] A[0] = f(2) }",
        "there is no function `f`, and a `loop` writes elements as A[i][j]",
        "f",
    );
    says("loop f(N) { f64 s s +=! 2 }", "a loop program initialises in a statement of its own", "+=!");
    says("def f(f32(N) X) -> (Y) { Y(i) -=! X(i) }", "only `+=!`, `*=!`, `min=!` and `max=!` start from", "-=!");
    assert_eq!(problem("\u{feff}deff x").0, "1:1");
    says("schedule s for p { splt i by 4 -> a, b }", "there is no primitive `splt`: there are split, fuse, ", "splt");
    says("schedule s for p { split i by 0 -> a, b }", "expected a positive number, found 0", "0");
    says("schedule s for p { split i by 4 -> a }", "a split loop becomes 2 loops, not 1", "a");
    says("schedule s for p { tile C(i,j) by (4) -> a, b, c, d }", "2 loops, but 1 tile sizes", ")");
    says("schedule s for p { reorder a, b, a }", "the loop `a` is already defined", "a");
    let deep = format!("def f() -> (Y) {{ Y(i) = {}1{} }}", "(".repeat(5000), ")".repeat(5000));
    says(&deep, "this is nested more than 64 deep", "(");
    let nested = format!("loop f(N) {{ {} }}", "if true ".repeat(5000));
    says(&nested, "this is nested more than 64 deep", "true");
    let long = format!("def f() -> (Y) {{ Y(i) = 1{} }}", " + 1".repeat(5000));
    says(&long, "an expression of more than 1000 operations", "+");
}

#[test]
fn names_and_types() {
    says("def f(f32(N) X) -> (Y) { Y(i) = Z(i) }", "`Z` is not defined here: arrays are X; indices i; sizes N", "Z(i)");
    says("def f(f32(N) X) -> (Y) { Y(i) = X(i, i) }", "`X` has 1 dimension, but 2 subscripts", "X(i, i)");
    says(
        "def f(f32(N) X) -> (Y) { Y(i) = X(i) * i }",
        "`X(i)` is f32 and `i` is i64: convert one, for example `f32(i)`",
        "X(i) * i",
    );
    says("def f(i64(N) X) -> (Y) { Y(i) = X(i) * 1.5 }", "`1.5` is not of type i64", "1.5");
    says("def f(u8(N) X) -> (Y) { Y(i) = X(i) + 256 }", "`256` is not of type u8", "256");
    says("loop f(N) { f32 A[N] A[0] = 2 * 1e39 }", "`1e39` is too large for f32", "1e39");
    says("loop f(N) { f16 A[N] A[0] = 100000 }", "`100000` is too large for f16", "100000");
    says("def f(i64(N) X) -> (Y) { Y(i) = sqrt(X(i)) }", "sqrt is not defined for i64", "sqrt(X(i))");
    says("def f(f32(N) X) -> (Y) { Y(i) = select(X(i), X(i), 2) }", "`X(i)` is f32, but bool is expected", "X(i)");
    says(
        "def f(f32(N) X) -> (f64(N) Y) { Y(i) = X(i) }",
        "`X(i)` is f32, but f64 is expected: convert it with `f64(…)`",
        "X(i)",
    );
    says("def f(f32(N) X) -> (Y) { Y(i) = 2 where i in 0..N }", "the element type of `Y` cannot be inferred", "2");
    says("def f(f32(N) X, f32(N) X) -> () {}", "`X` is already the name of a size or an array", "X");
    says("def f(f32(N) X) -> (Y) { X(i) = 2 }", "`X` is an input and cannot be defined", "X");
    says("def f(f32(N) X) -> (Y) { N(i) = X(i) }", "`N` is a size", "N");
    says("def f(f32(N) X) -> (Y) { Z(i) = X(i) }", "nothing defines the output `Y`", "Y");
    says("def f(f32(N - 8) X) -> (Y) { Y(i) = X(i) }", "dimension 0 of `X` is 0: it must be positive", "N - 8");
    says("def f(f32(1/0) X) -> (Y) { Y(i) = X(i) }", "`1 / 0` divides by zero", "1/0");
    says(
        "loop f(N) { f64 Sum[N] Sum[0] = Smu[1] }",
        "`Smu` is not defined here: arrays are Sum; indices none; sizes N; did you mean `Sum`?",
        "Smu[1]",
    );
    says(
        "loop f(N) { i16 A[N] for i in 0..N { t = A[i] * 2 } }",
        "`t` is not defined here: arrays are A; indices i; sizes N; declare what is assigned before the statements, as in `temp i16 t`",
        "t",
    );
    says(
        "loop f(N) { u8 A[N]  i32 B[N]  for i in 1..N B[i] = A[i] - A[i - 1] }",
        "`A[i] - A[i - 1]` is u8, but i32 is expected: convert its operands, since it would wrap around in u8, as in `i32(A[i]) - i32(A[i - 1])`",
        "A[i] - A[i - 1]",
    );
    says(
        "loop f(N) { f64 A[N] A[0] = sqtr(A[1]) }",
        "there is no function `sqtr`, and a `loop` writes elements as A[i][j]; did you mean `sqrt`?",
        "sqtr",
    );
    says("loop f(N) { f64 A[M] A[0] = 1 }", "`M` is not defined here: arrays are none; indices none; sizes N", "M");
    says(
        "loop f(N) { f64 A[N] for N in 0..2 A[N] = 1 }",
        "`N` is already the name of a size, an array or an index",
        "N",
    );
    says("loop f(N) { in f64 A[N] for i in 0..2 A[i] = 1 }", "`A` is an `in` array and cannot be written", "A");
    says("loop f(N) { temp f64 A[N], B[N] for i in 0..2 B[i] = 1 }", "nothing writes `A`", "A");
    says("loop f(N) { f64 A[N] init { B[i] = A[i] } A[0] = 1 }", "`A` is read before it is defined", "A[i]");
    says("def f(f32(N) X) -> (f32(N) Y) { Y(i) = Y(i) }", "`Y` is read by the equation that defines it", "Y");
    says(
        "loop f(N) { f64 A[N] init { A[i] = A[i] + 1 } A[0] = 1 }",
        "`A` is read by the equation that defines it: an equation of `init` reads what others define",
        "A",
    );
}

#[test]
fn ranges_and_bounds() {
    says(
        "def f(f32(N) X) -> (Y) { Y(i) = X(i + j) }",
        "the range of `i` cannot be inferred: `i + j of X` has another index",
        "Y(i) = X(i + j)",
    );
    says(
        "def f(f32(N) X) -> (Y) { Y(i,j) = X(i) }",
        "the range of `j` cannot be inferred: it is in no subscript",
        "Y(i,j) = X(i)",
    );
    says("def f(f32(N) X) -> (Y) { Y(i) = X(i + 8) }", "no value of `i` keeps `i + 8 of X` inside", "Y(i) = X(i + 8)");
    says("def f(f32(N) X) -> (Y) { Y(i) = X(i - 1) }", "of `Y` only 8 of 9 elements [9] are defined", "f");
    says(
        "def f(f32(N) X, f32(N) Z) -> (Y) { Y(i) +=! X(j) * Z(i) * X(i + j) }",
        "subscript 0 of `X` is 14 at i=7, j=7, outside of 0..8",
        "X(i + j)",
    );
    says(
        "def f(f32(N) X) -> (Y) { Y(i) = X(i * i) }",
        "the range of `i` cannot be inferred: it is in no subscript of an array of known shape",
        "Y(i) = X(i * i)",
    );
    says("def f(f32(N) X) -> (Y) { Y(i) = X(X(i)) }", "`X(i)` is f32, which is not a type of subscripts", "X(i)");
    says(
        "def f(f32(N) X) -> (Y) { Y(i) = X(i) + X(j) }",
        "`j` is not on the left: a sum over it is written `+=!`",
        "Y(i) = X(i) + X(j)",
    );
    says("def f(f32(N) X) -> (Y) { Y(i) = X(i) Y(0) = X(0) }", "`Y` is defined twice at some elements", "Y");
    says("def f(f32(N) X) -> (Y) { Y(i) += X(i) }", "`Y` is updated before it is defined", "Y");
    says(
        "def f(i64(N) X) -> (Y) { Y(X(i)) = X(i) }",
        "the subscript `X(i)` of `Y` is not affine: it depends on data",
        "X(i)",
    );
    says(
        "loop f(N) { f64 A[N] for i in 0..N A[i] = A[i-1] }",
        "subscript 0 of `A` is -1 at i=0, outside of 0..8",
        "A[i-1]",
    );
    says(
        "loop f(N) { f64 A[N] for i in 1..N for j in i..N if j > 5 A[j+i] = 1 }",
        "subscript 0 of `A` is 8 at i=1, j=7, outside of 0..8",
        "A",
    );
    says(
        "def f(f32(N) A) -> (Y) { Y(i) = A(i) where i in 0..N, A(i) > 2 }",
        "the condition `A(i) > 2` depends on data: choose",
        "A(i) > 2",
    );
    says(
        "loop f(N) { i64 A[N] for i in 0..A[0] A[i] = 1 }",
        "the bound `A[0]` is from `A`, which the loop writes: keep the bound in a temporary",
        "A[0]",
    );
    says(
        "def f(i64(N) A, i64(N) B) -> (Y) { Y(A(i)) = B(i) }",
        "the subscript `A(i)` of `Y` is not affine: it depends on data",
        "A(i)",
    );
    says(
        "loop f(N) { f64 A[N], B[N] for i in 0..N { B[A[i]] = 1 } }",
        "`A[i]` is f64, which is not a type of subscripts",
        "A[i]",
    );
}

/// A subscript that is not affine is refused where its operations do not keep it inside.
#[test]
fn subscripts_that_may_be_outside() {
    says(
        "loop f(N) { f64 A[N] for i in 0..N A[i*i] = 1 }",
        "subscript 0 of `A` may be from 0 to 49, outside of 0..8: keep it inside with `min`, `max` or `%`",
        "A[i*i] = 1",
    );
    says(
        "def f(f32(N) X) -> (Y) { Y(i) = X(i / 2) + X(3 - i) where i in 0..N Z(i) = X((i + 1) % 9) where i in 0..N }",
        "subscript 0 of `X` may be from 1 to 8, outside of 0..8",
        "Z(i) = X((i + 1) % 9) where i in 0..N",
    );
    says(
        "def f(f64(N) A, i64(N) B) -> (Y) { Y(i) = A(B(i) * B(7 - i)) where i in 0..N }",
        "subscripts of `A`, dimension 0: a subscript from data is one element of an integer array",
        "Y(i) = A(B(i) * B(7 - i)) where i in 0..N",
    );
    says(
        "def f(f64(N) A, i32(N) B) -> (Y) { Y(i) = A(max(i32(i) - B(i), 0)) where i in 0..N }",
        "subscripts of `A`, dimension 0: it may be from 0 to 2147483647, outside of 0..8: a subscript from data",
        "Y(i) = A(max(i32(i) - B(i), 0)) where i in 0..N",
    );
    says("def f(f32(N) X) -> (Y) { Y(i / 2) = X(i) }", "the subscript `i / 2` of `Y` is not affine", "i / 2");
}

/// A temporary has no values at the beginning: each read follows an assignment to its element, in the order of the text.
#[test]
fn temporaries_that_are_read_unassigned() {
    let program = |rest: &str| format!("loop f(N) {{ f64 x[N] temp f64 t[N + 1] temp f64 s {rest} }}");
    let refused = |rest: &str, message: &str, under: &str| says(&program(rest), message, under);
    refused(
        "for i in 1..N t[i] = x[i] for i in 0..N x[i] = t[i] s = 0",
        "`t[0]` is read at i=0, where nothing has been assigned to it",
        "x[i] = t[i]",
    );
    refused(
        "t[0] = 0 for i in 0..N { x[i] = t[i] + t[i + 1] t[i + 1] = x[i] } s = 0",
        "`t[1]` is read at i=0, where nothing has been assigned to it",
        "x[i] = t[i] + t[i + 1]",
    );
    refused(
        "for i in 0..N s += x[i] t[0] = s",
        "nothing assigns to `s` before this updates it: begin with an assignment, as in `s = 0`",
        "s += x[i]",
    );
    refused("x[0] = s s = 1 t[0] = 1", "`s` is read, where nothing has been assigned to it", "x[0] = s");
    for accepted in [
        "t[0] = 0 for i in 0..N { x[i] = t[i] t[i + 1] = x[i] } s = 0",
        "for i in 0..N { s = 0 for j in 0..i + 1 s += x[j] t[i] = s }",
        "for i in 0..N { x[i] = select(i > 0, s, 0) s = x[i] } t[0] = s",
        "for i in 0..N { if i > 0 { x[i] = s } s = x[i] } t[0] = s",
        "for i in 0..N s += x[i] t[0] = 0",
        "for i in 0..N step 2 t[i] = x[i] for i in 0..N step 2 x[i] = t[i] s = 0",
    ] {
        let file = parse("t.tile", &program(accepted)).unwrap();
        file.lower(&file.programs[0], &BTreeMap::from([("N".into(), 8)]), None).expect(accepted);
    }
}

#[test]
fn names_that_are_already_defined() {
    says("def f(f64(N) X) -> (Y,Y) { Y(i) = X(i) }", "output `Y` is already defined", "Y");
    says("loop f(N = 2, N = 3) { f64 A[N] A[0] = 1 }", "the size `N` is already defined", "N");
    says("loop f(N) { sizes S { N = 3, N = 4 } f64 A[N] A[0] = 1 }", "the size `N` is already defined", "N");
}

#[test]
fn sizes() {
    let file = parse("t.tile", "loop f(N, M = 4) { sizes A { N = 2 } f64 x[N][M] x[0][0] = 1 }").unwrap();
    let of = |given: &[(&str, i64)], set| {
        let given = given.iter().map(|g| (g.0.to_string(), g.1)).collect();
        let result = file.lower(&file.programs[0], &given, set).map(|m| m.sizes.into_values().collect::<Vec<_>>());
        result.map_err(|e| e.to_string().lines().next().unwrap().split_once("6: ").unwrap().1.to_string())
    };
    assert_eq!(of(&[], None), Ok(vec![4, 2]));
    assert_eq!(of(&[("M", 7), ("N", 9)], Some("A")), Ok(vec![7, 9]));
    assert_eq!(of(&[("K", 7)], None), Err("`f`: there is no size `K`: there are N, M".into()));
    assert_eq!(
        of(&[("N", 0)], None),
        Err("the size `N` of `f` is 0, but sizes are 1 to 2147483648: a program without elements is not compiled"
            .into())
    );
    assert_eq!(
        of(&[("N", -3)], None),
        Err("the size `N` of `f` is -3, but sizes are 1 to 2147483648: a program without elements is not compiled"
            .into())
    );
    let large = Err("the size `N` of `f` is 2147483649, but sizes are 1 to 2147483648".into());
    assert_eq!(of(&[("N", 2147483649)], None), large);
    assert_eq!(of(&[], Some("B")), Err("`f`: there is no set of sizes `B`: there are A".into()));
    let file = parse("t.tile", "def f(f32(N) X) -> (Y) { Y(i) = X(i) }").unwrap();
    let error = file.lower(&file.programs[0], &BTreeMap::new(), None).unwrap_err().to_string();
    assert!(error.contains("the size `N` of `f` has no value: pass `--dim N=<number>`"), "{error}");
    assert!(file.program(Some("g")).unwrap_err().to_string().contains("there is no program `g`: there are f"));
}
