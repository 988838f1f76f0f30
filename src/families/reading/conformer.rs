//! The blocks of a Conformer, as wav2vec 2.0 has them: names of tensors, and what positions do to scores.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Bias, Relative};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, ChannelNorm, ConformerSpec, ConvolutionModule, DistanceRows, FeedForward, MlpSpec,
    NormSource, ProjectionSpec, QueryBiases, RelativeSource, Sines,
};

use super::{even_heads, layer_norm, linear, note_bias};

/// Epsilon of the norms of blocks; no configuration states it.
const EPS: f64 = 1e-5;

/// The share of a feed-forward layer's output that is added to the residual.
const HALF: f32 = 0.5;

/// The usual largest number of positions.
const N_POSITIONS: usize = 5000;

/// The blocks of a Conformer.
pub struct Conformer<'a> {
    tensors: &'a Tensors,
    d_model: usize,
    d_mlp: usize,
    n_heads: usize,
    d_head: usize,
    n_wide: usize,
    activation: Activation,
    /// The number of distances to either side; `None` if positions do nothing to scores.
    span: Option<usize>,
    /// The largest number of positions that the configuration allows, if distances have vectors.
    n_positions: Option<usize>,
}

impl<'a> Conformer<'a> {
    /// Reads it; `n_heard` is the largest number of positions that a sound can have.
    ///
    /// # Errors
    /// When a value of the configuration is impossible or not read.
    pub fn read(
        reader: &mut Reader<'_>,
        tensors: &'a Tensors,
        [d_model, d_mlp, n_heads]: [usize; 3],
        activation: Activation,
        n_heard: usize,
    ) -> Result<Self> {
        const WIDE: &str = "conv_depthwise_kernel_size";
        let default = |key: &str| Origin::Default(key.to_owned());
        let n_wide = reader.size_or("convolution_width", WIDE, 31, default(WIDE))?;
        if n_wide.is_multiple_of(2) {
            let problem = format!("expected an odd number, found {n_wide}");
            return Err(Error::config(reader.path(), WIDE, problem));
        }
        const KIND: &str = "position_embeddings_type";
        // Nothing stated is the default; null is no positions.
        let has_none = reader.is_null(KIND);
        let kind = match reader.value(KIND) {
            _ if has_none => None,
            Some(value) => Some(value.as_str().unwrap_or_default().to_owned()),
            None => Some("relative".to_owned()),
        };
        let n_positions = match kind.as_deref() {
            None => None,
            Some("relative") => {
                const MOST: &str = "max_source_positions";
                note_bias(reader, "sines of the distance, mapped by each layer");
                Some(reader.size_or("n_positions", MOST, N_POSITIONS, default(MOST))?)
            }
            Some(other) => {
                let problem = format!(
                    "expected \"relative\" or null: rotations of what the maps read are not read, found {other:?}"
                );
                return Err(Error::config(reader.path(), KIND, problem));
            }
        };
        Ok(Self {
            tensors,
            d_model,
            d_mlp,
            n_heads,
            d_head: even_heads(reader, "num_attention_heads", d_model, n_heads)?,
            n_wide,
            activation,
            // Vectors of distances that no sound has would only take memory.
            span: n_positions.map(|n| n.min(n_heard)),
            n_positions,
        })
    }

    /// The largest number of positions, if distances have vectors.
    pub fn n_positions(&self) -> Option<usize> {
        self.n_positions
    }

    pub fn attention(&self) -> AttentionSpec {
        let bias = self.span.map(|span| {
            Bias::Relative(Relative {
                span,
                log_until: None,
            })
        });
        AttentionSpec {
            bias: bias.unwrap_or(Bias::None),
            ..AttentionSpec::plain(self.n_heads, self.n_heads, self.d_head, false)
        }
    }

    /// The block whose tensors begin with `at`.
    pub fn block(&self, at: &str) -> BlockSpec {
        let d_model = self.d_model;
        let norm = |name: &str| layer_norm(self.tensors, &format!("{at}.{name}"), d_model, EPS);
        let before = self.mlp(&format!("{at}.ffn1"));
        let after = self.mlp(&format!("{at}.ffn2"));
        let conformer = ConformerSpec {
            before_norm: norm("ffn1_layer_norm"),
            before,
            before_scale: HALF,
            convolution: self
                .convolution(&format!("{at}.conv_module"), norm("conv_module.layer_norm")),
        };
        BlockSpec {
            attn_pre: Some(norm("self_attn_layer_norm")),
            mlp_pre: Some(norm("ffn2_layer_norm")),
            mlp_post: Some(norm("final_layer_norm")),
            branch_scales: [1.0, HALF],
            conformer: Some(Box::new(conformer)),
            ..BlockSpec::plain(
                self.attention(),
                self.projections(&format!("{at}.self_attn")),
                FeedForward::Dense(Box::new(after)),
            )
        }
    }

    fn mlp(&self, at: &str) -> MlpSpec {
        MlpSpec::plain(
            linear(
                &format!("{at}.intermediate_dense"),
                self.d_model,
                self.d_mlp,
                true,
            ),
            linear(
                &format!("{at}.output_dense"),
                self.d_mlp,
                self.d_model,
                true,
            ),
            self.activation,
        )
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let d = self.d_model;
        let map = |name: &str, has_bias| linear(&format!("{at}.{name}"), d, d, has_bias);
        let [q, k, v, o] =
            ["linear_q", "linear_k", "linear_v", "linear_out"].map(|name| map(name, true));
        let Some(span) = self.span else {
            return ProjectionSpec::plain(q, k, v, o);
        };
        let of_keys = format!("{at}.pos_bias_u");
        let q = q.also_adding(of_keys.clone(), vec![self.n_heads, self.d_head]);
        let relative = RelativeSource {
            embeddings: DistanceRows::Sines {
                n_rows: 2 * span,
                width: d,
                order: Sines::Interleaved,
            },
            norm: None,
            key: Some(map("linear_pos", false)),
            query: None,
            biases: Some(QueryBiases {
                of_keys,
                of_distances: format!("{at}.pos_bias_v"),
                n_heads: self.n_heads,
                d_head: self.d_head,
            }),
        };
        ProjectionSpec {
            relative: Some(Box::new(relative)),
            ..ProjectionSpec::plain(q, k, v, o)
        }
    }

    fn convolution(&self, at: &str, pre: NormSource) -> ConvolutionModule {
        let d = self.d_model;
        let pointwise =
            |name: &str, n_out| linear(&format!("{at}.{name}"), d, n_out, false).in_groups(1);
        let stored = ["weight", "bias", "running_mean", "running_var"];
        ConvolutionModule {
            pre,
            expand: pointwise("pointwise_conv1", 2 * d),
            kernel: format!("{at}.depthwise_conv.weight"),
            kernel_bias: None,
            n_channels: d,
            n_wide: self.n_wide,
            n_before: self.n_wide / 2,
            norm: ChannelNorm::Stored {
                tensors: stored.map(|name| format!("{at}.batch_norm.{name}")),
                eps: EPS,
            },
            activation: self.activation,
            out: pointwise("pointwise_conv2", d),
        }
    }
}
