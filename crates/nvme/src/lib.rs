//! NVMe, Fabrics and NVMe/TCP as types and state machines, without I/O.
