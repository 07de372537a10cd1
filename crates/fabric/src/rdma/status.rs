//! Words for how work requests fail.

/// The words for a status of a work request, where the other end is the `peer`.
pub fn said(status: u32, peer: &str) -> String {
    match status {
        1 => "local length error".to_owned(),
        4 => "local protection error".to_owned(),
        9 => "remote invalid request".to_owned(),
        10 => format!("remote access error: a key or an address of the {peer}'s is not valid"),
        11 => "remote operation error".to_owned(),
        12 => format!("the {peer} does not answer"),
        13 => format!("the {peer} has no receive for it"),
        other => format!("status {other}"),
    }
}
