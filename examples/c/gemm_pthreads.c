/* As gemm_main.c, on threads that wait for work between loops: cc -std=c99 -pthread gemm_pthreads.c gemm.c gemm.o */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "gemm.h"

enum { THREADS = 4 };

static double A[GEMM_BYTES_A / sizeof(double)], B[GEMM_BYTES_B / sizeof(double)], C[GEMM_BYTES_C / sizeof(double)];

/* The loop at hand: iterations from `next` to `count` are left, `grain` are taken at a time. */
struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    void (*body)(void *, int64_t, int64_t, int);
    void *context;
    int64_t next, count, grain;
    int busy, ended;
};

static struct pool pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, 1, 0, 0};

/* Takes ranges while there are any; the lock is held at the beginning and at the end. */
static void take(struct pool *p, int thread) {
    while (p->next < p->count) {
        int64_t first = p->next, last = first + p->grain < p->count ? first + p->grain : p->count;
        p->next = last;
        p->busy++;
        pthread_mutex_unlock(&p->lock);
        p->body(p->context, first, last, thread);
        pthread_mutex_lock(&p->lock);
        p->busy--;
    }
}

static void *worker(void *argument) {
    int thread = *(const int *)argument;
    pthread_mutex_lock(&pool.lock);
    while (!pool.ended) {
        take(&pool, thread);
        if (!pool.busy) pthread_cond_signal(&pool.done);
        if (!pool.ended) pthread_cond_wait(&pool.work, &pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
    return 0;
}

static void run(void *state, int64_t count, void (*body)(void *, int64_t, int64_t, int), void *context) {
    struct pool *p = (struct pool *)state;
    pthread_mutex_lock(&p->lock);
    p->body = body;
    p->context = context;
    p->next = 0;
    p->count = count;
    p->grain = count / (4 * THREADS) + 1;
    pthread_cond_broadcast(&p->work);
    take(p, 0);
    while (p->busy) pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

int main(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS], started = 1, code;
    struct tilewright_parallel parallel = {THREADS, run, &pool};
    void *workspace = malloc(GEMM_WORKSPACE_BYTES(THREADS) + 1);
    double sum = 0;
    for (; started < THREADS; started++) {
        numbers[started] = started;
        if (pthread_create(&threads[started], 0, worker, &numbers[started])) break;
    }
    for (size_t i = 0; i < sizeof A / sizeof *A; i++) A[i] = (double)(i % 7);
    for (size_t i = 0; i < sizeof B / sizeof *B; i++) B[i] = (double)(i % 5);
    code = workspace ? gemm_run(C, A, B, workspace, &parallel) : 1;
    pthread_mutex_lock(&pool.lock);
    pool.ended = 1;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    while (started > 1) pthread_join(threads[--started], 0);
    free(workspace);
    if (code) {
        fprintf(stderr, "%s\n", gemm_message(code));
        return 1;
    }
    for (size_t i = 0; i < sizeof C / sizeof *C; i++) sum += C[i];
    printf("%.0f\n", sum);
    return 0;
}
