//! Cyclic redundancy checks of 32 bits, as loggers put them behind their records.

/// A check by one polynomial, whose bits are reversed.
#[derive(Debug)]
pub(super) struct Crc([u32; 256]);

/// CRC-32C (Castagnoli), of event files.
pub(super) static CASTAGNOLI: Crc = Crc::of(0x82f6_3b78);
/// CRC-32 of zip files and Ethernet, of W&B's files.
pub(super) static IEEE: Crc = Crc::of(0xedb8_8320);

impl Crc {
    const fn of(polynomial: u32) -> Self {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut value = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                value = (value >> 1) ^ (polynomial * (value & 1));
                bit += 1;
            }
            table[byte] = value;
            byte += 1;
        }
        Self(table)
    }

    pub fn sum(&self, bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |sum: u32, byte| {
            (sum >> 8) ^ self.0[usize::from(sum as u8 ^ byte)]
        })
    }
}

/// Returns the form of a CRC-32C in event files, which also hold data that ends with its own check.
pub(super) fn masked(sum: u32) -> u32 {
    sum.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standards() {
        assert_eq!(CASTAGNOLI.sum(b"123456789"), 0xe306_9283);
        assert_eq!(IEEE.sum(b"123456789"), 0xcbf4_3926);
        assert_eq!(CASTAGNOLI.sum(b""), 0);
    }
}
