//! Ports that one instruction keeps busy.

use crate::codegen::Target;
use crate::codegen::instruction::TILE_ROWS;
use crate::codegen::vcode::lanes::Lanes;
use crate::codegen::vcode::{GprOp, Inst, VBinary, VType, VUnary};

/// Operations on general-purpose registers that start in a cycle. Unmeasured.
const WORDS_PER_CYCLE: f64 = 4.0;

/// Share of the time of a quotient of a whole vector that one of a few lanes takes, at least. Unmeasured.
const LEAST_DIVISION: f64 = 0.4;

/// Cycles of the ports in a body.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ports {
    /// Of all that compute.
    arithmetic: f64,
    /// Of those among them that multiply.
    products: f64,
    /// Of the one that permutes.
    permutations: f64,
    /// Of the one that divides.
    divisions: f64,
    loads: f64,
    stores: f64,
    /// Of those among them that gather and scatter lanes one by one: instructions of many steps, of which one runs at a time.
    lanes: f64,
    /// Operations on general-purpose registers.
    words: f64,
    /// Cycles until a sum over lanes is there.
    combined: f64,
}

/// The machine's rates for vectors of a type.
struct Rates {
    /// Cycles of an operation.
    one: f64,
    /// Cycles of a product.
    product: f64,
    /// Half a vector or less.
    narrow: bool,
    /// The part of a whole vector.
    share: f64,
    /// Elements of eight bytes.
    double: usize,
}

impl Rates {
    fn of(target: &Target, ty: VType) -> Rates {
        let machine = &target.machine;
        let narrow = 2 * ty.bytes() <= target.vector_bytes;
        let [whole, half] = [machine.fma_per_cycle, machine.narrow_fma_per_cycle].map(|n| n as f64);
        let [one, product] = match (ty.lanes, narrow) {
            (1, _) => [machine.scalar_per_cycle, machine.scalar_per_cycle.min(half)],
            (_, true) => [machine.vector_per_cycle * half / whole, half],
            (_, false) => [machine.vector_per_cycle, whole],
        };
        let share = ty.bytes() as f64 / target.vector_bytes as f64;
        Rates { one: 1.0 / one, product: 1.0 / product, narrow, share, double: usize::from(ty.lane.bytes() == 8) }
    }
}

impl Ports {
    /// Cycles of one run of a body. Where a loop was before in it, what is summed over lanes waits for its end.
    pub(super) fn cycles(&self, target: &Target, innermost: bool) -> f64 {
        let words = self.words / WORDS_PER_CYCLE;
        let ports = [self.arithmetic, self.divisions, self.loads, self.stores, words];
        let parts = [self.products, self.permutations, self.lanes];
        let most = ports.iter().chain(&parts).fold(0.0f64, |a, &b| a.max(b));
        let others = (ports.iter().sum::<f64>() - most).max(0.0);
        most + target.machine.port_overlap * others + if innermost { 0.0 } else { self.combined }
    }

    /// Adds the loads of so many vectors, or of halves and less.
    pub(super) fn load(&mut self, target: &Target, vectors: f64, narrow: bool) {
        let machine = &target.machine;
        self.loads += vectors / if narrow { machine.narrow_loads_per_cycle } else { machine.loads_per_cycle } as f64;
    }

    /// Adds such stores.
    pub(super) fn store(&mut self, target: &Target, vectors: f64, narrow: bool) {
        let machine = &target.machine;
        let rate = if narrow { machine.narrow_loads_per_cycle } else { machine.loads_per_cycle } as f64;
        self.stores += vectors * machine.store_factor / rate;
    }

    /// Adds an instruction that is not control flow.
    pub(super) fn add(&mut self, inst: &Inst, target: &Target) {
        match (inst.lanes(), inst.ty()) {
            (Some(lanes), _) => self.access(inst, &lanes, target),
            (None, Some(ty)) => self.vector(inst, ty, target),
            (None, None) => self.scalar(inst, target),
        }
    }

    fn access(&mut self, inst: &Inst, lanes: &Lanes, target: &Target) {
        let machine = &target.machine;
        let bytes = lanes.mem.bytes();
        let writes = inst.writes_memory();
        let mut alone = |cycles: f64| {
            let moves = lanes.count as f64 * cycles;
            let cost = if writes { moves * machine.store_factor } else { moves };
            self.lanes += cost / machine.loads_per_cycle as f64;
            (moves, false)
        };
        let narrow = 2 * lanes.ty.bytes() <= target.vector_bytes;
        let (moves, narrow) = match inst {
            Inst::VStoreInterleaved { ty, .. } => {
                let members = lanes.count as i64 / i64::from(ty.lanes);
                let (joined, stores) = target.interleaved_moves(members, bytes, ty.lanes.into());
                self.arithmetic += joined * Rates::of(target, *ty).one;
                self.permutations += members as f64 * stores;
                (stores, narrow)
            }
            Inst::VGather { .. } | Inst::VScatter { .. } if lanes.stride == -(bytes as i64) => {
                (machine.reversed_factor, narrow)
            }
            Inst::VGather { .. } | Inst::VScatter { .. } => {
                match target.close_moves(lanes.stride / bytes as i64, bytes, lanes.count, writes) {
                    Some(moves) => (moves as f64, narrow),
                    None if lanes.stride.unsigned_abs() < machine.line_bytes as u64 => alone(machine.band_lane_cycles),
                    None => alone(machine.line_lane_cycles),
                }
            }
            Inst::VGatherIndex { .. } => alone(machine.line_lane_cycles),
            _ => (1.0, narrow),
        };
        match writes {
            true => self.store(target, moves, narrow),
            false => self.load(target, moves, narrow),
        }
    }

    fn scalar(&mut self, inst: &Inst, target: &Target) {
        let machine = &target.machine;
        match inst {
            Inst::LoadInt { .. } | Inst::Argument { .. } => self.load(target, 1.0, true),
            Inst::StoreInt { .. } => self.store(target, 1.0, true),
            Inst::Expect { .. } => {}
            Inst::TileTensor { .. } => self.products += TILE_ROWS as f64 * machine.tile_row_cycles,
            Inst::TileLoad { .. } => self.loads += machine.tile_load_cycles,
            Inst::TileStore { .. } => self.stores += machine.tile_sum_cycles / 2.0,
            Inst::TileShapes { .. } => self.combined += machine.tile_shape_cycles,
            // compare and choose; a product, shifts and a correction
            Inst::Int { op: GprOp::Min | GprOp::Max, .. } | Inst::Choose { .. } => self.words += 2.0,
            Inst::Int { op: GprOp::DivFloor, .. } => self.words += 5.0,
            _ => self.words += 1.0,
        }
    }

    fn vector(&mut self, inst: &Inst, ty: VType, target: &Target) {
        let machine = &target.machine;
        let Rates { one, product, narrow, share, double } = Rates::of(target, ty);
        let mut multiply = |cycles: f64| {
            self.products += cycles * product;
            cycles * one
        };
        self.arithmetic += match inst {
            Inst::VCopy { .. } => 0.0,
            Inst::VConst { .. } | Inst::VIota { .. } => {
                self.load(target, 1.0, true);
                0.0
            }
            Inst::VUnary { op: VUnary::Sqrt, .. } | Inst::VBinary { op: VBinary::Div, .. } => {
                self.divisions += share.max(LEAST_DIVISION) * machine.division_cycles[double];
                one
            }
            Inst::VUnary { op: VUnary::Inverse | VUnary::InverseApproximate, .. } => machine.inverse_cycles[double],
            Inst::VUnary { op: VUnary::Root | VUnary::RootApproximate | VUnary::InverseRootApproximate, .. } => {
                machine.root_cycles[1]
            }
            Inst::VQuotient { .. } => machine.quotient_cycles,
            Inst::VFma { .. } if !ty.lane.is_float() => multiply(1.0) + one,
            Inst::VFma { .. } | Inst::VFmaSum { .. } => multiply(1.0),
            Inst::VTensor { row, .. } => multiply(target.factor_of(*row)),
            Inst::VFmaMemory { .. } | Inst::VTensorMemory { .. } => {
                let cycles = multiply(1.0);
                self.load(target, 1.0, narrow);
                cycles
            }
            Inst::VBinaryMemory { op, .. } => {
                let cycles = if *op == VBinary::Mul { multiply(1.0) } else { one };
                self.load(target, 1.0, narrow);
                if *op == VBinary::Div {
                    self.divisions += share.max(LEAST_DIVISION) * machine.division_cycles[double];
                }
                cycles
            }
            Inst::VBinary { op: VBinary::Mul, .. } => multiply(1.0) + (ty.lane.product_operations() - 1.0) * one,
            Inst::VBinary { op: VBinary::MulHigh | VBinary::MulPairs | VBinary::Scale, .. } => multiply(1.0),
            Inst::VZip { .. } => {
                self.permutations += share.max(0.5);
                one
            }
            Inst::VChoose { .. } => 2.0 * one,
            Inst::VLookup { .. } => 3.0 * one,
            Inst::VReduce { .. } => {
                // a permutation and an operation on half as many lanes, again and again
                let steps = f64::from(ty.lanes).log2();
                self.permutations += 0.5 * steps;
                self.combined = self.combined.max(machine.fma_latency as f64 + machine.combine_cycles * steps);
                2.0 * steps / machine.narrow_fma_per_cycle as f64
            }
            Inst::VReduceFour { .. } => {
                // two permutations and an operation make one register of two, or halves of it of one; then lanes are put in order
                let steps = f64::from(ty.lanes).log2();
                self.permutations += 0.5 * (2.0 * steps + 1.0);
                self.combined = self.combined.max(machine.fma_latency as f64 + machine.combine_cycles * steps);
                (3.0 * steps + 2.0) * one
            }
            _ => one,
        };
    }
}
