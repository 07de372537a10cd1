//! RAID as arithmetic: geometry, parity, placement. No I/O; used over drives by the engine and over
//! targets by the host side.
