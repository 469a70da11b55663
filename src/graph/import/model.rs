//! A parsed ONNX file, and its inputs.

use crate::graph::content::Hash;
use crate::graph::import::external::Folder;
use crate::graph::import::limits::ImportLimits;
use crate::graph::proto::{ModelProto, NodeProto};
use crate::graph::value::Kind;
use crate::runtime::{Bytes, DType, Tensor};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// Sizes of dynamic dimensions and values of inputs, by name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Binding {
    /// Sizes of the dynamic dimensions.
    pub dims: BTreeMap<String, i64>,
    /// Values of inputs; those that decide the shape of something become constants.
    pub values: BTreeMap<String, Arc<Tensor>>,
    /// Bounds of the import.
    pub limits: ImportLimits,
    /// Dimensions that have a capacity.
    pub growing: Option<Growing>,
}

/// Dimensions that have a capacity, for one import.
#[derive(Clone, Debug, PartialEq)]
pub struct Growing {
    /// The dimension whose size is the count.
    pub name: String,
    /// Dimensions that grow with the count, and their sizes less the count.
    pub offsets: BTreeMap<String, i64>,
    /// Extent of all these dimensions in what is compiled.
    pub capacity: i64,
    /// The counts of which one import is for the first; where it is kept, those that it is right for.
    pub counts: (i64, i64),
}

/// A parsed ONNX file, its dynamic dimensions still open.
#[derive(Clone)]
pub struct OnnxModel {
    pub(super) proto: Arc<ModelProto>,
    pub(super) folder: Arc<Folder>,
    pub(super) opset: i64,
    /// Other operator sets of nodes, by their first result.
    pub(super) opsets: HashMap<String, i64>,
    pub(super) inputs: Vec<InputSpec>,
    /// Inputs that are constants unless they are given.
    pub(super) defaults: Vec<InputSpec>,
    /// The initializers that something reads; all bindings of the dynamic dimensions share them.
    pub(super) weights: Vec<(String, Arc<Tensor>)>,
    /// Those of them whose elements stand in other files.
    pub(super) external: Vec<Arc<Tensor>>,
    /// The file.
    pub(super) bytes: Bytes,
    pub(super) content: OnceLock<Option<Hash>>,
}

/// An input of a model, or an output.
#[derive(Clone, PartialEq, Debug)]
pub struct InputSpec {
    /// Name by which runs give the tensor.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extent of each dimension; none of a sequence, an optional, or a tensor of any rank.
    pub shape: Vec<Dim>,
    /// Tensor, sequence or optional.
    pub kind: Kind,
    /// The tensor may have any number of dimensions: the file does not say it.
    pub any_rank: bool,
}

impl InputSpec {
    /// A tensor.
    pub fn tensor(name: String, dtype: DType, shape: Vec<Dim>) -> InputSpec {
        InputSpec { name, dtype, shape, kind: Kind::Tensor, any_rank: false }
    }
}

/// An output of a model, as far as its source declares it.
#[derive(Clone, PartialEq, Debug)]
pub struct OutputDeclaration {
    /// Name of the output.
    pub name: String,
    /// Element type; `None` where the source does not say it.
    pub dtype: Option<DType>,
    /// Extent of each dimension; `None` where the source does not say how many there are. A dimension that it leaves open is a
    /// symbol of the output's name and the dimension's number, `y_0`.
    pub shape: Option<Vec<Dim>>,
    /// Tensor, sequence or optional.
    pub kind: Kind,
}

impl OutputDeclaration {
    /// A tensor of which the source says the name alone.
    pub fn undeclared(name: &str) -> OutputDeclaration {
        OutputDeclaration { name: name.into(), dtype: None, shape: None, kind: Kind::Tensor }
    }
}

/// Extent of one dimension of an input or an output.
#[derive(Clone, PartialEq, Debug)]
pub enum Dim {
    /// A number of elements.
    Fixed(i64),
    /// Bound when the model is compiled; 1 when nothing binds it.
    Symbol(String),
    /// An expression over symbols; only in programs of the text language.
    Derived(String),
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Dim::Fixed(d) => write!(f, "{d}"),
            Dim::Symbol(s) | Dim::Derived(s) => f.write_str(s),
        }
    }
}

impl OnnxModel {
    /// The operator set of a node.
    pub fn opset_of(&self, node: &NodeProto) -> i64 {
        opset_of(node, &self.opsets, self.opset)
    }
}

/// The operator set of a node: `opsets` has those of nodes from functions, by their first result.
pub(super) fn opset_of(node: &NodeProto, opsets: &HashMap<String, i64>, opset: i64) -> i64 {
    let first = node.output.iter().find(|o| !o.is_empty());
    first.and_then(|name| opsets.get(name)).copied().unwrap_or(opset)
}
