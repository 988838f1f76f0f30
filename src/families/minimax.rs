//! MiniMax-Text-01: lightning attention in most layers, softmax attention in the others, experts in all, and factors of the residual.

use attnscope_checkpoint::{Checkpoint, Dtype, Origin, Reader, Tensors};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::mixers::{Decays, LightningSpec};
use attnscope_spec::{Mixer, ModelSpec, TokenMixer};

use super::Family;
use super::reading::experts::NUMBERED;
use super::reading::hybrid::{self, by_rule, layer_of};
use super::reading::llama_like::{
    self, BiasRule, ExpertStore, ExpertsKeys, NormStyle, RMS, Recipe,
};
use super::reading::windows::WindowRule;
use super::reading::{activation_named, grouped, linear, rms_norm};

pub const FAMILY: Family = Family::own("minimax", "MiniMax", read);

const EXPERTS: ExpertsKeys = ExpertsKeys {
    at: "block_sparse_moe",
    store: ExpertStore::Each(NUMBERED),
    n_experts: ["num_local_experts", "num_experts"],
    d_expert: "intermediate_size",
    normalises: BiasRule::Always,
    ..ExpertsKeys::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        theta: 1e6,
        window: WindowRule::Always(None),
        experts: Some(EXPERTS),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let n_layers = spec.main_stack().n_layers();
    let attends = attending_layers(reader, n_layers)?;
    let lightning = Lightning::read(reader, &spec)?;
    let mut factor =
        |knob, key: &str| -> Result<f32> { Ok(reader.number_or(knob, key, 1.0)? as f32) };
    let of_attention = [
        factor("attn_resid_factor", "full_attn_alpha_factor")?,
        factor("attn_branch_scale", "full_attn_beta_factor")?,
    ];
    let of_lightning = [
        factor("mixer_resid_factor", "linear_attn_alpha_factor")?,
        factor("mixer_branch_scale", "linear_attn_beta_factor")?,
    ];
    let of_mlp = [
        factor("mlp_resid_factor", "mlp_alpha_factor")?,
        factor("mlp_branch_scale", "mlp_beta_factor")?,
    ];
    let blocks = spec.stacks[0].blocks_mut().iter_mut().zip(&attends);
    for (layer_idx, (block, attends)) in blocks.enumerate() {
        let mixes = if *attends {
            of_attention
        } else {
            let at = format!("{}.self_attn", layer_of(block, ".input_layernorm.weight"));
            let place = (layer_idx, n_layers);
            let mixer =
                TokenMixer::Lightning(Box::new(lightning.at(&checkpoint.tensors, &at, place)));
            block.mixer = Mixer::Other(Box::new(mixer));
            of_lightning
        };
        block.adds_to_normed = true;
        block.resid_factors = [mixes[0], of_mlp[0]];
        block.branch_scales = [mixes[1], of_mlp[1]];
    }
    Ok(spec)
}

/// Which layers attend: those in a list, or every second one.
fn attending_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let others = "lightning attention";
    hybrid::attending_layers(reader, n_layers, others, |_| {
        by_rule((0..n_layers).map(|idx| idx.is_multiple_of(2)))
    })
}

/// Settings that all lightning attention layers share.
struct Lightning {
    d_model: usize,
    n_heads: usize,
    d_head: usize,
    n_block: usize,
    activation: Activation,
}

impl Lightning {
    fn read(reader: &mut Reader<'_>, spec: &ModelSpec) -> Result<Self> {
        const BLOCK: &str = "block_size";
        let default = Origin::Default(BLOCK.to_owned());
        let n_block = reader.size_or("mixer_block", BLOCK, 256, default)?;
        let name = reader.value("hidden_act").and_then(|name| name.as_str());
        let activation = activation_named(reader, "hidden_act", name.unwrap_or("silu"))?;
        let heads = spec.main_stack().first_attention();
        Ok(Self {
            d_model: spec.d_model,
            n_heads: heads.map_or(1, |heads| heads.n_heads),
            d_head: heads.map_or(1, |heads| heads.d_head),
            n_block,
            activation,
        })
    }

    fn at(&self, tensors: &Tensors, at: &str, layer: (usize, usize)) -> LightningSpec {
        let (d_model, n) = (self.d_model, self.n_heads * self.d_head);
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
        let [q, k, v] = grouped(&map("qkv_proj", d_model, 3 * n), 1, self.d_head);
        LightningSpec {
            q,
            k,
            v,
            activation: self.activation,
            n_heads: self.n_heads,
            d_head: self.d_head,
            decays: self.decays(tensors, at, layer),
            norm: rms_norm(format!("{at}.norm.weight"), n, 1e-6),
            gate: map("output_gate", d_model, n),
            o: map("out_proj", n, d_model),
        }
    }

    /// Stored decays replace those computed from the layer number.
    fn decays(&self, tensors: &Tensors, at: &str, (layer_idx, n_layers): (usize, usize)) -> Decays {
        let stored = |name: &str| {
            let name = format!("{at}.{name}");
            tensors.contains(&name).then_some(name)
        };
        let found = [
            stored("slope_rate"),
            stored("query_decay"),
            stored("key_decay"),
            stored("diagonal_decay"),
        ];
        let is_narrow = |name: &String| {
            let info = tensors.info(name);
            info.is_some_and(|info| !matches!(info.dtype, Dtype::F32 | Dtype::F64))
        };
        let are_rounded = found.iter().flatten().any(is_narrow);
        let [stored_slopes, of_queries, of_keys, of_pairs] = found;
        let base = (-8.0 / self.n_heads as f64).exp2();
        // Later layers decay more slowly.
        let factor = 1.0 - layer_idx as f64 / (n_layers as f64 - 1.0 + 1e-5) + 1e-5;
        let slope = |nth: usize| (base.powi(nth as i32) as f32) * factor as f32;
        Decays {
            n_block: self.n_block,
            slopes: (1..=self.n_heads).map(slope).collect(),
            stored_slopes,
            of_queries,
            of_keys,
            of_pairs,
            are_rounded,
        }
    }
}
