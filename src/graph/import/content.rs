//! The contents of a model as a hash: its file, and the external tensors that it names.

use super::external::recipe;
use super::sparse;
use super::tensor;
use crate::graph::content::{Hash, Hasher};
use crate::graph::import::model::OnnxModel;
use crate::graph::proto::{AttributeProto, GraphProto, TensorProto};

impl OnnxModel {
    /// A hash of all that the model is; `None` where it is not known: a file has changed since it was loaded, or external
    /// data of a graph inside of a node cannot be read.
    pub fn content(&self) -> Option<Hash> {
        let hash = self.content.get_or_init(|| {
            let mut hasher = Hasher::new("onnx");
            hasher.bytes(&self.bytes);
            // the file is that of other models too, in which other inputs have defaults
            self.defaults.iter().for_each(|spec| _ = hasher.text(&spec.name));
            self.external.iter().for_each(|tensor| _ = hasher.tensor(tensor));
            let mut inside = vec![];
            external(self.onnx_graph(), &mut inside);
            for proto in inside {
                hasher.tensor(&tensor::read(proto.clone(), &self.folder).ok()?);
            }
            Some(hasher.finish())
        });
        hash.filter(|_| self.folder.is_unchanged())
    }
}

/// Returns true if the elements stand in another file. Those of synthetic tensors follow from the message.
pub(super) fn is_external(proto: &TensorProto) -> bool {
    proto.data_location == 1 && !recipe(proto).is_ok_and(|recipe| recipe.is_some())
}

/// The tensors of a graph and of those inside of it whose elements stand in other files.
fn external<'a>(graph: &'a GraphProto, out: &mut Vec<&'a TensorProto>) {
    out.extend(graph.initializer.iter().chain(sparse::parts(graph)).filter(|proto| is_external(proto)));
    for AttributeProto { t, g, graphs, .. } in graph.node.iter().flat_map(|node| &node.attribute) {
        out.extend(t.iter().filter(|proto| is_external(proto)));
        g.iter().chain(graphs).for_each(|inside| external(inside, out));
    }
}
