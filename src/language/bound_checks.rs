//! Bounds of loops that the program computes: what a run keeps of them, and checks at its end.
//!
//! In: the bounds of a loop, and the least or the greatest value that they may have. Out: statements before the loop that keep the least lower and the greatest
//! upper bound in tensors of [`Role::Check`], of loops that are not empty alone. The loop itself runs over its static range under the condition that its index
//! lies between the bounds, so that no bound leads out of an array; a run in which one would have ends with an error.

use super::syntax::{Assign, Assignment, Combine, Statement};
use crate::expr::CompareOp;
use crate::expr::syntax::{Expr as Text, Function, Kind, Name, Operator, Span};
use crate::poly::statement::{ElementRange, Role, TensorDecl};
use crate::runtime::DType;

/// The checks of one program.
pub(super) struct BoundChecks {
    tensors: Vec<TensorDecl>,
    /// The first value of each.
    first: Vec<Statement>,
    /// The place of the program.
    span: Span,
}

/// Beyond all bounds.
const FAR: i64 = 1 << 61;

/// The words for a lower bound, and for an upper one.
const SIDES: [&str; 2] = ["lower", "upper"];

fn name_of(side: &str, index: &str) -> String {
    format!("{side}_bound_of_{index}")
}

/// The bound that a tensor of [`Role::Check`] keeps, in words for its user: `lower bound of k`; `None` for one that keeps something else.
pub(super) fn checked_bound(name: &str) -> Option<String> {
    SIDES.iter().find_map(|side| {
        let index = name.strip_prefix(&name_of(side, ""))?;
        Some(format!("{side} bound of {}", index.trim_end_matches('_')))
    })
}

impl BoundChecks {
    pub fn new(span: Span) -> BoundChecks {
        BoundChecks { tensors: vec![], first: vec![], span }
    }

    /// The statements that keep values before the loop over `index` between two bounds: lower ones with the least that each may have, upper ones with the greatest.
    pub fn record(
        &mut self,
        index: &Name,
        (lower, upper): &(Text, Text),
        values: impl Iterator<Item = (bool, Text, i64)>,
    ) -> Vec<Statement> {
        let runs = lower.clone().joined(Operator::Compare(CompareOp::Lt), upper.clone());
        let mut out: Vec<Statement> = vec![];
        for (is_lower, value, limit) in values {
            let nothing = Text::integer(if is_lower { FAR } else { -FAR }, value.span);
            let combine = if is_lower { Combine::Min } else { Combine::Max };
            let (span, target) = (value.span, self.tensor(index, is_lower, limit));
            let chosen = vec![runs.clone(), value.cast(DType::I64), nothing];
            let value = Text { kind: Kind::Call(Function::Select, chosen), span };
            let kept = Statement::Assign(assignment(target, Assign::Update(combine), value, span));
            if !out.contains(&kept) {
                out.push(kept);
            }
        }
        out
    }

    /// The name of the tensor that keeps the bounds of an index.
    fn tensor(&mut self, index: &Name, is_lower: bool, limit: i64) -> Name {
        let (side, range) = if is_lower { (SIDES[0], (limit, i64::MAX)) } else { (SIDES[1], (i64::MIN, limit)) };
        let range = ElementRange { offset: 0, stride: 1, lower: range.0, upper: range.1 };
        let mut name = name_of(side, &index.text);
        while let Some(known) = self.tensors.iter().find(|t| t.name == name) {
            if known.ranges[0] == range {
                return Name { text: name, span: self.span };
            }
            name.push('_');
        }
        let tensor = TensorDecl::new(&name, DType::I64, [], Role::Check);
        self.tensors.push(TensorDecl { ranges: vec![range], ..tensor });
        let name = Name { text: name, span: self.span };
        let value = Text::integer(limit, self.span);
        self.first.push(Statement::Assign(assignment(name.clone(), Assign::Set, value, self.span)));
        name
    }

    /// The program with the first values of the tensors, and these.
    pub fn finish(self, statements: Vec<Statement>) -> (Vec<Statement>, Vec<TensorDecl>) {
        ([self.first, statements].concat(), self.tensors)
    }
}

fn assignment(target: Name, assign: Assign, value: Text, span: Span) -> Assignment {
    Assignment { label: None, target, subscripts: vec![], assign, value, span }
}
