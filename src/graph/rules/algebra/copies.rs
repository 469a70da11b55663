//! Copies: transpositions, reshapes, slices, stretches; composed, cancelled and moved.

use crate::graph::egraph::network::{Network, moves_only_units};
use crate::graph::op::Op;
use crate::graph::rules::algebra::arithmetic::operand;
use crate::graph::rules::pattern::Match;
use crate::runtime::DType;
use egg::Id;

pub fn transpose_transpose(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Transpose { perm: p }, Op::Transpose { perm: q }) = (m.application('p').0, m.application('q').0) else {
        return None;
    };
    let composed: Vec<usize> = p.iter().map(|&i| q[i]).collect();
    network.transpose(m.get('x'), &composed)
}

/// A transposition that moves only dimensions of extent 1 is a reshape.
pub fn transpose_units(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Transpose { perm } = m.application('p').0 else { return None };
    let shape = network.shape(m.class).to_vec();
    let units = moves_only_units(network.shape(m.get('x')), perm);
    units.then(|| network.reshape(m.get('x'), &shape))?
}

pub fn reshape_reshape(network: &mut Network, m: &Match) -> Option<Id> {
    let shape = network.shape(m.class).to_vec();
    network.reshape(m.get('x'), &shape)
}

/// Operands of one type of which the same transposition or reshape is equal.
pub fn same_copy(network: &Network, m: &Match) -> Option<(Id, Id)> {
    let (op, operands) = m.root();
    let x = network.find(operands[0]);
    let other = |(o, c): (&Op, &[Id])| (o == op && network.find(c[0]) != x).then_some(c[0]);
    network.applications(m.class).filter_map(other).find(|&y| network.ty(y) == network.ty(x)).map(|y| (x, y))
}

/// A slice of the operand's shape that starts at the first element: one that runs backwards has the same shape too.
pub fn slice_same(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Slice { starts, steps, .. } = m.application('s').0 else { return None };
    if starts.iter().any(|&s| s != 0) || steps.iter().any(|&s| s != 1) {
        return None;
    }
    operand(network, m)
}

pub fn slice_slice(network: &mut Network, m: &Match) -> Option<Id> {
    let (Op::Slice { starts: a, ends: e, steps: s }, Op::Slice { starts: b, steps: t, .. }) =
        (m.application('a').0, m.application('b').0)
    else {
        return None;
    };
    if s.iter().chain(t).any(|&step| step < 1) {
        return None;
    }
    let starts: Vec<i64> = (0..a.len()).map(|d| b[d] + a[d] * t[d]).collect();
    let steps: Vec<i64> = (0..a.len()).map(|d| s[d] * t[d]).collect();
    // One past the last element that is taken, so that the range stays inside the operand.
    let count = |d: usize| (e[d] - a[d] + s[d] - 1) / s[d];
    let ends = (0..a.len()).map(|d| if count(d) == 0 { starts[d] } else { starts[d] + (count(d) - 1) * steps[d] + 1 });
    let ends = ends.collect();
    network.op(Op::Slice { starts, ends, steps }, &[m.get('x')])
}

/// A slice that lies in one operand of a concatenation.
pub fn slice_concat(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Slice { starts, ends, steps } = m.application('a').0 else { return None };
    let (Op::Concat { axis }, pieces) = m.application('b') else { return None };
    let axis = *axis;
    if steps[axis] < 1 {
        return None;
    }
    let mut offset = 0;
    for &piece in pieces {
        let extent = network.shape(piece)[axis];
        if starts[axis] >= offset && ends[axis] <= offset + extent {
            let (mut starts, mut ends) = (starts.clone(), ends.clone());
            starts[axis] -= offset;
            ends[axis] -= offset;
            return network.op(Op::Slice { starts, ends, steps: steps.clone() }, &[piece]);
        }
        offset += extent;
    }
    None
}

/// Pairs of ranges of dimensions, of the old shape and the new, that hold the same elements.
pub fn factor_groups(from: &[i64], to: &[i64]) -> Option<Vec<(std::ops::Range<usize>, std::ops::Range<usize>)>> {
    if from.contains(&0) || to.contains(&0) {
        return None;
    }
    let (mut i, mut j) = (0, 0);
    let mut groups = vec![];
    while i < from.len() || j < to.len() {
        let (start_i, start_j) = (i, j);
        let (mut a, mut b) = (1, 1);
        if i < from.len() {
            a = from[i];
            i += 1;
        }
        if j < to.len() && (a != 1 || i == from.len() || to[j] == 1) {
            b = to[j];
            j += 1;
        }
        while a != b {
            if a < b {
                a *= *from.get(i)?;
                i += 1;
            } else {
                b *= *to.get(j)?;
                j += 1;
            }
        }
        groups.push((start_i..i, start_j..j));
    }
    Some(groups)
}

/// reshape(slice(x)) = slice(reshape(x)) where the slice keeps whole rows of the dimensions that are split off.
pub fn reshape_slice(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Slice { starts, ends, steps } = m.application('s').0 else { return None };
    // One that runs backwards may have the operand's shape.
    if steps.iter().any(|&s| s != 1) {
        return None;
    }
    let x = m.get('x');
    let whole = network.shape(x).to_vec();
    let cut = network.shape(m.root().1[0]).to_vec();
    let result = network.shape(m.class).to_vec();
    let (mut shape, mut from, mut until) = (vec![], vec![], vec![]);
    // A dimension of which one place is left joins the dimensions after it.
    let mut groups: Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> = vec![];
    for (old, new) in factor_groups(&cut, &result)? {
        match groups.last_mut() {
            Some((before, none)) if none.start == none.end && before.clone().any(|d| cut[d] != whole[d]) => {
                (before.end, *none) = (old.end, new);
            }
            _ => groups.push((old, new)),
        }
    }
    for (old, new) in groups {
        let sliced: Vec<usize> = old.clone().filter(|&d| cut[d] != whole[d]).collect();
        if sliced.is_empty() {
            shape.extend(&result[new.clone()]);
            from.extend(new.clone().map(|_| 0));
            until.extend(&result[new]);
            continue;
        }
        // The slice is of the slowest dimension of the group; the new slowest dimension must divide it evenly.
        let [d] = sliced[..] else { return None };
        if old.clone().take_while(|&e| e != d).any(|e| cut[e] != 1) {
            return None;
        }
        let inner_old: i64 = old.clone().filter(|&e| e > d).map(|e| cut[e]).product();
        if new.is_empty() {
            return None;
        }
        let lead = new.clone().find(|&e| result[e] != 1).unwrap_or(new.start);
        let inner_new: i64 = new.clone().filter(|&e| e > lead).map(|e| result[e]).product();
        let scale = |v: i64| (v * inner_old % inner_new == 0).then_some(v * inner_old / inner_new);
        let (start, end, extent) = (scale(starts[d])?, scale(ends[d])?, scale(whole[d])?);
        for e in new {
            let range = if e == lead { (start, end, extent) } else { (0, result[e], result[e]) };
            from.push(range.0);
            until.push(range.1);
            shape.push(range.2);
        }
    }
    if shape == whole {
        return None;
    }
    let reshaped = network.reshape(x, &shape)?;
    let steps = vec![1; shape.len()];
    network.op(Op::Slice { starts: from, ends: until, steps }, &[reshaped])
}

/// A gather at one constant place is a slice.
pub fn gather_scalar(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Gather { axis } = *m.application('g').0 else { return None };
    let tensor = network.value(m.get('i'))?.clone();
    if tensor.len() != 1 {
        return None;
    }
    let index = match tensor.dtype {
        DType::I64 => tensor.to_vec::<i64>()[0],
        DType::I32 => tensor.to_vec::<i32>()[0] as i64,
        _ => return None,
    };
    let (shape, result) = (network.shape(m.get('x')).to_vec(), network.shape(m.class).to_vec());
    let place = if index < 0 { index + shape[axis] } else { index };
    if !(0..shape[axis]).contains(&place) {
        return None;
    }
    let (mut starts, mut ends) = (vec![0; shape.len()], shape.clone());
    (starts[axis], ends[axis]) = (place, place + 1);
    let slice = network.op(Op::Slice { starts, ends, steps: vec![1; shape.len()] }, &[m.get('x')])?;
    network.reshape(slice, &result)
}

/// An operand that is stretched first does not need to be: elementwise operators stretch their operands themselves.
pub fn expand_operand(network: &mut Network, m: &Match) -> Option<Id> {
    let (op, operands) = m.root();
    let mut changed = false;
    let direct = |&c: &Id| {
        let inner = network.applications(c).find_map(|(op, o)| matches!(op, Op::Expand { .. }).then(|| o[0]));
        changed |= inner.is_some();
        inner.unwrap_or(c)
    };
    let operands: Vec<Id> = operands.iter().map(direct).collect();
    changed.then(|| network.op(op.clone(), &operands))?
}
