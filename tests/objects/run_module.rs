//! Runs saved modules: N.tw on the bytes of N.in, to N.out, for each N of the arguments. For processors that the compiler
//! does not run on.

use std::sync::Arc;
use tilewright_runtime::{Module, Session, Tensor};

fn main() {
    for name in std::env::args().skip(1) {
        // SAFETY: the test that starts this program has compiled the module.
        let module = Arc::new(unsafe { Module::load(format!("{name}.tw")) }.unwrap());
        let bytes = std::fs::read(format!("{name}.in")).unwrap();
        let (mut rest, mut inputs) = (&bytes[..], vec![]);
        for spec in module.inputs() {
            let mut tensor = Tensor::zeros(spec.dtype, &spec.shape);
            let (head, tail) = rest.split_at(tensor.data.len());
            tensor.data.copy_from_slice(head);
            rest = tail;
            inputs.push(tensor);
        }
        let names = module.inputs().iter().map(|spec| spec.name.as_str());
        let named: Vec<(&str, &Tensor)> = names.zip(&inputs).collect();
        let outputs = Session::new(module.clone(), 2).unwrap().run(&named).unwrap();
        let bytes: Vec<u8> = outputs.iter().flat_map(|tensor| tensor.data.to_vec()).collect();
        std::fs::write(format!("{name}.out"), bytes).unwrap();
    }
}
