//! Random small programs of the text language: imperfect nests, triangular and parametric bounds, stencils in place,
//! sums, guards, scalars, reads and writes through an index, stages that hand on temporaries.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write;

/// Iterators run in a part of this range, so that subscripts with an offset up to 2 are inside of arrays of 12.
const RANGE: (i64, i64) = (2, 10);

pub struct Maker {
    pub random: StdRng,
    text: String,
    statements: usize,
    integers: bool,
    scalar: bool,
    indirect: bool,
}

impl Maker {
    pub fn new(seed: u64) -> Maker {
        let random = StdRng::seed_from_u64(seed);
        Maker { random, text: String::new(), statements: 0, integers: false, scalar: false, indirect: false }
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())].clone()
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    /// A program called `p`: loops, a tensor expression, or stages; its bounds are numbers or of a size N.
    pub fn program(&mut self) -> String {
        let text = match self.pick(&[0, 0, 0, 0, 0, 1, 1, 2, 2, 2]) {
            0 => self.loops(),
            1 => self.definitions(),
            _ => self.stages(),
        };
        if !text.starts_with("loop") || !self.chance(40) {
            return text;
        }
        let text = text.replacen("loop p()", "loop p(N = 12)", 1).replace("[12]", "[N]").replace("..10 ", "..N-2 ");
        text.replace("..9 ", "..N-3 ").replace("11 - ", "N-1 - ")
    }

    fn loops(&mut self) -> String {
        self.indirect = self.chance(25);
        self.integers = self.chance(50);
        self.scalar = self.chance(25);
        let kind = if self.integers { "i32" } else { "f64" };
        self.text =
            format!("loop p() {{\n    inout {kind} A[12][12], B[12][12], x[12], y[12]\n    in {kind} V[12][12]\n");
        if self.scalar {
            let _ = writeln!(self.text, "    temp {kind} s");
        }
        if self.indirect {
            self.text.push_str("    in i64 ix[12]\n");
        }
        let nests = self.pick(&[1, 1, 2, 3]);
        for _ in 0..nests {
            self.nest(&mut vec![]);
        }
        self.text.push_str("}\n");
        std::mem::take(&mut self.text)
    }

    /// A loop with one to three things in it.
    fn nest(&mut self, around: &mut Vec<String>) {
        let pad = "    ".repeat(around.len() + 1);
        let index = ["i", "j", "k"][around.len()].to_string();
        let lower = match around.last() {
            Some(outer) if self.chance(20) => self.pick(&[outer.clone(), format!("{outer} + 1"), "3".into()]),
            _ => self.pick(&[RANGE.0, RANGE.0, 3, 4]).to_string(),
        };
        let upper = match around.last() {
            Some(outer) if self.chance(20) => self.pick(&[outer.clone(), format!("min({outer} + 2, 9)"), "9".into()]),
            _ => self.pick(&[RANGE.1, RANGE.1, 9, 7]).to_string(),
        };
        let step = if self.chance(10) { " step -1" } else { "" };
        let _ = writeln!(self.text, "{pad}for {index} in {lower}..{upper}{step} {{");
        around.push(index);
        if self.scalar && self.chance(40) {
            self.scalar_part(around);
        }
        let parts = self.pick(&[1, 1, 2, 3]);
        for _ in 0..parts {
            if around.len() < 3 && self.statements < 5 && self.chance(if around.len() == 1 { 65 } else { 40 }) {
                self.nest(around);
            } else {
                self.statement(around);
            }
        }
        around.pop();
        let _ = writeln!(self.text, "{pad}}}");
    }

    /// Writes and reads of the scalar in one iteration.
    fn scalar_part(&mut self, around: &[String]) {
        let pad = "    ".repeat(around.len() + 1);
        let (value, target) = (self.read(around), self.element(around, 100));
        let _ = writeln!(self.text, "{pad}s = {value}\n{pad}{target} += s");
    }

    fn statement(&mut self, around: &[String]) {
        self.statements += 1;
        let pad = "    ".repeat(around.len() + 1);
        let guard = match around {
            [.., a, b] if self.chance(8) => format!("if {a} + {b} < {} ", self.pick(&[9, 11, 13])),
            _ => String::new(),
        };
        let mut target = self.element(around, 60);
        if self.indirect && self.chance(20) {
            let array = self.pick(&["A", "B"]);
            target = format!("{array}[ix[{}]][{}]", self.subscript(around, 70), self.subscript(around, 50));
        }
        let (a, b) = (self.read(around), self.read(around));
        let text = match (self.pick(&[0, 0, 1, 1, 2, 3]), self.integers) {
            (0, true) => format!("{target} = {a} + 3 * {b}"),
            (0, false) => format!("{target} = 0.5 * {a} - 0.25 * {b}"),
            (1, true) => format!("{target} += {a} * {b}"),
            (1, false) => format!("{target} += 0.125 * {a}"),
            (2, _) => format!("{target} min= {a}"),
            (_, true) => format!("{target} -= {a}"),
            (_, false) => format!("{target} = ({a} + {b}) / 2"),
        };
        let _ = writeln!(self.text, "{pad}{guard}S{}: {text}", self.statements);
    }

    fn read(&mut self, around: &[String]) -> String {
        match self.pick(&[0, 0, 0, 1]) {
            0 => self.element(around, 50),
            _ if self.indirect && self.chance(60) => {
                let array = self.pick(&["A", "B", "V"]);
                format!("{array}[ix[{}]][{}]", self.subscript(around, 70), self.subscript(around, 50))
            }
            _ => format!("V[{}][{}]", self.subscript(around, 50), self.subscript(around, 50)),
        }
    }

    fn element(&mut self, around: &[String], plain: u32) -> String {
        let array = self.pick(&["A", "A", "B", "x", "y"]);
        let own: Vec<String> = match around.len() {
            n if n >= 2 && self.chance(plain) => around[n - 2..].to_vec(),
            _ => vec![self.subscript(around, plain), self.subscript(around, plain)],
        };
        if matches!(array, "A" | "B") {
            format!("{array}[{}][{}]", own[0], own[1])
        } else {
            format!("{array}[{}]", own[1])
        }
    }

    fn subscript(&mut self, around: &[String], plain: u32) -> String {
        if self.chance(8) {
            return self.pick(&[0, 5]).to_string();
        }
        let index = self.pick(around);
        if self.chance(plain) {
            return index;
        }
        match self.pick(&[0, 1, 2, 3]) {
            0 => format!("{index} - 1"),
            1 => format!("{index} + 1"),
            2 => format!("{index} - 2"),
            _ => format!("11 - {index}"),
        }
    }

    /// Two or three nests, each of which reads temporaries of those before it.
    fn stages(&mut self) -> String {
        let kind = self.pick(&["i32", "f64"]);
        let mut text = format!("loop p() {{\n    inout {kind} A[12][12], B[12][12]\n    in {kind} V[12][12]\n");
        let _ = writeln!(text, "    temp {kind} P[12][12], Q[12][12]");
        let start = self.pick(&[
            "for i in 0..12 for j in 0..12 S1: P[i][j] = V[i][j] * 3",
            "for j in 0..12 for i in 0..12 S1: P[i][j] = V[i][11 - j] + A[i][j]",
            "for i in 0..12 for j in 0..12 { S1: P[i][j] = 0  for k in 0..12 S2: P[i][j] += V[i][k] * V[k][j] }",
            "for i in 0..12 for j in 0..12 S1: P[i][j] = V[i][j]\n    for i in 2..10 for j in 0..12 S2: P[i][j] += V[j][i]",
        ]);
        let middle = self.pick(&[
            "",
            "for i in 0..12 for j in 1..11 S3: Q[i][j] = P[i][j-1] + P[i][j] + P[i][j+1]",
            "for i in 1..11 for j in 0..12 S3: Q[i][j] = P[i-1][j] - P[i+1][j]",
            "for i in 0..12 for j in 0..12 { S3: Q[i][j] = P[j][i]  S4: A[i][j] = A[i][j] + 1 }",
        ]);
        let from = if middle.is_empty() { "P" } else { "Q" };
        let end = self.pick(&[
            "for i in 2..10 for j in 2..10 S5: B[i][j] = F[i][j] * 2",
            "for i in 2..10 for j in 2..10 S5: B[j][i] = F[i][j] + F[i-1][j]",
            "for i in 2..9 for j in 2..10 { S5: B[i][j] = F[i][j] - F[i+1][j]  S6: A[i][j] = B[i][j] }",
            "for i in 2..10 { for j in 2..10 S5: B[0][i] += F[i][j]\n    for j in 3..9 S6: B[i][j] = F[j][i] }",
        ]);
        let _ = writeln!(text, "    {start}\n    {middle}\n    {}\n}}", end.replace('F', from));
        text
    }

    /// Two or three equations over vectors and matrices.
    fn definitions(&mut self) -> String {
        let middle = self.pick(&[
            "P(m,n) +=! X(m,k) * Z(k,n)",
            "P(m,n) = X(m,n) * X(m,n) + Z(m,n)",
            "P(m,n) max=! X(m,k) - Z(n,k)",
            "P(m,n) = (X(m,n) + X(m,n+1) + X(m+1,n)) / 3 where m in 0..8, n in 0..8",
        ]);
        let last = self.pick(&[
            "Q(m,n) = P(m,n) + P(n,m) where m in 0..8, n in 0..8",
            "Q(m) +=! P(m,n)",
            "Q(m,n) +=! P(m,k) * X(k,n) where m in 0..7, n in 0..6",
            "t(m) max=! P(m,n)\n    Q(m,n) = P(m,n) - t(m)",
        ]);
        format!("def p(f64(9,9) X, f64(9,9) Z) -> (Q) {{\n    {middle}\n    {last}\n}}\n")
    }
}
