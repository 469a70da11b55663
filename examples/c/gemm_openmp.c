/* As gemm_main.c, on the threads of OpenMP: cc -std=c99 -fopenmp gemm_openmp.c gemm.c gemm.o */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include "gemm.h"

static double A[GEMM_BYTES_A / sizeof(double)], B[GEMM_BYTES_B / sizeof(double)], C[GEMM_BYTES_C / sizeof(double)];

/* Each thread takes a part of equal length. */
static void run(void *state, int64_t count, void (*body)(void *, int64_t, int64_t, int), void *context) {
    const int *threads = (const int *)state;
#pragma omp parallel num_threads(*threads)
    {
        int thread = omp_get_thread_num(), all = omp_get_num_threads();
        body(context, count * thread / all, count * (thread + 1) / all, thread);
    }
}

int main(void) {
    int threads = omp_get_max_threads(), code;
    struct tilewright_parallel parallel = {threads, run, &threads};
    void *workspace = malloc(GEMM_WORKSPACE_BYTES(threads) + 1);
    double sum = 0;
    for (size_t i = 0; i < sizeof A / sizeof *A; i++) A[i] = (double)(i % 7);
    for (size_t i = 0; i < sizeof B / sizeof *B; i++) B[i] = (double)(i % 5);
    code = workspace ? gemm_run(C, A, B, workspace, &parallel) : 1;
    free(workspace);
    if (code) {
        fprintf(stderr, "%s\n", gemm_message(code));
        return 1;
    }
    for (size_t i = 0; i < sizeof C / sizeof *C; i++) sum += C[i];
    printf("%.0f\n", sum);
    return 0;
}
