#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flashloom_fuzz::ring::window_grant(data));
