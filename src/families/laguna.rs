//! Laguna: a number of heads for each layer, gates of heads through a softplus, and experts chosen by sigmoids.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{GateFunction, LinearSource, ModelSpec, RouterScores, SelfSpec};
use serde_json::Value;

use super::Family;
use super::reading::check_groups;
use super::reading::expected::Expected;
use super::reading::llama_like::{
    self, BiasRule, ExpertsKeys, LocalRope, QkNorm, Recipe, SharedKeys, SharedWidth, SparseLayers,
};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::own("laguna", "Laguna", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        d_head: Some(128),
        rotary_share: Some(1.0),
        requires_rope_parameters: true,
        local_rope: Some(LocalRope {
            theta_key: None,
            theta: 10_000.0,
        }),
        qk_norm: QkNorm::Head,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        head_gate: Some("g_proj"),
        window: WindowRule::Listed(512),
        experts: Some(experts(&checkpoint.tensors)),
        expected_keys: &[
            ("moe_router_logit_softcapping", Expected::Number(0)),
            ("moe_apply_router_weight_on_input", Expected::Flag(false)),
        ],
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let d_model = spec.d_model;
    let is_by_head = gates_by_head(reader)?;
    let heads = heads_by_layer(reader, &spec)?;
    for (block, n_heads) in spec.stacks[0].blocks_mut().iter_mut().zip(heads) {
        if let Some(own) = block.own_mut() {
            settle(own, d_model, n_heads, (is_by_head, GateFunction::Softplus));
        }
    }
    Ok(spec)
}

/// The experts; the bias that chooses them has one of two names.
fn experts(tensors: &Tensors) -> ExpertsKeys {
    const NAMES: [&str; 2] = [
        "experts.e_score_correction_bias",
        "gate.e_score_correction_bias",
    ];
    let is_newer = tensors.iter().any(|(name, _)| name.ends_with(NAMES[1]));
    let shared = tensors
        .iter()
        .any(|(name, _)| name.contains(".shared_experts."));
    ExpertsKeys {
        scores: RouterScores::Sigmoid,
        choice_bias: Some((NAMES[usize::from(is_newer)], false)),
        normalises: BiasRule::Always,
        scale: Some(("moe_routed_scaling_factor", 1.0)),
        shared: Some(SharedKeys {
            name: if shared {
                "shared_experts"
            } else {
                "shared_expert"
            },
            width: SharedWidth::Key("shared_expert_intermediate_size"),
            gate: None,
        }),
        layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
        ..ExpertsKeys::PLAIN
    }
}

/// Whether a gate is one number for a head, not one for each of its values.
fn gates_by_head(reader: &mut Reader<'_>) -> Result<bool> {
    const KEY: &str = "gating";
    let by_head = match reader.value(KEY) {
        None | Some(Value::Bool(true)) => true,
        Some(Value::String(how)) if how == "per-head" => true,
        Some(Value::String(how)) if how == "per-element" => false,
        Some(found) => {
            let problem = format!("expected true, per-head or per-element, found {found}");
            return Err(Error::config(reader.path(), KEY, problem));
        }
    };
    let how = if by_head {
        "one per head"
    } else {
        "one per value"
    };
    reader.note("head_gates", how, Origin::Key(KEY.to_owned()));
    Ok(by_head)
}

/// The number of heads of each layer.
fn heads_by_layer(reader: &mut Reader<'_>, spec: &ModelSpec) -> Result<Vec<usize>> {
    const LIST: &str = "num_attention_heads_per_layer";
    let n_layers = spec.main_stack().n_layers();
    let first = spec.main_stack().first_attention();
    let (n_heads, n_kv_heads) = first.map_or((1, 1), |own| (own.n_heads, own.n_kv_heads));
    let Some(list) = reader.numbers(LIST)? else {
        return Ok(vec![n_heads; n_layers]);
    };
    const MOST: u64 = 1 << 16;
    if list.len() != n_layers || !list.iter().all(|n| (1..=MOST).contains(n)) {
        let problem =
            format!("expected {n_layers} numbers of heads, one per layer, found {list:?}");
        return Err(Error::config(reader.path(), LIST, problem));
    }
    let heads: Vec<usize> = list.into_iter().map(|n| n as usize).collect();
    for n_heads in &heads {
        check_groups(reader, *n_heads, n_kv_heads, LIST)?;
    }
    let words: Vec<String> = heads.iter().map(usize::to_string).collect();
    reader.forget(&["n_heads"]);
    reader.note("n_heads", words.join(", "), Origin::Key(LIST.to_owned()));
    Ok(heads)
}

/// Fits queries, gates and output to a number of heads.
pub(super) fn settle(
    own: &mut SelfSpec,
    d_model: usize,
    n_heads: usize,
    (is_by_head, function): (bool, GateFunction),
) {
    let width = n_heads * own.attention.d_head;
    own.attention.n_heads = n_heads;
    let maps = &mut own.projections;
    let fit = |map: &LinearSource, n_in, n_out| {
        LinearSource::whole(map.weight.clone(), map.bias.clone(), n_in, n_out)
    };
    maps.q = fit(&maps.q, d_model, width);
    maps.o = fit(&maps.o, width, d_model);
    let n_gates = if is_by_head { n_heads } else { width };
    maps.gate = maps.gate.as_ref().map(|gate| fit(gate, d_model, n_gates));
    maps.gate_function = function;
}
