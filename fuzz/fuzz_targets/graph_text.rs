#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tilewright_fuzz::target("graph_text").fuzz(data, false));
