//! Listings of emitted code.
