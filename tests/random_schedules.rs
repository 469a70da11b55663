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
use tilewright::{Error, Model, Options, Refusal, Tensor};

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
    let checked = Random { text: &text, original: &original, states: vec![], primitives: vec![] }
        .grow(&mut maker, counts, said)
        .and_then(|random| random.whole(counts, said));
    match checked {
        Ok(Some(accepted)) => compare(&accepted, Some("s"), &expected, counts).map(|why| format!("{why}\n{accepted}")),
        Ok(None) => None,
        Err(why) => Some(why),
    }
}

/// A random schedule of a program, with the states before and after each of its primitives.
struct Random<'a> {
    text: &'a str,
    original: &'a SourceProgram<'a>,
    states: Vec<Transformed>,
    primitives: Vec<Primitive>,
}

impl Random<'_> {
    /// The text of the program with the first primitives.
    fn with(&self, count: usize) -> String {
        with(self.text, &self.primitives[..count])
    }

    /// Draws primitives and keeps those that are not refused; an error is what is wrong with a refusal.
    fn grow(mut self, maker: &mut Maker, counts: &mut Counts, said: &mut String) -> Result<Self, String> {
        self.states.push(Transformed::new(self.original.written.clone()));
        if maker.chance(20) {
            self.primitives.push(Primitive::Normalize);
            for primitive in [Primitive::DomainSplit, Primitive::Coalesce] {
                if maker.chance(50) {
                    self.primitives.push(primitive);
                }
            }
            self.primitives.extend([Primitive::IndexSetSplit, Primitive::ArrayExpand]);
        }
        for p in &self.primitives {
            let next = transform::apply(self.original, &self.states[self.states.len() - 1], p);
            self.states.push(next.map_err(|e| format!("{p}: {e}\n{}", self.text))?);
        }
        let (mut fresh, wanted) = (0, self.primitives.len() + maker.pick(&[1, 2, 3, 4, 5, 6, 8]));
        for _ in 0..40 {
            let count = self.primitives.len();
            if count >= wanted {
                break;
            }
            let state = &self.states[self.states.len() - 1];
            let next = maker.primitive(state, &mut fresh);
            // `store_at` is applied before a `compute_at` of the same tensor that stands before it.
            let stored = |p: &Primitive| match (&next, p) {
                (Primitive::StoreAt { tensor, .. }, Primitive::ComputeAt { tensor: other, .. }) => tensor == other,
                _ => false,
            };
            if self.primitives.iter().any(stored) {
                continue;
            }
            *said = with(self.text, &[&self.primitives[..], std::slice::from_ref(&next)].concat());
            match transform::apply(self.original, state, &next) {
                Ok(state) => {
                    self.states.push(state);
                    self.primitives.push(next);
                }
                Err(Error::Schedule(refusal)) => {
                    let what = match confirm_values(&refusal.to_string(), &state.scop) {
                        Some(Err(why)) => return Err(format!("{why}\n{}\n{next}", self.with(count))),
                        Some(Ok(())) => "refused for its values with true instances",
                        None => "refused for its structure",
                    };
                    *counts.entry(what.into()).or_default() += 1;
                }
                Err(Error::Unsupported(_)) => *counts.entry("refused as unsupported".into()).or_default() += 1,
                Err(e) => return Err(format!("{}\n{next}: {e}", self.with(count))),
            }
        }
        Ok(self)
    }

    /// The program with the primitives that are accepted together; nothing where those before a refused one are no schedule, an
    /// error where the refusal is wrong.
    fn whole(&self, counts: &mut Counts, said: &mut String) -> Result<Option<String>, String> {
        let placed = |count: usize| -> Vec<Placed> {
            let list = self.primitives[..count].iter();
            list.map(|p| Placed { primitive: p.clone(), span: Span::default() }).collect()
        };
        let confirmed = |refusal: &Refusal, at: usize| {
            let state = &self.states[at + 1];
            confirm(&refusal.to_string(), &state.scop, &state.schedule)
                .map_err(|why| format!("{why}\n{}", self.with(at + 1)))
        };
        let mut kept = self.primitives.len();
        *said = self.with(kept);
        match transform::apply_all(self.original, &placed(kept)) {
            Ok(_) => {}
            Err((at, Error::Schedule(refusal))) => {
                let alone = is_alone(&refusal.to_string());
                if alone {
                    *counts.entry("refused without instances".into()).or_default() += 1;
                } else {
                    confirmed(&refusal, at)?;
                    *counts.entry("refused with a true counterexample".into()).or_default() += 1;
                }
                kept = at;
                // The primitives before it alone may not form a whole schedule, and where the order was legal with it one of them may
                // not be without.
                match transform::apply_all(self.original, &placed(kept)) {
                    Err((_, Error::Schedule(refusal))) if is_alone(&refusal.reason) => return Ok(None),
                    Err((at, Error::Schedule(refusal))) if alone => return confirmed(&refusal, at).map(|()| None),
                    _ => {}
                }
            }
            Err((_, e)) => return Err(format!("{e}\n{}", self.with(kept))),
        }
        *said = self.with(kept);
        *counts.entry("accepted".into()).or_default() += 1;
        for p in &self.primitives[..kept] {
            *counts.entry(p.to_string().split(' ').next().unwrap_or("").into()).or_default() += 1;
        }
        Ok(Some(said.clone()))
    }
}

/// Returns true for a refusal that is not about two instances.
fn is_alone(message: &str) -> bool {
    let alone = [
        "several instances of",
        "has no waves",
        "only outermost loops may be parallel",
        "is private to loop",
        "across tiles of",
        "belongs to no thread",
    ];
    alone.iter().any(|words| message.contains(words))
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
