//! ONNX models made in a test: nodes, graphs and types by name.
#![allow(dead_code, reason = "each test file uses a part")]

use prost::Message;
use tilewright::Model;
use tilewright::internal::graph::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

pub const FLOAT: i32 = 1;
pub const INT64: i32 = 7;
pub const STRING: i32 = 8;
pub const BOOL: i32 = 9;
pub const DOUBLE: i32 = 11;

/// A tensor of these extents; a name is a dynamic dimension. `None`: of any rank.
pub fn tensor(name: &str, elem_type: i32, shape: Option<&[&str]>) -> ValueInfoProto {
    let dim = |d: &&str| match d.parse() {
        Ok(size) => DimensionProto { dim_value: Some(size), dim_param: None },
        Err(_) => DimensionProto { dim_value: None, dim_param: Some(d.to_string()) },
    };
    let shape = shape.map(|shape| TensorShapeProto { dim: shape.iter().map(dim).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type, shape });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }) }
}

pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let [input, output] = [inputs, outputs].map(|names| names.iter().map(|n| n.to_string()).collect());
    NodeProto { op_type: op.into(), name: outputs[0].into(), input, output, ..NodeProto::default() }
}

/// A node with an integer attribute.
pub fn with_int(mut node: NodeProto, name: &str, i: i64) -> NodeProto {
    node.attribute.push(AttributeProto { name: name.into(), i, r#type: 2, ..AttributeProto::default() });
    node
}

/// A node with a graph inside.
pub fn with_graph(mut node: NodeProto, name: &str, graph: GraphProto) -> NodeProto {
    node.attribute.push(AttributeProto { name: name.into(), g: Some(graph), r#type: 5, ..AttributeProto::default() });
    node
}

pub fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    let float_data = values.to_vec();
    TensorProto { name: name.into(), dims: dims.to_vec(), data_type: FLOAT, float_data, ..TensorProto::default() }
}

pub fn integers(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    let int64_data = values.to_vec();
    TensorProto { name: name.into(), dims: dims.to_vec(), data_type: INT64, int64_data, ..TensorProto::default() }
}

pub fn graph(
    inputs: Vec<ValueInfoProto>,
    initializer: Vec<TensorProto>,
    node: Vec<NodeProto>,
    output: Vec<ValueInfoProto>,
) -> GraphProto {
    GraphProto { name: "graph".into(), input: inputs, initializer, node, output, ..GraphProto::default() }
}

pub fn bytes(graph: GraphProto, opset: i64) -> Vec<u8> {
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: opset }];
    ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..ModelProto::default() }.encode_to_vec()
}

pub fn model(graph: GraphProto) -> Model {
    Model::parse(&bytes(graph, 17), "nowhere").unwrap()
}
