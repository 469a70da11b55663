/* Maps the constants of a network, instead of linking them:
     tilewright compile tests/fixtures/operators/conv_batch_norm_relu.onnx --emit object --weights file -o net
     cc -std=c99 mapped_weights.c net.c net.o */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "net.h"

int main(int argc, char **argv) {
    int file = open(argc > 1 ? argv[1] : "net.weights", O_RDONLY), code;
    off_t bytes = file < 0 ? 0 : lseek(file, 0, SEEK_END);
    const void *weights = bytes == NET_BYTES_OF_WEIGHTS ? mmap(0, (size_t)bytes, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    float *x = calloc(1, net_input_bytes[0]), *y = calloc(1, net_output_bytes[0]);
    void *workspace = malloc(NET_WORKSPACE_BYTES(1) + 1);
    if (weights == MAP_FAILED || !x || !y || !workspace) {
        fprintf(stderr, "no weights or no memory\n");
        return 1;
    }
    code = net_run(x, y, weights, workspace, 0);
    printf("%s: %s %g\n", net_message(code), net_output_names[0], y[0]);
    free(x);
    free(y);
    free(workspace);
    return code;
}
