//! Large pages for the memory that the driver has itself: its copy of the constants, and its static workspace.
//!
//! Linux gives large pages to memory, not to parts of a file: constants of an object are read through pages of 4 KB, which costs
//! misses of the TLB where they are larger than the caches. The first run copies them into memory for which large pages
//! were asked; runs that begin meanwhile read them in the object, and so do all where the system has no such memory.

use crate::object::signature::Signature;

/// Smallest size of memory for which large pages are asked, in bytes; as in the runtime (`OWN_PAGES`).
const LEAST: u64 = 4 << 20;

/// Returns true if the driver copies the constants.
pub fn copies_constants(signature: &Signature) -> bool {
    !signature.weights_apart && signature.constants.constants().len() >= LEAST
}

/// Returns true if the static workspace is large.
fn has_large_workspace(signature: &Signature) -> bool {
    signature.has_plain_function() && signature.arena_bytes + signature.scratch_bytes >= LEAST
}

/// The functions, where the driver needs them.
pub fn functions(signature: &Signature) -> String {
    let mut out = String::new();
    if copies_constants(signature) || has_large_workspace(signature) {
        out.push_str(LARGE);
    }
    if copies_constants(signature) {
        out.push_str(&CONSTANTS.replace("@bytes", &signature.constants.constants().len().to_string()));
    }
    out.replace("@name", &signature.name).replace("@UPPER", &signature.upper)
}

/// The statements that declare and initialise `workspace` in the function without one.
pub fn workspace(signature: &Signature) -> String {
    let Signature { name, upper, .. } = signature;
    match has_large_workspace(signature) {
        false => format!("    static unsigned char workspace[{upper}_WORKSPACE_BYTES(1)];\n"),
        true => format!(
            "    static unsigned char memory[{upper}_IN_LARGE_PAGES({upper}_WORKSPACE_BYTES(1))], *workspace;\n    \
             if (!workspace) workspace = {name}_large(memory, {upper}_WORKSPACE_BYTES(1));\n    \
             if (!workspace) workspace = memory;\n"
        ),
    }
}

/// Memory in large pages. `madvise` and `mmap` are declared here, since the headers of the system have names that a model may have.
const LARGE: &str = "
#define @UPPER_LARGE_PAGE ((size_t)1 << 21)
/* Bytes of memory, at any address, that holds so many bytes in large pages of their own. */
#define @UPPER_IN_LARGE_PAGES(bytes) (((bytes) + 2 * @UPPER_LARGE_PAGE - 1) / @UPPER_LARGE_PAGE * @UPPER_LARGE_PAGE)

/* Asks for large pages in @UPPER_IN_LARGE_PAGES(bytes) bytes of memory that was not used. Returns the start of the first one, or
   null where the system has none. */
#if defined(__linux__) && defined(__GNUC__) && !defined(TILEWRIGHT_SMALL_PAGES)
extern int madvise(void *address, size_t bytes, int advice);

static unsigned char *@name_large(unsigned char *memory, size_t bytes) {
    unsigned char *first = memory + (@UPPER_LARGE_PAGE - (uintptr_t)memory % @UPPER_LARGE_PAGE) % @UPPER_LARGE_PAGE;
    /* 14: MADV_HUGEPAGE */
    return madvise(first, @UPPER_IN_LARGE_PAGES(bytes) - @UPPER_LARGE_PAGE, 14) ? 0 : first;
}
#else
#define @name_large(memory, bytes) 0
#endif
";

/// The address of the constants. Their copy is not static memory: references with 32 bits would have to reach beyond it.
const CONSTANTS: &str = "
/* The constants: in large pages, into which the first run copies them, or in the object. */
#if defined(__linux__) && defined(__GNUC__) && !defined(TILEWRIGHT_SMALL_PAGES)
extern void *mmap(void *address, size_t bytes, int protection, int flags, int file, long offset);

static const unsigned char *@name_constants(void) {
    static unsigned char *copy;
    static char begun;
    unsigned char *large = __atomic_load_n(&copy, __ATOMIC_ACQUIRE);
    if (large) return large;
    if (__atomic_exchange_n(&begun, 1, __ATOMIC_RELAXED)) return @name_weights;
    /* 3: PROT_READ | PROT_WRITE, 34: MAP_PRIVATE | MAP_ANONYMOUS */
    void *memory = mmap(0, @UPPER_IN_LARGE_PAGES(@bytes), 3, 34, -1, 0);
    large = (intptr_t)memory == -1 ? 0 : @name_large((unsigned char *)memory, @bytes);
    if (!large) return @name_weights;
    memcpy(large, @name_weights, @bytes);
    __atomic_store_n(&copy, large, __ATOMIC_RELEASE);
    return large;
}
#else
static const unsigned char *@name_constants(void) {
    return @name_weights;
}
#endif
";
