//! Types of operator outputs.
