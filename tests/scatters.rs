//! Scatters with indices that are known at run time: random shapes, element types and updates against a plain definition,
//! the same bits on one and two threads, and indices outside of their dimension.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use tilewright::internal::expr::BinaryOp;
use tilewright::internal::graph::op::Op;
use tilewright::{DType, GraphBuilder, Model, Options, Session, Tensor};

const SEEDS: u64 = 150;
const EXTENTS: [i64; 8] = [1, 2, 3, 5, 8, 17, 33, 40];
const TYPES: [DType; 6] = [DType::F32, DType::F64, DType::I64, DType::I32, DType::I8, DType::U8];

/// One scatter of small whole numbers.
struct Case {
    op: Op,
    dtype: DType,
    index_type: DType,
    /// Data, indices, updates: shape and elements.
    operands: [(Vec<i64>, Vec<i64>); 3],
}

fn pick<T: Copy>(random: &mut StdRng, from: &[T]) -> T {
    from[random.random_range(0..from.len())]
}

fn tensor(dtype: DType, shape: &[i64], values: &[i64]) -> Tensor {
    fn of<T: tilewright::Element>(shape: &[i64], values: &[i64], f: impl Fn(i64) -> T) -> Tensor {
        Tensor::new(shape, &values.iter().map(|&v| f(v)).collect::<Vec<T>>())
    }
    match dtype {
        DType::F32 => of(shape, values, |v| v as f32),
        DType::F64 => of(shape, values, |v| v as f64),
        DType::I64 => of(shape, values, |v| v),
        DType::I32 => of(shape, values, |v| v as i32),
        DType::I8 => of(shape, values, |v| v as i8),
        _ => of(shape, values, |v| v as u8),
    }
}

/// The subscripts of element `at` of a tensor.
fn subscripts(shape: &[i64], mut at: i64) -> Vec<i64> {
    let mut out: Vec<i64> = shape.iter().rev().map(|extent| (at % extent, at /= extent).0).collect();
    out.reverse();
    out
}

fn offset(shape: &[i64], index: &[i64]) -> usize {
    shape.iter().zip(index).fold(0, |at, (extent, i)| at * extent + i) as usize
}

fn case(random: &mut StdRng) -> Case {
    let rank = random.random_range(1..=3);
    let shape: Vec<i64> = (0..rank).map(|_| pick(random, &EXTENTS)).collect();
    let dtype = pick(random, &TYPES);
    let narrow = matches!(dtype, DType::I8 | DType::U8);
    let ops = [None, None, Some(BinaryOp::Add), Some(BinaryOp::Min), Some(BinaryOp::Max), Some(BinaryOp::Mul)];
    let reduction = pick(random, &ops[..if narrow { 5 } else { 6 }]);
    let (op, places, new, extents) = if random.random_bool(0.5) {
        let axis = random.random_range(0..rank);
        let mut new: Vec<i64> = shape.iter().map(|&extent| random.random_range(1..=extent)).collect();
        new[axis] = random.random_range(0..=18);
        let stretched = random.random_bool(0.3);
        let places = new.iter().map(|&n| if stretched && random.random_bool(0.5) { n.min(1) } else { n }).collect();
        (Op::ScatterElements { axis, reduction }, places, new, vec![shape[axis]])
    } else {
        let depth = random.random_range(1..=rank);
        let outer: Vec<i64> = (0..random.random_range(0..=2)).map(|_| random.random_range(1..=6)).collect();
        let places = [&outer[..], &[depth as i64]].concat();
        (Op::ScatterNd { reduction }, places, [&outer[..], &shape[depth..]].concat(), shape[..depth].to_vec())
    };
    let count = |shape: &[i64]| shape.iter().product::<i64>() as usize;
    let low = if dtype == DType::U8 { 0 } else { -2 };
    // A product with 0 may have either sign.
    let multiplies = reduction == Some(BinaryOp::Mul);
    let mut value = || random.random_range(low..=2);
    let mut values = |n: usize| (0..n).map(|_| Some(value()).filter(|v| *v != 0 || !multiplies).unwrap_or(1)).collect();
    let (data, updates): (Vec<i64>, Vec<i64>) = (values(count(&shape)), values(count(&new)));
    let at = (0..count(&places)).map(|k| {
        let extent = extents[k % extents.len()];
        random.random_range(-extent..extent)
    });
    let at = at.collect();
    let index_type = pick(random, &[DType::I64, DType::I32]);
    Case { op, dtype, index_type, operands: [(shape, data), (places, at), (new, updates)] }
}

/// The result, one update after the other.
fn plainly(case: &Case) -> Vec<i64> {
    let [(shape, data), (places, at), (new, updates)] = &case.operands;
    let mut out = data.clone();
    for (k, &update) in updates.iter().enumerate() {
        let mut index = subscripts(new, k as i64);
        let reduction = match &case.op {
            Op::ScatterElements { axis, reduction } => {
                let place: Vec<i64> = index.iter().zip(places).map(|(i, n)| i % n).collect();
                let i = at[offset(places, &place)];
                index[*axis] = if i < 0 { i + shape[*axis] } else { i };
                *reduction
            }
            Op::ScatterNd { reduction } => {
                let depth = *places.last().unwrap() as usize;
                let outer = places.len() - 1;
                let row = offset(&places[..outer], &index[..outer]) * depth;
                let chosen = (0..depth).map(|d| if at[row + d] < 0 { at[row + d] + shape[d] } else { at[row + d] });
                index = chosen.chain(index[outer..].iter().copied()).collect();
                *reduction
            }
            op => panic!("{op}"),
        };
        let element = &mut out[offset(shape, &index)];
        *element = match reduction {
            None => update,
            Some(BinaryOp::Add) => *element + update,
            Some(BinaryOp::Mul) => *element * update,
            Some(BinaryOp::Min) => update.min(*element),
            Some(_) => update.max(*element),
        };
    }
    out
}

impl Case {
    fn tensors(&self) -> [Tensor; 3] {
        let types = [self.dtype, self.index_type, self.dtype];
        [0, 1, 2].map(|i| tensor(types[i], &self.operands[i].0, &self.operands[i].1))
    }

    fn model(&self) -> Model {
        let mut b = GraphBuilder::new("scatter");
        let named = ["x", "i", "u"].into_iter().zip(self.tensors());
        let inputs: Vec<_> = named.map(|(name, t)| b.input(name, t.dtype, &t.shape)).collect();
        let y = b.op(self.op.clone(), &inputs).unwrap_or_else(|e| panic!("{e}"))[0];
        b.output("y", y).unwrap();
        Model::from_graph(b.build().unwrap())
    }
}

fn run(session: &Session, [x, i, u]: &[Tensor; 3]) -> tilewright::Result<Tensor> {
    session.run(&[("x", x), ("i", i), ("u", u)]).map(|mut outputs| outputs.remove(0))
}

#[test]
fn random_scatters_are_what_their_definition_says() {
    for seed in 0..SEEDS {
        let random = &mut StdRng::seed_from_u64(seed);
        let case = case(random);
        let (given, what) = (case.tensors(), format!("seed {seed}: {} of {}", case.op, case.dtype));
        let (module, report) =
            case.model().compile_module(&Options::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(report.fallbacks(), [], "{what}");
        let module = Arc::new(module);
        let sessions = [1, 2].map(|threads| Session::new(module.clone(), threads).unwrap());
        let expected = tensor(case.dtype, &case.operands[0].0, &plainly(&case));
        for session in &sessions {
            let found = run(session, &given).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(found == expected, "{what}: {:?}\n{found:?}\n{expected:?}", case.operands);
        }
        // An index outside of its dimension ends the run, and the next run is right.
        let (extents, count) = match &case.op {
            Op::ScatterElements { axis, .. } => (&case.operands[0].0[*axis..axis + 1], case.operands[1].1.len()),
            _ => (&case.operands[0].0[..], case.operands[1].1.len()),
        };
        if count == 0 {
            continue;
        }
        let at = random.random_range(0..count);
        let depth = if extents.len() == 1 { 1 } else { *case.operands[1].0.last().unwrap() as usize };
        let extent = extents[at % depth];
        let (least, most) = match case.index_type {
            DType::I64 => (i64::MIN, i64::MAX),
            _ => (i32::MIN.into(), i32::MAX.into()),
        };
        for wrong in [extent, -extent - 1, least, most, least + extent] {
            let mut indices = case.operands[1].1.clone();
            indices[at] = wrong;
            let mut hostile = given.clone();
            hostile[1] = tensor(case.index_type, &case.operands[1].0, &indices);
            let message = run(&sessions[1], &hostile).err().map_or(String::new(), |e| e.to_string());
            let place = position(at, &case.operands[1].0);
            let range = format!("{}..={}", -extent, extent - 1);
            let said = format!("invalid: index {wrong} at {place:?} of tensor `i` lies outside of {range}");
            assert_eq!(message, said, "{what}");
        }
        assert!(run(&sessions[1], &given).unwrap() == expected, "{what}");
    }
}

/// Rows of columns that threads divide: each sum has its order, whatever their number.
#[test]
fn sums_of_a_large_scatter_have_the_same_bits_on_any_number_of_threads() {
    let (rows, columns, updates) = (40i64, 9000i64, 50i64);
    let x = Tensor::seeded(DType::F32, &[rows, columns], 1, 0, 1);
    let u = Tensor::seeded(DType::F32, &[updates, columns], 1, 1, 1);
    let at = Tensor::seeded(DType::I64, &[updates, 1], 1, 2, rows as u64);
    let mut b = GraphBuilder::new("sums");
    let inputs = [("x", &x), ("i", &at), ("u", &u)].map(|(name, t)| b.input(name, t.dtype, &t.shape));
    let op = Op::ScatterElements { axis: 0, reduction: Some(BinaryOp::Add) };
    let y = b.op(op, &inputs).unwrap()[0];
    b.output("y", y).unwrap();
    let model = Model::from_graph(b.build().unwrap());
    let (module, report) = model.compile_module(&Options::default()).unwrap();
    assert!(report.to_string().contains("parallel"), "{report}");
    let mut expected = x.to_vec::<f32>();
    for (k, row) in at.to_vec::<i64>().into_iter().enumerate() {
        let from = &u.to_vec::<f32>()[k * columns as usize..][..columns as usize];
        expected[(row * columns) as usize..].iter_mut().zip(from).for_each(|(sum, v)| *sum += v);
    }
    let module = Arc::new(module);
    for threads in [1, 2, 3] {
        let session = Session::new(module.clone(), threads).unwrap();
        let found = session.run(&[("x", &x), ("i", &at), ("u", &u)]).unwrap().remove(0);
        assert!(found.to_vec::<f32>() == expected, "{threads} threads");
    }
}

/// The position in `shape` of an element in row-major order.
fn position(element: usize, shape: &[i64]) -> Vec<i64> {
    let after = |d: usize| shape[d + 1..].iter().product::<i64>();
    (0..shape.len()).map(|d| element as i64 / after(d) % shape[d]).collect()
}
