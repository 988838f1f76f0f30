//! The blocks of a Conformer: names of tensors, and what positions do to scores.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Bias, Mask, Relative, RopeSpec, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, ChannelNorm, ConformerSpec, ConvolutionModule, DistanceRows, FeedForward,
    LinearSource, MlpSpec, NormSource, ProjectionSpec, QueryBiases, RelativeSource, Sines,
    TableSource,
};

use super::{even_heads, layer_norm, linear, note_bias};

/// Epsilon of the norms of blocks, where no configuration states it.
pub const EPS: f64 = 1e-5;

/// The share of a feed-forward layer's output that is added to the residual.
pub const HALF: f32 = 0.5;

/// The usual largest number of positions.
const N_POSITIONS: usize = 5000;

/// Names of a block's tensors, behind that of the block.
#[derive(Debug, Clone, Copy)]
pub struct ConformerNames {
    /// The feed-forward layers before attention and behind the convolution, and the two maps of each.
    pub layers: [&'static str; 2],
    pub maps: [&'static str; 2],
    /// Norms before the first layer, attention, the convolution and the second layer, and at the end.
    pub norms: [&'static str; 5],
    /// Queries, keys, values, output, and what makes keys of distances.
    pub projections: [&'static str; 5],
    /// What queries add where they meet keys, and distances.
    pub biases: [&'static str; 2],
    pub convolution: &'static str,
    pub channel_norm: &'static str,
}

impl ConformerNames {
    /// As wav2vec 2.0 has them.
    pub const WAVE: Self = Self {
        layers: ["ffn1", "ffn2"],
        maps: ["intermediate_dense", "output_dense"],
        norms: [
            "ffn1_layer_norm",
            "self_attn_layer_norm",
            "conv_module.layer_norm",
            "ffn2_layer_norm",
            "final_layer_norm",
        ],
        projections: [
            "linear_q",
            "linear_k",
            "linear_v",
            "linear_out",
            "linear_pos",
        ],
        biases: ["pos_bias_u", "pos_bias_v"],
        convolution: "conv_module",
        channel_norm: "batch_norm",
    };

    /// As wav2vec2-BERT has them.
    pub const BERT: Self = Self {
        channel_norm: "depthwise_layer_norm",
        ..Self::WAVE
    };

    /// As FastSpeech 2 has them.
    pub const TALKING: Self = Self {
        layers: ["feed_forward_macaron", "feed_forward"],
        maps: ["conv1", "conv2"],
        norms: [
            "ff_macaron_layer_norm",
            "self_attn_layer_norm",
            "conv_layer_norm",
            "ff_layer_norm",
            "final_layer_norm",
        ],
        channel_norm: "norm",
        ..Self::WAVE
    };

    /// As Parakeet has them.
    pub const FAST: Self = Self {
        layers: ["feed_forward1", "feed_forward2"],
        maps: ["linear1", "linear2"],
        norms: [
            "norm_feed_forward1",
            "norm_self_att",
            "norm_conv",
            "norm_feed_forward2",
            "norm_out",
        ],
        projections: ["q_proj", "k_proj", "v_proj", "o_proj", "relative_k_proj"],
        biases: ["bias_u", "bias_v"],
        convolution: "conv",
        channel_norm: "norm",
    };
}

/// What distances between positions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distances {
    None,
    /// Sines, mapped by each layer: so many to either side.
    Sines(usize),
    /// Learned vectors of all heads, of keys so many positions before a query and so many after it.
    Stored([usize; 2]),
}

/// The blocks of a Conformer.
pub struct Conformer<'a> {
    pub tensors: &'a Tensors,
    pub names: ConformerNames,
    pub d_model: usize,
    pub d_mlp: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub d_head: usize,
    pub n_wide: usize,
    /// Set if the maps of feed-forward layers are convolutions over this many positions.
    pub mlp_wide: Option<usize>,
    /// Earlier positions that the convolution covers.
    pub n_before: usize,
    pub activation: Activation,
    pub eps: f64,
    pub norms_have_bias: bool,
    /// Whether the maps of attention and feed-forward layers have biases.
    pub has_bias: bool,
    /// Whether those of the convolution have.
    pub convolution_has_bias: bool,
    /// Whether the norm behind the convolution is of each row, and not of each channel by stored values.
    pub norms_rows: bool,
    /// Factors of the residual and of what feed-forward layers add to it.
    pub layer_factors: [f32; 2],
    /// The same of the convolution.
    pub convolution_factors: [f32; 2],
    pub distances: Distances,
    pub rope: Option<RopeSpec>,
    pub window: Option<Window>,
    /// The largest number of positions that the configuration allows, if distances have vectors.
    pub n_positions: Option<usize>,
}

impl<'a> Conformer<'a> {
    /// Reads that of wav2vec 2.0; `n_heard` is the largest number of positions that a sound can have.
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
            names: ConformerNames::WAVE,
            d_model,
            d_mlp,
            n_heads,
            n_kv_heads: n_heads,
            d_head: even_heads(reader, "num_attention_heads", d_model, n_heads)?,
            n_wide,
            mlp_wide: None,
            n_before: n_wide / 2,
            activation,
            eps: EPS,
            norms_have_bias: true,
            has_bias: true,
            convolution_has_bias: false,
            norms_rows: false,
            layer_factors: [1.0, HALF],
            convolution_factors: [1.0; 2],
            rope: None,
            window: None,
            // Vectors of distances that no sound has would only take memory.
            distances: n_positions.map_or(Distances::None, |n| Distances::Sines(n.min(n_heard))),
            n_positions,
        })
    }

    /// The largest number of positions, if distances have vectors.
    pub fn n_positions(&self) -> Option<usize> {
        self.n_positions
    }

    /// The number of distances to either side; `None` if distances have no vectors.
    fn span(&self) -> Option<usize> {
        match self.distances {
            Distances::None => None,
            Distances::Sines(span) => Some(span),
            Distances::Stored([before, after]) => Some(before.max(after) + 1),
        }
    }

    pub fn attention(&self) -> AttentionSpec {
        let bias = self.span().map(|span| {
            Bias::Relative(Relative {
                span,
                log_until: None,
            })
        });
        let plain = AttentionSpec::plain(self.n_heads, self.n_kv_heads, self.d_head, false);
        AttentionSpec {
            bias: bias.unwrap_or(Bias::None),
            rope: self.rope.clone(),
            mask: Mask {
                window: self.window,
                ..plain.mask
            },
            ..plain
        }
    }

    /// The block whose tensors begin with `at`.
    pub fn block(&self, at: &str) -> BlockSpec {
        let norm = |name: &str| {
            let norm = layer_norm(
                self.tensors,
                &format!("{at}.{name}"),
                self.d_model,
                self.eps,
            );
            NormSource {
                bias: norm.bias.filter(|_| self.norms_have_bias),
                ..norm
            }
        };
        let [before_norm, attn_pre, convolution_pre, mlp_pre, mlp_post] =
            self.names.norms.map(norm);
        let [before, after] = self
            .names
            .layers
            .map(|name| self.mlp(&format!("{at}.{name}")));
        let [factor, scale] = self.layer_factors;
        let conformer = ConformerSpec {
            guess: None,
            before_norm: Some(before_norm),
            before,
            before_out: None,
            before_scale: scale,
            before_factor: factor,
            before_post: None,
            last: None,
            convolution: Some(
                self.convolution(&format!("{at}.{}", self.names.convolution), convolution_pre),
            ),
        };
        BlockSpec {
            attn_pre: Some(attn_pre),
            mlp_pre: Some(mlp_pre),
            mlp_post: Some(mlp_post),
            branch_scales: [1.0, scale],
            resid_factors: [1.0, factor],
            conformer: Some(Box::new(conformer)),
            ..BlockSpec::plain(
                self.attention(),
                self.projections(&format!("{at}.self_attn")),
                FeedForward::Dense(Box::new(after)),
            )
        }
    }

    fn mlp(&self, at: &str) -> MlpSpec {
        let [up, down] = self.names.maps;
        let map = |name: &str, n_in, n_out| {
            let plain = linear(&format!("{at}.{name}"), n_in, n_out, self.has_bias);
            match self.mlp_wide {
                Some(n_wide) => {
                    LinearSource::of_rows(plain.weight, plain.bias, [n_in, n_wide], n_out)
                }
                None => plain,
            }
        };
        MlpSpec::plain(
            map(up, self.d_model, self.d_mlp),
            map(down, self.d_mlp, self.d_model),
            self.activation,
        )
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let [d_q, d_kv] = [self.n_heads, self.n_kv_heads].map(|n| n * self.d_head);
        let map = |name: &str, n_in, n_out, has_bias| {
            linear(&format!("{at}.{name}"), n_in, n_out, has_bias)
        };
        let [of_q, of_k, of_v, of_o, of_distances] = self.names.projections;
        let d = self.d_model;
        let [q, k, v] = [(of_q, d_q), (of_k, d_kv), (of_v, d_kv)]
            .map(|(name, n_out)| map(name, d, n_out, self.has_bias));
        let o = map(of_o, d_q, d, self.has_bias);
        let span = match (self.distances, self.span()) {
            (Distances::Sines(span), _) => span,
            (Distances::Stored([before, after]), Some(span)) => {
                let relative = RelativeSource::plain(DistanceRows::Shared {
                    table: TableSource {
                        tensor: format!("{at}.distance_embedding.weight"),
                        n_rows: before + after + 1,
                        width: self.d_head,
                    },
                    n_heads: self.n_heads,
                    middle: before,
                    is_reversed: true,
                    limits: false,
                    span,
                });
                return ProjectionSpec {
                    relative: Some(Box::new(relative)),
                    ..ProjectionSpec::plain(q, k, v, o)
                };
            }
            _ => return ProjectionSpec::plain(q, k, v, o),
        };
        let [of_keys, instead] = self.names.biases.map(|name| format!("{at}.{name}"));
        let shape = vec![self.n_heads, self.d_head];
        let relative = RelativeSource {
            embeddings: DistanceRows::Sines {
                n_rows: 2 * span,
                width: d,
                order: Sines::Interleaved,
            },
            norm: None,
            key: Some(map(of_distances, d, d_q, false)),
            query: None,
            biases: Some(QueryBiases {
                of_keys: Some(of_keys.clone()),
                of_distances: instead,
                n_heads: self.n_heads,
                d_head: self.d_head,
            }),
        };
        ProjectionSpec {
            relative: Some(Box::new(relative)),
            ..ProjectionSpec::plain(q.also_adding(of_keys, shape), k, v, o)
        }
    }

    fn convolution(&self, at: &str, pre: NormSource) -> ConvolutionModule {
        let d = self.d_model;
        let pointwise = |name: &str, n_out| -> LinearSource {
            linear(&format!("{at}.{name}"), d, n_out, self.convolution_has_bias).in_groups(1)
        };
        let norm = format!("{at}.{}", self.names.channel_norm);
        let stored = ["weight", "bias", "running_mean", "running_var"];
        let [factor, scale] = self.convolution_factors;
        ConvolutionModule {
            pre: Some(pre),
            expand: pointwise("pointwise_conv1", 2 * d),
            gate_biases: None,
            gate: Activation::Sigmoid,
            kernel: format!("{at}.depthwise_conv.weight"),
            kernel_bias: self
                .convolution_has_bias
                .then(|| format!("{at}.depthwise_conv.bias")),
            n_channels: d,
            n_wide: self.n_wide,
            n_before: self.n_before,
            mixed: None,
            norm: if self.norms_rows {
                ChannelNorm::Row(layer_norm(self.tensors, &norm, d, self.eps))
            } else {
                ChannelNorm::Stored {
                    tensors: stored.map(|name| format!("{norm}.{name}")),
                    eps: EPS,
                }
            },
            activation: self.activation,
            out: pointwise("pointwise_conv2", d),
            scale,
            resid_factor: factor,
            post: None,
        }
    }
}
