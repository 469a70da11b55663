//! The modules of the workspace as one tree, and which file names which: read from the text, without the compiler.
//!
//! In: the crate roots. Out: the edges between files. A re-export of a module's own descendants is a table of contents and
//! makes no edge; whoever uses a re-exported name has an edge to the file that defines it. Code of tests is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Words = Vec<String>;

/// A module with a file of its own.
#[derive(Default)]
struct Module {
    file: PathBuf,
    /// The module that `crate` means here.
    root: Words,
    children: BTreeSet<String>,
    items: BTreeSet<String>,
    imports: BTreeMap<String, Words>,
    globs: Vec<Words>,
    /// Paths outside of re-exports.
    paths: Vec<Words>,
    reexports: Vec<Words>,
}

/// All modules, by their paths in one tree.
#[derive(Default)]
pub struct Modules(BTreeMap<Words, Module>);

fn words(path: &str) -> Words {
    path.split("::").filter(|w| !w.is_empty()).map(str::to_string).collect()
}

/// The code with comments, strings and characters blanked.
fn blank(text: &str) -> String {
    let t: Vec<char> = text.chars().collect();
    let (mut out, mut i) = (String::new(), 0);
    let starts = |i: usize, what: &str| what.chars().enumerate().all(|(k, c)| t.get(i + k) == Some(&c));
    while i < t.len() {
        let before = i.checked_sub(1).map_or(' ', |k| t[k]);
        let start = i;
        if starts(i, "//") {
            while i < t.len() && t[i] != '\n' {
                i += 1;
            }
        } else if t[i] == '"' || (t[i] == 'r' && !is_word(before) && (starts(i, "r\"") || starts(i, "r#"))) {
            let raw = t[i] == 'r';
            let marks = t[i + usize::from(raw)..].iter().take_while(|c| **c == '#').count();
            let end = format!("\"{}", "#".repeat(marks));
            i += usize::from(raw) + marks + 1;
            while i < t.len() && !starts(i, &end) {
                i += if !raw && t[i] == '\\' { 2 } else { 1 };
            }
            i += end.len();
        } else if t[i] == '\'' && (t.get(i + 1) == Some(&'\\') || t.get(i + 2) == Some(&'\'')) {
            i += if t.get(i + 1) == Some(&'\\') { 3 } else { 2 };
            while t.get(i) != Some(&'\'') {
                i += 1;
            }
            i += 1;
        } else {
            out.push(t[i]);
            i += 1;
            continue;
        }
        out.extend(t[start..i.min(t.len())].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The code without inline modules: those of tests, and what is private to a file anyway.
fn without_inline_modules(code: &str) -> String {
    let mut out = String::new();
    let mut depth: Option<i32> = None;
    for line in code.lines() {
        let opens = line.matches('{').count() as i32 - line.matches('}').count() as i32;
        match &mut depth {
            None if declares_module(line).is_some() && line.contains('{') => {
                depth = Some(opens).filter(|d| *d > 0);
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
            Some(d) => {
                *d += opens;
                if *d <= 0 {
                    depth = None;
                }
            }
        }
    }
    out
}

/// The word after `keyword` at the beginning of a line, whatever its visibility.
fn after<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map_or(rest, |r| r.1),
        None => rest,
    });
    let mut line = line.trim_start();
    for word in ["unsafe ", "const fn"] {
        if word != "const fn" || line.starts_with(word) {
            line = line.strip_prefix(word.trim_end_matches("fn")).unwrap_or(line).trim_start();
        }
    }
    line.strip_prefix(keyword)?.strip_prefix(' ').map(|rest| rest.trim_start().split(|c| !is_word(c)).next().unwrap())
}

fn declares_module(line: &str) -> Option<&str> {
    after(line.trim_start(), "mod")
}

/// `a::{b, c as d}` as `(a::b, b)`, `(a::c, d)`; a glob has the name `*`.
fn expand(prefix: &[String], tree: &str, out: &mut Vec<(Words, String)>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let prefix: Words = prefix.iter().cloned().chain(words(&head.replace(char::is_whitespace, ""))).collect();
        let (mut depth, mut start) = (0, 0);
        let group = &group[..group.rfind('}').unwrap_or(group.len())];
        for (i, c) in group.char_indices().chain([(group.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&prefix, &group[start..i], out);
                    start = i + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(p, a)| (p, Some(a.trim().to_string())));
    let mut path: Words = prefix.iter().cloned().chain(words(&path.replace(char::is_whitespace, ""))).collect();
    if path.last().is_some_and(|w| w == "self") {
        path.pop();
    }
    if let (Some(last), false) = (path.last().cloned(), tree.is_empty()) {
        out.push((path, alias.unwrap_or(last)));
    }
}

/// All paths with `::` in code.
fn paths(code: &str) -> Vec<Words> {
    let mut out = vec![];
    let mut path: Words = vec![];
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if length > 0 {
            path.push(rest[..length].to_string());
            rest = &rest[length..];
            let next = rest.trim_start();
            if next.starts_with("::") && next[2..].trim_start().starts_with(is_word) {
                rest = next[2..].trim_start();
                continue;
            }
            if path.len() > 1 {
                out.push(path.clone());
            }
            path.clear();
        } else {
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

impl Modules {
    /// Adds the crate whose root file is `file`; its modules are below `at`.
    pub fn add(&mut self, file: &Path, at: &str) {
        let folder = file.parent().unwrap().to_path_buf();
        self.read(file, words(at), &words(at), &folder);
    }

    fn read(&mut self, file: &Path, path: Words, root: &Words, folder: &Path) {
        let code = without_inline_modules(&blank(&fs::read_to_string(file).unwrap()));
        let mut module = Module { file: file.to_path_buf(), root: root.clone(), ..Module::default() };
        let (mut test, mut rest) = (false, String::new());
        let mut below = vec![];
        for line in code.lines() {
            if let Some(name) = declares_module(line).filter(|_| !test && line.trim_end().ends_with(';')) {
                module.children.insert(name.to_string());
                below.push(name.to_string());
            }
            if !line.starts_with([' ', '}', ')']) {
                for keyword in ["fn", "struct", "enum", "trait", "type", "const", "static", "macro_rules!"] {
                    module.items.extend(after(line, keyword).map(str::to_string));
                }
            }
            test = line.contains("#[cfg(test)]") || line.contains("#[cfg(all(test") || (test && line.starts_with("#["));
            rest.push_str(line);
            rest.push('\n');
        }
        let mut code = String::new();
        let mut text = rest.as_str();
        while let Some(start) = use_at(text) {
            let end = start + text[start..].find(';').unwrap();
            let declaration = &text[start..end];
            let line = text[..start].rfind('\n').map_or(0, |k| k + 1);
            let is_public = text[line..start].contains("pub");
            let mut trees = vec![];
            expand(&[], declaration.trim_start().strip_prefix("use").unwrap(), &mut trees);
            for (tree, name) in trees {
                if name == "*" {
                    module.globs.push(tree[..tree.len() - 1].to_vec());
                } else {
                    module.imports.entry(name).or_insert(tree.clone());
                }
                let named = tree.into_iter().filter(|w| w != "*").collect();
                if is_public { module.reexports.push(named) } else { module.paths.push(named) }
            }
            code.push_str(&text[..line]);
            text = &text[end + 1..];
        }
        code.push_str(text);
        module.paths.extend(paths(&code));
        self.0.insert(path.clone(), module);
        for name in below {
            let (flat, nested) = (folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs"));
            let file = if flat.exists() { flat } else { nested };
            self.read(&file, [path.clone(), vec![name.clone()]].concat(), root, &folder.join(&name));
        }
    }

    /// Resolves a path in a module, from the top of the tree; `None` for other crates and for locals.
    fn absolute(&self, at: &[String], path: &[String]) -> Option<Words> {
        let module = &self.0[at];
        let is_package = path[0].starts_with("tilewright");
        // The door for the workspace's own programs leads to the modules as they are.
        let rest = &path[1 + usize::from(is_package && path.get(1).is_some_and(|w| w == "internal"))..];
        match path[0].as_str() {
            "crate" => Some([&module.root, rest].concat()),
            "tilewright" => Some(rest.to_vec()),
            "tilewright_runtime" => Some([&words("runtime")[..], rest].concat()),
            "self" => Some([at, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|w| *w == "super").count();
                Some([&at[..at.len().checked_sub(ups)?], &path[ups..]].concat())
            }
            name if module.children.contains(name) => Some([at, path].concat()),
            name => {
                let import = module.imports.get(name).filter(|i| **i != path)?;
                (import[0] != name).then_some(())?;
                Some([&self.absolute(at, import)?[..], rest].concat())
            }
        }
    }

    /// The module that defines what `path` names.
    fn definition(&self, path: &[String], depth: usize) -> Option<Words> {
        let mut at: Words = vec![];
        for (k, name) in path.iter().enumerate() {
            let module = self.0.get(&at)?;
            let below = [&at[..], std::slice::from_ref(name)].concat();
            let last = k + 1 == path.len();
            if module.items.contains(name) && (last || !self.0.contains_key(&below)) {
                return Some(at);
            } else if self.0.contains_key(&below) {
                at = below;
            } else if depth == 0 {
                return None;
            } else if let Some(import) = module.imports.get(name) {
                let target = self.absolute(&at, import)?;
                return self.definition(&[&target, &path[k + 1..]].concat(), depth - 1);
            } else {
                let through = |glob: &Words| {
                    let target = self.absolute(&at, glob)?;
                    (target != at).then(|| self.definition(&[&target, &path[k..]].concat(), depth - 1))?
                };
                return module.globs.iter().find_map(through);
            }
        }
        Some(at)
    }

    /// The last module that a path goes through: what it names there comes out of a macro.
    fn deepest(&self, path: &[String]) -> Option<Words> {
        (1..path.len()).rev().map(|n| path[..n].to_vec()).find(|module| self.0.contains_key(module))
    }

    /// `(user, used)` with the path that says so: modules with files of their own, by their paths.
    pub fn edges(&self) -> BTreeMap<(Words, Words), String> {
        let mut edges = BTreeMap::new();
        for (at, module) in &self.0 {
            let elsewhere = |path: &&Words| self.absolute(at, path).is_some_and(|p| !p.starts_with(at));
            for path in module.paths.iter().chain(module.reexports.iter().filter(elsewhere)) {
                let Some(path) = self.absolute(at, path) else { continue };
                let Some(target) = self.definition(&path, 8).or_else(|| self.deepest(&path)) else { continue };
                // The import of a whole module counts where something of it is used.
                if target != *at && target != path {
                    edges.entry((at.clone(), target)).or_insert_with(|| path.join("::"));
                }
            }
        }
        edges
    }

    /// The modules directly below a module.
    pub fn children(&self, at: &str) -> BTreeSet<String> {
        let at = words(at);
        self.0.keys().filter(|p| p.len() == at.len() + 1 && p.starts_with(&at)).map(|p| p[at.len()].clone()).collect()
    }

    pub fn file(&self, at: &[String]) -> &Path {
        &self.0[at].file
    }
}

/// Where the next `use` declaration begins.
fn use_at(text: &str) -> Option<usize> {
    text.match_indices("use ").map(|m| m.0).find(|&at| {
        let line = text[..at].rfind('\n').map_or(0, |k| k + 1);
        let before = text[line..at].trim();
        before.is_empty() || (before.starts_with("pub") && !before.contains(['{', ';', '=']))
    })
}
