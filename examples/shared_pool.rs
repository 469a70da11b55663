//! Runs two models on one pool of threads, on the caller's own arrays without copies: the second reads what the first wrote.
//! `cargo run --release --example shared_pool`.

use std::sync::Arc;
use tilewright::{File, Model, Options, Pool, Result, Session, TensorView, TensorViewMut};

const PROGRAMS: &str = "
def scale(f32(1024) x) -> (y) { y(i) = 2.0 * x(i) }
def difference(f32(1024) y) -> (z) { z(i) = y(i + 1) - y(i) }
";

pub fn main() -> Result<()> {
    let file = File::parse("programs.tile", PROGRAMS)?;
    let pool = Arc::new(Pool::new(2)?);
    let session = |program: &str| {
        let (module, _) = Model::from_program(file.clone(), Some(program), None)?.compile_module(&Options::default())?;
        Session::with_pool(Arc::new(module), pool.clone())
    };
    let (scale, difference) = (session("scale")?, session("difference")?);

    let x: Vec<f32> = (0..1024).map(|i| i as f32).collect();
    let (mut y, mut z) = (vec![0f32; 1024], vec![0f32; 1023]);
    for _ in 0..3 {
        scale.run_into(&[("x", TensorView::new(&[1024], &x))], &mut [TensorViewMut::new(&[1024], &mut y)])?;
        difference.run_into(&[("y", TensorView::new(&[1024], &y))], &mut [TensorViewMut::new(&[1023], &mut z)])?;
    }
    println!("{:?} …", &z[..4]);
    assert!(z.iter().all(|&step| step == 2.0));
    Ok(())
}
