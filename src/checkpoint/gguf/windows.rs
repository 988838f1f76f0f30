//! Layers with a sliding window.

use attnscope_compute::error::Result;

use super::facts::Facts;
use super::value::Value as Stored;

/// Returns which layers have a window: as listed, or all except every n-th; n = 0 means all.
pub(super) fn slides(facts: &Facts<'_>, usual: u64) -> Result<Vec<bool>> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let n_layers = facts.sizes.n_layers;
    if let Some(Stored::List(list)) = facts.metadata.get(&facts.key(PATTERN)) {
        let truth = |value| match value {
            Stored::Bool(slides) => Some(slides),
            _ => None,
        };
        let listed = facts.metadata.elements(list)?.into_iter().map(truth);
        let listed: Option<Vec<bool>> = listed.collect();
        return match listed.filter(|listed| listed.len() as u64 == n_layers) {
            Some(listed) => Ok(listed),
            None => {
                let problem = format!("expected one truth value for each of {n_layers} layers");
                facts.refuse(PATTERN, problem)
            }
        };
    }
    let every = facts.whole(PATTERN)?.unwrap_or(usual);
    Ok((1..=n_layers)
        .map(|n| every == 0 || n % every != 0)
        .collect())
}

/// Returns the layer types of sliding and of full attention; all are full if there is no window.
pub(super) fn types(slides: &[bool], has_window: bool) -> Vec<&'static str> {
    let word = |slides: &bool| {
        if *slides && has_window {
            "sliding_attention"
        } else {
            "full_attention"
        }
    };
    slides.iter().map(word).collect()
}
