//! The memory plan: where each intermediate tensor lives in one arena.
//!
//! In: sizes and lifetimes, counted in steps. Out: an offset for each, such that two requests that live at the same step
//! never share a byte, and the size of the arena. Greedy by size with best fit among the gaps (Pisarchyk and Lee,
//! "Efficient Memory Management for Deep Neural Net Inference", 2020); we also try longest lifetime first and keep the
//! smaller plan.

use crate::bytes::PAGE;

/// Bytes behind an item that takes nearly whole pages, so that the next one starts in another set of a first cache (cache colouring, Bonwick 1994): loops over many
/// items would lose their lines otherwise.
const COLOUR: u64 = 832;

/// Alignment of every offset in bytes: a cache line, and the widest vector.
pub const ALIGNMENT: u64 = 64;

/// One tensor to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub bytes: u64,
    /// The step that writes it first.
    pub first: usize,
    /// The last step that touches it, at least `first`.
    pub last: usize,
    /// Shares the memory of another request (an earlier or later one): both lifetimes then count for both.
    pub alias: Option<usize>,
}

/// Offsets in the order of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Plan {
    pub offsets: Vec<u64>,
    /// Size of the arena: the peak.
    pub bytes: u64,
}

/// Places every request. Chains of aliases end in a request without one; panics on a cycle.
pub fn plan(requests: &[Request]) -> Plan {
    let root: Vec<usize> = (0..requests.len()).map(|i| root_of(requests, i)).collect();
    let mut merged: Vec<Option<Request>> = vec![None; requests.len()];
    for (request, &root) in requests.iter().zip(&root) {
        let m = merged[root].get_or_insert(Request { bytes: 0, first: usize::MAX, last: 0, alias: None });
        m.bytes = m.bytes.max(request.bytes);
        m.first = m.first.min(request.first);
        m.last = m.last.max(request.last);
    }
    let roots: Vec<usize> = (0..requests.len()).filter(|&i| merged[i].is_some()).collect();
    let items: Vec<&Request> = merged.iter().flatten().collect();
    let mut by_size: Vec<usize> = (0..items.len()).collect();
    by_size.sort_by_key(|&i| (std::cmp::Reverse(items[i].bytes), items[i].first, i));
    let mut by_lifetime: Vec<usize> = (0..items.len()).collect();
    by_lifetime
        .sort_by_key(|&i| (std::cmp::Reverse(items[i].last - items[i].first), std::cmp::Reverse(items[i].bytes), i));
    let (a, b) = (place(&items, &by_size), place(&items, &by_lifetime));
    let best = if b.bytes < a.bytes { b } else { a };
    let mut of_root = vec![0; requests.len()];
    for (k, &r) in roots.iter().enumerate() {
        of_root[r] = best.offsets[k];
    }
    Plan { offsets: root.iter().map(|&r| of_root[r]).collect(), bytes: best.bytes }
}

fn root_of(requests: &[Request], start: usize) -> usize {
    let mut request = start;
    for _ in 0..=requests.len() {
        match requests[request].alias {
            Some(next) => request = next,
            None => return request,
        }
    }
    panic!("aliases of request {start} form a cycle");
}

/// Bytes that an item takes.
fn room(item: &Request) -> u64 {
    let size = item.bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
    let page = PAGE as u64;
    let apart = (COLOUR / 2..=page - COLOUR / 2).contains(&(size % page));
    if size >= page && !apart { size + COLOUR } else { size }
}

/// Places items one by one in `order`, each in the smallest gap that holds it between those that live at the same time.
fn place(items: &[&Request], order: &[usize]) -> Plan {
    let mut offsets = vec![0; items.len()];
    let mut bytes = 0;
    let mut placed: Vec<usize> = vec![];
    for &i in order {
        let size = room(items[i]);
        let mut live: Vec<(u64, u64)> = placed
            .iter()
            .filter(|&&j| items[j].first <= items[i].last && items[i].first <= items[j].last)
            .map(|&j| (offsets[j], offsets[j] + room(items[j])))
            .collect();
        live.sort_unstable();
        let (mut end, mut best): (u64, Option<(u64, u64)>) = (0, None);
        for (from, to) in live {
            if from >= end + size && best.is_none_or(|(gap, _)| from - end < gap) {
                best = Some((from - end, end));
            }
            end = end.max(to);
        }
        offsets[i] = best.map_or(end, |(_, offset)| offset);
        bytes = bytes.max(offsets[i] + size);
        placed.push(i);
    }
    Plan { offsets, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(bytes: u64, first: usize, last: usize) -> Request {
        Request { bytes, first, last, alias: None }
    }

    #[test]
    fn a_chain_needs_two_buffers() {
        let chain: Vec<Request> = (0..20).map(|i| request(1000, i, i + 1)).collect();
        assert_eq!(plan(&chain).bytes, 2048);
    }

    #[test]
    fn an_alias_keeps_its_memory_alive() {
        // 0 is aliased by 1 which is read at step 5; 2 lives between.
        let requests = [request(64, 0, 1), Request { alias: Some(0), ..request(64, 1, 5) }, request(64, 3, 3)];
        let p = plan(&requests);
        assert_eq!(p.offsets[0], p.offsets[1]);
        assert_ne!(p.offsets[0], p.offsets[2]);
    }

    #[test]
    fn an_item_takes_the_smallest_gap_that_holds_it() {
        // Long-lived items with gaps of 256 and 128 bytes between them at step 5.
        let items = [
            request(64, 0, 9),
            request(250, 0, 1),
            request(64, 0, 9),
            request(128, 0, 4),
            request(1, 0, 9),
            request(128, 5, 6),
            request(64, 6, 6),
            request(193, 6, 7),
            request(192, 5, 5),
        ];
        let items: Vec<&Request> = items.iter().collect();
        let placed = place(&items, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(placed.offsets, [0, 64, 320, 384, 512, 384, 64, 576, 64]);
        assert_eq!(placed.bytes, 576 + 256);
        // Of equal gaps the first.
        let items = [(0, 9), (0, 1), (0, 9), (0, 1), (0, 9), (2, 2)].map(|(first, last)| request(64, first, last));
        assert_eq!(place(&items.iter().collect::<Vec<_>>(), &[0, 1, 2, 3, 4, 5]).offsets[5], 64);
    }

    #[test]
    fn the_smaller_of_two_plans_is_kept() {
        // By size 512 bytes, by lifetime 640.
        assert_eq!(plan(&[request(256, 0, 0), request(128, 1, 3), request(256, 0, 1)]).bytes, 512);
        // By size 576 bytes, by lifetime 512.
        let requests = [request(128, 2, 4), request(192, 0, 2), request(256, 0, 1), request(192, 2, 4)];
        assert_eq!(plan(&requests).bytes, 512);
        // By size, and by the steps at which they begin or end, 576 bytes.
        let requests = [request(128, 2, 4), request(192, 3, 5), request(192, 3, 3), request(256, 5, 5)];
        assert_eq!(plan(&requests).bytes, 512);
    }

    #[test]
    #[should_panic(expected = "form a cycle")]
    fn a_cycle_of_aliases_panics() {
        plan(&[Request { alias: Some(1), ..request(64, 0, 1) }, Request { alias: Some(0), ..request(64, 1, 5) }]);
    }

    #[test]
    fn an_alias_has_the_bytes_and_steps_of_all() {
        // The second is larger and the third lives earlier than the first, whose memory they share.
        let shared = [
            request(64, 3, 4),
            Request { alias: Some(0), ..request(640, 4, 6) },
            Request { alias: Some(1), ..request(64, 1, 2) },
        ];
        for (first, last, bytes) in [(0, 0, 640), (1, 1, 704), (6, 6, 704), (7, 9, 640), (0, 9, 704)] {
            let requests = [&shared[..], &[request(64, first, last)]].concat();
            assert_eq!(plan(&requests).bytes, bytes, "{first}..={last}");
        }
    }

    #[test]
    fn nothing_needs_nothing() {
        assert_eq!(plan(&[]), Plan::default());
    }

    proptest! {
        #[test]
        fn live_requests_never_overlap(items in prop::collection::vec((0u64..5000, 0usize..30, 0usize..10, any::<bool>(), 0usize..1000), 1..60)) {
            let requests: Vec<Request> = items
                .iter()
                .enumerate()
                .map(|(i, &(bytes, first, length, aliased, pick))| Request {
                    bytes,
                    first,
                    last: first + length,
                    alias: (aliased && i > 0).then(|| pick % i.max(1)),
                })
                .collect();
            let p = plan(&requests);
            for (i, a) in requests.iter().enumerate() {
                prop_assert_eq!(p.offsets[i] % ALIGNMENT, 0);
                prop_assert!(p.offsets[i] + a.bytes <= p.bytes);
                for (j, b) in requests.iter().enumerate().skip(i + 1) {
                    if root_of(&requests, i) == root_of(&requests, j) {
                        prop_assert_eq!(p.offsets[i], p.offsets[j]);
                    } else if a.first <= b.last && b.first <= a.last {
                        let apart = p.offsets[i] + a.bytes <= p.offsets[j] || p.offsets[j] + b.bytes <= p.offsets[i];
                        prop_assert!(apart, "{:?} and {:?} overlap", a, b);
                    }
                }
            }
        }
    }
}
