//! Gemma 2 and 3: softcaps, the scale of scores, windows, and the values of published models where files state none.

use attnscope_compute::error::Result;
use serde_json::{Map, Value};

use super::facts::{Facts, set};
use super::windows::{slides, types};

/// What published models of a generation have.
struct Published {
    window: Option<u64>,
    /// Softcaps of scores and of logits.
    caps: [Option<f64>; 2],
    /// Layers of the largest model, whose scale is not that of its heads.
    n_layers: u64,
    /// Every n-th layer has no window.
    full_every: u64,
}

/// Files older than keys for window and softcaps are of the published models.
const SECOND: Published = Published {
    window: Some(4096),
    caps: [Some(50.0), Some(30.0)],
    n_layers: 46,
    full_every: 2,
};

const THIRD: Published = Published {
    window: None,
    caps: [None, None],
    n_layers: 62,
    full_every: 6,
};

pub(super) fn gemma2(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    either(facts, config, &SECOND)
}

/// Gemma 3, whose layers with a window have their own rotary base.
pub(super) fn gemma3(facts: &Facts<'_>, config: &mut Map<String, Value>) -> Result<()> {
    either(facts, config, &THIRD)?;
    let local = facts.number("rope.freq_base_swa")?.unwrap_or(10_000.0);
    set(config, "rope_local_base_freq", local);
    Ok(())
}

fn either(facts: &Facts<'_>, config: &mut Map<String, Value>, published: &Published) -> Result<()> {
    let sizes = facts.sizes;
    // Older files have no key for the scale: only the largest models use another width than that of a head.
    let scale = facts.number("attention.scale")?.filter(|s| *s > 0.0);
    let scalar = match scale {
        Some(scale) => 1.0 / (scale * scale),
        None if sizes.n_layers == published.n_layers => sizes.d_model as f64 / sizes.n_heads as f64,
        None => sizes.d_head as f64,
    };
    set(config, "query_pre_attn_scalar", scalar);
    let window = facts.window()?.or(published.window);
    let slides = slides(facts, published.full_every)?;
    set(config, "sliding_window", window);
    set(config, "layer_types", types(&slides, window.is_some()));
    let names = ["attn_logit_softcapping", "final_logit_softcapping"];
    for (name, cap) in names.into_iter().zip(published.caps) {
        let cap = facts.number(name)?.or(cap).filter(|cap| *cap > 0.0);
        set(config, name, cap);
    }
    Ok(())
}
