//! Kernels in the cache's directory, by their tensor expressions.
//!
//! In: an expression. Out: its kernel as an earlier compilation made it, of whichever model, for the same target. Networks that
//! differ in their weights have equal expressions, and so do most bindings where a dimension stands in few kernels. What
//! cannot be read is compiled; what cannot be written, or would take more than a quarter of the cache, is left out.

use super::directory::{Directory, Fill};
use super::entry::{self, COMPILER, Draft, VERSION};
use crate::graph::content::{Hash, Hasher};
use crate::pipeline::Options;
use crate::pipeline::linkable::{KernelStore, LinkableKernel};
use crate::poly::statement::Program;
use std::io::Write;

/// The kernels of a directory for one target.
pub struct Kernels {
    directory: Directory,
    max_bytes: u64,
    /// All that decides the code of a kernel beside its expression.
    target: Hash,
}

impl Kernels {
    /// Those of the cache of these options; `None` where there is none that can be used.
    pub fn open(options: &Options) -> Option<Kernels> {
        let cache = options.cache.as_ref()?;
        let directory = Directory::open(&cache.directory).ok()?;
        let mut hasher = Hasher::new("kernels");
        hasher.text(COMPILER).text(&format!("{VERSION} {}", cfg!(debug_assertions)));
        hasher.text(&format!("{:?}", options.target().ok()?)).text(&format!("{:?}", options.instructions));
        Some(Kernels { directory, max_bytes: cache.max_bytes, target: hasher.finish() })
    }

    fn key(&self, program: &Program) -> Option<Hash> {
        let program = postcard::to_stdvec(program).ok()?;
        Some(Hasher::new("kernel").part(&self.target).part(&program).finish())
    }
}

impl KernelStore for Kernels {
    fn find(&self, program: &Program) -> Option<LinkableKernel> {
        entry::read_kernel(&self.directory, &self.key(program)?)
    }

    fn keep(&self, kernels: &[(&Program, &LinkableKernel)]) {
        let draft = |(program, kernel): &(&Program, &LinkableKernel)| {
            let key = self.key(program)?;
            Some((entry::kernel_name(&key), Draft::kernel(&key, kernel).ok()?))
        };
        let drafts: Vec<(String, Draft)> = kernels.iter().filter_map(draft).collect();
        let length = drafts.iter().map(|(_, draft)| draft.length()).sum();
        if drafts.is_empty() || length > self.max_bytes / 4 {
            return;
        }
        let writers: Vec<_> = drafts.iter().map(|(_, draft)| move |out: &mut dyn Write| draft.write(out)).collect();
        let files: Vec<(String, Fill)> =
            drafts.iter().zip(&writers).map(|((name, _), writer)| (name.clone(), writer as Fill)).collect();
        // The warning about a directory that takes nothing is that of the module.
        let _ = self.directory.write(length, self.max_bytes, &files);
    }
}
