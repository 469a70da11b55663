//! Programs of the text language on the command line.

use super::*;
use tilewright::DType;

const TWICE: &str = "
def twice(f32(N) X) -> (Y) { Y(i) = 2 * X(i) }
loop sums(M, N = 3) {
    sizes SMALL { M = 2 }
    sizes WIDE { M = 4, N = 5 }
    inout f64 A[M][N]
    in f64 x[M]
    out f64 total
    temp f64 row[M]
    init { A[i][j] = f64(10 * i + j) }
    total = 0
    for i in 0..M {
        row[i] = x[i]
        for j in 0..N { A[i][j] += 1  row[i] += A[i][j] }
        total += row[i]
    }
}";

fn written(folder: &Folder) -> String {
    let path = folder.file("p.tile");
    std::fs::write(&path, TWICE).unwrap();
    path
}

#[test]
fn a_program_runs_with_its_sizes_initial_values_and_given_inputs() {
    let folder = Folder::new("program");
    let (program, saved_to, x) = (written(&folder), folder.file("out"), folder.file("x.npy"));
    Tensor::new(&[4], &[0.5f64, 0.0, 0.0, 0.0]).write_npy(&x).unwrap();
    let given = format!("x={x}");
    let run = ["run", &program, "--program", "sums", "--size", "WIDE", "--input", &given, "--save", &saved_to];
    let text = succeeds(&run);
    assert!(text.starts_with("A  f64 [4, 5]") && text.contains("\ntotal  f64 []"), "{text}");
    let a: Vec<f64> = (0..20).map(|k| (10 * (k / 5) + k % 5 + 1) as f64).collect();
    assert_eq!(saved(&saved_to, 0), Tensor::new(&[4, 5], &a));
    assert_eq!(saved(&saved_to, 1), Tensor::new(&[], &[a.iter().sum::<f64>() + 0.5]));
    // A size that is given counts more than that of the set; an array that is given more than its initial values.
    let a = folder.file("a.npy");
    Tensor::new(&[1, 5], &[1f64; 5]).write_npy(&a).unwrap();
    Tensor::new(&[1], &[0f64]).write_npy(&x).unwrap();
    let given_a = format!("A={a}");
    let mut one = run.to_vec();
    one.extend(["--dim", "M=1", "--input", &given_a]);
    succeeds(&one);
    assert_eq!(saved(&saved_to, 1), Tensor::new(&[], &[10f64]));
    // Without sizes the input binds them; the first program is meant where none is named.
    Tensor::new(&[3], &[1f32, 2.0, 3.0]).write_npy(&x).unwrap();
    succeeds(&["run", &program, "--input", &format!("X={x}"), "--save", &saved_to]);
    assert_eq!(saved(&saved_to, 0), Tensor::new(&[3], &[2f32, 4.0, 6.0]));
}

#[test]
fn a_compiled_program_keeps_its_initial_values() {
    let folder = Folder::new("compiled-program");
    let (program, module) = (written(&folder), folder.file("p.tw"));
    let (direct, again) = (folder.file("direct"), folder.file("again"));
    let sums = ["--program", "sums", "--size", "SMALL"];
    succeeds(&[&["run", &program, "--save", &direct][..], &sums].concat());
    let bytes = || {
        succeeds(&[&["compile", &program, "-o", &module][..], &sums].concat());
        std::fs::read(&module).unwrap()
    };
    assert_eq!(bytes(), bytes(), "the same input gives the same file");
    succeeds(&["run", &module, "--save", &again]);
    for output in 0..2 {
        assert_eq!(saved(&direct, output), saved(&again, output));
    }
    assert_eq!(saved(&direct, 0).to_vec::<f64>(), [1.0, 2.0, 3.0, 11.0, 12.0, 13.0]);
    let text = succeeds(&[&["bench", &program, "--seconds", "0.05", "--json"][..], &sums].concat());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["kernels"].as_array().unwrap().len(), 1, "copies are not kernels");
}

#[test]
fn every_stage_of_a_program_can_be_read() {
    let folder = Folder::new("program-stages");
    let program = written(&folder);
    let sums = ["--program", "sums", "--dim", "M=64", "--dim", "N=64"];
    for (stage, word) in
        [("scop", "scop sums"), ("schedule", "band"), ("loops", "vector "), ("vcode", "sums"), ("asm", "ret")]
    {
        let target = ["--target", "x86-64-avx512"];
        let text = succeeds(&[&["explain", &program, "--stage", stage][..], &target, &sums].concat());
        assert!(text.contains(word), "{stage}: {text}");
    }
    let report = succeeds(&[&["explain", &program][..], &sums].concat());
    assert!(report.contains("predicted") && report.contains("measured"), "{report}");
    fails(&[&["explain", &program, "--stage", "rewritten"][..], &sums].concat(), &["sums", "scop"]);
}

/// Asserts exit code 1 and an error that has all the words, and may show a place of a text.
fn place(arguments: &[&str], words: &[&str]) {
    let output = tilewright(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn what_is_wrong_with_a_program_is_said_with_its_place() {
    let folder = Folder::new("wrong-programs");
    let program = written(&folder);
    fails(&["run", &program, "--program", "triple"], &["triple", "twice", "sums"]);
    fails(&["run", MODEL, "--program", "triple"], &["not a .tile file"]);
    fails(&["run", MODEL, "--size", "MINI"], &["not a .tile file"]);
    place(&["run", &program], &["p.tile:2:5", "`N`", "--dim N=<number>"]);
    let sums = ["run", &program, "--program", "sums"];
    place(&[&sums[..], &["--size", "HUGE"]].concat(), &["HUGE", "SMALL, WIDE"]);
    place(&[&sums[..], &["--dim", "K=3"]].concat(), &["`K`", "M, N"]);
    place(&[&sums[..], &["--dim", "M=2147483648"]].concat(), &["array `A`", "needs", "are allowed"]);
    fails(&[&sums[..], &["--input", "row=x.npy"]].concat(), &["x.npy"]);
    let x = folder.file("x.npy");
    Tensor::zeros(DType::F64, &[2]).write_npy(&x).unwrap();
    fails(&[&sums[..], &["--input", &format!("row={x}")]].concat(), &["`row`", "A, x"]);
    let text = folder.file("broken.tile");
    std::fs::write(&text, "loop f(N) { f64 A[N]\n for i in 0..N A[i+1] = 0 }").unwrap();
    place(&["run", &text, "--dim", "N=4"], &["broken.tile:2:16", "`A` is 4 at i=3"]);
    std::fs::write(&text, [b'l', 0xff]).unwrap();
    fails(&["run", &text], &["broken.tile", "UTF-8"]);
}

#[test]
fn schedules_are_read_from_a_file() {
    let folder = Folder::new("schedule_file");
    let (words, program) = (folder.file("words.tile"), folder.file("p.tile"));
    // of a network: what is printed is taken back
    std::fs::write(&words, succeeds(&["explain", MODEL, "--stage", "schedule"])).unwrap();
    let (found, by_hand) = (folder.file("found.tw"), folder.file("by_hand.tw"));
    succeeds(&["compile", MODEL, "-o", &found]);
    succeeds(&["compile", MODEL, "-o", &by_hand, "--schedule", &words]);
    assert!(std::fs::read(&found).unwrap() == std::fs::read(&by_hand).unwrap());
    fails(&["run", &found, "--schedule", &words], &["already machine code"]);
    let kernel = succeeds(&["explain", MODEL, "--stage", "schedule"]);
    let kernel = kernel.lines().find_map(|l| l.strip_prefix("schedule ilp for ")).unwrap().trim_end_matches(" {");
    std::fs::write(&words, format!("schedule plain for {kernel} {{ serial }}")).unwrap();
    let text = succeeds(&["explain", MODEL, "--stage", "schedule", "--schedule", &words]);
    assert!(text.contains(&format!("\nschedule plain for {kernel} {{\n    serial\n}}\n")), "{text}");
    let (a, b) = (folder.file("a"), folder.file("b"));
    succeeds(&["run", MODEL, "--save", &a]);
    succeeds(&["run", MODEL, "--save", &b, "--schedule", &words]);
    assert_eq!(saved(&a, 0).len(), saved(&b, 0).len());
    std::fs::write(&words, format!("schedule plain for {kernel}0 {{ serial }}")).unwrap();
    let meant = format!("did you mean `{kernel}`?");
    for command in ["run", "bench", "explain"] {
        place(&[command, MODEL, "--schedule", &words], &["words.tile:1:20", "there is no kernel", &meant]);
    }
    let page = folder.file("page.html");
    succeeds(&["explain", MODEL, "--html", &page]);
    let page = std::fs::read_to_string(page).unwrap();
    for word in [&format!("<h2>{kernel}</h2>"), "chosen", "ports", "Register blocks of", "schedule ilp for"] {
        assert!(page.contains(word), "{word} is not in {page}");
    }
    // of a program: the only schedule that is for it
    std::fs::write(&program, "loop f(N = 8) { inout f64 A[N] for i in 0..N A[i] += 1 }").unwrap();
    std::fs::write(&words, "schedule lanes for f { vectorize i by 4 }").unwrap();
    let text = succeeds(&["explain", &program, "--schedule", &words, "--stage", "schedule"]);
    assert!(text.contains("[vector"), "{text}");
    std::fs::write(&words, "schedule lanes for g { vectorize i by 4 }").unwrap();
    fails(&["run", &program, "--schedule", &words], &["words.tile", "`f`", "there are g"]);
}

#[test]
fn schedules_are_checked_and_used() {
    let folder = Folder::new("schedules");
    let program = folder.file("s.tile");
    let good = "loop f(N = 8) { inout f64 A[N][N] for i in 1..N for j in 0..N A[i][j] += A[i-1][j] }
        schedule good for f { reorder j, i  parallel j }\n";
    std::fs::write(&program, good).unwrap();
    assert_eq!(succeeds(&["check", &program]), "good for f: legal\n");
    let text = succeeds(&["explain", &program, "--schedule", "good", "--stage", "schedule"]);
    assert!(text.contains("j [parallel coincident]"), "{text}");
    let text = succeeds(&["explain", &program, "--stage", "schedule"]);
    assert!(text.contains("\n# tiled:\n") && text.contains("\nschedule ilp for f {\n"), "{text}");
    let (ilp, hand) = (folder.file("ilp"), folder.file("hand"));
    succeeds(&["run", &program, "--save", &ilp]);
    succeeds(&["run", &program, "--save", &hand, "--schedule", "good"]);
    assert_eq!(saved(&ilp, 0), saved(&hand, 0));
    fails(&["run", &program, "--schedule", "better"], &["better", "good"]);
    fails(&["run", MODEL, "--schedule", "good"], &["not a .tile file"]);
    std::fs::write(&program, format!("{good}schedule bad for f {{ parallel i }}\n")).unwrap();
    let output = tilewright(&["check", &program]);
    let (verdicts, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("1 of 2 schedules refused"), "{error}");
    for word in ["good for f: legal", "bad for f", "s.tile:3:", "in parallel with", "<--"] {
        assert!(verdicts.contains(word), "{word:?} is not in: {verdicts}");
    }
}

/// A check shows every error of a program that compiling it would show, whether it has schedules or not.
#[test]
fn programs_without_schedules_are_checked_too() {
    let folder = Folder::new("unscheduled");
    let path = folder.file("p.tile");
    let check = |text: &str, arguments: &[&str]| {
        std::fs::write(&path, text).unwrap();
        let output = tilewright(&[&["check", &path], arguments].concat());
        let [verdicts, error] = [&output.stdout, &output.stderr].map(|t| String::from_utf8_lossy(t).into_owned());
        (output.status.code() == Some(0), verdicts, error)
    };
    let right = "loop r(N = 8) { inout f64 A[N] for i in 0..N A[i] += 1 }\n";
    let outside = "loop p(N = 8) { f64 A[N], B[N] for i in 0..N B[i] = A[i+1] }\n";
    let scheduled = format!("{right}schedule s for r {{ reverse i }}\n");
    let (good, verdicts, error) = check(right, &[]);
    assert!(good && verdicts == "r: valid, without a schedule\n", "{verdicts}{error}");
    let (good, verdicts, error) = check(outside, &[]);
    assert!(!good && verdicts.is_empty() && error.contains("p.tile:1:53: subscript 0 of `A` is 8"), "{error}");
    let (good, verdicts, error) = check(&format!("{scheduled}{outside}"), &[]);
    assert!(!good && verdicts == "s for r: legal\n" && error.contains("subscript 0 of `A`"), "{verdicts}{error}");
    let (good, verdicts, _) = check(&format!("{scheduled}{outside}"), &["--program", "r"]);
    assert!(good && verdicts == "s for r: legal\n", "{verdicts}");

    // a program of any size, and one without the chosen set, say that they are left out
    let any = format!("{scheduled}{}", outside.replace("N = 8", "N"));
    let (good, verdicts, _) = check(&any, &[]);
    assert!(good && verdicts == "s for r: legal\np: has no value for `N`, not checked\n", "{verdicts}");
    let (good, _, error) = check(&any, &["--dim", "N=4"]);
    assert!(!good && error.contains("subscript 0 of `A` is 4"), "{error}");
    let sets = format!("{}{outside}", scheduled.replace("{ inout", "{ sizes S { N = 4 } inout"));
    let (good, verdicts, _) = check(&sets, &["--size", "S"]);
    assert!(good && verdicts == "s for r: legal\np: has no set of sizes `S`, not checked\n", "{verdicts}");
    assert!(check(&sets, &["--size", "T"]).2.contains("there is no set of sizes `T`: there are S"));

    // what has no effect is refused
    assert!(check(&scheduled, &["--max-memory", "1MB"]).2.contains("do not pass `--max-memory`"));
    fails(&["check", MODEL, "--target", "x86-64-avx2"], &["no schedules", "--target"]);
    std::fs::write(&path, "schedule s for r { reverse i }").unwrap();
    fails(&["check", &path], &["has no program"]);
}

#[test]
fn a_schedule_for_a_program_that_is_not_there_is_refused() {
    let folder = Folder::new("orphan");
    let path = folder.file("p.tile");
    std::fs::write(&path, "loop p(N) { inout f64 A[N]  for i in 0..N A[i] = 1 }\nschedule s for r { reverse i }\n")
        .unwrap();
    let output = tilewright(&["check", &path, "--dim", "N=4"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    for word in ["p.tile:2:16", "there is no program", "^"] {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}
