//! Bounds of NVMe/TCP, each with its place in the transport specification or its reason.

/// Highest PDU data alignment value (HPDA and CPDA), 0's based dwords (sections 3.6.2.2, 3.6.2.3).
pub const PDA_MAX: u8 = 31;
/// Bytes of the longest run that an encoder writes before data: not a header padded to the highest
/// alignment (128), but a command capsule's header and digest (76) padded to twice 72.
pub const HEAD_BYTES_MAX: usize = 144;
/// Bytes of the longest head before data of a data PDU: 24 and 4, padded to the highest alignment. An
/// ICReq and an ICResp are as long.
pub const DATA_HEAD_BYTES_MAX: usize = 128;
/// Bytes of the longest PDU with a 24-byte header and no data.
pub const SHORT_HEAD_BYTES_MAX: usize = 28;
/// Least MAXH2CDATA a controller may state, in bytes (section 3.6.2.3).
pub const MAXH2CDATA_MIN: u32 = 4096;
/// Most bytes of an offending header in a terminate connection request (section 3.6.2.4).
pub const TERM_REQ_DATA_MAX: usize = 128;
/// Bytes of the longest terminate connection request.
pub const TERM_REQ_BYTES_MAX: usize = 24 + TERM_REQ_DATA_MAX;
/// Transfer tags of one connection: a queue is at most 1024 deep, and a command has one R2T at a time.
pub const TRANSFERS_MAX: u16 = 1024;
/// Command identifiers a host may have on one connection: a queue of 1024 and, on the admin queue,
/// asynchronous event requests and a keep alive beside it; the rest is room.
pub const COMMANDS_MAX: u16 = 2048;

const _: () = {
    let mut pda = 0;
    while pda <= PDA_MAX as usize {
        assert!(76_usize.next_multiple_of((pda + 1) * 4) <= HEAD_BYTES_MAX);
        assert!(72_usize.next_multiple_of((pda + 1) * 4) <= HEAD_BYTES_MAX);
        assert!(28_usize.next_multiple_of((pda + 1) * 4) <= DATA_HEAD_BYTES_MAX);
        assert!(24_usize.next_multiple_of((pda + 1) * 4) <= DATA_HEAD_BYTES_MAX);
        pda += 1;
    }
};
const _: () = assert!(MAXH2CDATA_MIN.is_multiple_of(4));
