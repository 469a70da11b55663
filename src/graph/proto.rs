//! ONNX messages for prost.
