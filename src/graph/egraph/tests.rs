//! No file of the e-graph, its rules and the extraction imports one that imports it, directly or by others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The files below a folder of the graph, by the path of their module, with their text.
fn modules(folder: &Path, name: &str, out: &mut BTreeMap<String, String>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_string();
        if stem == "tests" {
            continue;
        }
        let module = if stem == "mod" { name.to_string() } else { format!("{name}::{stem}") };
        if path.is_dir() {
            modules(&path, &module, out);
        } else {
            out.insert(module, std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The modules that the text names by their whole path.
fn imports(text: &str, all: &BTreeSet<String>) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for statement in text.split("crate::graph::").skip(1) {
        let path: String = statement.chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect();
        let mut path = path.trim_end_matches(':').to_string();
        while !all.contains(&path) {
            let Some(at) = path.rfind("::") else { break };
            path.truncate(at);
        }
        if all.contains(&path) {
            out.insert(path);
        }
    }
    out
}

#[test]
fn files_do_not_import_each_other_in_a_circle() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/graph");
    let mut texts = BTreeMap::new();
    for part in ["egraph", "rules", "extract"] {
        modules(&folder.join(part), part, &mut texts);
        if let Ok(text) = std::fs::read_to_string(folder.join(format!("{part}.rs"))) {
            texts.insert(part.to_string(), text);
        }
    }
    let names: BTreeSet<String> = texts.keys().cloned().collect();
    let mut open: BTreeMap<String, BTreeSet<String>> =
        texts.iter().map(|(name, text)| (name.clone(), imports(text, &names))).collect();
    assert!(open.len() > 15 && open.values().any(|i| i.len() > 3), "{open:?}");
    // Take away what imports nothing that is left, until all is gone.
    loop {
        let free: Vec<String> = open.iter().filter(|(_, i)| i.is_empty()).map(|(n, _)| n.clone()).collect();
        if free.is_empty() {
            break;
        }
        for name in &free {
            open.remove(name);
            open.values_mut().for_each(|imports| imports.retain(|i| i != name));
        }
    }
    assert!(open.is_empty(), "files import each other: {open:?}");
}
