//! NLLB-MoE: M2M-100 with experts in every few layers, two of which each token uses.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, ExpertsSpec, FeedForward, MlpSpec, ModelSpec, RouterRule, RouterScores, Stack,
};

use super::Family;
use super::reading::bart_like::{self, BartLike, LayerNames, Positions};
use super::reading::{check_counts, linear, linear_bias_if_stored};

pub const FAMILY: Family = Family::own("nllb-moe", "NllbMoe", read);

const LIKE: BartLike = BartLike {
    positions: Positions::SinusoidNotPad,
    norms_before: true,
    tied_alone: true,
    scales: Some(true),
    activation: "relu",
    names: LayerNames {
        probe: "ff_layer_norm.weight",
        mlp: "ffn.",
        mlp_norm: "ff_layer_norm",
        cross: "cross_attention",
        cross_norm: "cross_attention_layer_norm",
    },
    ..BartLike::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = bart_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let n_layers = spec.n_layers_to_run();
    const N: &str = "num_experts";
    let default = Origin::Default(N.to_owned());
    let n = reader.size_or("n_experts", N, 128, default)?;
    check_counts(reader, &checkpoint.tensors, n_layers, (n, false))?;
    let rule = rule(reader, n)?;
    let steps = [
        reader.count_or("experts_every", "encoder_sparse_step", 4)?,
        reader.count_or("decoder experts_every", "decoder_sparse_step", 4)?,
    ];
    let is_half_decoder = spec.stacks.len() == 1
        && (spec.stacks[0].blocks().first())
            .and_then(BlockSpec::attention)
            .is_some_and(|own| own.mask.causal);
    for stack in &mut spec.stacks {
        let is_decoder = stack.stack == Stack::Decoder || is_half_decoder;
        let every = steps[usize::from(is_decoder)];
        let blocks = stack.blocks_mut().iter_mut().enumerate();
        for (_, block) in blocks.filter(|(idx, _)| every > 0 && (idx + 1) % every == 0) {
            let norm = block.mlp_pre.as_ref().and_then(|norm| norm.gain.first());
            let at = norm.and_then(|norm| norm.strip_suffix(".ff_layer_norm.weight"));
            let at = format!("{}.ffn", at.unwrap_or_default());
            if let FeedForward::Dense(dense) = &block.feed_forward {
                let router = format!("{at}.router.classifier");
                let experts =
                    (0..n).map(|idx| expert(dense, &format!("{at}.experts.expert_{idx}")));
                block.feed_forward = FeedForward::Experts(Box::new(ExpertsSpec {
                    router: linear_bias_if_stored(&checkpoint.tensors, &router, dense.up.n_in, n),
                    rule: rule.clone(),
                    experts: experts.collect(),
                    shared: None,
                    latent: None,
                    norms: None,
                    apart: None,
                }));
            }
        }
    }
    reader.remark(
        "each token runs through its two best experts, as in transformers 4; transformers 5 up to 5.24 sends all tokens to the first two".to_owned(),
    );
    Ok(spec)
}

/// An expert with the shape of a dense feed-forward block.
fn expert(dense: &MlpSpec, at: &str) -> MlpSpec {
    let (d_model, d_mlp) = (dense.up.n_in, dense.up.n_out());
    MlpSpec::plain(
        linear(&format!("{at}.fc1"), d_model, d_mlp, true),
        linear(&format!("{at}.fc2"), d_mlp, d_model, true),
        dense.activation,
    )
}

/// How tokens are routed to experts.
fn rule(reader: &mut Reader<'_>, n: usize) -> Result<RouterRule> {
    const POLICY: &str = "second_expert_policy";
    const DTYPE: &str = "router_dtype";
    const CAPACITY: &str = "moe_eval_capacity_token_fraction";
    for (knob, key, only, why) in [
        (
            "second_expert",
            POLICY,
            "all",
            "other policies choose at random whether the second expert is used",
        ),
        (
            "router_dtype",
            DTYPE,
            "float32",
            "other types round the input of the router",
        ),
    ] {
        let found = reader.word_or(knob, key, only)?;
        if found != only {
            let problem = format!("expected {only:?}, found {found:?}: {why}");
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    let capacity = reader.number_or("expert_capacity", CAPACITY, 1.0)?;
    if capacity < 1.0 {
        let problem = format!(
            "expected a number from 1, found {capacity}: some tokens would reach no expert"
        );
        return Err(Error::config(reader.path(), CAPACITY, problem));
    }
    // These keys only matter if tokens are dropped, or in training.
    for key in [
        "batch_prioritized_routing",
        "normalize_router_prob_before_dropping",
        "expert_capacity",
        "router_bias",
        "router_ignore_padding_tokens",
    ] {
        reader.value(key);
    }
    let dropped = reader.number_or("expert_dropout", "moe_token_dropout", 0.2)?;
    Ok(RouterRule {
        normalises: true,
        scale: 1.0 - dropped as f32,
        ..RouterRule::plain(n.min(2), RouterScores::Softmax)
    })
}
