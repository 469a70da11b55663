/* Runs machine code that was made elsewhere. Standard input: the length of the code and the code; the number of cases;
 * for each case the offset of its function, first, last, the bytes of scratch memory, the number of buffers, and each
 * buffer's length and bytes. Standard output: the bytes of all buffers after each call. Numbers are 64-bit, little-endian. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void in(void *to, size_t n) {
    if (n && fread(to, 1, n, stdin) != n) {
        fprintf(stderr, "input ends early\n");
        exit(2);
    }
}

static uint64_t number(void) {
    uint64_t v;
    in(&v, sizeof v);
    return v;
}

typedef void (*phase)(uint8_t **arguments, int64_t first, int64_t last, uint8_t *scratch);

int main(void) {
    uint64_t length = number();
    uint8_t *code = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 3;
    in(code, length);
    if (mprotect(code, length, PROT_READ | PROT_EXEC)) return 4;
    __builtin___clear_cache((char *)code, (char *)code + length);
    for (uint64_t cases = number(); cases > 0; cases--) {
        uint64_t offset = number();
        int64_t first = (int64_t)number(), last = (int64_t)number();
        uint64_t scratch_bytes = number(), count = number();
        uint8_t *buffers[64];
        uint64_t lengths[64];
        if (count > 64) return 5;
        for (uint64_t i = 0; i < count; i++) {
            lengths[i] = number();
            buffers[i] = aligned_alloc(64, (lengths[i] + 127) & ~63ull);
            in(buffers[i], lengths[i]);
        }
        uint8_t *scratch = aligned_alloc(64, (scratch_bytes + 127) & ~63ull);
        memset(scratch, 0xff, scratch_bytes);
        ((phase)(code + offset))(buffers, first, last, scratch);
        for (uint64_t i = 0; i < count; i++) {
            fwrite(buffers[i], 1, lengths[i], stdout);
            free(buffers[i]);
        }
        free(scratch);
    }
    return 0;
}
