//! The constants of this processor that have a probe; others stay as the target's table has them.

use crate::codegen::Target;
use crate::codegen::machine::Machine;
use crate::codegen::probe::chain::{Operation, measure_latency};
use crate::codegen::probe::divider::{self, Operation as Divider};
use crate::codegen::probe::{measure_rates, stream, walk};
use crate::codegen::target::Isa;
use crate::runtime::Result;
use crate::runtime::pool::Pool;
use crate::runtime::threads;
use std::time::Instant;

/// Starts of a kernel in one measurement, of which the mean counts.
const STARTS: u32 = 200;

/// How many times less or more than in the table a measured constant may be: beyond that other programs disturbed it, or the
/// probe does not meet what it looks for, as the start of a thread where one thread does all of the work.
const PLAUSIBLE: f64 = 10.0;

/// Measures the constants of a target that runs here in about `seconds`; none becomes ten times less or more than it was.
///
/// # Errors
/// Those of the probes.
pub fn measure(target: &Target, seconds: f64) -> Result<Machine> {
    let part = seconds / 20.0;
    let table = target.machine;
    let near = |value: f64, expected: f64| rounded(value.clamp(expected / PLAUSIBLE, expected * PLAUSIBLE));
    let clock_ghz = near(stream::measure_clock(target, part)?, table.clock_ghz);
    let rate = measure_rates::<f64>(target, part)?.from_registers;
    let cycles = |ns: f64| ns * clock_ghz;
    // other targets than AVX-512 divide always
    let division = |operation: Divider, bytes: usize, expected: f64| -> Result<f64> {
        if target.isa != Isa::Avx512 && !matches!(operation, Divider::Division | Divider::Root) {
            return Ok(expected);
        }
        Ok(near(cycles(divider::measure(target, operation, bytes, part)?), expected))
    };
    let levels = stream::measure_bandwidth(target, part)?;
    let mut bandwidth = table.bandwidth;
    for (slot, level) in bandwidth.iter_mut().zip(&levels) {
        *slot = near(level.gb_per_second, *slot);
    }
    let whole = |value: f64| (value.round() as usize).max(1);
    // A row in each of many pages, in the last cache and beyond; what the line's transfer takes is counted apart.
    let row = |bytes: usize, level: usize| -> Result<f64> {
        let line = table.line_bytes as f64 / bandwidth[level];
        Ok(walk::measure_rows(target, bytes / (8 << 10), part)? - line)
    };
    let row_start_ns = near(row(table.cache_bytes[2] / 4, 2)?, table.row_start_ns);
    let far_row_start_ns = near(row(4 * table.cache_bytes[2], 3)?, table.far_row_start_ns).max(row_start_ns);
    let beyond = (4 * table.cache_bytes[2]).next_power_of_two();
    let inside = (table.cache_bytes[2] / 2 + 1).next_power_of_two() / 2;
    Ok(Machine {
        clock_ghz,
        fma_per_cycle: whole(rate / (2.0 * target.lanes(8) as f64 * clock_ghz)),
        fma_latency: whole(cycles(measure_latency(target, Operation::Fma, part)?)),
        add_latency: near(cycles(measure_latency(target, Operation::Add, part)?), table.add_latency),
        integer_latency: near(cycles(measure_latency(target, Operation::IntegerAdd, part)?), table.integer_latency),
        division_cycles: [
            division(Divider::Division, 4, table.division_cycles[0])?,
            division(Divider::Division, 8, table.division_cycles[1])?,
        ],
        inverse_cycles: [
            division(Divider::Inverse, 4, table.inverse_cycles[0])?,
            division(Divider::Inverse, 8, table.inverse_cycles[1])?,
        ],
        quotient_cycles: division(Divider::Quotient, 4, table.quotient_cycles)?,
        root_cycles: [
            division(Divider::Root, 4, table.root_cycles[0])?,
            division(Divider::InverseRoot, 4, table.root_cycles[1])?,
        ],
        loads_per_cycle: whole(bandwidth[0] / (target.vector_bytes as f64 * clock_ghz)),
        bandwidth,
        stream_bandwidth: [bandwidth[2], bandwidth[3]],
        row_start_ns,
        far_row_start_ns,
        late_line_ns: near(walk::measure_any_order(target, inside, part)?, table.late_line_ns),
        scattered_line_ns: near(walk::measure_any_order(target, beyond, part)?, table.scattered_line_ns),
        launch_ns: launch(part)?.map_or(table.launch_ns, |ns| near(ns, table.launch_ns)),
        ..table
    })
}

/// Nanoseconds to start a kernel on two threads and to wait for both; `None` where there is one core.
fn launch(seconds: f64) -> Result<Option<f64>> {
    if threads::cores() < 2 {
        return Ok(None);
    }
    let pool = Pool::new(2)?;
    let (mut least, start) = (f64::INFINITY, Instant::now());
    while least.is_infinite() || start.elapsed().as_secs_f64() < seconds {
        let round = Instant::now();
        for _ in 0..STARTS {
            pool.enter().run(2, &|_, _, _| {})?;
        }
        least = least.min(round.elapsed().as_secs_f64() * 1e9 / STARTS as f64);
    }
    Ok(Some(least))
}

/// A value with three digits: measurements have no more.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_plausible() {
        let Some(target) = Target::host() else { return };
        let machine = measure(&target, 0.2).unwrap();
        machine.check().unwrap();
        assert!((1..=4).contains(&machine.fma_per_cycle) && machine.bandwidth[0] > machine.bandwidth[3], "{machine:?}");
        // what has no probe is the table's
        assert_eq!(Machine { line_bytes: 64, ..machine }.cache_bytes, target.machine.cache_bytes);
        assert_eq!(rounded(1234.5), 1230.0);
    }
}
