//! Session: binds inputs, runs the steps of a module, returns outputs.
