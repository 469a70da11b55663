//! Executable memory: written once, then read and execute only.
