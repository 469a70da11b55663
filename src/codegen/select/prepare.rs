//! Preparation of a LoopNest for the target's vectors: the result is expanded by the selection without further choices.
//!
//! Local buffers are laid out with the vector variable innermost. Vector loops that vectors cannot do become serial.
//! Reductions over long vectors, or over lanes inside of serial loops, accumulate into a local vector first. Long vector
//! loops become real loops over a few vectors, and short innermost loops are unrolled.

use crate::codegen::Target;
use crate::codegen::loopnest::{BufferKind, LoopKind, LoopNest, Stmt};
use crate::codegen::select::access::compared_with_lane;
use crate::codegen::select::guarded_updates;
use crate::codegen::select::masked_stores::stores_where;
use crate::codegen::select::narrow::narrow_loops;
use crate::codegen::select::pairs::split_sums;
use crate::codegen::select::peeling::peel;
use crate::codegen::select::recorded_subscripts;
use crate::codegen::select::reverse_if_conversion;
use crate::codegen::select::scalar_expansion;
use crate::codegen::select::sums_in_place::{pad_rows, sum_in_place};
use crate::codegen::select::turned_sums;
use crate::codegen::select::unswitching;
use crate::codegen::select::value::{buffer_width, widest};
use crate::codegen::select::vector_range;
use crate::codegen::select::wrapping;
use crate::expr::interval::{Facts, ceil_div, constant_range};
use crate::expr::narrow::Names;
use crate::expr::scalar::Value;
use crate::expr::{Affine, Bound, BufferId, Var};
use crate::expr::{BinaryOp, CompareOp, Expr, Index, Scalar, UnaryOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Prepares a nest for selection.
pub struct Prepared {
    pub nest: LoopNest,
    /// Bytes of the widest lane type at work in each vector loop.
    pub widths: FxHashMap<Var, usize>,
}

pub fn prepare(nest: &LoopNest, target: &Target) -> Prepared {
    let mut nest = nest.clone();
    sum_in_place(&mut nest, target);
    wrapping::as_signed(&mut nest);
    let body = std::mem::take(&mut nest.body);
    nest.body = body.into_iter().map(|phase| vector_range::trim(&mut nest, phase)).collect();
    peel(&mut nest, target);
    turned_sums::turn(&mut nest, target);
    lay_out_locals(&mut nest, target);
    pad_rows(&mut nest, target);
    let mut widths = FxHashMap::default();
    let body = nest.body.clone();
    let mut private = FxHashMap::default();
    let body = {
        let (expanded, extents) = (FxHashSet::default(), FxHashMap::default());
        Preparer { nest: &mut nest, target, expanded, extents, private: &mut private }.legalize(body)
    };
    let body = unswitching::unswitch(&mut nest, body);
    let body = guarded_updates::branch(&mut nest, body);
    let body = reverse_if_conversion::branch(&mut nest, body);
    let body = recorded_subscripts::join(&mut nest, body);
    let body = narrow_loops(&nest, &mut Facts::new(nest.vars.len()), &body);
    let body = split_sums(&mut nest, target, body);
    vector_widths(&nest, &body, &mut Facts::new(nest.vars.len()), &mut widths);
    nest.body = crate::codegen::select::strip_mine::strip_mine(&mut nest, target, &mut widths, private, body);
    vector_widths(&nest, &nest.body, &mut Facts::new(nest.vars.len()), &mut widths);
    Prepared { nest, widths }
}

/// Gives each local buffer strides with the dimension that vector loops run along innermost, padded to whole vectors.
pub fn lay_out_locals(nest: &mut LoopNest, target: &Target) {
    let mut vectors = FxHashSet::default();
    let mut along: FxHashMap<usize, FxHashSet<usize>> = FxHashMap::default();
    nest.body.iter().for_each(|s| {
        s.visit(&mut |stmt| match stmt {
            Stmt::Loop { var, kind: LoopKind::Vector, .. } => {
                vectors.insert(*var);
            }
            Stmt::Store { buffer, index, value, .. } => {
                let mut note = |b: usize, index: &[Index]| {
                    for (d, i) in index.iter().enumerate() {
                        if i.affine().is_some_and(|a| a.terms.iter().any(|t| vectors.contains(&t.0))) {
                            along.entry(b).or_default().insert(d);
                        }
                    }
                };
                note(buffer.0 as usize, index);
                value.visit_accesses(&mut |a| note(a.buffer.0 as usize, &a.index));
            }
            _ => {}
        })
    });
    for (b, dimensions) in along {
        let buffer = &mut nest.buffers[b];
        let (1, Some(&d), BufferKind::Local) = (dimensions.len(), dimensions.iter().next(), buffer.kind) else {
            continue;
        };
        let lanes = target.lanes(buffer.dtype.bytes()) as i64;
        let rows = buffer.shape.iter().enumerate().any(|(i, &n)| i != d && n > 1);
        let mut stride = if rows { ceil_div(buffer.shape[d].max(1), lanes) * lanes } else { 1 };
        for i in (0..buffer.shape.len()).rev().filter(|&i| i != d) {
            buffer.strides[i] = stride;
            stride *= buffer.shape[i].max(1);
        }
        buffer.strides[d] = 1;
    }
}

struct Preparer<'a> {
    nest: &'a mut LoopNest,
    target: &'a Target,
    /// Unrolled variables in scope.
    expanded: FxHashSet<Var>,
    /// Iterations of the vector loops in scope.
    extents: FxHashMap<Var, i64>,
    /// Temporaries of each vector loop that have an element for each of its iterations.
    private: &'a mut FxHashMap<Var, Vec<BufferId>>,
}

impl Preparer<'_> {
    /// Vector loops that vectors can do stay; others are rewritten or become serial.
    fn legalize(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        body.into_iter()
            .map(|stmt| match stmt {
                Stmt::Loop { var, lower, upper, step, kind, body } => {
                    if kind == LoopKind::Unroll {
                        self.expanded.insert(var);
                    }
                    let mut body = self.legalize(body);
                    let mut kind = kind;
                    if kind == LoopKind::Vector {
                        self.extents.extend(constant_range(&lower, &upper).map(|(_, extent)| (var, extent)));
                        body = self.mask(var, body);
                        body = self.expand_scalars(var, (&lower, &upper), body);
                        if !self.vectorizes(var, &body, false) {
                            kind = LoopKind::Serial;
                        }
                    }
                    Stmt::Loop { var, lower, upper, step, kind, body }
                }
                other => other.map_body(|body| self.legalize(body)),
            })
            .collect()
    }

    /// Gives temporaries of an iteration an element for each lane, where the loop is a vector loop then.
    fn expand_scalars(&mut self, var: Var, bounds: (&[Bound], &[Bound]), body: Vec<Stmt>) -> Vec<Stmt> {
        let Some((_, extent)) = constant_range(bounds.0, bounds.1) else { return body };
        let Some((expanded, buffers)) = scalar_expansion::expanded(self.nest, var, extent, &body) else { return body };
        if !self.vectorizes(var, &expanded, false) {
            self.nest.buffers.truncate(self.nest.buffers.len() - buffers.len());
            return body;
        }
        self.private.insert(var, buffers);
        expanded
    }

    /// Returns true if a condition is over the vector variable and variables that are not constants when it is
    /// expanded.
    fn is_dynamic(&self, c: &Affine, var: Var) -> bool {
        c.uses(var) && c.terms.iter().any(|t| t.0 != var && !self.expanded.contains(&t.0))
    }

    /// Stores to local buffers under conditions that differ between lanes store a selected value instead; those to memory stay
    /// under the condition where the target stores some lanes.
    fn mask(&mut self, var: Var, body: Vec<Stmt>) -> Vec<Stmt> {
        body.into_iter()
            .map(|stmt| match stmt {
                Stmt::If { conditions, body } => {
                    let (dynamic, mut fixed): (Vec<Affine>, Vec<Affine>) =
                        conditions.into_iter().partition(|c| self.is_dynamic(c, var));
                    let body = self.mask(var, body);
                    let body = match dynamic.is_empty() {
                        true => body,
                        false => match self.masked(var, &body, &dynamic) {
                            Some(body) => body,
                            None => {
                                fixed.extend(dynamic);
                                body
                            }
                        },
                    };
                    Stmt::If { conditions: fixed, body }
                }
                other => other.map_body(|body| self.mask(var, body)),
            })
            .collect()
    }

    fn masked(&self, var: Var, body: &[Stmt], conditions: &[Affine]) -> Option<Vec<Stmt>> {
        // u - lane ≥ 0 is u ≥ lane
        let holds = |c: &Affine| match c.coefficient(var) {
            -1 => {
                let (op, limit) = compared_with_lane(&c.clone().plus(var, 1));
                Expr::compare(op, Expr::Index(limit), Expr::Index(Affine::var(var)))
            }
            _ => Expr::compare(CompareOp::Ge, Expr::Index(c.clone()), Expr::Const(Scalar::i64(0))),
        };
        let condition = conditions.iter().map(holds).reduce(|a, b| Expr::binary(BinaryOp::And, a, b))?;
        body.iter()
            .map(|stmt| match stmt {
                Stmt::If { body, .. } | Stmt::Loop { body, .. } => {
                    Some(stmt.with_body(self.masked(var, body, conditions)?))
                }
                Stmt::Let { .. } => Some(stmt.clone()),
                Stmt::Read { .. } => None,
                Stmt::Store { buffer, index, value, reduce } => {
                    let b = self.nest.buffer(*buffer);
                    // where the conditions fail nothing may be read outside of a buffer: the value does not matter there
                    let value = value.rewrite_loads(&mut |mut a| {
                        let dtype = self.nest.buffer(a.buffer).dtype;
                        a.guard.extend(conditions.iter().cloned());
                        a.otherwise = a.otherwise.or(Some(Scalar { dtype, bits: 0 }));
                        Expr::Load(a)
                    });
                    let kept = b.kind != BufferKind::Local;
                    if kept && self.stores_where(var, *buffer, index) {
                        let store = Stmt::Store { buffer: *buffer, index: index.clone(), value, reduce: *reduce };
                        return Some(Stmt::If { conditions: conditions.to_vec(), body: vec![store] });
                    }
                    let neutral = match reduce {
                        Some(op) => Expr::Const(Scalar::neutral(*op, b.dtype).ok()?),
                        None if b.kind == BufferKind::Local => Expr::Load(crate::expr::Access {
                            buffer: *buffer,
                            index: index.clone(),
                            guard: vec![],
                            otherwise: None,
                        }),
                        None => return None,
                    };
                    // a reduction into memory may leave the buffer where the conditions fail
                    if kept {
                        return None;
                    }
                    let is_neutral = *reduce == Some(BinaryOp::Add) && is_zero_at_zeros(&value);
                    let value = if is_neutral { value } else { Expr::select(condition.clone(), value, neutral) };
                    Some(Stmt::Store { buffer: *buffer, index: index.clone(), value, reduce: *reduce })
                }
            })
            .collect()
    }

    fn stores_where(&self, var: Var, buffer: BufferId, index: &[Index]) -> bool {
        self.extents.get(&var).is_some_and(|&n| stores_where(self.nest, self.target, (var, n), buffer, index))
    }

    /// Returns true for stores of some lanes that read nothing outside of their conditions.
    fn is_masked(&self, var: Var, conditions: &[Affine], body: &[Stmt]) -> bool {
        body.iter().all(|s| {
            let Stmt::Store { buffer, index, value, .. } = s else { return false };
            let mut guarded = self.stores_where(var, *buffer, index);
            value.visit_accesses(&mut |a| guarded &= conditions.iter().all(|c| a.guard.contains(c)));
            guarded
        })
    }

    /// Returns true if the statements can be done for several values of `var` at once. `inside`: in a loop of the body.
    fn vectorizes(&self, var: Var, body: &[Stmt], inside: bool) -> bool {
        body.iter().all(|stmt| match stmt {
            Stmt::Let { value, divisor, .. } => *divisor == 1 || !value.uses(var),
            Stmt::Read { value, .. } => !value.depends_on(var),
            Stmt::If { conditions, body } => {
                (!conditions.iter().any(|c| self.is_dynamic(c, var)) || self.is_masked(var, conditions, body))
                    && self.vectorizes(var, body, inside)
            }
            Stmt::Loop { lower, upper, kind, body, .. } => {
                let real = *kind == LoopKind::Serial;
                *kind != LoopKind::Vector
                    && !lower.iter().chain(upper).any(|b| b.affine.uses(var))
                    && self.vectorizes(var, body, inside || real)
            }
            Stmt::Store { buffer, index, reduce, .. } => {
                let varies = index.iter().filter_map(Index::affine).any(|a| a.uses(var));
                let affine = index.iter().all(|i| i.affine().is_some());
                let uniform = index.iter().filter_map(Index::value).all(|e| !e.depends_on(var));
                let reduces = match reduce {
                    Some(BinaryOp::Add | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max) => !inside,
                    Some(BinaryOp::And | BinaryOp::Or) => {
                        !inside && self.nest.buffer(*buffer).dtype == crate::runtime::DType::Bool
                    }
                    _ => false,
                };
                uniform && (varies || affine && reduces)
            }
        })
    }
}

/// Returns true for products and sums of guarded reads that are 0 where all of these are 0 outside of their guards.
fn is_zero_at_zeros(e: &Expr) -> bool {
    match e {
        Expr::Load(access) => !access.guard.is_empty() && access.otherwise.is_some_and(|o| o.bits == 0),
        Expr::Binary(BinaryOp::Mul, a, b) => {
            let finite =
                |e: &Expr| matches!(e, Expr::Const(c) if !c.dtype.is_float() || Value::from(*c).as_f64().is_finite());
            is_zero_at_zeros(a) && (is_zero_at_zeros(b) || finite(b)) || finite(a) && is_zero_at_zeros(b)
        }
        Expr::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => is_zero_at_zeros(a) && is_zero_at_zeros(b),
        Expr::Unary(UnaryOp::Neg | UnaryOp::Abs, a) => is_zero_at_zeros(a),
        _ => false,
    }
}

/// Returns true if statements look something up in a table.
fn looks_up(nest: &LoopNest, facts: &Facts, body: &[Stmt]) -> bool {
    let is_table = |b: BufferId| nest.is_table(b);
    let names = Names { dtype: &|b| nest.buffer(b).dtype, bounds: &|a| facts.bounds(a), is_table: &is_table };
    let mut any = false;
    body.iter().for_each(|s| s.visit(&mut |s| any |= s.expressions().any(|e| names.looks_up(e))));
    any
}

/// Finds the widest lane type in each vector loop; returns that of `body`.
fn vector_widths(nest: &LoopNest, body: &[Stmt], facts: &mut Facts, widths: &mut FxHashMap<Var, usize>) -> usize {
    widths_inside(nest, body, facts, &mut vec![], widths)
}

/// As [`vector_widths`], inside of the vector loops over `vectors`.
fn widths_inside(
    nest: &LoopNest,
    body: &[Stmt],
    facts: &mut Facts,
    vectors: &mut Vec<Var>,
    widths: &mut FxHashMap<Var, usize>,
) -> usize {
    let mut most = 1;
    for stmt in body {
        most = most.max(match stmt {
            Stmt::Loop { var, lower, upper, step, kind, body } => {
                let mut inside = facts.clone();
                inside.enter_loop(*var, lower, upper, *step);
                vectors.extend((*kind == LoopKind::Vector).then_some(*var));
                let width = widths_inside(nest, body, &mut inside, vectors, widths);
                // a table is not looked up in lanes of 16 bits
                let width = if width == 2 && looks_up(nest, &inside, body) { 4 } else { width };
                if *kind == LoopKind::Vector {
                    vectors.pop();
                    // parts of a loop that was split keep the lanes of the whole
                    let widest = widths.entry(*var).or_insert(width);
                    *widest = width.max(*widest);
                }
                width
            }
            Stmt::If { conditions, body } => {
                let mut inside = facts.clone();
                conditions.iter().for_each(|c| inside.assume(c.clone()));
                widths_inside(nest, body, &mut inside, vectors, widths)
            }
            Stmt::Let { var, value, divisor } => {
                facts.bind(*var, value, *divisor);
                1
            }
            Stmt::Read { var, range, .. } => {
                facts.set_range(*var, *range);
                1
            }
            Stmt::Store { buffer, .. } => {
                let expressions = stmt.expressions().map(|e| widest(nest, facts, vectors, e));
                expressions.fold(buffer_width(nest, *buffer), usize::max)
            }
        });
    }
    most
}

#[cfg(test)]
mod tests {
    use crate::codegen::Target;
    use crate::codegen::loopnest::parse;
    use crate::codegen::select::lower;
    use crate::codegen::select::tests::check;
    use crate::codegen::vcode::{Inst, VBinary};
    use crate::expr::CompareOp;

    #[test]
    fn products_of_masked_reads_are_added_without_a_selection() {
        let counts = |value: &str| {
            let text = format!(
                "kernel s {{ P: i64[5] argument 0; V: f32[40] argument 1; W: f32[40] argument 2; Y: f32[4] argument 3 written; acc: f32[1] local;
                 for i in 0..4 {{
                   acc[0] = f32(0.0); let a = clamp(P[i], 0, 40) about 10*i; let b = clamp((P[i + 1] + i64(9)), 0, 40) about 10*i + 10;
                   for k in a..b step 16 {{ vector j in 0..16 {{ if -k - j + b - 1 >= 0 {{ acc[0] add = {value}; }} }} }}
                   Y[i] = acc[0]; }} }}"
            );
            let insts = check(&parse::nest(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), 1).remove(0).insts;
            let count = |f: fn(&Inst) -> bool| insts.iter().filter(|i| f(i)).count();
            [count(|i| matches!(i, Inst::VFma { .. })), count(|i| matches!(i, Inst::VSelect { .. }))]
        };
        assert_eq!(counts("(V[k + j] * W[k + j])"), [1, 0]);
        // not 0 where what is read is 0
        assert_eq!(counts("(V[k + j] - f32(1.0))")[1], 1);
    }

    #[test]
    fn lanes_behind_the_end_gather_the_first_element_and_are_zero() {
        let text = "kernel s {
             P: i64[5] argument 0; C: i32[40] argument 1 from 0 to 8; V: f64[40] argument 2; X: f64[9] argument 3; Y: f64[4] argument 4 written; acc: f64[1] local;
             for i in 0..4 {
               acc[0] = f64(0.0); let a = clamp(P[i], 0, 40) about 5*i; let b = clamp((P[i + 1] + i64(9)), 0, 40) about 5*i + 5;
               for k in a..b step 8 { vector j in 0..8 { if -k - j + b - 1 >= 0 { acc[0] add = (V[k + j] * X[@cast i64(C[k + j])]); } } }
               Y[i] = acc[0]; } }";
        let nest = parse::nest(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let insts = lower(&nest, &Target::avx512()).unwrap().remove(0).insts;
        let count = |f: fn(&Inst) -> bool| insts.iter().filter(|i| f(i)).count();
        assert_eq!(count(|i| matches!(i, Inst::VGatherIndex { .. })), 1);
        assert_eq!(count(|i| matches!(i, Inst::VSelect { .. } | Inst::VConvert { .. })), 0);
        // of what was gathered alone
        assert_eq!(count(|i| matches!(i, Inst::VBinary { op: VBinary::And, .. })), 1);
        assert_eq!(count(|i| matches!(i, Inst::VCompare { op: CompareOp::Gt, .. })), 2);
    }
}
