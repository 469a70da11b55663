#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tilewright_fuzz::target("network_grow").fuzz(data, true));
