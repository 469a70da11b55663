//! Elementwise operators from one number in u8 to one of 8 bits, as tables of its 256 values.
//!
//! A quantised activation function is such a number: what stands between two quantisations of a tensor is evaluated at each of the 256
//! numbers when the network is compiled, and the kernel looks its results up. Operands beside the number are constants of one element.

use crate::graph::egraph::network::Network;
use crate::graph::fold;
use crate::graph::op::Op;
use crate::graph::rules::bytes::numbers::is_byte;
use crate::graph::rules::pattern::Match;
use crate::runtime::{DType, Tensor};
use egg::Id;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Elementwise operators from which on a table is made: a number that is rounded, kept within its type and stored takes five.
const LEAST_OPERATORS: usize = 6;
/// Most operators between a number and its table.
const MOST_OPERATORS: usize = 400;

/// Numbers of 8 bits that are an elementwise function of one tensor in u8.
pub fn table(network: &mut Network, m: &Match) -> Option<Id> {
    let Op::Cast(to) = *m.application('c').0 else { return None };
    let known = network.applications(m.class).any(|(op, _)| matches!(op, Op::Table));
    if !is_byte(to) || known || network.is_constant(m.class) {
        return None;
    }
    let mut function = Function { network, shape: network.shape(m.class).to_vec(), ways: BTreeMap::new() };
    let source = function.source(m.class)?;
    let order = function.order(m.class, source);
    if order.len() < LEAST_OPERATORS {
        return None;
    }
    let table = function.table(&order, source)?;
    let table = network.constant(Arc::new(table));
    network.op(Op::Table, &[table, source])
}

/// How a class is computed elementwise.
#[derive(Clone, Debug)]
enum Way {
    /// Its operands are looked at.
    Open,
    /// It is not a function of one tensor in u8.
    None,
    /// It is a tensor in u8 of its own.
    Source,
    /// By an operator on these classes, all functions of the tensor `source` or constants.
    Function { op: Op, operands: Vec<Id>, source: Id },
}

/// The function that a class is of a tensor in u8.
struct Function<'a> {
    network: &'a Network,
    shape: Vec<i64>,
    ways: BTreeMap<Id, Way>,
}

impl Function<'_> {
    /// The tensor in u8 that a class is a function of: the earliest one.
    fn source(&mut self, class: Id) -> Option<Id> {
        let class = self.network.find(class);
        if !self.ways.contains_key(&class) {
            self.ways.insert(class, Way::Open);
            let way = self.way(class);
            self.ways.insert(class, way);
        }
        match self.ways[&class] {
            Way::Open | Way::None => None,
            Way::Source => Some(class),
            Way::Function { source, .. } => Some(source),
        }
    }

    fn way(&mut self, class: Id) -> Way {
        if self.network.shape(class) != self.shape || self.ways.len() > MOST_OPERATORS {
            return Way::None;
        }
        let network = self.network;
        for (op, operands) in network.applications(class).filter(|(op, _)| op.is_elementwise()) {
            if let Some(source) = self.one_source(operands) {
                return Way::Function { op: op.clone(), operands: operands.to_vec(), source };
            }
        }
        if network.ty(class).dtype == DType::U8 { Way::Source } else { Way::None }
    }

    /// The one tensor that operands are functions of; those that are constants have one element.
    fn one_source(&mut self, operands: &[Id]) -> Option<Id> {
        let mut common = None;
        for &operand in operands {
            if self.network.is_constant(operand) {
                if self.network.shape(operand).iter().any(|&e| e != 1) {
                    return None;
                }
            } else {
                let source = self.source(operand)?;
                if common.replace(source).is_some_and(|other| other != source) {
                    return None;
                }
            }
        }
        common
    }

    /// The classes from the source on to a class, each behind its operands.
    fn order(&self, class: Id, source: Id) -> Vec<Id> {
        let (mut order, mut placed) = (vec![], BTreeSet::from([source]));
        let mut open = vec![(self.network.find(class), false)];
        while let Some((class, entered)) = open.pop() {
            if placed.contains(&class) {
                continue;
            }
            if entered {
                placed.insert(class);
                order.push(class);
                continue;
            }
            open.push((class, true));
            if let Some(Way::Function { operands, .. }) = self.ways.get(&class) {
                let computed = operands.iter().filter(|&&o| !self.network.is_constant(o));
                open.extend(computed.map(|&o| (self.network.find(o), false)));
            }
        }
        order
    }

    /// The values of the last class of `order` at all numbers of the source.
    fn table(&self, order: &[Id], source: Id) -> Option<Tensor> {
        let numbers: Vec<u8> = (0..=255).collect();
        let mut values = BTreeMap::from([(source, Tensor::new(&[256], &numbers))]);
        for class in order {
            let Way::Function { op, operands, .. } = self.ways.get(class)? else { return None };
            let constants: Vec<Option<Tensor>> = operands.iter().map(|&o| self.number(o)).collect();
            let inputs: Option<Vec<&Tensor>> = operands
                .iter()
                .zip(&constants)
                .map(|(&o, constant)| constant.as_ref().or_else(|| values.get(&self.network.find(o))))
                .collect();
            let value = fold::evaluate(op, &inputs?).ok()?.pop()?;
            values.insert(*class, value);
        }
        values.remove(order.last()?).filter(|table| table.len() == 256)
    }

    /// A constant of one element without dimensions.
    fn number(&self, class: Id) -> Option<Tensor> {
        if !self.network.is_constant(class) {
            return None;
        }
        let scalar = |t: &Tensor| Tensor { dtype: t.dtype, shape: vec![], data: t.data.clone() };
        if let Some(value) = self.network.value(class) {
            return Some(scalar(value));
        }
        self.network.applications(class).filter(|(op, _)| op.is_elementwise()).find_map(|(op, operands)| {
            let values: Option<Vec<Tensor>> = operands.iter().map(|&o| Some(scalar(self.network.value(o)?))).collect();
            let values = values.filter(|v| v.iter().all(|v| v.len() == 1))?;
            Some(scalar(&fold::evaluate(op, &values.iter().collect::<Vec<_>>()).ok()?.pop()?))
        })
    }
}
