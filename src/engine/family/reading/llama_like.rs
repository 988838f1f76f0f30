//! The many families that are Llama with a few things changed: each change is a field of a recipe.

use super::experts::{ExpertsRule, USUAL, experts, gated};
pub use super::recipe::{
    BiasRule, FactorRule, LocalRope, MlpStore, NormPlaces, NormStyle, QkNorm, RMS, Recipe,
    RopeLayers, ScorePower,
};
use super::rope::{RopeRule, rope};
use super::windows::layer_windows;
use super::{
    activation, check_counts, check_groups, check_used, linear, note_attention, prefix, stacked,
    tied_head,
};
use crate::attention::{AttentionSpec, RopeSpec, Scale};
use crate::checkpoint::{Checkpoint, Origin, Reader};
use crate::error::{Error, Result};
use crate::model::{
    BlockSpec, EmbedSpec, FeedForward, GateRule, HeadSpec, LinearSource, MlpSpec, ModelSpec,
    NormSource, ProjectionSpec, StackSpec, TableSource,
};
use crate::ops::Activation;

/// Sizes that every family of this kind states.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub n_layers: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub d_model: usize,
    pub d_head: usize,
    pub n_ctx: usize,
    pub d_vocab: usize,
}

impl Sizes {
    /// # Errors
    /// When one is missing or impossible.
    pub fn read(reader: &mut Reader<'_>, d_head: Option<usize>) -> Result<Self> {
        let n_layers = reader.layers("num_hidden_layers")?;
        let n_heads = reader.size("n_heads", "num_attention_heads")?;
        let same = Origin::Derived("n_heads, no num_key_value_heads".to_owned());
        let n_kv_heads = reader.size_or("n_kv_heads", "num_key_value_heads", n_heads, same)?;
        check_groups(reader, n_heads, n_kv_heads, "num_key_value_heads")?;
        let d_model = reader.size("d_model", "hidden_size")?;
        let (default, origin) = match d_head {
            Some(d_head) => (d_head, Origin::Default("head_dim".to_owned())),
            None => {
                let split = "d_model / n_heads, no head_dim".to_owned();
                ((d_model / n_heads).max(1), Origin::Derived(split))
            }
        };
        let d_head = reader.size_or("d_head", "head_dim", default, origin)?;
        let default = Origin::Default("max_position_embeddings".to_owned());
        let n_ctx = reader.size_or("n_ctx", "max_position_embeddings", 2048, default)?;
        let d_vocab = reader.size("d_vocab", "vocab_size")?;
        Ok(Self {
            n_layers,
            n_heads,
            n_kv_heads,
            d_model,
            d_head,
            n_ctx,
            d_vocab,
        })
    }
}

/// Which feed-forward layer stands in a layer.
pub type MlpOf<'a> = dyn Fn(usize, &str) -> FeedForward + 'a;

/// Reads a family by its recipe, with dense feed-forward layers.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    recipe: &Recipe,
) -> Result<ModelSpec> {
    let sizes = Sizes::read(reader, recipe.d_head)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let activation = activation(reader, recipe.activation.0, recipe.activation.1)?;
    let has_bias = recipe.mlp_bias.read(reader, "mlp_bias")?;
    let store = recipe.mlp.clone();
    let mlp = move |_: usize, at: &str| {
        let at = format!("{at}.mlp");
        FeedForward::Dense(Box::new(dense(
            &at,
            &store,
            sizes.d_model,
            d_mlp,
            activation,
            has_bias,
        )))
    };
    read_with(checkpoint, reader, recipe, sizes, &mlp)
}

/// Reads a family by its recipe, with experts in the layers that `is_sparse` names and dense layers elsewhere.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read_with_experts(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    recipe: &Recipe,
    rule: &ExpertsRule,
    is_sparse: &dyn Fn(usize) -> bool,
) -> Result<ModelSpec> {
    let sizes = Sizes::read(reader, recipe.d_head)?;
    let counts = (rule.n_experts, false);
    check_counts(reader, &checkpoint.tensors, sizes.n_layers, counts)?;
    check_used(reader, rule.router.n_used, rule.n_experts)?;
    let activation = activation(reader, recipe.activation.0, recipe.activation.1)?;
    // Families whose layers all have experts state no other width.
    let d_mlp = if (0..sizes.n_layers).all(is_sparse) {
        rule.d_expert
    } else {
        reader.size("d_mlp", "intermediate_size")?
    };
    reader.note("n_experts", rule.n_experts, Origin::Family);
    reader.note("n_experts_used", rule.router.n_used, Origin::Family);
    let tensors = &checkpoint.tensors;
    let mlp = |layer_idx: usize, at: &str| {
        if is_sparse(layer_idx) {
            experts(tensors, at, rule, sizes.d_model, activation)
        } else {
            let at = format!("{at}.mlp");
            FeedForward::Dense(Box::new(gated(
                &at,
                USUAL,
                sizes.d_model,
                d_mlp,
                activation,
                false,
            )))
        }
    };
    read_with(checkpoint, reader, recipe, sizes, &mlp)
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
            }
        }
        MlpStore::Plain { up, down } => MlpSpec::plain(
            linear(&format!("{at}.{up}"), d_model, d_mlp, has_bias),
            linear(&format!("{at}.{down}"), d_mlp, d_model, has_bias),
            activation,
        ),
    }
}

/// Prefixes under which such models are saved: plain, without their base, inside a model of text and pictures.
const BASES: [&str; 6] = [
    "model.",
    "",
    "transformer.",
    "language_model.model.",
    "model.language_model.",
    "model.text_model.",
];

/// Reads a family by its recipe; `mlp` makes the feed-forward layer of a layer.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read_with(
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
    let eps = match recipe.norm.eps_key {
        Some(key) => reader.number_or("norm_eps", key, recipe.norm.eps)?,
        None => {
            reader.note("norm_eps", format!("{:e}", recipe.norm.eps), Origin::Family);
            recipe.norm.eps
        }
    };
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
    let windows = layer_windows(reader, n_layers, &recipe.window)?;
    let ropes = Ropes::read(reader, recipe, &sizes)?;
    let rotates = rotating_layers(reader, recipe, &windows)?;
    let [score_cap, logit_cap] = match recipe.caps {
        None => [None, None],
        Some([score, logit]) => [
            cap(reader, "softcap", score)?,
            cap(reader, "logit_softcap", logit)?,
        ],
    };
    let (scale, scale_origin) = score_scale(reader, recipe)?;
    let attention = AttentionSpec {
        scale,
        softcap: score_cap.map(|cap| cap as f32),
        ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, recipe.is_causal)
    };
    note_attention(reader, &attention, scale_origin);
    let branch_scale = recipe.branch_scale.read(reader, "branch_scale", d_model)?;
    let is_shared = match recipe.norm_places {
        NormPlaces::SharedIf(key) => reader.flag_or("parallel_branches", key, false)?,
        places => places == NormPlaces::Shared,
    };

    let base = prefix(tensors, &BASES, "embed_tokens.weight");
    let norm = |name: &str| recipe.norm.at(name, d_model, eps);
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let attn = format!("{at}.self_attn");
        let widths = [n_heads, n_kv_heads, n_kv_heads].map(|n| n * d_head);
        let [q, k, v] = if recipe.fused_qkv {
            let n_out = widths.iter().sum();
            stacked(
                &linear(&format!("{attn}.qkv_proj"), d_model, n_out, qkv_bias),
                widths,
            )
        } else {
            let one =
                |name: &str, n_out| linear(&format!("{attn}.{name}"), d_model, n_out, qkv_bias);
            [
                one("q_proj", widths[0]),
                one("k_proj", widths[1]),
                one("v_proj", widths[2]),
            ]
        };
        let o = linear(&format!("{attn}.o_proj"), widths[0], d_model, o_bias);
        let qk = |which: &str, n| head_norm(recipe.norm, qk_norm, &attn, which, n, d_head, eps);
        let projections = ProjectionSpec {
            q_norm: qk("q", n_heads),
            k_norm: qk("k", n_kv_heads),
            clip: clip.map(|clip| clip as f32),
            sinks: recipe.has_sinks.then(|| format!("{attn}.sinks")),
            ..ProjectionSpec::plain(q, k, v, o)
        };
        let is_windowed = windows[layer_idx].is_some();
        let mut spec = attention.clone();
        spec.mask.window = windows[layer_idx];
        spec.rope = rotates[layer_idx].then(|| ropes.of(is_windowed).clone());
        let mut block = BlockSpec {
            branch_scale,
            is_parallel: is_shared,
            ..BlockSpec::plain(spec, projections, mlp(layer_idx, &at))
        };
        let name = |name: &str| Some(norm(&format!("{at}.{name}")));
        match recipe.norm_places {
            NormPlaces::Output => {
                block.attn_out = name("post_attention_layernorm");
                block.mlp_out = name("post_feedforward_layernorm");
            }
            NormPlaces::AroundByBranch => {
                block.attn_pre = name("input_layernorm");
                block.attn_out = name("post_self_attn_layernorm");
                block.mlp_pre = name("post_attention_layernorm");
                block.mlp_out = name("post_mlp_layernorm");
            }
            NormPlaces::Around => {
                block.attn_pre = name("input_layernorm");
                block.attn_out = name("post_attention_layernorm");
                block.mlp_pre = name("pre_feedforward_layernorm");
                block.mlp_out = name("post_feedforward_layernorm");
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
        block
    };

    let tokens = format!("{base}embed_tokens.weight");
    let heads = ["lm_head.weight", "language_model.lm_head.weight"];
    let unembed = tied_head(reader, tensors, &heads, &tokens, recipe.is_tied)?;
    let has_head_bias = recipe.head_bias || tensors.contains("lm_head.bias");
    let head_bias = has_head_bias.then(|| "lm_head.bias".to_owned());
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
    let stack = StackSpec::only(embed, blocks, Some(norm(&format!("{base}norm"))));
    let head = HeadSpec {
        scale: recipe.logit_scale.read(reader, "logit_scale", d_model)?,
        softcap: logit_cap.map(|cap| cap as f32),
        ..HeadSpec::plain(LinearSource::whole(unembed, head_bias, d_model, d_vocab))
    };
    Ok(ModelSpec {
        n_ctx: Some(ropes.full.n_ctx(n_ctx)),
        is_causal_lm: recipe.is_causal,
        ..ModelSpec::of_one_stack(recipe.family, stack, Some(head))
    })
}

/// A cap, and what holds without its key; 0 there stands for none.
fn cap(
    reader: &mut Reader<'_>,
    knob: &'static str,
    (key, default): (&str, f64),
) -> Result<Option<f64>> {
    let default = Some(default).filter(|cap| *cap > 0.0);
    let cap = reader.number_or_none(knob, key, default)?;
    if cap == Some(0.0) {
        let problem = "expected null or a number other than 0, found 0";
        return Err(Error::config(reader.path(), key, problem));
    }
    // Either sign gives the same curve.
    Ok(cap.map(f64::abs))
}

/// Whether and how queries and keys are normed, the configuration asked.
fn qk_norm(reader: &mut Reader<'_>, recipe: &Recipe) -> Result<QkNorm> {
    let norm = match recipe.qk_norm {
        QkNorm::OwnGainsIf(key) | QkNorm::ListedGainsIf(key) => {
            if reader.flag_or("qk_norm", key, false)? {
                recipe.qk_norm
            } else {
                QkNorm::None
            }
        }
        norm => {
            reader.note("qk_norm", norm != QkNorm::None, Origin::Family);
            norm
        }
    };
    Ok(norm)
}

/// The norm of one side's heads.
fn head_norm(
    style: NormStyle,
    norm: QkNorm,
    attn: &str,
    which: &str,
    n_heads: usize,
    d_head: usize,
    eps: f64,
) -> Option<NormSource> {
    // Norms of heads have no bias, whatever the others have.
    let style = NormStyle {
        has_bias: false,
        has_gain: true,
        ..style
    };
    match norm {
        QkNorm::None => None,
        QkNorm::Head => Some(style.at(&format!("{attn}.{which}_norm"), d_head, eps)),
        QkNorm::Whole => Some(style.at(&format!("{attn}.{which}_norm"), n_heads * d_head, eps)),
        QkNorm::OwnGainsIf(_) => Some(NormSource {
            gain_shape: vec![n_heads, d_head],
            ..style.at(&format!("{attn}.{which}_norm"), d_head, eps)
        }),
        QkNorm::ListedGainsIf(_) => {
            let name = |head_idx| format!("{attn}.{which}_layernorm.norms.{head_idx}.weight");
            Some(NormSource {
                gain: (0..n_heads).map(name).collect(),
                ..style.at("", d_head, eps)
            })
        }
    }
}

/// The rotary embeddings of layers without and with a window.
struct Ropes {
    full: RopeSpec,
    windowed: Option<RopeSpec>,
}

impl Ropes {
    fn read(reader: &mut Reader<'_>, recipe: &Recipe, sizes: &Sizes) -> Result<Self> {
        let rule = RopeRule {
            theta: recipe.theta,
            share: recipe.rotary_share.unwrap_or(1.0),
            share_key: recipe.rotary_share.map(|_| "partial_rotary_factor"),
            yarn_is_long: recipe.yarn_is_long,
            interleaved: recipe.interleaved,
            layer_type: recipe.local_rope.map(|_| "full_attention"),
            ..RopeRule::plain(sizes.d_head, sizes.n_ctx)
        };
        let full = rope(reader, rule)?;
        let windowed = match recipe.local_rope {
            Some(local) => Some(rope(
                reader,
                RopeRule {
                    theta: local.theta,
                    theta_key: local.theta_key.unwrap_or("no key"),
                    layer_type: Some("sliding_attention"),
                    is_scaled: false,
                    ..rule
                },
            )?),
            None => None,
        };
        Ok(Self { full, windowed })
    }

    fn of(&self, is_windowed: bool) -> &RopeSpec {
        match &self.windowed {
            Some(windowed) if is_windowed => windowed,
            _ => &self.full,
        }
    }
}

fn rotating_layers<W>(
    reader: &mut Reader<'_>,
    recipe: &Recipe,
    windows: &[Option<W>],
) -> Result<Vec<bool>> {
    let n_layers = windows.len();
    Ok(match recipe.rope_layers {
        RopeLayers::All => vec![true; n_layers],
        RopeLayers::WindowedUnlessNull(key) if reader.is_null(key) => vec![true; n_layers],
        RopeLayers::Windowed | RopeLayers::WindowedUnlessNull(_) => {
            windows.iter().map(Option::is_some).collect()
        }
        RopeLayers::Listed(key, every) => match reader.numbers(key)? {
            Some(list) if list.len() == n_layers => list.iter().map(|entry| *entry != 0).collect(),
            Some(list) => {
                let found = list.len();
                let problem = format!("expected {n_layers} entries, one per layer, found {found}");
                return Err(Error::config(reader.path(), key, problem));
            }
            None => {
                let default = Origin::Default("no_rope_layer_interval".to_owned());
                let every =
                    reader.size_or("no_rope_every", "no_rope_layer_interval", every, default)?;
                (0..n_layers).map(|i| (i + 1) % every != 0).collect()
            }
        },
    })
}

fn score_scale(reader: &mut Reader<'_>, recipe: &Recipe) -> Result<(Scale, Origin)> {
    let Some((key, power)) = recipe.score_factor else {
        return Ok((Scale::InvSqrtD, Origin::Family));
    };
    let Some(value) = reader.value(key) else {
        let problem = "missing, expected a number: the scale of scores depends on it";
        return Err(Error::config(reader.path(), key, problem));
    };
    match value.as_f64().filter(|v| v.is_finite() && *v > 0.0) {
        Some(value) => {
            let factor = match power {
                ScorePower::AsIs => value,
                ScorePower::InverseRoot => 1.0 / value.sqrt(),
            };
            Ok((Scale::Factor(factor as f32), Origin::Key(key.to_owned())))
        }
        None => {
            let problem = format!("expected a number above 0, found {value}");
            Err(Error::config(reader.path(), key, problem))
        }
    }
}
