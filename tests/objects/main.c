/* The parts that all programs have: files, memory, and a callback on three threads. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "m0.h"

static void stop(const char *what) {
    printf("%s\n", what);
    exit(1);
}

static FILE *open_file(const char *name, const char *mode) {
    FILE *file = fopen(name, mode);
    if (!file) stop(name);
    return file;
}

/* Memory of its own for each array, so that a tool sees accesses beyond it. */
static void *exactly(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) stop("no memory");
    return memory;
}

static void fill(void *to, size_t bytes, FILE *file) {
    if (bytes && fread(to, 1, bytes, file) != bytes) stop("a short file");
}

static void drain(const void *from, size_t bytes, FILE *file) {
    if (bytes && fwrite(from, 1, bytes, file) != bytes) stop("a full disk");
}

/* The contents of a file, at a multiple of 64. */
static inline void *whole(const char *name) {
    FILE *file = open_file(name, "rb");
    void *memory = 0;
    long bytes;
    fseek(file, 0, SEEK_END);
    bytes = ftell(file);
    rewind(file);
    if (posix_memalign(&memory, 64, (size_t)bytes)) stop("no memory");
    fill(memory, (size_t)bytes, file);
    fclose(file);
    return memory;
}

static void check(int code, const char *(*message)(int)) {
    if (code) stop(message(code));
}

struct part {
    void (*body)(void *, int64_t, int64_t, int);
    void *context;
    int64_t first, last;
    int thread;
};

static inline void *run_part(void *argument) {
    const struct part *part = (const struct part *)argument;
    /* in two ranges, the second one first */
    int64_t middle = part->first + (part->last - part->first) / 2;
    part->body(part->context, middle, part->last, part->thread);
    part->body(part->context, part->first, middle, part->thread);
    return 0;
}

static inline void run_three(void *state, int64_t count, void (*body)(void *, int64_t, int64_t, int), void *context) {
    pthread_t threads[3];
    struct part parts[3];
    (void)state;
    for (int t = 0; t < 3; t++) {
        struct part part = {body, context, count * t / 3, count * (t + 1) / 3, t};
        parts[t] = part;
        if (pthread_create(&threads[t], 0, run_part, &parts[t])) stop("no thread");
    }
    for (int t = 0; t < 3; t++) pthread_join(threads[t], 0);
}

/* For tools that follow one thread. */
static inline void run_serial(void *state, int64_t count, void (*body)(void *, int64_t, int64_t, int), void *context) {
    (void)state;
    body(context, 0, count, 0);
}

#ifdef SERIAL
static const struct tilewright_parallel three_threads = {3, run_serial, 0};
#else
static const struct tilewright_parallel three_threads = {3, run_three, 0};
#endif

