//! A declaration to a row: names resolved, the term typed, the code in numbers.

use super::encoding::encoding;
use super::semantics::resolve;
use super::syntax::{Code, Instruction, Operand as Declared};
use crate::codegen::instruction::{
    Constant, Encoding, Form, InstructionName, Operand, Slot, TILE_ROW_BYTES, TILE_ROWS, TensorInstruction,
};
use crate::expr::narrow::dtype_range;
use crate::expr::syntax::Name;
use crate::language::source::{Checked, Diagnostic};
use crate::runtime::error::unknown;
use crate::runtime::{DType, Features};

/// The row that `instruction` declares.
pub fn declare(instruction: &Instruction) -> Checked<TensorInstruction> {
    let features = features(instruction)?;
    let operands: Vec<&Declared> = std::iter::once(&instruction.accumulator).chain(&instruction.reads).collect();
    let constant = instruction.constant.as_ref();
    let registers = operands.iter().map(|o| &o.name).chain(constant.map(|c| &c.name));
    let names: Vec<&Name> = registers.chain(&instruction.temporaries).collect();
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            return Err(Diagnostic::invalid(name.span, format!("`{name}` is already defined")));
        }
    }
    if let Some(o) = operands.iter().find(|o| o.dtype == DType::Bool) {
        return Err(Diagnostic::invalid(o.span, "an operand of an instruction has numbers, not bool"));
    }
    let slot = |name: &Name| match names.iter().position(|n| *n == name) {
        Some(index) if index < operands.len() => Ok(Slot::Operand(index as u8)),
        Some(index) if index == operands.len() && constant.is_some() => Ok(Slot::Constant),
        Some(index) => Ok(Slot::Temporary((index - operands.len() - usize::from(constant.is_some())) as u8)),
        None => Err(Diagnostic::invalid(name.span, unknown("operand or temporary", name, &words(&names)))),
    };
    let code = instruction.code.iter().map(|c| encoding(c, &slot)).collect::<Checked<Vec<Encoding>>>()?;
    for (index, encoding) in code.iter().enumerate() {
        architecture(instruction, index, encoding, features)?;
        four_bits(&operands, &instruction.code[index], encoding)?;
    }
    let first = instruction.code.iter().position(|c| c.by_element).unwrap_or(code.len());
    let (code, element) = code.split_at(first);
    if let Some(line) = instruction.code.get(first) {
        by_element(instruction, element).map_err(|message| Diagnostic::invalid(line.line_span, message))?;
    }
    for name in &names {
        let slot = slot(name)?;
        if !code.iter().any(|e| e.registers().contains(&slot)) {
            return Err(Diagnostic::invalid(name.span, format!("no encoding names `{name}`")));
        }
    }
    let meaning = resolve(instruction, &operands)?;
    let operand = |(o, indices): (&&Declared, Vec<_>)| Operand {
        name: o.name.text.clone(),
        dtype: o.dtype,
        indices,
        form: o.form,
        range: o.range,
    };
    let name = InstructionName::new(&instruction.name.text).ok_or_else(|| {
        let longest = InstructionName::LONGEST;
        Diagnostic::invalid(instruction.name.span, format!("the name has more than {longest} bytes"))
    })?;
    let row = TensorInstruction {
        name,
        features,
        iterators: meaning.iterators,
        operands: operands.iter().zip(meaning.indices).map(operand).collect(),
        constant: constant.map(|c| Constant { dtype: c.dtype, value: c.value }),
        body: meaning.body,
        order: meaning.order,
        code: code.to_vec(),
        element: element.to_vec(),
    };
    if let Some(o) = operands.iter().find(|o| (o.form == Form::Tile) != row.is_tile()) {
        let accumulator = &row.operands[0].name;
        let message = format!("`{}` stands in a register of another kind than the accumulator `{accumulator}`", o.name);
        return Err(Diagnostic::invalid(o.span, message));
    }
    for (n, operand) in operands.iter().enumerate() {
        size(&row, n, operand)?;
    }
    numbers(&row, instruction)?;
    let points = row.iterators.iter().fold(1i64, |points, i| points.saturating_mul(i.extent));
    if points > POINTS {
        let message = format!("the iterators have {points} points, more than {POINTS}");
        return Err(Diagnostic::invalid(instruction.semantics.span, message));
    }
    Ok(row)
}

/// Refuses fields of 4 bits where no other code takes the place of this one: registers are chosen without regard to what a field can name.
fn four_bits(operands: &[&Declared], code: &Code, encoding: &Encoding) -> Checked<()> {
    let has_other_code = |slot: &Slot| {
        code.by_element && matches!(slot, Slot::Operand(n) if operands[usize::from(*n)].form == Form::Broadcast)
    };
    match encoding {
        Encoding::Aarch64 { low, .. } if !low.iter().all(has_other_code) => {
            let message = "a field of 4 bits stands in code by element, for the operand that is broadcast";
            Err(Diagnostic::invalid(code.line_span, message))
        }
        _ => Ok(()),
    }
}

/// Refuses code by element where no single operand is broadcast, or of another architecture than AArch64.
fn by_element(instruction: &Instruction, element: &[Encoding]) -> Result<(), String> {
    let broadcast = instruction.reads.iter().filter(|o| o.form == Form::Broadcast).count();
    if broadcast != 1 {
        return Err(format!("`{}` has {broadcast} operands that are broadcast, not one", instruction.name));
    }
    match element.iter().any(|e| matches!(e, Encoding::X86(_))) {
        true => Err("only AArch64 has instructions by element".into()),
        false => Ok(()),
    }
}

/// Refuses ranges and a constant that the types do not have.
fn numbers(row: &TensorInstruction, instruction: &Instruction) -> Checked<()> {
    for o in &instruction.reads {
        let Some((least, greatest)) = o.range else { continue };
        let Some((low, high)) = dtype_range(o.dtype) else {
            return Err(Diagnostic::invalid(o.span, format!("`{}` is {}, which has no ranges", o.name, o.dtype)));
        };
        if least < low || greatest > high || least > 0 || greatest < 0 {
            let message = format!("a range of {} has 0 and lies in {low} to {high}", o.dtype);
            return Err(Diagnostic::invalid(o.span, message));
        }
    }
    let Some(c) = &instruction.constant else { return Ok(()) };
    if row.is_tile() {
        return Err(Diagnostic::invalid(c.span, "a constant stands in a vector, and this row works on tiles"));
    }
    match dtype_range(c.dtype) {
        Some((low, high)) if (low..=high).contains(&c.value) => Ok(()),
        Some(_) => Err(Diagnostic::invalid(c.span, format!("{} is not a number of {}", c.value, c.dtype))),
        None => Err(Diagnostic::invalid(c.span, format!("a constant is an integer of up to 64 bits, not {}", c.dtype))),
    }
}

/// Points of the iterators of a row: 64 results of 64 terms in a register, and room beyond.
const POINTS: i64 = 1 << 16;

fn words<'a>(names: &[&'a Name]) -> Vec<&'a str> {
    names.iter().map(|n| &***n).collect()
}

/// The features that the declaration needs, all of one architecture.
fn features(instruction: &Instruction) -> Checked<Features> {
    let mut set = Features::default();
    for name in &instruction.features {
        let Some(feature) = Features::by_name(name) else {
            return Err(Diagnostic::invalid(name.span, unknown("processor feature", name, &Features::all_names())));
        };
        if set.contains(feature) {
            return Err(Diagnostic::invalid(name.span, format!("`{name}` stands here twice")));
        }
        set = set.with(feature);
        if !["x86_64", "aarch64"].iter().any(|a| Features::of_architecture(a).contains(set)) {
            let message = format!("`{name}` is a feature of another architecture than those before it");
            return Err(Diagnostic::invalid(name.span, message));
        }
    }
    Ok(set)
}

/// Refuses an encoding of another architecture than the features.
fn architecture(instruction: &Instruction, index: usize, encoding: &Encoding, features: Features) -> Checked<()> {
    let name = match encoding {
        Encoding::X86(_) => "x86_64",
        Encoding::Aarch64 { .. } => "aarch64",
    };
    if Features::of_architecture(name).contains(features) {
        return Ok(());
    }
    let message =
        format!("this is an encoding of {name}, but `{}` needs {}", instruction.name, features.names().join(" "));
    Err(Diagnostic::invalid(instruction.code[index].line_span, message))
}

/// Refuses an operand that does not fit into its register.
fn size(row: &TensorInstruction, n: usize, operand: &Declared) -> Checked<()> {
    let (bytes, most) = (row.bytes(n), row.register_bytes());
    let name = &operand.name;
    if operand.form == Form::Broadcast && ![2, 4, 8].contains(&bytes) {
        let message = format!("`{name}` has {bytes} bytes: a broadcast repeats 2, 4 or 8");
        return Err(Diagnostic::invalid(operand.span, message));
    }
    if bytes > most {
        let message = format!("`{name}` has {bytes} bytes, but a register of `{}` has {most}", row.name);
        return Err(Diagnostic::invalid(operand.span, message));
    }
    let rows = operand.shape.first().map_or(0, |&rows| rows as usize);
    if operand.form == Form::Tile && (rows == 0 || rows > TILE_ROWS || bytes / rows != TILE_ROW_BYTES) {
        let message = format!("`{name}` has no rows of {TILE_ROW_BYTES} bytes, {TILE_ROWS} of them at most");
        return Err(Diagnostic::invalid(operand.span, message));
    }
    Ok(())
}
