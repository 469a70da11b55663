//! The names that an expression may use, and how it reads them.

use crate::expr::Access;
use crate::expr::Affine;
use crate::expr::syntax::{Span, Style};
use crate::language::source::Checked;
use crate::poly::statement::TensorDecl;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Names that an expression may use.
pub struct Scope<'a> {
    pub sizes: &'a BTreeMap<String, i64>,
    /// Index i is [`Var`] i.
    pub indices: &'a [String],
    /// Array i is [`BufferId`] i.
    pub arrays: &'a [TensorDecl],
    /// The treatment of a read under the condition that some forms are ≥ 0: adds guards or proves bounds.
    pub read: &'a Reader<'a>,
    /// Notation of expressions in messages.
    pub style: Style,
    /// Conditions of the selections around the expression that is being read.
    pub facts: RefCell<Vec<Affine>>,
}

pub type Reader<'a> = dyn Fn(Span, Access, &[Affine]) -> Checked<Access> + 'a;
