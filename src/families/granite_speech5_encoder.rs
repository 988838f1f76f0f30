//! The encoder of Granite Speech 5: a Conformer in blocks of rows, with learned vectors of distances. Some layers halve the number of rows
//! between attention and feed-forward layer: each is two here. Half way, the layers read what they make of tokens.

use attnscope_checkpoint::{Checkpoint, Config, Origin, Reader};
use attnscope_compute::attention::{Bias, Relative, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, ChannelNorm, ConvolutionModule, DistanceRows, FeedForward, Joining, LabelGuess,
    MergeSpec, Mixer, ModelSpec, NormSource, ProjectionSpec, RelativeSource, StackSpec,
    TableSource,
};

use super::Family;
use super::reading::conformer::{Conformer, ConformerNames, Distances, EPS, HALF};
use super::reading::{
    activation, even_heads, given_rows, linear, note_attention, note_bias, prefix,
};

pub const FAMILY: Family = Family::own("granite_speech5_encoder", "GraniteSpeech5Encoder", read)
    .leaving_unread(&["num_batches_tracked"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    read_encoder(FAMILY.model_type, checkpoint, reader)
}

/// Reads the encoder that a part of a configuration describes.
///
/// # Errors
/// When a value of the configuration is missing, impossible or not read.
pub(super) fn read_part(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    key: &str,
) -> Result<ModelSpec> {
    let config: Config = reader.part(key);
    let mut inner = Reader::new(&config);
    inner.value("model_type");
    let spec = read_encoder(family, checkpoint, &mut inner)?;
    reader.absorb(key, inner);
    Ok(spec)
}

fn read_encoder(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
) -> Result<ModelSpec> {
    const BLOCK: &str = "context_size";
    const FARTHEST: &str = "max_position_embeddings";
    const WIDE: &str = "conv_kernel_size";
    const KV: &str = "num_key_value_heads";
    let tensors = &checkpoint.tensors;
    let default = |key: &str| Origin::Default(key.to_owned());
    let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
    let n_mels = size("n_mels", "num_mel_bins", 80)?;
    let n_labels = size("n_labels", "vocab_size", 16384)?;
    let farthest = size("distances", FARTHEST, 512)?;
    let width_of_block = size("window", BLOCK, 128)?;
    let n_times = size("channel_factor", "conv_expansion_factor", 2)?;
    let n_wide = size("convolution_width", WIDE, 7)?;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let even = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let by = Origin::Derived("d_model / n_heads".to_owned());
    let d_head = reader.size_or("d_head", "head_dim", even, by)?;
    let same = Origin::Derived("n_heads".to_owned());
    let n_kv_heads = reader.size_or("n_kv_heads", KV, n_heads, same)?;
    let problem = |is_wrong: bool, key, expected: String, found: usize| {
        if is_wrong {
            Err(Error::config(
                reader.path(),
                key,
                format!("expected {expected}, found {found}"),
            ))
        } else {
            Ok(())
        }
    };
    problem(
        n_kv_heads != n_heads,
        KV,
        format!("{n_heads}, num_attention_heads"),
        n_kv_heads,
    )?;
    problem(
        n_wide.is_multiple_of(2),
        WIDE,
        "an odd number".to_owned(),
        n_wide,
    )?;
    problem(
        width_of_block > farthest,
        BLOCK,
        format!("at most {farthest}, {FARTHEST}"),
        width_of_block,
    )?;
    let halving = reader.numbers("subsample_layers")?.unwrap_or(vec![0, 1]);
    let conformer = Conformer {
        tensors,
        names: ConformerNames::FAST,
        d_model,
        d_mlp,
        n_heads,
        n_kv_heads,
        d_head,
        n_wide,
        mlp_wide: None,
        n_before: n_wide / 2,
        activation: activation(reader, "hidden_act", "silu")?,
        eps: EPS,
        norms_have_bias: true,
        has_bias: reader.flag_or("has_bias", "attention_bias", true)?,
        convolution_has_bias: false,
        norms_rows: false,
        layer_factors: [1.0, HALF],
        convolution_factors: [1.0; 2],
        distances: Distances::None,
        rope: None,
        window: Some(Window::Chunks {
            width: width_of_block,
            n_before: 0,
        }),
        n_positions: None,
    };
    note_bias(reader, "learned by distance, and multiplied with queries");
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    let made_by =
        "its feature extractor, two frames of mel bands and of their slopes beside each other,";
    given_rows::remark(reader, made_by);
    let base = prefix(
        tensors,
        &["model.encoder.", "encoder.", "model.", ""],
        "out_mid.weight",
    );
    let input = linear(&format!("{base}input_linear"), 4 * n_mels, d_model, true);
    let sizes = Sizes {
        n_channels: n_times.saturating_mul(d_model),
        farthest,
        span: width_of_block,
    };
    let mut blocks = Vec::with_capacity(n_layers);
    for layer_idx in 0..n_layers {
        let mut block = sizes.fit(&conformer, &format!("{base}layers.{layer_idx}"));
        if layer_idx > 0
            && layer_idx == n_layers / 2
            && let Some(conformer) = block.conformer.as_mut()
        {
            conformer.guess = Some(LabelGuess {
                labels: linear(&format!("{base}out"), d_model, n_labels, true),
                back: linear(&format!("{base}out_mid"), n_labels, d_model, true),
            });
        }
        if halving.contains(&(layer_idx as u64)) {
            let behind = halved(&mut block);
            blocks.extend([block, behind]);
        } else {
            blocks.push(block);
        }
    }
    if let Some(attention) = blocks.first().and_then(BlockSpec::attention) {
        note_attention(reader, attention, Origin::Family);
    }
    if blocks.len() > n_layers {
        let said = "a layer that halves its rows counts as two: its attention, then the rest";
        reader.remark(said.to_owned());
    }
    let stack = StackSpec::only(given_rows::mapped(input), blocks, None);
    Ok(ModelSpec {
        d_model,
        ..ModelSpec::of_one_stack(family, stack, None)
    })
}

/// Takes out of a block what runs on half as many rows, and lets what halves them stand between both.
fn halved(block: &mut BlockSpec) -> BlockSpec {
    let feed_forward = std::mem::replace(&mut block.feed_forward, FeedForward::None);
    let behind = BlockSpec {
        mlp_pre: block.mlp_pre.take(),
        mlp_post: block.mlp_post.take(),
        branch_scales: block.branch_scales,
        ..BlockSpec::mixed(Mixer::None, feed_forward)
    };
    let module = block
        .conformer
        .as_mut()
        .and_then(|conformer| conformer.convolution.take());
    block.merge = module.map(|module| {
        Box::new(MergeSpec {
            rows: None,
            joining: Joining::Halves(Box::new(module)),
            behind: None,
            places: None,
        })
    });
    behind
}

/// Sizes of what a block has otherwise than other Conformers.
struct Sizes {
    n_channels: usize,
    /// The largest distance that the table has.
    farthest: usize,
    /// The largest distance of two rows of a block.
    span: usize,
}

impl Sizes {
    fn fit(&self, like: &Conformer<'_>, at: &str) -> BlockSpec {
        let mut block = like.block(at);
        if let Some(conformer) = block.conformer.as_mut()
            && let Some(module) = conformer.convolution.take()
        {
            conformer.convolution = Some(self.convolution(&format!("{at}.conv"), like, module.pre));
        }
        let Some(own) = block.own_mut() else {
            return block;
        };
        own.attention.bias = Bias::Relative(Relative {
            span: self.span,
            log_until: None,
        });
        let (d, inner) = (like.d_model, like.n_heads * like.d_head);
        let map = |name: &str, n_in, n_out, has_bias| {
            linear(&format!("{at}.self_attn.{name}"), n_in, n_out, has_bias)
        };
        let [q, k, v] = ["q_proj", "k_proj", "v_proj"].map(|name| map(name, d, inner, false));
        let relative = RelativeSource::plain(DistanceRows::Shared {
            table: TableSource {
                tensor: format!("{at}.self_attn.rel_pos_emb.weight"),
                n_rows: 2 * self.farthest + 1,
                width: like.d_head,
            },
            n_heads: like.n_heads,
            middle: self.farthest,
            is_reversed: false,
            limits: false,
            span: self.span,
        });
        own.projections = ProjectionSpec {
            relative: Some(Box::new(relative)),
            ..ProjectionSpec::plain(q, k, v, map("o_proj", inner, d, true))
        };
        block
    }

    fn convolution(
        &self,
        at: &str,
        like: &Conformer<'_>,
        pre: Option<NormSource>,
    ) -> ConvolutionModule {
        let (d, n) = (like.d_model, self.n_channels);
        let stored = ["weight", "bias", "running_mean", "running_var"];
        ConvolutionModule {
            pre,
            expand: linear(&format!("{at}.pointwise_lin1"), d, 2 * n, true),
            gate_biases: None,
            gate: Activation::Sigmoid,
            kernel: format!("{at}.depthwise_conv.weight"),
            kernel_bias: None,
            n_channels: n,
            n_wide: like.n_wide,
            n_before: like.n_before,
            mixed: None,
            norm: ChannelNorm::Stored {
                tensors: stored.map(|name| format!("{at}.norm.{name}")),
                eps: EPS,
            },
            activation: Activation::Silu,
            out: linear(&format!("{at}.pointwise_lin2"), n, d, true),
            scale: 1.0,
            resid_factor: 1.0,
            post: None,
        }
    }
}
