//! What std lacks, and nothing of ours: ids, byte sizes, slab, ring, bitset, prng, latency histogram.
