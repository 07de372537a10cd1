//! Which namespaces can be a drive.

use initiator::Geometry;
use media::Kind;
use stdx::num::align_down;

use super::error::Why;

/// What capacities are multiples of: what the drive's users read and write is.
pub(super) const GRAIN: u64 = 4096;

/// Bytes of it that are used.
pub(super) fn bytes_of(geometry: &Geometry) -> u64 {
    align_down(geometry.blocks.saturating_mul(geometry.block_bytes.into()), GRAIN)
}

/// Whether a namespace can be such a drive at all.
pub(super) fn fits(geometry: &Geometry) -> Result<(), Why> {
    let refused = |words: String| Err(Why::new(Kind::Unsupported, words));
    if !geometry.supports.reservations {
        return refused(
            "the namespace knows no reservations, without which writes that were given up could come late: Flashloom \
             has them, Linux from 6.13 on with resv_enable, and SPDK"
                .to_owned(),
        );
    }
    if !GRAIN.is_multiple_of(geometry.block_bytes.into()) {
        return refused(format!(
            "the namespace has blocks of {} bytes: at most {GRAIN} can be used",
            geometry.block_bytes
        ));
    }
    if geometry.read_only {
        return Err(Why::new(Kind::ReadOnly, "the namespace is write protected"));
    }
    if bytes_of(geometry) == 0 {
        return refused("the namespace has no blocks".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use initiator::Supports;

    fn geometry() -> Geometry {
        let supports = Supports {
            write_zeroes: true,
            zeroes_deallocate: true,
            deallocate: true,
            deallocated_reads_zeroes: true,
            compare: true,
            verify: true,
            reservations: true,
            reservations_persist: false,
        };
        Geometry {
            block_bytes: 512,
            blocks: 17,
            transfer_max_bytes: 1 << 20,
            atomic_blocks: 1,
            atomic_power_fail_blocks: 1,
            optimal_write_blocks: 1,
            supports,
            copy: None,
            volatile_cache: true,
            read_only: false,
            identity: Default::default(),
        }
    }

    #[test]
    fn a_namespace_that_cannot_be_a_drive_is_refused_in_words() {
        assert_eq!((fits(&geometry()), bytes_of(&geometry())), (Ok(()), 8192));
        assert_eq!(fits(&Geometry { block_bytes: 4096, ..geometry() }), Ok(()));
        let without = Supports { reservations: false, ..geometry().supports };
        for (geometry, words) in [
            (Geometry { supports: without, ..geometry() }, "knows no reservations"),
            (Geometry { block_bytes: 8192, ..geometry() }, "blocks of 8192 bytes"),
            (Geometry { read_only: true, ..geometry() }, "write protected"),
            (Geometry { blocks: 7, ..geometry() }, "no blocks"),
        ] {
            let why = fits(&geometry).unwrap_err();
            assert!(why.words.contains(words), "{why:?}");
        }
    }
}
