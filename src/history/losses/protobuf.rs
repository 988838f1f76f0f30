//! The wire format of protocol buffers: the fields of a message, as they stand in its bytes.

/// The value of a field. What is not read of a field, such as a group, ends the message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Wire<'a> {
    Number(u64),
    Eight([u8; 8]),
    Four([u8; 4]),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

/// The fields of a message with their numbers, in the order of its bytes. Ends at the first byte that is no field.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads a number of 7 bits per byte, the lowest first.
    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for nth in 0..10 {
            let [byte] = self.take::<1>()?;
            value |= u64::from(byte & 0x7f) << (7 * nth);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let key = self.number()?;
        let value = match key & 7 {
            0 => Wire::Number(self.number()?),
            1 => Wire::Eight(self.take()?),
            2 => {
                let length = usize::try_from(self.number()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            5 => Wire::Four(self.take()?),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Wire<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.field();
        if found.is_none() {
            self.0 = &[];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_their_kind() {
        let bytes = [
            0x10, 0xac, 0x02, // field 2: 300
            0x0a, 0x02, b'h', b'i', // field 1: "hi"
            0x15, 0, 0, 0x80, 0x3f, // field 2: 1.0
            0x09, 1, 2, 3, 4, 5, 6, 7, 8, // field 1: eight bytes
        ];
        let fields: Vec<(u64, Wire<'_>)> = Fields(&bytes).collect();
        assert_eq!(
            fields,
            [
                (2, Wire::Number(300)),
                (1, Wire::Bytes(b"hi")),
                (2, Wire::Four([0, 0, 0x80, 0x3f])),
                (1, Wire::Eight([1, 2, 3, 4, 5, 6, 7, 8])),
            ]
        );
    }

    #[test]
    fn a_message_ends_where_no_field_is() {
        let endless = [0xff; 32];
        let too_long = [
            0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, b'x',
        ];
        let group = [0x0b, 0x10, 1];
        let cut = [0x10, 0x80];
        for bytes in [&endless[..], &too_long, &group, &cut, &[]] {
            assert_eq!(Fields(bytes).count(), 0, "{bytes:?}");
        }
    }
}
