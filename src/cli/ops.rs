//! `ops`: the table of ONNX operators.

use std::fmt::Write;
use tilewright::Result;
use tilewright::internal::graph::import::catalogue::{Operator, operators};

#[derive(clap::Args)]
pub struct Arguments {
    /// Print the table as Markdown
    #[arg(long)]
    markdown: bool,
}

impl Arguments {
    pub fn run(self) -> Result<String> {
        let operators = operators();
        Ok(if self.markdown { markdown(&operators) } else { plain(&operators) })
    }
}

fn name(operator: &Operator) -> String {
    match operator.domain {
        "" => operator.name.to_string(),
        domain => format!("{domain}::{}", operator.name),
    }
}

fn plain(operators: &[Operator]) -> String {
    let width = operators.iter().map(|o| name(o).len()).max().unwrap_or(0);
    let mut text = String::new();
    for operator in operators {
        let (name, attributes) = (name(operator), operator.attributes.join(" "));
        let line = format!("{name:width$}  from opset {:<2}  {attributes}", operator.since);
        writeln!(text, "{}", line.trim_end()).expect("a string takes all text");
    }
    text
}

/// The page `docs/operators.md`.
pub fn markdown(operators: &[Operator]) -> String {
    let mut text = "# ONNX operators\n\n\
        Made by `tilewright ops --markdown`. Operator sets 1 to 28; what a model asks of an operator beyond this is refused by \
        name when it is loaded or compiled.\n\n\
        | operator | from opset | attributes |\n|---|---:|---|\n"
        .to_string();
    for operator in operators {
        let attributes: Vec<String> = operator.attributes.iter().map(|a| format!("`{a}`")).collect();
        writeln!(text, "| {} | {} | {} |", name(operator), operator.since, attributes.join(" "))
            .expect("a string takes all text");
    }
    text + "\n`Resize` with `align_corners` and scales that give no whole sizes takes its positions from the sizes before they are rounded \
            down, as ONNX's reference does; ONNX Runtime takes them from the rounded ones.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_table() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = std::fs::read_to_string(root.join("docs/operators.md")).unwrap();
        assert!(page == markdown(&operators()), "run `tilewright ops --markdown > docs/operators.md`");
    }
}
