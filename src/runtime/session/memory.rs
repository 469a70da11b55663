//! The addresses of a run.

/// The addresses that one run works on.
pub(super) struct Memory {
    /// The arena; after it scratch memory of each thread.
    pub arena: *mut u8,
    pub scratch: *mut u8,
    /// The argument tables of all kernel steps, one after the other.
    pub tables: Vec<*mut u8>,
    /// Address of each buffer of the module.
    pub buffers: Vec<*mut u8>,
    /// Addresses of this run's inputs and outputs, in the model's order.
    pub inputs: Vec<*const u8>,
    pub outputs: Vec<*mut u8>,
}

// SAFETY: the pointers lead into the module's weights, which live as long as the session, or are set anew by the run that
// takes these addresses before it uses them.
unsafe impl Send for Memory {}

impl Memory {
    /// Copies one buffer of a verified module to another, both of so many bytes. An input in the memory of an output is there.
    pub fn copy(&self, from: usize, to: usize, bytes: usize) {
        if self.buffers[from] == self.buffers[to] {
            return;
        }
        // SAFETY: both buffers have this many bytes, the one that is written lies in this run's arena or in an output tensor
        // that is borrowed mutably for the run, and they do not overlap (`Module::verify`).
        unsafe { std::ptr::copy_nonoverlapping(self.buffers[from].cast_const(), self.buffers[to], bytes) };
    }
}
