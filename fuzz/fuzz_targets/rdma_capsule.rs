#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flashloom_fuzz::wire::rdma_capsule(data));
