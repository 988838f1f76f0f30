//! The many Llama-like families: each difference from Llama is a field of a recipe.

pub use super::bias_rule::BiasRule;
pub use super::experts::{ExpertStore, ExpertsKeys, SharedKeys, SharedWidth, SparseLayers};
pub use super::recipe::{
    BlockNames, FactorRule, LocalRope, MlpStore, NormPlaces, NormStyle, QkNorm, QkvStore, RMS,
    Recipe, RopeLayers, ScorePower, TwoSided,
};
pub use super::sizes::Sizes;

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, GateRule, HeadSpec, LearnedActivation, LinearSource,
    MlpSpec, ModelSpec, ProjectionSpec, StackSpec, TableSource,
};

use super::experts::gated;
use super::head_norms::{head_norm, qk_norm};
use super::rotation::{Ropes, check_keys, growth, rotating_layers, score_scale};
use super::windows::layer_windows;
use super::{activation, grouped, linear, note_attention, prefix, stacked, tied_head};

/// Builds the feed-forward block of a layer, given its index and name.
pub type MlpOf<'a> = dyn Fn(usize, &str) -> FeedForward + 'a;

/// Reads a family by its recipe.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    recipe: &Recipe,
) -> Result<ModelSpec> {
    check_keys(reader, recipe)?;
    let sizes = Sizes::read(reader, recipe.d_head)?;
    read_sized(family, checkpoint, reader, recipe, sizes)
}

/// Reads a family by its recipe, of sizes that are known.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read_sized(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    recipe: &Recipe,
    sizes: Sizes,
) -> Result<ModelSpec> {
    let (tensors, d_model) = (&checkpoint.tensors, sizes.d_model);
    let experts = match recipe.experts {
        Some(keys) => Some(keys.read(reader, tensors, sizes.n_layers)?),
        None => None,
    };
    let is_sparse = |layer_idx: usize| {
        experts
            .as_ref()
            .is_some_and(|experts| experts.are_in(layer_idx))
    };
    // Families with experts in every layer state no other width.
    let d_mlp = match &experts {
        Some(experts) if (0..sizes.n_layers).all(is_sparse) => experts.d_expert,
        _ => reader.size("d_mlp", "intermediate_size")?,
    };
    let activation = match recipe.mlp {
        MlpStore::Learned(_) => learned_activation(reader, recipe.activation)?,
        _ => activation(reader, recipe.activation.0, recipe.activation.1)?,
    };
    let has_bias = recipe.mlp_bias.read(reader, "mlp_bias")?;
    let eps = match recipe.sub_norms {
        Some(_) => norm_eps(reader, recipe.norm)?,
        None => 0.0,
    };
    let mlp = |layer_idx: usize, at: &str| match &experts {
        Some(experts) if experts.are_in(layer_idx) => {
            experts.of_layer(tensors, at, d_model, (activation, has_bias))
        }
        _ => {
            let at = format!("{at}.{}", recipe.names.mlp);
            let mut mlp = dense(&at, &recipe.mlp, d_model, d_mlp, activation, has_bias);
            mlp.hidden_norm = recipe
                .sub_norms
                .map(|[_, inner]| recipe.norm.at(&format!("{at}.{inner}"), d_mlp, eps));
            FeedForward::Dense(Box::new(mlp))
        }
    };
    read_with(family, checkpoint, reader, recipe, sizes, &mlp)
}

/// Checks that a family with learned activations names no other. The returned placeholder is never applied.
fn learned_activation(
    reader: &mut Reader<'_>,
    (key, default): (&'static str, &'static str),
) -> Result<Activation> {
    let name = reader.word_or("activation", key, default)?;
    if name == default {
        return Ok(Activation::Silu);
    }
    let problem = format!("expected {default:?}, found {name:?}");
    Err(Error::config(reader.path(), key, problem))
}

/// Reads the plain feed-forward blocks of a recipe, whose maps have biases if the key is true.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn dense_layers(
    reader: &mut Reader<'_>,
    recipe: &Recipe,
    d_model: usize,
    bias_key: &'static str,
) -> Result<impl Fn(usize, &str) -> FeedForward + use<>> {
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let activation = activation(reader, recipe.activation.0, recipe.activation.1)?;
    let has_bias = BiasRule::Key(bias_key, false).read(reader, "mlp_bias")?;
    let (store, name) = (recipe.mlp.clone(), recipe.names.mlp);
    Ok(move |_: usize, at: &str| {
        let at = format!("{at}.{name}");
        let mlp = dense(&at, &store, d_model, d_mlp, activation, has_bias);
        FeedForward::Dense(Box::new(mlp))
    })
}

fn dense(
    at: &str,
    store: &MlpStore,
    d_model: usize,
    d_mlp: usize,
    activation: Activation,
    has_bias: bool,
) -> MlpSpec {
    match store {
        MlpStore::Gated(names) => gated(at, *names, d_model, d_mlp, activation, has_bias),
        MlpStore::FusedGated => {
            let fused = linear(&format!("{at}.gate_up_proj"), d_model, 2 * d_mlp, has_bias);
            let [gate, up, _] = stacked(&fused, [d_mlp, d_mlp, 0]);
            MlpSpec {
                up,
                gate: Some(gate),
                down: linear(&format!("{at}.down_proj"), d_mlp, d_model, has_bias),
                activation,
                gate_rule: GateRule::Product,
                learned: None,
                convolution: None,
                hidden_norm: None,
                sparsity: None,
                out_activation: None,
            }
        }
        MlpStore::Learned(name) => {
            let stored = |part: &str| format!("{at}.{name}.{part}");
            MlpSpec {
                learned: Some(LearnedActivation::Curved {
                    above: stored("alpha_p"),
                    below: stored("alpha_n"),
                    slope: stored("beta"),
                    limit: stored("eps"),
                }),
                ..MlpSpec::plain(
                    linear(&format!("{at}.up_proj"), d_model, d_mlp, has_bias),
                    linear(&format!("{at}.down_proj"), d_mlp, d_model, has_bias),
                    activation,
                )
            }
        }
        MlpStore::Plain { up, down } => MlpSpec::plain(
            linear(&format!("{at}.{up}"), d_model, d_mlp, has_bias),
            linear(&format!("{at}.{down}"), d_mlp, d_model, has_bias),
            activation,
        ),
    }
}

/// Prefixes under which such models are saved: plain, without their base, or inside a multimodal model.
const BASES: [&str; 9] = [
    "model.",
    "",
    "transformer.",
    "language_model.model.",
    "model.language_model.",
    "model.text_model.",
    "text_model.",
    "decoder.model.",
    "thinker.model.",
];

/// Reads a family by its recipe; `mlp` builds the feed-forward block of a layer.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read_with(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    recipe: &Recipe,
    sizes: Sizes,
    mlp: &MlpOf<'_>,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let Sizes {
        n_layers,
        n_heads,
        n_kv_heads,
        d_model,
        d_head,
        n_ctx,
        d_vocab,
    } = sizes;
    let eps = norm_eps(reader, recipe.norm)?;
    if recipe.sub_norms.is_some() {
        let said = "between heads and output map, before the down projection";
        reader.note("sub_norms", said, Origin::Family);
    }
    let qkv_bias = recipe.qkv_bias.read(reader, "qkv_bias")?;
    let o_bias = recipe.o_bias.read(reader, "o_bias")?;
    let qk_norm = qk_norm(reader, recipe)?;
    if matches!(qk_norm, QkNorm::ListedGainsIf(_)) && n_heads > checkpoint.tensors.len() {
        let problem = format!(
            "{n_heads} heads with norms of their own need more than the {} tensors that are stored",
            checkpoint.tensors.len()
        );
        return Err(Error::config(reader.path(), "num_attention_heads", problem));
    }
    let clip = if recipe.clips_qkv {
        reader.bound_or_none("clip_qkv", "clip_qkv")?
    } else {
        None
    };
    let mut windows = layer_windows(reader, n_layers, &recipe.window)?;
    let sees_both = match recipe.both_sides {
        Some(key) => reader.flag_or("both_sides", key, false)?,
        None => !recipe.is_causal,
    };
    if sees_both {
        for window in windows.iter_mut().flatten() {
            *window = recipe.two_sided.of(*window);
        }
    }
    let ropes = Ropes::read(reader, recipe, &sizes)?;
    let rotates = rotating_layers(reader, recipe, &windows)?;
    let score_cap = cap(reader, "softcap", recipe.score_cap)?;
    let logit_cap = cap(reader, "logit_softcap", recipe.logit_cap)?;
    let (scale, scale_origin) = score_scale(reader, recipe, d_head)?;
    let attention = AttentionSpec {
        scale,
        softcap: score_cap.map(|cap| cap as f32),
        growth: growth(reader, recipe.scales_with_position)?,
        ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, !sees_both)
    };
    note_attention(reader, &attention, scale_origin);
    let branch_scale = recipe.branch_scale.read(reader, "branch_scale", d_model)?;
    let is_shared = match recipe.norm_places {
        NormPlaces::SharedIf(key) => reader.flag_or("parallel_branches", key, false)?,
        places => places == NormPlaces::Shared,
    };

    let norms_outputs = match recipe.norm_places {
        NormPlaces::BeforeAndIf(key, names) => {
            let is_on = reader.flag_or("norms_outputs", key, true)?;
            Some(names).filter(|_| is_on)
        }
        _ => None,
    };

    let base = match recipe.base {
        Some(base) => base,
        None => prefix(tensors, &BASES, "embed_tokens.weight"),
    };
    let norm = |name: &str| recipe.norm.at(name, d_model, eps);
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let attn = format!("{at}.{}", recipe.names.attn);
        let widths = [n_heads, n_kv_heads, n_kv_heads].map(|n| n * d_head);
        let one = |name: &str, n_out| linear(&format!("{attn}.{name}"), d_model, n_out, qkv_bias);
        let fused = one(recipe.names.qkv, widths.iter().sum());
        let [q, k, v] = match recipe.qkv {
            QkvStore::Stacked => stacked(&fused, widths),
            QkvStore::PerHead => grouped(&fused, 1, d_head),
            QkvStore::Apart => [0, 1, 2].map(|i| one(recipe.names.apart[i], widths[i])),
        };
        let o = format!("{attn}.{}", recipe.names.o);
        let o = linear(&o, widths[0], d_model, o_bias);
        let qk = |which: &str, n| head_norm(recipe.norm, qk_norm, &attn, which, n, d_head, eps);
        let projections = ProjectionSpec {
            q_norm: qk("q", n_heads),
            k_norm: qk("k", n_kv_heads),
            clip: clip.map(|clip| clip as f32),
            sinks: recipe.has_sinks.then(|| format!("{attn}.sinks")),
            gate: recipe
                .head_gate
                .map(|gate| linear(&format!("{attn}.{gate}"), d_model, widths[0], false)),
            z_norm: recipe.sub_norms.map(|[of_heads, _]| {
                recipe
                    .norm
                    .at(&format!("{attn}.{of_heads}"), widths[0], eps)
            }),
            norms_after_rope: qk_norm.is_after_rope(),
            ..ProjectionSpec::plain(q, k, v, o)
        };
        let is_windowed = windows[layer_idx].is_some();
        let mut spec = attention.clone();
        spec.mask.window = windows[layer_idx];
        spec.rope = rotates[layer_idx].then(|| ropes.of(is_windowed).clone());
        let mut block = BlockSpec {
            branch_scales: [branch_scale; 2],
            is_parallel: is_shared,
            ..BlockSpec::plain(spec, projections, mlp(layer_idx, &at))
        };
        let name = |name: &str| Some(norm(&format!("{at}.{name}")));
        match recipe.norm_places {
            NormPlaces::Output => {
                block.attn_out = name("post_attention_layernorm");
                block.mlp_out = name("post_feedforward_layernorm");
            }
            NormPlaces::BeforeNamed([attn, mlp]) => {
                block.attn_pre = name(attn);
                block.mlp_pre = name(mlp);
            }
            NormPlaces::BeforeByBranch => {
                block.attn_pre = name("attention_layernorm");
                block.mlp_pre = name("feedforward_layernorm");
            }
            NormPlaces::Around([attn_pre, attn_out, mlp_pre, mlp_out]) => {
                block.attn_pre = name(attn_pre);
                block.attn_out = name(attn_out);
                block.mlp_pre = name(mlp_pre);
                block.mlp_out = name(mlp_out);
            }
            _ => {
                block.attn_pre = name("input_layernorm");
                let mlp_norm = if is_shared {
                    "input_layernorm"
                } else {
                    "post_attention_layernorm"
                };
                block.mlp_pre = name(mlp_norm);
            }
        }
        if let Some([attn, mlp]) = norms_outputs {
            block.attn_out = name(attn);
            block.mlp_out = name(mlp);
        }
        block
    };

    let tokens = format!("{base}embed_tokens.weight");
    let heads = [
        "lm_head.weight",
        "language_model.lm_head.weight",
        "decoder.lm_head.weight",
        "thinker.lm_head.weight",
    ];
    let unembed = tied_head(reader, tensors, &heads, &tokens, recipe.is_tied)?;
    let head_bias = Some("lm_head.bias".to_owned()).filter(|bias| tensors.contains(bias));
    let embed = EmbedSpec {
        scale: recipe
            .embed_scale
            .read(reader, "embedding_scale", d_model)?,
        ..EmbedSpec::plain(TableSource {
            tensor: tokens,
            n_rows: d_vocab,
            width: d_model,
        })
    };
    let blocks = (0..n_layers).map(block).collect();
    let final_norm = norm(&format!("{base}{}", recipe.names.final_norm));
    let stack = StackSpec::only(embed, blocks, Some(final_norm));
    let head = HeadSpec {
        scale: recipe.logit_scale.read(reader, "logit_scale", d_model)?,
        softcap: logit_cap.map(|cap| cap as f32),
        ..HeadSpec::plain(LinearSource::whole(unembed, head_bias, d_model, d_vocab))
    };
    Ok(ModelSpec {
        n_ctx: Some(ropes.full.n_ctx(n_ctx)),
        is_causal_lm: !sees_both,
        ..ModelSpec::of_one_stack(family, stack, Some(head))
    })
}

/// The epsilon of a family's norms.
fn norm_eps(reader: &mut Reader<'_>, norm: NormStyle) -> Result<f64> {
    match norm.eps_key {
        Some(key) => reader.number_or("norm_eps", key, norm.eps),
        None => {
            reader.note("norm_eps", format!("{:e}", norm.eps), Origin::Family);
            Ok(norm.eps)
        }
    }
}

/// Reads a cap of scores or logits, if the family has one; the rule is a key and its default.
///
/// # Errors
/// When it is 0.
pub fn cap(
    reader: &mut Reader<'_>,
    knob: &'static str,
    rule: Option<(&str, f64)>,
) -> Result<Option<f64>> {
    let Some((key, default)) = rule else {
        return Ok(None);
    };
    let default = Some(default).filter(|cap| *cap > 0.0);
    let cap = reader.number_or_none(knob, key, default)?;
    if cap == Some(0.0) {
        let problem = "expected null or a number other than 0, found 0";
        return Err(Error::config(reader.path(), key, problem));
    }
    // Either sign gives the same function.
    Ok(cap.map(f64::abs))
}
