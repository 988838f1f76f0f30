//! A.X K1: DeepSeek V3 with a norm on the output of the experts.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{FeedForward, ModelSpec};

use super::reading::expected::{Expected, check};
use super::reading::experts::{ExpertsKeys, SparseLayers};
use super::reading::hybrid::layer_of;
use super::reading::latent::{self, LatentLike};
use super::{Family, deepseek_v3};

/// Published models also store the norm of dense layers, which do not use it.
pub const FAMILY: Family =
    Family::own("axk1", "AXK1", read).leaving_unread(&["post_mlp_layernorm.weight"]);

const BIAS: &str = "gate.e_score_correction_bias";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    // Published models choose experts without a bias.
    let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
    let has_bias = names.any(|name| name.ends_with(BIAS));
    let like = LatentLike {
        experts: ExpertsKeys {
            choice_bias: has_bias.then_some((BIAS, false)),
            layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
            ..deepseek_v3::EXPERTS
        },
        interleaves: Some("rope_interleave"),
        ..LatentLike::PLAIN
    };
    check(reader, &[("moe_layer_freq", Expected::Number(1))])?;
    let mut spec = latent::read(FAMILY.model_type, checkpoint, reader, like)?;
    for block in spec.stacks[0].blocks_mut() {
        if matches!(block.feed_forward, FeedForward::Experts(_)) {
            let at = layer_of(block, ".input_layernorm.weight");
            let mut norm = block.mlp_pre.clone();
            if let Some(norm) = &mut norm {
                norm.gain = vec![format!("{at}.post_mlp_layernorm.weight")];
            }
            block.mlp_out = norm;
        }
    }
    Ok(spec)
}
