//! Moves capsules and data between two ends: NVMe/TCP, listen and connect sides.
