//! The machine: every constant of time, throughput and capacity that the models of cost read, each with its unit and with
//! the measurement that set it, or the word "unmeasured".

use crate::runtime::{Error, ProcessorId, Result};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Defines [`Machine`] and its values for each processor. A row: name, type, value (one for all, or one for AVX-512, AVX2 and
/// NEON), unit, meaning, measurement.
macro_rules! machine {
    (@$place:ident $all:expr) => { $all };
    (@avx512 $avx512:expr, $avx2:expr, $neon:expr) => { $avx512 };
    (@avx2 $avx512:expr, $avx2:expr, $neon:expr) => { $avx2 };
    (@neon $avx512:expr, $avx2:expr, $neon:expr) => { $neon };
    ($($name:ident $type:ty = $($value:expr),+; $unit:literal, $meaning:literal, $measured:literal;)*) => {
        /// Costs of a processor, of one core where nothing else is said.
        #[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Machine {
            $(#[doc = concat!($meaning, "; ", $unit, ". ", $measured, ".")] pub $name: $type,)*
        }

        impl Machine {
            pub(super) const AVX512: Machine = Machine { $($name: machine!(@avx512 $($value),+)),* };
            pub(super) const AVX2: Machine = Machine { $($name: machine!(@avx2 $($value),+)),* };
            pub(super) const NEON: Machine = Machine { $($name: machine!(@neon $($value),+)),* };

            fn constants(&self) -> Vec<Constant> {
                vec![$(Constant { name: stringify!($name), unit: $unit, values: self.$name.values() }),*]
            }
        }
    };
}

/// A constant with its values: one, or one of each cache.
struct Constant {
    name: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

impl Constant {
    /// The least and the greatest plausible value, from those of all processors here.
    fn range(&self, known: &[&Constant]) -> (f64, f64) {
        let values = || known.iter().flat_map(|c| c.values.iter().copied());
        match self.unit {
            "index of `bandwidth`" => (0.0, 3.0),
            unit if unit.starts_with("share") => (0.0, 1.0),
            _ => (values().fold(f64::INFINITY, f64::min) / PLAUSIBLE, values().fold(0.0, f64::max) * PLAUSIBLE),
        }
    }
}

/// How many times less than the least and more than the greatest value of a constant here another one may be.
const PLAUSIBLE: f64 = 20.0;

trait Values {
    fn values(&self) -> Vec<f64>;
}

impl Values for f64 {
    fn values(&self) -> Vec<f64> {
        vec![*self]
    }
}

impl Values for i64 {
    fn values(&self) -> Vec<f64> {
        vec![*self as f64]
    }
}

impl Values for usize {
    fn values(&self) -> Vec<f64> {
        vec![*self as f64]
    }
}

impl<T: Values, const N: usize> Values for [T; N] {
    fn values(&self) -> Vec<f64> {
        self.iter().flat_map(T::values).collect()
    }
}

impl Machine {
    /// Refuses constants that no processor has; the message names the first one, its value and its range.
    pub(super) fn check(&self) -> Result<()> {
        let cores = Core::ALL.iter().map(|core| core.machine);
        let tables: Vec<Vec<Constant>> =
            [Machine::AVX512, Machine::AVX2, Machine::NEON].into_iter().chain(cores).map(|m| m.constants()).collect();
        for (i, constant) in self.constants().iter().enumerate() {
            let known: Vec<&Constant> = tables.iter().map(|t| &t[i]).collect();
            let (least, most) = constant.range(&known);
            if let Some(value) = constant.values.iter().find(|v| !(least..=most).contains(*v)) {
                let Constant { name, unit, .. } = constant;
                return Err(Error::Invalid(format!(
                    "`{name}` is {value} ({unit}); between {least} and {most} is plausible"
                )));
            }
        }
        if self.cache_bytes.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::Invalid("`cache_bytes`: each cache is larger than the one before it".into()));
        }
        Ok(())
    }

    /// The start of a kernel of which this time is predicted: a short one runs on one thread.
    pub fn start_ns(&self, predicted: f64) -> f64 {
        if predicted < self.serial_ns { self.serial_start_ns } else { self.launch_ns }
    }

    /// Bytes of a cache, 0 for L1, within which data counts as cached.
    pub fn usable_bytes(&self, level: usize) -> f64 {
        self.cache_bytes[level] as f64 * self.cache_fill
    }

    /// Returns true if so many instructions may stand one after the other in place of a loop.
    pub fn unrolls(&self, instructions: f64) -> bool {
        instructions <= self.unrolled_operations as f64
    }

    /// Cycles to start and finish a register block of so many vectors.
    pub fn edge_cycles(&self, vectors: f64) -> f64 {
        self.block_edge_cycles + self.vector_edge_cycles * vectors
    }
}

/// A processor core whose constants were measured.
#[derive(Debug)]
pub struct Core {
    /// Name for `--machine`, as compilers call it.
    pub name: &'static str,
    /// Bytes of a vector of the targets that the constants are for.
    pub vector_bytes: usize,
    /// Its constants.
    pub machine: Machine,
    vendor: &'static [u8; 12],
    family: u32,
    models: &'static [RangeInclusive<u32>],
    /// Other models that have tile registers are taken for this core: later ones, and those of virtual machines that hide the number.
    is_any_with_tiles: bool,
}

impl Core {
    /// All cores.
    pub const ALL: [Core; 3] = [Core::ZNVER4, Core::ZNVER5, Core::SAPPHIRE_RAPIDS];

    const ZNVER4: Core = Core {
        name: "znver4",
        vector_bytes: 64,
        machine: Machine::ZNVER4,
        vendor: b"AuthenticAMD",
        family: 0x19,
        // servers, one of which was measured; Zen 3 has lower numbers of the family
        models: &[0x10..=0x1f],
        is_any_with_tiles: false,
    };

    const ZNVER5: Core = Core {
        name: "znver5",
        vector_bytes: 64,
        machine: Machine::ZNVER5,
        vendor: b"AuthenticAMD",
        family: 0x1a,
        // servers, one of which was measured; some others of the family have vectors of half the width
        models: &[0..=0x1f],
        is_any_with_tiles: false,
    };

    const SAPPHIRE_RAPIDS: Core = Core {
        name: "sapphirerapids",
        vector_bytes: 64,
        machine: Machine::SAPPHIRE_RAPIDS,
        vendor: b"GenuineIntel",
        family: 6,
        // and Emerald Rapids, which was measured
        models: &[0x8f..=0x8f, 0xcf..=0xcf],
        is_any_with_tiles: true,
    };

    /// The core of this processor.
    pub fn host() -> Option<Core> {
        let id = ProcessorId::host()?;
        Core::ALL.into_iter().find(|core| core.is(id))
    }

    fn is(&self, id: ProcessorId) -> bool {
        (*self.vendor, self.family) == (id.vendor, id.family)
            && (self.models.iter().any(|models| models.contains(&id.model)) || self.is_any_with_tiles && id.has_tiles)
    }
}

impl Machine {
    /// AMD Zen 4, which takes two steps for each vector of 512 bits: caches from its data sheet, lanes of gathers measured by a loop of
    /// them, starts of rows by a moving average down columns, streams from the last cache by 124 loop programs (the probe: 80 GB/s) and from memory by the probe,
    /// what else has a probe by `tilewright calibrate` on an EPYC, the rest from the table. `bandwidth` is less than the streams', as LU by columns (ludcmp)
    /// took three times as long as predicted. First lines of rows from memory are in `stream_start_lines`.
    const ZNVER4: Machine = Machine {
        clock_ghz: 3.69,
        fma_per_cycle: 1,
        vector_per_cycle: 1.5,
        loads_per_cycle: 1,
        add_latency: 3.0,
        division_cycles: [6.0, 9.0],
        inverse_cycles: [6.0, 8.0],
        quotient_cycles: 4.0,
        root_cycles: [10.0, 10.0],
        band_lane_cycles: 0.6,
        line_lane_cycles: 1.4,
        cache_bytes: [32 << 10, 1 << 20, 32 << 20],
        cache_ways_l1: 8,
        cache_ways_l2: 8,
        crowded_line_ns: 3.4,
        bandwidth: [224.0, 100.0, 50.0, 15.0],
        stream_bandwidth: [100.0, 31.0],
        late_line_ns: 4.4,
        scattered_line_ns: 9.9,
        row_start_ns: 0.5,
        far_row_start_ns: 0.5,
        row_streams: 16.0,
        launch_ns: 170.0,
        wave_ns: 540.0,
        ..Machine::AVX512
    };

    /// AMD Zen 5 with vectors of 512 bits: caches from its data sheet, what has a probe by `tilewright calibrate` on an EPYC, the rest from the table.
    const ZNVER5: Machine = Machine {
        clock_ghz: 4.25,
        vector_per_cycle: 3.0,
        add_latency: 2.0,
        integer_latency: 2.0,
        division_cycles: [2.55, 4.05],
        inverse_cycles: [2.65, 3.85],
        quotient_cycles: 2.0,
        root_cycles: [4.5, 4.2],
        cache_bytes: [48 << 10, 1 << 20, 32 << 20],
        bandwidth: [545.0, 190.0, 125.0, 42.0],
        stream_bandwidth: [125.0, 42.0],
        late_line_ns: 1.9,
        scattered_line_ns: 4.5,
        row_start_ns: 0.2,
        far_row_start_ns: 1.6,
        row_streams: 16.0,
        launch_ns: 170.0,
        ..Machine::AVX512
    };

    /// Intel's Sapphire and Emerald Rapids, cores as the table's own: `vdpbf16ps` starts every second cycle, where two fused
    /// products start in each.
    const SAPPHIRE_RAPIDS: Machine = Machine { bf16_product_factor: 4.0, ..Machine::AVX512 };
}

#[rustfmt::skip]
machine! {
    // ---- execution
    fma_per_cycle usize = 2;
        "per cycle", "Vector FMA instructions started", "Probe of outer products; NEON unmeasured";
    vector_per_cycle f64 = 2.0;
        "per cycle", "Vector operations started, products among them", "On Zen 4 between 1 and 2 by data sheets, and fitted on the suites `loops` and `programs`; elsewhere unmeasured";
    scalar_per_cycle f64 = 2.7, 2.0, 2.0;
        "per cycle", "Operations on single elements started", "Measured by mixes of additions, products and comparisons on AVX-512, where vectors of 64 bytes have one port less; others unmeasured";
    fma_latency usize = 4;
        "cycles", "From the start of an FMA until its result can be used", "Probe of chains on AVX-512; others unmeasured";
    add_latency f64 = 2.9, 3.0, 2.0;
        "cycles", "From the start of an addition or comparison until the next one can use it", "Probe of chains on AVX-512; others unmeasured";
    bf16_product_factor f64 = 1.0;
        "fused products", "Time of an instruction that adds pairs of products of bf16 to the lanes of a vector", "Measured by a loop of such sums on Sapphire and Emerald Rapids, of which `calibrate` has no probe; others unmeasured";
    tile_row_cycles f64 = 1.0;
        "cycles", "A row of a product of tiles, 16 columns and 16 groups of terms", "Loop of four products of whole tiles on AVX-512; others have none";
    tile_load_cycles f64 = 8.0;
        "cycles", "The load of a tile from the first cache", "Unmeasured";
    tile_sum_cycles f64 = 25.0;
        "cycles", "A tile of sums from memory and back", "Loop of four loads and stores on AVX-512; others have none";
    far_sum_cycles f64 = 18.0;
        "cycles", "A row of a tile of sums from memory and back, beyond those of `tile_sum_cycles`, where rows lie in more than `store_pages` pages", "Measured by a product of bytes with sums in two parts on Sapphire Rapids; others have none";
    tile_shape_cycles f64 = 150.0;
        "cycles", "New shapes for tile registers", "Loop of ldtilecfg on AVX-512; others have none";
    scalar_add_latency f64 = 1.6, 3.0, 2.0;
        "cycles", "From the start of an addition of one element until the next one can use it", "Measured by chains of additions on AVX-512, whose clock is higher than under vector load; others unmeasured";
    integer_latency f64 = 1.0;
        "cycles", "From the start of an addition, a comparison or a bitwise operation of integers until the next one can use it", "Probe of chains on AVX-512; others unmeasured";
    word_latency f64 = 1.0;
        "cycles", "From the start of an addition, a comparison or a bitwise operation of one integer until the next one can use it", "Unmeasured";
    word_product_latency f64 = 3.0;
        "cycles", "From the start of a product of integers until the next operation can use it", "Unmeasured";
    division_cycles [f64; 2] = [8.0, 16.0], [4.0, 8.0], [2.0, 4.0];
        "cycles", "Quotients of a vector of f32 and of f64, by the divider", "Probe of quotients on AVX-512; others unmeasured";
    inverse_cycles [f64; 2] = [4.3, 5.0];
        "cycles", "Inverses of a vector of f32 and of f64, by Newton's iteration", "Probe of inverses on AVX-512; others divide";
    quotient_cycles f64 = 2.0;
        "cycles", "Quotients of a vector by known inverses", "Probe of quotients on AVX-512; others divide";
    lookup_cycles [f64; 2] = [10.0, 2.0], [4.5, 2.0], [4.5, 2.0];
        "cycles", "As many bytes as a vector has lanes of f32, by a table of 256: by shuffles of 16, and by permutations of registers", "Loop over 16 KiB on Zen 4; NEON unmeasured";
    root_cycles [f64; 2] = [12.0, 7.5];
        "cycles", "Square roots of a vector of f32, by the divider and by an inverse", "Probe of roots on AVX-512; others have the divider";
    load_latency usize = 5, 5, 3;
        "cycles", "From the start of a vector load until its result can be used", "Unmeasured; on AArch64 that of Cortex-A55 in llvm-mca's model";
    loads_per_cycle usize = 2;
        "per cycle", "Vector loads started", "Probe of streams on AVX-512; others unmeasured";
    narrow_fma_per_cycle usize = 2;
        "per cycle", "FMAs of vectors of at most half the width started", "From data sheets";
    narrow_loads_per_cycle usize = 2;
        "per cycle", "Loads of single elements, and of at most half a vector, started", "From data sheets";
    clock_ghz f64 = 3.2, 3.4, 2.6;
        "GHz", "Sustained clock under vector load", "Probe of streams; NEON unmeasured";
    port_overlap f64 = 0.06;
        "share", "Time of the less loaded ports that the most loaded one does not hide", "Unmeasured";
    loop_cycles f64 = 0.2;
        "cycles", "Counter and branch of one step of a loop", "Unmeasured";
    loop_exit_cycles f64 = 20.0;
        "cycles", "Start of an innermost loop and the branch at its end that was predicted otherwise", "Unmeasured";
    predicted_iterations i64 = 16;
        "iterations", "Largest number of iterations of an innermost loop whose end is predicted when it has as many as the last time", "Unmeasured; sums over windows of 3 and 5 pixels are predicted on Zen 3";
    short_loop_cycles f64 = 2.0;
        "cycles", "Start and end of an innermost loop whose end is predicted", "Unmeasured";
    bound_cycles f64 = 3.0, 1.0, 1.0;
        "cycles", "One term or comparison of the bounds of a loop, each time that it starts", "Measured by edit distances in skewed tiles on AVX-512; others unmeasured";
    chain_cycles f64 = 6.0;
        "cycles", "Latency of one point that depends on the point before", "Unmeasured";
    kept_iterations i64 = 2;
        "iterations", "For which a value that a loop loads or stores stays in a register", "The window of scalar replacement in code generation";
    partial_sums f64 = 8.0;
        "sums", "Partial sums of a reduction over lanes whose latencies overlap", "Unmeasured";
    farthest_iterations i64 = 8;
        "iterations", "Greatest distance of a dependence between iterations whose latency others do not hide", "Unmeasured";
    forward_cycles f64 = 5.0;
        "cycles", "From a store of an element until a load of it, where it is not kept in a register", "Unmeasured";
    blocked_load_ns f64 = 7.0;
        "ns", "Until a load is done that meets a store just before it, of which it needs more than was written whole", "Measured by rows of 3 to 10 elements under masks: 6.5 to 7.9 on Zen 4, 8.8 on a Xeon; others unmeasured";
    combine_cycles f64 = 3.0;
        "cycles", "One of the log2(lanes) steps that combine the lanes of a vector", "Unmeasured";
    run_ns f64 = 30.0;
        "ns", "Start of a run of an innermost loop", "Unmeasured";
    block_edge_cycles f64 = 20.0;
        "cycles", "Start and end of a register block", "Unmeasured";
    vector_edge_cycles f64 = 1.5;
        "cycles", "Start and end of one vector of accumulators of a register block", "Unmeasured";
    store_pages i64 = 16;
        "pages", "Pages that stores find at once", "Data sheets of Golden Cove; others unmeasured";
    // ---- accesses, beside loads of whole vectors
    store_factor f64 = 1.5;
        "loads", "Cost of a store", "Unmeasured";
    reversed_factor f64 = 2.0;
        "loads", "Cost of a vector whose first lane is the last in memory", "Unmeasured";
    invariant_cycles f64 = 0.2;
        "cycles", "Access that does not change along the vector", "Unmeasured";
    strided_lane_cycles f64 = 1.0;
        "cycles", "One lane of a strided load of a product", "Unmeasured";
    band_lane_cycles f64 = 1.2;
        "cycles", "One lane of a strided load outside of products", "Unmeasured";
    line_lane_cycles f64 = 2.4;
        "cycles", "Such a lane where each has a cache line of its own", "On Zen 4 fitted on `matrix_chain`, `quantize_rows` and `nussinov`, elsewhere unmeasured";
    lost_lane_cycles f64 = 1.5;
        "cycles", "One strided element of a statement beside the dominant one", "Unmeasured";
    strided_sum_cycles f64 = 3.0;
        "cycles", "Write of one lane of a vector of sums whose lanes are strided", "Measured by f64 products of 1008×2208×1200 and 2000×2300×2600";
    // ---- caches and memory
    cache_bytes [usize; 3] = [48 << 10, 2 << 20, 32 << 20], [32 << 10, 1 << 20, 16 << 20], [64 << 10, 1 << 20, 16 << 20];
        "bytes", "Data capacity of the caches, L1 first; the last may be shared", "From data sheets";
    cache_ways_l1 usize = 12, 8, 4;
        "ways", "Associativity of the L1 data cache", "From data sheets";
    cache_ways_l2 usize = 16, 8, 8;
        "ways", "Associativity of the second cache", "From data sheets";
    line_bytes usize = 64;
        "bytes", "One cache line", "From data sheets";
    bandwidth [f64; 4] = [400.0, 150.0, 30.0, 15.0], [200.0, 100.0, 30.0, 15.0], [80.0, 60.0, 30.0, 20.0];
        "GB/s", "Sustained loads from L1, L2, L3 and memory", "Probe of streams; NEON unmeasured";
    stream_bandwidth [f64; 2] = [30.0, 15.0], [30.0, 15.0], [30.0, 20.0];
        "GB/s", "Sustained loads from L3 and memory by loops over neighbouring lines", "Probe of streams; NEON unmeasured";
    cache_fill f64 = 0.7;
        "share", "Part of a cache within which data counts as cached", "Unmeasured";
    tile_fill f64 = 0.6;
        "share", "Part of the second cache that a tile of a band may fill", "Unmeasured";
    resident_share f64 = 0.75;
        "share", "Part of a cache from which a tensor that was touched recently is read, in the cost of graphs", "Unmeasured";
    second_exposed f64 = 0.1;
        "share", "Time of transfers from the second cache that arithmetic does not hide", "Measured with `memory_exposed` and `late_line_ns` by products of operands given at run time and five networks";
    tile_second_exposed f64 = 0.9;
        "share", "Time of transfers from the second cache that products of tiles do not hide", "Measured by products of bf16 with sums in parts of 256 to 1024 terms on Sapphire Rapids; others have none";
    stream_exposed f64 = 0.15;
        "share", "Time to stream vectors of a register block from the second cache that arithmetic does not hide", "Unmeasured";
    memory_exposed f64 = 0.6;
        "share", "Time of transfers from further away that arithmetic does not hide when they keep the memory busy as long as it takes", "Measured; see `second_exposed`";
    transfer_overlap f64 = 0.4;
        "share", "Part of the shorter of two times that the longer one does not hide: of arithmetic, and of transfers from beyond the second cache, in loop programs", "Measured by 481 schedules of 124 loop programs on Zen 4";
    late_line_ns f64 = 6.0;
        "ns", "Until a line arrives that was not prefetched, while others are on their way", "Measured; see `second_exposed`";
    scattered_line_ns f64 = 20.0;
        "ns", "Until a line arrives in a page of which no stream is followed: the queues are full of arithmetic that waits for it", "Measured by f64 products of 1008×2208×1200 and 2000×2300×2600";
    row_start_ns f64 = 2.0, 0.5, 2.0;
        "ns", "Until the first line arrives of a row of neighbouring lines, where more rows are read in turn than the prefetcher follows", "Measured by loop programs that walk blocks of 64 bytes down columns; the probe finds at most 0.2 on Zen 3";
    crowded_line_ns f64 = 1.0;
        "ns", "Until a line has come into a set of the first cache that more lines come into than it has ways", "On Zen 4 measured by columns of images whose rows are 4 KiB: 3.4; others unmeasured";
    far_row_start_ns f64 = 16.0, 4.0, 16.0;
        "ns", "As `row_start_ns`, of a row that comes from memory", "Measured by integral images of 2000×2000 and 3000×3000; the probe finds 3.1 on Zen 3";
    stream_lines f64 = 2.0;
        "lines", "Lines that start a stream of the hardware's prefetcher", "Measured; see `second_exposed`";
    stream_start_lines f64 = 32.0;
        "lines", "Lines of a row of neighbouring ones from memory before they come as fast as in streams", "Measured by alternating directions (adi) on Zen 4";
    row_streams f64 = 512.0, 16.0, 16.0;
        "rows", "Rows that are read in turn, a line of each at a time, before each starts anew", "Measured with AVX-512 by 1 to 4096 rows in turn, from the last cache and from memory; others unmeasured";
    page_streams i64 = 16;
        "pages", "Pages in which the hardware's prefetcher follows streams at a time", "Unmeasured";
    prefetched_share f64 = 0.375;
        "share", "Part of the second cache that the largest panel fills which is prefetched", "Unmeasured";
    // ---- threads
    crossing_bandwidth f64 = 15.0;
        "GB/s", "Loads and stores of lines that another core wrote", "Measured on a Xeon: loads 21 to 25, stores 9 to 16; others unmeasured";
    launch_ns f64 = 1000.0;
        "ns", "Start of one parallel kernel", "Unmeasured; the probe gives 350 where the other thread waits awake";
    wave_ns f64 = 1000.0;
        "ns", "From the end of a wave to the start of the next one, with the wait for the last thread", "Measured by widest paths of 200 nodes in 600 waves on Zen 4: 540; others unmeasured";
    serial_start_ns f64 = 20.0;
        "ns", "Start of one kernel that runs on one thread", "Measured on a Xeon by chains of 100 and 200 products of a row of 16 with 16×16: 28 with its product";
    serial_ns f64 = 20_000.0;
        "ns", "Smallest predicted time of a kernel that runs on several threads", "Unmeasured";
    busy_steps i64 = 8;
        "iterations", "Smallest number of parallel iterations that keeps the threads of a pool busy", "Unmeasured";
    parallel_steps i64 = 64;
        "iterations", "Smallest number of parallel iterations that balances usual numbers of threads", "Unmeasured";
    // ---- thresholds of register blocks and vector loops
    least_vector_points i64 = 8;
        "points", "Smallest extent of a vector loop of a band", "Unmeasured";
    least_reduction_steps i64 = 16;
        "steps", "Smallest number of steps of a reduction between two stores of its accumulators", "Unmeasured";
    pack_reuse i64 = 8;
        "uses", "Smallest number of uses of each element for which an operand given at run time may be packed", "Unmeasured";
    short_row_vectors i64 = 4;
        "vectors", "Smallest row that is computed alone; shorter rows are computed several at a time", "Unmeasured";
    stream_block_vectors i64 = 8;
        "vectors", "Largest block without accumulators", "Unmeasured";
    stream_elements i64 = 2048;
        "elements", "Largest vector loop that streams through memory", "Unmeasured";
    short_loop_steps i64 = 16;
        "iterations", "Largest innermost loop of a loop program that is unrolled as a whole", "Unmeasured";
    unrolled_operations i64 = 160;
        "instructions", "Largest unrolled reduction", "Unmeasured";
    // ---- kernels of graph operators, for extraction
    blocked_share f64 = 0.85;
        "share of peak", "Kernel with full register blocks", "Unmeasured";
    channel_blocks_share f64 = 0.75;
        "share of peak", "Convolution over blocks of channels: two vectors of filters share broadcasts only over channels-last", "Measured by ResNet-50, which takes an eighth longer than over channels-last";
    rows_share f64 = 0.55;
        "share of peak", "Vectors along image rows: operands are not packed, rows end early", "Unmeasured";
    pointwise_factor f64 = 1.2;
        "factor", "Rate of pointwise convolutions along image rows, beside other convolutions", "Unmeasured";
    strided_share f64 = 0.15;
        "share of peak", "Vectors along image rows that are read with a stride", "Unmeasured";
    depthwise_share f64 = 0.35;
        "share of peak", "Depthwise convolution, which loads as much as it multiplies", "Unmeasured";
    transposed_factor f64 = 0.5;
        "factor", "Rate of transposed convolutions, beside convolutions", "Unmeasured";
    transposed_rows_factor f64 = 0.65;
        "factor", "Rate of transposed convolutions along image rows, beside other ones: vectors at both borders have masks", "Measured by 16 to 8 channels, 4×4×4 taps, stride 2, over 16×16×16";
    widened_bytes_share f64 = 0.5;
        "share of peak", "Products of bytes that are widened one by one beside loads: two instructions more", "Unmeasured";
    widened_halves_share f64 = 0.8;
        "share of peak", "Products of halves that are widened one by one", "Unmeasured";
    product_rows i64 = 12;
        "rows", "Register block of a product, which share what widens a weight", "Unmeasured";
    transpose_ns f64 = 0.1, 0.14, 0.4;
        "ns", "Transposition of one element, beside reading and writing it", "Measured on a Xeon by 17 matrices of up to 3 MB; NEON unmeasured";
    scatter_ns f64 = 0.4;
        "ns", "Copy of one element whose neighbours change", "Unmeasured";
    opaque_ns f64 = 10.0;
        "ns", "One element of an opaque operator", "Unmeasured";
    weights_level usize = 2;
        "index of `bandwidth`", "Where weights come from, whatever their size: all others of the network were read since the last run", "Unmeasured";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_known_by_maker_family_and_model() {
        let known = |vendor: &[u8; 12], family, model, has_tiles| {
            let id = ProcessorId { vendor: *vendor, family, model, has_tiles };
            Core::ALL.into_iter().find(|core| core.is(id)).map(|core| core.name)
        };
        let core = |vendor, family, model| known(vendor, family, model, false);
        assert_eq!(core(b"AuthenticAMD", 0x1a, 0x02), Some("znver5"));
        assert_eq!(core(b"AuthenticAMD", 0x19, 0x11), Some("znver4"));
        assert_eq!(core(b"GenuineIntel", 6, 0xcf), Some("sapphirerapids"));
        for (vendor, family, model) in [
            (b"GenuineIntel", 0x1a, 0x02),
            (b"GenuineIntel", 6, 0x97),
            (b"AuthenticAMD", 0x19, 0x02),
            (b"AuthenticAMD", 0x1a, 0x44),
        ] {
            assert_eq!(core(vendor, family, model), None, "{family:x} {model:x}");
        }
        assert_eq!(known(b"GenuineIntel", 6, 0xa7, true), Some("sapphirerapids"));
        assert_eq!(known(b"AuthenticAMD", 0x1a, 0x44, true), None);
    }
}
