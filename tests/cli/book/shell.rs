//! The commands of the pages that have no output beside them succeed, and what the page of linking declares is in the headers.
//!
//! A block marked `sh` has commands, one a line. Those of `tilewright` and of the compiler of C are run, in a folder with the files
//! that they name; of others the first word must be known here.

use super::common::{root, skip};
use super::onnx::{FLOAT, bytes, floats, graph, node, tensor};
use super::{folder, run};
use std::fs;
use std::path::{Path, PathBuf};
use tilewright::{DType, Isa, Target, Tensor};

/// First words of commands that build, install and measure: people and other tests run them.
const ELSEWHERE: [&str; 8] =
    ["make", "export", "python3", "cargo", "benches/compare.sh", "benches/agree.py", "perf", "TILEWRIGHT_JITDUMP=DIR"];

/// A line of shell, without its comment.
struct Line {
    text: String,
    /// Its output stands beside it, which another test compares; here it may write what others read.
    has_output: bool,
}

/// The commands of a page in their order. The word MODEL is the file MODEL.onnx; measurements are short.
fn commands(page: &str) -> Vec<Line> {
    let (mut found, mut block) = (vec![], "");
    for line in page.lines() {
        let text = line.trim_start();
        if let Some(kind) = text.strip_prefix("```") {
            block = kind;
        } else if block == "sh" || (block == "console" && text.starts_with("$ ")) {
            let command = text.trim_start_matches("$ ").split(" #").next().unwrap().trim_end();
            let words = command.split(' ').map(|word| if word == "MODEL" { "MODEL.onnx" } else { word });
            let mut text = words.collect::<Vec<_>>().join(" ");
            let measures = ["tilewright bench ", "tilewright compare "].iter().any(|start| text.starts_with(start));
            if measures && !text.contains(" --steps ") {
                text += " --seconds 0.05";
            }
            found.push(Line { text, has_output: block == "console" });
        }
    }
    found
}

/// A convolution of images x, of any number.
fn network() -> Vec<u8> {
    let (input, output) = (["batch", "3", "8", "8"], ["batch", "4", "6", "6"]);
    let weights: Vec<f32> = (0..4 * 3 * 3 * 3).map(|i| (i % 7) as f32 - 3.0).collect();
    let nodes = vec![node("Conv", &["x", "w"], &["c"]), node("Relu", &["c"], &["y"])];
    let (x, y) = (tensor("x", FLOAT, Some(&input)), tensor("y", FLOAT, Some(&output)));
    bytes(graph(vec![x], vec![floats("w", &[4, 3, 3, 3], &weights)], nodes, vec![y]), 17)
}

/// A test's folder with the page's files and those that its commands name.
fn workplace(page: &Path, text: &str, test: &str) -> PathBuf {
    let folder = folder(page, text, test);
    for name in ["MODEL.onnx", "model.onnx"] {
        fs::write(folder.join(name), network()).unwrap();
    }
    Tensor::seeded(DType::F32, &[4, 3, 8, 8], 0, 0, 2).write_npy(folder.join("x.npy")).unwrap();
    folder
}

/// False where a command runs an instruction that this processor lacks.
fn has_instructions(command: &str) -> bool {
    #[cfg(target_arch = "x86_64")]
    let has_ifma = std::arch::is_x86_feature_detected!("avx512ifma");
    #[cfg(not(target_arch = "x86_64"))]
    let has_ifma = false;
    has_ifma || !command.contains("ifma.tile")
}

#[test]
fn commands_of_the_pages_succeed() {
    if !Target::all().iter().any(|target| target.isa == Isa::Avx2 && target.runs_on_host()) {
        return skip::no_hardware("AVX2, for the modules of the pages");
    }
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let others = ["README.md", "src/cli/README.md"].map(|page| root().join(page));
    let mut count = 0;
    for page in pages.chain(others).filter(|page| page.extension().is_some_and(|e| e == "md")) {
        let text = fs::read_to_string(&page).unwrap();
        let folder = workplace(&page, &text, "shell");
        for Line { text: command, has_output } in commands(&text) {
            let first = command.split(' ').next().unwrap();
            if command.contains("pkg-config") || ELSEWHERE.contains(&first) {
                continue;
            }
            assert!(["tilewright", "cc"].contains(&first), "{}: who runs `{command}`?", page.display());
            if first == "cc" && !run("cc --version", &folder).status.success() {
                skip::not_installed("the package gcc, for the page of linking");
                continue;
            } else if !has_instructions(&command) {
                skip::no_hardware("AVX512-IFMA, for the page of instructions");
                continue;
            }
            let said = run(&command, &folder);
            let error = String::from_utf8_lossy(&said.stderr);
            // the page shows a schedule that is refused
            let succeeds =
                said.status.success() || error.contains("not all schedules took part: upwards for sweep (refused)");
            assert!(has_output || succeeds, "{}: `{command}`: {error}", page.display());
            count += usize::from(!has_output);
        }
    }
    assert!(count > 25, "only {count} commands");
}

/// The functions that the blocks of C on a page declare.
fn declarations(page: &str) -> Vec<&str> {
    let blocks = page.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let is_declaration =
        |line: &&str| line.ends_with(");") && ["void ", "int ", "const "].iter().any(|t| line.starts_with(t));
    blocks.flat_map(str::lines).filter(is_declaration).collect()
}

#[test]
fn the_page_of_linking_declares_what_headers_declare() {
    let page = root().join("docs/linking.md");
    let text = fs::read_to_string(&page).unwrap();
    let folder = workplace(&page, &text, "headers");
    let (start, rest) = text.split_once("`def gemm").unwrap();
    let program = format!(
        "def gemm{} {{ sizes S {{ M = 8, N = 8, K = 8 }} C(m, n) +=! A(m, k) * B(k, n) }}",
        rest.split_once('`').unwrap().0
    );
    assert!(start.contains("Of a program"));
    fs::write(folder.join("gemm.tile"), program).unwrap();
    let mut headers = String::new();
    for arguments in ["gemm.tile --size S -o ./gemm", "MODEL.onnx --dim batch=16,4,1 -o ./net"] {
        let said = run(&format!("tilewright compile {arguments} --emit object"), &folder);
        assert!(said.status.success(), "{arguments}: {}", String::from_utf8_lossy(&said.stderr));
        let name = arguments.rsplit('/').next().unwrap();
        headers += &fs::read_to_string(folder.join(format!("{name}.h"))).unwrap();
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (headers, declared) = (words(&headers), declarations(&text));
    for line in &declared {
        assert!(headers.contains(&words(line)), "{}: no header declares `{line}`", page.display());
    }
    assert_eq!(declared.len(), 6);
}
