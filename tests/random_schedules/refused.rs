//! Schedules that break an order: each is refused with two instances that enumeration confirms.

/// Programs by name.
pub const PROGRAMS: &[(&str, &str)] = &[
    ("seidel", "loop p() { inout f64 A[12][12]
        for t in 0..4 for i in 1..11 for j in 1..11
            A[i][j] = (A[i-1][j-1] + A[i-1][j] + A[i-1][j+1] + A[i][j-1] + A[i][j] + A[i][j+1] + A[i+1][j-1] + A[i+1][j] + A[i+1][j+1]) / 9 }"),
    ("jacobi", "loop p() { inout f64 A[12][12], B[12][12]
        for t in 0..4 {
            for i in 1..11 for j in 1..11 S: B[i][j] = 0.2 * (A[i][j] + A[i][j-1] + A[i][j+1] + A[i-1][j] + A[i+1][j])
            for i in 1..11 for j in 1..11 T: A[i][j] = 0.2 * (B[i][j] + B[i][j-1] + B[i][j+1] + B[i-1][j] + B[i+1][j]) } }"),
    ("cholesky", "loop p() { inout f64 A[10][10]
        for i in 0..10 {
            for j in 0..i {
                for k in 0..j S: A[i][j] -= A[i][k] * A[j][k]
                T: A[i][j] /= A[j][j] }
            for k in 0..i U: A[i][i] -= A[i][k] * A[i][k]
            V: A[i][i] = sqrt(A[i][i]) } }"),
    ("triangle", "loop p() { inout f64 x[12]\n in f64 L[12][12], b[12]
        for i in 0..12 { S: x[i] = b[i]\n for j in 0..i T: x[i] -= L[i][j] * x[j]\n U: x[i] = x[i] / L[i][i] } }"),
    ("paths", "loop p() { inout i32 P[9][9]\n for k in 0..9 for i in 0..9 for j in 0..9 P[i][j] = min(P[i][j], P[i][k] + P[k][j]) }"),
    ("scan", "loop p() { inout f64 x[20], y[20]\n for i in 1..20 { S: x[i] = x[i-1] + y[i]\n T: y[i] = x[i] * 2 } }"),
    ("stages", "loop p() { in f64 x[20]\n inout f64 u[20], v[20], w[20]
        for i in 0..20 S: u[i] = x[i] * 2\n for i in 1..19 T: v[i] = u[i-1] + u[i+1]\n for i in 2..18 U: w[i] = v[i-1] + v[i+1] }"),
    ("gemm", "loop p() { in f64 A[9][9], B[9][9]\n inout f64 C[9][9]
        for i in 0..9 for j in 0..9 { S: C[i][j] = C[i][j] * 3\n for k in 0..9 T: C[i][j] += A[i][k] * B[k][j] } }"),
    ("back", "loop p() { inout f64 x[16]\n for i in 0..15 step -1 x[i] = x[i+1] + x[i] }"),
    ("scalar", "loop p() { inout f64 A[9][9]\n temp f64 t
        for i in 0..9 { S: t = A[i][0]\n for j in 1..9 T: A[i][j] = A[i][j] - t } }"),
    ("mirror", "loop p() { inout f64 x[16]\n for i in 0..16 x[i] = x[15 - i] + 1 }"),
    ("wave", "loop p() { inout f64 A[12][12]\n for i in 1..12 for j in 0..11 A[i][j] = A[i-1][j+1] + A[i][j] }"),
];

/// Program, primitives.
pub const REFUSED: &[(&str, &str)] = &[
    ("seidel", "reorder i, t"),
    ("seidel", "reorder t, j, i  reverse i"),
    ("seidel", "reverse j"),
    ("seidel", "parallel t"),
    ("seidel", "tile A(i, j) by (4, 4) -> io, jo, ii, ji"),
    ("seidel", "tile A(t, i) by (2, 4) -> to, io, ti, ii"),
    ("seidel", "skew i by t  tile A(t, i, j) by (2, 4, 4) -> to, io, jo, ti, ii, ji"),
    ("seidel", "skew i by t  skew j by t  tile A(t, i, j) by (2, 4, 4) -> to, io, jo, ti, ii, ji"),
    ("seidel", "skew i by t  reorder i, j, t"),
    ("seidel", "vectorize j by 4"),
    ("seidel", "unroll_and_jam t by 2"),
    ("seidel", "wavefront t"),
    ("jacobi", "distribute S, T at t"),
    ("jacobi", "merge S, T at i"),
    ("jacobi", "merge S, T at j"),
    ("jacobi", "shift T(j) by 1  merge S, T at j"),
    ("jacobi", "reverse t"),
    ("jacobi", "parallel t"),
    ("jacobi", "sequence T, S"),
    ("jacobi", "distribute S, T at t  reorder S(i, t)"),
    ("cholesky", "distribute S, T at j"),
    ("cholesky", "parallel i"),
    ("cholesky", "reverse i"),
    ("cholesky", "reverse j"),
    ("cholesky", "sequence V, U"),
    ("cholesky", "sequence U, S"),
    ("cholesky", "distribute S, U, V at i"),
    ("cholesky", "split i by 4 -> io, ii  parallel io"),
    ("triangle", "distribute S, T, U at i"),
    ("triangle", "distribute T, U at i"),
    ("triangle", "sequence U, T"),
    ("triangle", "parallel i"),
    ("triangle", "shift U(i) by -1"),
    ("triangle", "distribute S, T, U at i  reorder T(j, i)  merge S, T at i"),
    ("paths", "reorder P(i, j, k)"),
    ("paths", "parallel k"),
    ("paths", "reverse k"),
    ("paths", "tile P(k, i) by (3, 3) -> ko, io, ki, ii"),
    ("scan", "distribute S, T at i  sequence T, S"),
    ("scan", "shift S(i) by 1"),
    ("scan", "reverse i"),
    ("scan", "vectorize i by 4"),
    ("scan", "sequence T, S"),
    ("stages", "merge S, T at i"),
    ("stages", "shift T(i) by 1  merge S, T, U at i"),
    ("stages", "shift T(i) by 1  shift U(i) by 1  merge S, T, U at i"),
    ("stages", "sequence U, S, T"),
    ("stages", "shift T(i) by 1  merge S, T at i  parallel S(i)"),
    ("stages", "shift T(i) by 4  merge S, T at i  split S(i) by 4 -> io, ii  parallel S(io)"),
    ("gemm", "sequence T, S"),
    ("gemm", "reorder S(j, i)  distribute S, T at i  sequence T, S"),
    ("gemm", "distribute S, T at i  reorder T(k, i, j)  parallel T(k)"),
    ("gemm", "distribute S, T at i  split T(k) by 3 -> ko, ki  reorder T(ko, i, j, ki)  parallel T(ko)"),
    ("gemm", "distribute S, T at i  shift S(i) by 1  merge S, T at j"),
    ("gemm", "distribute S, T at i  reverse T(i)  merge S, T at j"),
    ("back", "reverse i"),
    ("back", "split i by 4 -> io, ii  parallel io"),
    ("back", "vectorize i by 4"),
    ("scalar", "distribute S, T at i"),
    ("scalar", "parallel i"),
    ("scalar", "sequence T, S"),
    ("mirror", "reverse i"),
    ("mirror", "parallel i"),
    ("mirror", "vectorize i by 16"),
    ("mirror", "split i by 12 -> io, ii  reverse io"),
    ("wave", "reorder j, i"),
    ("wave", "wavefront i"),
    ("wave", "skew i by j"),
];
