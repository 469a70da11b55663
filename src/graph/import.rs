//! ONNX to Graph.
