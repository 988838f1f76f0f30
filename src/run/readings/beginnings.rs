//! Beginnings of texts: shorter than what any training is likely to have had, so that nothing in them is new to a model.
//!
//! Beyond the lengths that a model was trained on, whatever turns attention to near tokens helps a healthy model: another rotary
//! base, a window, a smaller scale. In a beginning only what the weights were really trained with does. Pieces from the middle of
//! a text are none: they speak of what the model has not read.

use super::texts::Text;

/// Share of the positions from which beginnings are as good as whole texts.
const MOST: f64 = 2.0 / 3.0;

/// Whether beginnings leave out a large part of the texts or of their sources.
pub(super) fn are_short_of(texts: &[Text], beginnings: &[Text]) -> bool {
    let n_told = |of: &[Text]| of.iter().map(|text| text.wanted.len()).sum::<usize>() as f64;
    let sources = |of: &[Text]| {
        let lengths = of
            .iter()
            .filter_map(|text| Some(text.source.as_ref()?.len()));
        lengths.sum::<usize>() as f64
    };
    n_told(beginnings) < MOST * n_told(texts) || sources(beginnings) < MOST * sources(texts)
}

/// First tokens of each text and of its source.
pub(super) fn beginnings(texts: &[Text], n_tokens: usize) -> Vec<Text> {
    let all = texts.iter();
    all.filter_map(|text| text.beginning(n_tokens)).collect()
}
