//! VCode to AArch64 machine code: Advanced SIMD.
