//! Beam: layers of fixed shares in the residual, gates with a bias for each head, and queries that grow where nothing rotates.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{Growth, GrowthCurve};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, ModelSpec};
use serde_json::Value;

use super::reading::experts::GroupKeys;
use super::reading::llama_like::{
    self, BiasRule, ExpertsKeys, LocalRope, NormPlaces, QkNorm, Recipe, RopeLayers, SparseLayers,
};
use super::reading::rope::stated;
use super::reading::windows::WindowRule;
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::own("beam", "Beam", read);

const EXPERTS: ExpertsKeys = ExpertsKeys {
    n_experts: ["num_experts", "num_local_experts"],
    groups: Some(GroupKeys {
        n_best: 2,
        n: 8,
        n_kept: 4,
    }),
    shared: None,
    layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 3),
    ..deepseek_v3::EXPERTS
};

/// How queries grow with their position in layers that do not rotate.
const GROWTH: Growth = Growth {
    beta: 0.1,
    period: 2048.0,
    first: 1,
    curve: GrowthCurve::Power,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let rotates_everywhere = rotates_without_window(reader)?;
    let recipe = Recipe {
        d_head: Some(128),
        local_rope: Some(LocalRope {
            theta_key: None,
            theta: 10_000.0,
        }),
        rope_layers: if rotates_everywhere {
            RopeLayers::All
        } else {
            RopeLayers::Windowed
        },
        norm_places: NormPlaces::AROUND,
        qk_norm: QkNorm::Head,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        head_gate: Some("gate_proj"),
        logit_cap: Some(("final_logit_softcapping", 30.0)),
        window: WindowRule::MustList {
            width: 512,
            has_mixers: false,
        },
        experts: Some(EXPERTS),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    if !rotates_everywhere {
        let said = "((position + 1) / 2048 + 1)^0.1 in layers without a window";
        reader.note("query_growth", said, Origin::Family);
    }
    let said = "1/i of the branch's and (i - 1)/i of the residual's square at the i-th sum";
    reader.note("branch_scale", said, Origin::Family);
    let blocks = spec.stacks[0].blocks_mut().iter_mut().enumerate();
    blocks.for_each(|(layer_idx, block)| settle(layer_idx, block));
    Ok(spec)
}

/// Whether layers without a window rotate as well: their parameters are null otherwise.
fn rotates_without_window(reader: &mut Reader<'_>) -> Result<bool> {
    const KEY: &str = "rope_parameters";
    let Some(parameters) = stated(reader, KEY) else {
        return Ok(false);
    };
    let of = |kind: &str| parameters.get(kind).filter(|values| !values.is_null());
    match of("sliding_attention") {
        Some(Value::Object(_)) => Ok(of("full_attention").is_some()),
        _ => {
            let problem = "expected the rotation of layers with a window, found none";
            let key = format!("{KEY}.sliding_attention");
            Err(Error::config(reader.path(), key, problem))
        }
    }
}

/// Gives a block the factors of its two sums, the bias of its gates, and growing queries where it does not rotate.
fn settle(layer_idx: usize, block: &mut BlockSpec) {
    let sums = [2 * (layer_idx + 1), 2 * (layer_idx + 1) + 1].map(|nth| nth as f64);
    block.branch_scales = sums.map(|nth| (1.0 / nth.sqrt()) as f32);
    block.resid_factors = sums.map(|nth| ((nth - 1.0) / nth).sqrt() as f32);
    let Some(own) = block.own_mut() else { return };
    let n_heads = own.attention.n_heads;
    if own.attention.rope.is_none() {
        own.attention.growth = Some(GROWTH);
    }
    let maps = &mut own.projections;
    maps.gate = maps.gate.take().map(|gate| {
        let bias = gate.weight.replace("gate_proj.weight", "gate_bias");
        gate.also_adding(bias, vec![n_heads])
    });
}
