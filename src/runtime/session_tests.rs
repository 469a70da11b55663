//! Sessions over small modules of hand-written machine code.
#![cfg(target_arch = "x86_64")]

use super::*;
use crate::module::{Buffer, Carried, Kernel, ModuleParts, OutputSpec, Phase, Slot, Step, TensorSpec, Weights};
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
    assert_eq!(message(&[("x", &far)]), "index -1 at [500] of tensor `x` lies outside of 0..=9999");
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
    assert!(error.contains(&format!("index 10000 at [{}] of tensor `x`", n - 2)), "{error}");
}

/// A loop over the rows of x, last row first: h becomes 2·row + h and is a row of y, until `go` is false; then h or w by `go`.
fn looping(rows: i64, go: bool) -> Module {
    let Module(whole) = module();
    let of = |name: &str, shape: &[i64], place| Buffer {
        name: name.into(),
        dtype: DType::I64,
        shape: shape.to_vec(),
        place,
    };
    let last = (rows - 1) as u64 * 8 * N as u64;
    let window = |of, offset, stride| BufferPlace::Window { of: BufferRef(of), offset, stride, number: 3 };
    let bytes = 8 * N;
    let spec = |name: &str, shape: &[i64]| TensorSpec { name: name.into(), dtype: DType::I64, shape: shape.to_vec() };
    let step = |name: &str, action| Step { name: name.into(), flops: 1, action };
    let flag = whole.weights.len().next_multiple_of(64);
    let mut weights = whole.weights.chunks().collect::<Vec<_>>().concat();
    weights.resize(flag as usize, 0);
    weights.push(go as u8);
    let kernel = Action::Kernel { kernel: 0, arguments: vec![BufferRef(1), BufferRef(5), BufferRef(3)] };
    Module(ModuleParts {
        buffers: vec![
            of("x", &[rows, N], BufferPlace::Input(0)),
            of("row", &[N], window(0, last, -bytes)),
            of("y", &[rows, N], BufferPlace::Output(0)),
            of("made", &[N], window(2, 0, bytes)),
            of("w", &[N], BufferPlace::Weights(0)),
            of("h", &[N], BufferPlace::Arena(0)),
            Buffer { dtype: DType::Bool, ..of("go", &[], BufferPlace::Weights(flag)) },
            of("end", &[N], BufferPlace::Output(1)),
        ],
        arena_bytes: bytes as u64,
        steps: vec![
            step(
                "loop",
                Action::Loop {
                    number: 3,
                    trips: rows as u64,
                    condition: Some(BufferRef(6)),
                    carried: vec![Carried { initial: BufferRef(4), current: BufferRef(5), next: BufferRef(3) }],
                    body: vec![step("row", kernel)],
                },
            ),
            step(
                "if",
                Action::If {
                    condition: BufferRef(6),
                    then: vec![step("then", Action::Copy { from: BufferRef(5), to: BufferRef(7) })],
                    otherwise: vec![step("otherwise", Action::Copy { from: BufferRef(4), to: BufferRef(7) })],
                },
            ),
        ],
        inputs: vec![spec("x", &[rows, N])],
        outputs: vec![
            OutputSpec { tensor: spec("y", &[rows, N]), source: BufferRef(2) },
            OutputSpec { tensor: spec("end", &[N]), source: BufferRef(7) },
        ],
        weights: Weights::new(&weights).unwrap(),
        ..whole
    })
}

#[test]
fn a_loop_moves_its_windows_and_carries_values() {
    let rows = 5;
    let module = Arc::new(looping(rows, true));
    module.verify().unwrap();
    // SAFETY: the module was just made.
    assert_eq!(unsafe { Module::from_bytes(&module.to_bytes().unwrap()) }.unwrap(), *module);
    let x: Vec<i64> = (0..rows * N).map(|i| i * i % 1009).collect();
    let mut h: Vec<i64> = (0..N).map(|i| i * 37 % 91).collect();
    let mut made = vec![];
    for row in x.rchunks(N as usize) {
        h = h.iter().zip(row).map(|(h, x)| 2 * x + h).collect();
        made.extend(&h);
    }
    let x = Tensor::new(&[rows, N], &x);
    for threads in [1, 2, 3] {
        let session = Session::new(module.clone(), threads).unwrap();
        for _ in 0..2 {
            let outputs = session.run(&[("x", &x)]).unwrap();
            assert_eq!((outputs[0].to_vec::<i64>(), outputs[1].to_vec::<i64>()), (made.clone(), h.clone()));
        }
        let times = session.profile(&[("x", &x)]).unwrap();
        // The loop, its row, the if and its first branch; not the second.
        assert_eq!(times.iter().map(|t| t.is_zero()).collect::<Vec<_>>(), [false, false, false, false, true]);
        // Copies inside of other steps are work of the model.
        let mut outputs = session.outputs();
        assert!(session.time_into(&[("x", &x)], &mut outputs).unwrap() > Duration::ZERO);
        assert!(!session.steps.copies.contains(&true));
    }
    let runs: Vec<(&str, u64)> = module.all_steps().into_iter().map(|(s, runs)| (s.name.as_str(), runs)).collect();
    assert_eq!(runs, [("loop", 1), ("row", rows as u64), ("if", 1), ("then", 1), ("otherwise", 1)]);
}

#[test]
fn a_loop_without_end_is_an_error() {
    let mut module = looping(4, true);
    module.0.steps.truncate(1);
    module.0.outputs.truncate(1);
    module.0.buffers.truncate(7);
    module.0.buffers[1].place = BufferPlace::Weights(0);
    module.0.buffers[3].place = BufferPlace::Weights(0);
    for (turns, go) in [(MAX_TRIPS, true), (1000, true), (1000, false)] {
        let condition = go.then_some(BufferRef(6));
        let action = Action::Loop { number: 3, trips: turns, condition, carried: vec![], body: vec![] };
        module.0.steps = vec![Step { name: "spin".into(), flops: 0, action }];
        let session = Session::new(Arc::new(module.clone()), 1).unwrap();
        let run = session.run(&[("x", &Tensor::zeros(DType::I64, &[4, N]))]);
        match run {
            Err(Error::Limit(message)) => assert!(message.contains("`spin`") && go && turns == MAX_TRIPS, "{message}"),
            other => assert!(other.is_ok() && (!go || turns < MAX_TRIPS)),
        }
    }
}

#[test]
fn a_loop_whose_condition_is_false_does_not_run() {
    let session = Session::new(Arc::new(looping(4, false)), 2).unwrap();
    let outputs = session.run(&[("x", &Tensor::zeros(DType::I64, &[4, N]))]).unwrap();
    assert!(outputs[0].to_vec::<i64>().iter().all(|v| *v == 0));
    assert_eq!(outputs[1].to_vec::<i64>(), (0..N).map(|i| i * 37 % 91).collect::<Vec<_>>());
}

fn inside(m: &mut ModuleParts) -> (&mut u32, &mut u64, &mut Option<BufferRef>, &mut Vec<Carried>, &mut Vec<Step>) {
    match &mut m.steps[0].action {
        Action::Loop { number, trips, condition, carried, body } => (number, trips, condition, carried, body),
        _ => panic!("no loop"),
    }
}

fn window(m: &mut ModuleParts, buffer: usize) -> (&mut BufferRef, &mut u64, &mut i64, &mut u32) {
    match &mut m.buffers[buffer].place {
        BufferPlace::Window { of, offset, stride, number } => (of, offset, stride, number),
        _ => panic!("no window"),
    }
}

#[test]
fn inconsistent_loops_are_refused() {
    type Break = fn(&mut ModuleParts);
    let cases: &[(&str, Break)] = &[
        ("a time too many", |m| *inside(m).1 += 1),
        ("no time", |m| *inside(m).1 = 0),
        ("times without end", |m| *inside(m).1 = u64::MAX),
        ("another number", |m| *inside(m).0 = 4),
        ("a number twice", |m| m.steps.push(m.steps[0].clone())),
        ("a condition that is not a bool", |m| *inside(m).2 = Some(BufferRef(5))),
        ("a condition that moves", |m| {
            m.buffers[1].dtype = DType::Bool;
            *inside(m).2 = Some(BufferRef(1));
        }),
        ("an empty condition", |m| m.buffers[6].shape = vec![0]),
        ("no such carried value", |m| inside(m).3[0].next = BufferRef(9)),
        ("a carried value of another size", |m| inside(m).3[0].initial = BufferRef(0)),
        ("a carried constant", |m| inside(m).3[0].current = BufferRef(4)),
        ("an initial value that moves", |m| inside(m).3[0].initial = BufferRef(1)),
        ("a current value that moves", |m| inside(m).3[0].current = BufferRef(3)),
        ("a copy over what another one reads", |m| {
            inside(m).3.push(Carried { initial: BufferRef(4), current: BufferRef(7), next: BufferRef(5) })
        }),
        ("a window before its start", |m| *window(m, 1).1 -= 8),
        ("a window after its end", |m| *window(m, 3).1 += 8),
        ("a stride too large", |m| *window(m, 3).2 += 8),
        ("a stride without end", |m| *window(m, 3).2 = i64::MAX),
        ("a stride back", |m| *window(m, 3).2 = i64::MIN),
        ("a window of itself", |m| *window(m, 1).0 = BufferRef(1)),
        ("a window of a later buffer", |m| *window(m, 1).0 = BufferRef(2)),
        ("a window of no loop", |m| *window(m, 1).3 = 7),
        ("a window outside of its loop", |m| {
            m.steps.push(Step {
                name: "copy".into(),
                flops: 0,
                action: Action::Copy { from: BufferRef(1), to: BufferRef(7) },
            });
        }),
        ("an output that moves", |m| m.outputs[1].source = BufferRef(3)),
        ("a step that reads what it writes", |m| {
            inside(m).4[0].action =
                Action::Kernel { kernel: 0, arguments: vec![BufferRef(2), BufferRef(5), BufferRef(3)] };
        }),
        ("a wrong step inside of a loop", |m| {
            inside(m).4[0].action = Action::Copy { from: BufferRef(0), to: BufferRef(5) };
        }),
        ("a wrong branch", |m| {
            let wrong = Action::Copy { from: BufferRef(7), to: BufferRef(7) };
            m.steps[1].action = Action::If {
                condition: BufferRef(6),
                then: vec![],
                otherwise: vec![Step { name: "otherwise".into(), flops: 0, action: wrong }],
            };
        }),
    ];
    for (what, break_it) in cases {
        let mut module = looping(5, true);
        break_it(&mut module.0);
        assert!(matches!(module.verify(), Err(Error::Invalid(_))), "{what}");
    }
}

#[test]
fn a_step_may_read_one_window_and_write_another_that_moves_with_it() {
    let mut module = looping(5, true);
    *inside(&mut module.0).1 = 4;
    let shifted = BufferPlace::Window { of: BufferRef(2), offset: 8 * N as u64, stride: 8 * N, number: 3 };
    module.0.buffers[1].place = BufferPlace::Weights(0);
    module.0.buffers.push(Buffer { place: shifted, ..module.0.buffers[3].clone() });
    inside(&mut module.0).4[0].action =
        Action::Kernel { kernel: 0, arguments: vec![BufferRef(3), BufferRef(5), BufferRef(8)] };
    module.verify().unwrap();
    *window(&mut module.0, 8).1 -= 8;
    assert!(module.verify().is_err());
}

#[test]
fn steps_that_are_nested_too_deeply_are_refused() {
    let nest = |depth: usize| {
        let mut module = looping(5, true);
        for _ in 0..depth {
            let then = std::mem::take(&mut module.0.steps);
            let action = Action::If { condition: BufferRef(6), then, otherwise: vec![] };
            module.0.steps = vec![Step { name: "if".into(), flops: 0, action }];
        }
        module
    };
    // SAFETY: nothing that is read here is run.
    let read = |module: &Module| unsafe { Module::from_bytes(&module.to_bytes().unwrap()) };
    assert_eq!(read(&nest(7)).unwrap(), nest(7));
    for depth in [8, 9, 100] {
        assert!(matches!(nest(depth).verify(), Err(Error::Invalid(_))), "{depth}");
        assert!(matches!(read(&nest(depth)), Err(Error::Invalid(m)) if m.contains("description")), "{depth}");
    }
    assert!(read(&nest(3)).is_ok());
}

#[test]
fn a_wrong_description_of_a_loop_is_refused_or_consistent() {
    let bytes = looping(3, true).to_bytes().unwrap();
    let description = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize;
    let (mut refused, mut accepted) = (0, 0);
    for i in 40..40 + description {
        for flip in [1, 2, 4, 0x10, 0x80, 0xff] {
            let mut forged = bytes.clone();
            forged[i] ^= flip;
            let crc = crc32fast::hash(&forged[16..]);
            forged[12..16].copy_from_slice(&crc.to_le_bytes());
            // SAFETY: nothing that is read here is run.
            match unsafe { Module::from_bytes(&forged) } {
                Ok(module) => {
                    module.verify().unwrap();
                    accepted += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 100 && accepted > 100, "{refused} refused, {accepted} accepted");
}
