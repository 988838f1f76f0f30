//! Phi 3.5 MoE: Mixtral with layer norms and biases, whose two experts are chosen one after the other.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{ModelSpec, RouterScores};

use super::Family;
use super::reading::experts::NUMBERED;
use super::reading::llama_like::{
    self, BiasRule, ExpertStore, ExpertsKeys, NormStyle, RMS, Recipe,
};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::own("phimoe", "Phimoe", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const USED: &str = "num_experts_per_tok";
    if let Some(used) = reader.value(USED).filter(|used| used.as_u64() != Some(2)) {
        let problem = format!("expected 2, which this family always uses, found {used}");
        return Err(Error::config(reader.path(), USED, problem));
    }
    let has_bias = reader.flag_quietly("lm_head_bias")?;
    let jitter = reader.number_or("router_closeness", "router_jitter_noise", 0.01)? as f32;
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps: 1e-5,
            has_bias: true,
            ..RMS
        },
        theta: 1e6,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        window: WindowRule::Always(None),
        experts: Some(ExpertsKeys {
            at: "block_sparse_moe",
            store: ExpertStore::Each(NUMBERED),
            n_experts: ["num_local_experts", "num_experts"],
            d_expert: "intermediate_size",
            scores: RouterScores::Mixer(jitter),
            normalises: BiasRule::Never,
            ..ExpertsKeys::PLAIN
        }),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    // A stored bias is ignored if the class does not create one.
    if let Some(head) = spec.head.as_mut().filter(|_| !has_bias) {
        head.unembed.bias = None;
    }
    Ok(spec)
}
