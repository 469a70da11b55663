//! The e-graph: terms, the analysis of their values, classes.
//!
//! egg's e-graph (Willsey et al., "egg: Fast and Extensible Equality Saturation", POPL 2021): its hash-consing, union-find,
//! congruence closure and e-class analysis. The analysis carries the types of the values and whether they are constant.
//! Constants are leaves, equal constants one leaf; an expression of constants stays an expression. Added here: e-nodes that
//! a rule replaced, which neither the matcher nor the extraction looks at.

use crate::expr::{BinaryOp, UnaryOp};
use crate::graph::cost::Operand;
use crate::graph::infer::infer;
use crate::graph::op::{FusionKind, Op};
use crate::graph::tensor_type::TensorType;
use crate::runtime::{DType, Tensor};
use egg::{Analysis, DidMerge, Id, Language};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The e-node that stands for each class, by position in the class.
pub type Choice = BTreeMap<Id, usize>;

/// An e-node: an operator or leaf with its operand classes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Term {
    pub head: Head,
    pub children: Vec<Id>,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Head {
    /// An input of the graph, by position.
    Input(u32),
    /// A constant, by its index in [`Values::constants`].
    Constant(u32),
    Op(Op),
    /// One output of an operator that has several.
    Output(u32),
}

impl Language for Term {
    type Discriminant = std::mem::Discriminant<Head>;

    fn discriminant(&self) -> Self::Discriminant {
        std::mem::discriminant(&self.head)
    }
    fn matches(&self, other: &Self) -> bool {
        self.head == other.head && self.children.len() == other.children.len()
    }
    fn children(&self) -> &[Id] {
        &self.children
    }
    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}

/// The analysis: facts about the value of a class.
#[derive(Default)]
pub struct Values {
    pub constants: Vec<Arc<Tensor>>,
    by_sample: BTreeMap<u64, Vec<u32>>,
    /// Types of the graph's inputs.
    pub inputs: Vec<TensorType>,
}

#[derive(Clone, Debug)]
pub struct Facts {
    /// One type for each output; empty when the term is not well typed.
    pub types: Arc<[TensorType]>,
    /// Computed from constants only.
    pub constant: bool,
}

impl Analysis<Term> for Values {
    type Data = Facts;

    fn make(egraph: &mut egg::EGraph<Term, Self>, term: &Term, _: Id) -> Facts {
        let facts = |i: &Id| &egraph[*i].data;
        match &term.head {
            Head::Input(i) => Facts { types: [egraph.analysis.inputs[*i as usize].clone()].into(), constant: false },
            Head::Constant(i) => {
                let t = &egraph.analysis.constants[*i as usize];
                Facts { types: [TensorType { dtype: t.dtype, shape: t.shape.clone() }].into(), constant: true }
            }
            Head::Output(i) => {
                let whole = facts(&term.children[0]);
                let types = whole.types.get(*i as usize).cloned();
                Facts { types: types.into_iter().collect(), constant: whole.constant }
            }
            Head::Op(op) => {
                let operands: Vec<Facts> = term.children.iter().map(|c| facts(c).clone()).collect();
                let types: Option<Vec<&TensorType>> = operands.iter().map(|f| f.types.first()).collect();
                let types = types.and_then(|t| infer(op, &t).ok()).unwrap_or_default();
                let opaque = op.kind() == FusionKind::Opaque;
                Facts { types: types.into(), constant: !opaque && operands.iter().all(|f| f.constant) }
            }
        }
    }

    fn merge(&mut self, a: &mut Facts, b: Facts) -> DidMerge {
        let either = a.constant || b.constant;
        let changed = DidMerge(either != a.constant, either != b.constant);
        a.constant = either;
        changed
    }
}

/// The e-graph of a network, with what rules need to read it and to add to it.
#[derive(Default)]
pub struct Network {
    pub egraph: egg::EGraph<Term, Values>,
    /// The classes of the outputs.
    pub outputs: Vec<Id>,
    /// Number of e-nodes of the source graph: those that were added first.
    pub loaded: usize,
    /// Largest bound of the error of an algorithm that may take the place of the direct one, relative to the largest
    /// output that inputs of the same size can have.
    pub max_error: f64,
    /// The type of the first operand of the target's products of bytes, of which the second one is i8; `None` where it has no
    /// such instruction.
    pub byte_products: Option<DType>,
    /// The target has products of i8 and numbers of 4 bits, in a u8 each.
    pub four_bit_products: bool,
    /// The target has products of i16.
    pub word_products: bool,
    /// The types of operands whose products the target sums in tiles.
    pub tile_products: Vec<DType>,
    /// The types of 16 bits whose products the target sums in f32.
    pub half_products: Vec<DType>,
    /// The type of 16 bits that the operands of products of f32 are rounded to; `None` where they stay.
    pub halves: Option<DType>,
    /// The last cache keeps the constants from one run to the next.
    pub constants_cached: bool,
    /// Fewest multiply-adds of a product with which one of seven halves competes; `None` where none does.
    pub least_halved: Option<i64>,
    /// E-nodes that a rule replaced, and their canonical forms: neither rules nor the extraction look at them.
    replaced: FxHashSet<Id>,
    replaced_forms: FxHashSet<Term>,
}

impl Network {
    pub fn find(&self, id: Id) -> Id {
        self.egraph.find(id)
    }

    /// The e-nodes of a class.
    pub fn terms(&self, id: Id) -> &[Term] {
        &self.egraph[self.find(id)].nodes
    }

    /// The applications of operators in a class.
    pub fn applications(&self, id: Id) -> impl Iterator<Item = (&Op, &[Id])> {
        self.terms(id).iter().filter_map(|t| match &t.head {
            Head::Op(op) => Some((op, &t.children[..])),
            _ => None,
        })
    }

    /// A class that `id` is a conversion of; `wanted` chooses by the types before and after.
    pub fn converted_from(&self, id: Id, wanted: impl Fn(DType, DType) -> bool) -> Option<Id> {
        self.applications(id).find_map(|(op, c)| match op {
            Op::Cast(to) => Some(c[0]).filter(|&source| wanted(self.ty(source).dtype, *to)),
            _ => None,
        })
    }

    /// The first e-node of the source graph in each class that has one. The operands of each are in classes whose first
    /// e-node is earlier, so these e-nodes have no cycle.
    pub fn source_terms(&self) -> BTreeMap<Id, Term> {
        let mut first = BTreeMap::new();
        for id in (0..self.loaded).map(Id::from) {
            first.entry(self.find(id)).or_insert_with(|| self.canonical(self.egraph.id_to_node(id)));
        }
        first
    }

    pub fn canonical(&self, term: &Term) -> Term {
        Term { head: term.head.clone(), children: term.children.iter().map(|&c| self.find(c)).collect() }
    }

    /// Returns true if no rule replaced the e-node.
    pub fn is_current(&self, term: &Term) -> bool {
        self.replaced_forms.is_empty() || !self.replaced_forms.contains(&self.canonical(term))
    }

    /// Marks an e-node as replaced by an equal or better one of its class.
    pub fn replace(&mut self, id: Id) {
        let form = self.canonical(self.egraph.id_to_node(id));
        self.replaced.insert(id);
        self.replaced_forms.insert(form);
    }

    /// Leaves an e-node out that no answer needs. Rules and unions must not follow.
    pub fn leave_out(&mut self, term: &Term) {
        let form = self.canonical(term);
        self.replaced_forms.insert(form);
    }

    /// Returns true if some use of a number, perhaps moved, is a whole number near it, which another last bit may change by
    /// one. What elementwise operators make of a single number is a use of it too: it may be the scale by which a tensor is
    /// quantised.
    pub fn becomes_whole(&self, id: Id) -> bool {
        let mut open = vec![self.find(id)];
        let mut seen = FxHashSet::from_iter(open.clone());
        while let Some(class) = open.pop() {
            for parent in self.egraph[class].parents() {
                let Head::Op(op) = &self.egraph.id_to_node(parent).head else { continue };
                match op {
                    Op::Unary(UnaryOp::Round | UnaryOp::Floor | UnaryOp::Ceil) => return true,
                    Op::Cast(to) if !to.is_float() => return true,
                    _ if op.kind() == FusionKind::Injective && (!op.is_elementwise() || self.is_single_real(class)) => {
                        let moved = self.find(parent);
                        if seen.insert(moved) {
                            open.push(moved);
                        }
                    }
                    _ => {}
                }
            }
        }
        false
    }

    /// Returns true for one floating-point number.
    fn is_single_real(&self, id: Id) -> bool {
        let ty = self.ty(id);
        ty.dtype.is_float() && ty.shape.iter().all(|&extent| extent == 1)
    }

    /// Returns true if an operator that `wanted` accepts reads a class.
    pub fn is_read_by(&self, id: Id, wanted: impl Fn(&Op) -> bool) -> bool {
        let reads = |parent| matches!(&self.egraph.id_to_node(parent).head, Head::Op(op) if wanted(op));
        self.egraph[self.find(id)].parents().any(reads)
    }

    /// Returns true if the computed operands of an e-node of `class` have no other uses.
    pub fn is_sole_use(&self, class: Id, term: &Term) -> bool {
        let class = self.find(class);
        term.children.iter().filter(|&&c| !self.is_constant(c)).all(|&c| {
            let mut users = self.egraph[self.find(c)].parents();
            !self.outputs.iter().any(|&o| self.find(o) == self.find(c))
                && users.all(|p| self.find(p) == class || !self.is_current(self.egraph.id_to_node(p)))
        })
    }

    /// Restores congruence after unions. E-nodes that became congruent are current if one of them is: what was replaced
    /// takes nothing along.
    pub fn rebuild(&mut self) {
        self.egraph.rebuild();
        if self.replaced.is_empty() {
            return;
        }
        let form = |id: &Id| self.canonical(self.egraph.id_to_node(*id));
        let mut forms: FxHashSet<Term> = self.replaced.iter().map(form).collect();
        let ids = (0..self.egraph.nodes().len()).map(Id::from);
        for id in ids.filter(|id| !self.replaced.contains(id)) {
            forms.remove(&form(&id));
        }
        self.replaced_forms = forms;
    }

    /// Returns true if a rule replaced the e-node, whose operands are canonical.
    pub fn is_replaced(&self, canonical: &Term) -> bool {
        self.replaced_forms.contains(canonical)
    }

    pub fn has_replaced(&self) -> bool {
        !self.replaced_forms.is_empty()
    }

    /// Makes e-nodes of these canonical forms current again.
    pub fn restore(&mut self, forms: &FxHashSet<Term>) {
        let form = |id: &Id| self.canonical(self.egraph.id_to_node(*id));
        let restored: FxHashSet<Id> = self.replaced.iter().copied().filter(|id| forms.contains(&form(id))).collect();
        self.replaced.retain(|id| !restored.contains(id));
        self.replaced_forms.retain(|form| !forms.contains(form));
    }

    /// The classes that the outputs need, by e-nodes that were not replaced.
    pub fn reachable(&self) -> FxHashSet<Id> {
        let mut seen = FxHashSet::default();
        let mut stack: Vec<Id> = self.outputs.iter().map(|&o| self.find(o)).collect();
        while let Some(id) = stack.pop() {
            if seen.insert(id) {
                let current = self.terms(id).iter().filter(|t| self.is_current(t));
                stack.extend(current.flat_map(|t| &t.children).map(|&c| self.find(c)));
            }
        }
        seen
    }

    pub fn facts(&self, id: Id) -> &Facts {
        &self.egraph[self.find(id)].data
    }

    pub fn ty(&self, id: Id) -> &TensorType {
        &self.facts(id).types[0]
    }

    pub fn shape(&self, id: Id) -> &[i64] {
        &self.ty(id).shape
    }

    pub fn rank(&self, id: Id) -> usize {
        self.shape(id).len()
    }

    pub fn is_constant(&self, id: Id) -> bool {
        self.facts(id).constant
    }

    /// The constant in a class.
    pub fn value(&self, id: Id) -> Option<&Arc<Tensor>> {
        self.terms(id).iter().find_map(|t| match t.head {
            Head::Constant(i) => Some(&self.egraph.analysis.constants[i as usize]),
            _ => None,
        })
    }

    /// A class as an operand, for its price.
    pub fn operand(&self, id: Id) -> Operand<'_> {
        Operand { ty: self.ty(id), constant: self.is_constant(id), value: self.value(id).map(|t| &**t) }
    }

    /// The value of an f32 constant of one element.
    pub fn scalar(&self, id: Id) -> Option<f32> {
        let t = self.value(id)?;
        (t.dtype == DType::F32 && t.len() == 1).then(|| f32::from_le_bytes(t.data[..4].try_into().expect("4 bytes")))
    }

    /// Adds an operator's application; `None` when it is not well typed.
    pub fn op(&mut self, op: Op, children: &[Id]) -> Option<Id> {
        let children: Vec<Id> = children.iter().map(|&c| self.find(c)).collect();
        let types: Option<Vec<&TensorType>> = children.iter().map(|&c| self.facts(c).types.first()).collect();
        infer(&op, &types?).ok()?;
        Some(self.egraph.add(Term { head: Head::Op(op), children }))
    }

    /// The class of an operator's application, where the e-graph has it.
    pub fn known(&self, op: Op, children: &[Id]) -> Option<Id> {
        self.egraph.lookup(Term { head: Head::Op(op), children: children.to_vec() })
    }

    pub fn binary(&mut self, op: BinaryOp, a: Id, b: Id) -> Option<Id> {
        self.op(Op::Binary(op), &[a, b])
    }

    pub fn unary(&mut self, op: UnaryOp, a: Id) -> Option<Id> {
        self.op(Op::Unary(op), &[a])
    }

    /// Adds a constant, or returns the class of an equal one.
    pub fn constant(&mut self, tensor: Arc<Tensor>) -> Id {
        let sample = sample(&tensor);
        let values = &mut self.egraph.analysis;
        let list = values.by_sample.entry(sample).or_default();
        let index_of_equal = list.iter().copied().find(|&i| {
            let other = &values.constants[i as usize];
            Arc::ptr_eq(other, &tensor) || **other == *tensor
        });
        let index = index_of_equal.unwrap_or_else(|| {
            let index = values.constants.len() as u32;
            list.push(index);
            values.constants.push(tensor);
            index
        });
        self.egraph.add(Term { head: Head::Constant(index), children: vec![] })
    }

    pub fn scalar_f32(&mut self, value: f32) -> Id {
        self.constant(Arc::new(Tensor::new(&[], &[value])))
    }

    /// `x` as another shape; `x` itself when it has that shape.
    pub fn reshape(&mut self, x: Id, shape: &[i64]) -> Option<Id> {
        if self.shape(x) == shape {
            return Some(x);
        }
        let inner = self.applications(x).find_map(|(op, c)| matches!(op, Op::Reshape { .. }).then(|| c[0]));
        match inner {
            Some(y) if self.shape(y) == shape => Some(y),
            Some(y) => self.op(Op::Reshape { shape: shape.to_vec() }, &[y]),
            None => self.op(Op::Reshape { shape: shape.to_vec() }, &[x]),
        }
    }

    /// `x` transposed: output dimension i is dimension `perm[i]` of `x`. An inverse transposition cancels, and one that
    /// moves only dimensions of extent 1 is a reshape.
    pub fn transpose(&mut self, x: Id, perm: &[usize]) -> Option<Id> {
        let shape = self.shape(x).to_vec();
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Some(x);
        }
        let inner = self.applications(x).find_map(|(op, c)| match op {
            Op::Transpose { perm: q } => Some((q.clone(), c[0])),
            _ => None,
        });
        if let Some((q, y)) = inner {
            let composed: Vec<usize> = perm.iter().map(|&p| q[p]).collect();
            if composed.iter().enumerate().all(|(i, &p)| i == p) {
                return Some(y);
            }
        }
        if moves_only_units(&shape, perm) {
            let to: Vec<i64> = perm.iter().map(|&p| shape[p]).collect();
            return self.reshape(x, &to);
        }
        self.op(Op::Transpose { perm: perm.to_vec() }, &[x])
    }
}

/// Returns true if the dimensions with more than one element keep their order.
pub fn moves_only_units(shape: &[i64], perm: &[usize]) -> bool {
    let moved: Vec<usize> = perm.iter().copied().filter(|&p| shape[p] != 1).collect();
    moved.is_sorted()
}

/// The inverse permutation.
pub fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut out = vec![0; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        out[p] = i;
    }
    out
}

/// Bytes of a constant that are hashed at each of three places.
const SAMPLE: usize = 96;

/// A hash of the type and some of the bytes, for constants that may be large.
fn sample(t: &Tensor) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    (t.dtype, &t.shape).hash(&mut hasher);
    // A few places, not spread over all: each of them is a page of the model's file that has to come into memory.
    let places = [0, t.data.len() / 2, t.data.len().saturating_sub(SAMPLE)];
    places.iter().for_each(|&start| hasher.write(&t.data[start..(start + SAMPLE).min(t.data.len())]));
    hasher.finish()
}
