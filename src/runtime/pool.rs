//! The thread pool: static partition, short wait inside a run, sleep between runs.
