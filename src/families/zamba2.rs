//! Zamba2: the state space of Mamba-2 in every layer; before some, a transformer block whose weights layers share reads the residual
//! beside the embedding, and what it gives is added to what the state space reads.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Scale};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockRow, BlockSpec, EmbedSpec, FeedForward, HeadSpec, KeptStart, LastMixer, LinearSource,
    LowRank, Mixer, MlpSpec, ModelSpec, ProjectionSpec, RowSpec, StackSpec, TableSource,
    TokenMixer,
};

use super::Family;
use super::reading::experts::{USUAL, gated};
use super::reading::hybrid::{check_divides, note_attending};
use super::reading::rope::{RopeRule, rope};
use super::reading::state_space::{NormRule, StateSpaceSizes};
use super::reading::{
    activation, check_groups, linear, note_attention, prefix, rms_norm, stacked, tied_head,
};

/// A block that is stored for each of its layers holds what all of them add to it.
pub const FAMILY: Family =
    Family::own("zamba2", "Zamba2", read).leaving_unread(&["adapter_list.*"]);

/// Epsilon of the norm beside the gate of a state space.
const GATED_EPS: f64 = 1e-5;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let n_layers = reader.layers("num_hidden_layers")?;
    let attends = hybrid_layers(reader, n_layers)?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let context = "max_position_embeddings";
    let mut n_ctx = reader.size_or("n_ctx", context, 4096, default(context))?;
    if reader.flag_or("long_context", "use_long_context", false)? {
        n_ctx = 16384;
    }
    let heads = read_heads(reader, d_model)?;
    let shared = read_shared(reader, (d_model, n_ctx), heads, &attends)?;
    let mixer = state_space(reader, d_model)?;
    let layers = Layers {
        family: FAMILY.model_type,
        n_ctx,
        attends,
        shared,
        mixer: &|at: &str| TokenMixer::StateSpace(Box::new(mixer.at(at))),
    };
    layers.assemble(checkpoint, reader)
}

/// Layers with a mixer each, before some of which a shared transformer block runs.
pub(super) struct Layers<'a> {
    pub family: &'static str,
    pub n_ctx: usize,
    pub attends: Vec<bool>,
    pub shared: Shared,
    /// The mixer with this name.
    pub mixer: &'a dyn Fn(&str) -> TokenMixer,
}

impl Layers<'_> {
    /// # Errors
    /// When a value is missing or impossible.
    pub fn assemble(self, checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
        let (tensors, shared, d_model) = (&checkpoint.tensors, &self.shared, self.shared.d_model);
        let d_vocab = reader.size("d_vocab", "vocab_size")?;
        let eps = reader.number_or("norm_eps", "rms_norm_eps", 1e-5)?;
        let base = prefix(tensors, &["model.", ""], "embed_tokens.weight");
        let norm = |name: String, width| Some(rms_norm(format!("{name}.weight"), width, eps));
        let row = |beside: bool| {
            Some(Box::new(BlockRow {
                d_model,
                streams: None,
                n_kept: d_model,
                beside,
                shortcut: None,
                join: None,
            }))
        };
        let mut nth = 0;
        let mut block = |layer_idx: usize| {
            let at = format!("{base}layers.{layer_idx}");
            if !self.attends[layer_idx] {
                let mixer = (self.mixer)(&format!("{at}.mamba"));
                return BlockSpec {
                    attn_pre: norm(format!("{at}.input_layernorm"), d_model),
                    row: row(false),
                    ..BlockSpec::mixed(Mixer::Other(Box::new(mixer)), FeedForward::None)
                };
            }
            // Files of models with an unembedding of their own hold the block for each of its layers.
            let own = format!("{at}.{}.input_layernorm.weight", shared.name);
            let source = if tensors.contains(&own) {
                layer_idx
            } else {
                shared.layers[nth % shared.layers.len()]
            };
            let of_shared = format!("{base}layers.{source}.{}", shared.name);
            let decoder = format!("{at}.mamba_decoder");
            let own = shared.attention_at(&format!("{of_shared}.self_attn"), nth);
            let mlp = shared.mlp_at(&format!("{of_shared}.feed_forward"), nth);
            nth += 1;
            BlockSpec {
                attn_pre: norm(format!("{of_shared}.input_layernorm"), 2 * d_model),
                mlp_pre: norm(format!("{of_shared}.pre_ff_layernorm"), d_model),
                last_mixer: Some(Box::new(LastMixer {
                    map: linear(&format!("{at}.linear"), d_model, d_model, false),
                    pre: rms_norm(format!("{decoder}.input_layernorm.weight"), d_model, eps),
                    mixer: (self.mixer)(&format!("{decoder}.mamba")),
                })),
                row: row(true),
                ..BlockSpec::plain(shared.attention.clone(), own, mlp)
            }
        };
        let blocks: Vec<BlockSpec> = (0..self.attends.len()).map(&mut block).collect();
        let tokens = TableSource {
            tensor: format!("{base}embed_tokens.weight"),
            n_rows: d_vocab,
            width: d_model,
        };
        let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens.tensor, true)?;
        let last = norm(format!("{base}final_layernorm"), d_model);
        let stack = StackSpec {
            rows: Some(Box::new(RowSpec {
                d_model,
                streams: None,
                n_kept: d_model,
                first: KeptStart::Embedding,
            })),
            ..StackSpec::only(EmbedSpec::plain(tokens), blocks, last)
        };
        let head = HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab));
        Ok(ModelSpec {
            n_ctx: Some(self.n_ctx),
            is_causal_lm: true,
            ..ModelSpec::of_one_stack(self.family, stack, Some(head))
        })
    }
}

/// Which layers have a transformer block before their state space.
pub(super) fn hybrid_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    const KEYS: [&str; 2] = ["layers_block_type", "layer_types"];
    let key = KEYS[usize::from(!reader.is_stated(KEYS[0]))];
    let Some(words) = reader.words_by_layer(key, n_layers)? else {
        let problem = "missing, expected what each layer is";
        return Err(Error::config(reader.path(), KEYS[0], problem));
    };
    let is_hybrid = |word: &String| match word.as_str() {
        "hybrid" => Ok(true),
        "linear_attention" | "mamba" => Ok(false),
        other => {
            let problem = format!("expected hybrid or linear_attention, found {other:?}");
            Err(Error::config(reader.path(), key, problem))
        }
    };
    let attends: Vec<bool> = words.iter().map(is_hybrid).collect::<Result<_>>()?;
    if !attends.contains(&true) {
        let problem = "expected at least one hybrid layer, found none";
        return Err(Error::config(reader.path(), key, problem));
    }
    let origin = Origin::Key(key.to_owned());
    note_attending(reader, &attends, "a state space (Mamba) alone", origin);
    Ok(attends)
}

/// Attention without positions over the residual and the embedding, side by side: d_model, and the width of a head.
pub(super) fn attention(
    reader: &mut Reader<'_>,
    (n_heads, n_kv_heads, d_head): (usize, usize, usize),
) -> AttentionSpec {
    let attention = AttentionSpec {
        scale: Scale::Factor((d_head as f32 / 2.0).powf(-0.5)),
        ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, true)
    };
    note_attention(reader, &attention, Origin::Family);
    attention
}

/// Reads the numbers of heads, and the width that follows from them.
fn read_heads(reader: &mut Reader<'_>, d_model: usize) -> Result<(usize, usize, usize)> {
    let (heads, kv_heads) = ("num_attention_heads", "num_key_value_heads");
    let default = Origin::Default(heads.to_owned());
    let n_heads = reader.size_or("n_heads", heads, 32, default)?;
    let n_kv_heads = if reader.value(kv_heads).is_some() {
        reader.size("n_kv_heads", kv_heads)?
    } else {
        n_heads
    };
    check_groups(reader, n_heads, n_kv_heads, kv_heads)?;
    check_divides(reader, heads, n_heads, 2 * d_model)?;
    let d_head = 2 * d_model / n_heads;
    let origin = Origin::Derived("2 · d_model / n_heads".to_owned());
    reader.note("d_head", d_head, origin);
    Ok((n_heads, n_kv_heads, d_head))
}

/// Reads the transformer blocks of Zamba2.
fn read_shared(
    reader: &mut Reader<'_>,
    (d_model, n_ctx): (usize, usize),
    heads: (usize, usize, usize),
    attends: &[bool],
) -> Result<Shared> {
    let default = |key: &str| Origin::Default(key.to_owned());
    let mut attention = attention(reader, heads);
    if reader.flag_or("rotates", "use_mem_rope", false)? {
        attention.rope = Some(rope(reader, RopeRule::plain(heads.2, n_ctx))?);
    } else {
        reader.note("positions", "none", Origin::Family);
    }
    const ADAPTS: &str = "use_shared_attention_adapter";
    let adapts_attention = reader.flag_or("adapts_attention", ADAPTS, false)?;
    if adapts_attention && heads.0 != heads.1 {
        let (n, found) = (heads.0, heads.1);
        let problem = format!("expected {n}, since keys are adapted, found {found}");
        return Err(Error::config(reader.path(), "num_key_value_heads", problem));
    }
    let blocks = "num_mem_blocks";
    let n_blocks = reader.size_or("shared_blocks", blocks, 1, default(blocks))?;
    let layers = (0..attends.len()).filter(|idx| attends[*idx]);
    let four = Origin::Derived("4 · d_model".to_owned());
    let rank = "adapter_rank";
    Ok(Shared {
        name: "shared_transformer",
        attention,
        d_model,
        d_mlp: reader.size_or("d_mlp", "intermediate_size", 4 * d_model, four)?,
        activation: activation(reader, "hidden_act", "gelu")?,
        has_bias: reader.flag_or("mlp_bias", "add_bias_linear", false)?,
        rank: Some(reader.size_or(rank, rank, 128, default(rank))?),
        adapts_attention,
        layers: layers.take(n_blocks).collect(),
    })
}

/// The transformer blocks that layers share in turns.
pub(super) struct Shared {
    pub name: &'static str,
    pub attention: AttentionSpec,
    pub d_model: usize,
    pub d_mlp: usize,
    pub activation: Activation,
    pub has_bias: bool,
    /// The rank of what each layer adds to the feed-forward layer's first map, which then is gate and up in one; `None` if layers
    /// add nothing, and both are stored apart.
    pub rank: Option<usize>,
    pub adapts_attention: bool,
    /// The layers whose names the blocks have.
    pub layers: Vec<usize>,
}

impl Shared {
    /// The addition to a map that belongs to the nth layer with a shared block.
    fn added(&self, list: &str, nth: usize) -> Option<LowRank> {
        self.rank.map(|rank| LowRank {
            down: format!("{list}.{nth}.0.weight"),
            up: format!("{list}.{nth}.1.weight"),
            rank,
        })
    }

    fn attention_at(&self, at: &str, nth: usize) -> ProjectionSpec {
        let of = &self.attention;
        let n_in = 2 * self.d_model;
        let map = |which: &str, n_heads: usize| LinearSource {
            low_rank: self
                .adapts_attention
                .then(|| self.added(&format!("{at}.linear_{which}_adapter_list"), nth))
                .flatten(),
            ..linear(
                &format!("{at}.{which}_proj"),
                n_in,
                n_heads * of.d_head,
                false,
            )
        };
        let (q, k) = (map("q", of.n_heads), map("k", of.n_kv_heads));
        let n_out = of.n_heads * of.d_head;
        let o = linear(&format!("{at}.o_proj"), n_out, self.d_model, false);
        ProjectionSpec::plain(q, k, map("v", of.n_kv_heads), o)
    }

    fn mlp_at(&self, at: &str, nth: usize) -> FeedForward {
        let (d_model, d_mlp) = (self.d_model, self.d_mlp);
        if self.rank.is_none() {
            let mlp = gated(at, USUAL, d_model, d_mlp, self.activation, self.has_bias);
            return FeedForward::Dense(Box::new(mlp));
        }
        let both = LinearSource {
            low_rank: self.added(&format!("{at}.gate_up_proj_adapter_list"), nth),
            ..linear(
                &format!("{at}.gate_up_proj"),
                d_model,
                2 * d_mlp,
                self.has_bias,
            )
        };
        let [gate, up, _] = stacked(&both, [d_mlp, d_mlp, 0]);
        let down = linear(&format!("{at}.down_proj"), d_mlp, d_model, self.has_bias);
        FeedForward::Dense(Box::new(MlpSpec {
            gate: Some(gate),
            ..MlpSpec::plain(up, down, self.activation)
        }))
    }
}

fn state_space(reader: &mut Reader<'_>, d_model: usize) -> Result<StateSpaceSizes> {
    let default = |key: &str| Origin::Default(key.to_owned());
    let (expand, heads) = ("mamba_expand", "n_mamba_heads");
    let expand = reader.size_or("mixer_expansion", expand, 2, default(expand))?;
    let n_heads = reader.size_or("mixer_heads", heads, 8, default(heads))?;
    check_divides(reader, heads, n_heads, expand * d_model)?;
    let groups = "mamba_ngroups";
    let n_groups = reader.size_or("mixer_groups", groups, 1, default(groups))?;
    check_divides(reader, groups, n_groups, n_heads)?;
    let (state, conv) = ("mamba_d_state", "mamba_d_conv");
    let shortest = reader.number_or("shortest_step", "time_step_min", 0.001)?;
    let has_bias = reader.flag_or("mixer_bias", "add_bias_linear", false)?;
    Ok(StateSpaceSizes {
        d_model,
        n_heads,
        d_head: expand * d_model / n_heads,
        n_groups,
        d_state: reader.size_or("d_state", state, 64, default(state))?,
        n_tokens: reader.size_or("conv_width", conv, 4, default(conv))?,
        has_kernel_bias: true,
        has_bias: [has_bias; 2],
        step_limits: [shortest as f32, f32::INFINITY],
        activation: Activation::Silu,
        norm: Some(NormRule::behind_gate(n_groups, GATED_EPS)),
        factors: ([1.0; 5], [1.0; 2]),
    })
}
