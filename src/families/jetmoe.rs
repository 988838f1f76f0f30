//! JetMoE: experts of attention, which make the queries of a token's heads and map what these give, and experts in every layer.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{FeedForward, HeadExperts, LinearSource, ModelSpec};

use super::reading::hybrid::{layer_of, split};
use super::reading::llama_like::{ExpertsKeys, RMS, Recipe, Sizes, read_with};
use super::reading::{activation, linear};
use super::{Family, granitemoe};

pub const FAMILY: Family = Family::own("jetmoe", "JetMoe", read);

/// Granite's, in the usual place.
const EXPERTS: ExpertsKeys = ExpertsKeys {
    at: ExpertsKeys::PLAIN.at,
    ..granitemoe::EXPERTS
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let recipe = Recipe {
        activation: ("activation_function", "silu"),
        is_tied: true,
        ..Recipe::llama()
    };
    let n_layers = reader.layers("num_hidden_layers")?;
    let experts = EXPERTS.read(reader, tensors, n_layers)?;
    let n_groups = experts.router.n_used;
    // Each expert that a token chooses has as many heads as there are keys.
    let n_each = reader.size("n_kv_heads", "num_key_value_heads")?;
    let n_heads = n_groups * n_each;
    reader.value("num_attention_heads");
    let origin = || Origin::Derived("num_key_value_heads, num_experts_per_tok".to_owned());
    reader.note("n_heads", n_heads, origin());
    let d_model = reader.size("d_model", "hidden_size")?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let d_head = reader.size_or("d_head", "kv_channels", 128, default("kv_channels"))?;
    const PLACES: &str = "max_position_embeddings";
    let sizes = Sizes {
        n_layers,
        n_heads,
        n_kv_heads: n_each,
        d_model,
        d_head,
        n_ctx: reader.size_or("n_ctx", PLACES, 4096, default(PLACES))?,
        d_vocab: reader.size("d_vocab", "vocab_size")?,
    };
    let activation = activation(reader, recipe.activation.0, recipe.activation.1)?;
    let mlp = |_: usize, at: &str| {
        let mut layer = experts.of_layer(tensors, at, d_model, (activation, false));
        if let FeedForward::Experts(spec) = &mut layer {
            // Weights of the experts of a token sum to 1, and so do the biases that they are given.
            for expert in &mut spec.experts {
                let down = expert.down.clone();
                expert.down = down.also_adding(format!("{at}.mlp.bias"), vec![d_model]);
            }
        }
        layer
    };
    let family = FAMILY.model_type;
    let mut spec = read_with(family, checkpoint, reader, &recipe, sizes, &mlp)?;
    let n = experts_of(&spec);
    let width = n_each * d_head;
    for block in spec.stacks[0].blocks_mut() {
        let norms = [&mut block.attn_pre, &mut block.mlp_pre];
        for norm in norms.into_iter().flatten() {
            // Only the last norm reads its epsilon.
            norm.eps = RMS.eps as f32;
        }
        let at = layer_of(block, ".input_layernorm.weight");
        let at = format!("{at}.self_attention");
        let Some(own) = block.own_mut() else { continue };
        own.attention.n_kv_heads = n_heads;
        let stored = |name: &str, n_in, n_out, idx| {
            let name = format!("{at}.experts.{name}.weight");
            LinearSource::whole(name, None, n_in, n_out).slab(idx, n)
        };
        let q = |idx| stored("input_linear", d_model, width, idx);
        let bias = format!("{at}.experts.bias");
        let o = |idx| {
            stored("output_linear", width, d_model, idx).also_adding(bias.clone(), vec![d_model])
        };
        let kv = linear(&format!("{at}.kv_proj"), d_model, 2 * width, false);
        let [k, v] = split(&kv, [width, width]);
        let maps = &mut own.projections;
        (maps.q, maps.k, maps.v, maps.o) = (q(0), k, v, o(0));
        maps.experts = Some(Box::new(HeadExperts {
            router: linear(&format!("{at}.experts.router.layer"), d_model, n, false),
            rule: experts.router.clone(),
            q: (0..n).map(q).collect(),
            o: (0..n).map(o).collect(),
        }));
    }
    Ok(spec)
}

/// Number of experts of each layer.
fn experts_of(spec: &ModelSpec) -> usize {
    let mut layers = spec.stacks[0].blocks().iter();
    let found = layers.find_map(|block| match &block.feed_forward {
        FeedForward::Experts(experts) => Some(experts.experts.len()),
        FeedForward::Dense(_) | FeedForward::None => None,
    });
    found.unwrap_or_default()
}
