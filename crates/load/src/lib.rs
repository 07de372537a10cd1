//! Load generator and verification over the initiator: what bench and demo run.
