//! MiMo V2 Flash: windows with sinks and more keys in most layers, narrow values with a factor, and DeepSeek V3's experts.

use attnscope_checkpoint::{Checkpoint, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{LinearSource, ModelSpec, SelfSpec};

use super::reading::expected::Expected;
use super::reading::experts::GroupKeys;
use super::reading::llama_like::{
    self, BiasRule, ExpertsKeys, LocalRope, NormStyle, RMS, Recipe, SparseLayers,
};
use super::reading::windows::WindowRule;
use super::reading::{check_groups, either};
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::own("mimo_v2_flash", "MiMoV2Flash", read);

const EXPERTS: ExpertsKeys = ExpertsKeys {
    groups: Some(GroupKeys::if_stated(2)),
    scale: Some(("routed_scaling_factor", 1.0)),
    shared: None,
    layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
    ..deepseek_v3::EXPERTS
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        d_head: Some(192),
        theta: 5e6,
        rotary_share: Some(0.334),
        local_rope: Some(LocalRope {
            theta_key: Some("swa_rope_theta"),
            theta: 10_000.0,
        }),
        qkv_bias: BiasRule::Key("attention_bias", false),
        window: WindowRule::Marked {
            list: "hybrid_layer_pattern",
            every: 6,
            beside_key: "sliding_window_size",
            width: 129,
        },
        experts: Some(EXPERTS),
        expected_keys: &[
            ("scoring_func", Expected::Word("sigmoid")),
            ("add_full_attention_sink_bias", Expected::Flag(false)),
            ("add_swa_attention_sink_bias", Expected::Flag(true)),
        ],
        forbidden_keys: &[("n_shared_experts", "shared experts are not read")],
        ..Recipe::llama()
    };
    check_experts(reader)?;
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let d_model = spec.d_model;
    let first = spec.main_stack().first_attention();
    let (n_heads, n_kv_heads, d_head) =
        first.map_or((1, 1, 1), |own| (own.n_heads, own.n_kv_heads, own.d_head));
    for (key, expected) in [
        ("swa_num_attention_heads", n_heads),
        ("swa_head_dim", d_head),
    ] {
        same_as_full(reader, key, expected)?;
    }
    let default = |key: &str| attnscope_checkpoint::Origin::Default(key.to_owned());
    const NARROW: &str = "v_head_dim";
    let d_value = reader.size_or("d_value", NARROW, 128, default(NARROW))?;
    same_as_full(reader, "swa_v_head_dim", d_value)?;
    const WINDOWED: &str = "swa_num_key_value_heads";
    let n_windowed = 2 * n_kv_heads;
    let n_windowed = reader.size_or(
        "n_windowed_kv_heads",
        WINDOWED,
        n_windowed,
        default(WINDOWED),
    )?;
    check_groups(reader, n_heads, n_windowed, WINDOWED)?;
    let factor = reader.number_or_none("value_scale", "attention_value_scale", Some(0.707))?;
    for block in spec.stacks[0].blocks_mut() {
        let Some(own) = block.own_mut() else { continue };
        let has_window = own.attention.mask.window.is_some();
        own.attention.n_kv_heads = if has_window { n_windowed } else { n_kv_heads };
        own.attention.d_value = d_value;
        narrow(own, d_model, factor.unwrap_or(1.0) as f32);
        if has_window {
            own.projections.sinks = Some(sinks(&checkpoint.tensors, own));
        }
    }
    Ok(spec)
}

/// Refuses a list of layers with experts other than all but the first, which older configurations have.
fn check_experts(reader: &mut Reader<'_>) -> Result<()> {
    const LIST: &str = "moe_layer_freq";
    let found = reader.value(LIST).filter(|found| found.is_array());
    let Some(found) = found.filter(|_| !reader.is_stated("mlp_layer_types")) else {
        return Ok(());
    };
    let list = reader.numbers(LIST)?.unwrap_or_default();
    let is_usual = |(idx, entry): (usize, &u64)| *entry == u64::from(idx > 0);
    if list.iter().enumerate().all(is_usual) {
        return Ok(());
    }
    let problem = format!("expected 0 for the first layer and 1 for all others, found {found}");
    Err(Error::config(reader.path(), LIST, problem))
}

/// Refuses a size of layers with a window that is not that of the others.
fn same_as_full(reader: &mut Reader<'_>, key: &str, expected: usize) -> Result<()> {
    let found = reader.value(key);
    match found.filter(|found| found.as_u64() != Some(expected as u64)) {
        None => Ok(()),
        Some(found) => {
            let problem = format!("expected {expected}, as in other layers, found {found}");
            Err(Error::config(reader.path(), key, problem))
        }
    }
}

/// Fits keys, values and output to the numbers of heads and their widths.
fn narrow(own: &mut SelfSpec, d_model: usize, factor: f32) {
    let heads = &own.attention;
    let (n_kv, n_value) = (heads.n_kv_heads, heads.d_value);
    let (n_keys, n_values, n_out) = (n_kv * heads.d_head, n_kv * n_value, heads.n_heads * n_value);
    let maps = &mut own.projections;
    let fit = |map: &LinearSource, n_in, n_out| {
        LinearSource::whole(map.weight.clone(), map.bias.clone(), n_in, n_out)
    };
    maps.k = fit(&maps.k, d_model, n_keys);
    maps.v = fit(&maps.v, d_model, n_values).scaled(1.0, factor);
    maps.o = fit(&maps.o, n_out, d_model);
}

/// The sinks, under the name of published models or of transformers.
fn sinks(tensors: &Tensors, own: &SelfSpec) -> String {
    let at = own.projections.q.weight.trim_end_matches("q_proj.weight");
    either(
        tensors,
        [format!("{at}attention_sink_bias"), format!("{at}sinks")],
    )
}
