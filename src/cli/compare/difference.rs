//! The first difference between two schedules: the first line of their trees that is not equal, and the loops around
//! it.

use serde::Serialize;

/// The first place where a tree is not as another one.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Difference {
    /// The loops around the place, outermost first.
    pub inside: Vec<String>,
    /// The line of this tree, `null` at its end.
    pub here: Option<String>,
    /// The line of the other tree, `null` at its end.
    pub there: Option<String>,
}

/// Compares trees as they are printed; `None` when they are the same.
pub fn first(tree: &str, other: &str) -> Option<Difference> {
    // Flags of rows and their division into bands are left out. The ILP begins with C_update where the text has C.
    let rows = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|l| !l.trim_start().starts_with("band"));
        rows.map(|l| l.replace(" coincident", "").replace("_update", "")).collect()
    };
    let (lines, others) = (rows(tree), rows(other));
    let (mut lines, mut others) = (lines.iter().map(String::as_str), others.iter().map(String::as_str));
    let mut around: Vec<(usize, String)> = vec![];
    loop {
        match (lines.next(), others.next()) {
            (None, None) => return None,
            (Some(a), Some(b)) if a.trim() == b.trim() => {
                let depth = indent(a);
                around.retain(|(d, _)| *d <= depth);
                if let Some(name) = row(a) {
                    around.push((depth, name.into()));
                }
            }
            (a, b) => {
                let depth = a.or(b).map_or(0, indent);
                around.retain(|(d, _)| *d <= depth);
                let [here, there] = shown(a, b);
                return Some(Difference { inside: around.into_iter().map(|l| l.1).collect(), here, there });
            }
        }
    }
}

/// Both lines, without the times of the statements when the rest already differs.
fn shown(a: Option<&str>, b: Option<&str>) -> [Option<String>; 2] {
    let short = |l: &str| l.trim().split_once(']').map_or(l.trim().to_string(), |(head, _)| format!("{head}]"));
    let differ = a.map(short) != b.map(short);
    [a, b].map(|l| l.map(|l| if differ { short(l) } else { l.trim().to_string() }))
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The name of the loop that a line is about.
fn row(line: &str) -> Option<&str> {
    line.trim_start().split_once(" [").map(|(name, _)| name)
}

impl Difference {
    pub fn sentence(&self, other: &str) -> String {
        let place = match &self.inside[..] {
            [] => "at the root".to_string(),
            loops => format!("inside of {}", loops.join(", ")),
        };
        let say = |l: &Option<String>| l.as_deref().map_or("nothing more".to_string(), |l| format!("`{l}`"));
        format!("{place}: {} where {other} has {}", say(&self.here), say(&self.there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "band\n  i [serial] C(i)\n  j [serial] C(j)\n  sequence\n    {C}\n      leaf\n";

    #[test]
    fn the_first_difference_has_the_loops_around_it() {
        assert_eq!(first(TREE, TREE), None);
        let tiled = TREE.replace("j [serial]", "j [serial tile 8]");
        let sentence = first(&tiled, TREE).unwrap().sentence("ilp");
        assert_eq!(sentence, "inside of i: `j [serial tile 8]` where ilp has `j [serial]`");
        assert_eq!(first(&TREE.replace("C(", "C_update("), TREE), None);
        let shifted = TREE.replace("C(j)", "C(j + 1)");
        let sentence = first(&shifted, TREE).unwrap().sentence("ilp");
        assert_eq!(sentence, "inside of i: `j [serial] C(j + 1)` where ilp has `j [serial] C(j)`");
        let flat = first("sequence\n", TREE).unwrap();
        assert_eq!(flat.sentence("ilp"), "at the root: `sequence` where ilp has `i [serial]`");
        assert_eq!(first(&TREE.replace("  j [serial]", "  band\n    j [serial]"), TREE), None);
        assert_eq!(
            first(&TREE.replace("band", "band permutable").replace("[serial]", "[serial coincident]"), TREE),
            None
        );
    }
}
