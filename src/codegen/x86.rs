//! VCode to x86-64 machine code: AVX2 with FMA, and AVX-512.
