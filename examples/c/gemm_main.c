/* Calls a program of the text language as a function:
     tilewright compile datasets/polybench/gemm.tile --size SMALL --emit object -o .
     cc -std=c99 gemm_main.c gemm.c gemm.o */
#include <stdio.h>
#include "gemm.h"

static double A[GEMM_BYTES_A / sizeof(double)], B[GEMM_BYTES_B / sizeof(double)], C[GEMM_BYTES_C / sizeof(double)];

int main(void) {
    double sum = 0;
    for (size_t i = 0; i < sizeof A / sizeof *A; i++) A[i] = (double)(i % 7);
    for (size_t i = 0; i < sizeof B / sizeof *B; i++) B[i] = (double)(i % 5);
    gemm(C, A, B);
    for (size_t i = 0; i < sizeof C / sizeof *C; i++) sum += C[i];
    printf("%.0f\n", sum);
    return 0;
}
