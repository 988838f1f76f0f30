//! Families with latent attention (MLA), and experts from some layer on.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Mask, RopeSpec, Scale, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockRow, BlockSpec, EmbedSpec, FeedForward, HeadSpec, KeptStart, LatentSpec, LinearSource,
    MlpSpec, ModelSpec, NormSource, Part, ProjectionSpec, RowSpec, Shortcut, StackSpec,
    TableSource,
};
use serde_json::Value;

use super::experts::{Experts, USUAL, gated};
use super::indexer::{Indexers, head_growth};
pub use super::latent_recipe::LatentLike;
use super::latent_sharing::{SharedLatents, learned_factors, rotating_layers, widths_where};
use super::latent_widths::{Sees, Widths, seen_by_layer, widths_by_layer};
use super::rope::{RopeRule, rope, score_sharpening};
use super::rotation::growth;
use super::{activation, linear, must_be_off, note_attention, prefix, rms_norm, tied_head};

/// Epsilon of the norms of latent vectors.
const LATENT_EPS: f64 = 1e-6;
/// The base of the rotation in layers with a window, if the configuration states none.
const WINDOW_THETA: f64 = 50_000.0;

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: LatentLike,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    must_be_off(
        reader,
        "mlp_bias",
        "biases of feed-forward layers are not read",
    )?;
    let (n_stored, n_layers) = match like.paired {
        Some(key) => {
            let n_stored = reader.layers(key)?;
            reader.forget(&["n_layers"]);
            let origin = Origin::Derived(format!("2 · {key}"));
            reader.note("n_layers", 2 * n_stored, origin);
            (n_stored, 2 * n_stored)
        }
        None => [reader.layers("num_hidden_layers")?; 2].into(),
    };
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    // Keys and values are expanded from the latent for every head, whatever this key says.
    reader.value("num_key_value_heads");
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_own = reader.size("d_head_own", "qk_nope_head_dim")?;
    const SHARED: &str = "qk_rope_head_dim";
    let d_shared = match reader.value(SHARED).map(Value::as_u64) {
        Some(Some(0)) if like.is_unrotated => 0,
        _ => reader.size("d_head_rotary", SHARED)?,
    };
    let (d_stated, said) = if like.has_share {
        (
            d_own + d_shared,
            "the sum of qk_nope_head_dim and qk_rope_head_dim",
        )
    } else {
        (d_shared, "as qk_rope_head_dim has it")
    };
    let is_listed = like.indexer.is_some_and(|keys| keys.is_listed);
    let d_stated = if is_listed {
        reader.size("d_head_stated", "head_dim")?
    } else {
        d_stated
    };
    if let Some(other) = reader
        .value("head_dim")
        .filter(|_| !like.is_unrotated && !like.ignores_head_dim && !is_listed)
        .filter(|other| other.as_u64() != Some(d_stated as u64))
    {
        let problem = format!("expected {d_stated}, {said}, found {other}");
        return Err(Error::config(reader.path(), "head_dim", problem));
    }
    let default = Origin::Derived("d_model / n_heads, no v_head_dim".to_owned());
    let d_value = reader.size_or("d_value", "v_head_dim", (d_model / n_heads).max(1), default)?;
    let d_latent = reader.size("d_latent_kv", "kv_lora_rank")?;
    let d_latent_q = match reader.value("q_lora_rank") {
        Some(_) => Some(reader.size("d_latent_q", "q_lora_rank")?),
        None => None,
    };
    let n_ctx = reader.either_size("n_ctx", ["max_position_embeddings", "model_max_length"])?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "rms_norm_eps", like.eps)?;
    let activation = activation(reader, "hidden_act", "silu")?;
    let has_bias = reader.flag_or("attention_bias", "attention_bias", false)?;
    let of_model = Widths {
        n_heads,
        d_own,
        d_shared,
        d_value,
        d_latent,
        d_latent_q,
        d_stated,
    };
    let seen = match (is_listed, like.indexer) {
        (true, _) => seen_by_layer(reader, n_layers)?,
        (false, Some(_)) => vec![Sees::Picked; n_layers],
        (false, None) => vec![Sees::All; n_layers],
    };
    let widths = match like.rotates_all_but {
        Some(every) => widths_where(&rotating_layers(reader, n_layers, every)?, of_model),
        None if is_listed => widths_by_layer(reader, (of_model, &seen))?,
        None => vec![of_model; n_layers],
    };
    let base = prefix(tensors, &["model.", ""], "embed_tokens.weight");
    let pair_factors = if like.learns_growth {
        learned_factors(tensors, base, d_shared / 2)?
    } else {
        Vec::new()
    };
    let window = if seen.contains(&Sees::Window) {
        const KEYS: [&str; 2] = ["sliding_window", "sliding_window_size"];
        let key = KEYS[usize::from(!reader.is_stated(KEYS[0]))];
        let default = Origin::Default(key.to_owned());
        Some(Window::Back(reader.size_or("window", key, 512, default)?))
    } else {
        None
    };
    let interleaved = match like.interleaves {
        Some(key) => reader.flag_or("rope_interleaved", key, true)?,
        None => !like.is_by_halves,
    };
    let rule = |widths: &Widths, sees: Sees| RopeRule {
        interleaved,
        share: widths.d_shared as f64 / widths.d_stated as f64,
        share_key: (like.has_share || is_listed).then_some("partial_rotary_factor"),
        layer_type: is_listed.then(|| sees.word()),
        theta: if sees == Sees::Window {
            WINDOW_THETA
        } else {
            like.theta
        },
        theta_key: if sees == Sees::Window {
            "swa_rope_theta"
        } else {
            "rope_theta"
        },
        ..RopeRule::plain(widths.d_stated, n_ctx)
    };
    if like.is_unrotated {
        reader.note("positions", "none", Origin::Family);
    }
    // What reads the parameters of rotation notes them, so that layers that are alike read them once.
    let mut rotations: Vec<((Widths, Sees), Option<RopeSpec>)> = Vec::new();
    for at in widths.iter().copied().zip(seen.iter().copied()) {
        if like.is_unrotated
            || at.0.d_shared == 0
            || rotations.iter().any(|(known, _)| *known == at)
        {
            continue;
        }
        let rotary = RopeSpec {
            pair_factors: pair_factors.clone(),
            ..rope(reader, rule(&at.0, at.1))?
        };
        if is_listed && rotary.d_rotary != at.0.d_shared {
            let (found, expected) = (rotary.d_rotary, at.0.d_shared);
            let problem =
                format!("expected that {expected} dimensions of a head rotate, found {found}");
            return Err(Error::config(reader.path(), "qk_rope_head_dim", problem));
        }
        rotations.push((at, Some(rotary)));
    }
    let sharpening = if like.sharpens {
        score_sharpening(reader, rule(&of_model, seen[0]))?
    } else {
        1.0
    };
    let rotation = |layer_idx: usize| {
        let at = (widths[layer_idx], seen[layer_idx]);
        let found = rotations.iter().find(|(known, _)| *known == at);
        found.and_then(|(_, rotary)| rotary.clone())
    };
    let picking = seen.iter().position(|sees| *sees == Sees::Picked);
    let indexers = match (like.indexer, picking) {
        (Some(keys), Some(first)) => {
            let alike = (0..n_layers).filter(|idx| seen[*idx] == Sees::Picked);
            let differs = |idx: usize| !keys.reads_input && widths[idx] != widths[first];
            if alike.into_iter().any(differs) {
                let problem = "expected the same widths in all layers with an indexer";
                return Err(Error::config(reader.path(), "per_layer_config", problem));
            }
            let sizes = (n_layers, d_model, widths[first].d_latent_q);
            let rotary = (0..n_layers).filter(|idx| *idx >= first).find_map(rotation);
            Some(Indexers::read(reader, keys, sizes, rotary.as_ref())?)
        }
        _ => None,
    };
    let n_kept = match like.paired {
        Some(_) => d_model,
        None => indexers.as_ref().map_or(0, |indexers| indexers.n_kept),
    };
    let sharing = if like.shares_latents {
        SharedLatents::read(reader, &widths, n_kept)?
    } else {
        SharedLatents::none(n_layers, n_kept)
    };
    let n_kept = sharing.n_kept;
    // The factor of a latent vector.
    let factor = |width: usize| {
        if like.scales_latents || like.paired.is_some() {
            (d_model as f64 / width as f64).sqrt() as f32
        } else {
            1.0
        }
    };
    let growth = growth(reader, like.grows)?;
    let attention = |layer_idx: usize| {
        let widths = widths[layer_idx];
        let (n_heads, d_head) = (widths.n_heads, widths.d_head());
        let plain = AttentionSpec::plain(n_heads, n_heads, d_head, true);
        let sees = seen[layer_idx];
        AttentionSpec {
            d_value: widths.d_value,
            growth,
            top_keys: indexers
                .as_ref()
                .filter(|_| sees == Sees::Picked)
                .map(|indexers| indexers.top),
            rope: rotation(layer_idx).map(|rotary| RopeSpec {
                first: widths.d_own,
                ..rotary
            }),
            scale: match sharpening {
                1.0 => Scale::InvSqrtD,
                factor => Scale::Factor((factor / (d_head as f64).sqrt()) as f32),
            },
            mask: Mask {
                window: window.filter(|_| sees == Sees::Window),
                ..plain.mask
            },
            ..plain
        }
    };
    reader.note(
        "d_head",
        of_model.d_head(),
        Origin::Derived("own + rotary part".to_owned()),
    );
    let scale_origin = match sharpening {
        1.0 => Origin::Family,
        _ => Origin::Derived("1/sqrt(d_head) and mscale_all_dim".to_owned()),
    };
    note_attention(reader, &attention(0), scale_origin);

    let experts = if like.is_dense {
        None
    } else {
        Some(like.experts.read(reader, tensors, n_stored)?)
    };
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let norm_gate = match like.norm_gates {
        Some((key, default)) => {
            let origin = Origin::Default(key.to_owned());
            Some(reader.size_or("d_norm_gate", key, default, origin)?)
        }
        None => None,
    };
    let latent_eps = if like.latent_eps_is_of_block {
        eps
    } else {
        LATENT_EPS
    };

    let block = |layer_idx: usize| {
        let (stored_idx, half) = match like.paired {
            Some(_) => (layer_idx / 2, format!(".{}", layer_idx % 2)),
            None => (layer_idx, String::new()),
        };
        let at = format!("{base}layers.{stored_idx}");
        let attn = format!("{at}.self_attn{half}");
        let Widths {
            n_heads,
            d_own,
            d_shared,
            d_value,
            d_latent,
            d_latent_q,
            ..
        } = widths[layer_idx];
        let d_head = d_own + d_shared;
        let norm = |name: &str, width, eps| rms_norm(format!("{attn}.{name}.weight"), width, eps);
        let q_out = n_heads * d_head;
        let mut gate = like
            .head_gate
            .map(|name| linear(&format!("{attn}.{name}"), d_model, n_heads, false));
        let (q, latent_q) = match d_latent_q {
            Some(rank) => {
                let down = linear(&format!("{attn}.q_a_proj"), d_model, rank, has_bias);
                let up = linear(&format!("{attn}.q_b_proj"), rank, q_out, false);
                let mut up = up.scaled(1.0, factor(rank));
                if like.q_has_gate {
                    let group = d_head + d_value;
                    let name = format!("{attn}.q_b_proj");
                    let both = linear(&name, 2 * rank, n_heads * group, false);
                    let part = |offset, len| both.clone().part(Part { group, offset, len });
                    (up, gate) = (part(0, d_head), Some(part(d_head, d_value)));
                }
                (up, Some((down, norm("q_a_layernorm", rank, latent_eps))))
            }
            None => (
                linear(&format!("{attn}.q_proj"), d_model, q_out, false),
                None,
            ),
        };
        let of_latents = match sharing.source_of(layer_idx) {
            source if source == layer_idx => attn.clone(),
            source => format!("{base}layers.{source}.self_attn"),
        };
        let down = linear(
            &format!("{of_latents}.kv_a_proj_with_mqa"),
            d_model,
            d_latent + d_shared,
            has_bias,
        );
        let down_part = |offset, len| {
            let group = d_latent + d_shared;
            down.clone().part(Part { group, offset, len })
        };
        let group = d_own + d_value;
        let up = linear(
            &format!("{attn}.kv_b_proj"),
            d_latent,
            n_heads * group,
            false,
        )
        .scaled(factor(d_latent), 1.0);
        let up_part = |offset, len| up.clone().part(Part { group, offset, len });
        let o = linear(
            &format!("{attn}.o_proj"),
            n_heads * d_value,
            d_model,
            has_bias,
        );
        let projections = ProjectionSpec {
            latent: Some(Box::new(LatentSpec {
                q: latent_q,
                q_reads_both: like.q_has_gate,
                kv: down_part(0, d_latent),
                kv_norm: rms_norm(
                    format!("{of_latents}.kv_a_layernorm.weight"),
                    d_latent,
                    latent_eps,
                ),
                shared: sharing.of(layer_idx),
                shared_key: (d_shared > 0).then(|| down_part(d_latent, d_shared)),
                shared_key_norm: like
                    .shared_key_norm
                    .map(|name| norm(name, d_shared, latent_eps)),
            })),
            gate,
            q_growth: like.learns_growth.then(|| head_growth(&attn, n_heads)),
            indexer: indexers
                .as_ref()
                .filter(|_| seen[layer_idx] == Sees::Picked)
                .map(|indexers| {
                    let factor = factor(d_latent_q.unwrap_or(d_model));
                    indexers.of_layer(tensors, layer_idx, (&attn, factor, d_shared > 0))
                }),
            ..ProjectionSpec::plain(q, up_part(0, d_own), up_part(d_own, d_value), o)
        };
        let of_experts =
            |experts: &Experts| experts.of_layer(tensors, &at, d_model, (activation, false));
        let dense = |name: &str| {
            let at = format!("{at}.{name}");
            let mlp = gated(&at, USUAL, d_model, d_mlp, activation, false);
            FeedForward::Dense(Box::new(mlp))
        };
        let (feed_forward, shortcut) = match &experts {
            Some(experts) if like.paired.is_some() => {
                let shortcut = match layer_idx % 2 {
                    0 => Shortcut::Begins(Box::new(of_experts(experts))),
                    _ => Shortcut::Ends,
                };
                (dense(&format!("mlps{half}")), Some(shortcut))
            }
            Some(experts) if experts.are_in(layer_idx) => (of_experts(experts), None),
            _ => (dense("mlp"), None),
        };
        let name = |name: &str, has_gate: bool| {
            let name = format!("{at}.{name}{half}");
            let Some(width) = norm_gate.filter(|_| has_gate) else {
                return Some(rms_norm(format!("{name}.weight"), d_model, eps));
            };
            let up = linear(&format!("{name}.W_down"), d_model, width, false);
            let down = linear(&format!("{name}.W_up"), width, d_model, false);
            Some(NormSource {
                gate: Some(Box::new(MlpSpec::plain(up, down, Activation::Silu))),
                ..rms_norm(format!("{name}.norm.weight"), d_model, eps)
            })
        };
        let has_experts = matches!(feed_forward, FeedForward::Experts(_));
        BlockSpec {
            attn_pre: name("input_layernorm", true),
            mlp_pre: name("post_attention_layernorm", has_experts),
            row: (n_kept > 0).then(|| {
                Box::new(BlockRow {
                    beside: false,
                    d_model,
                    streams: None,
                    n_kept,
                    shortcut,
                    join: None,
                })
            }),
            ..BlockSpec::plain(attention(layer_idx), projections, feed_forward)
        }
    };
    let tokens = format!("{base}embed_tokens.weight");
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens, like.is_tied)?;
    let embed = EmbedSpec::plain(TableSource {
        tensor: tokens,
        n_rows: d_vocab,
        width: d_model,
    });
    let blocks = (0..n_layers).map(block).collect();
    let last = rms_norm(format!("{base}norm.weight"), d_model, eps);
    let stack = StackSpec {
        rows: (n_kept > 0).then(|| {
            Box::new(RowSpec {
                first: KeptStart::Nothing,
                d_model,
                streams: None,
                n_kept,
            })
        }),
        ..StackSpec::only(embed, blocks, Some(last))
    };
    let head = HeadSpec {
        softcap: match like.logit_cap {
            Some((key, default)) => {
                let cap = reader.number_or_none("logit_softcap", key, Some(default))?;
                cap.map(|cap| cap.abs() as f32)
            }
            None => None,
        },
        ..HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab))
    };
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(family, stack, Some(head))
    })
}
