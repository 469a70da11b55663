//! Parser of Scop and Schedule texts (see `print.rs`).

use crate::codegen::instruction::InstructionName;
use crate::codegen::loopnest::parse::Parser;
use crate::expr::BufferId;
use crate::expr::Var;
use crate::poly::print::{KINDS, ROLES};
use crate::poly::schedule::{Band, Node, Row, RowKind, Schedule};
use crate::poly::scop::Scop;
use crate::poly::statement::{ElementRange, Iterator, Statement, StatementId, TensorDecl, write_and_computed};
use crate::poly::storage::{Digit, Private};
use crate::runtime::Result;

/// Parses one Scop and verifies it. `Invalid` names the line.
pub fn scop(text: &str) -> Result<Scop> {
    let mut p = Parser::new("scop", text);
    let mut scop = Scop::default();
    p.expect("scop")?;
    scop.name = p.name()?;
    p.expect("{")?;
    while p.peek_at(1) == ":" {
        let name = p.name()?;
        p.expect(":")?;
        let (dtype, shape) = (p.dtype()?, p.list()?);
        let Some(&(role, _)) = ROLES.iter().find(|r| r.1 == p.peek()) else {
            return p.fail("input, constant, output, inout or temporary");
        };
        p.next();
        let literals = p.literals(dtype)?;
        let mut ranges = vec![];
        while p.accept("from") {
            let lower = p.integer()?;
            p.expect("to")?;
            let upper = p.integer()?;
            let (mut offset, mut stride) = (0, 1);
            if p.accept("at") {
                offset = p.integer()? as u64;
                p.expect("step")?;
                stride = p.integer()?.max(1) as u64;
            }
            ranges.push(ElementRange { offset, stride, lower, upper });
        }
        p.expect(";")?;
        p.buffers.insert(name.clone(), BufferId(scop.tensors.len() as u32));
        scop.tensors.push(TensorDecl { name, dtype, shape, role, literals, ranges, panel: None });
    }
    while p.peek() != "}" && (p.peek() != "order" || p.peek_at(1) == "(") {
        scop.statements.push(statement(&mut p)?);
    }
    scop.order = Schedule::in_sequence(&scop.statements);
    if p.accept("order") {
        scop.order = Schedule { root: node(&mut p, &scop)? };
    }
    while p.accept("private") {
        let private = private(&mut p, &scop)?;
        scop.privates.push(private);
    }
    p.expect("}")?;
    p.end()?;
    scop.verify()?;
    Ok(scop)
}

fn private(p: &mut Parser, scop: &Scop) -> Result<Private> {
    let tensor = tensor(p, scop)?;
    let source = if p.accept("of") { Some(self::tensor(p, scop)?) } else { None };
    let mut out = Private { tensor, source, rows: vec![], layout: vec![] };
    while p.peek_at(1) == "[" {
        out.rows.push(row(p, scop)?);
    }
    if p.accept("as") {
        p.vars = (0..scop.tensor(tensor).shape.len()).map(|d| (format!("d{d}"), Var(d as u32))).collect();
        p.expect("(")?;
        while !p.accept(")") {
            if !out.layout.is_empty() {
                p.expect(",")?;
            }
            let form = p.affine()?;
            p.expect("/")?;
            let divisor = p.integer()?;
            let modulo = if p.accept("%") { Some(p.integer()?) } else { None };
            out.layout.push(Digit { form, divisor, modulo });
        }
    }
    Ok(out)
}

fn tensor(p: &mut Parser, scop: &Scop) -> Result<BufferId> {
    let name = p.name()?;
    match scop.tensors.iter().position(|t| t.name == name) {
        Some(t) => Ok(BufferId(t as u32)),
        None => p.fail("a tensor before this"),
    }
}

fn statement(p: &mut Parser) -> Result<Statement> {
    let name = p.name()?;
    let mut iterators = vec![];
    p.vars.clear();
    p.expect("(")?;
    while !p.accept(")") {
        if !iterators.is_empty() {
            p.expect(",")?;
        }
        let name = p.name()?;
        p.expect("<")?;
        p.vars.insert(name.clone(), Var(iterators.len() as u32));
        iterators.push(Iterator::new(name, p.integer()?));
    }
    let domain = if p.accept("if") { p.conditions()? } else { vec![] };
    p.expect(":")?;
    let (target, index) = p.element()?;
    let (write, computed) = write_and_computed(index);
    let reduce = p.assignment()?;
    let body = p.expr()?;
    p.expect(";")?;
    Ok(Statement { name, iterators, domain, target, write, computed, reduce, body })
}

/// Parses a Schedule of `scop` and verifies it. `Invalid` names the line.
pub fn schedule(text: &str, scop: &Scop) -> Result<Schedule> {
    let mut p = Parser::new("schedule", text);
    let root = node(&mut p, scop)?;
    p.end()?;
    let schedule = Schedule { root };
    schedule.verify(scop)?;
    Ok(schedule)
}

fn node(p: &mut Parser, scop: &Scop) -> Result<Node> {
    if p.accept("leaf") {
        return Ok(Node::Leaf);
    }
    if p.accept("sequence") {
        let mut children = vec![];
        while p.accept("{") {
            let mut ids = vec![id(p, scop)?];
            while p.accept(",") {
                ids.push(id(p, scop)?);
            }
            p.expect("}")?;
            children.push((ids, node(p, scop)?));
        }
        return Ok(Node::Sequence(children));
    }
    p.expect("band")?;
    let permutable = p.accept("permutable");
    let mut rows = vec![];
    while p.peek_at(1) == "[" {
        rows.push(row(p, scop)?);
    }
    Ok(Node::Band(Band { rows, permutable }, Box::new(node(p, scop)?)))
}

fn id(p: &mut Parser, scop: &Scop) -> Result<StatementId> {
    let name = p.peek().to_string();
    match scop.ids().find(|&id| scop.statement(id).name == name) {
        Some(id) => {
            p.next();
            Ok(id)
        }
        None => p.fail("a statement"),
    }
}

fn row(p: &mut Parser, scop: &Scop) -> Result<Row> {
    let name = p.name()?;
    p.expect("[")?;
    let mut row = Row::serial(name, vec![]);
    while !p.accept("]") {
        if p.accept("coincident") {
            row.coincident = true;
        } else if p.accept("tile") {
            row.tile = p.integer()?;
        } else if p.accept("pad") {
            row.pad = p.integer()?;
        } else if p.accept("instruction") {
            match InstructionName::new(p.peek()) {
                Some(name) => row.kind = RowKind::Instruction(name),
                None => return p.fail("the name of an instruction"),
            }
            p.next();
        } else if let Some(&(kind, _)) = KINDS.iter().find(|k| k.1 == p.peek()) {
            row.kind = kind;
            p.next();
        } else {
            return p.fail("a kind of loop, coincident, or a tile size");
        }
    }
    loop {
        let id = id(p, scop)?;
        let iterators = &scop.statement(id).iterators;
        p.vars = iterators.iter().enumerate().map(|(i, it)| (it.name.clone(), Var(i as u32))).collect();
        p.expect("(")?;
        row.phi.push((id, p.affine()?));
        p.expect(")")?;
        if !p.accept(",") {
            return Ok(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::poly::analysis::dependence;
    use crate::poly::normalize::build;
    use crate::poly::{ilp, parse, samples};

    #[test]
    fn text_survives_parsing_and_printing() {
        let g = samples::Conv { size: 14, channels: 8, filters: 16, kernel: 3, stride: 2, pad: 1 };
        for program in [
            samples::matmul(8, 6, 4),
            samples::conv(g),
            samples::maxpool(12, 8, 3, 2, 1),
            samples::softmax(2, 3, 4),
            samples::layernorm(4, 8),
            samples::elementwise([1, 2, 3, 4]),
        ] {
            let scop = build::build("t", &program).unwrap();
            assert_eq!(parse::scop(&scop.to_string()).unwrap(), scop);
            let mut schedule = ilp::schedule(&scop, &dependence::analyze(&scop).unwrap()).unwrap().0;
            if let crate::poly::schedule::Node::Band(band, _) = &mut schedule.root {
                let mut tile = band.rows[0].clone();
                (tile.name, tile.tile) = ("outer".into(), 5);
                band.rows.insert(0, tile);
            }
            assert_eq!(parse::schedule(&schedule.print(&scop), &scop).unwrap(), schedule);
        }
    }

    #[test]
    fn literals_survive_and_fit_their_tensor() {
        let text = build::build("t", &samples::matmul(2, 2, 3)).unwrap().to_string();
        let declared = "B: f32[3][2] constant";
        let with = text.replace(declared, "B: f32[3][2] constant = {1, 0, -1, 0.5, 0, 2}");
        let scop = parse::scop(&with).unwrap();
        assert_eq!(scop.to_string(), with);
        assert!(scop != parse::scop(&text).unwrap());
        for wrong in ["B: f32[3][2] constant = {1, 0, -1, 0.5, 0}", "B: f32[3][2] input = {1, 0, -1, 0.5, 0, 2}"] {
            let error = parse::scop(&text.replace(declared, wrong)).unwrap_err().to_string();
            assert_eq!(error, "invalid: the literals of `B` of `t` do not fit it");
        }
    }

    #[test]
    fn programs_keep_their_order() {
        let text = "\
scop heat {
  A: f64[9] inout;
  B: f64[9] temporary;
  s: f64 inout;
  S(t < 4, i < 9) if i - 1 >= 0 && -i + 7 >= 0: B[i] = (A[i - 1] + A[i + 1]);
  T(t < 4, i < 9) if i - 1 >= 0 && -i + 7 >= 0: A[i] = B[i];
  U(t < 4): s add = A[4];
  order
    band
      t [serial] S(t), T(t), U(t)
      sequence
        {S}
          band
            i [serial] S(i)
            leaf
        {T}
          band
            i [serial] T(-i)
            leaf
        {U}
          leaf
}
";
        let scop = parse::scop(text).unwrap();
        assert_eq!(scop.to_string(), text);
        for (from, to, message) in [
            ("{U}", "{S}", "schedule refused: a sequence covers {S, T, S} where {S, T, U} are scheduled"),
            (
                "[serial] T(-i)",
                "[serial tile 4] T(i)",
                "schedule refused: several instances of `T` run at the same time",
            ),
        ] {
            assert_eq!(parse::scop(&text.replacen(from, to, 1)).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn private_temporaries_survive() {
        let text = "\
scop copied {
  A: f32[8][32] input;
  B: f32[8][32] output;
  A_cache: f32[8][32] temporary;
  t: f32[8] temporary;
  S(i < 8, j < 32): A_cache[i][j] = A[i][j];
  T(i < 8): t[i] = A[i][0];
  U(i < 8, j < 32): B[i][j] = (A_cache[i][j] * t[i]);
  order
    band
      i [serial] S(i), T(i), U(i)
      sequence
        {S}
          band
            j [serial] S(j)
            leaf
        {T}
          leaf
        {U}
          band
            j [serial] U(j)
            leaf
  private A_cache of A
    io [serial tile 2] S(i), U(i)
    as (d1 / 16, d0 / 1, d1 / 1 % 16)
  private t
    i [serial] T(i), U(i)
}
";
        let scop = parse::scop(text).unwrap();
        assert_eq!(scop.to_string(), text);
        assert_eq!(scop.privates.len(), 2);
        for (from, to, message) in [
            ("private t", "private q", "invalid: scop, line 27: expected a tensor before this, found i"),
            ("of A", "of C", "invalid: scop, line 24: expected a tensor before this, found io"),
            (
                "i [serial] T(i), U(i)\n}",
                "i [serial] T(0), U(i)\n}",
                "schedule refused: `t` is private to loop `i`, which does not contain all of its uses",
            ),
        ] {
            assert_eq!(parse::scop(&text.replacen(from, to, 1)).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn wrong_text_is_refused_with_its_line() {
        let scop = build::build("t", &samples::matmul(8, 6, 4)).unwrap();
        let text = scop.to_string();
        for (from, to, message) in [
            ("input", "inward", "scop, line 2: expected input, constant, output, inout or temporary, found inward"),
            ("k < 4", "k < 5", "statement `C_update` of `t`: subscript 1 of `A` leaves 0..4"),
            ("A[m][k] *", "A[m][q] *", "scop, line 7: expected a variable, found q"),
        ] {
            let error = parse::scop(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert_eq!(error, format!("invalid: {message}"));
        }
        let schedule = scop.order.print(&scop);
        for (from, to, message) in [
            (
                "serial",
                "cereal",
                "invalid: schedule, line 4: expected a kind of loop, coincident, or a tile size, found cereal",
            ),
            ("{C_init}", "{C_int}", "invalid: schedule, line 2: expected a statement, found C_int"),
            ("C_init(m)", "C_init(n)", "schedule refused: several instances of `C_init` run at the same time"),
        ] {
            let error = parse::schedule(&schedule.replacen(from, to, 1), &scop).unwrap_err().to_string();
            assert_eq!(error, message);
        }
    }
}
