//! Saving, loading, and what loading refuses.

use super::format::{PIECE, checksum, forge};
use super::*;
use crate::Features;

fn load(path: impl AsRef<std::path::Path>) -> Result<Module> {
    // SAFETY: nothing that is read here is run.
    unsafe { Module::load(path) }
}

fn parse(bytes: &[u8]) -> Result<Module> {
    // SAFETY: as above.
    unsafe { Module::from_bytes(bytes) }
}

#[test]
fn the_checksum_of_pieces_is_that_of_the_whole() {
    let bytes: Vec<u8> = (0..2 * PIECE + 100).map(|i| (i * i % 251) as u8).collect();
    let whole = crc32fast::hash(&bytes);
    for at in [0, 1, 24, PIECE - 1, PIECE, 2 * PIECE, bytes.len()] {
        assert_eq!(checksum([&bytes[..at], &bytes[at..]].into_iter()), whole, "{at}");
    }
    assert_eq!(checksum([].into_iter()), crc32fast::hash(&[]));
}

/// Code that stores nothing and returns, and one of everything else.
pub fn small() -> Module {
    let buffer = |name: &str, place| Buffer { name: name.into(), dtype: DType::I64, shape: vec![4], place };
    let step = |name: &str, action| Step { name: name.into(), flops: 3, action };
    let spec = |name: &str| TensorSpec { name: name.into(), dtype: DType::I64, shape: vec![4] };
    let slot = |written| Slot { bytes: 32, written };
    let values = BTreeMap::from([("n".to_string(), Tensor::new(&[1], &[5i64]))]);
    Module(ModuleParts {
        initial: None,
        others: vec![],
        bounds: None,
        values,
        name: "small".into(),
        target: "some-target".into(),
        platform: Platform { features: Features::default(), ..Platform::host() },
        code: vec![0xc3; 3],
        kernels: vec![Kernel {
            name: "k".into(),
            phases: vec![Phase { offset: 1, bytes: 2, parallel: Some(4), wave: None, scratch_bytes: 100 }],
            slots: vec![slot(false), slot(false), slot(true)],
            vectorized: true,
            tensorized: false,
        }],
        buffers: vec![
            buffer("x", BufferPlace::Input(0)),
            buffer("w", BufferPlace::Weights(64)),
            buffer("t", BufferPlace::Arena(0)),
            buffer("y", BufferPlace::Output(0)),
        ],
        arena_bytes: 64,
        steps: vec![
            step("check", Action::CheckIndices { tensor: BufferRef(0), offset: 1, stride: 2, lower: -4, upper: 3 }),
            step("first", Action::Kernel { kernel: 0, arguments: vec![BufferRef(0), BufferRef(1), BufferRef(2)] }),
            step("second", Action::Kernel { kernel: 0, arguments: vec![BufferRef(2), BufferRef(2), BufferRef(3)] }),
        ],
        inputs: vec![spec("x")],
        outputs: vec![OutputSpec { tensor: spec("y"), source: BufferRef(3) }],
        dims: [("batch".to_string(), 4)].into(),
        metadata: [("character".to_string(), "a\nb".to_string())].into(),
        weights: Weights::new(&[7; 96]).unwrap(),
    })
}

#[test]
fn save_and_load_is_identity() {
    let module = small();
    module.verify().unwrap();
    assert_eq!(parse(&module.to_bytes().unwrap()).unwrap(), module);
    let path = std::env::temp_dir().join(format!("tilewright-module-{}.tw", std::process::id()));
    module.save(&path).unwrap();
    let loaded = load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(loaded, module);
    assert_eq!(loaded.weights().get(0, 96).unwrap().as_ptr() as usize % 64, 0);
}

#[test]
fn every_flipped_byte_and_every_truncation_is_refused() {
    let bytes = small().to_bytes().unwrap();
    for i in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[i] ^= flip;
            assert!(matches!(parse(&damaged), Err(Error::Invalid(_))), "byte {i} ^ {flip}");
        }
        assert!(matches!(parse(&bytes[..i]), Err(Error::Invalid(_))), "first {i} bytes");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(parse(&longer).is_err());
}

#[test]
fn a_wrong_description_under_a_right_checksum_is_refused_or_consistent() {
    let bytes = small().to_bytes().unwrap();
    let (mut refused, mut accepted) = (0, 0);
    for i in 16..bytes.len() {
        for flip in [1, 2, 4, 0x10, 0x80, 0xff] {
            let mut forged = bytes.clone();
            forged[i] ^= flip;
            let crc = crc32fast::hash(&forged[16..]);
            forged[12..16].copy_from_slice(&crc.to_le_bytes());
            match parse(&forged) {
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

#[test]
fn initial_values_nest_once() {
    let plain = || {
        Module(ModuleParts {
            inputs: vec![],
            outputs: vec![],
            steps: vec![],
            kernels: vec![],
            buffers: vec![],
            ..small().0
        })
    };
    let empty = || Module(ModuleParts { weights: Weights::default(), metadata: [].into(), ..plain().0 });
    let once = Module(ModuleParts { initial: Some(Arc::new(empty())), ..small().0 });
    once.verify().unwrap();
    assert_eq!(parse(&once.to_bytes().unwrap()).unwrap(), once);
    let twice = Module(ModuleParts {
        initial: Some(Arc::new(Module(ModuleParts { initial: Some(Arc::new(empty())), ..empty().0 }))),
        ..small().0
    });
    assert!(twice.verify().is_err() && twice.to_bytes().is_err());
    // A made file cannot nest either, however deep it says it does: what follows the second description is left over.
    for depth in [2, 3, 1_000_000] {
        assert!(matches!(parse(&forge(&empty(), depth)), Err(Error::Invalid(_))), "{depth}");
    }
}

#[test]
fn refusals_say_why() {
    let bytes = small().to_bytes().unwrap();
    let message = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
    let mut version = bytes.clone();
    for other in [4, 9] {
        version[8] = other;
        let message = message(&version);
        assert!(message.contains(&format!("module format {other}")) && message.contains("compile"), "{message}");
    }
    assert!(message(b"ONNX").contains("magic"));
    let mut damaged = bytes;
    *damaged.last_mut().unwrap() ^= 1;
    assert!(message(&damaged).contains("checksum"));
    assert!(matches!(load("/nonexistent/x.tw"), Err(Error::Io(_))));
}

#[test]
fn another_processor_is_refused() {
    let z80 = Platform { architecture: "z80".into(), ..Platform::host() };
    let other = Module(ModuleParts { platform: z80, ..small().0 });
    assert!(matches!(other.check_host(), Err(Error::Unsupported(m)) if m.contains("z80") && m.contains("`small`")));
    small().check_host().unwrap();
}

#[test]
fn inconsistent_modules_are_refused() {
    type Break = fn(&mut ModuleParts);
    let cases: &[(&str, Break)] = &[
        ("code offset", |m| m.kernels[0].phases[0].offset = 3),
        ("code length", |m| m.kernels[0].phases[0].bytes = 3),
        ("code length overflow", |m| m.kernels[0].phases[0].bytes = u64::MAX),
        ("no code", |m| m.kernels[0].phases[0].bytes = 0),
        ("iterations", |m| m.kernels[0].phases[0].parallel = Some(-1)),
        ("waves", |m| m.kernels[0].phases[0].wave = Some(0)),
        ("slot too large", |m| m.kernels[0].slots[1].bytes = 33),
        ("slot missing", |m| m.kernels[0].slots.truncate(2)),
        ("kernel index", |m| m.steps[1].action = Action::Kernel { kernel: 1, arguments: vec![] }),
        ("buffer index", |m| m.outputs[0].source = BufferRef(4)),
        ("arena end", |m| m.buffers[2].place = BufferPlace::Arena(33)),
        ("arena overflow", |m| m.buffers[2].place = BufferPlace::Arena(u64::MAX)),
        ("weights end", |m| m.buffers[1].place = BufferPlace::Weights(65)),
        ("input index", |m| m.buffers[0].place = BufferPlace::Input(1)),
        ("written weights", |m| m.buffers[3].place = BufferPlace::Weights(0)),
        ("written input", |m| m.buffers[3].place = BufferPlace::Input(0)),
        ("overlap", |m| m.buffers[0].place = BufferPlace::Arena(16)),
        ("negative extent", |m| m.buffers[0].shape = vec![-1]),
        ("huge extent", |m| m.buffers[0].shape = vec![i64::MAX, 2]),
        ("two inputs of one name", |m| m.inputs.push(m.inputs[0].clone())),
        ("unknown function", |m| {
            let nothing = Action::Opaque { function: "f".into(), attributes: vec![], inputs: vec![], outputs: vec![] };
            m.steps[0].action = nothing;
        }),
        ("float subscripts", |m| m.buffers[0].dtype = DType::F64),
    ];
    for (what, break_it) in cases {
        let mut module = small();
        break_it(&mut module.0);
        assert!(matches!(module.verify(), Err(Error::Invalid(_))), "{what}");
    }
}
