//! Edits of a tree: finds and replaces rows. While it is edited, a tree has one row in each band.

use crate::expr::syntax::Name;
use crate::poly::schedule::{Band, Node, Row, Schedule};
use crate::poly::scop::Scop;
use crate::poly::statement::StatementId;
use crate::poly::transform::argument::Loop;
use crate::runtime::error::unknown;
use crate::runtime::{Error, Result};

/// Divides bands into one band for each row, and merges nested sequences.
pub fn apart(node: &Node) -> Node {
    fn split(node: Node) -> Node {
        match node {
            Node::Leaf | Node::Sequence(_) => node.map_children(&mut split),
            Node::Band(band, child) => {
                let start = split(*child);
                band.rows.into_iter().rev().fold(start, |below, row| single(row, below))
            }
        }
    }
    split(node.clone().flattened())
}

/// Merges bands that lie directly below each other, and nested sequences.
pub fn together(node: Node) -> Node {
    fn join(node: Node) -> Node {
        match node {
            Node::Leaf | Node::Sequence(_) => node.map_children(&mut join),
            Node::Band(mut band, child) => match join(*child) {
                Node::Band(inner, child) => {
                    band.rows.extend(inner.rows);
                    Node::Band(band, child)
                }
                child => Node::Band(band, Box::new(child)),
            },
        }
    }
    join(node.flattened())
}

pub fn single(row: Row, below: Node) -> Node {
    Node::Band(Band { rows: vec![row], permutable: false }, Box::new(below))
}

/// All rows, outermost first.
pub fn rows(schedule: &Schedule) -> Vec<&Row> {
    let mut out = vec![];
    schedule.for_each_band(&mut |band| out.extend(&band.rows));
    out
}

pub fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::refused(why))
}

/// The statements of this name, or those that one statement of the text became: `S`, or `S_1`, `S_2`.
pub fn statements(scop: &Scop, name: &str) -> Result<Vec<StatementId>> {
    let named = |id: &StatementId| is_called(&scop.statement(*id).name, name);
    let exact: Vec<StatementId> = scop.ids().filter(|id| scop.statement(*id).name == name).collect();
    let statements = if exact.is_empty() { scop.ids().filter(named).collect() } else { exact };
    if statements.is_empty() {
        let names: Vec<&str> = scop.statements.iter().map(|s| s.name.as_str()).collect();
        return refuse(unknown("statement", name, &names));
    }
    Ok(statements)
}

/// Returns true if a statement has the name `name` in the text, or is a part of that statement.
pub fn is_called(full: &str, name: &str) -> bool {
    let numbered = full.strip_prefix(name).and_then(|rest| rest.strip_prefix('_'));
    full == name || numbered.is_some_and(|n| n.parse::<u32>().is_ok())
}

/// Finds the row that `which` names; refuses if there is none or more than one.
pub fn find(scop: &Scop, schedule: &Schedule, which: &Loop) -> Result<Row> {
    let of = match &which.statement {
        None => None,
        Some(name) => Some(statements(scop, name)?),
    };
    let covers = |row: &Row| of.as_ref().is_none_or(|ids| row.phi.iter().any(|p| ids.contains(&p.0)));
    let all = rows(schedule);
    let candidates: Vec<&&Row> = all.iter().filter(|r| r.name == *which.name && covers(r)).collect();
    match candidates[..] {
        [row] => Ok((*row).clone()),
        [] => {
            let names: Vec<&str> = all.iter().map(|r| r.name.as_str()).collect();
            refuse(unknown("loop", &which.to_string(), &names))
        }
        _ => {
            let of = |r: &Row| scop.statement(r.phi[0].0).name.clone();
            let several: Vec<String> = candidates.iter().map(|r| format!("{}({})", of(r), r.name)).collect();
            refuse(format!("several loops are called `{which}`: write {}", several.join(" or ")))
        }
    }
}

/// Replaces `row` and the node below it by the result of `edit`.
pub fn replace(schedule: &Schedule, row: &Row, edit: &mut dyn FnMut(Row, Node) -> Result<Node>) -> Result<Schedule> {
    fn walk(node: Node, row: &Row, edit: &mut dyn FnMut(Row, Node) -> Result<Node>) -> Result<Node> {
        match node {
            Node::Band(mut band, child) if band.rows.first() == Some(row) => edit(band.rows.remove(0), *child),
            node => node.try_map_children(&mut |child| walk(child, row, edit)),
        }
    }
    Ok(Schedule { root: together(walk(apart(&schedule.root), row, edit)?) })
}

/// Refuses names that a loop of the same statements has.
pub fn check_new(schedule: &Schedule, row: &Row, names: &[&Name]) -> Result<()> {
    for (i, name) in names.iter().enumerate() {
        let shares = |r: &&Row| r.phi.iter().any(|p| row.phi.iter().any(|q| q.0 == p.0));
        let taken = rows(schedule).into_iter().filter(shares).any(|r| r != row && r.name == name.text);
        if taken || names[..i].contains(name) {
            return refuse(format!("loop `{name}` is already defined"));
        }
    }
    Ok(())
}

/// The statements below a node that covers `ids`.
pub fn children_of(node: &Node, ids: &[StatementId]) -> Vec<(Vec<StatementId>, Node)> {
    match node {
        Node::Sequence(children) => children.clone(),
        node => vec![(ids.to_vec(), node.clone())],
    }
}

/// A row for some of its statements.
pub fn restrict(row: &Row, ids: &[StatementId]) -> Row {
    Row { phi: row.phi.iter().filter(|p| ids.contains(&p.0)).cloned().collect(), ..row.clone() }
}
