/* Runs an object of one input and one output on several threads, which all begin with its first run, then in a child process, and by
   the function without a workspace. Writes the output, and prints whether memory is advised to be in large pages. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, RUNS = 5 };
static void *input, *outputs[THREADS];
static pthread_barrier_t start;

static void *run_often(void *number) {
    void *output = outputs[*(int *)number], *workspace = exactly(M0_WORKSPACE_BYTES(3));
    pthread_barrier_wait(&start);
    for (int i = 0; i < RUNS; i++) {
        void *first = exactly(m0_output_bytes[0]);
        check(m0_run(input, first, workspace, &three_threads), m0_message);
        if (i && memcmp(first, output, m0_output_bytes[0])) stop("another result");
        memcpy(output, first, m0_output_bytes[0]);
        free(first);
    }
    free(workspace);
    return 0;
}

static int has_large_pages(void) {
    char line[4096];
    int found = 0;
    FILE *maps = open_file("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, maps))
        if (!strncmp(line, "VmFlags:", 8) && strstr(line, " hg")) found++;
    fclose(maps);
    return found;
}

int main(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS], status;
    FILE *file = open_file("0.in", "rb");
    fill(input = exactly(m0_input_bytes[0]), m0_input_bytes[0], file);
    fclose(file);
    if (has_large_pages()) stop("large pages before a run");
    pthread_barrier_init(&start, 0, THREADS);
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        outputs[t] = exactly(m0_output_bytes[0]);
        if (pthread_create(&threads[t], 0, run_often, &numbers[t])) stop("no thread");
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], 0);
    for (int t = 1; t < THREADS; t++)
        if (memcmp(outputs[0], outputs[t], m0_output_bytes[0])) stop("threads differ");
    /* by the function without a workspace, in a child and here */
    for (int i = 0; i < 2; i++) {
        pid_t child = i ? 0 : fork();
        if (child < 0) stop("no process");
        if (child) {
            if (waitpid(child, &status, 0) != child || status) stop("the child failed");
            continue;
        }
        for (int n = 0; n < RUNS; n++) {
            memset(outputs[1], 0, m0_output_bytes[0]);
            m0(input, outputs[1]);
            if (memcmp(outputs[0], outputs[1], m0_output_bytes[0])) stop("the plain function differs");
        }
        if (!i) _exit(0);
    }
    file = open_file("0.out", "wb");
    drain(outputs[0], m0_output_bytes[0], file);
    fclose(file);
    printf(has_large_pages() ? "large pages\n" : "small pages\n");
    return 0;
}
