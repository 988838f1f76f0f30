//! Cyclic redundancy checks of 32 bits, as loggers put them behind their records.

use crc::{CRC_32_ISCSI, CRC_32_ISO_HDLC, Crc, Table};

/// CRC-32C (Castagnoli), of event files.
pub(super) static CASTAGNOLI: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
/// CRC-32 of zip files and Ethernet, of W&B's files.
pub(super) static IEEE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);

/// Returns the form of a CRC-32C in event files, which also hold data that ends with its own check.
pub(super) fn masked(sum: u32) -> u32 {
    sum.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standards() {
        assert_eq!(CASTAGNOLI.checksum(b"123456789"), 0xe306_9283);
        assert_eq!(IEEE.checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(CASTAGNOLI.checksum(b""), 0);
    }
}
