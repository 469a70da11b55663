/* Uses the library wrongly in each way, and expects a status. Arguments: a model with one input and one output of floats,
   a target, a path to save to. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tilewright.h"

static int failures;

static void expect_at(int line, tilewright_status found, tilewright_status wanted, const char *words) {
    const char *message = tilewright_last_error();
    if (found != wanted || (words && !strstr(message, words))) {
        printf("line %d: status %d instead of %d: %s\n", line, (int)found, (int)wanted, message);
        failures++;
    }
}
#define expect(found, wanted, words) expect_at(__LINE__, found, TILEWRIGHT_STATUS_##wanted, words)

struct job {
    tilewright_session session;
    tilewright_buffer given, expected;
    int wrong;
};

/* Runs many times on an output of its own. */
static void *run_often(void *argument) {
    struct job *job = (struct job *)argument;
    tilewright_buffer made = {calloc(1, job->expected.bytes), job->expected.bytes};
    for (int i = 0; i < 50; i++) {
        if (tilewright_run(job->session, &job->given, 1, &made, 1) != TILEWRIGHT_STATUS_OK ||
            memcmp(made.data, job->expected.data, made.bytes))
            job->wrong++;
        /* a failure here leaves the messages of other threads alone */
        if (tilewright_session_free((tilewright_session){99}) != TILEWRIGHT_STATUS_NO_HANDLE) job->wrong++;
    }
    free(made.data);
    return 0;
}

/* Runs until the session is freed by another thread. */
static void *run_until_freed(void *argument) {
    struct job *job = (struct job *)argument;
    tilewright_buffer made = {calloc(1, job->expected.bytes), job->expected.bytes};
    tilewright_status status;
    while ((status = tilewright_run(job->session, &job->given, 1, &made, 1)) == TILEWRIGHT_STATUS_OK)
        ;
    job->wrong = status != TILEWRIGHT_STATUS_NO_HANDLE;
    free(made.data);
    return 0;
}

/* Loads a module that was cut off, and one in which a byte differs, at many places. */
static void load_damaged(const char *saved) {
    static char bytes[1 << 20], path[4096];
    tilewright_session none = {77};
    FILE *file = fopen(saved, "rb");
    size_t length = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file) fclose(file);
    if (length < 100 || length == sizeof bytes || snprintf(path, sizeof path, "%s.damaged", saved) >= (int)sizeof path) {
        failures++;
        return;
    }
    for (size_t i = 0; i < 40; i++) {
        size_t at = i < 8 ? 8 * i : length * i / 40;
        for (int whole = 0; whole < 2; whole++) {
            bytes[at] ^= 0x55;
            file = fopen(path, "wb");
            if (!file || fwrite(bytes, 1, whole ? length : at, file) != (whole ? length : at)) failures++;
            if (file) fclose(file);
            bytes[at] ^= 0x55;
            expect(tilewright_load(path, 1, &none), INVALID, path);
        }
    }
    if (none.id != 77) failures++;
}

int main(int argc, char **argv) {
    tilewright_options options, freed;
    tilewright_session session = {0}, other = {0};
    tilewright_options none = {0};
    tilewright_tensor input, output;
    size_t count;
    static char cache[4096];
    if (argc != 4 || snprintf(cache, sizeof cache, "%s.cache", argv[3]) >= (int)sizeof cache) return 2;

    if (tilewright_abi_version() != TILEWRIGHT_ABI_VERSION || !strchr(tilewright_version(), '.')) failures++;
    expect(tilewright_options_create(0), INVALID, "null");
    expect(tilewright_options_create(&options), OK, 0);
    freed = options;
    expect(tilewright_options_free(options), OK, 0);
    expect(tilewright_options_free(freed), NO_HANDLE, "was freed");
    expect(tilewright_options_set_threads(freed, 1), NO_HANDLE, 0);
    expect(tilewright_options_set_threads(none, 1), NO_HANDLE, "zero");
    expect(tilewright_options_create(&options), OK, 0);
    expect(tilewright_options_set_threads(freed, 1), NO_HANDLE, 0);
    expect(tilewright_options_set_threads(options, 1000000), LIMIT, "threads");
    expect(tilewright_options_set_threads(options, 2), OK, 0);
    expect(tilewright_options_set_target(options, 0), INVALID, "null");
    expect(tilewright_options_set_target(options, "z80"), INVALID, "there is no target");
    expect(tilewright_options_set_target(options, "\xff"), INVALID, "UTF-8");
    expect(tilewright_options_set_target(options, argv[2]), OK, 0);
    expect(tilewright_options_set_precision(options, "f64"), INVALID, "there is no precision");
    expect(tilewright_options_set_precision(options, "f32"), OK, 0);
    expect(tilewright_options_set_accumulate(options, "f64"), INVALID, "there is no type of sums");
    expect(tilewright_options_set_accumulate(options, "f32"), OK, 0);
    expect(tilewright_options_set_quotients(options, 0), INVALID, "null");
    expect(tilewright_options_set_quotients(options, "fast"), INVALID, "there is no kind of quotients");
    expect(tilewright_options_set_quotients(options, "exact"), OK, 0);
    expect(tilewright_options_set_instructions(options, "instruction"), INVALID, 0);
    expect(tilewright_options_set_cache(options, 0, 1), INVALID, "null");
    expect(tilewright_options_set_cache(freed, cache, 1), NO_HANDLE, "was freed");
    expect(tilewright_options_set_cache(options, argv[1], 1), OK, 0);
    expect(tilewright_compile(argv[1], options, &session), INVALID, "it is not a directory");
    expect(tilewright_options_set_cache(options, cache, 1 << 30), OK, 0);
    expect(tilewright_options_set_max_memory(freed, 16), NO_HANDLE, "was freed");
    expect(tilewright_options_set_max_memory(options, 16), OK, 0);
    expect(tilewright_compile(argv[1], options, &session), LIMIT, "16 B are allowed");
    expect(tilewright_options_set_max_memory(options, 1 << 30), OK, 0);

    expect(tilewright_compile(argv[1], freed, &session), NO_HANDLE, 0);
    expect(tilewright_compile(argv[1], options, 0), INVALID, "null");
    expect(tilewright_compile(0, options, &session), INVALID, "null");
    expect(tilewright_compile("no/such.onnx", options, &session), IO, "no/such.onnx");
    expect(tilewright_compile_onnx("not a model", 11, options, &session), INVALID, 0);
    expect(tilewright_compile_onnx(0, 5, options, &session), INVALID, "null");
    expect(tilewright_compile_program(argv[1], "p", 0, options, &session), INVALID, ".tile");
    expect(tilewright_compile("/dev/zero", options, &session), INVALID, "not a regular file");
    expect(tilewright_compile("/", options, &session), IO, "directory");
    expect(tilewright_load(argv[1], 1, &session), INVALID, 0);
    expect(tilewright_load("/dev/zero", 1, &session), INVALID, "not a regular file");
    expect(tilewright_load("/", 1, &session), INVALID, "not a regular file");
    expect(tilewright_load("", 1, &session), IO, 0);
    expect(tilewright_load(0, 1, &session), INVALID, "null");
    if (session.id) failures++;
    expect(tilewright_compile(argv[1], options, &session), OK, 0);
    other.id = options.id;
    expect(tilewright_session_free(other), NO_HANDLE, 0);
    expect(tilewright_options_free(options), OK, 0);

    expect(tilewright_input_count(session, 0), INVALID, "null");
    expect(tilewright_input_count(session, &count), OK, 0);
    if (count != 1) return 2;
    expect(tilewright_input(session, 1, &input), INVALID, "there is no input 1");
    expect(tilewright_output(session, (size_t)-1, &output), INVALID, "there is no output");
    expect(tilewright_input(session, 0, &input), OK, 0);
    expect(tilewright_output(session, 0, &output), OK, 0);
    expect(tilewright_save(session, "no/such/folder/m.tw"), IO, 0);
    expect(tilewright_save(session, 0), INVALID, "null");
    expect(tilewright_save(session, "/"), IO, 0);
    expect(tilewright_input(session, 0, 0), INVALID, "null");
    expect(tilewright_output(session, 0, (tilewright_tensor *)((char *)&output + 1)), INVALID, "not aligned");

    float *x = calloc(1, input.bytes + 64), *y = calloc(1, output.bytes + 64);
    if (!x || !y) return 2;
    for (size_t i = 0; i < input.bytes / sizeof(float); i++) x[i] = (float)(i % 11) - 5;
    tilewright_buffer given = {x, input.bytes}, made = {y, output.bytes};
    tilewright_buffer small = {x, input.bytes - 1}, odd = {(char *)x + 1, input.bytes}, null = {0, input.bytes};
    tilewright_buffer same = {x, output.bytes}, edge = {(char *)x + input.bytes - 4, output.bytes};
    tilewright_buffer far = {(void *)(UINTPTR_MAX - 3), input.bytes};
    expect(tilewright_run(session, 0, 1, &made, 1), INVALID, "null");
    expect(tilewright_run(session, &given, 0, &made, 1), INVALID, "0 inputs given");
    expect(tilewright_run(session, &given, 1, &made, 0), INVALID, "0 outputs given");
    expect(tilewright_run(session, &given, (size_t)-1, &made, 1), INVALID, "more than any memory");
    expect(tilewright_run(session, (tilewright_buffer *)((char *)&given + 1), 1, &made, 1), INVALID, "aligned");
    expect(tilewright_run(session, &small, 1, &made, 1), INVALID, "the model wants");
    expect(tilewright_run(session, &odd, 1, &made, 1), INVALID, "multiple");
    expect(tilewright_run(session, &null, 1, &made, 1), INVALID, "is null");
    expect(tilewright_run(session, &far, 1, &made, 1), INVALID, "multiple");
    expect(tilewright_run(session, &given, 1, &same, 1), INVALID, "overlaps");
    expect(tilewright_run(session, &given, 1, &edge, 1), INVALID, "overlaps");
    expect(tilewright_run(session, &given, 1, &made, 1), OK, 0);

    struct job jobs[4];
    pthread_t threads[4];
    for (int t = 0; t < 4; t++) {
        struct job job = {session, given, made, 0};
        jobs[t] = job;
        if (pthread_create(&threads[t], 0, run_often, &jobs[t])) return 2;
    }
    for (int t = 0; t < 4; t++) {
        pthread_join(threads[t], 0);
        failures += jobs[t].wrong;
    }
    expect(tilewright_save(session, argv[3]), OK, 0);
    load_damaged(argv[3]);
    expect(tilewright_load(argv[3], 4000000000u, &other), LIMIT, "threads");
    expect(tilewright_load(argv[3], 1, &other), OK, 0);
    tilewright_buffer again = {calloc(1, output.bytes), output.bytes};
    expect(tilewright_run(other, &given, 1, &again, 1), OK, 0);
    if (memcmp(again.data, made.data, made.bytes)) failures++;
    expect(tilewright_session_free(other), OK, 0);
    free(again.data);

    struct job until = {session, given, made, 0};
    if (pthread_create(&threads[0], 0, run_until_freed, &until)) return 2;
    expect(tilewright_run(session, &given, 1, &made, 1), OK, 0);
    expect(tilewright_session_free(session), OK, 0);
    pthread_join(threads[0], 0);
    failures += until.wrong;
    expect(tilewright_session_free(session), NO_HANDLE, "was freed");
    expect(tilewright_run(session, &given, 1, &made, 1), NO_HANDLE, "was freed");
    free(x);
    free(y);
    printf("%d failures\n", failures);
    return failures != 0;
}
