//! The encoder of Granite Speech: a Conformer in blocks of rows, with learned vectors of distances. Half way, the layers read what
//! they make of letters.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Bias, Mask, Relative, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, ChannelNorm, ConformerSpec, ConvolutionModule, DistanceRows, FeedForward,
    LabelGuess, MlpSpec, ModelSpec, NormSource, ProjectionSpec, RelativeSource, StackSpec,
    TableSource,
};

use super::Family;
use super::reading::conformer::HALF;
use super::reading::{
    even_heads, given_rows, layer_norm, linear, note_attention, note_bias, prefix, stacked,
};

pub const FAMILY: Family = Family::own("granite_speech_encoder", "GraniteSpeech", read)
    .leaving_unread(&["num_batches_tracked"]);

/// Epsilon of all norms; no configuration states it.
const EPS: f64 = 1e-5;

/// A block's sizes.
struct Block<'a> {
    tensors: &'a Tensors,
    d_model: usize,
    d_mlp: usize,
    n_channels: usize,
    n_wide: usize,
    /// The largest distance that the table has.
    farthest: usize,
    attention: AttentionSpec,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const BLOCK: &str = "context_size";
    const FARTHEST: &str = "max_pos_emb";
    let tensors = &checkpoint.tensors;
    let default = |key: &str| Origin::Default(key.to_owned());
    let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
    let width = size("row_width", "input_dim", 160)?;
    let n_labels = size("n_labels", "output_dim", 42)?;
    let farthest = size("distances", FARTHEST, 512)?;
    let width_of_block = size("window", BLOCK, 200)?;
    let n_times = size("mlp_factor", "feedforward_mult", 4)?;
    let n_channels = size("channel_factor", "conv_expansion_factor", 2)?;
    let n_wide = size("convolution_width", "conv_kernel_size", 15)?;
    let n_layers = reader.layers("num_layers")?;
    let n_heads = reader.size("n_heads", "num_heads")?;
    let d_model = reader.size("d_model", "hidden_dim")?;
    let even = even_heads(reader, "num_heads", d_model, n_heads)?;
    let by = Origin::Derived("d_model / n_heads".to_owned());
    let d_head = reader.size_or("d_head", "dim_head", even, by)?;
    if width_of_block > farthest {
        let problem = format!("expected at most {farthest}, {FARTHEST}, found {width_of_block}");
        return Err(Error::config(reader.path(), BLOCK, problem));
    }
    let [d_mlp, n_channels] = [n_times, n_channels].map(|n| n.saturating_mul(d_model));
    let plain = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    let block = Block {
        tensors,
        d_model,
        d_mlp,
        n_channels,
        n_wide,
        farthest,
        attention: AttentionSpec {
            bias: Bias::Relative(Relative {
                span: width_of_block,
                log_until: None,
            }),
            mask: Mask {
                window: Some(Window::Chunks {
                    width: width_of_block,
                    n_before: 0,
                }),
                ..plain.mask
            },
            ..plain
        },
    };
    note_attention(reader, &block.attention, Origin::Family);
    note_bias(reader, "learned by distance, and multiplied with queries");
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    given_rows::remark(
        reader,
        "its feature extractor, two frames of mel bands beside each other,",
    );
    let base = prefix(
        tensors,
        &["model.encoder.", "encoder.", ""],
        "out_mid.weight",
    );
    let embed = given_rows::mapped(linear(&format!("{base}input_linear"), width, d_model, true));
    let mut blocks: Vec<BlockSpec> = (0..n_layers)
        .map(|layer_idx| block.read(&format!("{base}layers.{layer_idx}")))
        .collect();
    // Behind the first half of the layers.
    if let Some(conformer) = blocks
        .get_mut(n_layers / 2)
        .filter(|_| n_layers > 1)
        .and_then(|block| block.conformer.as_mut())
    {
        conformer.guess = Some(LabelGuess {
            labels: linear(&format!("{base}out"), d_model, n_labels, true),
            back: linear(&format!("{base}out_mid"), n_labels, d_model, true),
        });
    }
    let stack = StackSpec::only(embed, blocks, None);
    Ok(ModelSpec {
        d_model,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, None)
    })
}

impl Block<'_> {
    fn read(&self, at: &str) -> BlockSpec {
        let norm =
            |name: &str| layer_norm(self.tensors, &format!("{at}.{name}"), self.d_model, EPS);
        let conformer = ConformerSpec {
            guess: None,
            before_norm: Some(norm("ff1.pre_norm")),
            before: self.mlp(&format!("{at}.ff1")),
            before_out: None,
            before_scale: HALF,
            before_factor: 1.0,
            before_post: None,
            last: None,
            convolution: Some(self.convolution(&format!("{at}.conv"), norm("conv.norm"))),
        };
        BlockSpec {
            attn_pre: Some(norm("attn.pre_norm")),
            mlp_pre: Some(norm("ff2.pre_norm")),
            mlp_post: Some(norm("post_norm")),
            branch_scales: [1.0, HALF],
            conformer: Some(Box::new(conformer)),
            ..BlockSpec::plain(
                self.attention.clone(),
                self.projections(&format!("{at}.attn")),
                FeedForward::Dense(Box::new(self.mlp(&format!("{at}.ff2")))),
            )
        }
    }

    fn mlp(&self, at: &str) -> MlpSpec {
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let (up, down) = (
            map("up_proj", self.d_model, self.d_mlp),
            map("down_proj", self.d_mlp, self.d_model),
        );
        MlpSpec::plain(up, down, Activation::Silu)
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let (own, d) = (&self.attention, self.d_model);
        let inner = own.n_heads * own.d_head;
        let q = linear(&format!("{at}.to_q"), d, inner, false);
        let both = linear(&format!("{at}.to_kv"), d, 2 * inner, false);
        let [k, v, _] = stacked(&both, [inner, inner, 0]);
        let o = linear(&format!("{at}.to_out"), inner, d, true);
        let Bias::Relative(Relative { span, .. }) = own.bias else {
            return ProjectionSpec::plain(q, k, v, o);
        };
        let relative = RelativeSource::plain(DistanceRows::Shared {
            table: TableSource {
                tensor: format!("{at}.rel_pos_emb.weight"),
                n_rows: 2 * self.farthest + 1,
                width: own.d_head,
            },
            n_heads: own.n_heads,
            middle: self.farthest,
            is_reversed: false,
            limits: false,
            span,
        });
        ProjectionSpec {
            relative: Some(Box::new(relative)),
            ..ProjectionSpec::plain(q, k, v, o)
        }
    }

    fn convolution(&self, at: &str, pre: NormSource) -> ConvolutionModule {
        let (d, n) = (self.d_model, self.n_channels);
        let norm = format!("{at}.batch_norm");
        let stored = ["weight", "bias", "running_mean", "running_var"];
        ConvolutionModule {
            pre: Some(pre),
            expand: linear(&format!("{at}.up_conv"), d, 2 * n, true).in_groups(1),
            gate_biases: None,
            gate: Activation::Sigmoid,
            kernel: format!("{at}.depth_conv.conv.weight"),
            kernel_bias: None,
            n_channels: n,
            n_wide: self.n_wide,
            n_before: self.n_wide / 2,
            mixed: None,
            norm: ChannelNorm::Stored {
                tensors: stored.map(|name| format!("{norm}.{name}")),
                eps: EPS,
            },
            activation: Activation::Silu,
            out: linear(&format!("{at}.down_conv"), n, d, true).in_groups(1),
            scale: 1.0,
            resid_factor: 1.0,
            post: None,
        }
    }
}
