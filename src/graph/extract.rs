//! Extraction: the cheapest graph, by an ILP.
