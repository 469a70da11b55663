/* Uses an object of one input, one output, a workspace and constants apart wrongly, expects codes, and runs it on several threads at the same time. */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "m0.h"

static int failures;
static void *weights, *input, *expected;

static void expect_at(int line, int code, const char *words) {
    if (!strstr(m0_message(code), words)) {
        printf("line %d: code %d: %s\n", line, code, m0_message(code));
        failures++;
    }
}
#define expect(code, words) expect_at(__LINE__, code, words)

static void *memory(size_t bytes) {
    void *memory = 0;
    if (posix_memalign(&memory, 64, bytes)) exit(2);
    memset(memory, 0, bytes);
    return memory;
}

static void *run_often(void *wrong) {
    void *output = memory(m0_output_bytes[0]), *workspace = memory(M0_WORKSPACE_BYTES(1));
    for (int i = 0; i < 100; i++)
        if (m0_run(input, output, weights, workspace, 0) || memcmp(output, expected, m0_output_bytes[0])) ++*(int *)wrong;
    free(output);
    free(workspace);
    return 0;
}

int main(void) {
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    int wrong[THREADS] = {0}, status;
    FILE *file = fopen("m0.weights", "rb");
    weights = memory(M0_BYTES_OF_WEIGHTS);
    if (!file || fread(weights, 1, M0_BYTES_OF_WEIGHTS, file) != M0_BYTES_OF_WEIGHTS) return 2;
    fclose(file);
    input = memory(m0_input_bytes[0]);
    expected = memory(m0_output_bytes[0]);
    for (size_t i = 0; i < m0_input_bytes[0] / sizeof(float); i++) ((float *)input)[i] = (float)(i % 9) - 4;
    void *workspace = memory(M0_WORKSPACE_BYTES(1)), *other = memory(M0_BYTES_OF_WEIGHTS);

    expect(m0_run(input, expected, weights, 0, 0), "the workspace is null");
    expect(m0_run(input, expected, 0, workspace, 0), "not the contents of m0.weights");
    expect(m0_run(input, expected, other, workspace, 0), "not the contents of m0.weights");
    expect(m0(input, expected, 0), "not the contents of m0.weights");
    expect(-1, "there is no such code");
    expect(INT_MAX, "there is no such code");
    expect(INT_MIN, "there is no such code");
    expect(m0_run(input, expected, weights, workspace, 0), "success");

    for (int t = 0; t < THREADS; t++)
        if (pthread_create(&threads[t], 0, run_often, &wrong[t])) return 2;
    /* a child of a process whose other threads are in kernels */
    for (int f = 0; f < 10; f++) {
        pid_t pid = fork();
        if (!pid) {
            int bad = 0;
            alarm(30);
            run_often(&bad);
            _exit(bad != 0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status) failures++;
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], 0);
        failures += wrong[t];
    }
    printf("%d failures\n", failures);
    return failures != 0;
}
