//! Printers and parser of LoopNest, printer of VCode.
