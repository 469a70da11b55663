//! Module: code, packed weights and memory plan; saved and loaded.
