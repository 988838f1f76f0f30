//! The text part of Voxtral Realtime on text alone: Mistral, whose feed-forward norms grow with the delay behind a sound.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::{GainGrowth, ModelSpec};
use serde_json::Value;

use super::Family;
use super::reading::linear;
use super::reading::llama_like::{self, Recipe};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::own("voxtral_realtime_text", "VoxtralRealtimeText", read);

/// Width between the two maps that a delay passes through.
const NARROW: usize = 32;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const DELAY: &str = "default_num_delay_tokens";
    let recipe = Recipe {
        window: WindowRule::Always(Some(4096)),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    // The whole model says how many tokens of delay it has.
    let stated = checkpoint.config.get(DELAY).and_then(Value::as_u64);
    let (delay, origin) = match stated {
        Some(delay) => (delay, Origin::Key(DELAY.to_owned())),
        None => (6, Origin::Default(DELAY.to_owned())),
    };
    reader.note("delay", delay, origin);
    reader.value(DELAY);
    let d_model = spec.d_model;
    let values = sines(delay as f32, d_model);
    for block in spec.stacks[0].blocks_mut() {
        let Some(norm) = &mut block.mlp_pre else {
            continue;
        };
        let Some(gain) = norm.gain.first() else {
            continue;
        };
        let at = gain.replace("post_attention_layernorm.weight", "ada_rms_norm");
        norm.grown = Some(Box::new(GainGrowth {
            values: values.clone(),
            into: linear(&format!("{at}.linear1"), d_model, NARROW, false),
            activation: Activation::Gelu,
            out: linear(&format!("{at}.linear2"), NARROW, d_model, false),
        }));
    }
    reader.remark(format!(
        "run on text alone, as {delay} tokens behind a sound: what is heard, which is added to the text's embeddings, is left out"
    ));
    Ok(spec)
}

/// All cosines, then all sines of a delay by falling frequencies.
fn sines(delay: f32, width: usize) -> Vec<f32> {
    let half = (width / 2).max(1);
    let angle = |idx: usize| delay * (-(10_000f64.ln()) * idx as f64 / half as f64).exp() as f32;
    let cosines = (0..half).map(|idx| angle(idx).cos());
    cosines
        .chain((0..half).map(|idx| angle(idx).sin()))
        .collect()
}
