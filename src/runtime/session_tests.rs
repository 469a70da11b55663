//! Sessions over small modules of hand-written machine code.
#![cfg(target_arch = "x86_64")]

use super::*;
use crate::module::{Buffer, Kernel, ModuleParts, OutputSpec, Phase, Slot, Step, Weights};
use crate::{Features, Platform, TensorViewMut};

/// `arguments[2][i] = 2·arguments[0][i] + arguments[1][i]` for i in first..last, 64-bit integers.
const DOUBLE_AND_ADD: &[u8] = &[
    0x48, 0x8b, 0x07, // mov rax, [rdi]
    0x4c, 0x8b, 0x4f, 0x08, // mov r9, [rdi + 8]
    0x48, 0x8b, 0x4f, 0x10, // mov rcx, [rdi + 16]
    0x48, 0x39, 0xd6, // cmp rsi, rdx
    0x7d, 0x14, // jge +20
    0x4c, 0x8b, 0x04, 0xf0, // mov r8, [rax + 8·rsi]
    0x4d, 0x01, 0xc0, // add r8, r8
    0x4d, 0x03, 0x04, 0xf1, // add r8, [r9 + 8·rsi]
    0x4c, 0x89, 0x04, 0xf1, // mov [rcx + 8·rsi], r8
    0x48, 0xff, 0xc6, // inc rsi
    0xeb, 0xe7, // jmp -25
    0xc3, // ret
];

const N: i64 = 1000;

/// t = 2x + w, y = 2t + t, best = arg_max(y), echo = x; all in i64, x between 0 and 9999.
fn module() -> Module {
    let buffer = |name: &str, place| Buffer { name: name.into(), dtype: DType::I64, shape: vec![N], place };
    let spec = |name: &str, shape: &[i64]| TensorSpec { name: name.into(), dtype: DType::I64, shape: shape.to_vec() };
    let slot = |written| Slot { bytes: 8 * N as u64, written };
    let step = |name: &str, action| Step { name: name.into(), flops: 0, action };
    let kernel =
        |[a, b, c]: [u32; 3]| Action::Kernel { kernel: 0, arguments: vec![BufferRef(a), BufferRef(b), BufferRef(c)] };
    let weights: Vec<u8> = (0..N).flat_map(|i| (i * 37 % 91).to_le_bytes()).collect();
    let output = |name: &str, shape: &[i64], source| OutputSpec { tensor: spec(name, shape), source };
    Module(ModuleParts {
        name: "doubled".into(),
        platform: Platform::x86_64(Features::default()),
        code: DOUBLE_AND_ADD.to_vec(),
        kernels: vec![Kernel {
            name: "double_and_add".into(),
            phases: vec![Phase {
                offset: 0,
                bytes: DOUBLE_AND_ADD.len() as u64,
                parallel: Some(N),
                wave: None,
                scratch_bytes: 64,
            }],
            slots: vec![slot(false), slot(false), slot(true)],
            vectorized: false,
            tensorized: false,
        }],
        buffers: vec![
            buffer("x", BufferPlace::Input(0)),
            buffer("w", BufferPlace::Weights(0)),
            buffer("t", BufferPlace::Arena(64)),
            buffer("y", BufferPlace::Output(0)),
            Buffer { shape: vec![1], ..buffer("best", BufferPlace::Output(1)) },
        ],
        arena_bytes: 64 + 8 * N as u64,
        steps: vec![
            step("check", Action::CheckIndices { tensor: BufferRef(0), offset: 0, stride: 2, lower: 0, upper: 9999 }),
            step("first", kernel([0, 1, 2])),
            step("second", kernel([2, 2, 3])),
            step(
                "third",
                Action::Opaque {
                    function: "argmax".into(),
                    attributes: vec![0, 0, 0],
                    inputs: vec![BufferRef(3)],
                    outputs: vec![BufferRef(4)],
                },
            ),
        ],
        inputs: vec![spec("x", &[N])],
        outputs: vec![
            output("y", &[N], BufferRef(3)),
            output("best", &[1], BufferRef(4)),
            output("echo", &[N], BufferRef(0)),
            output("again", &[N], BufferRef(3)),
        ],
        weights: Weights::new(&weights).unwrap(),
        ..ModuleParts::default()
    })
}

fn input(seed: i64) -> Tensor {
    Tensor::new(&[N], &(0..N).map(|i| (i * i + seed * 7919) % 10000).collect::<Vec<_>>())
}

fn check(x: &Tensor, outputs: &[Tensor]) {
    let expected: Vec<i64> =
        x.to_vec::<i64>().iter().enumerate().map(|(i, v)| 3 * (2 * v + i as i64 * 37 % 91)).collect();
    assert_eq!(outputs[0].to_vec::<i64>(), expected);
    let greatest = expected.iter().max().unwrap();
    assert_eq!(outputs[1].to_vec::<i64>(), [expected.iter().position(|v| v == greatest).unwrap() as i64]);
    assert_eq!(&outputs[2], x);
    assert_eq!(outputs[3], outputs[0]);
}

#[test]
fn steps_run_in_order_with_any_number_of_threads() {
    let module = Arc::new(module());
    for threads in [1, 2, 3] {
        let session = Session::new(module.clone(), threads).unwrap();
        for seed in 0..5 {
            let x = input(seed);
            check(&x, &session.run(&[("x", &x)]).unwrap());
        }
    }
}

#[test]
fn eight_threads_share_a_session() {
    let session = Session::new(Arc::new(module()), 2).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let session = &session;
            scope.spawn(move || {
                for round in 0..20 {
                    let x = input(caller * 100 + round);
                    check(&x, &session.run(&[("x", &x)]).unwrap());
                }
            });
        }
    });
    assert!(session.free.lock().unwrap().len() <= 8);
}

#[test]
fn wrong_inputs_are_named() {
    let session = Session::new(Arc::new(module()), 1).unwrap();
    let x = input(0);
    let message = |inputs: &[(&str, &Tensor)]| match session.run(inputs) {
        Err(Error::Invalid(m)) => m,
        other => panic!("{other:?}"),
    };
    assert_eq!(message(&[("z", &x)]), "there is no input `z`: there are x");
    assert_eq!(message(&[]), "input `x` is missing (i64 1000)");
    assert_eq!(message(&[("x", &x), ("x", &x)]), "input `x` is given twice");
    let float = Tensor::zeros(DType::F32, &[N]);
    assert_eq!(message(&[("x", &float)]), "input `x` is f32 1000, but the compiled model wants i64 1000");
    let square = Tensor::zeros(DType::I64, &[N, 1]);
    assert_eq!(message(&[("x", &square)]), "input `x` is i64 1000×1, but the compiled model wants i64 1000");
    let short = Tensor { data: vec![0; 8].into(), ..x.clone() };
    assert_eq!(message(&[("x", &short)]), "input `x` of i64 1000 has 8 bytes of data");
    let mut far = x.to_vec::<i64>();
    far[501] = -1; // between two that are checked
    session.run(&[("x", &Tensor::new(&[N], &far))]).unwrap();
    far[500] = -1;
    let far = Tensor::new(&[N], &far);
    assert_eq!(message(&[("x", &far)]), "index -1 in tensor `x` lies outside of 0..=9999");
    check(&x, &session.run(&[("x", &x)]).unwrap());
}

#[test]
fn outputs_can_be_reused() {
    let session = Session::new(Arc::new(module()), 2).unwrap();
    let mut outputs = session.outputs();
    let address = outputs[0].data.as_ptr();
    for seed in 0..3 {
        let x = input(seed);
        session.run_into(&[("x", &x)], &mut outputs).unwrap();
        check(&x, &outputs);
    }
    assert_eq!(outputs[0].data.as_ptr(), address);
    assert!(session.run_into(&[("x", &input(0))], &mut outputs[..2]).is_err());
    outputs[1] = Tensor::zeros(DType::I64, &[2]);
    assert!(session.run_into(&[("x", &input(0))], &mut outputs).is_err());
}

#[test]
fn a_profile_has_a_time_for_each_step() {
    let session = Session::new(Arc::new(module()), 1).unwrap();
    let times = session.profile(&[("x", &input(1))]).unwrap();
    assert_eq!(times.len(), 4);
    assert!(times.iter().all(|t| *t > Duration::ZERO && *t < Duration::from_secs(1)), "{times:?}");
}

#[test]
fn a_module_for_another_processor_gets_no_session() {
    let other = Module(ModuleParts { platform: Platform::aarch64(Features::default()), ..module().0 });
    assert!(matches!(Session::new(Arc::new(other), 1), Err(Error::Unsupported(_))));
}

#[test]
fn views_are_read_and_written_where_they_lie() {
    let session = Session::new(Arc::new(module()), 2).unwrap();
    let x = input(3).to_vec::<i64>();
    let (mut y, mut best, mut echo, mut again) = (vec![0i64; 1000], [0i64], vec![0i64; 1000], vec![0i64; 1000]);
    let mut outputs = [
        TensorViewMut::new(&[N], &mut y),
        TensorViewMut::new(&[1], &mut best),
        TensorViewMut::new(&[N], &mut echo),
        TensorViewMut::new(&[N], &mut again),
    ];
    session.run_into(&[("x", TensorView::new(&[N], &x))], &mut outputs).unwrap();
    let outputs =
        [Tensor::new(&[N], &y), Tensor::new(&[1], &best), Tensor::new(&[N], &echo), Tensor::new(&[N], &again)];
    check(&input(3), &outputs);
    // Owned tensors by reference, and bytes at an odd address.
    let bytes = [&[0u8][..], &input(4).data].concat();
    let odd = TensorView { dtype: DType::I64, shape: &[N], data: &bytes[1..] };
    let mut owned = session.outputs();
    let mut references: Vec<&mut Tensor> = owned.iter_mut().collect();
    session.run_into(&[("x", odd)], &mut references).unwrap();
    check(&input(4), &owned);
    let short = TensorView { dtype: DType::I64, shape: &[N], data: &bytes[..80] };
    assert!(session.run_into(&[("x", short)], &mut owned).is_err());
}

#[test]
fn sessions_share_a_pool() {
    let pool = Arc::new(Pool::new(2).unwrap());
    let sessions: Vec<Session> =
        (0..3).map(|_| Session::with_pool(Arc::new(module()), pool.clone()).unwrap()).collect();
    assert_eq!(Arc::strong_count(&pool), 4);
    std::thread::scope(|scope| {
        for session in &sessions {
            scope.spawn(move || {
                for seed in 0..50 {
                    check(&input(seed), &session.run(&[("x", &input(seed))]).unwrap());
                }
            });
        }
    });
}

/// A check of many subscripts is divided among the threads of the session.
#[test]
fn subscripts_are_checked_on_all_threads() {
    let n = 1 << 16;
    let mut parts = module().0;
    parts.steps.truncate(1);
    parts.outputs.retain(|o| o.tensor.name == "echo");
    parts.buffers.truncate(1);
    (parts.kernels, parts.code, parts.arena_bytes) = (vec![], vec![], 0);
    parts.buffers[0].shape = vec![n];
    parts.inputs[0].shape = vec![n];
    parts.outputs[0].tensor.shape = vec![n];
    let session = Session::new(Arc::new(Module(parts)), 3).unwrap();
    let mut values: Vec<i64> = (0..n).map(|i| i % 10_000).collect();
    let x = Tensor::new(&[n], &values);
    assert_eq!(session.run(&[("x", &x)]).unwrap(), [x]);
    assert!(session.pool.has_divided());
    values[n as usize - 2] = 10_000;
    let error = session.run(&[("x", &Tensor::new(&[n], &values))]).unwrap_err().to_string();
    assert!(error.contains("index 10000 in tensor `x`"), "{error}");
}
