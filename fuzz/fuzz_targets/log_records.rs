#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flashloom_fuzz::log::log_records(data));
