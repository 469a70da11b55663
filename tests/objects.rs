//! Object files: programs in C made of them give the library's bits, on this processor and under the emulator.

#[path = "objects/build.rs"]
mod build;
mod common;

use build::{Case, Folder, Toolchain, bits, build_and_run, read_outputs};
use common::{bind, host_targets, read_tensors, root, skip};
use std::collections::BTreeMap;
use std::sync::Arc;
use tilewright::internal::expr::scalar::number::f32_to_bf16;
use tilewright::internal::runtime::bounds::resized;
use tilewright::internal::runtime::module::Action;
use tilewright::{
    Accumulate, AsView, DType, Dim, Error, File, InputSpec, Model, ObjectFiles, ObjectOptions, Options, Precision,
    Session, Target, Tensor, graph_text,
};

/// Fixtures of most kinds of steps and element types.
const FIXTURES: &[&str] = &[
    "add_int64",
    "broadcast_rank_5",
    // divisions in the body of a kernel use the stack
    "conv_kernel_larger_than_image",
    "cast_f32_bool",
    "concat_same_twice",
    "conv_3x3_stride_2",
    "conv_batch_norm_relu",
    "dynamic_sequence_positions",
    "gather_elements",
    "gather_int32_index",
    "gather_runtime_negative",
    "identity",
    "if_inside_if",
    "if_run_time_false",
    "if_run_time_true",
    "loop_exchange",
    "loop_run_time_3_times",
    "loop_until",
    "loop_while_without_count",
    "lstm_bidirectional",
    "lstm_lengths_run_time",
    "matmul_double",
    "matmul_integer",
    "ms_matmul_4_bits",
    "network_inception_13",
    "network_u_net_9",
    "pattern_attention",
    "pattern_residual_block",
    "quantize_u8",
];

/// Programs of the text language, with their inputs in the order of the array declarations.
const PROGRAMS: &[&str] =
    &["2mm", "correlation", "doitgen", "fdtd-2d", "gemm", "jacobi-2d", "lu", "nussinov", "seidel-2d"];

/// A fixture with its stored inputs; `None` where it has no module.
fn fixture(name: &str, target: &Target) -> Option<Case> {
    let path = root().join(format!("tests/fixtures/operators/{name}.onnx"));
    let model = Model::load(&path).unwrap();
    let inputs: Vec<Tensor> =
        read_tensors(&path.with_extension("npy")).into_iter().take(model.inputs().len()).collect();
    let values =
        (model.inputs().iter().zip(&inputs)).map(|(spec, tensor)| (spec.name.clone(), Arc::new(tensor.clone())));
    let mut options = Options { target: Some(target.clone()), dims: bind(&model, &inputs), ..Options::default() };
    if model.depends_on_values(&options) {
        options.values = values.collect();
    }
    let module = model.compile_module(&options).ok()?.0;
    Some(Case::new(name.into(), Arc::new(module), inputs))
}

/// A program with its initial values.
fn program(name: &str, target: &Target) -> Case {
    let file = File::load(root().join(format!("datasets/polybench/{name}.tile"))).unwrap();
    let model = Model::from_program(file, None, Some("MINI")).unwrap();
    let options = Options { target: Some(target.clone()), ..Options::default() };
    let module = Arc::new(model.compile_module(&options).unwrap().0);
    // the same values for every target, on this processor
    let here = model.compile_module(&Options::default()).unwrap().0;
    let mut initial: BTreeMap<String, Tensor> =
        Session::new(Arc::new(here), 1).unwrap().initial_values().unwrap().into_iter().collect();
    let inputs = module.inputs().iter().map(|spec| initial.remove(&spec.name).unwrap()).collect();
    Case::new(name.into(), module, inputs)
}

/// A graph from text, with inputs from a seed.
fn graph(text: &str, target: &Target) -> Case {
    let graph = graph_text::parse(text).unwrap();
    let name = graph.name.clone();
    let options = Options { target: Some(target.clone()), ..Options::default() };
    let module = Model::from_graph(graph).compile_module(&options).unwrap().0;
    let seeded = |(i, s): (u64, &tilewright::module::TensorSpec)| Tensor::seeded(s.dtype, &s.shape, 7, i, 2);
    let inputs = (0..).zip(module.inputs()).map(seeded).collect();
    Case::new(name, Arc::new(module), inputs)
}

/// Windows that move backwards, with windows inside of them.
const NESTED: &str = r#"graph nested {
    %x: f32[3,4,6] = input "x"
    %h: f32[6] = input "h"
    %last, %all = scan[trips=3 carried=1 reverse=true,false conditional=false body={ %0: f32[6] = input "i0"; %1: f32[4,6] = input "i1"; %2: f32[6] = input "i2"; %3: f32[6], %4: f32[4,6] = scan[trips=4 carried=1 reverse=false,true conditional=false body={ %0: f32[6] = input "i0"; %1: f32[6] = input "i1"; %2: f32[6] = input "i2"; %3: f32[6] = sub(%1, %0); %4: f32[6] = mul(%3, %2); output %4 "o0"; output %3 "o1" }](%0, %1, %2); %5: f32[6] = exp(%3); output %5 "o0"; output %4 "o1" }](%h, %x, %h)
    output %last "last"
    output %all "all"
}"#;

/// Names that are words of C, and that would end comments and strings.
const NAMES: &str = r#"graph "double */ \" ??/" {
    %x: f32[5,7] = input "int"
    %y: f32[5,7] = input "a*/b\"??/"
    %s: f32[7] = input "s"
    %t = add(%x, %y)
    %z = mul(%t, %s)
    %w = exp(%z)
    output %w "for"
    output %x "int"
    output %w "workspace"
}"#;

fn cases(target: &Target) -> Vec<Case> {
    let all = std::env::var_os("TILEWRIGHT_OBJECTS_ALL").is_some();
    let names: Vec<String> = match all {
        true => common::fixtures("operators", "onnx")
            .iter()
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect(),
        false => FIXTURES.iter().map(|name| name.to_string()).collect(),
    };
    let mut cases: Vec<Case> = names.iter().filter_map(|name| fixture(name, target)).collect();
    cases
        .retain(|case| ObjectFiles::new(&case.module, &ObjectOptions::default()).unwrap().runtime_functions.is_empty());
    let missing: Vec<_> = names.iter().filter(|name| cases.iter().all(|case| case.name != **name)).collect();
    assert!(all || missing.is_empty(), "{missing:?}");
    cases.extend(PROGRAMS.iter().map(|name| program(name, target)));
    cases.extend([graph(NESTED, target), graph(NAMES, target)]);
    cases.extend(several_bindings(target));
    cases
}

/// A module for several sizes of the dimensions, and a case for each choice of sizes with the binding that is to run. Of a
/// dimension that grows the size is below the capacity that `options` or `bindings` give.
fn sized(
    model: &Model,
    options: &Options,
    bindings: &[BTreeMap<String, i64>],
    choices: &[(usize, &[(&str, i64)])],
) -> Vec<Case> {
    let module = Arc::new(model.compile_bindings(options, bindings).unwrap().0);
    let case = |(binding, sizes): &(usize, &[(&str, i64)])| {
        let shape = |dims: &[Dim]| -> Vec<i64> {
            let size = |name: &String| {
                let size = sizes.iter().find(|size| size.0 == name).map(|size| size.1);
                size.or(bindings[*binding].get(name).copied()).or(options.dims.get(name).copied()).unwrap_or(1)
            };
            let extent = |dim: &Dim| match dim {
                Dim::Fixed(n) => *n,
                Dim::Symbol(name) => size(name),
                Dim::Derived(_) => unreachable!(),
            };
            dims.iter().map(extent).collect()
        };
        let seeded = |(i, spec): (u64, &InputSpec)| Tensor::seeded(spec.dtype, &shape(&spec.shape), 11, i, 1);
        let inputs = (0..).zip(model.inputs()).map(seeded).collect();
        let (module, sizes): (_, Vec<i64>) = (module.clone(), sizes.iter().map(|size| size.1).collect());
        Case { name: format!("{} at {sizes:?}", module.name()), module, binding: *binding, sizes, inputs }
    };
    choices.iter().map(case).collect()
}

fn dims(sizes: &[(&str, i64)]) -> BTreeMap<String, i64> {
    sizes.iter().map(|(name, size)| (name.to_string(), *size)).collect()
}

fn decoder() -> Model {
    Model::load(root().join("tests/fixtures/models/decoder.onnx")).unwrap()
}

/// Modules of several bindings.
fn several_bindings(target: &Target) -> Vec<Case> {
    let options = Options { target: Some(target.clone()), ..Options::default() };
    let positions = Model::load(root().join("tests/fixtures/operators/dynamic_sequence_positions.onnx")).unwrap();
    let [a, b, c, d] = [(3, 7), (3, 9), (4, 7), (4, 9)].map(|(b, l)| [("batch", b), ("length", l)]);
    let bindings = [a, b, c, d].map(|sizes| dims(&sizes));
    let mut cases = sized(&positions, &options, &bindings, &[(3, &d), (0, &a), (1, &b)]);
    let [long, wide] = [[("batch", 1), ("length", 5), ("past", 20)], [("batch", 2), ("length", 1), ("past", 3)]];
    // one dimension has one size, and is not a parameter
    let of_decoder = [dims(&long), dims(&wide)];
    cases.extend(sized(&decoder(), &options, &of_decoder, &[(0, &long), (1, &wide)]));
    cases
}

/// Modules of one and of several capacities, and of sizes beside capacities.
fn capacities(target: &Target) -> Vec<Case> {
    let growing = Options { target: Some(target.clone()), growing: vec!["past".into()], ..Options::default() };
    let one = Options { dims: dims(&[("past", 16)]), ..growing.clone() };
    let mut cases = sized(&decoder(), &one, &[dims(&[])], &[(0, &[("past", 0)]), (0, &[("past", 15)])]);
    let bindings =
        [dims(&[("batch", 1), ("past", 8)]), dims(&[("batch", 1), ("past", 32)]), dims(&[("batch", 2), ("past", 8)])];
    let [small, middle, large, wide] = [(1, 7), (1, 8), (1, 31), (2, 5)].map(|(b, p)| [("batch", b), ("past", p)]);
    let choices: [(usize, &[(&str, i64)]); 4] = [(0, &small), (1, &middle), (1, &large), (2, &wide)];
    cases.extend(sized(&decoder(), &growing, &bindings, &choices));
    cases
}

/// The outputs of the session that chooses a binding by itself, as the arrays of C programs.
fn session_outputs(case: &Case) -> Vec<Tensor> {
    let counted = case.module.bounds().map(|bounds| &bounds.input);
    let names = case.module.inputs().iter().map(|spec| &spec.name).filter(|name| Some(*name) != counted);
    let inputs: Vec<(&str, &Tensor)> = names.map(String::as_str).zip(&case.inputs).collect();
    let outputs = Session::new(case.module.clone(), 1).unwrap().run(&inputs).unwrap();
    let specs = case.bound().outputs().iter().map(|output| &output.tensor);
    specs.zip(&outputs).map(|(spec, output)| resized(&output.view(), &spec.shape)).collect()
}

#[test]
fn programs_in_c_give_the_bits_of_the_library() {
    let Some(toolchain) = Toolchain::host() else { return };
    for target in host_targets() {
        let cases = cases(&target);
        let kinds = |kind: fn(&Action) -> bool| {
            let has = |case: &&Case| case.module.all_steps().iter().any(|(step, _)| kind(&step.action));
            cases.iter().filter(has).count()
        };
        let phases = cases.iter().flat_map(|c| c.module.kernels()).flat_map(|k| &k.phases);
        assert!(phases.filter(|phase| phase.parallel.is_some()).count() > 10);
        assert!(
            kinds(|a| matches!(a, Action::If { .. })) > 1 && kinds(|a| matches!(a, Action::CheckIndices { .. })) > 1
        );
        assert!(kinds(|a| matches!(a, Action::Loop { .. })) > 4 && kinds(|a| matches!(a, Action::Copy { .. })) > 4);
        let apart = target.name == host_targets()[0].name;
        for weights_apart in [false, true].into_iter().take(1 + usize::from(apart)) {
            let found = build_and_run(&toolchain, &cases, weights_apart);
            for (case, found) in cases.iter().zip(found) {
                assert!(bits(&session_outputs(case)) == found, "{} on {}", case.name, target.name);
            }
        }
    }
}

#[test]
fn emulated_programs_give_the_bits_of_the_emulated_library() {
    let Some(toolchain) = Toolchain::emulated() else { return };
    let target = Target::by_name("aarch64-neon").unwrap();
    let cases: Vec<Case> = cases(&target).into_iter().chain(capacities(&target)).chain(large(&target)).collect();
    let Some(expected) = toolchain.library_outputs(&cases) else { return };
    assert!(toolchain.has_runtime());
    for (case, (found, expected)) in
        cases.iter().zip(build_and_run(&toolchain, &cases, false).into_iter().zip(expected))
    {
        assert!(found == expected, "{}", case.name);
    }
}

#[test]
fn opaque_functions_come_from_the_static_runtime() {
    let Some(toolchain) = Toolchain::host().filter(|toolchain| toolchain.has_runtime()) else { return };
    let target = Target::host().unwrap();
    let cases: Vec<Case> = ["argmax_last", "cum_sum", "max_roi_pool", "determinant", "top_k_smallest_axis_0"]
        .iter()
        .map(|name| fixture(name, &target).unwrap())
        .collect();
    for case in &cases {
        let files = ObjectFiles::new(&case.module, &ObjectOptions::default()).unwrap();
        assert_eq!(files.runtime_functions.len(), 1, "{}", case.name);
    }
    for (case, found) in cases.iter().zip(build_and_run(&toolchain, &cases, false)) {
        assert!(bits(&session_outputs(case)) == found, "{}", case.name);
    }
}

#[test]
fn dimensions_that_grow_are_parameters() {
    let Some(toolchain) = Toolchain::host().filter(|toolchain| toolchain.has_runtime()) else { return };
    for target in host_targets() {
        let cases = capacities(&target);
        assert!(cases.iter().all(|case| case.bound().bounds().is_some()));
        for (case, found) in cases.iter().zip(build_and_run(&toolchain, &cases, false)) {
            assert!(bits(&session_outputs(case)) == found, "{} on {}", case.name, target.name);
        }
    }
}

#[test]
fn sizes_of_no_binding_are_refused_by_name() {
    let Some(toolchain) = Toolchain::host() else { return };
    let target = Target::host().unwrap();
    let options = Options { target: Some(target.clone()), ..Options::default() };
    let positions = Model::load(root().join("tests/fixtures/operators/dynamic_sequence_positions.onnx")).unwrap();
    let bindings = [[("batch", 3), ("length", 7)], [("batch", 4), ("length", 9)]].map(|sizes| dims(&sizes));
    let refused = |mut case: Case, sizes: &[i64], words: &str| {
        case.sizes = sizes.to_vec();
        let text = toolchain.failure(&Folder::new("sizes"), &case);
        assert!(text.contains(words), "{sizes:?}: {text}");
    };
    let case = || sized(&positions, &options, &bindings, &[(0, &[("batch", 3), ("length", 7)])]).remove(0);
    refused(case(), &[5, 7], "dimension `batch` is not among those of the object: 3, 4");
    refused(case(), &[3, i64::MAX], "dimension `length` is not among those of the object: 7, 9");
    refused(case(), &[-3, -7], "dimension `batch`");
    refused(case(), &[3, 9], "has these sizes together; it has batch=3, length=7; batch=4, length=9");
    if toolchain.has_runtime() {
        let growing = || capacities(&target).remove(3);
        assert_eq!(growing().sizes, [1, 8]);
        refused(growing(), &[1, 32], "dimension `past` is not among those of the object: 0 to 7, 0 to 31");
        refused(growing(), &[1, -1], "dimension `past`");
        refused(growing(), &[2, 31], "it has batch=1, past=0 to 7; batch=1, past=0 to 31; batch=2, past=0 to 7");
    }
}

#[test]
fn bindings_share_constants_in_the_object() {
    let options = Options::default();
    let bytes = |bindings: &[BTreeMap<String, i64>], weights_apart| {
        let module = decoder().compile_bindings(&options, bindings).unwrap().0;
        let files = ObjectFiles::new(&module, &ObjectOptions { weights_apart, ..ObjectOptions::default() }).unwrap();
        files.weights.map_or(files.object.len(), |weights| weights.len())
            - module.bindings().map(|m| m.code().len()).sum::<usize>() * usize::from(!weights_apart)
    };
    let all: Vec<_> = [3, 5, 20, 40].iter().map(|past| dims(&[("past", *past)])).collect();
    let one = decoder().compile_bindings(&options, &all[..1]).unwrap().0.weights().len() as usize;
    for weights_apart in [false, true] {
        let (alone, together) = (bytes(&all[..1], weights_apart), bytes(&all, weights_apart));
        assert!(alone >= one && together < alone + one, "{alone} and {together}, of {one} bytes of weights");
    }
}

/// Constants and intermediate tensors that large pages are asked for, and constants alone.
fn large(target: &Target) -> [Case; 2] {
    [1100, 1].map(|rows| {
        let text = format!(
            "graph large {{
                %x: f32[{rows},1024] = input \"x\"
                %w: f32[1024,1100] = constant seeded(1)
                %y = matmul(%x, %w)
                %v: f32[1100,8] = constant seeded(2)
                %z = matmul(%y, %v)
                output %z \"z\"
            }}"
        );
        graph(&text, target)
    })
}

#[test]
fn large_constants_and_workspaces_have_large_pages() {
    const SOURCE: &str = concat!(include_str!("objects/main.c"), include_str!("objects/large.c"));
    let Some(toolchain) = Toolchain::host() else { return };
    let has_large_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    for target in host_targets() {
        for case in large(&target) {
            let expected = bits(&session_outputs(&case));
            for (option, pages) in [("-O2", "large"), ("-DTILEWRIGHT_SMALL_PAGES", "small")] {
                let folder = Folder::new("large");
                let text = toolchain.program(&folder, &case, false, SOURCE, &[option]);
                assert_eq!(text, format!("{} pages\n", if has_large_pages { pages } else { "small" }), "{option}");
                assert!(read_outputs(&folder, "0.out", case.bound()) == expected, "{option} on {}", target.name);
            }
        }
    }
}

#[test]
fn wrong_memory_is_a_code_and_threads_run_at_the_same_time() {
    let Some(toolchain) = Toolchain::host() else { return };
    for target in host_targets() {
        let case = fixture("network_u_net_9", &target).unwrap();
        let text = toolchain.program(&Folder::new("wrong"), &case, true, include_str!("objects/wrong_use.c"), &[]);
        assert_eq!(text, "0 failures\n", "{}", target.name);
    }
}

#[test]
fn subscripts_outside_are_a_code_with_a_message() {
    let Some(toolchain) = Toolchain::host() else { return };
    let mut case = fixture("gather_int32_index", &Target::host().unwrap()).unwrap();
    let indices = case.inputs.iter_mut().find(|tensor| tensor.dtype == DType::I32).unwrap();
    indices.data[..4].copy_from_slice(&1000i32.to_le_bytes());
    let folder = Folder::new("outside");
    let text = toolchain.failure(&folder, &case);
    assert!(text.contains("an index in tensor `") && text.contains("lies outside of"), "{text}");
}

#[test]
fn the_same_module_gives_the_same_files() {
    let case = program("gemm", &Target::host().unwrap());
    let files = |name: &str| {
        ObjectFiles::new(&case.module, &ObjectOptions { name: name.into(), ..ObjectOptions::default() }).unwrap()
    };
    assert_eq!(files("a"), files("a"));
    assert_ne!(files("a").object, files("b").object);
    let header = files("gemm").header;
    assert!(header.contains("void gemm(double *C, const double *A, const double *B);"), "{header}");
}

#[test]
fn what_an_object_cannot_hold_is_refused_by_name() {
    let load = |name: &str| Model::load(root().join(format!("tests/fixtures/operators/{name}.onnx"))).unwrap();
    let module = load("matmul_bias_relu").compile_module(&Options::default()).unwrap().0;
    for name in ["a/b", "a\"b", "a\nb"] {
        let error = ObjectFiles::new(&module, &ObjectOptions { name: name.into(), ..ObjectOptions::default() });
        assert!(matches!(error, Err(Error::Invalid(_))), "{name:?}");
    }
    let files = ObjectFiles::new(&module, &ObjectOptions::default()).unwrap();
    assert!(matches!(files.write("no/such/folder"), Err(Error::Io(_))));
}

/// Runs a debugger and a lister of symbols on a program.
#[test]
fn a_debugger_sees_kernels_by_name_and_their_callers() {
    let Some(toolchain) = Toolchain::host() else { return };
    if !build::runs("gdb") {
        return skip::not_installed("the package gdb, to unwind the stack");
    }
    // frames with slots for vectors, and without
    for target in ["x86-64-avx512", "x86-64-avx2"].map(|name| Target::by_name(name).unwrap()) {
        if !target.runs_on_host() {
            skip::no_hardware(&format!("this processor does not run {}", target.name));
            continue;
        }
        for name in ["gemm", "correlation"] {
            let folder = Folder::new("unwind");
            let (seen, depth) = toolchain.unwind(&folder, &program(name, &target));
            assert!(depth > 20, "{name} on {}: stopped at {depth} instructions", target.name);
            assert_eq!(seen, depth, "{name} on {}: `main` is not seen from every instruction", target.name);
        }
    }
}

/// Runs the cases on an emulated processor with the features of `target`; `None` where there is no emulator.
fn emulated(cases: &[Case]) -> Option<Vec<Vec<Tensor>>> {
    let toolchain = Toolchain::emulated()?;
    let outputs = |(case, bytes): (&Case, Vec<Vec<u8>>)| {
        let specs = case.bound().outputs().iter().map(|output| &output.tensor);
        specs.zip(bytes).map(|(s, data)| Tensor { data: data.into(), ..Tensor::zeros(s.dtype, &s.shape) }).collect()
    };
    Some(cases.iter().zip(build_and_run(&toolchain, cases, false)).map(outputs).collect())
}

/// Sums of products in f16, as kernels of networks and with what follows them; the last is depthwise, whose sums stay in f32.
const IN_F16: [&str; 6] = [
    "%x: f32[17,1040] = input \"x\"  %w: f32[1040,33] = constant seeded(1)  %y = matmul(%x, %w)",
    "%x: f32[1,20,9,10] = input \"x\"  %w: f32[19,20,3,3] = constant seeded(1)  %b: f32[19] = constant seeded(2)
     %c = conv[3x3 pad=1x1 nchw](%x, %w, %b)  %z: f32[] = constant [0]  %y = max(%c, %z)",
    "%x: f32[1,72,14,14] = input \"x\"  %w: f32[35,72,3,3] = constant seeded(1)  %y = conv[3x3 pad=1x1 nchw](%x, %w)",
    "%x: f32[1,96,7,9] = input \"x\"  %w: f32[50,96,1,1] = constant seeded(1)  %y = conv[1x1 nchw](%x, %w)",
    "%x: f32[3,9,64] = input \"x\"  %w: f32[3,64,40] = input \"w\"  %y = matmul(%x, %w)",
    "%x: f32[1,24,14,14] = input \"x\"  %w: f32[24,1,3,3] = constant seeded(1)  %y = conv[3x3 pad=1x1 nchw group=24](%x, %w)",
];

/// Sums in f16 are near those in f32: they have the error of f16, and not more.
#[test]
fn networks_sum_in_f16_where_that_is_asked_for() {
    let target = Target::by_name("aarch64-neon+fp16").unwrap();
    let (mut cases, mut expected) = (vec![], vec![]);
    for (i, body) in IN_F16.iter().enumerate() {
        let text = format!("graph halves_{i} {{\n{}\noutput %y \"y\"\n}}", body.replace("  %", "\n%"));
        let model = Model::from_graph(graph_text::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}")));
        let options = |precision, accumulate| Options {
            target: Some(target.clone()),
            precision,
            accumulate,
            max_error: 0.0,
            ..Options::default()
        };
        let (module, report) = model.compile_module(&options(Precision::F16, Accumulate::F16)).unwrap();
        let phases = || report.kernels.iter().flat_map(|k| &k.phases);
        let taken = phases().filter(|p| p.instruction.as_deref() == Some("fmla_8h")).count();
        assert_eq!(taken, usize::from(i + 1 < IN_F16.len()), "{body}: {report}");
        let seeded = |(i, s): (u64, &tilewright::module::TensorSpec)| Tensor::seeded(s.dtype, &s.shape, 7, i, 2);
        let inputs: Vec<Tensor> = (0..).zip(module.inputs()).map(seeded).collect();
        let here = model.compile_module(&Options { max_error: 0.0, ..Options::default() }).unwrap().0;
        let names: Vec<(&str, &Tensor)> = module.inputs().iter().map(|s| &*s.name).zip(&inputs).collect();
        expected.push(Session::new(Arc::new(here), 1).unwrap().run(&names).unwrap().remove(0));
        cases.push(Case::new(format!("halves_{i}"), Arc::new(module), inputs));
    }
    for ((body, right), found) in IN_F16.iter().zip(&expected).zip(emulated(&cases).into_iter().flatten()) {
        let (found, right) = (found[0].to_vec::<f32>(), right.to_vec::<f32>());
        let largest = right.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let error = found.iter().zip(&right).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest;
        assert!(error < 1e-2, "{body}: off by {error}");
        assert!(error > 1e-4 || body.contains("group"), "{body}: {error} is less than sums in f16 lose");
    }
}

/// Schedules by hand with instructions on matrices: whole numbers, whose sums are exact.
#[test]
fn schedules_by_hand_with_matrices_run_on_an_emulated_processor() {
    let target = Target::by_name("aarch64-neon+dotprod+i8mm+bf16").unwrap();
    let whole = |(seed, s): (usize, &tilewright::module::TensorSpec)| {
        let mut tensor = Tensor::zeros(s.dtype, &s.shape);
        for (at, element) in tensor.data.chunks_exact_mut(s.dtype.bytes()).enumerate() {
            let number = ((at + 7 * seed) * 151 + (at + seed) / 13) as u8;
            match s.dtype {
                DType::BF16 => element.copy_from_slice(&f32_to_bf16(f32::from(number as i8)).to_le_bytes()),
                _ => element[0] = number,
            }
        }
        tensor
    };
    let (mut cases, mut expected) = (vec![], vec![]);
    for (types, terms, name) in [
        (["i8", "i8", "i32"], 8, "smmla"),
        (["u8", "u8", "i32"], 8, "ummla_i32"),
        (["u8", "i8", "i32"], 8, "usmmla"),
        (["bf16", "bf16", "f32"], 4, "bfmmla"),
    ] {
        for [rows, columns] in [[4, 12], [1, 12], [3, 5]] {
            let [a, b, sum] = types;
            let text = format!(
                "def product({a}(M, K) A, {b}(K, N) B) -> (C) {{ C(m, n) +=! {sum}(A(m, k)) * {sum}(B(k, n)) }}
                schedule s for product {{
                    distribute C_init, C at m; tile C(m, n) by ({rows}, {columns}) -> mo, no, mi, ni
                    split C(k) by {terms} -> ko, ki; reorder C(mo, no, ko, mi, ni, ki)
                    pack_read B as (n / {columns}, k / {terms}, n % {columns}, k % {terms})
                    tensorize C(mi, ni, ki) with {name}
                }}"
            );
            let file = || File::parse("matrices.tile", &text).unwrap();
            let dims: BTreeMap<String, i64> = dims(&[("M", 7), ("N", 18), ("K", 6 * terms)]);
            let options = Options { dims: dims.clone(), target: Some(target.clone()), ..Options::default() };
            let model = Model::from_program(file(), None, None).unwrap().with_schedule("s").unwrap();
            let (module, report) = model.compile_module(&options).unwrap_or_else(|e| panic!("{text}: {e}"));
            let instructions: Vec<_> = report.kernels[0].phases.iter().map(|p| p.instruction_text()).collect();
            assert!(instructions.iter().any(|i| i == name), "{instructions:?}: {text}");
            let inputs: Vec<Tensor> = module.inputs().iter().enumerate().map(whole).collect();
            let free = Model::from_program(file(), None, None).unwrap();
            let here = free.compile_module(&Options { dims, ..Options::default() }).unwrap().0;
            let given: Vec<(&str, &Tensor)> = module.inputs().iter().map(|s| &*s.name).zip(&inputs).collect();
            expected.push(Session::new(Arc::new(here), 1).unwrap().run(&given).unwrap());
            cases.push(Case::new(format!("{name}_{rows}_{columns}"), Arc::new(module), inputs));
        }
    }
    for ((case, right), found) in cases.iter().zip(&expected).zip(emulated(&cases).into_iter().flatten()) {
        assert!(found[0].data == right[0].data, "{}", case.name);
    }
}
