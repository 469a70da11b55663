//! Hints to the caches: prefetches of panels, and tiles that are read once.
//!
//! While one panel of an operand is reused, the next one is brought into the second
//! cache, a little with each iteration, so that the memory works all the time and not only when a new panel begins. In the same way, of two
//! operands in tiles the one that the loop around moves passes the first cache, which keeps the other one.
//!
//! In: the tree of a phase. Out: the same with a [`Inst::Prefetch`] in those innermost loops that read a *panel*: a dense
//! piece of an argument that is read anew in each iteration of a loop (which does not move it) and given up for the next
//! piece by a loop further out, as a matrix product reads its packed operand. Where the tree does not show this nothing is
//! added. Prefetches change no result: the addresses may lie beyond the end of the argument.

use crate::codegen::Target;
use crate::codegen::instruction::TILE_ROW_BYTES;
use crate::codegen::select::tree::{Loop, Node, Pointer, Root, Tree};
use crate::codegen::vcode::{Addr, Gpr, Inst};
use crate::expr::interval::ceil_div;
use crate::expr::{Affine, Var};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};

/// Smaller panels are not worth it.
const LEAST_BYTES: i64 = 4096;

/// Adds the prefetches of a phase.
pub fn prefetch_panels(mut tree: Tree, target: &Target) -> Tree {
    let mut written = FxHashSet::default();
    find_written(&tree.nodes, &tree.pointers, &mut written);
    let mut search = Search {
        pointers: &tree.pointers,
        written,
        target,
        levels: vec![],
        aliases: vec![],
        loops: 0,
        found: vec![],
        passing: vec![],
    };
    search.body(&tree.nodes);
    for (number, pointers) in search.passing {
        visit_loop(&mut tree.nodes, number, &mut |l| pass_first_cache(l, &pointers), &mut 0);
    }
    // One loop for each operand: that with most iterations on a panel. Edges of the iteration space leave it to this one. Loops that read pieces of
    // a panel each fetch the piece behind their own.
    let mut best: BTreeMap<(Root, Option<i64>), Panel> = BTreeMap::new();
    for panel in search.found {
        let longest = best.entry((panel.next.root, panel.piece)).or_insert_with(|| panel.clone());
        if panel.iterations > longest.iterations {
            *longest = panel;
        }
    }
    let pieces = |root: Root| best.keys().filter(|k| k.0 == root && k.1.is_some()).count();
    let alone: Vec<_> = best.keys().filter(|k| k.1.is_some() && pieces(k.0) == 1).copied().collect();
    best.retain(|k, _| !alone.contains(k));
    for panel in best.into_values() {
        let base = Gpr(tree.pointers.len() as u32);
        tree.pointers.push(panel.next);
        let lines: Vec<Node> = (0..panel.lines)
            .map(|i| Addr { base, index: None, disp: (i * target.machine.line_bytes as i64) as i32 })
            .map(|addr| Node::Inst(Inst::Prefetch { addr }))
            .collect();
        visit_loop(&mut tree.nodes, panel.at, &mut |l| drop(l.body.splice(0..0, lines.iter().cloned())), &mut 0);
    }
    tree
}

fn find_written(nodes: &[Node], pointers: &[Pointer], written: &mut FxHashSet<Root>) {
    for node in nodes {
        match node {
            Node::Inst(inst) if inst.writes_memory() => {
                written.extend(inst.address().map(|addr| pointers[addr.base.0 as usize].root));
            }
            Node::Loop(Loop { body, .. }) | Node::If { body, .. } => find_written(body, pointers, written),
            _ => {}
        }
    }
}

/// Marks the tiles that a loop loads through some pointers.
fn pass_first_cache(l: &mut Loop, pointers: &[u32]) {
    for node in &mut l.body {
        if let Node::Inst(Inst::TileLoad { addr, streamed, .. }) = node {
            *streamed = pointers.contains(&addr.base.0);
        }
    }
}

/// Edits the loop with number `number`, counted in preorder.
fn visit_loop(nodes: &mut [Node], number: usize, edit: &mut dyn FnMut(&mut Loop), count: &mut usize) {
    for node in nodes {
        match node {
            Node::Loop(l) => {
                *count += 1;
                if *count - 1 == number {
                    return edit(l);
                }
                visit_loop(&mut l.body, number, edit, count);
            }
            Node::If { body, .. } => visit_loop(body, number, edit, count),
            _ => {}
        }
    }
}

/// One digit of the position in the loops around a place: it counts 0, 1, … `extent`, and is `(value - first) / step`.
#[derive(Clone)]
struct Level {
    value: Affine,
    /// The variable of `value` that no level further out has.
    lead: Var,
    first: i64,
    step: i64,
    extent: i64,
}

/// A panel that a loop reads.
#[derive(Clone)]
struct Panel {
    /// Number of the loop in preorder.
    at: usize,
    /// Iterations of the loop for one panel.
    iterations: i64,
    /// Where the piece of the panel begins that the loop reads, when it does not read all of it.
    piece: Option<i64>,
    /// Address to prefetch in one iteration.
    next: Pointer,
    lines: i64,
}

struct Search<'a> {
    pointers: &'a [Pointer],
    written: FxHashSet<Root>,
    target: &'a Target,
    levels: Vec<Level>,
    /// Variables that are only another name of an affine form.
    aliases: Vec<(Var, Affine)>,
    loops: usize,
    found: Vec<Panel>,
    /// Innermost loops, and the pointers through which they read tiles that the loop around moves.
    passing: Vec<(usize, Vec<u32>)>,
}

impl Search<'_> {
    fn body(&mut self, nodes: &[Node]) {
        let (levels, aliases) = (self.levels.clone(), self.aliases.len());
        for node in nodes {
            match node {
                Node::Loop(l) => self.enter(l),
                Node::If { body, .. } => self.body(body),
                Node::Let { var, value, divisor: 1 } => {
                    let value = self.resolve(value);
                    self.aliases.push((*var, value));
                }
                Node::Let { var, value, divisor } => self.divide(*var, value, *divisor),
                _ => {}
            }
        }
        self.levels = levels;
        self.aliases.truncate(aliases);
    }

    fn resolve(&self, a: &Affine) -> Affine {
        a.substitute(|v| self.aliases.iter().rfind(|x| x.0 == v).map_or_else(|| Affine::var(v), |x| x.1.clone()))
    }

    /// The innermost level `value` becomes two: its quotient `var`, and the remainder.
    fn divide(&mut self, var: Var, value: &Affine, divisor: i64) {
        let value = self.resolve(value);
        let Some(index) = self.levels.iter().position(|l| l.value == value && l.first == 0 && l.step == 1) else {
            return;
        };
        let level = self.levels[index].clone();
        if level.extent % divisor != 0 {
            return;
        }
        let quotient = Level { value: Affine::var(var), lead: var, extent: level.extent / divisor, ..level.clone() };
        let remainder = Level { value: value.plus(var, -divisor), extent: divisor, ..level };
        self.levels.splice(index..=index, [quotient, remainder]);
    }

    fn enter(&mut self, l: &Loop) {
        let number = self.loops;
        self.loops += 1;
        let constant = |bounds: &[crate::expr::Bound], up: bool| -> Option<i64> {
            let [b] = bounds else { return None };
            b.affine.is_constant().then(|| match up {
                true => ceil_div(b.affine.constant, b.divisor),
                false => b.affine.constant.div_euclid(b.divisor),
            })
        };
        let depth = self.levels.len();
        // Loops with varying bounds are not digits: reads inside of them are not prefetched.
        if let (Some(first), Some(end)) = (constant(&l.lower, true), constant(&l.upper, false)) {
            let extent = ceil_div(end - first, l.step);
            self.levels.push(Level { value: Affine::var(l.var), lead: l.var, first, step: l.step, extent });
        }
        if l.body.iter().all(|n| matches!(n, Node::Inst(_) | Node::Splat { .. })) {
            self.found.extend(self.panels(l, number));
            self.passing.extend(self.moving_tiles(l, depth).map(|pointers| (number, pointers)));
        } else {
            self.body(&l.body);
        }
        self.levels.truncate(depth);
    }

    /// The panels that the innermost loop `l` reads.
    fn panels(&self, l: &Loop, number: usize) -> Vec<Panel> {
        // Bytes that one iteration reads through each pointer.
        let mut read: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        for node in &l.body {
            if let Node::Inst(inst @ Inst::VLoad { ty, mem, part: None, .. }) = node
                && let Some(addr) = inst.address().filter(|a| a.index.is_none())
            {
                let (first, bytes) = (i64::from(addr.disp), (ty.lanes as usize * mem.bytes()) as i64);
                let span = read.entry(addr.base.0).or_insert((first, first + bytes));
                *span = (span.0.min(first), span.1.max(first + bytes));
            }
        }
        read.extend(self.read_in_tiles(l));
        let panel = |(&pointer, &(first, end)): (&u32, &(i64, i64))| {
            let pointer = &self.pointers[pointer as usize];
            let argument = matches!(pointer.root, Root::Argument(_)) && !self.written.contains(&pointer.root);
            if argument { self.panel(pointer, first, end - first, number) } else { None }
        };
        read.iter().filter_map(panel).collect()
    }

    /// The pointers through which the innermost loop `l`, inside of `depth` levels, reads tiles that the next loop around moves and a loop further out
    /// reads again, where it reads others in each iteration.
    fn moving_tiles(&self, l: &Loop, depth: usize) -> Option<Vec<u32>> {
        let base = |node: &Node| match node {
            Node::Inst(Inst::TileLoad { addr, .. }) => Some(addr.base.0),
            _ => None,
        };
        let read: BTreeSet<u32> = l.body.iter().filter_map(base).collect();
        let around = self.levels[..depth].iter().rposition(|level| level.extent > 1).filter(|_| !read.is_empty())?;
        let (mut moving, mut kept) = (vec![], false);
        for pointer in read {
            let (moves, start) = self.moves(&self.resolve(&self.pointers[pointer as usize].bytes));
            let outside: Vec<bool> =
                moves[self.levels.len() - 1 - around..].iter().filter(|m| m.0.extent > 1).map(|m| m.1 != 0).collect();
            if !start.is_constant() {
                return None;
            }
            match outside[0] {
                true if outside.contains(&false) => moving.push(pointer),
                moves => kept |= !moves,
            }
        }
        kept.then_some(moving)
    }

    /// Bytes that one iteration of a loop reads in tiles through each pointer, where neighbouring tiles have all of the bytes between
    /// their rows, and the next iteration goes on behind them.
    fn read_in_tiles(&self, l: &Loop) -> BTreeMap<u32, (i64, i64)> {
        let mut tiles: BTreeMap<u32, (i64, BTreeSet<i64>)> = BTreeMap::new();
        for node in &l.body {
            if let Node::Inst(Inst::TileLoad { addr, stride, .. }) = node {
                tiles.entry(addr.base.0).or_insert((*stride, BTreeSet::new())).1.insert(i64::from(addr.disp));
            }
        }
        let span = |(pointer, (stride, starts)): (u32, (i64, BTreeSet<i64>))| {
            let (first, last) = (*starts.first()?, *starts.last()?);
            let bytes = self.pointers[pointer as usize].bytes.coefficient(l.var) * l.step;
            let dense =
                last - first + TILE_ROW_BYTES as i64 == stride && starts.len() * TILE_ROW_BYTES == stride as usize;
            (dense && bytes > 0 && bytes % stride == 0).then_some((pointer, (first, first + bytes)))
        };
        tiles.into_iter().filter_map(span).collect()
    }

    /// How far a step of each level moves an address, the innermost level first, and the address at the first step of all.
    fn moves(&self, address: &Affine) -> (Vec<(&Level, i64)>, Affine) {
        let mut start = address.clone();
        let moves = self.levels.iter().rev().map(|level| {
            let c = start.coefficient(level.lead);
            start = std::mem::take(&mut start).add_scaled(&level.value, -c).offset(c * level.first);
            (level, c * level.step)
        });
        (moves.collect(), start)
    }

    /// The panel of `bytes` in each iteration from `pointer + first` on.
    fn panel(&self, pointer: &Pointer, first: i64, bytes: i64, at: usize) -> Option<Panel> {
        let (moves, start) = self.moves(&self.resolve(&pointer.bytes).offset(first));
        if !start.is_constant() {
            return None;
        }
        let reused = moves.iter().position(|(level, by)| *by == 0 && level.extent > 1)?;
        let outer = reused + moves[reused..].iter().position(|(level, by)| *by != 0 && level.extent > 1)?;
        let (inside, panel) = (&moves[..outer], moves[outer].1);
        let dense = inside
            .iter()
            .filter(|m| m.1 != 0)
            .try_fold(bytes, |size, (level, by)| (*by == size || level.extent == 1).then_some(size * level.extent))?;
        let machine = &self.target.machine;
        let most = machine.prefetched_share * machine.cache_bytes[1] as f64;
        let whole = dense == panel;
        if !whole && panel % dense != 0 || dense < LEAST_BYTES || dense as f64 > most {
            return None;
        }
        let piece = (!whole).then_some(start.constant.rem_euclid(panel));
        let iterations: i64 = inside.iter().map(|m| m.0.extent).product();
        let line = self.target.machine.line_bytes as i64;
        let share = ceil_div(dense, iterations);
        let share = match share > line {
            true => ceil_div(share, line) * line,
            false => share.max(inside.first()?.0.step).cast_unsigned().next_power_of_two().cast_signed(),
        };
        let mut next = start.offset(dense);
        for (level, by) in &moves[outer..] {
            next = next.add_scaled(&level.value, by / level.step).offset(-by / level.step * level.first);
        }
        let mut weight = share;
        for (level, _) in inside {
            if weight % level.step != 0 {
                return None;
            }
            let c = weight / level.step;
            next = next.add_scaled(&level.value, c).offset(-c * level.first);
            weight *= level.extent;
        }
        let next = Pointer { root: pointer.root, bytes: next };
        Some(Panel { at, iterations, piece, next, lines: (share / line).max(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vcode::{Lane, VType, Vreg};
    use crate::expr::Bound;
    use crate::runtime::DType;

    const PANEL: i64 = 64 * 128;

    fn serial(var: Var, extent: i64, step: i64, body: Vec<Node>) -> Node {
        let bound = |c| vec![Bound::constant(c)];
        let (lower, upper) = (bound(0), bound(extent));
        Node::Loop(Loop { var, lower, upper, step, parallel: false, at_least_once: true, expected: None, body })
    }

    /// Loops over 4 panels and 5 blocks with 64 steps of 128 bytes, two in each iteration, and what is prefetched.
    fn product(panel: Affine, around: impl Fn(Node) -> Node) -> Tree {
        let k = Var(9);
        let load = |disp| Inst::VLoad {
            dst: Vreg(0),
            ty: VType { lane: Lane::F32, lanes: 16 },
            mem: DType::F32,
            addr: Addr { base: Gpr(0), index: None, disp },
            part: None,
        };
        let pointer = Pointer { root: Root::Argument(1), bytes: panel.plus(k, 128) };
        let body = [0, 64, 128, 192].map(|d| Node::Inst(load(d))).to_vec();
        let nodes = vec![around(serial(k, 64, 2, body))];
        let tree = Tree { nodes, pointers: vec![pointer], vregs: 1, ..Tree::default() };
        prefetch_panels(tree, &Target::avx512())
    }

    /// The lines that are asked for while panel 1 is in use.
    fn lines(tree: &Tree, value: impl Fn(Var, i64) -> i64) -> FxHashSet<i64> {
        let [_, next] = &tree.pointers[..] else { panic!("{} pointers", tree.pointers.len()) };
        let all = (0..5).flat_map(|block| (0..64).step_by(2).map(move |k| (block, k)));
        all.map(|(block, k)| next.bytes.evaluate(|v| if v == Var(9) { k } else { value(v, block) }) / 64).collect()
    }

    fn panel_2() -> FxHashSet<i64> {
        (2 * PANEL / 64..3 * PANEL / 64).collect()
    }

    #[test]
    fn the_next_panel_is_prefetched_while_one_is_reused() {
        let [no, mo] = [Var(0), Var(1)];
        let tree = product(Affine::var(no).scale(PANEL), |k| serial(no, 4, 1, vec![serial(mo, 5, 1, vec![k])]));
        assert!(lines(&tree, |v, block| if v == no { 1 } else { block }).is_superset(&panel_2()));
        let count = tree.nodes.iter().map(prefetches).sum::<usize>();
        assert_eq!(count, 1, "{:?}", tree.nodes);
    }

    #[test]
    fn a_fused_parallel_loop_counts_its_digits() {
        let [t, no, mo] = [Var(0), Var(1), Var(2)];
        let tree = product(Affine::var(no).scale(PANEL), |k| {
            let split = Node::Let { var: no, value: Affine::var(t), divisor: 5 };
            let rest = Node::Let { var: mo, value: Affine::var(t).plus(no, -5), divisor: 1 };
            serial(t, 20, 1, vec![split, rest, k])
        });
        let value = |v, block| if v == no { 1 } else { 5 + block };
        assert!(lines(&tree, value).is_superset(&panel_2()));
    }

    /// Half a panel for all blocks, and then the other one: each fetches what is read next.
    #[test]
    fn pieces_of_a_panel_fetch_the_next_piece() {
        let [no, mo, k] = [Var(0), Var(1), Var(9)];
        let (ty, mem) = (VType { lane: Lane::F32, lanes: 16 }, DType::F32);
        let load = |half, disp| {
            let addr = Addr { base: Gpr(half), index: None, disp };
            Node::Inst(Inst::VLoad { dst: Vreg(0), ty, mem, addr, part: None })
        };
        let half = |half: u32| {
            let steps = serial(k, 32, 2, [0, 64, 128, 192].map(|d| load(half, d)).to_vec());
            serial(mo, 5, 1, vec![steps])
        };
        let bytes = Affine::var(no).scale(PANEL).plus(k, 128);
        let pointers =
            [0, 1].map(|half| Pointer { root: Root::Argument(1), bytes: bytes.clone().offset(half * PANEL / 2) });
        let nodes = vec![serial(no, 4, 1, vec![half(0), half(1)])];
        let tree = Tree { nodes, pointers: pointers.to_vec(), vregs: 1, ..Tree::default() };
        let tree = prefetch_panels(tree, &Target::avx512());
        assert_eq!(tree.nodes.iter().map(prefetches).sum::<usize>(), 2, "{:?}", tree.nodes);
        let next = &tree.pointers[2..];
        for (piece, next) in next.iter().enumerate() {
            let first = next.bytes.evaluate(|v| i64::from(v == no));
            assert_eq!(first, PANEL + (piece as i64 + 1) * PANEL / 2, "{tree:?}");
        }
    }

    #[test]
    fn what_is_read_once_or_everywhere_is_not_prefetched() {
        let [no, mo] = [Var(0), Var(1)];
        let once = product(Affine::var(no).scale(PANEL), |k| serial(no, 4, 1, vec![k]));
        let always = product(Affine::constant(0), |k| serial(no, 4, 1, vec![serial(mo, 5, 1, vec![k])]));
        let sparse = product(Affine::var(no).scale(2 * PANEL), |k| serial(no, 4, 1, vec![serial(mo, 5, 1, vec![k])]));
        for tree in [once, always, sparse] {
            assert_eq!(tree.nodes.iter().map(prefetches).sum::<usize>(), 0);
        }
    }

    fn prefetches(node: &Node) -> usize {
        match node {
            Node::Inst(Inst::Prefetch { .. }) => 1,
            Node::Loop(l) => l.body.iter().map(prefetches).sum(),
            _ => 0,
        }
    }
}
