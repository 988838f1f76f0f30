//! T5 (1.0, 1.1, Flan): unscaled scores with a learned bias by distance, norms by root mean square, no biases of maps.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Bias, Buckets, Scale, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, CrossSpec, EmbedSpec, FeedForward, GateRule, HeadSpec, LinearSource, MlpSpec,
    ModelSpec, ProjectionSpec, Stack, StackSpec, TableSource,
};

use super::Family;
use super::reading::bart_like::decoder_start;
use super::reading::{activation_named, linear, note_attention, note_bias, rms_norm};

pub const FAMILY: Family = Family::own("t5", "T5", read);

/// Buckets of distance, and where the last one begins, if the configuration does not say.
const N_BUCKETS: usize = 32;
const MAX_DISTANCE: usize = 128;

/// Sizes that encoder and decoder share.
struct Sizes {
    n_heads: usize,
    d_model: usize,
    d_head: usize,
    d_mlp: usize,
    eps: f64,
    activation: Activation,
    is_gated: bool,
    n_buckets: usize,
    max_distance: usize,
    like: T5Like,
    radius: Option<usize>,
    /// The encoder's relative-position bias, where it stands beside the blocks.
    encoder_buckets: Option<String>,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = T5Like {
        family: FAMILY.model_type,
        ..T5Like::PLAIN
    };
    read_as(checkpoint, reader, like)
}

/// How a family with T5's names differs from T5.
#[derive(Debug, Clone, Copy)]
pub(super) struct T5Like {
    pub family: &'static str,
    /// The key of the kind of feed-forward block, and the kind if it is absent.
    pub feed_forward: (&'static str, &'static str),
    /// The key of the activation, and the activation if it is absent; `None` if the kind of feed-forward block names it.
    pub activation: Option<(&'static str, &'static str)>,
    /// The activation of gated feed-forward blocks whose kind is "gated-gelu".
    pub gated_gelu: &'static str,
    /// The name of the feed-forward block in its layer.
    pub mlp: &'static str,
    /// Whether the logits of a tied head are scaled by default.
    pub scales_tied: bool,
    /// Every layer has its own relative-position bias.
    pub has_bias_by_layer: bool,
    /// Encoder and decoder share one token table even if the head is not tied.
    pub ties_words: bool,
    /// The name of the encoder's self-attention.
    pub encoder_attention: &'static str,
    /// Key of how far the encoder's tokens see to both sides, and its default; `None` if they see all others.
    pub radius: Option<(&'static str, usize)>,
    /// The encoder's relative-position bias, if it stands beside its blocks; its buckets are always as by default.
    pub encoder_buckets: Option<&'static str>,
    /// Set if the model is a decoder without an encoder of this kind.
    pub decoder_alone: Option<Alone>,
}

/// A decoder without an encoder of T5's kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alone {
    /// Whether it attends to the output of another encoder; otherwise its cross-attention is left out.
    pub crosses: bool,
}

impl T5Like {
    /// T5 itself.
    pub const PLAIN: Self = Self {
        family: FAMILY.model_type,
        feed_forward: ("feed_forward_proj", "relu"),
        activation: None,
        gated_gelu: "gelu_new",
        mlp: "DenseReluDense",
        scales_tied: true,
        has_bias_by_layer: false,
        ties_words: true,
        encoder_attention: "SelfAttention",
        radius: None,
        encoder_buckets: None,
        decoder_alone: None,
    };
}

/// Reads a family with T5's names.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: T5Like,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_layers")?;
    let n_decoder_layers = match reader.value("num_decoder_layers") {
        Some(_) => reader.layers("num_decoder_layers")?,
        None => n_layers,
    };
    let default = |key: &str| Origin::Default(key.to_owned());
    let (buckets, distance) = (
        "relative_attention_num_buckets",
        "relative_attention_max_distance",
    );
    let (kind_key, kind) = like.feed_forward;
    let word = reader.word_or("feed_forward", kind_key, kind)?;
    let (is_gated, name) = match word.strip_prefix("gated-") {
        Some("gelu") => (true, like.gated_gelu),
        Some(name) => (true, name),
        None => (false, word.as_str()),
    };
    let (activation_key, own) = match like.activation {
        Some((key, default)) => (key, Some(reader.word_or("activation", key, default)?)),
        None => (kind_key, None),
    };
    let name = own.as_deref().unwrap_or(name);
    reader.value("is_encoder_decoder");
    // transformers derives these from the word, and would not use a stored value that contradicts it.
    let derived = [
        ("feed_forward_proj", serde_json::Value::from(word.as_str())),
        ("dense_act_fn", serde_json::Value::from(name)),
        ("is_gated_act", serde_json::Value::from(is_gated)),
    ];
    for (key, expected) in derived {
        if let Some(found) = reader.value(key).filter(|found| **found != expected) {
            let problem = format!("expected {expected}, as {kind_key} has it, found {found}");
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    let sizes = Sizes {
        n_heads: reader.size("n_heads", "num_heads")?,
        d_model: reader.size("d_model", "d_model")?,
        d_head: reader.size("d_head", "d_kv")?,
        d_mlp: reader.size("d_mlp", "d_ff")?,
        eps: reader.number_or("norm_eps", "layer_norm_epsilon", 1e-6)?,
        activation: activation_named(reader, activation_key, name)?,
        is_gated,
        n_buckets: reader.size_or("n_buckets", buckets, N_BUCKETS, default(buckets))?,
        max_distance: reader.size_or("max_distance", distance, MAX_DISTANCE, default(distance))?,
        like,
        // A copy in the first block may be all that is stored.
        encoder_buckets: like
            .encoder_buckets
            .filter(|name| tensors.contains(name))
            .map(str::to_owned),
        radius: match like.radius {
            Some((key, radius)) => Some(reader.count_or("window", key, radius)?),
            None => None,
        },
    };
    if like.encoder_buckets.is_some() && sizes.n_buckets != N_BUCKETS {
        let problem = format!(
            "expected {N_BUCKETS}, which the encoder always has, found {}",
            sizes.n_buckets
        );
        return Err(Error::config(reader.path(), buckets, problem));
    }
    if sizes.n_buckets < 4 || sizes.max_distance <= sizes.n_buckets / 2 {
        let problem = format!(
            "expected at least 4 buckets, found {}, and more than {} keys before the last one begins, found {}",
            sizes.n_buckets,
            sizes.n_buckets / 2,
            sizes.max_distance
        );
        return Err(Error::config(reader.path(), distance, problem));
    }
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    const TIED: &str = "tie_word_embeddings";
    // Only an explicit `false` unties the head.
    let is_tied = if reader.is_null(TIED) {
        reader.note("tied_unembedding", true, Origin::Default(TIED.to_owned()));
        true
    } else {
        reader.flag_or("tied_unembedding", TIED, true)?
    };
    // Newer configurations mark every head as tied, and use this key for scaling.
    let is_scaled = reader.flag_or(
        "scaled_logits",
        "scale_decoder_outputs",
        is_tied && like.scales_tied,
    )?;
    note_attention(reader, &sizes.attention(true), Origin::Family);
    note_bias(reader, "learned, by buckets of distance");
    let shared = TableSource {
        tensor: "shared.weight".to_owned(),
        n_rows: d_vocab,
        width: sizes.d_model,
    };
    let has_own = !is_tied && !like.ties_words;
    let tokens_of = |side: &str| {
        let own = format!("{side}.embed_tokens.weight");
        TableSource {
            tensor: if tensors.contains(&shared.tensor) && !(has_own && tensors.contains(&own)) {
                shared.tensor.clone()
            } else {
                own
            },
            ..shared.clone()
        }
    };
    let decoder_tokens = tokens_of("decoder");
    let stored = tensors.contains("lm_head.weight");
    let weight = if stored {
        "lm_head.weight".to_owned()
    } else {
        decoder_tokens.tensor.clone()
    };
    let head = (stored || is_tied).then(|| HeadSpec {
        // Only tied heads are scaled, because the table was made for embeddings.
        scale: if is_scaled {
            1.0 / (sizes.d_model as f64).sqrt() as f32
        } else {
            1.0
        },
        ..HeadSpec::plain(LinearSource::whole(weight, None, sizes.d_model, d_vocab))
    });
    if let Some(Alone { crosses }) = like.decoder_alone {
        let mut only = sizes.stack("decoder", Stack::Decoder, n_layers, decoder_tokens);
        only.stack = Stack::Only;
        for block in only.blocks_mut().iter_mut().filter(|_| !crosses) {
            block.cross = None;
        }
        return Ok(ModelSpec {
            is_causal_lm: head.is_some(),
            ..ModelSpec::of_one_stack(like.family, only, head)
        });
    }
    let encoder = sizes.stack("encoder", Stack::Encoder, n_layers, tokens_of("encoder"));
    // An encoder saved alone is a model of one stack.
    if !tensors.contains("decoder.final_layer_norm.weight")
        && tensors.contains("encoder.final_layer_norm.weight")
    {
        let origin = Origin::Derived("tensor names".to_owned());
        reader.note("half", "encoder alone", origin);
        for key in ["decoder_start_token_id", "eos_token_id", "pad_token_id"] {
            reader.value(key);
        }
        let only = StackSpec {
            stack: Stack::Only,
            ..encoder
        };
        return Ok(ModelSpec::of_one_stack(like.family, only, None));
    }
    let decoder = sizes.stack("decoder", Stack::Decoder, n_decoder_layers, decoder_tokens);
    let start = decoder_start(reader, Some("pad_token_id"), d_vocab)?;
    Ok(ModelSpec {
        stacks: vec![encoder.clone(), decoder],
        is_causal_lm: head.is_some(),
        decoder_start: Some(start),
        ..ModelSpec::of_one_stack(like.family, encoder, head)
    })
}

impl Sizes {
    fn attention(&self, is_causal: bool) -> AttentionSpec {
        let is_fixed = self.like.encoder_buckets.is_some() && !is_causal;
        AttentionSpec {
            scale: Scale::One,
            bias: Bias::Buckets(Buckets::plain(
                self.n_buckets,
                if is_fixed {
                    MAX_DISTANCE
                } else {
                    self.max_distance
                },
                !is_causal,
            )),
            ..AttentionSpec::plain(self.n_heads, self.n_heads, self.d_head, is_causal)
        }
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let width = self.n_heads * self.d_head;
        let one = |name: &str| linear(&format!("{at}.{name}"), self.d_model, width, false);
        let o = linear(&format!("{at}.o"), width, self.d_model, false);
        ProjectionSpec::plain(one("q"), one("k"), one("v"), o)
    }

    fn block(&self, at: &str, is_decoder: bool) -> BlockSpec {
        let norm = |idx: usize| {
            let name = format!("{at}.layer.{idx}.layer_norm.weight");
            Some(rms_norm(name, self.d_model, self.eps))
        };
        let mlp_idx = if is_decoder { 2 } else { 1 };
        let one = |name: &str, n_in, n_out| {
            linear(
                &format!("{at}.layer.{mlp_idx}.{}.{name}", self.like.mlp),
                n_in,
                n_out,
                false,
            )
        };
        let (d_model, d_mlp) = (self.d_model, self.d_mlp);
        let mlp = MlpSpec {
            up: one(if self.is_gated { "wi_1" } else { "wi" }, d_model, d_mlp),
            gate: self.is_gated.then(|| one("wi_0", d_model, d_mlp)),
            down: one("wo", d_mlp, d_model),
            activation: self.activation,
            gate_rule: GateRule::Product,
            learned: None,
            convolution: None,
            hidden_norm: None,
            sparsity: None,
            out_activation: None,
        };
        let cross = is_decoder.then(|| {
            let attention = AttentionSpec {
                bias: Bias::None,
                is_cross: true,
                ..self.attention(false)
            };
            let projections = self.projections(&format!("{at}.layer.1.EncDecAttention"));
            Box::new(CrossSpec {
                pre: norm(1),
                ..CrossSpec::plain(attention, projections)
            })
        });
        let own = self.own_name(is_decoder);
        let projections = ProjectionSpec {
            bucket_values: (self.like.has_bias_by_layer).then(|| self.buckets(at, is_decoder)),
            ..self.projections(&format!("{at}.layer.0.{own}"))
        };
        let mut attention = self.attention(is_decoder);
        let radius = self.radius.filter(|_| !is_decoder);
        attention.mask.window = radius.map(Window::Around);
        BlockSpec {
            attn_pre: norm(0),
            cross,
            mlp_pre: norm(mlp_idx),
            ..BlockSpec::plain(attention, projections, FeedForward::Dense(Box::new(mlp)))
        }
    }

    /// The name of self-attention.
    fn own_name(&self, is_decoder: bool) -> &'static str {
        if is_decoder {
            "SelfAttention"
        } else {
            self.like.encoder_attention
        }
    }

    /// The learned relative-position bias stored in a block.
    fn buckets(&self, at: &str, is_decoder: bool) -> TableSource {
        let own = self.own_name(is_decoder);
        let of_block = format!("{at}.layer.0.{own}.relative_attention_bias.weight");
        let beside = self.encoder_buckets.clone().filter(|_| !is_decoder);
        TableSource {
            tensor: beside.unwrap_or(of_block),
            n_rows: self.n_buckets,
            width: self.n_heads,
        }
    }

    fn stack(&self, name: &str, stack: Stack, n_layers: usize, tokens: TableSource) -> StackSpec {
        let is_decoder = stack == Stack::Decoder;
        let block = |layer_idx| self.block(&format!("{name}.block.{layer_idx}"), is_decoder);
        let final_norm = rms_norm(
            format!("{name}.final_layer_norm.weight"),
            self.d_model,
            self.eps,
        );
        let blocks = (0..n_layers).map(block).collect();
        StackSpec {
            stack,
            bucket_values: (!self.like.has_bias_by_layer)
                .then(|| self.buckets(&format!("{name}.block.0"), is_decoder)),
            ..StackSpec::only(EmbedSpec::plain(tokens), blocks, Some(final_norm))
        }
    }
}
