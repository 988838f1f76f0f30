//! Finds which positions are padding: from a [batch, position] array of 0 and 1, by its name or by the attention on each key.

use std::collections::BTreeMap;

use attnscope_checkpoint::captured::Captured;
use attnscope_compute::error::Result;

use super::names::Name;

/// Arrays with more elements are not padding masks.
const MOST_ELEMENTS: usize = 1 << 22;

/// Arrays of token ids, which are not masks.
const TOKENS: [&str; 2] = ["tokens", "decoder_tokens"];

/// The positions of the first sequence of a batch: 1 for a token, 0 for padding.
pub(super) struct Padding {
    /// Name of the array.
    pub name: String,
    pub real: Vec<bool>,
    /// Whether 1 marks padding rather than a token.
    pub is_inverted: bool,
}

/// Whether some flags are set and some are not; otherwise the mask marks nothing.
fn marks_some(flags: &[bool]) -> bool {
    flags.contains(&true) && flags.contains(&false)
}

/// Looks for a padding mask. `mass_of` gives the attention that each key receives from all recorded queries.
///
/// # Errors
/// When an array cannot be read.
pub(super) fn find(
    captured: &Captured,
    masses: &BTreeMap<usize, Vec<f64>>,
) -> Result<Option<Padding>> {
    let mut found: Vec<Padding> = Vec::new();
    for name in captured.names() {
        let is_known = TOKENS.contains(&name) || name == "attention_mask";
        if is_known || Name::parse(name).is_some() {
            continue;
        }
        let Some(shape) = captured.shape(name) else {
            continue;
        };
        let n_elements: usize = shape.iter().product();
        let n = match *shape.as_slice() {
            [n] | [_, n] | [_, 1, 1, n] => n,
            _ => continue,
        };
        let Some(mass) = masses
            .get(&n)
            .filter(|_| n_elements <= MOST_ELEMENTS && n > 1)
        else {
            continue;
        };
        let Some(values) = captured.numbers(name)? else {
            continue;
        };
        let Some(flags) = flags(&values[..n.min(values.len())]) else {
            continue;
        };
        if !marks_some(&flags) || !(names_padding(name) || shows_padding(&flags, mass)) {
            continue;
        }
        let is_inverted = is_inverted(name, &flags, mass);
        let real = flags.iter().map(|flag| *flag != is_inverted).collect();
        found.push(Padding {
            name: name.to_owned(),
            real,
            is_inverted,
        });
    }
    // Prefer the clearest name: several masks of one text should agree.
    found.sort_by_key(|padding| !names_padding(&padding.name));
    Ok(found.into_iter().next())
}

/// Reads a mask of 0 and 1, or an additive one of 0 and a large negative number or −inf.
fn flags(values: &[f64]) -> Option<Vec<bool>> {
    if values.iter().all(|v| *v == 0.0 || *v == 1.0) {
        return Some(values.iter().map(|v| *v == 1.0).collect());
    }
    let is_added = |v: &f64| *v == 0.0 || *v <= -1e3;
    values
        .iter()
        .all(is_added)
        .then(|| values.iter().map(|v| *v == 0.0).collect())
}

/// Usual names of padding masks, as the last part of an array's name.
const NAMES: [&str; 9] = [
    "mask",
    "src_mask",
    "source_mask",
    "input_mask",
    "token_mask",
    "tokens_mask",
    "seq_mask",
    "valid",
    "valid_mask",
];

/// Whether the name alone identifies a padding mask. Other arrays of 0 and 1 are common: token types, labels, loss masks.
fn names_padding(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(['.', '/']).next().unwrap_or(&name);
    let is_attention = last.ends_with("attention_mask") || last.ends_with("attn_mask");
    is_attention || last.contains("pad") || NAMES.contains(&last)
}

/// Whether flags and attention look like padding: it is at the ends and receives exactly nothing.
fn shows_padding(flags: &[bool], mass: &[f64]) -> bool {
    let n_changes = flags.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let (ones, zeros) = masses(flags, mass);
    n_changes <= 2 && (ones == 0.0) != (zeros == 0.0)
}

/// Total attention received by keys marked 1, and by keys marked 0.
fn masses(flags: &[bool], mass: &[f64]) -> (f64, f64) {
    let of = |kind: bool| -> f64 {
        let cells = flags.iter().zip(mass).filter(|(flag, _)| **flag == kind);
        cells.map(|(_, mass)| *mass).sum()
    };
    (of(true), of(false))
}

/// Whether 1 marks padding. PyTorch's `key_padding_mask` is true for padding, whatever the pattern shows. In other masks,
/// padding is the kind of key that receives exactly nothing; if both kinds receive some attention, the name decides.
fn is_inverted(name: &str, flags: &[bool], mass: &[f64]) -> bool {
    if name.to_ascii_lowercase().contains("key_padding_mask") {
        return true;
    }
    let (ones, zeros) = masses(flags, mass);
    if (ones == 0.0) != (zeros == 0.0) {
        return ones == 0.0;
    }
    name.to_ascii_lowercase().contains("pad")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_receive_nothing_are_padding_and_otherwise_the_name_decides() {
        let flags = [true, true, false, false];
        assert!(is_inverted("src_mask", &flags, &[0.0, 0.0, 2.0, 1.0]));
        assert!(!is_inverted("pad", &flags, &[2.0, 1.0, 0.0, 0.0]));
        assert!(is_inverted("key_padding_mask", &flags, &[1.0; 4]));
        assert!(is_inverted(
            "src_key_padding_mask",
            &flags,
            &[2.0, 1.0, 0.0, 0.0]
        ));
        assert!(is_inverted("padded", &flags, &[1.0; 4]));
        assert!(!is_inverted("src_mask", &flags, &[1.0; 4]));
    }

    #[test]
    fn flags_are_read_from_0_and_1_or_from_an_additive_mask() {
        assert_eq!(flags(&[0.0, 1.0]), Some(vec![false, true]));
        assert_eq!(flags(&[0.0, f64::NEG_INFINITY]), Some(vec![true, false]));
        assert_eq!(flags(&[0.0, -1e9]), Some(vec![true, false]));
        assert_eq!(flags(&[0.0, 2.0]), None);
    }
}
