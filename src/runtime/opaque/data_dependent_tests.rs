//! Data-dependent functions, determinants and n-grams against plain definitions.

use super::*;

fn depends(name: &str, attributes: &[i64], inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let views: Vec<View> = inputs.iter().map(|t| View { dtype: t.dtype, shape: &t.shape, data: &t.data }).collect();
    data_dependent(name).unwrap().0(attributes, &views)
}

fn integers(t: &Tensor) -> (Vec<i64>, Vec<i64>) {
    (t.shape.clone(), t.to_vec::<i64>())
}

/// Small numbers in a range, the same for the same seed.
fn numbers(shape: &[i64], seed: u64, most: i64) -> Vec<i64> {
    let count = shape.iter().product::<i64>();
    Tensor::seeded(DType::I64, &[count], seed, 0, most as u64).to_vec::<i64>()
}

fn raw(dtype: DType, shape: &[i64], data: &[u8]) -> Tensor {
    Tensor { dtype, shape: shape.to_vec(), data: data.to_vec().into() }
}

#[test]
fn places_that_are_not_zero() {
    let x = Tensor::new(&[2, 3], &[0.0f32, -0.0, f32::NAN, 1e-40, 0.0, -2.0]);
    assert_eq!(integers(&depends("nonzero", &[], &[&x]).unwrap()[0]), (vec![2, 3], vec![0, 1, 1, 2, 0, 2]));
    for (x, expected) in [
        (Tensor::new(&[], &[5u8]), (vec![0, 1], vec![])),
        (Tensor::new(&[], &[0i64]), (vec![0, 0], vec![])),
        (Tensor::new(&[0, 4], &[0f64; 0]), (vec![2, 0], vec![])),
        (Tensor::new(&[3], &[0i32; 3]), (vec![1, 0], vec![])),
        (raw(DType::Bool, &[4], &[0, 1, 1, 0]), (vec![1, 2], vec![1, 2])),
        (raw(DType::F16, &[3], &[0, 0x80, 1, 0, 0, 0xfe]), (vec![1, 2], vec![1, 2])),
        (raw(DType::BF16, &[2], &[0, 0x80, 0, 0x3f]), (vec![1, 1], vec![1])),
    ] {
        assert_eq!(integers(&depends("nonzero", &[], &[&x]).unwrap()[0]), expected, "{x:?}");
    }
    for (seed, shape) in [[3i64, 5, 7], [1, 1, 40], [17, 2, 1]].iter().enumerate() {
        let values = numbers(shape, seed as u64, 3);
        let x = Tensor::new(shape, &values);
        let mut rows = vec![vec![]; 3];
        for (at, _) in values.iter().enumerate().filter(|v| *v.1 != 0) {
            let at = at as i64;
            rows[0].push(at / (shape[1] * shape[2]));
            rows[1].push(at / shape[2] % shape[1]);
            rows[2].push(at % shape[2]);
        }
        let found = &depends("nonzero", &[], &[&x]).unwrap()[0];
        assert_eq!(integers(found), (vec![3, rows[0].len() as i64], rows.concat()));
    }
}

#[test]
fn slices_where_a_condition_holds() {
    let x = Tensor::new(&[3, 2], &[1i32, 2, 3, 4, 5, 6]);
    let condition = |bits: &[u8]| raw(DType::Bool, &[bits.len() as i64], bits);
    let kept = |attributes: &[i64], bits: &[u8]| {
        depends("compress", attributes, &[&x, &condition(bits)]).map(|t| (t[0].shape.clone(), t[0].to_vec::<i32>()))
    };
    assert_eq!(kept(&[0], &[0, 1, 1]).unwrap(), (vec![2, 2], vec![3, 4, 5, 6]));
    assert_eq!(kept(&[1], &[0, 1]).unwrap(), (vec![3, 1], vec![2, 4, 6]));
    assert_eq!(kept(&[], &[0, 1, 0, 0, 1]).unwrap(), (vec![2], vec![2, 5]));
    assert_eq!(kept(&[0], &[1]).unwrap(), (vec![1, 2], vec![1, 2]));
    assert_eq!(kept(&[1], &[0, 0, 0]).unwrap(), (vec![3, 0], vec![]));
    assert!(matches!(kept(&[1], &[0, 0, 1]), Err(Error::Invalid(_))));
    assert!(matches!(kept(&[2], &[1]), Err(Error::Invalid(_))));
    assert!(depends("compress", &[0], &[&x, &x]).is_err());
}

/// The distinct slices of an axis, one comparison after the other.
fn plainly_unique(slices: &[Vec<i64>], sorted: bool) -> (Vec<i64>, Vec<i64>, Vec<i64>) {
    let mut first: Vec<usize> = vec![];
    for (i, s) in slices.iter().enumerate() {
        if !first.iter().any(|&f| slices[f] == *s) {
            first.push(i);
        }
    }
    if sorted {
        first.sort_by_key(|&f| &slices[f]);
    }
    let which = slices.iter().map(|s| first.iter().position(|&f| slices[f] == *s).unwrap() as i64).collect();
    let count = |&f: &usize| slices.iter().filter(|s| **s == slices[f]).count() as i64;
    (first.iter().map(|&f| f as i64).collect(), which, first.iter().map(count).collect())
}

#[test]
fn distinct_slices() {
    let specials = Tensor::new(&[7], &[f32::NAN, 0.0, -1.0, -0.0, f32::NAN, 2.0, -1.0]);
    let found = depends("unique", &[1], &[&specials]).unwrap();
    let values = found[0].to_vec::<f32>();
    assert!(values[..3] == [-1.0, 0.0, 2.0] && values[3].is_nan() && values.len() == 4);
    let [places, which, counts] = [1, 2, 3].map(|k| found[k].to_vec::<i64>());
    assert_eq!((places, which, counts), (vec![2, 1, 5, 0], vec![3, 1, 0, 1, 3, 2, 0], vec![2, 2, 1, 2]));
    for (seed, shape) in [[1i64, 40, 1], [3, 20, 2], [2, 1, 3], [1, 0, 1], [9, 30, 1]].iter().enumerate() {
        let [outer, extent, inner] = shape.map(|d| d as usize);
        let values = numbers(shape, seed as u64, if outer * inner > 1 { 2 } else { 9 });
        let x = Tensor::new(shape, &values);
        let slice = |i: usize| -> Vec<i64> {
            (0..outer).flat_map(|o| values[(o * extent + i) * inner..][..inner].to_vec()).collect()
        };
        let slices: Vec<Vec<i64>> = (0..extent).map(slice).collect();
        for sorted in [true, false] {
            let (places, which, counts) = plainly_unique(&slices, sorted);
            let found = depends("unique", &[sorted as i64, 1], &[&x]).unwrap();
            assert_eq!(found[0].shape, [shape[0], places.len() as i64, shape[2]]);
            let kept = |o: usize| places.iter().map(move |&p| (o, p as usize));
            let wanted: Vec<i64> = (0..outer)
                .flat_map(kept)
                .flat_map(|(o, p)| values[(o * extent + p) * inner..][..inner].to_vec())
                .collect();
            assert_eq!(found[0].to_vec::<i64>(), wanted);
            assert_eq!([1, 2, 3].map(|k| found[k].to_vec::<i64>()), [places, which, counts], "{shape:?}");
            let single: Vec<Vec<i64>> = values.iter().map(|&v| vec![v]).collect();
            let (places, which, counts) = plainly_unique(&single, sorted);
            let found = depends("unique", &[sorted as i64], &[&x]).unwrap();
            assert_eq!([1, 2, 3].map(|k| found[k].to_vec::<i64>()), [places, which, counts], "{shape:?}");
        }
    }
}

#[test]
fn boxes_without_those_that_overlap() {
    let corners = [0.0f32, 0.0, 1.0, 1.0, 0.0, 0.1, 1.0, 1.1, 0.0, -0.1, 1.0, 0.9, 0.0, 10.0, 1.0, 11.0];
    let scores = Tensor::new(&[1, 1, 4], &[0.9f32, 0.75, 0.6, 0.95]);
    let one = |v: f32| Tensor::new(&[1], &[v]);
    let select = |boxes: &[f32], centred: i64, most: i64, share: f32, threshold: Option<f32>| {
        let (boxes, most) = (Tensor::new(&[1, 4, 4], boxes), Tensor::new(&[], &[most]));
        let (share, threshold) = (one(share), threshold.map(one));
        let operands: Vec<&Tensor> = [&boxes, &scores, &most, &share].into_iter().chain(&threshold).collect();
        depends("nms", &[centred], &operands).map(|t| {
            let (shape, rows) = integers(&t[0]);
            assert_eq!(shape, [rows.len() as i64 / 3, 3]);
            rows.chunks(3).map(|r| r[2]).collect::<Vec<_>>()
        })
    };
    assert_eq!(select(&corners, 0, 3, 0.5, None).unwrap(), [3, 0]);
    assert_eq!(select(&corners, 0, 9, 1.0, None).unwrap(), [3, 0, 1, 2]);
    assert_eq!(select(&corners, 0, 9, 0.5, Some(0.9)).unwrap(), [3]);
    assert_eq!(select(&corners, 0, 1, 0.5, None).unwrap(), [3]);
    assert_eq!(select(&corners, 0, 0, 0.5, None).unwrap(), []);
    assert_eq!(select(&corners, 0, i64::MIN, 0.5, None).unwrap(), []);
    let flipped: Vec<f32> = corners.chunks(4).flat_map(|c| [c[2], c[3], c[0], c[1]]).collect();
    assert_eq!(select(&flipped, 0, 3, 0.5, None).unwrap(), [3, 0]);
    let centres: Vec<f32> =
        corners.chunks(4).flat_map(|c| [(c[0] + c[2]) / 2.0, (c[1] + c[3]) / 2.0, c[2] - c[0], c[3] - c[1]]).collect();
    assert_eq!(select(&centres, 1, 3, 0.5, None).unwrap(), [3, 0]);
    assert!(matches!(select(&corners, 0, 3, f32::NAN, None), Err(Error::Invalid(_))));
    let (ties, most) = (Tensor::new(&[1, 1, 4], &[f32::NAN, 0.5, 0.5, f32::NAN]), Tensor::new(&[], &[4i64]));
    let apart: Vec<f32> = (0..4).flat_map(|i| [i as f32, 0.0, i as f32 + 0.5, 1.0]).collect();
    let operands = [&Tensor::new(&[1, 4, 4], &apart), &ties, &most, &one(0.0)];
    let order = depends("nms", &[0], &operands).unwrap()[0].to_vec::<i64>();
    assert_eq!(order.chunks(3).map(|r| r[2]).collect::<Vec<_>>(), [1, 2, 0, 3]);
    assert!(depends("nms", &[0], &[&ties, &ties, &most, &one(0.0)]).is_err());
}

/// Along the first row.
fn laplace(n: usize, a: &[f64]) -> f64 {
    let minor = |k: usize| -> Vec<f64> {
        (1..n).flat_map(|i| (0..n).filter(move |&j| j != k).map(move |j| a[i * n + j])).collect()
    };
    let sign = |k: usize| [1.0, -1.0][k % 2];
    if n == 0 { 1.0 } else { (0..n).map(|k| sign(k) * a[k] * laplace(n - 1, &minor(k))).sum() }
}

#[test]
fn determinants() {
    let of = |x: &Tensor| {
        let batch = x.shape[..x.shape.len() - 2].to_vec();
        let outputs = [(x.dtype, batch), (x.dtype, x.shape.clone())];
        apply("determinant", &[], &[x], &outputs).unwrap().remove(0)
    };
    let close = |a: f64, b: f64, most: f64| (a - b).abs() <= most * b.abs().max(1.0);
    for n in 0..6usize {
        let shape = [3, n as i64, n as i64];
        let values: Vec<f64> = numbers(&shape, n as u64, 19).iter().map(|&v| v as f64 - 9.0).collect();
        let expected: Vec<f64> = (0..3).map(|i| laplace(n, &values[i * n * n..][..n * n])).collect();
        let wide = of(&Tensor::new(&shape, &values)).to_vec::<f64>();
        assert!(wide.iter().zip(&expected).all(|(a, b)| close(*a, *b, 1e-9)), "{n}");
        let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        let single = of(&Tensor::new(&shape, &narrow)).to_vec::<f32>();
        assert!(single.iter().zip(&expected).all(|(a, b)| close((*a).into(), *b, 1e-4)), "{n}");
    }
    assert_eq!(of(&Tensor::new(&[2, 2], &[1.0f32, 2.0, 2.0, 4.0])).to_vec::<f32>(), [0.0]);
    let wrong = Tensor::new(&[2, 1], &[1.0f32, 2.0]);
    assert!(apply("determinant", &[], &[&wrong], &[(DType::F32, vec![]), (DType::F32, vec![2, 1])]).is_err());
}

#[test]
fn n_grams_of_a_pool_are_counted() {
    let x = Tensor::new(&[12], &[1i32, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8]);
    let count = |mode: i64, (least, most): (i64, i64), skip: i64, weights: &[f32]| {
        let pool = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7];
        let mut attributes = vec![mode, least, most, skip, 7, 2, 0, 4, 7, 0, 1, 2, 3, 4, 5, 6, 10];
        attributes.extend(pool);
        attributes.push(weights.len() as i64);
        attributes.extend(weights.iter().map(|w| i64::from(w.to_bits())));
        apply("ngrams", &attributes, &[&x], &[(DType::F32, vec![7])]).unwrap()[0].to_vec::<f32>()
    };
    assert_eq!(count(0, (2, 2), 0, &[]), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    assert_eq!(count(0, (2, 2), 5, &[]), [0.0, 0.0, 0.0, 0.0, 1.0, 3.0, 1.0]);
    assert_eq!(count(0, (1, 2), 5, &[]), [0.0, 3.0, 1.0, 0.0, 1.0, 3.0, 1.0]);
    assert_eq!(count(1, (1, 2), 5, &[]), [0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    let weights = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    assert_eq!(count(1, (1, 2), 5, &weights), [0.0, 2.0, 3.0, 0.0, 5.0, 6.0, 7.0]);
    assert_eq!(count(2, (1, 2), 5, &weights), [0.0, 6.0, 3.0, 0.0, 5.0, 18.0, 7.0]);
    let wrong = |attributes: &[i64]| apply("ngrams", attributes, &[&x], &[(DType::F32, vec![7])]).is_err();
    assert!(wrong(&[0, 1, 1, 0, 7]) && wrong(&[0, 1, 1, 0, 7, 9]) && wrong(&[0, 1, 1, 0, 7, 1, i64::MAX, 0, 0, 0]));
    assert!(wrong(&[0, 1, 1, 0, 7, 1, 0, 1, 7, 1, 5, 0]), "a column outside");
}

#[test]
fn every_element_type_is_compared() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8] {
        let x = Tensor::zeros(dtype, &[4]);
        assert_eq!(depends("nonzero", &[], &[&x]).unwrap()[0].shape, [1, 0]);
        assert_eq!(depends("unique", &[1], &[&x]).unwrap()[3].to_vec::<i64>(), [4]);
    }
}
