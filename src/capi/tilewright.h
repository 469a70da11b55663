/* The C interface of tilewright, a compiler of ONNX models and tensor expressions. Made by cbindgen: do not edit.

   Handles are numbers, zero is none. A handle that was freed, or is of another kind, gives TILEWRIGHT_STATUS_NO_HANDLE.
   Every function may be called from any thread at any time, also on one handle; tilewright_last_error is of the calling
   thread. Texts are UTF-8 with a zero byte behind them, and are copied. Buffers are dense and row-major, aligned as their elements
   are; outputs overlap no other buffer; the library keeps no pointer to them after the call. A child of fork may use the library and
   its parent's handles: fork waits until the calls of other threads have ended, and calls wait for it. */


#ifndef TILEWRIGHT_CAPI_H
#define TILEWRIGHT_CAPI_H

#include <stddef.h>
#include <stdint.h>

// Version of this interface: programs that were built for another one must not use the library.
#define TILEWRIGHT_ABI_VERSION 1

// The result of a function. `tilewright_last_error` has the message of a failure.
typedef enum {
    // Success.
    TILEWRIGHT_STATUS_OK = 0,
    // The model, an argument or a buffer is wrong.
    TILEWRIGHT_STATUS_INVALID = 1,
    // The request is meaningful, but not supported.
    TILEWRIGHT_STATUS_UNSUPPORTED = 2,
    // A schedule was refused.
    TILEWRIGHT_STATUS_SCHEDULE = 3,
    // A size or effort exceeds a limit.
    TILEWRIGHT_STATUS_LIMIT = 4,
    // A file or the system refused.
    TILEWRIGHT_STATUS_IO = 5,
    // A defect of tilewright.
    TILEWRIGHT_STATUS_INTERNAL = 6,
    // A handle is zero, was freed, or is that of another kind of object.
    TILEWRIGHT_STATUS_NO_HANDLE = 7,
} tilewright_status;

// Element types, with the numbers of the library's.
typedef enum {
    // IEEE binary64.
    TILEWRIGHT_TYPE_F64 = 0,
    // IEEE binary32.
    TILEWRIGHT_TYPE_F32 = 1,
    // IEEE binary16.
    TILEWRIGHT_TYPE_F16 = 2,
    // The upper half of a binary32.
    TILEWRIGHT_TYPE_BF16 = 3,
    // Signed, 64 bits.
    TILEWRIGHT_TYPE_I64 = 4,
    // Signed, 32 bits.
    TILEWRIGHT_TYPE_I32 = 5,
    // Signed, 8 bits.
    TILEWRIGHT_TYPE_I8 = 6,
    // Unsigned, 8 bits.
    TILEWRIGHT_TYPE_U8 = 7,
    // One byte, 0 or 1.
    TILEWRIGHT_TYPE_BOOL = 8,
    // Signed, 16 bits.
    TILEWRIGHT_TYPE_I16 = 9,
    // Unsigned, 16 bits.
    TILEWRIGHT_TYPE_U16 = 10,
    // Unsigned, 32 bits.
    TILEWRIGHT_TYPE_U32 = 11,
    // Unsigned, 64 bits.
    TILEWRIGHT_TYPE_U64 = 12,
    // Signed, 4 bits in a byte.
    TILEWRIGHT_TYPE_I4 = 13,
    // Unsigned, 4 bits in a byte.
    TILEWRIGHT_TYPE_U4 = 14,
    // Signed, 2 bits in a byte.
    TILEWRIGHT_TYPE_I2 = 15,
    // Unsigned, 2 bits in a byte.
    TILEWRIGHT_TYPE_U2 = 16,
    // 4 bits of exponent, 3 of fraction, no infinities.
    TILEWRIGHT_TYPE_F8E4M3FN = 17,
    // As `F8e4m3fn` with a bias of 8, one zero and one not-a-number.
    TILEWRIGHT_TYPE_F8E4M3FNUZ = 18,
    // 5 bits of exponent, 2 of fraction.
    TILEWRIGHT_TYPE_F8E5M2 = 19,
    // As `F8e5m2` with a bias of 16, no infinities, one zero and one not-a-number.
    TILEWRIGHT_TYPE_F8E5M2FNUZ = 20,
    // A power of two.
    TILEWRIGHT_TYPE_F8E8M0 = 21,
    // 2 bits of exponent, 1 of fraction, in a byte.
    TILEWRIGHT_TYPE_F4E2M1 = 22,
} tilewright_type;

// Options of a compilation. Zero is no options: the defaults.
typedef struct {
    uint64_t id;
} tilewright_options;

// A compiled model that is ready to run. Zero is not a session.
typedef struct {
    uint64_t id;
} tilewright_session;

// An input or an output. The pointers lead into the session.
typedef struct {
    // Name, in UTF-8, with a zero byte behind it. A zero byte inside of the name is left out.
    const char *name;
    // Element type.
    tilewright_type element;
    // Number of extents.
    size_t rank;
    // Extents, outermost first.
    const int64_t *shape;
    // Bytes of all elements, row-major.
    size_t bytes;
} tilewright_tensor;

// Memory of one input or output: dense, row-major.
typedef struct {
    // The first element, at a multiple of the element's size.
    void *data;
    // Bytes of all elements.
    size_t bytes;
} tilewright_buffer;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the interface that the library has; compare it with `TILEWRIGHT_ABI_VERSION`.
uint32_t tilewright_abi_version(void);

// The version of the library, as text that stays.
const char *tilewright_version(void);

// Makes options with their defaults: the best target of this processor, a thread for each of its cores.
//
// # Safety
// `options` is null or leads to memory for a handle.
tilewright_status tilewright_options_create(tilewright_options *options);

// Frees options. Sessions that were made with them stay.
tilewright_status tilewright_options_free(tilewright_options options);

// Sets the threads of a run; 0 counts as 1.
tilewright_status tilewright_options_set_threads(tilewright_options options, uint32_t threads);

// Sets the target by its name, one of `tilewright targets`.
//
// # Safety
// `name` is null or a text with a zero byte behind it.
tilewright_status tilewright_options_set_target(tilewright_options options, const char *name);

// Sets how quotients and square roots of f32 are computed: `exact`, the default, or `approximate`.
//
// # Safety
// `kind` is null or a text with a zero byte behind it.
tilewright_status tilewright_options_set_quotients(tilewright_options options, const char *kind);

// Sets the type of the operands of products and convolutions that a network has in f32: `f32`, the default, `bf16` or `f16`.
//
// # Safety
// `name` is null or a text with a zero byte behind it.
tilewright_status tilewright_options_set_precision(tilewright_options options,
                                                   const char *name);

// Sets the type in which a network sums products of f16: `f32`, the default, or `f16`, which a target without instructions for it
// refuses when it compiles.
//
// # Safety
// `name` is null or a text with a zero byte behind it.
tilewright_status tilewright_options_set_accumulate(tilewright_options options,
                                                    const char *name);

// Sets the size of a dynamic dimension or of a program's parameter. All must have sizes, but those that a set of sizes has.
//
// # Safety
// `name` is null or a text with a zero byte behind it.
tilewright_status tilewright_options_set_dim(tilewright_options options,
                                             const char *name,
                                             int64_t size);

// Sets a directory for compiled modules, which is made for this user alone, and their bytes.
//
// # Safety
// `directory` is null or a text with a zero byte behind it.
tilewright_status tilewright_options_set_cache(tilewright_options options, const char *directory, uint64_t max_bytes);

// Sets the bytes that a tensor, all weights or a run may take.
tilewright_status tilewright_options_set_max_memory(tilewright_options options, uint64_t bytes);

// Sets tensor instructions to use beside the built-in ones, declared by a text.
//
// # Safety
// `declarations` is null or a text with a zero byte behind it.
tilewright_status tilewright_options_set_instructions(tilewright_options options, const char *declarations);

// Compiles an ONNX file, or the first program of a `.tile` file with its first set of sizes.
//
// # Safety
// `path` is null or a text with a zero byte behind it, `session` is null or leads to memory for a handle.
tilewright_status tilewright_compile(const char *path, tilewright_options options, tilewright_session *session);

// Compiles a program of a `.tile` file with a set of sizes; null stands for the first of either.
//
// # Safety
// `path`, `program` and `sizes` are null or texts with a zero byte behind them, `session` is null or leads to memory for a handle.
tilewright_status tilewright_compile_program(const char *path,
                                             const char *program,
                                             const char *sizes,
                                             tilewright_options options,
                                             tilewright_session *session);

// Compiles the bytes of an ONNX file; external data is looked for in the current directory.
//
// # Safety
// `bytes` leads to `length` bytes, which do not change during the call; `session` is null or leads to memory for a handle.
tilewright_status tilewright_compile_onnx(const void *bytes,
                                          size_t length,
                                          tilewright_options options,
                                          tilewright_session *session);

// Reads a module that was saved, to run on so many threads. A module is a program: read only modules that you trust with an
// executable. Its file must not change in place while it is in use.
//
// # Safety
// `path` is null or a text with a zero byte behind it, of a module whose code is right; `session` is null or leads to memory for
// a handle.
tilewright_status tilewright_load(const char *path,
                                  uint32_t threads,
                                  tilewright_session *session);

// Writes the module of a session to a file, which `tilewright_load` and the command line take. An old file is replaced in one step.
//
// # Safety
// `path` is null or a text with a zero byte behind it.
tilewright_status tilewright_save(tilewright_session session,
                                  const char *path);

// Frees a session. Runs of it on other threads end as if it were not freed; the memory is given back after the last one.
tilewright_status tilewright_session_free(tilewright_session session);

// The number of inputs of a session.
//
// # Safety
// `count` is null or leads to memory for a number.
tilewright_status tilewright_input_count(tilewright_session session, size_t *count);

// The number of outputs of a session.
//
// # Safety
// `count` is null or leads to memory for a number.
tilewright_status tilewright_output_count(tilewright_session session, size_t *count);

// Name, type and shape of an input. What its pointers lead to stays until the session is freed.
//
// # Safety
// `tensor` is null or leads to memory for a description.
tilewright_status tilewright_input(tilewright_session session, size_t index, tilewright_tensor *tensor);

// Name, type and shape of an output, as [`tilewright_input`].
//
// # Safety
// `tensor` is null or leads to memory for a description.
tilewright_status tilewright_output(tilewright_session session, size_t index, tilewright_tensor *tensor);

// Runs a session: reads the inputs and writes the outputs where they lie, both in the model's order. No output may overlap another buffer.
// Any number of threads may run one session at the same time, on outputs of their own; the results have the same bits.
//
// # Safety
// `inputs` and `outputs` lead to as many buffers as the counts say, and each buffer to as many bytes as it says. Nobody writes
// the inputs or uses the outputs during the run.
tilewright_status tilewright_run(tilewright_session session,
                                 const tilewright_buffer *inputs,
                                 size_t input_count,
                                 const tilewright_buffer *outputs,
                                 size_t output_count);

// The message of the last failure on this thread; empty where there was none. It stays until the next failure on this thread.
const char *tilewright_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TILEWRIGHT_CAPI_H */
