//! Networks of all operators: a fixture or a few inputs, grown node by node, at times wrapped in functions and graphs inside,
//! and at times changed in a field or two.
//!
//! Invariant: most networks are accepted, since a node that the importer refuses is mostly taken back.

use super::choices::Choices;
use super::corpus;
use super::nodes;
use super::operands::{self, declared, tensor};
use prost::Message;
use tilewright::internal::graph::proto::*;
use tilewright::{DType, Model, Options};

/// A network that grows.
pub struct Network {
    model: ModelProto,
    /// Values that nodes may read: name, code of the element type, shape.
    values: Vec<(String, i32, Vec<i64>)>,
    names: usize,
}

impl Network {
    fn graph(&mut self) -> &mut GraphProto {
        self.model.graph.get_or_insert_default()
    }

    /// A new name.
    pub fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    /// A value, later ones more often.
    pub fn value(&self, c: &mut Choices) -> String {
        let from = if c.chance(60) { self.values.len().saturating_sub(3) } else { 0 };
        self.values[from + c.below(self.values.len() - from)].0.clone()
    }

    fn find(&self, name: &str) -> &(String, i32, Vec<i64>) {
        self.values.iter().find(|v| v.0 == name).expect("a value of the network")
    }

    pub fn shape(&self, name: &str) -> Vec<i64> {
        self.find(name).2.clone()
    }

    pub fn code(&self, name: &str) -> i32 {
        self.find(name).1
    }

    /// Another value of the same shape and type, or of the same shape and bools.
    pub fn like(&self, c: &mut Choices, name: &str, bools: bool) -> Option<String> {
        let (_, code, shape) = self.find(name);
        let code = if bools { &9 } else { code };
        let alike: Vec<&String> = self.values.iter().filter(|v| v.1 == *code && v.2 == *shape).map(|v| &v.0).collect();
        (!alike.is_empty()).then(|| alike[c.below(alike.len())].clone())
    }

    pub fn constant(&mut self, tensor: TensorProto) {
        self.graph().initializer.push(tensor);
    }

    /// A network with a few inputs of any type.
    fn fresh(c: &mut Choices) -> Network {
        let opset = c.pick(&[7, 11, 13, 13, 17, 18, 20, 21, 23, 25, 27, 28]);
        let mut network =
            Network { model: ModelProto { ir_version: 9, ..ModelProto::default() }, values: vec![], names: 0 };
        for (domain, version) in [("", opset), ("com.microsoft", 1)] {
            network.model.opset_import.push(OperatorSetIdProto { domain: domain.into(), version });
        }
        let shape = operands::shape(c);
        for _ in 0..=c.below(3) {
            let shape = if c.chance(60) { shape.clone() } else { operands::shape(c) };
            let (name, code) = (network.name(), c.pick(&operands::TYPES));
            network.graph().input.push(declared(&name, Some((code, &shape))));
            network.values.push((name, code, shape));
        }
        network
    }

    /// A fixture whose results grow further; `None` where it has no static graph.
    fn of_fixture(c: &mut Choices) -> Option<Network> {
        let corpus = corpus::onnx();
        let model = ModelProto::decode(&corpus[c.below(corpus.len())][..]).ok()?;
        let mut network = Network { model, values: vec![], names: 0 };
        let outputs: Vec<String> = network.graph().output.iter().map(|o| o.name.clone()).collect();
        let types = network.types(&outputs)?;
        network.values = types;
        if !network.model.opset_import.iter().any(|o| o.domain == "com.microsoft") {
            network.model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 });
        }
        (!network.values.is_empty()).then_some(network)
    }

    /// The types of values, where the importer accepts the network with these as its results.
    fn types(&self, names: &[String]) -> Option<Vec<(String, i32, Vec<i64>)>> {
        let mut model = self.model.clone();
        model.graph.get_or_insert_default().output = names.iter().map(|n| declared(n, None)).collect();
        let bytes = model.encode_to_vec();
        let model = Model::parse(&bytes, "nowhere").ok()?;
        match model.graph(&Default::default()) {
            Ok(graph) => {
                let ty = |v: &tilewright::ValueId| graph.value(*v).ty.clone();
                let named = names.iter().zip(graph.outputs.iter().map(ty));
                Some(named.map(|(n, t)| (n.clone(), code(t.dtype), t.shape)).collect())
            }
            // sizes that follow from data: nodes may read such a value, of a shape that nobody knows
            Err(_) if model.depends_on_data(&Options { threads: 1, ..Options::default() }) => {
                Some(names.iter().map(|n| (n.clone(), 1, vec![1])).collect())
            }
            Err(_) => None,
        }
    }

    /// Adds a node; one that is refused is taken back, most of the time.
    fn grow(&mut self, c: &mut Choices) {
        let constants = self.graph().initializer.len();
        let node = match c.below(20) {
            0 => self.branch(c),
            1 => self.repeat(c),
            2 => self.call(c),
            _ => nodes::node(c, self),
        };
        let outputs = node.output.clone();
        self.graph().node.push(node);
        match self.types(&outputs) {
            Some(types) => self.values.extend(types),
            None if c.chance(97) => {
                self.graph().node.pop();
                self.graph().initializer.truncate(constants);
            }
            None => self.values.extend(outputs.into_iter().map(|o| (o, 1, vec![1]))),
        }
    }

    /// A graph inside with one or two nodes on `inputs` and on a value around it.
    fn inside(&mut self, c: &mut Choices, inputs: &[&str]) -> GraphProto {
        let mut graph = GraphProto { name: "inside".into(), ..GraphProto::default() };
        let (first, outer) = (inputs.first().map(|s| s.to_string()), self.value(c));
        let mut last = first.unwrap_or(outer.clone());
        for _ in 0..=c.below(2) {
            let op = c.pick(&["Relu", "Add", "Mul", "Identity", "Neg", "Sub", "Exp", "Max", "Abs"]);
            let binary = ["Add", "Mul", "Sub", "Max"].contains(&op);
            let output = self.name();
            let other = if c.chance(50) { outer.clone() } else { last.clone() };
            let input = if binary { vec![last.clone(), other] } else { vec![last.clone()] };
            graph.node.push(NodeProto {
                op_type: op.into(),
                input,
                output: vec![output.clone()],
                ..NodeProto::default()
            });
            last = output;
        }
        graph.output = vec![declared(&last, None)];
        graph
    }

    fn branch(&mut self, c: &mut Choices) -> NodeProto {
        let condition = match self.values.iter().find(|v| v.1 == 9 && v.2.is_empty()) {
            Some(value) => value.0.clone(),
            None => {
                let name = self.name();
                match c.chance(50) {
                    true => self.graph().input.push(declared(&name, Some((9, &[])))),
                    false => {
                        let tensor = tensor(c, &name, 9, &[]);
                        self.constant(tensor);
                    }
                }
                name
            }
        };
        let graphs = [("then_branch", self.inside(c, &[])), ("else_branch", self.inside(c, &[]))];
        let attribute = |(name, g): (&str, GraphProto)| AttributeProto {
            name: name.into(),
            g: Some(g),
            r#type: 5,
            ..AttributeProto::default()
        };
        let (attribute, output) = (graphs.map(attribute).into(), vec![self.name()]);
        NodeProto { op_type: "If".into(), input: vec![condition], output, attribute, ..NodeProto::default() }
    }

    /// A loop of a few times that carries one value, and may stack another.
    fn repeat(&mut self, c: &mut Choices) -> NodeProto {
        let (count, carried) = (self.name(), self.value(c));
        let (_, code, shape) = self.find(&carried).clone();
        let times = if c.chance(95) { c.between(0, 4) } else { c.integer() };
        self.constant(operands::integers(&count, &[], &[times]));
        let (number, go, state) = (self.name(), self.name(), self.name());
        let mut body = self.inside(c, &[&state]);
        let kept = self.name();
        let copy = NodeProto {
            op_type: "Identity".into(),
            input: vec![go.clone()],
            output: vec![kept.clone()],
            ..NodeProto::default()
        };
        body.node.push(copy);
        body.output.insert(0, declared(&kept, None));
        body.input = vec![
            declared(&number, Some((7, &[]))),
            declared(&go, Some((9, &[]))),
            declared(&state, Some((code, &shape))),
        ];
        let mut output = vec![self.name()];
        if c.chance(50) {
            body.output.push(body.output[1].clone());
            output.push(self.name());
        }
        let attribute = AttributeProto { name: "body".into(), g: Some(body), r#type: 5, ..AttributeProto::default() };
        let input = vec![count, String::new(), carried];
        NodeProto { op_type: "Loop".into(), input, output, attribute: vec![attribute], ..NodeProto::default() }
    }

    /// A call of a new function.
    fn call(&mut self, c: &mut Choices) -> NodeProto {
        let (operand, name) = (self.value(c), format!("f{}", self.names));
        let body = self.inside(c, &["x"]);
        let outer: Vec<String> = self.values.iter().map(|v| v.0.clone()).collect();
        let mut node = body.node;
        // a function reads its operands alone
        node.iter_mut().flat_map(|n| &mut n.input).filter(|i| outer.contains(i)).for_each(|i| *i = "x".into());
        self.model.functions.push(FunctionProto {
            name: name.clone(),
            domain: "local".into(),
            input: vec!["x".into()],
            output: vec![body.output[0].name.clone()],
            opset_import: self.model.opset_import.clone(),
            node,
            ..FunctionProto::default()
        });
        let output = vec![self.name()];
        NodeProto { op_type: name, domain: "local".into(), input: vec![operand], output, ..NodeProto::default() }
    }
}

fn code(dtype: DType) -> i32 {
    use DType::*;
    let codes = [(F32, 1), (U8, 2), (I8, 3), (U16, 4), (I16, 5), (I32, 6), (I64, 7), (Bool, 9), (F16, 10), (F64, 11)];
    let more = [(U32, 12), (U64, 13), (BF16, 16), (F8E4M3Fn, 17), (U4, 21), (I4, 22), (U2, 25)];
    codes.iter().chain(&more).find(|row| row.0 == dtype).map_or(1, |row| row.1)
}

/// A network as a file.
pub fn make(c: &mut Choices) -> Vec<u8> {
    let fixture = if c.chance(40) { Network::of_fixture(c) } else { None };
    let mut network = fixture.unwrap_or_else(|| Network::fresh(c));
    let known = network.values.len();
    for _ in 0..c.between(1, 12) {
        network.grow(c);
    }
    let mut results: Vec<String> =
        network.values[known.min(network.values.len())..].iter().map(|v| v.0.clone()).collect();
    // two of three results are read inside alone
    while results.len() > 1 && c.chance(60) {
        results.remove(c.below(results.len()));
    }
    if !results.is_empty() {
        network.graph().output = results.iter().map(|n| declared(n, None)).collect();
    } else if network.graph().output.is_empty() {
        let name = network.values[0].0.clone();
        network.graph().output = vec![declared(&name, None)];
    }
    if c.chance(15) {
        mutate(c, &mut network.model);
    }
    network.model.encode_to_vec()
}

/// Changes one or two fields anywhere in a model.
pub fn mutate(c: &mut Choices, model: &mut ModelProto) {
    for _ in 0..=c.below(2) {
        if c.chance(5) {
            model.opset_import.iter_mut().for_each(|o| o.version = c.between(1, 29));
        }
        let Some(graph) = &mut model.graph else { return };
        mutate_graph(c, graph);
    }
}

fn mutate_graph(c: &mut Choices, graph: &mut GraphProto) {
    match c.below(10) {
        0 if !graph.initializer.is_empty() => {
            let at = c.below(graph.initializer.len());
            mutate_tensor(c, &mut graph.initializer[at]);
        }
        1 if !graph.input.is_empty() => {
            let at = c.below(graph.input.len());
            mutate_declared(c, &mut graph.input[at]);
        }
        2 if !graph.output.is_empty() => {
            let at = c.below(graph.output.len());
            mutate_declared(c, &mut graph.output[at]);
        }
        3 if graph.node.len() > 1 => {
            let (a, b) = (c.below(graph.node.len()), c.below(graph.node.len()));
            graph.node.swap(a, b);
        }
        4 if graph.node.len() > 1 => drop(graph.node.remove(c.below(graph.node.len()))),
        _ if !graph.node.is_empty() => {
            let at = c.below(graph.node.len());
            mutate_node(c, graph, at);
        }
        _ => {}
    }
}

fn mutate_node(c: &mut Choices, graph: &mut GraphProto, at: usize) {
    let values: Vec<String> = (graph.initializer.iter().map(|t| t.name.clone()))
        .chain(graph.input.iter().map(|i| i.name.clone()))
        .chain(graph.node.iter().flat_map(|n| n.output.clone()))
        .collect();
    let node = &mut graph.node[at];
    match c.below(8) {
        0 | 1 if !node.input.is_empty() => {
            let operand = c.below(node.input.len());
            node.input[operand] = if c.chance(15) { String::new() } else { c.pick(&values) };
        }
        2 => node.input.push(c.pick(&values)),
        3 => drop(node.input.pop()),
        4 => {
            let operators = tilewright::internal::graph::import::catalogue::operators();
            let operator = &operators[c.below(operators.len())];
            (node.op_type, node.domain) = (operator.name.into(), operator.domain.into());
        }
        _ if !node.attribute.is_empty() => {
            let attribute = c.below(node.attribute.len());
            mutate_attribute(c, &mut node.attribute[attribute]);
        }
        _ => node.output.push(format!("more{}", node.output.len())),
    }
}

fn mutate_attribute(c: &mut Choices, attribute: &mut AttributeProto) {
    if let Some(graph) = &mut attribute.g {
        return mutate_graph(c, graph);
    }
    if let Some(tensor) = &mut attribute.t {
        return mutate_tensor(c, tensor);
    }
    let count = attribute.ints.len();
    match attribute.r#type {
        7 if count > 0 && c.chance(70) => attribute.ints[c.below(count)] = c.integer(),
        7 => attribute.ints.push(c.integer()),
        1 => attribute.f = c.pick(&[0.0, -1.0, f32::NAN, f32::INFINITY, 1e30, 1e-30, 3.0]),
        2 if c.chance(90) => attribute.i = c.integer(),
        _ => *attribute = operands::attribute(c, &attribute.name, 4),
    }
}

fn mutate_tensor(c: &mut Choices, tensor: &mut TensorProto) {
    match c.below(5) {
        0 if !tensor.dims.is_empty() => {
            let at = c.below(tensor.dims.len());
            tensor.dims[at] = c.integer();
        }
        1 => tensor.data_type = c.pick(&operands::TYPES),
        2 => tensor.dims.push(c.between(0, 2)),
        _ => {
            let width = if [7, 11, 13].contains(&tensor.data_type) { 8 } else { 4 };
            let at = c.below(tensor.raw_data.len() / width + 1) * width;
            let mut bytes = tensor.raw_data.to_vec();
            if let Some(element) = bytes.get_mut(at..at + width) {
                element.copy_from_slice(&c.integer().to_le_bytes()[..width]);
                tensor.raw_data = bytes.into();
            } else if let Some(number) = tensor.int64_data.first_mut() {
                *number = c.integer();
            }
        }
    }
}

fn mutate_declared(c: &mut Choices, value: &mut ValueInfoProto) {
    let Some(ty) = value.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()) else { return };
    let Some(shape) = &mut ty.shape else { return };
    match c.below(5) {
        0 => ty.elem_type = c.pick(&operands::TYPES),
        1 => ty.shape = None,
        2 => shape.dim.push(DimensionProto { dim_value: Some(c.between(0, 3)), dim_param: None }),
        _ if !shape.dim.is_empty() => {
            let at = c.below(shape.dim.len());
            shape.dim[at] = match c.chance(30) {
                true => DimensionProto { dim_value: None, dim_param: Some("N".into()) },
                false => DimensionProto { dim_value: Some(c.integer()), dim_param: None },
            };
        }
        _ => {}
    }
}
