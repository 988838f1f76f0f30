//! The text part of dots3 note: DeepSeek V3.2 with windows in some layers, which have widths of their own, and gates of heads.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::expected::{Expected, check};
use super::reading::experts::{ExpertsKeys, GroupKeys, SharedKeys, SharedWidth, SparseLayers};
use super::reading::indexer::IndexerKeys;
use super::reading::latent::{self, LatentLike};
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::own("dots3_note_text", "Dots3Note", read);

/// Two names for the width of a shared expert.
const SHARED: [&str; 2] = [
    "shared_experts_intermediate_size",
    "moe_shared_expert_intermediate_size",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    check(reader, &[("moe_layer_freq", Expected::Number(1))])?;
    let width = SHARED[usize::from(reader.is_stated(SHARED[1]))];
    let like = LatentLike {
        experts: ExpertsKeys {
            groups: Some(GroupKeys::if_stated(2)),
            scale: Some(("routed_scaling_factor", 1.0)),
            shared: Some(SharedKeys {
                width: SharedWidth::TimesOf("n_shared_experts", width),
                ..deepseek_v3::SHARED
            }),
            layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
            ..deepseek_v3::EXPERTS
        },
        indexer: Some(IndexerKeys {
            interleaved: true,
            is_listed: true,
            ..IndexerKeys::PLAIN
        }),
        sharpens: false,
        eps: 1e-5,
        latent_eps_is_of_block: true,
        scales_latents: true,
        shared_key_norm: Some("k_rope_only_layernorm"),
        head_gate: Some("g_proj"),
        theta: 8e7,
        ..LatentLike::PLAIN
    };
    latent::read(FAMILY.model_type, checkpoint, reader, like)
}
