//! The replacement table in a SentencePiece model: a double-array trie over bytes, and the texts that its leaves refer to.

/// Replaces the longest known prefix; every step is bounds-checked, because the table comes from a file.
#[derive(Debug, Clone, Default)]
pub struct Charsmap {
    units: Vec<u32>,
    texts: Vec<u8>,
}

/// Upper limit of a prefix in bytes: no table has longer ones.
const LONGEST_PREFIX: usize = 1024;

impl Charsmap {
    /// Layout: bytes of the trie as u32, the trie's u32 units, then texts that end in a zero byte. Empty means no table.
    ///
    /// # Errors
    /// When the sizes do not fit each other.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let fault = || "its table of replacements is cut short".to_owned();
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(fault)?;
        let n_bytes = u32::from_le_bytes(*size) as usize;
        if n_bytes > rest.len() || !n_bytes.is_multiple_of(4) {
            return Err(fault());
        }
        let (trie, texts) = rest.split_at(n_bytes);
        let (units, _) = trie.as_chunks::<4>();
        Ok(Self {
            units: units.iter().map(|unit| u32::from_le_bytes(*unit)).collect(),
            texts: texts.to_vec(),
        })
    }

    /// Whether no text leads outside the table; other readers rely on that.
    pub fn is_closed(&self) -> bool {
        let (Some(root), Ok(texts)) = (self.units.first(), std::str::from_utf8(&self.texts)) else {
            return false;
        };
        let mut seen = vec![false; self.units.len()];
        let mut waiting = vec![offset(*root)];
        while let Some(at) = waiting.pop() {
            for byte in 1..=255u32 {
                let next = at ^ byte as usize;
                let Some(unit) = self.units.get(next).copied() else {
                    return false;
                };
                if unit & 0x8000_00ff != byte || std::mem::replace(&mut seen[next], true) {
                    continue;
                }
                let child = next ^ offset(unit);
                if unit >> 8 & 1 == 1 {
                    let start = self
                        .units
                        .get(child)
                        .map(|leaf| (leaf & 0x7fff_ffff) as usize);
                    if !start.is_some_and(|start| texts.is_char_boundary(start)) {
                        return false;
                    }
                }
                waiting.push(child);
            }
        }
        true
    }

    /// The replacement of the longest known prefix of `text`, and the number of bytes it replaces.
    pub fn longest(&self, text: &str) -> Option<(&str, usize)> {
        let mut at = offset(*self.units.first()?);
        let mut found = None;
        for (idx, byte) in text.bytes().take(LONGEST_PREFIX).enumerate() {
            // A zero byte ends a key of the trie.
            if byte == 0 {
                break;
            }
            at ^= usize::from(byte);
            let Some(unit) = self.units.get(at).copied() else {
                break;
            };
            // The top bit marks the value of a leaf, which is not a label.
            if unit & 0x8000_00ff != u32::from(byte) {
                break;
            }
            at ^= offset(unit);
            if unit >> 8 & 1 == 1
                && let Some(leaf) = self.units.get(at)
            {
                found = Some(((leaf & 0x7fff_ffff) as usize, idx + 1));
            }
        }
        let (start, n_bytes) = found.filter(|(_, n)| text.is_char_boundary(*n))?;
        let rest = self.texts.get(start..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some((std::str::from_utf8(&rest[..end]).ok()?, n_bytes))
    }
}

/// The offset from a unit to its children.
fn offset(unit: u32) -> usize {
    ((unit >> 10) as usize) << ((unit & (1 << 9)) >> 6)
}
