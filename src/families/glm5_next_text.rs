//! GLM 5.3 Flash: residual streams with hyper-connections, the delta rule with bounded decays in most layers, and latent attention
//! without positions that sees only the keys of pools that an indexer picks.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::mixers::DeltaRuleSpec;
use attnscope_spec::{FeedForward, GateRule, ModelSpec, TokenMixer};

use super::kimi_linear::Delta;
use super::reading::expected::{Expected, check};
use super::reading::experts::{ExpertsKeys, GroupKeys, SparseLayers};
use super::reading::hybrid::{note_attending, replace};
use super::reading::hyper::{HyperKeys, connect};
use super::reading::indexer::{IndexerKeys, attending_layers};
use super::reading::latent::{self, LatentLike};
use super::{Family, deepseek_v3, hy_v4};

pub const FAMILY: Family = Family::own("glm5_next_text", "Glm5NextText", read);

const SUFFIX: &str = ".input_layernorm.weight";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    check(reader, &[("qk_rope_head_dim", Expected::Number(0))])?;
    let like = LatentLike {
        experts: ExpertsKeys {
            groups: Some(GroupKeys::if_stated(2)),
            layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 3),
            ..deepseek_v3::EXPERTS
        },
        is_unrotated: true,
        sharpens: false,
        indexer: Some(IndexerKeys {
            shares: Some(1),
            pools: true,
            ..IndexerKeys::PLAIN
        }),
        eps: 1e-5,
        latent_eps_is_of_block: true,
        ..LatentLike::PLAIN
    };
    let mut spec = latent::read(FAMILY.model_type, checkpoint, reader, like)?;
    let tensors = &checkpoint.tensors;
    let n_layers = spec.main_stack().n_layers();
    let attends = attending_layers(reader, n_layers, true)?;
    const TYPES: &str = "layer_types";
    let origin = if reader.is_stated(TYPES) {
        Origin::Key(TYPES.to_owned())
    } else {
        Origin::Default(TYPES.to_owned())
    };
    note_attending(reader, &attends, "gated delta rule", origin);
    let delta = Delta::read(reader, spec.d_model, 64)?;
    let bound = log_bound(reader)?;
    replace(&mut spec, &attends, SUFFIX, |at| {
        TokenMixer::DeltaRule(Box::new(layer_at(
            &delta,
            bound,
            tensors,
            &format!("{at}.self_attn"),
        )))
    });
    let limit = GateRule::LimitedBefore {
        limit: hy_v4::limit(reader)?,
    };
    for block in spec.stacks[0].blocks_mut() {
        match &mut block.feed_forward {
            FeedForward::Dense(mlp) => mlp.gate_rule = limit,
            FeedForward::Experts(spec) => {
                let shared = spec.shared.iter_mut().map(|(mlp, _)| mlp);
                let all = spec.experts.iter_mut().chain(shared);
                all.for_each(|mlp| mlp.gate_rule = limit);
            }
            FeedForward::None => {}
        }
    }
    let keys = HyperKeys {
        magnitude: None,
        weighs_end: false,
    };
    connect(reader, tensors, keys, &mut spec)?;
    Ok(spec)
}

/// How small the logarithm of a decay may be, if it has a bound.
fn log_bound(reader: &mut Reader<'_>) -> Result<Option<f32>> {
    const INSIDE: &str = "linear_attn_config";
    const KEY: &str = "linear_lower_bound";
    const BOUND: f64 = -5.0;
    let outer = if reader.is_null(KEY) {
        None
    } else {
        Some(reader.number_or("log_decay_bound", KEY, BOUND)?)
    };
    let inside = reader.part(INSIDE);
    let mut part = Reader::new(&inside);
    const INNER: &str = "gate_lower_bound";
    let mut bound = if part.is_null(INNER) {
        None
    } else if part.is_stated(INNER) {
        Some(part.number_or("log_decay_bound", INNER, BOUND)?)
    } else {
        outer
    };
    if reader.is_stated(INSIDE) && part.flag_or("bounds_decay", "safe_gate", true)? {
        bound = bound.or(Some(BOUND));
    }
    reader.absorb(INSIDE, part);
    if bound.is_some_and(|bound| bound >= 0.0) {
        let problem = "expected a number below 0: decays would grow";
        return Err(Error::config(reader.path(), KEY, problem));
    }
    Ok(bound.map(|bound| bound as f32))
}

/// One layer: Kimi Linear's, whose decays have a bound.
fn layer_at(delta: &Delta, log_bound: Option<f32>, tensors: &Tensors, at: &str) -> DeltaRuleSpec {
    DeltaRuleSpec {
        log_decay_shape: vec![delta.n_heads],
        log_bound,
        ..delta.at(tensors, at)
    }
}
