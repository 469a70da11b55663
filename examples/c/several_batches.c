/* Runs 23 rows in batches of the sizes that an object was compiled for, the largest ones first:
     tilewright compile tests/fixtures/operators/dynamic_batch.onnx --dim N=16,4,1 --emit object -o net
     cc -std=c99 several_batches.c net.c net.o */
#include <stdio.h>
#include "net.h"

enum { ROWS = 23, INPUTS = 8, OUTPUTS = 5 };

int main(void) {
    static float x[ROWS][INPUTS], y[ROWS][OUTPUTS];
    for (int i = 0; i < ROWS * INPUTS; i++) x[i / INPUTS][i % INPUTS] = (float)(i % 7);
    for (int64_t row = 0; row < ROWS;) {
        int64_t batch = 0;
        for (int b = 0; b < NET_BINDINGS; b++) {
            int64_t size = net_dimension_sizes[b][0][0];
            if (size <= ROWS - row && size > batch) batch = size;
        }
        int code = net(batch, x[row], y[row]);
        if (code) {
            printf("%s\n", net_message(code));
            return code;
        }
        printf("%d rows by binding %d\n", (int)batch, net_binding(batch));
        row += batch;
    }
    printf("no binding: %s\n", net_message(-net_binding(23)));
    return 0;
}
