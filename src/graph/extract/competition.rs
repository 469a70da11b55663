//! The algorithms that competed for each convolution and product, for the report of a compilation.
//!
//! In: an e-graph, its prices and the chosen e-nodes. Out: for each convolution or product with a fast algorithm in the
//! e-graph the chosen one, the next one, and the bound of the error. The time of minimal filtering is the sum of its three
//! kernels, that of Strassen's recursion the sum of its products and of its sums as kernels of their own.

use crate::graph::cost::{self, Operand};
use crate::graph::egraph::network::{Choice, Head, Network, Term};
use crate::graph::op::{Layout, Op};
use crate::graph::price::Prices;
use crate::graph::rules::algorithm::Algorithm;
use crate::graph::rules::strassen;
use crate::graph::rules::toom_cook::{Transforms, error_bound};
use crate::runtime::text;
use egg::Id;
use serde::{Deserialize, Serialize};

/// The algorithms of the convolutions and products that have a fast one within the bound of the error.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AlgorithmReport {
    /// The convolutions and products, in the order of the model.
    pub layers: Vec<LayerReport>,
    /// Predictions of the tile model that the extraction asked for; equal operators are predicted once.
    pub predictions: usize,
    /// Largest bound of the error of the chosen algorithms, relative to `max|x| · Σ|w|` of the layer; `None` where every
    /// one is direct.
    pub error_bound: Option<f64>,
}

/// The algorithms of one convolution or product.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LayerReport {
    /// Name of the model's node; `None` where rewriting made the operator.
    pub name: Option<String>,
    /// Channels and extents of the image, filters and their window: `64x56x56, 128 of 3x3`. Of a product its factors:
    /// `512x4096 by 4096x4096`.
    pub shape: String,
    /// The chosen algorithm.
    pub chosen: TimedAlgorithm,
    /// The cheapest of the others; `None` where there was no other.
    pub runner_up: Option<TimedAlgorithm>,
    /// Bound of the error of the chosen one, relative to `max|x| · Σ|w|`; `None` for the direct one.
    pub error_bound: Option<f64>,
    /// Bytes of the model's weights of the layer.
    pub source_weights_bytes: u64,
}

/// An algorithm with its time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TimedAlgorithm {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Predicted microseconds on one thread, of all its kernels with their launches.
    pub predicted_us: f64,
    /// Bytes of its weights.
    pub weights_bytes: u64,
    #[serde(skip)]
    error_bound: Option<f64>,
}

impl AlgorithmReport {
    /// `named`: position and name of the model's node whose value is in a class.
    pub fn new<'n>(
        network: &Network,
        prices: &Prices,
        choice: &Choice,
        named: &dyn Fn(Id) -> Option<(u32, &'n str)>,
    ) -> AlgorithmReport {
        let predictions = prices.predictions();
        let competition = Competition { contest: Contest { network, prices }, choice };
        let mut classes: Vec<Id> = network.egraph.classes().map(|c| c.id).collect();
        classes.sort_unstable();
        let mut layers: Vec<(Option<u32>, LayerReport)> = vec![];
        for class in classes {
            let node = || competition.forms(class).into_iter().find_map(named);
            if let Some(layer) = competition.layer(class) {
                let node = node();
                layers.push((node.map(|n| n.0), LayerReport { name: node.map(|n| n.1.to_string()), ..layer }));
            }
        }
        // Those without a name come last.
        layers.sort_by_key(|(position, _)| position.unwrap_or(u32::MAX));
        let layers: Vec<LayerReport> = layers.into_iter().map(|layer| layer.1).collect();
        let error_bound = layers.iter().filter_map(|layer| layer.error_bound).reduce(f64::max);
        AlgorithmReport { layers, predictions, error_bound }
    }
}

/// The e-nodes by which convolutions start algorithms that take longer than others by a margin. The extraction chooses
/// between the rest.
pub fn slower(network: &Network, prices: &Prices) -> Vec<Term> {
    /// Other effects of the choice, such as transforms that two convolutions share, are less than this share. Unmeasured.
    const MARGIN: f64 = 1.02;
    let contest = Contest { network, prices };
    let mut out = vec![];
    for class in network.egraph.classes().map(|c| c.id) {
        let Some((_, fast)) = contest.contestants(class) else { continue };
        let times = fast.iter().map(|f| f.0.predicted_us).chain(contest.directly(class).map(|t| t.predicted_us));
        let least = times.fold(f64::INFINITY, f64::min);
        out.extend(fast.into_iter().filter(|f| f.0.predicted_us > least * MARGIN).map(|f| f.1.clone()));
    }
    out
}

/// The algorithms of convolutions, with their prices.
struct Contest<'a> {
    network: &'a Network,
    prices: &'a Prices<'a>,
}

/// A contest with the chosen e-nodes.
struct Competition<'a> {
    contest: Contest<'a>,
    choice: &'a Choice,
}

impl<'a> Competition<'a> {
    /// The report of a class that is computed by its definition and by fast algorithms, if it is needed.
    fn layer(&self, class: Id) -> Option<LayerReport> {
        let (source, fast) = self.contest.contestants(class)?;
        let mut options: Vec<TimedAlgorithm> = fast.into_iter().map(|f| f.0).collect();
        if options.is_empty() {
            return None;
        }
        let chosen = self.forms(class).into_iter().find_map(|form| self.chosen(form, 3))?;
        options.extend(self.contest.directly(class));
        options.retain(|option| option.algorithm != chosen.algorithm);
        Some(LayerReport {
            name: None,
            shape: self.contest.shape(source),
            source_weights_bytes: self.contest.network.ty(source.children[1]).bytes() as u64,
            error_bound: chosen.error_bound,
            chosen,
            runner_up: options.into_iter().min_by(|a, b| a.predicted_us.total_cmp(&b.predicted_us)),
        })
    }

    /// A class and those of its value in another order of dimensions.
    fn forms(&self, class: Id) -> Vec<Id> {
        let network = self.contest.network;
        let moved = |&id: &Id| {
            matches!(&network.egraph.id_to_node(id).head, Head::Op(Op::Transpose { .. } | Op::Reshape { .. }))
        };
        let others = network.egraph[class].parents().filter(moved).map(|id| network.find(id));
        std::iter::once(class).chain(others).collect()
    }

    /// The algorithm of the chosen e-node of a class, or of the class that it adds to or that it moves.
    fn chosen(&self, class: Id, depth: usize) -> Option<TimedAlgorithm> {
        let network = self.contest.network;
        let class = network.find(class);
        let term = network.terms(class).get(*self.choice.get(&class)?)?;
        let Head::Op(op) = &term.head else { return None };
        match op {
            Op::Conv { .. } | Op::MatMul { .. } => Some(self.contest.direct(class, term)),
            Op::Concat { .. } => self.contest.strassen(class, term),
            Op::WinogradOutput { .. } => self.contest.minimal_filtering(class, term),
            Op::Binary(_) | Op::Transpose { .. } | Op::Reshape { .. } if depth > 0 => {
                let computed = term.children.iter().filter(|&&c| !network.is_constant(c));
                computed.into_iter().find_map(|&c| self.chosen(c, depth - 1))
            }
            _ => None,
        }
    }
}

impl<'a> Contest<'a> {
    /// The convolution over NHWC in a class, perhaps one that a rule replaced.
    fn convolution(&self, class: Id) -> Option<&'a Term> {
        let conv = |t: &&Term| matches!(&t.head, Head::Op(Op::Conv { layout: Layout::Nhwc, .. }));
        self.network.terms(class).iter().find(conv)
    }

    /// The product in a class that seven halves compute as well.
    fn product(&self, class: Id) -> Option<&'a Term> {
        let product = |t: &&Term| matches!(&t.head, Head::Op(Op::MatMul { .. }));
        self.network.terms(class).iter().find(product)
    }

    /// The definition of a class, and its fast algorithms with their e-nodes in the class.
    fn contestants(&self, class: Id) -> Option<(&'a Term, Vec<(TimedAlgorithm, &'a Term)>)> {
        if let Some(convolution) = self.convolution(class) {
            return Some((convolution, self.fast(class, convolution)));
        }
        let product = self.product(class)?;
        Some((product, self.halved(class)))
    }

    /// The direct algorithm, where no rule replaced it.
    fn directly(&self, class: Id) -> impl Iterator<Item = TimedAlgorithm> {
        let term = self.convolution(class).or_else(|| self.product(class)).filter(|t| self.network.is_current(t));
        term.map(|t| self.direct(class, t)).into_iter()
    }

    /// The fast algorithms in the class of a convolution, and those to whose result its bias is added, each with its e-node
    /// in that class.
    fn fast(&self, class: Id, convolution: &Term) -> Vec<(TimedAlgorithm, &'a Term)> {
        let network = self.network;
        let bias = convolution.children.get(2).map(|&b| network.find(b));
        let mut fast = vec![];
        for term in network.terms(class) {
            let Head::Op(op) = &term.head else { continue };
            match op {
                Op::WinogradOutput { .. } => fast.extend(self.minimal_filtering(class, term).map(|t| (t, term))),
                Op::Binary(_) if term.children.iter().any(|&c| Some(network.find(c)) == bias) => {
                    let sums = term.children.iter().map(|&c| network.find(c)).filter(|&c| Some(c) != bias);
                    let timed = sums.flat_map(|c| network.terms(c).iter().map(move |t| (c, t)));
                    fast.extend(timed.filter_map(|(c, t)| self.minimal_filtering(c, t)).map(|t| (t, term)));
                }
                _ => {}
            }
        }
        fast
    }

    fn direct(&self, class: Id, term: &Term) -> TimedAlgorithm {
        TimedAlgorithm {
            algorithm: Algorithm::Direct,
            predicted_us: self.time(class, term) / 1e3,
            weights_bytes: self.network.ty(term.children[1]).bytes() as u64,
            error_bound: None,
        }
    }

    /// The algorithm whose last part this e-node is.
    fn minimal_filtering(&self, class: Id, output: &Term) -> Option<TimedAlgorithm> {
        let Head::Op(Op::WinogradOutput { .. }) = &output.head else { return None };
        let (product_class, product) = self.under(output.children[0], |op| matches!(op, Op::MatMul { .. }), 2)?;
        let (input_class, input) = self.under(product.children[0], |op| matches!(op, Op::WinogradInput { .. }), 2)?;
        let Head::Op(Op::WinogradInput { tile, group, .. }) = &input.head else { return None };
        let axes: Option<Vec<Transforms>> = tile
            .iter()
            .zip(&input.children[1..])
            .map(|(&m, &matrix)| Transforms::new(m, self.network.shape(matrix)[0] - m + 1))
            .collect();
        let channels = self.network.shape(input.children[0]).last()? / group;
        let parts = [(class, output), (product_class, product), (input_class, input)];
        Some(TimedAlgorithm {
            algorithm: Algorithm::Winograd(*tile.iter().max()? as u32),
            predicted_us: parts.iter().map(|(class, term)| self.time(*class, term)).sum::<f64>() / 1e3,
            weights_bytes: self.network.ty(product.children[1]).bytes() as u64,
            error_bound: Some(error_bound(&axes?, channels)),
        })
    }

    /// Strassen's recursion in the class of a product, with its e-node in that class.
    fn halved(&self, class: Id) -> Vec<(TimedAlgorithm, &'a Term)> {
        let network = self.network;
        let of = |term: &'a Term| match &term.head {
            Head::Op(Op::Concat { .. }) => self.strassen(class, term),
            // A product of two dimensions under it is reported there.
            Head::Op(Op::Reshape { .. }) if self.product(network.find(term.children[0])).is_none() => {
                let (inner, whole) = self.under(term.children[0], |op| matches!(op, Op::Concat { .. }), 0)?;
                self.strassen(inner, whole)
            }
            _ => None,
        };
        network.terms(class).iter().filter_map(|term| of(term).map(|timed| (timed, term))).collect()
    }

    /// The recursion whose four quarters this e-node joins.
    fn strassen(&self, class: Id, whole: &'a Term) -> Option<TimedAlgorithm> {
        /// Three concatenations, eight sums of products, seven products and five sums of quarters of the image.
        const PARTS: usize = 23;
        let network = self.network;
        let is = |term: &Term, kind: fn(&Op) -> bool| matches!(&term.head, Head::Op(op) if kind(op));
        let (mut open, mut seen) = (vec![(class, whole)], vec![class]);
        let (mut ns, mut steps, mut weights) = (0.0, 0, vec![]);
        while let Some((class, term)) = open.pop().filter(|_| seen.len() <= PARTS) {
            if !is(term, |op| matches!(op, Op::Concat { .. })) {
                ns += self.time(class, term);
            }
            if is(term, |op| matches!(op, Op::MatMul { .. })) {
                steps = 2 * network.shape(term.children[0]).last()?;
                weights.push(network.ty(term.children[1]).bytes() as u64);
            }
            for child in term.children.iter().map(|&c| network.find(c)).filter(|&c| !network.is_constant(c)) {
                let terms = || network.terms(child).iter();
                let part = |op: &Op| matches!(op, Op::Concat { .. } | Op::Binary(_) | Op::MatMul { .. });
                let outside = terms().any(|t| is(t, |op| matches!(op, Op::Slice { .. }))) || seen.contains(&child);
                if let Some(term) = terms().filter(|_| !outside).find(|t| is(t, part)) {
                    seen.push(child);
                    open.push((child, term));
                }
            }
        }
        (weights.len() == 7 && seen.len() <= PARTS).then(|| TimedAlgorithm {
            algorithm: Algorithm::Strassen,
            predicted_us: ns / 1e3,
            weights_bytes: weights.iter().sum(),
            error_bound: Some(strassen::error_bound(steps)),
        })
    }

    /// An e-node of a kind in a class, or in one that it is a reshape of.
    fn under(&self, class: Id, kind: fn(&Op) -> bool, depth: usize) -> Option<(Id, &'a Term)> {
        let class = self.network.find(class);
        let terms = || self.network.terms(class).iter();
        let is = |t: &&Term, kind: &dyn Fn(&Op) -> bool| matches!(&t.head, Head::Op(op) if kind(op));
        let direct = terms().find(|t| is(t, &kind)).map(|t| (class, t));
        let reshapes = terms().filter(|t| depth > 0 && is(t, &|op| matches!(op, Op::Reshape { .. })));
        direct.or_else(|| reshapes.into_iter().find_map(|t| self.under(t.children[0], kind, depth - 1)))
    }

    /// Nanoseconds of an e-node as a kernel of its own.
    fn time(&self, class: Id, term: &Term) -> f64 {
        let (network, target) = (self.network, self.prices.target());
        let Head::Op(op) = &term.head else { return 0.0 };
        let operands: Vec<Operand> = term.children.iter().map(|&c| network.operand(c)).collect();
        let result = network.ty(class);
        match self.prices.price(op, &operands, result) {
            Some(predicted) => target.machine.start_ns(predicted) + predicted,
            None => cost::node(op, &operands, result, target) + cost::traffic(result.bytes(), target),
        }
    }

    fn shape(&self, source: &Term) -> String {
        let by = |extents: &[i64]| extents.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
        let (image, weights) = (self.network.shape(source.children[0]), self.network.shape(source.children[1]));
        if let Head::Op(Op::MatMul { .. }) = source.head {
            return format!("{} by {}", by(image), by(weights));
        }
        let (space, channels) = (&image[1..image.len() - 1], image[image.len() - 1]);
        format!("{channels}x{}, {} of {}", by(space), weights[0], by(&weights[2..]))
    }
}

impl std::fmt::Display for AlgorithmReport {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        if self.predictions == 0 {
            return Ok(());
        }
        writeln!(f, "algorithms: {} predictions; {}{}", self.predictions, self.bound_text(), self.weights_text())?;
        for layer in &self.layers {
            let name = layer.name.as_ref().map_or(String::new(), |name| format!("{}, ", text::name(name)));
            write!(f, "  {name}{}: {}", layer.shape, layer.chosen)?;
            if let Some(other) = &layer.runner_up {
                write!(f, "; runner-up {other}")?;
            }
            match layer.error_bound {
                Some(bound) => writeln!(f, "; error bound {bound:.1e}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

impl AlgorithmReport {
    /// The memory of the weights of the layers: `; their weights take 86.0 MiB instead of 39.3 MiB`.
    fn weights_text(&self) -> String {
        let fast = || self.layers.iter().filter(|layer| layer.error_bound.is_some());
        if fast().next().is_none() {
            return String::new();
        }
        let taken = text::bytes(fast().map(|layer| layer.chosen.weights_bytes).sum());
        let source = text::bytes(fast().map(|layer| layer.source_weights_bytes).sum());
        format!("; their weights take {taken} instead of {source}")
    }

    /// The largest bound of the error in words: `largest error bound 1.2e-5 of max|x|·Σ|w|, of 13 layers`.
    pub fn bound_text(&self) -> String {
        let fast = self.layers.iter().filter(|layer| layer.error_bound.is_some()).count();
        match self.error_bound {
            Some(bound) => {
                let layers = text::count(fast, "layer");
                format!("largest error bound {bound:.1e} of max|x|·Σ|w|, of {layers} by a fast algorithm")
            }
            None => "all by their definition".into(),
        }
    }
}

impl std::fmt::Display for TimedAlgorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} predicted {:.1} µs", self.algorithm, self.predicted_us)
    }
}
