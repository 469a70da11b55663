//! `calibrate` and `--machine`.

use super::{Folder, fails, succeeds};
use tilewright::{Calibration, Target};

const PROGRAM: &str = "loop syrk(N = 600, M = 700) {
    in f64 X[M][N]
    inout f64 C[N][N]
    for i in 0..N for j in i..N for k in 0..M C[i][j] += X[k][i] * X[k][j]
}";

#[test]
fn a_changed_constant_changes_the_choice() {
    let folder = Folder::new("machine");
    let [program, own, small] = ["syrk.tile", "own.json", "small.json"].map(|name| folder.file(name));
    std::fs::write(&program, PROGRAM).unwrap();
    let mut calibration = Calibration::of(&Target::avx512());
    std::fs::write(&own, calibration.to_json()).unwrap();
    calibration.machine.cache_bytes = [16 << 10, 128 << 10, 4 << 20];
    std::fs::write(&small, calibration.to_json()).unwrap();
    let schedule = |more: &[&str]| succeeds(&[&["explain", &program, "--stage", "schedule"], more].concat());
    let table = schedule(&["--target", "x86-64-avx512"]);
    assert_eq!(schedule(&["--machine", &own]), table);
    assert_ne!(schedule(&["--machine", &small]), table);
    assert_eq!(schedule(&["--machine", &small]), schedule(&["--machine", &small]));
}

#[test]
fn modules_of_one_file_are_equal() {
    let folder = Folder::new("machine-modules");
    let [program, constants, a, b] = ["syrk.tile", "m.json", "a.tw", "b.tw"].map(|name| folder.file(name));
    std::fs::write(&program, PROGRAM).unwrap();
    std::fs::write(&constants, Calibration::of(&Target::avx2()).to_json()).unwrap();
    for module in [&a, &b] {
        succeeds(&["compile", &program, "--machine", &constants, "-o", module]);
    }
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
    fails(&["bench", &a, "--machine", &constants], &["already machine code", "`--machine`"]);
}

#[test]
fn wrong_constants_are_refused_by_name() {
    let folder = Folder::new("machine-wrong");
    let [program, constants] = ["syrk.tile", "m.json"].map(|name| folder.file(name));
    std::fs::write(&program, PROGRAM).unwrap();
    let text = Calibration::of(&Target::avx512()).to_json();
    let explain = ["explain", &program, "--stage", "schedule", "--machine", &constants];
    fails(&explain, &["m.json"]);
    std::fs::write(&constants, text.replace("\"clock_ghz\": 3.2", "\"clock_ghz\": 320")).unwrap();
    fails(&explain, &["m.json", "`clock_ghz` is 320 (GHz)", "plausible"]);
    std::fs::write(&constants, text).unwrap();
    fails(&[&explain[..], &["--target", "aarch64-neon"]].concat(), &["those of x86-64-avx512, not of aarch64-neon"]);
}

#[test]
fn what_is_measured_can_be_read() {
    let Some(target) = Target::host() else { return };
    let folder = Folder::new("calibrate");
    let file = folder.file("machine.json");
    // known before it measures for an hour
    let nowhere = folder.file("nowhere/machine.json");
    fails(&["calibrate", "--seconds", "3600", "-o", &nowhere], &["cannot write", "nowhere"]);
    assert!(succeeds(&["calibrate", "--seconds", "0.3", "-o", &file]).contains(&target.name));
    let read = Calibration::load(file.as_ref()).unwrap();
    assert_eq!(read.target, target.name);
    assert_ne!(read.machine, target.machine);
}
