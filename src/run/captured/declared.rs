//! Properties of a trace: declared by flags, stated in its metadata, or inferred from most of its heads.

use attnscope_checkpoint::captured::Captured;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::Stack;

use super::layout::Axes;

/// Direction of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    Causal,
    Bidirectional,
}

/// Properties of a trace that the user declares; the others are read from the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Declared {
    pub mask: Option<Mask>,
    pub window: Option<usize>,
    pub axis: Option<SoftmaxAxis>,
    /// 1 for every real token.
    pub attention_mask: Option<Vec<bool>>,
    /// Where packed documents begin.
    pub documents: Option<Vec<usize>>,
}

/// Declared properties, completed from the trace's metadata.
#[derive(Debug, Clone)]
pub(super) struct Stated {
    /// `None` if nobody declared it.
    pub causal: Option<bool>,
    /// Inferred direction instead, by stack and kind of layer.
    pub inferred: Vec<(Stack, String, bool)>,
    /// Inferred number of leading keys that every query sees, by stack and kind of layer.
    pub inferred_prefix: Vec<(Stack, String, usize)>,
    /// Declared number of leading keys that every query sees.
    pub prefix: Option<usize>,
    /// Declared number of keys that the first query of a cross-attention sees; each later query sees one more.
    pub wait_k: Option<usize>,
    /// Declared order of the axes.
    pub axes: Option<Axes>,
    pub window: Option<usize>,
    pub axis: SoftmaxAxis,
    pub has_sinks: bool,
    pub real: Option<Vec<bool>>,
    /// The tokens of a decoder's own text that are no padding, as its patterns say.
    pub real_of_target: Option<Vec<bool>>,
    pub documents: Vec<usize>,
    pub origin: String,
}

impl Stated {
    /// # Errors
    /// When the metadata, or an array that belongs to it, is malformed.
    pub fn read(captured: &Captured, declared: &Declared) -> Result<Self> {
        let said = |names: &[&str]| {
            names
                .iter()
                .find_map(|name| captured.metadata.get(*name).map(String::as_str))
        };
        let wrong = |key: &str, expected: &str, found: &str| {
            Error::config(
                &captured.path,
                key,
                format!("expected {expected}, found {found:?}"),
            )
        };
        let number = |key: &str| match said(&[key]) {
            Some(text) => match text.parse::<usize>() {
                Ok(0) | Err(_) => Err(wrong(key, "a whole number from 1", text)),
                Ok(number) => Ok(Some(number)),
            },
            None => Ok(None),
        };
        let window = match (declared.window, said(&["attnscope.window", "window"])) {
            (Some(width), _) => Some(width),
            (None, Some(text)) => match text.parse() {
                Ok(0) | Err(_) => {
                    return Err(wrong("attnscope.window", "a whole number from 1", text));
                }
                Ok(width) => Some(width),
            },
            (None, None) => None,
        };
        let (direction, origin) =
            match (declared.mask, said(&["attnscope.mask"]), said(&["causal"])) {
                (Some(mask), ..) => (
                    Some(mask == Mask::Causal),
                    "mask as given on the command line",
                ),
                (None, Some("causal"), _) | (None, None, Some("true" | "True" | "1")) => {
                    (Some(true), "mask as the file says")
                }
                (None, Some("bidirectional"), _) | (None, None, Some("false" | "False" | "0")) => {
                    (Some(false), "mask as the file says")
                }
                (None, Some("none") | None, None) => (None, ""),
                (None, Some(other), _) | (None, None, Some(other)) => {
                    return Err(wrong(
                        "attnscope.mask",
                        "causal, bidirectional or none",
                        other,
                    ));
                }
            };
        let real = match &declared.attention_mask {
            Some(real) => Some(real.clone()),
            None => real_tokens(captured)?,
        };
        let starts = match (&declared.documents, said(&["attnscope.documents"])) {
            (Some(starts), _) => starts.clone(),
            (None, Some(text)) => text
                .split(',')
                .map(|start| {
                    start.trim().parse().map_err(|_| {
                        wrong("attnscope.documents", "positions such as 0,17,40", text)
                    })
                })
                .collect::<Result<_>>()?,
            (None, None) => Vec::new(),
        };
        Ok(Self {
            causal: direction,
            inferred: Vec::new(),
            inferred_prefix: Vec::new(),
            prefix: number("attnscope.prefix")?,
            wait_k: number("attnscope.wait_k")?,
            axes: stated_axes(captured)?,
            window,
            axis: declared.axis.unwrap_or(SoftmaxAxis::Keys),
            has_sinks: said(&["attnscope.sinks"])
                .is_some_and(|text| !["", "0", "false", "none"].contains(&text)),
            real,
            real_of_target: None,
            documents: starts,
            origin: origin.to_owned(),
        })
    }

    /// Mask of a kind of layer. The encoder of an encoder-decoder model is bidirectional, whatever the decoder's mask.
    pub fn mask_of(&self, stack: Stack, kind: &str) -> attnscope_compute::attention::Mask {
        let is_kind = |(of, named, _): &&(Stack, String, bool)| *of == stack && named == kind;
        let inferred = self.inferred.iter().find(is_kind);
        let causal = match (self.causal, inferred) {
            (Some(causal), _) => causal && stack != Stack::Encoder,
            (None, Some((_, _, causal))) => *causal || self.prefix_of(stack, kind).is_some(),
            (None, None) => false,
        };
        attnscope_compute::attention::Mask::with_width(causal && stack != Stack::Cross, self.window)
    }

    /// Number of leading keys that every query of a kind of layer sees.
    pub fn prefix_of(&self, stack: Stack, kind: &str) -> Option<usize> {
        let is_kind = |(of, named, _): &&(Stack, String, usize)| *of == stack && named == kind;
        let inferred = self.inferred_prefix.iter().find(is_kind);
        self.prefix.or(inferred.map(|(_, _, n)| *n))
    }

    /// Document index of each of `n` positions; empty if there is only one document.
    pub fn document_of(&self, n: usize) -> Vec<usize> {
        if self.documents.is_empty() {
            return Vec::new();
        }
        let mut starts = self.documents.clone();
        starts.sort_unstable();
        (0..n)
            .map(|idx| starts.partition_point(|start| *start <= idx))
            .collect()
    }
}

/// Reads the order of axes that the metadata states.
///
/// # Errors
/// When it is not an order of axes.
pub fn stated_axes(captured: &Captured) -> Result<Option<Axes>> {
    let key = "attnscope.layout";
    let said = captured.metadata.get(key);
    let axes = said.map(|text| {
        let expected = "expected an order of axes such as bhqk, bqkh, hbqk or qkbh";
        let wrong = || Error::config(&captured.path, key, format!("{expected}, found {text:?}"));
        Axes::parse(text).ok_or_else(wrong)
    });
    axes.transpose()
}

/// Reads the token ids of an array; of a batch, those of the first sequence.
///
/// # Errors
/// When the array exists but does not hold whole numbers from 0.
pub fn token_ids(captured: &Captured, name: &str) -> Result<Option<Vec<u32>>> {
    let mut ids = captured.whole_numbers(name)?;
    // An array of more axes, such as a mask of queries by keys, is left whole: its length tells that it does not fit.
    if let (Some(ids), Some([_, between @ .., n])) = (&mut ids, captured.shape(name).as_deref())
        && between.iter().all(|axis| *axis == 1)
    {
        ids.truncate(*n);
    }
    Ok(ids.map(|ids| ids.into_iter().map(|id| id as u32).collect()))
}

/// Reads which tokens are real and which are padding; of a batch, those of the first sequence.
///
/// # Errors
/// When the recorded mask does not hold whole numbers from 0.
pub fn real_tokens(captured: &Captured) -> Result<Option<Vec<bool>>> {
    let flags = token_ids(captured, "attention_mask")?;
    Ok(flags.map(|flags| flags.into_iter().map(|flag| flag != 0).collect()))
}
