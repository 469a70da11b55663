//! Random programs and random schedules: what is accepted computes what the program computes, with 1 and 2 threads, and so
//! does the ILP's schedule, of which its words make the same module; what is refused for its order has a counterexample
//! that enumeration confirms. And a table of schedules that are refused, each with a true counterexample.
//!
//! Some seconds in a plain run; `TILEWRIGHT_FUZZ_SECONDS=600` for longer, `TILEWRIGHT_SEED=n` for one program again,
//! both for others from that seed on.

mod common;
mod random_schedules {
    pub mod primitives;
    pub mod programs;
    pub mod refused;
    pub mod witness;
}

use common::{difference, run_seeded};
use random_schedules::programs::Maker;
use random_schedules::refused::{self, REFUSED};
use random_schedules::witness::{confirm, confirm_values};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tilewright::Stage;
use tilewright::internal::expr::syntax::Span;
use tilewright::internal::language;
use tilewright::internal::poly::transform;
use tilewright::internal::poly::transform::primitive::{Placed, Primitive};
use tilewright::internal::poly::transform::state::{SourceProgram, Transformed};
use tilewright::{Error, Model, Options, Tensor};

const TOLERANCE: f64 = 1e-12;

type Counts = BTreeMap<String, usize>;

/// The outputs of a program, of `schedule` or the ILP's, with 1 and 2 threads.
fn outputs(text: &str, schedule: Option<&str>) -> tilewright::Result<[Vec<Tensor>; 2]> {
    let mut model = Model::from_program(language::parse("random.tile", text)?, None, None)?;
    if let Some(name) = schedule {
        model = model.with_schedule(name)?;
    }
    let module = Arc::new(model.compile_module(&Options::default())?.0);
    let run = |threads| run_seeded(module.clone(), threads, 7);
    Ok([run(1)?, run(2)?])
}

fn with(text: &str, primitives: &[Primitive]) -> String {
    let said: String = primitives.iter().map(|p| format!("    {p}\n")).collect();
    format!("{text}schedule s for p {{\n{said}}}\n")
}

/// Why the outputs of `schedule` are not `expected`.
fn compare(text: &str, schedule: Option<&str>, expected: &[Tensor], counts: &mut Counts) -> Option<String> {
    let found = match outputs(text, schedule) {
        Ok(found) => found,
        Err(Error::Unsupported(why)) => {
            *counts.entry(format!("unsupported: {}", why.split(':').next_back().unwrap_or(""))).or_default() += 1;
            return None;
        }
        Err(e) => return Some(format!("it is legal, but: {e}")),
    };
    for (threads, found) in found.iter().enumerate() {
        for (a, e) in found.iter().zip(expected) {
            if let Some(why) = difference(a, e, TOLERANCE) {
                return Some(format!("with {} threads: {why}", threads + 1));
            }
        }
    }
    None
}

/// Why the schedule that the ILP finds, said in words, is not the same module.
fn say(text: &str, counts: &mut Counts) -> Option<String> {
    let model = |text: &str| Model::from_program(language::parse("random.tile", text)?, None, None);
    let options = Options::default();
    let bytes = |model: Model| model.compile_module(&options).and_then(|m| m.0.to_bytes());
    let found = match model(text) {
        Ok(found) => found,
        Err(e) => return Some(e.to_string()),
    };
    let said = found.explain(&options, Stage::Schedule, None).unwrap_or_else(|e| e.to_string());
    let Some(at) = said.find("\nschedule ") else {
        *counts.entry("orders that cannot be said in words".into()).or_default() += 1;
        return None;
    };
    let block = &said[at..];
    let pasted = model(&format!("{text}{block}")).and_then(|m| m.with_schedule("ilp")).and_then(bytes);
    *counts.entry("orders said in words".into()).or_default() += 1;
    match (bytes(found), pasted) {
        (Ok(a), Ok(b)) if a == b => None,
        (Ok(_), Ok(_)) => Some(format!("its words make another module:{block}")),
        (_, Err(e)) | (Err(e), _) => Some(format!("its words: {e}{block}")),
    }
}

/// Calls [`check`] and returns a panic as a failure.
fn check_caught(seed: u64, counts: &mut Counts) -> Option<String> {
    let mut said = String::new();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(seed, counts, &mut said)));
    caught.unwrap_or_else(|_| Some(format!("a panic\n{said}")))
}

/// Checks one random program and a schedule for it, both of which `said` shows while it runs.
fn check(seed: u64, counts: &mut Counts, said: &mut String) -> Option<String> {
    let mut maker = Maker::new(seed);
    let text = maker.program();
    said.clone_from(&text);
    let file = match language::parse("random.tile", &text) {
        Ok(file) => file,
        Err(e) => return Some(format!("{e}\n{text}")),
    };
    let program = file.program(None).expect("one program");
    let Ok(meaning) = file.lower(program, &BTreeMap::new(), None) else {
        *counts.entry("programs that have no meaning".into()).or_default() += 1;
        return None;
    };
    let expected = match outputs(&with(&text, &[]), Some("s")) {
        Ok([one, _]) => one,
        Err(e) => return Some(format!("as it is written: {e}\n{text}")),
    };
    if let Some(why) = compare(&text, None, &expected, counts) {
        return Some(format!("the ILP's schedule: {why}\n{text}"));
    }
    if seed.is_multiple_of(SAID)
        && let Some(why) = say(&text, counts)
    {
        return Some(format!("the ILP's schedule: {why}\n{text}"));
    }
    let normal = || meaning.normal();
    let original = SourceProgram {
        written: file.written(&meaning).expect("it has been run"),
        normal: &normal,
        target: &tilewright::Target::avx2(),
    };
    let mut primitives: Vec<Primitive> = vec![];
    let mut states = vec![Transformed::new(original.written.clone())];
    if maker.chance(20) {
        primitives.push(Primitive::Normalize);
        if maker.chance(50) {
            primitives.push(Primitive::Coalesce);
        }
        primitives.extend([Primitive::IndexSetSplit, Primitive::ArrayExpand]);
    }
    for p in &primitives {
        match transform::apply(&original, &states[states.len() - 1], p) {
            Ok(next) => states.push(next),
            Err(e) => return Some(format!("{p}: {e}\n{text}")),
        }
    }
    let (mut fresh, wanted) = (0, primitives.len() + maker.pick(&[1, 2, 3, 4, 5, 6, 8]));
    for _ in 0..40 {
        if primitives.len() >= wanted {
            break;
        }
        let next = maker.primitive(&states[states.len() - 1], &mut fresh);
        // `store_at` is applied before a `compute_at` of the same tensor that stands before it.
        let stored = |p: &Primitive| match (&next, p) {
            (Primitive::StoreAt { tensor, .. }, Primitive::ComputeAt { tensor: other, .. }) => tensor == other,
            _ => false,
        };
        if primitives.iter().any(stored) {
            continue;
        }
        *said = with(&text, &[&primitives[..], std::slice::from_ref(&next)].concat());
        match transform::apply(&original, &states[states.len() - 1], &next) {
            Ok(state) => {
                states.push(state);
                primitives.push(next);
            }
            Err(Error::Schedule(refusal)) => match confirm_values(&refusal.to_string(), &states[states.len() - 1].scop)
            {
                Some(Err(why)) => return Some(format!("{why}\n{}\n{next}", with(&text, &primitives))),
                Some(Ok(())) => *counts.entry("refused for its values with true instances".into()).or_default() += 1,
                None => *counts.entry("refused for its structure".into()).or_default() += 1,
            },
            Err(Error::Unsupported(_)) => *counts.entry("refused as unsupported".into()).or_default() += 1,
            Err(e) => return Some(format!("{}\n{next}: {e}", with(&text, &primitives))),
        }
    }
    let placed = |list: &[Primitive]| -> Vec<Placed> {
        list.iter().map(|p| Placed { primitive: p.clone(), span: Span::default() }).collect()
    };
    let mut kept = primitives.len();
    *said = with(&text, &primitives);
    match transform::apply_all(&original, &placed(&primitives)) {
        Ok(_) => {}
        Err((at, Error::Schedule(refusal))) => {
            let message = refusal.to_string();
            let state = &states[at + 1];
            let all = || with(&text, &primitives[..=at]);
            let alone = [
                "several instances of",
                "has no waves",
                "only outermost loops may be parallel",
                "is private to loop",
                "across tiles of",
                "belongs to no thread",
            ];
            let is_alone = |message: &str| alone.iter().any(|words| message.contains(words));
            if is_alone(&message) {
                *counts.entry("refused without instances".into()).or_default() += 1;
            } else if let Err(why) = confirm(&message, &state.scop, &state.schedule) {
                return Some(format!("{why}\n{}", all()));
            } else {
                *counts.entry("refused with a true counterexample".into()).or_default() += 1;
            }
            kept = at;
            // The primitives before it alone may not form a whole schedule, and where the order was legal with it one of them may
            // not be without.
            match transform::apply_all(&original, &placed(&primitives[..kept])) {
                Err((_, Error::Schedule(refusal))) if is_alone(&refusal.reason) => return None,
                Err((at, Error::Schedule(refusal))) if is_alone(&message) => {
                    let why = confirm(&refusal.to_string(), &states[at + 1].scop, &states[at + 1].schedule).err()?;
                    return Some(format!("{why}\n{}", with(&text, &primitives[..=at])));
                }
                _ => {}
            }
        }
        Err((_, e)) => return Some(format!("{e}\n{}", with(&text, &primitives))),
    }
    *said = with(&text, &primitives[..kept]);
    *counts.entry("accepted".into()).or_default() += 1;
    for p in &primitives[..kept] {
        *counts.entry(p.to_string().split(' ').next().unwrap_or("").into()).or_default() += 1;
    }
    compare(said, Some("s"), &expected, counts).map(|why| format!("{why}\n{said}"))
}

#[test]
fn random_schedules_are_right_or_truly_refused() {
    let variable = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().expect("a number"));
    let budget = Duration::from_secs(variable("TILEWRIGHT_FUZZ_SECONDS").unwrap_or(0));
    let (first, only) =
        (variable("TILEWRIGHT_SEED").unwrap_or(1), variable("TILEWRIGHT_SEED").is_some() && budget.is_zero());
    let (next, start, results) = (AtomicU64::new(0), Instant::now(), Mutex::new((Counts::new(), vec![])));
    let work = || {
        let mut counts = Counts::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if if only { n > 0 } else { n >= PROGRAMS && start.elapsed() >= budget } {
                break;
            }
            if let Some(why) = check_caught(first + n, &mut counts) {
                results.lock().unwrap().1.push(format!("seed {}: {why}", first + n));
            }
        }
        for (what, n) in counts {
            *results.lock().unwrap().0.entry(what).or_default() += n;
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let (counts, failures) = results.into_inner().unwrap();
    let programs = next.into_inner() - 2;
    println!("{programs} programs: {counts:#?}");
    assert!(failures.is_empty(), "{} of {programs} programs failed:\n{}", failures.len(), failures.join("\n"));
    let unsaid = counts.get("orders that cannot be said in words").copied().unwrap_or(0);
    assert!(only || unsaid * 10 <= counts["orders said in words"], "{counts:#?}");
    assert!(only || counts["refused with a true counterexample"] > 20 && counts["accepted"] > 60, "{counts:#?}");
}

/// In a plain run.
const PROGRAMS: u64 = 80;

/// The words of each of so many programs are tried.
const SAID: u64 = 4;

#[test]
fn illegal_schedules_are_refused_with_true_counterexamples() {
    let mut wrong = vec![];
    for (name, primitives) in REFUSED {
        let (_, text) = refused::PROGRAMS.iter().find(|p| p.0 == *name).expect("a program");
        let file = language::parse(name, &format!("{text} schedule s for p {{ {primitives} }}"))
            .unwrap_or_else(|e| panic!("{name}: {primitives}: {e}"));
        let meaning = file.lower(file.program(None).unwrap(), &BTreeMap::new(), None).unwrap_or_else(|e| panic!("{e}"));
        let normal = || meaning.normal();
        let original = SourceProgram {
            written: file.written(&meaning).unwrap(),
            normal: &normal,
            target: &tilewright::Target::avx2(),
        };
        let said = &file.schedules[0].primitives;
        let (at, message) = match transform::apply_all(&original, said) {
            Ok(_) => {
                wrong.push(format!("{name}: {primitives}: accepted"));
                continue;
            }
            Err((at, e)) => (at, e.to_string()),
        };
        let mut state = Transformed::new(original.written.clone());
        for p in &said[..=at] {
            state = match transform::apply(&original, &state, &p.primitive) {
                Ok(next) => next,
                Err(e) => {
                    wrong.push(format!("{name}: {primitives}: {e}"));
                    break;
                }
            };
        }
        if let Err(why) = confirm(&message, &state.scop, &state.schedule) {
            wrong.push(format!("{name}: {primitives}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(REFUSED.len() >= 40);
}
