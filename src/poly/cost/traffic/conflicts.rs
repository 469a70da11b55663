//! Conflicts in the sets of a cache: whether regions stay until they are used again.
//!
//! A cache of several ways has room for as many lines of each set. Rows whose distance has a large power of two as a factor, as columns of an image of
//! 1024 pixels, lie in few sets: of 1024 lines at a distance of 4096 bytes, a second cache of 1 MiB in 8 ways holds 256.

use super::{Model, Region, Rows};
use crate::expr::interval::gcd;

impl Model<'_> {
    /// Returns true if a cache holds some regions, which have so many bytes: the lines of one may lie in few of its sets.
    pub(super) fn fits(&self, regions: &[Region], bytes: f64, level: usize) -> bool {
        let usable = self.target.machine.usable_bytes(level);
        // what leaves the first cache too early comes from the second
        let beyond = |r: &Region| self.lines(r) * (1.0 / self.share_of_sets(r, level) - 1.0);
        bytes <= usable && (level == 0 || regions.iter().all(|r| bytes + beyond(r) <= usable))
    }

    /// The share of the sets of a cache in which the lines of a region lie: rows whose distance has a large power of two as a factor meet in some of
    /// them. Last caches find sets by hashes, and have no such regions.
    fn share_of_sets(&self, region: &Region, level: usize) -> f64 {
        let machine = &self.target.machine;
        let Some(&ways) = [machine.cache_ways_l1, machine.cache_ways_l2].get(level) else { return 1.0 };
        let (way, line) = (machine.cache_bytes[level] / ways, machine.line_bytes as f64);
        // elements from data lie anywhere
        if region.dimensions.iter().any(|range| !range.data.is_empty()) {
            return 1.0;
        }
        let Rows { run, across } = self.rows_of(region);
        let places = |&(count, distance): &(f64, f64)| count.min(way as f64 / gcd(distance as i64, way as i64) as f64);
        let (rows, places): (f64, f64) = (across.iter().map(|a| a.0).product(), across.iter().map(places).product());
        if rows <= places { 1.0 } else { (places * (run / line).ceil() * line / way as f64).min(1.0) }
    }

    /// The time of so many lines of a region to come into the first cache, in lines that come into one set: those of few sets replace each other before
    /// they have come; more so lines that are written, which must leave first.
    pub(super) fn crowded(&self, region: &Region, lines: f64) -> f64 {
        let machine = &self.target.machine;
        let all = (machine.cache_bytes[0] / machine.cache_ways_l1 / machine.line_bytes) as f64;
        let sets = (self.share_of_sets(region, 0) * all).max(1.0);
        if sets >= all || lines <= sets * machine.cache_ways_l1 as f64 {
            return 0.0;
        }
        let written = if region.written { WRITTEN } else { 1.0 };
        written * lines / sets.powf(SETS)
    }
}

/// Time of a line that is written, in those that are read, where lines of few sets come into a cache. Measured on Zen 4 by columns of images whose rows are 1 to 8 KiB.
const WRITTEN: f64 = 4.0;

/// Power of the number of sets by which lines come faster. Measured as [`WRITTEN`], for 1, 2 and 4 sets.
const SETS: f64 = 0.75;
