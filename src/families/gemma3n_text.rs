//! Gemma 3n: several streams of the residual, a narrow map beside attention, gates of which only the largest open, an embedding of the
//! token for each block, and keys that the last layers share.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Scale};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{
    BlockRow, BlockSpec, EmbedSpec, FeedForward, HeadSpec, KeptStart, LinearSource, ModelSpec,
    NarrowBranch, NormSource, Part, PredictedStreams, ProjectionSpec, RowSpec, StackSpec,
    StreamEnds, StreamMaps, StreamsSpec, TableSource, TokenBranch,
};
use serde_json::Value;

use super::Family;
use super::reading::experts::{USUAL, gated};
use super::reading::key_sharing::{KeyHeads, Sharing};
use super::reading::rope::{RopeRule, rope};
use super::reading::windows::{WindowRule, layer_windows};
use super::reading::{
    activation, check_groups, linear, note_attention, prefix, rms_norm, tied_head,
};

// The factor is stored even if the configuration switches it off.
pub const FAMILY: Family =
    Family::own("gemma3n_text", "Gemma3n", read).leaving_unread(&[".altup.correct_output_scale"]);

/// The number of residual streams, and the one that blocks work on.
#[derive(Debug, Clone, Copy)]
struct Streams {
    n: usize,
    active: usize,
    /// A stored vector multiplies the input of the per-layer token branch.
    is_scaled: bool,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let mut size = |knob, key: &str, default| {
        let origin = Origin::Default(key.to_owned());
        reader.size_or(knob, key, default, origin)
    };
    let n_kv = size("n_kv_heads", "num_key_value_heads", 2)?;
    let d_head = size("d_head", "head_dim", 256)?;
    let n_ctx = size("n_ctx", "max_position_embeddings", 32_768)?;
    let d_narrow = size("d_narrow_branch", "laurel_rank", 64)?;
    let d_token = size("d_token_branch", "hidden_size_per_layer_input", 256)?;
    let n_token_rows = size("n_token_branch_rows", "vocab_size_per_layer_input", 262_144)?;
    check_groups(reader, n_heads, n_kv, "num_key_value_heads")?;
    let widths = widths(reader, n_layers)?;
    let shut = inactive_gate_share(reader, n_layers)?;
    let streams = streams(reader, tensors.len())?;
    let eps = reader.number_or("norm_eps", "rms_norm_eps", 1e-6)?;
    let activation = activation(reader, "hidden_activation", "gelu_pytorch_tanh")?;
    let has_bias = reader.flag_or("qkv_bias", "attention_bias", false)?;
    let rule = WindowRule::AllBut {
        every: 5,
        every_key: None,
        width: 512,
    };
    let windows = layer_windows(reader, n_layers, &rule)?;
    let key_heads: Vec<KeyHeads> = windows
        .iter()
        .map(|window| KeyHeads {
            n: n_kv,
            d: d_head,
            is_windowed: window.is_some(),
        })
        .collect();
    let sharing = Sharing::read(reader, 15, &key_heads)?;
    let full = RopeRule {
        theta: 1e6,
        layer_type: Some("full_attention"),
        ..RopeRule::plain(d_head, n_ctx)
    };
    let windowed = RopeRule {
        theta: 10_000.0,
        theta_key: "rope_local_base_freq",
        layer_type: Some("sliding_attention"),
        is_scaled: false,
        ..full
    };
    let (full, windowed) = (rope(reader, full)?, rope(reader, windowed)?);
    const CAP: &str = "final_logit_softcapping";
    let logit_cap = reader.number_or_none("logit_softcap", CAP, Some(30.0))?;
    if logit_cap == Some(0.0) {
        let problem = "expected null or a number other than 0, found 0";
        return Err(Error::config(reader.path(), CAP, problem));
    }
    let plain = AttentionSpec {
        scale: Scale::One,
        ..AttentionSpec::plain(n_heads, n_kv, d_head, true)
    };
    note_attention(reader, &plain, Origin::Family);

    let bases = [
        "model.",
        "",
        "model.language_model.",
        "language_model.model.",
    ];
    let base = prefix(tensors, &bases, "embed_tokens.weight");
    let tokens = TableSource {
        tensor: format!("{base}embed_tokens.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let token_scale = (d_model as f64).sqrt() as f32;
    let half = std::f32::consts::FRAC_1_SQRT_2;
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let source = sharing.source_of(layer_idx);
        let takes = source != layer_idx;
        let norm = |name: &str, width| rms_norm(format!("{at}.{name}.weight"), width, eps);
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
        let of_heads = |layer_idx: usize, name: &str, n_in, n_out| {
            let name = format!("{base}layers.{layer_idx}.self_attn.{name}");
            linear(&name, n_in, n_out, has_bias)
        };
        let projections = ProjectionSpec {
            q_norm: Some(norm("self_attn.q_norm", d_head)),
            k_norm: (!takes).then(|| norm("self_attn.k_norm", d_head)),
            v_norm: (!takes).then(|| NormSource::new(NormKind::RmsNorm, eps, d_head, None)),
            shared: sharing.of(layer_idx, &format!("{at}.self_attn")),
            ..ProjectionSpec::plain(
                of_heads(layer_idx, "q_proj", d_model, n_heads * d_head),
                of_heads(source, "k_proj", d_model, n_kv * d_head),
                of_heads(source, "v_proj", d_model, n_kv * d_head),
                of_heads(layer_idx, "o_proj", n_heads * d_head, d_model),
            )
        };
        let mut attention = plain.clone();
        attention.mask.window = windows[layer_idx];
        let rope = if windows[layer_idx].is_some() {
            &windowed
        } else {
            &full
        };
        attention.rope = Some(rope.clone());
        let (mlp_at, d_mlp) = (format!("{at}.mlp"), widths[layer_idx]);
        let mut mlp = gated(&mlp_at, USUAL, d_model, d_mlp, activation, false);
        mlp.sparsity = Some(shut[layer_idx]).filter(|share| *share > 0.0);
        let n_all = n_layers * d_token;
        let context = format!("{base}per_layer_model_projection");
        let of_token = TokenBranch {
            gate: map("per_layer_input_gate", d_model, d_token),
            activation,
            out: map("per_layer_projection", d_token, d_model),
            out_norm: norm("post_per_layer_input_norm", d_model),
            tokens: tokens.clone(),
            token_scale,
            context: linear(&context, d_model, n_all, false).part(Part {
                group: n_all,
                offset: layer_idx * d_token,
                len: d_token,
            }),
            context_scale: 1.0 / token_scale,
            context_norm: rms_norm(
                format!("{base}per_layer_projection_norm.weight"),
                d_token,
                eps,
            ),
            rows: Some(TableSource {
                tensor: format!("{base}embed_tokens_per_layer.weight"),
                n_rows: n_token_rows,
                width: n_all,
            }),
            row_scale: (d_token as f64).sqrt() as f32,
            row_beyond: Some(0),
            first_column: layer_idx * d_token,
            mix: half,
        };
        let Streams {
            n,
            active,
            is_scaled,
        } = streams;
        let router = map("altup.modality_router", d_model, n);
        BlockSpec {
            attn_pre: Some(norm("input_layernorm", d_model)),
            attn_out: Some(norm("post_attention_layernorm", d_model)),
            mlp_pre: Some(norm("pre_feedforward_layernorm", d_model)),
            mlp_out: Some(norm("post_feedforward_layernorm", d_model)),
            resid_factors: [half, 1.0],
            branch_scales: [half, 1.0],
            narrow: Some(Box::new(NarrowBranch {
                into: map("laurel.linear_left", d_model, d_narrow),
                out: map("laurel.linear_right", d_narrow, d_model),
                norm: norm("laurel.post_laurel_norm", d_model),
            })),
            by_token: Some(Box::new(of_token)),
            row: Some(Box::new(BlockRow {
                beside: false,
                d_model,
                streams: Some(StreamsSpec::Predicted(Box::new(PredictedStreams {
                    n,
                    active,
                    router_norm: norm("altup.router_norm", d_model),
                    router: router.scaled((d_model as f32).recip(), 1.0),
                    predict: map("altup.prediction_coefs", n, n * n),
                    correct: map("altup.correction_coefs", n, n),
                    scale: is_scaled.then(|| format!("{at}.altup.correct_output_scale")),
                }))),
                n_kept: sharing.n_kept,
                shortcut: None,
                join: None,
            })),
            ..BlockSpec::plain(attention, projections, FeedForward::Dense(Box::new(mlp)))
        }
    };
    let blocks = (0..n_layers).map(block).collect();
    let names = ["lm_head.weight", "language_model.lm_head.weight"];
    let unembed = tied_head(reader, tensors, &names, &tokens.tensor, true)?;
    let embed = EmbedSpec {
        scale: token_scale,
        ..EmbedSpec::plain(tokens)
    };
    let last = rms_norm(format!("{base}norm.weight"), d_model, eps);
    let head = HeadSpec {
        softcap: logit_cap.map(|cap| cap.abs() as f32),
        ..HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab))
    };
    let maps = |name: &str| {
        let map = |idx| linear(&format!("{base}{name}.{idx}"), d_model, d_model, false);
        (0..streams.n - 1).map(map).collect()
    };
    let stack = StackSpec {
        rows: Some(Box::new(RowSpec {
            first: KeptStart::Nothing,
            d_model,
            streams: Some(StreamEnds::Mapped(StreamMaps {
                first: maps("altup_projections"),
                last: maps("altup_unembed_projections"),
            })),
            n_kept: sharing.n_kept,
        })),
        ..StackSpec::only(embed, blocks, Some(last))
    };
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, Some(head))
    })
}

/// Widths of the feed-forward blocks: one for all layers, or one per layer.
fn widths(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<usize>> {
    const KEY: &str = "intermediate_size";
    if !reader.value(KEY).is_some_and(Value::is_array) {
        return Ok(vec![reader.size("d_mlp", KEY)?; n_layers]);
    }
    let all = reader.numbers(KEY)?.unwrap_or_default();
    let is_width = |width: &u64| (1..1 << 24).contains(width);
    if all.len() != n_layers || !all.iter().all(is_width) {
        let problem = format!("expected {n_layers} widths from 1, found {all:?}");
        return Err(Error::config(reader.path(), KEY, problem));
    }
    let said: Vec<String> = all.iter().map(u64::to_string).collect();
    reader.note("d_mlp", said.join(", "), Origin::Key(KEY.to_owned()));
    Ok(all.iter().map(|width| *width as usize).collect())
}

/// The share of gates that are set to zero, per layer.
fn inactive_gate_share(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<f32>> {
    const KEY: &str = "activation_sparsity_pattern";
    const N_SPARSE: usize = 10;
    let (shares, origin) = match reader.value(KEY) {
        None => {
            let is_sparse = |idx: usize| n_layers > N_SPARSE && idx < N_SPARSE;
            let shares = (0..n_layers).map(|idx| if is_sparse(idx) { 0.95 } else { 0.0 });
            (
                shares.collect::<Vec<f64>>(),
                Origin::Default(KEY.to_owned()),
            )
        }
        Some(value) => {
            let list = value.as_array();
            let shares = list.and_then(|list| list.iter().map(Value::as_f64).collect());
            let is_share = |share: &f64| (0.0..1.0).contains(share);
            let fits = |shares: &Vec<f64>| shares.len() == n_layers && shares.iter().all(is_share);
            let Some(shares) = shares.filter(fits) else {
                let problem =
                    format!("expected {n_layers} shares from 0 and below 1, found {value}");
                return Err(Error::config(reader.path(), KEY, problem));
            };
            (shares, Origin::Key(KEY.to_owned()))
        }
    };
    let said: Vec<String> = shares.iter().map(f64::to_string).collect();
    reader.note("shut_gates", said.join(", "), origin);
    Ok(shares.iter().map(|share| *share as f32).collect())
}

fn streams(reader: &mut Reader<'_>, n_tensors: usize) -> Result<Streams> {
    const N: &str = "altup_num_inputs";
    const ACTIVE: &str = "altup_active_idx";
    let n = reader.size_or("n_streams", N, 4, Origin::Default(N.to_owned()))?;
    if n > n_tensors {
        let problem = format!("{n} streams need more than the {n_tensors} tensors that are stored");
        return Err(Error::config(reader.path(), N, problem));
    }
    let active = reader.count_or("active_stream", ACTIVE, 0)?;
    if active >= n {
        let problem = format!("expected one of the {n} streams, found {active}");
        return Err(Error::config(reader.path(), ACTIVE, problem));
    }
    // It bounds weights in training only.
    reader.value("altup_coef_clip");
    Ok(Streams {
        n,
        active,
        is_scaled: reader.flag_or("scales_active_stream", "altup_correct_scale", true)?,
    })
}
