//! exp, log, tanh, erf as sequences of vector instructions, with error bounds.
