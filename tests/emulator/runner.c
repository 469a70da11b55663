// Runs AArch64 machine code on inputs from a file, beside pages that may not be touched; see mod.rs for the format.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// Calls kernel(table, first, last, scratch) with known values in the registers that a callee keeps; returns how many changed.
// The mode of floating-point arithmetic is another than the kernel's: rounding up, default NaNs.
uint64_t call_checked(void *kernel, void **table, int64_t first, int64_t last, void *scratch);
__asm__(
    ".text\n.globl call_checked\ncall_checked:\n"
    "stp x29, x30, [sp, -176]!\n"
    "stp x19, x20, [sp, 16]\nstp x21, x22, [sp, 32]\nstp x23, x24, [sp, 48]\nstp x25, x26, [sp, 64]\nstp x27, x28, [sp, 80]\n"
    "stp d8, d9, [sp, 96]\nstp d10, d11, [sp, 112]\nstp d12, d13, [sp, 128]\nstp d14, d15, [sp, 144]\n"
    "mov x9, x0\nmov x0, x1\nmov x1, x2\nmov x2, x3\nmov x3, x4\n"
    "mov x19, 119\nmov x20, 120\nmov x21, 121\nmov x22, 122\nmov x23, 123\nmov x24, 124\nmov x25, 125\nmov x26, 126\n"
    "mov x27, 127\nmov x28, 128\n"
    "fmov d8, x19\nfmov d9, x20\nfmov d10, x21\nfmov d11, x22\nfmov d12, x23\nfmov d13, x24\nfmov d14, x25\nfmov d15, x26\n"
    "mov x10, 0x2400000\nmsr fpcr, x10\n"
    "blr x9\n"
    "mov x0, 0\n"
    ".macro check reg, value\ncmp \\reg, \\value\ncinc x0, x0, ne\n.endm\n"
    "mrs x9, fpcr\nmsr fpcr, xzr\nlsr x9, x9, 22\ncheck x9, 9\n"
    "check x19, 119\ncheck x20, 120\ncheck x21, 121\ncheck x22, 122\ncheck x23, 123\ncheck x24, 124\ncheck x25, 125\n"
    "check x26, 126\ncheck x27, 127\ncheck x28, 128\n"
    "fmov x9, d8\ncheck x9, 119\nfmov x9, d9\ncheck x9, 120\nfmov x9, d10\ncheck x9, 121\nfmov x9, d11\ncheck x9, 122\n"
    "fmov x9, d12\ncheck x9, 123\nfmov x9, d13\ncheck x9, 124\nfmov x9, d14\ncheck x9, 125\nfmov x9, d15\ncheck x9, 126\n"
    "ldp x19, x20, [sp, 16]\nldp x21, x22, [sp, 32]\nldp x23, x24, [sp, 48]\nldp x25, x26, [sp, 64]\nldp x27, x28, [sp, 80]\n"
    "ldp d8, d9, [sp, 96]\nldp d10, d11, [sp, 112]\nldp d12, d13, [sp, 128]\nldp d14, d15, [sp, 144]\n"
    "ldp x29, x30, [sp], 176\nret\n");

enum { PAGE = 4096 };

static uint64_t word(FILE *f) {
    uint64_t w;
    if (fread(&w, 8, 1, f) != 1) exit(3);
    return w;
}

static uint8_t *block(FILE *f, uint64_t n) {
    uint8_t *p = malloc(n + 8);
    if (n && fread(p, 1, n, f) != n) exit(4);
    return p;
}

int main(int argc, char **argv) {
    FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
    if (argc != 3 || !in || !out) return 2;
    uint64_t length = word(in);
    uint8_t *bytes = block(in, length);
    uint8_t *code = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, bytes, length);
    mprotect(code, length, PROT_READ | PROT_EXEC);
    __builtin___clear_cache((char *)code, (char *)code + length);
    for (uint64_t cases = word(in), c = 0; c < cases; c++) {
        uint64_t offsets[256], firsts[256], lasts[256];
        uint64_t steps = word(in);
        for (uint64_t i = 0; i < steps; i++) {
            offsets[i] = word(in);
            firsts[i] = word(in);
            lasts[i] = word(in);
        }
        uint64_t scratch_bytes = word(in), count = word(in);
        uint64_t sizes[64];
        uint8_t *inputs[64];
        for (uint64_t k = 0; k < count; k++) {
            sizes[k] = word(in);
            inputs[k] = block(in, sizes[k]);
        }
        uint8_t *scratch = aligned_alloc(64, (scratch_bytes + 127) / 64 * 64);
        for (int at_end = 0; at_end < 2; at_end++) {
            uint8_t *maps[64];
            void *table[64];
            for (uint64_t k = 0; k < count; k++) {
                uint64_t room = sizes[k] ? (sizes[k] + PAGE - 1) / PAGE * PAGE : PAGE;
                maps[k] = mmap(0, room + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                mprotect(maps[k] + PAGE, room, PROT_READ | PROT_WRITE);
                table[k] = maps[k] + PAGE + (at_end ? room - sizes[k] : 0);
                memcpy(table[k], inputs[k], sizes[k]);
            }
            memset(scratch, 0, scratch_bytes);
            uint64_t broken = 0;
            for (uint64_t i = 0; i < steps; i++)
                broken += call_checked(code + offsets[i], table, (int64_t)firsts[i], (int64_t)lasts[i], scratch);
            fwrite(&broken, 8, 1, out);
            for (uint64_t k = 0; k < count; k++) {
                fwrite(table[k], 1, sizes[k], out);
                munmap(maps[k], ((sizes[k] ? (sizes[k] + PAGE - 1) / PAGE * PAGE : PAGE)) + 2 * PAGE);
            }
            fflush(out);
        }
        free(scratch);
        for (uint64_t k = 0; k < count; k++) free(inputs[k]);
    }
    return 0;
}
