//! The encoder of sound of Phi-4-multimodal: a Conformer whose frames see all others, with a learned bias for each distance. The
//! convolutions before it are not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Bias, Buckets, EachDistance};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, ChannelNorm, ConformerSpec, ConvolutionModule, FeedForward, MlpSpec, ModelSpec,
    NormSource, ProjectionSpec, TableSource,
};

use super::Family;
use super::reading::conformer::{EPS, HALF};
use super::reading::{
    activation, activation_named, even_heads, given_rows, layer_norm, linear, must_be_off,
    note_attention, note_bias, prefix, stacked,
};

pub const FAMILY: Family = Family::own("phi4_multimodal_audio", "Phi4MultimodalAudio", read)
    .leaving_unread(&["embed.*", "encoder_embedding.*"]);

/// Rows of a longer sound are divided, so that each part of this many has a run of its own.
const LONGEST: usize = 500;

/// Keys of what rows are made of, and of the whole model.
const ASIDE: [&str; 9] = [
    "audio_token_id",
    "downsample_rate",
    "feature_layer",
    "input_size",
    "left_chunk",
    "nemo_activation",
    "nemo_conv_channels",
    "nemo_final_size",
    "time_reduction",
];

/// A block's sizes.
struct Block<'a> {
    tensors: &'a Tensors,
    d_model: usize,
    d_mlp: usize,
    n_wide: usize,
    /// Of feed-forward layers, of the convolution, and of its gate.
    activations: [Activation; 3],
    attention: AttentionSpec,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "num_attention_heads";
    const FARTHEST: &str = "bias_max_distance";
    const WIDE: &str = "kernel_size";
    const CHUNK: &str = "chunk_size";
    let tensors = &checkpoint.tensors;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    must_be_off(reader, "bias_symmetric", "its table is too short")?;
    // transformers adds 1 to what is seen and hides nothing; whatever is seen, all keys gain the same where there is one chunk.
    if let Some(found) = reader.value(CHUNK).filter(|size| size.as_i64() != Some(-1)) {
        let problem = format!("expected -1: attention in chunks is not read, found {found}");
        return Err(Error::config(reader.path(), CHUNK, problem));
    }
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_layers = reader.layers("num_blocks")?;
    let d_model = reader.size_or("d_model", "hidden_size", 1024, default("hidden_size"))?;
    let n_heads = reader.size_or("n_heads", HEADS, 16, default(HEADS))?;
    let d_head = even_heads(reader, HEADS, d_model, n_heads)?;
    let d_mlp = "intermediate_size";
    let d_mlp = reader.size_or("d_mlp", d_mlp, 1536, default(d_mlp))?;
    let n_wide = reader.size_or("convolution_width", WIDE, 3, default(WIDE))?;
    let farthest = reader.size_or("distances", FARTHEST, 1000, default(FARTHEST))?;
    for (key, expected) in [
        ("depthwise_multiplier", 1),
        ("depthwise_separable_out_channel", d_model),
        ("ext_pw_out_channel", d_model),
    ] {
        let usual = if expected == 1 { 1 } else { 1024 };
        let found = reader.count_or("channels", key, usual)?;
        if found != expected {
            let problem =
                format!("expected {expected}, as many channels as the residual, found {found}");
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    let of_layers = activation(reader, "activation", "swish")?;
    let mut of_convolution = |knob, key| -> Result<Activation> {
        let name = reader.word_or(knob, key, "swish")?;
        activation_named(reader, key, &name)
    };
    let activations = [
        of_layers,
        of_convolution("convolution_activation", "conv_activation")?,
        of_convolution("convolution_gate", "conv_glu_type")?,
    ];
    let n_buckets = 2 * farthest;
    let block = Block {
        tensors,
        d_model,
        d_mlp,
        n_wide,
        activations,
        attention: AttentionSpec {
            bias: Bias::Buckets(Buckets {
                each: Some(EachDistance {
                    own: farthest,
                    counts_back: false,
                }),
                ..Buckets::plain(n_buckets, farthest, true)
            }),
            ..AttentionSpec::plain(n_heads, n_heads, d_head, false)
        },
    };
    note_attention(reader, &block.attention, Origin::Family);
    note_bias(reader, "learned for each distance, the same in all layers");
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    given_rows::remark(reader, "its convolutions over frames and mel bands");
    let bases = [
        "",
        "encoder.",
        "model.embed_tokens_extend.audio_embed.encoder.",
    ];
    let table = "relative_attention_bias_layer.bias_values.weight";
    let base = prefix(tensors, &bases, table);
    let blocks = (0..n_layers)
        .map(|layer_idx| block.read(&format!("{base}encoders.{layer_idx}")))
        .collect();
    let first = (format!("{base}encoders.0.layer_norm_att.weight"), d_model);
    let mut spec = given_rows::model(FAMILY.model_type, first, blocks, None);
    spec.n_ctx = Some(LONGEST);
    let stack = &mut spec.stacks[0];
    stack.bucket_values = Some(TableSource {
        tensor: format!("{base}{table}"),
        n_rows: n_buckets,
        width: n_heads,
    });
    if let Some(stem) = stack.embed.sound.as_deref_mut() {
        stem.rule.n_frames = LONGEST;
    }
    Ok(spec)
}

impl Block<'_> {
    fn read(&self, at: &str) -> BlockSpec {
        let [before, after] =
            ["feed_forward_in", "feed_forward_out"].map(|name| self.mlp(&format!("{at}.{name}")));
        let conformer = ConformerSpec {
            guess: None,
            before_norm: Some(self.norm(&format!("{at}.feed_forward_in.layer_norm"))),
            before,
            before_out: None,
            before_scale: HALF,
            before_factor: 1.0,
            before_post: None,
            last: None,
            convolution: Some(self.convolution(&format!("{at}.conv"))),
        };
        BlockSpec {
            attn_pre: Some(self.norm(&format!("{at}.layer_norm_att"))),
            mlp_pre: Some(self.norm(&format!("{at}.feed_forward_out.layer_norm"))),
            mlp_post: Some(self.norm(&format!("{at}.layer_norm"))),
            branch_scales: [1.0, HALF],
            conformer: Some(Box::new(conformer)),
            ..BlockSpec::plain(
                self.attention.clone(),
                self.projections(&format!("{at}.self_attn")),
                FeedForward::Dense(Box::new(after)),
            )
        }
    }

    fn norm(&self, name: &str) -> NormSource {
        layer_norm(self.tensors, name, self.d_model, EPS)
    }

    fn mlp(&self, at: &str) -> MlpSpec {
        let (d, n) = (self.d_model, self.d_mlp);
        let both = linear(&format!("{at}.gate_up_proj"), d, 2 * n, true);
        let [up, gate, _] = stacked(&both, [n, n, 0]);
        let down = linear(&format!("{at}.down_proj"), n, d, true);
        MlpSpec {
            gate: Some(gate),
            ..MlpSpec::plain(up, down, self.activations[0])
        }
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let d = self.d_model;
        let [q, k, v, o] = ["q_proj", "k_proj", "v_proj", "o_proj"]
            .map(|name| linear(&format!("{at}.{name}"), d, d, true));
        ProjectionSpec::plain(q, k, v, o)
    }

    fn convolution(&self, at: &str) -> ConvolutionModule {
        let d = self.d_model;
        let pointwise =
            |name: &str, n_out| linear(&format!("{at}.{name}"), d, n_out, true).in_groups(1);
        let [_, activation, gate] = self.activations;
        let around = format!("{at}.dw_sep_conv_1d.dw_conv");
        ConvolutionModule {
            pre: Some(self.norm(&format!("{at}.layer_norm"))),
            expand: pointwise("glu.ext_pw_conv_1d", 2 * d),
            gate_biases: Some(["b1", "b2"].map(|name| format!("{at}.glu.{name}"))),
            gate,
            kernel: format!("{around}.weight"),
            kernel_bias: Some(format!("{around}.bias")),
            n_channels: d,
            n_wide: self.n_wide,
            n_before: self.n_wide - 1,
            mixed: Some(pointwise("dw_sep_conv_1d.pw_conv", d)),
            norm: ChannelNorm::None,
            activation,
            out: pointwise("ext_pw_conv_1d", d),
            scale: 1.0,
            resid_factor: 1.0,
            post: None,
        }
    }
}
