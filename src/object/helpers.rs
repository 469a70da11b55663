//! The functions that the statements of the steps call, and the messages of their codes.

use crate::object::signature::Signature;
use std::collections::BTreeSet;

/// The first code of sizes that no binding has, behind those of a null workspace and of wrong weights.
pub const FIRST_SIZE_CODE: usize = 3;

/// Messages and functions that the steps of all bindings need.
pub struct Helpers {
    /// The message of each code, from code 1 on.
    pub messages: Vec<String>,
    pub has_parallel: bool,
    pub has_opaque: bool,
    pub has_comparisons: bool,
    /// Element types of subscripts that are checked.
    pub checked: BTreeSet<&'static str>,
    /// The most buffers of a binding that move with loops.
    pub windows: usize,
}

impl Helpers {
    /// The first codes are those of wrong memory and of sizes that no binding has.
    pub fn new(signature: &Signature) -> Helpers {
        let mut messages = vec![
            "the workspace is null".to_string(),
            format!("the weights are not the contents of {}.weights of this object", signature.file),
        ];
        messages.extend(signature.bindings.messages());
        Helpers {
            messages,
            has_parallel: false,
            has_opaque: false,
            has_comparisons: signature.weights_apart,
            checked: BTreeSet::new(),
            windows: 0,
        }
    }

    /// The code of a failure with this message.
    pub fn code(&mut self, message: String) -> usize {
        let position = self.messages.iter().position(|other| *other == message);
        position.unwrap_or_else(|| {
            self.messages.push(message);
            self.messages.len() - 1
        }) + 1
    }

    /// The text of the functions.
    pub fn functions(&self, signature: &Signature) -> String {
        let (name, mut out) = (&signature.name, String::new());
        if self.has_parallel {
            out.push_str(&PARALLEL.replace("SCRATCH", &signature.scratch_bytes.to_string()).replace("NAME", name));
        }
        if self.has_comparisons {
            out.push_str(&EQUAL.replace("NAME", name));
        }
        if self.has_opaque {
            out.push_str(OPAQUE);
        }
        for element in &self.checked {
            out.push_str(&OUTSIDE.replace("ELEMENT", element).replace("NAME", name));
        }
        out
    }
}

/// A parallel loop, a wave of independent iterations at a time.
const PARALLEL: &str = "
struct NAME_call {
    NAME_kernel *kernel;
    void *const *table;
    int64_t start;
    unsigned char *scratch;
};

static void NAME_body(void *context, int64_t first, int64_t last, int thread) {
    const struct NAME_call *c = (const struct NAME_call *)context;
    c->kernel(c->table, c->start + first, c->start + last, c->scratch + (size_t)thread * SCRATCH);
}

static void NAME_phase(const struct NAME_state *s, NAME_kernel *kernel, void *const *table, int64_t count, int64_t width) {
    for (int64_t start = 0; start < count; start += width) {
        struct NAME_call call = {kernel, table, start, s->scratch};
        int64_t iterations = count - start < width ? count - start : width;
        if (s->parallel)
            s->parallel->run(s->parallel->state, iterations, NAME_body, &call);
        else
            NAME_body(&call, 0, iterations, 0);
    }
}
";

/// Comparison of bytes.
const EQUAL: &str = "
static int NAME_equal(const void *a, const void *b, size_t bytes) {
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    int difference = 0;
    for (size_t i = 0; i < bytes; i++) difference |= x[i] ^ y[i];
    return !difference;
}
";

/// A check of the subscripts that kernels take from an integer tensor.
const OUTSIDE: &str = "
static int NAME_outside_ELEMENT(const unsigned char *data, size_t count, size_t first, size_t stride, int64_t lower,
                                int64_t upper) {
    int outside = 0;
    for (size_t i = first; i < count; i += stride) {
        ELEMENT element;
        memcpy(&element, data + i * sizeof element, sizeof element);
        outside |= ((int64_t)element < lower) | ((int64_t)element > upper);
    }
    return outside;
}
";

/// The function of libtilewright_runtime.a that runs what has no kernel.
const OPAQUE: &str = "
#ifndef TILEWRIGHT_OPAQUE
#define TILEWRIGHT_OPAQUE
struct tilewright_view {
    void *data;
    const int64_t *shape;
    uint32_t rank;
    uint32_t type;
};
extern int32_t tilewright_opaque_1(const char *function, const int64_t *attributes, size_t attribute_count,
                                   const struct tilewright_view *inputs, size_t input_count,
                                   const struct tilewright_view *outputs, size_t output_count);
#endif
";
