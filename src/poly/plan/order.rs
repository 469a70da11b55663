//! The orders of loops that candidates begin with, and the names of candidates.

use crate::poly::tile::{Style, Vectors};

/// The schedule tree that is tiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Ilp,
    Original,
    /// The ILP's, with contiguous loops innermost.
    Contiguous,
    /// The ILP's, with more loops fused.
    Fused,
    /// The ILP's, with sums in nests of their own.
    Apart,
}

/// The properties in which candidates differ.
pub fn name(order: Order, style: Style) -> String {
    let Style { boxes, tiles, vectors, inside, strips, waves, sums, unrolled, jam } = style;
    let order = match order {
        Order::Ilp => "ILP's order",
        Order::Original => "original order",
        Order::Contiguous => "contiguous loops innermost",
        Order::Fused => "more loops fused",
        Order::Apart => "sums in nests of their own",
    };
    let vectors = match vectors {
        Vectors::None => "no vectors",
        Vectors::Contiguous => "vectors along contiguous loops",
        Vectors::Outermost => "vectors along the outermost loop",
        Vectors::Any => "vectors along any loop",
    };
    let parts = [
        (true, order),
        (tiles, "tiles"),
        (waves, "waves of tiles"),
        (boxes, "register blocks"),
        (true, vectors),
        (inside, "vectors inside of loops that carry something"),
        (strips, "in strips for threads"),
        (sums, "sums as vectors"),
        (unrolled, "blocks for unrolled sums"),
        (jam > 1, "unroll and jam"),
    ];
    parts.iter().filter(|part| part.0).map(|part| part.1).collect::<Vec<_>>().join(", ")
}
