//! Step 3.5: another number of heads in layers with a window, gates of heads, and experts whose values may have limits.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, FeedForward, GateFunction, GateRule, MlpSpec, ModelSpec, RouterScores,
};
use serde_json::Value;

use super::reading::check_groups;
use super::reading::llama_like::{
    self, BiasRule, ExpertsKeys, LocalRope, NormStyle, QkNorm, RMS, Recipe, ScorePower, SharedKeys,
    SharedWidth, SparseLayers,
};
use super::reading::windows::WindowRule;
use super::{Family, laguna};

pub const FAMILY: Family = Family::own("step3p5", "Step3p5", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle {
            eps: 1e-5,
            adds_one: true,
            ..RMS
        },
        rotary_share: Some(1.0),
        local_rope: Some(LocalRope {
            theta_key: None,
            theta: 10_000.0,
        }),
        qk_norm: QkNorm::Head,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        score_factor: Some(("query_pre_attn_scalar", ScorePower::InverseRootIfStated)),
        head_gate: Some("g_proj"),
        window: WindowRule::Listed(512),
        d_head: Some(128),
        experts: Some(ExpertsKeys {
            n_experts: ["n_routed_experts", "num_local_experts"],
            scores: RouterScores::Sigmoid,
            choice_bias: Some(("gate.e_score_correction_bias", false)),
            normalises: BiasRule::Always,
            scale: Some(("moe_router_scaling_factor", 1.0)),
            shared: Some(SharedKeys {
                name: "shared_experts",
                width: SharedWidth::Key("share_expert_dim"),
                gate: None,
            }),
            layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 3),
            ..ExpertsKeys::PLAIN
        }),
        forbidden_keys: &[(
            "use_bidirectional_attention",
            "attention to both sides is not read",
        )],
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let n_heads = windowed_heads(reader, &spec)?;
    let n_layers = spec.main_stack().n_layers();
    let d_model = spec.d_model;
    let limits = ["swiglu_limits", "swiglu_limits_shared"];
    let [routed, others] = limits.map(|key| limits_of(reader, key, n_layers));
    let (routed, others) = (routed?, others?);
    // Keys of layers are read for all layer types; this one repeats the numbers of heads.
    reader.value("per_layer_config");
    let blocks = spec.stacks[0].blocks_mut().iter_mut();
    for (layer_idx, block) in blocks.enumerate() {
        if let Some(own) = block.own_mut() {
            let is_windowed = own.attention.mask.window.is_some();
            let n = if is_windowed {
                n_heads
            } else {
                own.attention.n_heads
            };
            laguna::settle(own, d_model, n, (true, GateFunction::Sigmoid));
        }
        limit(block, routed[layer_idx], others[layer_idx]);
    }
    Ok(spec)
}

/// The number of heads of layers with a window.
fn windowed_heads(reader: &mut Reader<'_>, spec: &ModelSpec) -> Result<usize> {
    const KEY: &str = "num_sliding_attention_heads";
    let first = spec.main_stack().first_attention();
    let (n_heads, n_kv_heads) = first.map_or((1, 1), |own| (own.n_heads, own.n_kv_heads));
    let same = Origin::Derived("n_heads".to_owned());
    let n_heads = reader.size_or("n_windowed_heads", KEY, n_heads, same)?;
    check_groups(reader, n_heads, n_kv_heads, KEY)?;
    Ok(n_heads)
}

/// The limit of each layer; 0 and null are none.
fn limits_of(
    reader: &mut Reader<'_>,
    key: &'static str,
    n_layers: usize,
) -> Result<Vec<Option<f32>>> {
    let Some(value) = reader.value(key) else {
        return Ok(vec![None; n_layers]);
    };
    let limit = |value: &Value| match value.as_f64() {
        Some(limit) if limit > 0.0 && limit.is_finite() => Some(Some(limit as f32)),
        Some(0.0) => Some(None),
        None if value.is_null() => Some(None),
        _ => None,
    };
    let list = value.as_array().filter(|list| list.len() == n_layers);
    let limits = list.and_then(|list| list.iter().map(limit).collect());
    limits.ok_or_else(|| {
        let problem = format!("expected {n_layers} numbers from 0, one per layer, found {value}");
        Error::config(reader.path(), key, problem)
    })
}

/// Sets the limits of the routed experts, and of the shared expert or the only feed-forward layer.
fn limit(block: &mut BlockSpec, routed: Option<f32>, other: Option<f32>) {
    let set = |mlp: &mut MlpSpec, limit: Option<f32>| {
        if let Some(limit) = limit {
            mlp.gate_rule = GateRule::Limited { limit };
        }
    };
    match &mut block.feed_forward {
        FeedForward::Dense(mlp) => set(mlp, other),
        FeedForward::Experts(experts) => {
            let all = experts.experts.iter_mut();
            all.for_each(|mlp| set(mlp, routed));
            if let Some((shared, _)) = &mut experts.shared {
                set(shared, other);
            }
        }
        FeedForward::None => {}
    }
}
