//! Operators of the domain `com.microsoft`: what ONNX Runtime's optimiser and the exporters of language models write.
//!
//! Each is a short expression of the operators of the standard.

pub(super) mod attention;
pub(super) mod fused;
pub(super) mod grouped;
pub(super) mod normalization;
pub(super) mod quantized;
