/* Forks while other threads run, compile and make handles; each child uses the library, too. Arguments: a model with one input and
   one output of floats, a target. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tilewright.h"

static volatile int stop;
static const char *model, *target;
static tilewright_session session;
static tilewright_buffer given, expected;

static int check(tilewright_status status) {
    if (status != TILEWRIGHT_STATUS_OK) printf("%s\n", tilewright_last_error());
    return status != TILEWRIGHT_STATUS_OK;
}

/* Returns true if a session gives other outputs than at first. */
static int run_wrong(tilewright_session session) {
    tilewright_buffer made = {calloc(1, expected.bytes), expected.bytes};
    int wrong = check(tilewright_run(session, &given, 1, &made, 1)) || memcmp(made.data, expected.data, made.bytes);
    free(made.data);
    return wrong;
}

static int compile_wrong(void) {
    tilewright_options options;
    tilewright_session other;
    return check(tilewright_options_create(&options)) || check(tilewright_options_set_threads(options, 2)) ||
           check(tilewright_options_set_target(options, target)) || check(tilewright_compile(model, options, &other)) ||
           check(tilewright_options_free(options)) || run_wrong(other) || check(tilewright_session_free(other));
}

static void *run_often(void *wrong) {
    while (!stop) *(int *)wrong += run_wrong(session);
    return 0;
}

static void *compile_often(void *wrong) {
    while (!stop) *(int *)wrong += compile_wrong();
    return 0;
}

static void *make_handles(void *wrong) {
    while (!stop) {
        tilewright_options options;
        *(int *)wrong += check(tilewright_options_create(&options)) || check(tilewright_options_free(options));
        /* no handle: a message on this thread */
        tilewright_options_free(options);
    }
    return 0;
}

/* Ends when it does not come to its end. */
static int child(void) {
    alarm(30);
    int wrong = run_wrong(session) || run_wrong(session) || compile_wrong();
    return wrong || check(tilewright_session_free(session)) ||
           tilewright_run(session, &given, 1, &expected, 1) != TILEWRIGHT_STATUS_NO_HANDLE;
}

int main(int argc, char **argv) {
    void *(*work[])(void *) = {run_often, run_often, compile_often, make_handles};
    enum { THREADS = sizeof work / sizeof *work, FORKS = 60 };
    pthread_t threads[THREADS];
    int wrong[THREADS] = {0}, failures = 0;
    tilewright_options options;
    tilewright_tensor input, output;
    if (argc != 3) return 2;
    model = argv[1];
    target = argv[2];
    if (check(tilewright_options_create(&options)) || check(tilewright_options_set_threads(options, 2)) ||
        check(tilewright_options_set_target(options, target)) || check(tilewright_compile(model, options, &session)) ||
        check(tilewright_input(session, 0, &input)) || check(tilewright_output(session, 0, &output)))
        return 2;
    given.data = calloc(1, given.bytes = input.bytes);
    expected.data = calloc(1, expected.bytes = output.bytes);
    for (size_t i = 0; i < input.bytes / sizeof(float); i++) ((float *)given.data)[i] = (float)(i % 11) - 5;
    if (check(tilewright_run(session, &given, 1, &expected, 1))) return 2;
    for (int t = 0; t < THREADS; t++)
        if (pthread_create(&threads[t], 0, work[t], &wrong[t])) return 2;
    for (int f = 0; f < FORKS; f++) {
        int status;
        pid_t pid = fork();
        if (pid < 0) return 2;
        if (!pid) _exit(child());
        if (waitpid(pid, &status, 0) != pid || status) {
            printf("fork %d: status %d\n", f, status);
            failures++;
        }
    }
    stop = 1;
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], 0);
        failures += wrong[t];
    }
    printf("%d failures\n", failures);
    return failures != 0;
}
