//! Matrix products of operands that are only given when they run, large enough to be packed and cut: they agree with sums
//! in f64, with equal bits for 1 and 2 threads.

use tilewright::GraphBuilder;
use tilewright::{DType, Model, Options, Target, Tensor};

/// Values between -1 and 1 that differ from place to place.
fn matrix(rows: i64, columns: i64, seed: u64) -> Tensor {
    Tensor::seeded(DType::F32, &[rows, columns], seed, 0, 2)
}

fn product(a: &Tensor, b: &Tensor, target: &Target, threads: usize) -> Tensor {
    let mut builder = GraphBuilder::new("product");
    let x = builder.input("x", DType::F32, &a.shape);
    let y = builder.input("y", DType::F32, &b.shape);
    let z = builder.matmul(x, y).unwrap();
    builder.output("z", z).unwrap();
    let options = Options { target: Some(target.clone()), threads, ..Options::default() };
    let compiled = Model::from_graph(builder.build().unwrap()).compile(&options).unwrap();
    compiled.run(&[("x", a), ("y", b)]).unwrap().remove(0)
}

#[test]
fn large_products() {
    for target in Target::all().into_iter().filter(Target::runs_on_host) {
        for (m, n, k) in [(300, 1030, 1100), (1000, 1024, 1024), (70, 500, 3000)] {
            let (a, b) = (matrix(m, k, 1), matrix(k, n, 2));
            let got = product(&a, &b, &target, 1);
            assert_eq!(got, product(&a, &b, &target, 2), "{m} {n} {k} on {}", target.name);
            let (a, b, got) = (a.to_vec::<f32>(), b.to_vec::<f32>(), got.to_vec::<f32>());
            for row in (0..m).step_by(23).chain([m - 1]) {
                let mut sums = vec![0.0f64; n as usize];
                for (x, line) in a[(row * k) as usize..].iter().zip(b.chunks(n as usize)) {
                    sums.iter_mut().zip(line).for_each(|(s, y)| *s += f64::from(*x) * f64::from(*y));
                }
                for (g, s) in got[(row * n) as usize..].iter().zip(&sums) {
                    assert!(
                        (f64::from(*g) - s).abs() < 1e-3,
                        "{g} is not {s}: row {row} of {m} {n} {k} on {}",
                        target.name
                    );
                }
            }
        }
    }
}
