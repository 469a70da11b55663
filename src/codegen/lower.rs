//! LoopNest to VCode: vectors, unrolling, registers for local buffers, addresses.
