//! Refusals of schedules as data: messages are made of them, and decisions read them.

/// A schedule, or one of its primitives, that would not compute what the program says or cannot be carried out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Refusal {
    /// The place: names of kernels, then file, line and column, each ending in `: `.
    pub context: String,
    /// The primitive as it is written.
    pub primitive: Option<String>,
    /// One sentence without its end.
    pub reason: String,
    /// Two instances that would run in the wrong order: the one that comes too early, then the one that it needs.
    pub instances: Option<[Instance; 2]>,
    /// The tree that the primitive is about, its loops marked.
    pub tree: Option<String>,
    /// The line of the text with the primitive underlined.
    pub excerpt: Option<String>,
    /// The primitive's bytes in that text.
    pub span: Option<std::ops::Range<usize>>,
}

/// One instance of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// Name of the statement.
    pub statement: String,
    /// Trip numbers of its loops, outermost first: they count from 0 whatever the text counts from.
    pub trips: Vec<i64>,
}

impl Refusal {
    /// Makes a refusal with a reason only.
    pub fn new(reason: impl Into<String>) -> Box<Refusal> {
        Box::new(Refusal { reason: reason.into(), ..Refusal::default() })
    }

    /// The refusal without tree and excerpt, on one line.
    pub fn headline(&self) -> String {
        let primitive = self.primitive.as_ref().map_or(String::new(), |p| format!("`{p}`: "));
        format!("{}{primitive}{}", self.context, self.reason)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.headline())?;
        [&self.tree, &self.excerpt].into_iter().flatten().try_for_each(|part| write!(f, "\n{part}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_place_primitive_reason_tree_and_line() {
        let refusal = Refusal {
            context: "a.tile:2:3: ".into(),
            primitive: Some("parallel i".into()),
            tree: Some("  i [serial]   <--".into()),
            excerpt: Some("    parallel i".into()),
            ..*Refusal::new("no")
        };
        assert_eq!(refusal.to_string(), "a.tile:2:3: `parallel i`: no\n  i [serial]   <--\n    parallel i");
        assert_eq!(Refusal::new("no").to_string(), "no");
    }
}
