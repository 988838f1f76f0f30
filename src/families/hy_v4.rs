//! Hunyuan 4: residual streams with hyper-connections, latent attention with gates and sinks that sees only the keys that an indexer
//! picks, experts whose gates have a limit.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{FeedForward, GateRule, IndexSource, ModelSpec};

use super::reading::experts::{ExpertsKeys, GroupKeys, SparseLayers};
use super::reading::hybrid::layer_of;
use super::reading::hyper::{HyperKeys, connect};
use super::reading::indexer::IndexerKeys;
use super::reading::latent::{self, LatentLike};
use super::reading::linear;
use super::{Family, deepseek_v3};

pub const FAMILY: Family =
    Family::own("hy_v4", "HYV4", read).leaving_unread(&["model.mtp_layers.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    read_as(FAMILY.model_type, checkpoint, reader, false)
}

/// Reads a family with Hunyuan 4's blocks; where rotating pairs are `interleaved`, norms of latent vectors have the epsilon of the others.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    interleaved: bool,
) -> Result<ModelSpec> {
    let like = LatentLike {
        experts: ExpertsKeys {
            groups: Some(GroupKeys::if_stated(2)),
            scale: Some(("routed_scaling_factor", 2.827)),
            layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
            ..deepseek_v3::EXPERTS
        },
        is_by_halves: !interleaved,
        indexer: Some(IndexerKeys {
            interleaved,
            shares: Some(4),
            ..IndexerKeys::PLAIN
        }),
        eps: 1e-5,
        latent_eps_is_of_block: interleaved,
        ..LatentLike::PLAIN
    };
    let mut spec = latent::read(family, checkpoint, reader, like)?;
    let limit = limit(reader)?;
    let d_model = spec.d_model;
    for block in spec.stacks[0].blocks_mut() {
        let attn = format!("{}.self_attn", layer_of(block, ".input_layernorm.weight"));
        let eps = block.attn_pre.as_ref().map_or(1e-5, |norm| norm.eps);
        if let Some(own) = block.own_mut() {
            let width = own.attention.n_heads * own.attention.d_value;
            let maps = &mut own.projections;
            maps.gate = Some(linear(&format!("{attn}.gate_proj"), d_model, width, false));
            maps.sinks = Some(format!("{attn}.sinks"));
            if let Some(indexer) = &mut maps.indexer
                && let IndexSource::Own { maps, .. } = &mut indexer.source
            {
                // What rotates is the end of an indexer's queries and keys.
                if let Some(rope) = &mut maps.rope {
                    rope.first = indexer.d_head - rope.d_rotary;
                }
                if let Some(norm) = &mut maps.k_norm {
                    norm.eps = eps;
                }
            }
        }
        if let FeedForward::Experts(spec) = &mut block.feed_forward {
            for expert in &mut spec.experts {
                expert.gate_rule = GateRule::LimitedBefore { limit };
            }
        }
    }
    let keys = HyperKeys {
        magnitude: Some(("hc_magnitude", 2.0)),
        weighs_end: true,
    };
    connect(reader, &checkpoint.tensors, keys, &mut spec)?;
    Ok(spec)
}

/// The limit of the experts' gates.
pub(super) fn limit(reader: &mut Reader<'_>) -> Result<f32> {
    const KEY: &str = "swiglu_limit";
    let limit = reader.number_or("gate_limit", KEY, 10.0)? as f32;
    if limit > 0.0 {
        return Ok(limit);
    }
    let problem = format!("expected a number above 0, found {limit}");
    Err(Error::config(reader.path(), KEY, problem))
}
