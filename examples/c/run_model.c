/* Compiles and runs a model through the library:
     cc -std=c99 run_model.c $(pkg-config --cflags --libs tilewright)
     ./a.out MODEL.onnx [NAME=SIZE ...] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tilewright.h"

static void check(tilewright_status status) {
    if (status == TILEWRIGHT_STATUS_OK) return;
    fprintf(stderr, "%d: %s\n", (int)status, tilewright_last_error());
    exit(1);
}

/* Memory for a tensor, all zero. */
static tilewright_buffer buffer(tilewright_tensor tensor) {
    tilewright_buffer result = {calloc(1, tensor.bytes ? tensor.bytes : 1), tensor.bytes};
    if (!result.data) exit(1);
    return result;
}

static void show(const char *role, tilewright_tensor tensor) {
    printf("%s %s: type %d, shape [", role, tensor.name, (int)tensor.element);
    for (size_t d = 0; d < tensor.rank; d++) printf("%s%lld", d ? ", " : "", (long long)tensor.shape[d]);
    printf("], %zu bytes\n", tensor.bytes);
}

int main(int argc, char **argv) {
    tilewright_options options;
    tilewright_session session;
    size_t inputs, outputs;
    if (argc < 2 || tilewright_abi_version() != TILEWRIGHT_ABI_VERSION) return 2;
    check(tilewright_options_create(&options));
    check(tilewright_options_set_threads(options, 2));
    for (int i = 2; i < argc; i++) {
        char *size = strchr(argv[i], '=');
        if (!size) return 2;
        *size = 0;
        check(tilewright_options_set_dim(options, argv[i], atoll(size + 1)));
    }
    check(tilewright_compile(argv[1], options, &session));
    check(tilewright_options_free(options));
    check(tilewright_input_count(session, &inputs));
    check(tilewright_output_count(session, &outputs));

    tilewright_buffer *given = calloc(inputs + 1, sizeof *given), *made = calloc(outputs + 1, sizeof *made);
    if (!given || !made) return 1;
    for (size_t i = 0; i < inputs; i++) {
        tilewright_tensor tensor;
        check(tilewright_input(session, i, &tensor));
        show("input", tensor);
        given[i] = buffer(tensor);
    }
    for (size_t i = 0; i < outputs; i++) {
        tilewright_tensor tensor;
        check(tilewright_output(session, i, &tensor));
        show("output", tensor);
        made[i] = buffer(tensor);
    }
    check(tilewright_run(session, given, inputs, made, outputs));
    if (outputs && made[0].bytes >= sizeof(float)) printf("first element: %g\n", *(float *)made[0].data);
    check(tilewright_session_free(session));
    for (size_t i = 0; i < inputs; i++) free(given[i].data);
    for (size_t i = 0; i < outputs; i++) free(made[i].data);
    free(given);
    free(made);
    return 0;
}
