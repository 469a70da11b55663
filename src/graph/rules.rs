//! Rewrite rules: algebra and layout.
