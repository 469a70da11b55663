//! Times of the parts of compiling a kernel.

use std::time::Instant;

/// A part of the compilation of one kernel that is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lap {
    Scop,
    Dependences,
    Schedule,
    Tile,
    Legality,
    Loops,
    Price,
    Code,
}

/// Lap, the name that reports have for it; in the order of [`Lap`].
const LAPS: [(Lap, &str); 8] = [
    (Lap::Scop, "scop"),
    (Lap::Dependences, "dependences"),
    (Lap::Schedule, "schedule"),
    (Lap::Tile, "tile"),
    (Lap::Legality, "legality"),
    (Lap::Loops, "loops"),
    (Lap::Price, "price"),
    (Lap::Code, "code"),
];

/// Milliseconds of each [`Lap`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Times([f64; LAPS.len()]);

impl Times {
    /// Runs `work` and adds its time to a lap.
    pub fn time<T>(&mut self, lap: Lap, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.0[lap as usize] += start.elapsed().as_secs_f64() * 1e3;
        result
    }

    /// The times of several kernels together.
    pub fn sum(times: impl Iterator<Item = Times>) -> Times {
        times.fold(Times::default(), |a, b| Times(std::array::from_fn(|i| a.0[i] + b.0[i])))
    }

    /// The name of each lap and its milliseconds.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        LAPS.iter().map(|&(lap, name)| (name, self.0[lap as usize]))
    }
}
