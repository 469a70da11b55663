//! Operands that a statement converts wherever it reads them: a copy of such an operand can have the converted elements.

use crate::expr::{Access, Expr};
use crate::poly::scop::Scop;
use crate::poly::statement::Statement;
use crate::runtime::DType;

/// The type to which a statement converts what it reads by `access`, where that is f16 or bf16 and each read of it is converted
/// to the same type.
pub fn converted(scop: &Scop, statement: &Statement, access: &Access) -> Option<DType> {
    if !scop.tensor(access.buffer).dtype.is_half() {
        return None;
    }
    let is_read = |e: &Expr| matches!(e, Expr::Load(a) if a == access);
    let (mut reads, mut types) = (0, vec![]);
    for expression in std::iter::once(&statement.body).chain(statement.computed.iter().map(|c| &c.1)) {
        expression.visit(&mut |e| match e {
            Expr::Cast(to, operand) if is_read(operand) => types.push(*to),
            e => reads += usize::from(is_read(e)),
        });
    }
    let to = *types.first()?;
    (reads == types.len() && types.iter().all(|t| *t == to)).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Affine, BinaryOp, BufferId, Index, Var};
    use crate::poly::statement::{Iterator, Role, TensorDecl};

    #[test]
    fn an_operand_is_converted_where_each_of_its_reads_is() {
        let read = || Expr::load(BufferId(0), vec![Affine::var(Var(0))]);
        let Expr::Load(access) = read() else { unreachable!("a read") };
        let of = |dtype: DType, body: Expr| {
            let tensors = vec![TensorDecl::new("X", dtype, [8], Role::Input)];
            let statement = Statement {
                name: "S".into(),
                iterators: vec![Iterator::new("i", 8)],
                domain: vec![],
                target: BufferId(0),
                write: vec![],
                computed: vec![],
                reduce: None,
                body,
            };
            let scop = Scop::in_sequence("t", tensors, vec![statement]);
            converted(&scop, &scop.statements[0], &access)
        };
        let (wide, sum) = (|to| Expr::cast(to, read()), |a, b| Expr::binary(BinaryOp::Add, a, b));
        for half in [DType::F16, DType::BF16] {
            assert_eq!(of(half, sum(wide(DType::F32), wide(DType::F32))), Some(DType::F32));
            assert_eq!(of(half, sum(wide(DType::F32), wide(DType::F64))), None);
            assert_eq!(of(half, sum(wide(DType::F32), Expr::cast(DType::F32, sum(read(), read())))), None);
            let subscript = Access { index: vec![Index::Value(Box::new(read()))], ..access.clone() };
            assert_eq!(of(half, sum(wide(DType::F32), Expr::Load(subscript))), None);
        }
        assert_eq!(of(DType::I8, wide(DType::F32)), None);
    }
}
