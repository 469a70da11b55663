//! A decoder whose past grows: few compilations, state in place, and the results of exact sizes.

mod common;
#[path = "files/onnx.rs"]
mod onnx;

use common::root;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tilewright::module::Module;
use tilewright::{Compiled, DType, Error, File, Model, Options, Session, Stateful, Tensor};

/// Tokens that the model has places for.
const POSITIONS: i64 = 96;
const PAIRS: [(&str, &str); 4] = [
    ("past.0.key", "present.0.key"),
    ("past.0.value", "present.0.value"),
    ("past.1.key", "present.1.key"),
    ("past.1.value", "present.1.value"),
];

fn decoder() -> Model {
    Model::load(root().join("tests/fixtures/models/decoder.onnx")).unwrap()
}

fn options(growing: &[&str]) -> Options {
    Options { growing: growing.iter().map(|name| name.to_string()).collect(), threads: 1, ..Options::default() }
}

fn tokens(random: &mut StdRng, batch: i64, length: i64) -> Tensor {
    let tokens: Vec<i64> = (0..batch * length).map(|_| random.random_range(0..50)).collect();
    Tensor::new(&[batch, length], &tokens)
}

fn assert_near(found: &Tensor, expected: &Tensor, place: &str) {
    assert_eq!(found.shape, expected.shape, "{place}");
    for (a, b) in found.to_vec::<f32>().into_iter().zip(expected.to_vec::<f32>()) {
        assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "{place}: {a} instead of {b}");
    }
}

/// Runs of these lengths on both; the sizes of the past after each.
fn compare<'c>(growing: &mut Stateful<'c>, exact: &mut Stateful<'c>, batch: i64, lengths: &[i64], random: &mut StdRng) {
    let mut past = 0;
    for &length in lengths {
        let ids = tokens(random, batch, length);
        let [found, expected] = [&mut *growing, exact].map(|s| s.run(&[("input_ids", &ids)]).unwrap().remove(0));
        assert_near(&found, &expected, &format!("{length} tokens after {past}"));
        past += length;
    }
    for (input, _) in PAIRS {
        let (found, expected) = (growing.state(input).unwrap(), exact.state(input).unwrap());
        assert_eq!(found.shape, [batch, 2, past, 12]);
        assert_near(&found, &expected, input);
    }
}

#[test]
fn steps_of_decoding_compile_a_few_times() {
    let mut random = StdRng::seed_from_u64(1);
    let model = decoder();
    let (growing, exact) = (model.compile(&options(&["past"])).unwrap(), model.compile(&options(&[])).unwrap());
    let mut decoder = growing.stateful(&PAIRS).unwrap();
    for _ in 0..2 {
        for step in 0..60 {
            let ids = tokens(&mut random, 1, if step == 0 { 5 } else { 1 });
            let before: Option<Vec<Tensor>> = PAIRS.iter().map(|pair| decoder.state(pair.0).ok()).collect();
            let found = decoder.run(&[("input_ids", &ids)]).unwrap();
            // where the capacity has just grown, and between
            if let (11 | 12 | 27 | 40, Some(before)) = (step, before) {
                let expected = exact.run(&past(&before, &ids)).unwrap();
                assert_near(&found[0], &expected[4], &format!("step {step}"));
                for (expected, (input, _)) in expected.iter().zip(PAIRS) {
                    assert_near(&decoder.state(input).unwrap(), expected, input);
                }
            }
        }
        // the prompt; 16, 32 and 64 places
        assert_eq!(growing.compilations(), 4);
        decoder.reset();
        assert!(decoder.state("past.0.key").is_err());
    }
}

#[test]
fn prompts_of_any_length_come_at_any_time() {
    let mut random = StdRng::seed_from_u64(2);
    let model = decoder();
    let (growing, exact) = (model.compile(&options(&["past"])).unwrap(), model.compile(&options(&[])).unwrap());
    for (batch, lengths) in [(1, &[1, 7, 1, 16, 37, 1][..]), (3, &[2, 1, 16])] {
        let (mut a, mut b) = (growing.stateful(&PAIRS).unwrap(), exact.stateful(&PAIRS).unwrap());
        compare(&mut a, &mut b, batch, lengths, &mut random);
    }
}

/// The tensors of a state, as inputs.
fn past<'a>(state: &'a [Tensor], ids: &'a Tensor) -> Vec<(&'a str, &'a Tensor)> {
    PAIRS.iter().map(|pair| pair.0).zip(state).chain([("input_ids", ids)]).collect()
}

#[test]
fn state_in_place_equals_tensors_of_exact_sizes() {
    let mut random = StdRng::seed_from_u64(3);
    let compiled = decoder().compile(&options(&["past"])).unwrap();
    let mut decoder = compiled.stateful(&PAIRS).unwrap();
    let mut state: Vec<Tensor> = PAIRS.iter().map(|_| Tensor::zeros(DType::F32, &[1, 2, 0, 12])).collect();
    for length in [3, 1, 1, 9, 1, 9] {
        let ids = tokens(&mut random, 1, length);
        let logits = decoder.run(&[("input_ids", &ids)]).unwrap();
        let mut outputs = compiled.run(&past(&state, &ids)).unwrap();
        // the same code on the same numbers
        assert_eq!(outputs.pop().unwrap(), logits[0]);
        for (tensor, (input, _)) in outputs.iter().zip(PAIRS) {
            assert_eq!(*tensor, decoder.state(input).unwrap());
        }
        let module = compiled.session(&past(&state, &ids)).unwrap().module().clone();
        let number = |name: &str| module.inputs().iter().position(|spec| spec.name == name).unwrap();
        for (output, (input, _)) in PAIRS.iter().enumerate() {
            assert!(module.may_share(number(input), output), "{input}");
            assert!(!module.may_share(number(input), (output + 1) % 4), "{input}");
        }
        state = outputs;
    }
}

#[test]
fn random_pasts_have_the_results_of_exact_sizes() {
    let mut random = StdRng::seed_from_u64(4);
    let model = decoder();
    let growing = model.compile(&options(&["past"])).unwrap();
    let exact = model.compile(&options(&[])).unwrap();
    for _ in 0..6 {
        let (count, length) = (random.random_range(0..60), random.random_range(1..3));
        let ids = tokens(&mut random, 2, length);
        let state: Vec<Tensor> =
            (0..4).map(|i| Tensor::seeded(DType::F32, &[2, 2, count, 12], count as u64, i, 0)).collect();
        let [found, expected] = [&growing, &exact].map(|c: &Compiled| c.run(&past(&state, &ids)).unwrap());
        for (found, expected) in found.iter().zip(&expected) {
            assert_near(found, expected, &format!("{length} tokens after {count}"));
        }
    }
    assert!(growing.compilations() <= 6, "{}", growing.compilations());
}

#[test]
fn beyond_the_positions_the_error_is_that_of_exact_sizes() {
    let model = decoder();
    let (growing, exact) = (model.compile(&options(&["past"])).unwrap(), model.compile(&options(&[])).unwrap());
    let (mut a, mut b) = (growing.stateful(&PAIRS).unwrap(), exact.stateful(&PAIRS).unwrap());
    let all = Tensor::zeros(DType::I64, &[1, POSITIONS - 1]);
    let one = Tensor::zeros(DType::I64, &[1, 1]);
    for state in [&mut a, &mut b] {
        state.run(&[("input_ids", &all)]).unwrap();
        state.run(&[("input_ids", &one)]).unwrap();
    }
    let [found, expected] = [&mut a, &mut b].map(|s| s.run(&[("input_ids", &one)]).unwrap_err());
    assert_eq!(found.to_string(), expected.to_string());
    // the state is what it was
    for (input, _) in PAIRS {
        assert_near(&a.state(input).unwrap(), &b.state(input).unwrap(), input);
        assert_eq!(a.state(input).unwrap().shape[2], POSITIONS);
    }
}

#[test]
fn a_run_that_fails_leaves_the_state() {
    let compiled = decoder().compile(&options(&["past"])).unwrap();
    let mut decoder = compiled.stateful(&PAIRS).unwrap();
    let ids = |token: i64, length: usize| Tensor::new(&[1, length as i64], &vec![token; length]);
    decoder.run(&[("input_ids", &ids(3, 4))]).unwrap();
    let before = decoder.state("past.1.value").unwrap();
    let error = decoder.run(&[("input_ids", &ids(1000, 2))]).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert_eq!(decoder.state("past.1.value").unwrap(), before);
    let after = decoder.run(&[("input_ids", &ids(5, 1))]).unwrap();
    let mut other = compiled.stateful(&PAIRS).unwrap();
    other.run(&[("input_ids", &ids(3, 4))]).unwrap();
    assert_eq!(other.run(&[("input_ids", &ids(5, 1))]).unwrap(), after);
}

#[test]
fn a_first_run_that_fails_begins_nothing() {
    for growing in [&["past"][..], &[]] {
        let compiled = decoder().compile(&options(growing)).unwrap();
        let mut decoder = compiled.stateful(&PAIRS).unwrap();
        assert!(decoder.run(&[("input_ids", &Tensor::new(&[2, 1], &[1000i64, 1]))]).is_err());
        assert!(PAIRS.iter().all(|pair| decoder.state(pair.0).is_err()));
        // the batch of the run that failed is not that of the state
        decoder.run(&[("input_ids", &Tensor::new(&[1, 2], &[3i64, 4]))]).unwrap();
        assert_eq!(decoder.state("past.0.key").unwrap().shape, [1, 2, 2, 12]);
    }
}

#[test]
fn state_of_other_extents_is_refused() {
    let ids = Tensor::zeros(DType::I64, &[1, 1]);
    let good = Tensor::seeded(DType::F32, &[1, 2, 6, 12], 1, 1, 0);
    for growing in [&["past"][..], &[]] {
        let compiled = decoder().compile(&options(growing)).unwrap();
        for shape in [[1, 2, 6, 13], [1, 3, 6, 12], [1, 2, 6, 11]] {
            let mut decoder = compiled.stateful(&PAIRS).unwrap();
            PAIRS.iter().for_each(|pair| decoder.set(pair.0, &good).unwrap());
            let bad = Tensor::seeded(DType::F32, &shape, 1, 1, 0);
            decoder.set("past.1.key", &bad).unwrap();
            let error = decoder.run(&[("input_ids", &ids)]).unwrap_err();
            assert!(matches!(&error, Error::Invalid(why) if why.contains("past.1.key")), "{error}");
            assert_eq!((decoder.state("past.1.key"), decoder.state("past.0.key")), (Ok(bad), Ok(good.clone())));
        }
        let mut decoder = compiled.stateful(&PAIRS).unwrap();
        let negative = Tensor { shape: vec![1, -2, -6, 12], ..good.clone() };
        assert!(decoder.set("past.0.key", &negative).is_err());
    }
}

#[test]
fn an_output_that_is_no_next_input_is_refused() {
    use onnx::{FLOAT, INT64, graph, model, node, tensor, with_int};
    let scalar = Tensor::new(&[1], &[2f32]);
    for (output, dtype) in
        [(with_int(node("Cast", &["s"], &["t"]), "to", 7), INT64), (node("Unsqueeze", &["s", "axes"], &["t"]), FLOAT)]
    {
        let made = model(graph(
            vec![tensor("x", FLOAT, Some(&["1"])), tensor("s", FLOAT, Some(&["n"]))],
            vec![onnx::integers("axes", &[1], &[0])],
            vec![output, node("Relu", &["x"], &["y"])],
            vec![tensor("y", FLOAT, None), tensor("t", dtype, None)],
        ));
        for growing in [&["n"][..], &[]] {
            let compiled = made.compile(&options(growing)).unwrap();
            let mut state = compiled.stateful(&[("s", "t")]).unwrap();
            state.set("s", &scalar).unwrap();
            let error = state.run(&[("x", &scalar)]).unwrap_err().to_string();
            assert!(error.contains("output `t`") && error.contains("input `s`"), "{error}");
            assert_eq!(state.state("s").unwrap(), scalar);
        }
    }
}

#[test]
fn state_of_any_rank_is_set_first() {
    use onnx::{FLOAT, graph, model, node, tensor};
    let made = model(graph(
        vec![tensor("x", FLOAT, Some(&["2"])), tensor("s", FLOAT, None)],
        vec![],
        vec![node("Add", &["x", "s"], &["t"])],
        vec![tensor("t", FLOAT, None)],
    ));
    let compiled = made.compile(&options(&[])).unwrap();
    let mut sum = compiled.stateful(&[("s", "t")]).unwrap();
    let x = Tensor::new(&[2], &[1f32, 2.0]);
    let error = sum.run(&[("x", &x)]).unwrap_err().to_string();
    assert!(error.contains("set it first"), "{error}");
    sum.set("s", &Tensor::new(&[2], &[0f32, 0.5])).unwrap();
    (0..2).for_each(|_| assert!(sum.run(&[("x", &x)]).unwrap().is_empty()));
    assert_eq!(sum.state("s").unwrap().to_vec::<f32>(), [2.0, 4.5]);
}

#[test]
fn state_is_set_and_refused_by_name() {
    let compiled = decoder().compile(&options(&["past"])).unwrap();
    let wrong = |pairs: &[(&str, &str)]| compiled.stateful(pairs).err().unwrap().to_string();
    assert!(wrong(&[("past.7.key", "present.0.key")]).contains("no input `past.7.key`"));
    assert!(wrong(&[("past.0.key", "present")]).contains("no output `present`"));
    assert!(wrong(&[PAIRS[0], PAIRS[0]]).contains("twice"));
    let mut decoder = compiled.stateful(&PAIRS).unwrap();
    let ids = Tensor::zeros(DType::I64, &[1, 1]);
    let state = Tensor::seeded(DType::F32, &[1, 2, 6, 12], 1, 1, 0);
    assert!(decoder.run(&[("input_ids", &ids), ("past.0.key", &state)]).is_err());
    assert!(decoder.set("input_ids", &ids).is_err());
    assert!(decoder.set("past.0.key", &ids).is_err());
    for (input, _) in PAIRS {
        decoder.set(input, &state).unwrap();
        assert_eq!(decoder.state(input).unwrap(), state);
    }
    let logits = decoder.run(&[("input_ids", &ids)]).unwrap();
    let all: Vec<Tensor> = PAIRS.iter().map(|_| state.clone()).collect();
    assert_eq!(compiled.run(&past(&all, &ids)).unwrap()[4], logits[0]);
    assert_eq!(decoder.state("past.0.key").unwrap().shape, [1, 2, 7, 12]);
}

#[test]
fn a_dimension_that_grows_is_dynamic() {
    let unknown = decoder().compile(&options(&["depth"])).err().unwrap().to_string();
    assert!(unknown.contains("`depth`"), "{unknown}");
    let bound = Options { dims: [("past".to_string(), 4)].into(), ..options(&["past"]) };
    assert!(decoder().compile(&bound).err().unwrap().to_string().contains("comes with each run"));
    // ahead of time the size is the capacity
    let error = decoder().compile_module(&options(&["past"])).err().unwrap().to_string();
    assert!(error.contains("must be given"), "{error}");
    let dims = [("past".to_string(), i64::MAX), ("batch".to_string(), -3)].into();
    let error = decoder().compile_module(&Options { dims, ..options(&["past", "batch"]) }).err().unwrap();
    assert!(matches!(&error, Error::Invalid(why) if why.contains("negative")), "{error}");
    // a program has none
    let file = File::parse("p.tile", "def p(f32(N) x) -> (y) { y(i) = x(i) * 2 }").unwrap();
    let program = Model::from_program(file, None, None).unwrap();
    let dims = [("N".to_string(), 8)].into();
    let error = program.compile_module(&Options { dims, ..options(&["N"]) }).err().unwrap();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
}

#[test]
fn a_module_for_a_capacity_is_saved() {
    let dims = [("past", 32), ("batch", 1), ("length", 1)].map(|(name, size)| (name.to_string(), size)).into();
    let (module, _) = decoder().compile_module(&Options { dims, ..options(&["past"]) }).unwrap();
    // SAFETY: the bytes are those of a module of this compiler.
    let module = unsafe { Module::from_bytes(&module.to_bytes().unwrap()) }.unwrap();
    let bounds = module.bounds().unwrap().clone();
    assert_eq!((bounds.capacity, bounds.least, bounds.most), (32, 0, 31));
    assert_eq!((bounds.input.as_str(), module.dims()["past"]), ("#past", 32));
    let session = Session::new(module.into(), 1).unwrap();
    let exact = decoder().compile(&options(&[])).unwrap();
    for count in [0, 1, 13, 31] {
        let ids = Tensor::new(&[1, 1], &[count]);
        let state: Vec<Tensor> = (0..4).map(|i| Tensor::seeded(DType::F32, &[1, 2, count, 12], 9, i, 0)).collect();
        let (found, expected) = (session.run(&past(&state, &ids)).unwrap(), exact.run(&past(&state, &ids)).unwrap());
        for (found, expected) in found.iter().zip(&expected) {
            assert_near(found, expected, &format!("after {count}"));
        }
    }
    let ids = Tensor::zeros(DType::I64, &[1, 1]);
    let state: Vec<Tensor> = PAIRS.iter().map(|_| Tensor::zeros(DType::F32, &[1, 2, 32, 12])).collect();
    let error = session.run(&past(&state, &ids)).unwrap_err().to_string();
    assert!(error.contains("`past` is 32") && error.contains("for 0 to 31"), "{error}");
    // at capacity, with the count
    let count = Tensor::new(&[], &[32i64]);
    let mut raw = past(&state, &ids);
    raw.push(("#past", &count));
    assert!(session.run(&raw).unwrap_err().to_string().contains("for 0 to 31"));
    let count = Tensor::new(&[], &[4i64]);
    raw.pop();
    raw.push(("#past", &count));
    assert_eq!(session.run(&raw).unwrap()[0].shape, [1, 2, 32, 12]);
}
