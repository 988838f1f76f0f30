//! Gemma 4: wider heads in layers without a window, norms of values too, an embedding of the token for each block, a factor of each block;
//! the last layers may share keys of earlier ones, and experts stand beside the feed-forward layer.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Scale};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{
    ApartNorms, BlockRow, BlockSpec, EmbedSpec, ExpertsSpec, FeedForward, HeadSpec, KeptStart,
    LinearSource, MlpSpec, ModelSpec, NormSource, Part, ProjectionSpec, RouterRule, RouterScores,
    RowSpec, StackSpec, TableSource, TokenBranch,
};
use serde_json::Value;

use super::Family;
use super::reading::experts::{USUAL, gated, slabs};
use super::reading::key_sharing::{KeyHeads, Sharing};
use super::reading::typed_rotation::rotation;
use super::reading::windows::{WindowRule, layer_windows};
use super::reading::{
    activation, check_counts, check_groups, check_used, linear, note_attention, prefix, rms_norm,
    tied_head,
};

pub const FAMILY: Family = Family::own("gemma4_text", "Gemma4", read);

/// Sizes of a layer's heads.
#[derive(Debug, Clone, Copy)]
struct Heads {
    n_kv: usize,
    d: usize,
}

/// Tables and maps of the per-layer embeddings.
struct ByToken {
    width: usize,
    /// Rows of the table of tokens; `None` if there is no table.
    n_rows: Option<usize>,
}

/// How families built from Gemma 4's blocks differ.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gemma4Like {
    pub family: &'static str,
    /// Every token sees every other one; windows reach their whole width to both sides.
    pub sees_both: bool,
    /// Prefixes of the per-layer embeddings' maps, in the model and in a block.
    pub by_token: [&'static str; 2],
    /// The width of the per-layer embeddings if the configuration does not say.
    pub d_by_token: usize,
    /// Whether per-layer embeddings have a table of tokens.
    pub has_rows: bool,
    /// A map behind the final norm, the key of its width, and its default.
    pub last_map: Option<(&'static str, &'static str, usize)>,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = Gemma4Like {
        family: FAMILY.model_type,
        sees_both: false,
        by_token: ["", ""],
        d_by_token: 256,
        has_rows: true,
        last_map: None,
    };
    read_as(checkpoint, reader, like)
}

/// Reads a family built from Gemma 4's blocks.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: Gemma4Like,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    refuse(reader)?;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let default = Origin::Default("max_position_embeddings".to_owned());
    let n_ctx = reader.size_or("n_ctx", "max_position_embeddings", 131_072, default)?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "rms_norm_eps", 1e-6)?;
    let activation = activation(reader, "hidden_activation", "gelu_pytorch_tanh")?;
    let has_bias = reader.flag_or("qkv_bias", "attention_bias", false)?;
    let rule = WindowRule::AllBut {
        every: 6,
        every_key: None,
        width: 512,
    };
    let mut windows = layer_windows(reader, n_layers, &rule)?;
    // The last layer has full attention, whatever the list says.
    if let Some(last) = windows.last_mut() {
        *last = None;
    }
    if like.sees_both {
        for window in windows.iter_mut().flatten() {
            *window = window.to_both_sides(|width| width);
        }
    }
    let heads = heads(reader, &windows, n_heads)?;
    let by_token = by_token(reader, &like)?;
    let last_map = match like.last_map {
        Some((_, key, default)) => {
            let origin = Origin::Default(key.to_owned());
            Some(reader.size_or("d_last", key, default, origin)?)
        }
        None => None,
    };
    let logit_cap = reader.bound_or_none("logit_softcap", "final_logit_softcapping")?;
    let experts = Experts::read(reader, tensors, n_layers)?;
    let mut key_heads = Vec::with_capacity(n_layers);
    for (heads, window) in heads.iter().zip(&windows) {
        key_heads.push(KeyHeads {
            n: heads.n_kv,
            d: heads.d,
            is_windowed: window.is_some(),
        });
    }
    let sharing = Sharing::read(reader, 0, &key_heads)?;
    let is_wide = reader.flag_or("shared_layers_are_wide", "use_double_wide_mlp", false)?;
    let shares_kv = reader.flag_or("values_are_keys", "attention_k_eq_v", false)?;
    let is_windowed = |layer_idx: usize| windows[layer_idx].is_some();
    let mut ropes = Vec::with_capacity(n_layers);
    for (layer_idx, of_layer) in heads.iter().enumerate().take(n_layers) {
        ropes.push(rotation(reader, is_windowed(layer_idx), of_layer.d, n_ctx)?);
    }
    let plain = |layer_idx: usize| AttentionSpec {
        scale: Scale::One,
        ..AttentionSpec::plain(
            n_heads,
            heads[layer_idx].n_kv,
            heads[layer_idx].d,
            !like.sees_both,
        )
    };
    note_attention(reader, &plain(n_layers - 1), Origin::Family);

    let base = prefix(
        tensors,
        &[
            "model.",
            "",
            "model.language_model.",
            "language_model.model.",
            "language_model.",
        ],
        "embed_tokens.weight",
    );
    let tokens = TableSource {
        tensor: format!("{base}embed_tokens.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let token_scale = (d_model as f64).sqrt() as f32;
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let Heads { n_kv, d } = heads[layer_idx];
        let source = sharing.source_of(layer_idx);
        let takes = source != layer_idx;
        let map = |name: &str, n_in, n_out| {
            linear(&format!("{at}.self_attn.{name}"), n_in, n_out, has_bias)
        };
        let of_keys = |name: &str| {
            let name = format!("{base}layers.{source}.self_attn.{name}");
            linear(&name, d_model, n_kv * d, has_bias)
        };
        let of_values = if shares_kv && !is_windowed(layer_idx) {
            "k_proj"
        } else {
            "v_proj"
        };
        let norm = |name: &str, width| rms_norm(format!("{at}.{name}.weight"), width, eps);
        let projections = ProjectionSpec {
            q_norm: Some(norm("self_attn.q_norm", d)),
            k_norm: (!takes).then(|| norm("self_attn.k_norm", d)),
            v_norm: (!takes).then(|| NormSource::new(NormKind::RmsNorm, eps, d, None)),
            shared: sharing.of(layer_idx, &format!("{at}.self_attn")),
            ..ProjectionSpec::plain(
                map("q_proj", d_model, n_heads * d),
                of_keys("k_proj"),
                of_keys(of_values),
                map("o_proj", n_heads * d, d_model),
            )
        };
        let mut attention = plain(layer_idx);
        attention.mask.window = windows[layer_idx];
        attention.rope = Some(ropes[layer_idx].clone());
        let mlp = gated(
            &format!("{at}.mlp"),
            USUAL,
            d_model,
            if takes && is_wide { 2 * d_mlp } else { d_mlp },
            activation,
            false,
        );
        let feed_forward = match &experts {
            Some(experts) => experts.of_layer(&at, d_model, (mlp, activation), &norm),
            None => FeedForward::Dense(Box::new(mlp)),
        };
        let of_token = by_token.as_ref().map(|own| {
            let (p, n_all) = (own.width, n_layers * own.width);
            let [of_model, of_block] = like.by_token;
            let context = format!("{base}{of_model}per_layer_model_projection");
            let context = linear(&context, d_model, n_all, false).part(Part {
                group: n_all,
                offset: layer_idx * p,
                len: p,
            });
            Box::new(TokenBranch {
                gate: linear(
                    &format!("{at}.{of_block}per_layer_input_gate"),
                    d_model,
                    p,
                    false,
                ),
                activation,
                out: linear(
                    &format!("{at}.{of_block}per_layer_projection"),
                    p,
                    d_model,
                    false,
                ),
                out_norm: norm(&format!("{of_block}post_per_layer_input_norm"), d_model),
                tokens: tokens.clone(),
                token_scale,
                context,
                context_scale: 1.0 / token_scale,
                context_norm: rms_norm(
                    format!("{base}{of_model}per_layer_projection_norm.weight"),
                    p,
                    eps,
                ),
                rows: own.n_rows.map(|n_rows| TableSource {
                    tensor: format!("{base}embed_tokens_per_layer.weight"),
                    n_rows,
                    width: n_all,
                }),
                row_scale: (p as f64).sqrt() as f32,
                row_beyond: None,
                first_column: layer_idx * p,
                mix: if own.n_rows.is_some() {
                    std::f32::consts::FRAC_1_SQRT_2
                } else {
                    1.0
                },
            })
        });
        let scalar = format!("{at}.layer_scalar");
        BlockSpec {
            attn_pre: Some(norm("input_layernorm", d_model)),
            attn_out: Some(norm("post_attention_layernorm", d_model)),
            mlp_pre: Some(norm("pre_feedforward_layernorm", d_model)),
            mlp_out: Some(norm("post_feedforward_layernorm", d_model)),
            by_token: of_token,
            resid_scale: Some(scalar).filter(|scalar| tensors.contains(scalar)),
            row: (sharing.n_kept > 0).then(|| {
                Box::new(BlockRow {
                    beside: false,
                    d_model,
                    streams: None,
                    n_kept: sharing.n_kept,
                    shortcut: None,
                    join: None,
                })
            }),
            ..BlockSpec::plain(attention, projections, feed_forward)
        }
    };
    let blocks = (0..n_layers).map(block).collect();
    let names = ["lm_head.weight", "language_model.lm_head.weight"];
    let unembed = if like.sees_both {
        tokens.tensor.clone()
    } else {
        tied_head(reader, tensors, &names, &tokens.tensor, true)?
    };
    let embed = EmbedSpec {
        scale: token_scale,
        ..EmbedSpec::plain(tokens)
    };
    let last = rms_norm(format!("{base}norm.weight"), d_model, eps);
    let head = HeadSpec {
        softcap: logit_cap.map(|cap| cap as f32),
        ..HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab))
    };
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: !like.sees_both,
        ..ModelSpec::of_one_stack(
            like.family,
            StackSpec {
                rows: (sharing.n_kept > 0).then(|| {
                    Box::new(RowSpec {
                        first: KeptStart::Nothing,
                        d_model,
                        streams: None,
                        n_kept: sharing.n_kept,
                    })
                }),
                last_map: like.last_map.zip(last_map).map(|((name, ..), n_out)| {
                    linear(&format!("{base}{name}"), d_model, n_out, false)
                }),
                ..StackSpec::only(embed, blocks, Some(last))
            },
            Some(head).filter(|_| !like.sees_both),
        )
    })
}

/// Refuses settings of this family that are not supported.
fn refuse(reader: &mut Reader<'_>) -> Result<()> {
    const BOTH: &str = "use_bidirectional_attention";
    if reader.value(BOTH).and_then(Value::as_str) == Some("all") {
        let problem = "expected null or \"vision\": attention of all tokens to both sides is not read, found \"all\"";
        return Err(Error::config(reader.path(), BOTH, problem));
    }
    Ok(())
}

/// Experts in parallel to the feed-forward block; they read the residual through their own norms.
struct Experts {
    n: usize,
    n_used: usize,
    width: usize,
}

impl Experts {
    fn read(reader: &mut Reader<'_>, tensors: &Tensors, n_layers: usize) -> Result<Option<Self>> {
        const SIZES: [&str; 3] = ["num_experts", "top_k_experts", "moe_intermediate_size"];
        if !reader.flag_or("has_experts", "enable_moe_block", false)? {
            for key in SIZES {
                reader.value(key);
            }
            return Ok(None);
        }
        let n = reader.size("n_experts", SIZES[0])?;
        check_counts(reader, tensors, n_layers, (n, true))?;
        let n_used = reader.size("n_experts_used", SIZES[1])?;
        check_used(reader, n_used, n)?;
        let width = reader.size("d_expert", SIZES[2])?;
        Ok(Some(Self { n, n_used, width }))
    }

    /// The experts of a layer, and the feed-forward block that every token uses.
    fn of_layer(
        &self,
        at: &str,
        d_model: usize,
        (mlp, activation): (MlpSpec, Activation),
        norm: &dyn Fn(&str, usize) -> NormSource,
    ) -> FeedForward {
        let router = linear(&format!("{at}.router.proj"), d_model, self.n, false);
        let root = (d_model as f64).powf(-0.5) as f32;
        let before = norm("router.scale", d_model);
        let names = [
            format!("{at}.experts.gate_up_proj"),
            format!("{at}.experts.down_proj"),
        ];
        let expert = |idx| {
            let sizes = (d_model, self.width);
            slabs((&names[0], &names[1]), (idx, self.n), sizes, activation)
        };
        FeedForward::Experts(Box::new(ExpertsSpec {
            router: router.scaled(1.0, root),
            rule: RouterRule {
                normalises: true,
                expert_scales: Some(format!("{at}.router.per_expert_scale")),
                ..RouterRule::plain(self.n_used, RouterScores::Softmax)
            },
            experts: (0..self.n).map(expert).collect(),
            shared: Some((mlp, None)),
            latent: None,
            norms: None,
            apart: Some(Box::new(ApartNorms {
                router: NormSource {
                    gain: vec![format!("{at}.router.scale")],
                    ..before
                },
                into: norm("pre_feedforward_layernorm_2", d_model),
                out: norm("post_feedforward_layernorm_2", d_model),
                shared_out: norm("post_feedforward_layernorm_1", d_model),
            })),
        }))
    }
}

/// The heads of every layer; layers without a window may have wider heads and fewer key heads.
fn heads<W>(reader: &mut Reader<'_>, windows: &[Option<W>], n_heads: usize) -> Result<Vec<Heads>> {
    const OVERRIDES: &str = "per_layer_config";
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_kv = reader.size_or(
        "n_kv_heads",
        "num_key_value_heads",
        4,
        default("num_key_value_heads"),
    )?;
    let d = reader.size_or("d_head", "head_dim", 256, default("head_dim"))?;
    let usual = Heads { n_kv, d };
    let mut all = vec![usual; windows.len()];
    if let Some(stated) = reader.value(OVERRIDES) {
        for (layer, values) in stated.as_object().into_iter().flatten() {
            let found = layer.parse::<usize>().ok();
            let (Some(heads), Some(values)) =
                (found.and_then(|idx| all.get_mut(idx)), values.as_object())
            else {
                let problem = format!("expected layers below {}, found {layer}", windows.len());
                return Err(Error::config(reader.path(), OVERRIDES, problem));
            };
            for (key, value) in values {
                let size = value.as_u64().filter(|size| (1..1 << 16).contains(size));
                match (key.as_str(), size) {
                    ("head_dim", Some(size)) => heads.d = size as usize,
                    ("num_key_value_heads", Some(size)) => heads.n_kv = size as usize,
                    _ => {
                        let problem = format!(
                            "expected head_dim and num_key_value_heads, both from 1, found {key}: {value}"
                        );
                        let key = format!("{OVERRIDES}.{layer}");
                        return Err(Error::config(reader.path(), key, problem));
                    }
                }
            }
        }
    } else {
        let (wide, few) = ("global_head_dim", "num_global_key_value_heads");
        let d = reader.size_or("global_d_head", wide, 512, default(wide))?;
        let shares = reader.value("attention_k_eq_v") == Some(&Value::Bool(true));
        let n_kv = match reader.value(few) {
            Some(_) if shares => reader.size("global_n_kv_heads", few)?,
            _ => n_kv,
        };
        for (heads, _) in all.iter_mut().zip(windows).filter(|(_, w)| w.is_none()) {
            *heads = Heads { n_kv, d };
        }
    }
    for heads in &all {
        check_groups(reader, n_heads, heads.n_kv, "num_key_value_heads")?;
    }
    let said: Vec<String> = all.iter().map(|heads| heads.d.to_string()).collect();
    let origin = Origin::Derived("layer types".to_owned());
    reader.note("d_head_by_layer", said.join(", "), origin);
    Ok(all)
}

/// The per-layer embeddings; `None` if their width is 0.
fn by_token(reader: &mut Reader<'_>, like: &Gemma4Like) -> Result<Option<ByToken>> {
    const WIDTH: &str = "hidden_size_per_layer_input";
    let width = reader.count_or("d_token_branch", WIDTH, like.d_by_token)?;
    if !like.has_rows {
        let n_rows = None;
        return Ok((width > 0).then_some(ByToken { width, n_rows }));
    }
    const ROWS: &str = "vocab_size_per_layer_input";
    let default = Origin::Default(ROWS.to_owned());
    let n_rows = Some(reader.size_or("n_token_branch_rows", ROWS, 262_144, default)?);
    Ok((width > 0).then_some(ByToken { width, n_rows }))
}
