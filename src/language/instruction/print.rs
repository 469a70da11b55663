//! The syntax tree of instructions as text: `parse(print(file)) == file`.

use super::syntax::{Code, Field, Instruction, InstructionFile, Operand, Semantics};
use crate::codegen::instruction::Form;
use crate::expr::syntax::{Style, element, list};
use std::fmt::{Display, Formatter, Result};

impl Display for InstructionFile {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let items: Vec<String> = self.instructions.iter().map(|i| i.to_string()).collect();
        f.write_str(&items.join("\n"))
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let features: Vec<&str> = self.features.iter().map(|n| &**n).collect();
        writeln!(f, "instruction {} needs {} {{", self.name, features.join(" "))?;
        writeln!(f, "    acc {}", self.accumulator)?;
        self.reads.iter().try_for_each(|o| writeln!(f, "    read {o}"))?;
        if let Some(c) = &self.constant {
            writeln!(f, "    constant {} {} = {}", c.dtype, c.name, c.value)?;
        }
        if !self.temporaries.is_empty() {
            writeln!(f, "    temporary {}", list(&self.temporaries, |n| n.to_string()))?;
        }
        writeln!(f, "    {}", self.semantics)?;
        self.code.iter().try_for_each(|c| writeln!(f, "    {c}"))?;
        f.write_str("}\n")
    }
}

impl Display for Semantics {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let target = match &self.subscripts[..] {
            [] => self.target.to_string(),
            subscripts => element(&self.target, subscripts, Style::Round),
        };
        write!(f, "{target} += {}", self.value.text(Style::Round, 0))?;
        if let Some(order) = &self.order {
            write!(f, " summed over {} {}", list(&order.iterators, |n| n.to_string()), order.order.word())?;
        }
        Ok(())
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter) -> Result {
        write!(f, "{}", self.dtype)?;
        if !self.shape.is_empty() {
            write!(f, "({})", list(&self.shape, |n| n.to_string()))?;
        }
        let form = match self.form {
            Form::Vector => "in vector",
            Form::Tile => "in tile",
            Form::Broadcast => "broadcast",
        };
        write!(f, " {} {form}", self.name)?;
        match self.range {
            Some((least, greatest)) => write!(f, " from {least} to {greatest}"),
            None => Ok(()),
        }
    }
}

impl Display for Code {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let field = |(name, contents): &(_, Field)| match contents {
            Field::Register(register) => format!("{name} = {register}"),
            Field::Number(number, _) => format!("{name} = {number}"),
        };
        let by_element = if self.by_element { "by element " } else { "" };
        write!(f, "encode {by_element}\"{}\" {}", self.line, list(&self.fields, field))
    }
}
