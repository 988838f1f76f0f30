//! Gemma 4's encoder of sound: a Conformer with norms around each branch, where a frame sees itself and some frames before it. A softcap
//! bounds the sum of what keys and distances give. The convolutions before it are not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Bias, Mask, Relative, Scale, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, ChannelNorm, ConformerSpec, ConvolutionModule, DistanceRows, FactorsHeld,
    FeedForward, LinearSource, MlpSpec, ModelSpec, NormSource, ProjectionSpec, RelativeSource,
    Sines,
};

use super::Family;
use super::reading::{
    activation, even_heads, given_rows, linear, note_attention, note_bias, prefix, rms_norm,
};
use super::timesfm::query_factors;

pub const FAMILY: Family = Family::own("gemma4_audio", "Gemma4Audio", read).leaving_unread(&[
    "input_max",
    "input_min",
    "output_max",
    "output_min",
    "subsample_conv_projection.*",
]);

/// The epsilon of norms whose epsilon no configuration states.
const EPS: f64 = 1e-6;

/// Values that are cut off at this size or beyond are taken as they are: no healthy model has any.
const CUT_OFF: f64 = 1e8;

/// How encoders of this kind differ.
pub(super) struct Like {
    pub bases: &'static [&'static str],
    /// Stands before the keys of blocks.
    pub keys: &'static str,
    pub names: Names,
    /// Whether the model's convolution and positions are those of Gemma 4: keys have a factor, and windows end one frame earlier.
    pub is_fourth: bool,
}

/// Names of tensors behind that of a block.
pub(super) struct Names {
    pub blocks: &'static str,
    /// The feed-forward layers before attention and behind the convolution.
    pub layers: [&'static str; 2],
    /// Norms before attention, of its output, and at the end.
    pub norms: [&'static str; 3],
    pub attention: &'static str,
    pub o: &'static str,
    /// The map of distances.
    pub distances: &'static str,
    /// Stands behind the names of maps.
    pub map: &'static str,
}

const LIKE: Like = Like {
    bases: &["", "audio_tower.", "model.audio_tower."],
    keys: "",
    names: Names {
        blocks: "layers",
        layers: ["feed_forward1", "feed_forward2"],
        norms: ["norm_pre_attn", "norm_post_attn", "norm_out"],
        attention: "self_attn",
        o: "self_attn.post",
        distances: "self_attn.relative_k_proj",
        map: ".linear",
    },
    is_fourth: true,
};

/// A block's sizes.
struct Block<'a> {
    names: &'a Names,
    d_model: usize,
    n_wide: usize,
    eps: f64,
    activation: Activation,
    /// The share of a feed-forward layer's output that is added to the residual.
    share: f32,
    key_factor: f32,
    attention: AttentionSpec,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const OUT: &str = "output_proj_dims";
    const INVALID: &str = "attention_invalid_logits_value";
    reader.value("subsampling_conv_channels");
    let hidden = reader.number_or("masked_score", INVALID, -1e9)?;
    if hidden > -1e4 {
        let problem = format!("expected at most -1e4, which hides a key, found {hidden}");
        return Err(Error::config(reader.path(), INVALID, problem));
    }
    let act = activation(reader, "hidden_act", "silu")?;
    let n_out = reader.size_or("d_out", OUT, 1536, Origin::Default(OUT.to_owned()))?;
    let (mut spec, base) = read_like(FAMILY.model_type, checkpoint, reader, LIKE, act)?;
    if reader.flag_or("clips_maps", "use_clipped_linears", true)? {
        refuse_bounds(&checkpoint.tensors, base)?;
    }
    let map = linear(&format!("{base}output_proj"), spec.d_model, n_out, true);
    spec.stacks[0].last_map = Some(map);
    Ok(spec)
}

/// Refuses bounds of what maps read and give: they are not applied.
fn refuse_bounds(tensors: &Tensors, base: &str) -> Result<()> {
    const BOUNDS: [&str; 4] = [".input_min", ".input_max", ".output_min", ".output_max"];
    let of_blocks = format!("{base}layers.");
    for (name, info) in tensors.iter() {
        let is_bound = BOUNDS.iter().any(|bound| name.ends_with(bound));
        if !is_bound || !name.starts_with(&of_blocks) {
            continue;
        }
        let found = tensors.expect(name, &info.shape)?.widen()?;
        if let Some(found) = found.iter().find(|bound| bound.is_finite()) {
            let problem = format!("expected no bound: clipped maps are not read, found {found}");
            return Err(Error::tensor(tensors.file_of(name), name, problem));
        }
    }
    Ok(())
}

/// Reads the blocks, over rows that convolutions make; returns the prefix of their names too.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_like(
    model_type: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: Like,
    activation: Activation,
) -> Result<(ModelSpec, &'static str)> {
    const CUT: &str = "gradient_clipping";
    let key = |name: &str| format!("{}{name}", like.keys);
    let heads = key("num_attention_heads");
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_layers = reader.layers(&key("num_hidden_layers"))?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let n_heads = reader.size_or("n_heads", &heads, 8, default(&heads))?;
    let d_head = even_heads(reader, &heads, d_model, n_heads)?;
    let wide = key("conv_kernel_size");
    let n_wide = reader.size_or("convolution_width", &wide, 5, default(&wide))?;
    let eps = reader.number_or("norm_eps", "rms_norm_eps", EPS)?;
    let share = reader.number_or("mlp_share", &key("residual_weight"), 0.5)?;
    let cap = reader.number_or("softcap", &key("attention_logit_cap"), 50.0)?;
    let cut = reader.number_or("residual_bound", CUT, 1e10)?;
    if cut < CUT_OFF {
        let problem = format!("expected at least {CUT_OFF:e}: values are not cut off, found {cut}");
        return Err(Error::config(reader.path(), CUT, problem));
    }
    let (window, span) = window(reader, &like)?;
    let plain = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    let attention = AttentionSpec {
        scale: Scale::One,
        softcap: Some(cap as f32),
        caps_bias: true,
        bias: Bias::Relative(Relative {
            span,
            log_until: None,
        }),
        mask: Mask {
            window: Some(window),
            ..plain.mask
        },
        ..plain
    };
    note_attention(reader, &attention, Origin::Family);
    note_bias(reader, "sines of the distance, mapped by each layer");
    reader.note(
        "query_factors",
        "the softplus of stored values, for each dimension of a head",
        Origin::Family,
    );
    given_rows::remark(reader, "its convolutions over frames and mel bands");
    let key_factor = if like.is_fourth {
        (std::f64::consts::E.ln_1p() * std::f64::consts::LOG2_E) as f32
    } else {
        1.0
    };
    let block = Block {
        names: &like.names,
        d_model,
        n_wide,
        eps,
        activation,
        share: share as f32,
        key_factor,
        attention,
    };
    let [first, ..] = like.names.norms;
    let probe = format!("{}.0.{first}.weight", like.names.blocks);
    let base = prefix(&checkpoint.tensors, like.bases, &probe);
    let at = format!("{base}{}", like.names.blocks);
    let blocks = (0..n_layers)
        .map(|layer_idx| block.read(&format!("{at}.{layer_idx}")))
        .collect();
    let first = (format!("{base}{probe}"), d_model);
    Ok((given_rows::model(model_type, first, blocks, None), base))
}

/// What a frame sees, and the number of distances to either side.
fn window(reader: &mut Reader<'_>, like: &Like) -> Result<(Window, usize)> {
    let key = |name: &str| format!("{}attention_{name}", like.keys);
    let (chunk, left, right) = (key("chunk_size"), key("context_left"), key("context_right"));
    let usual = Origin::Default(chunk.clone());
    let n_chunk = reader.size_or("chunk", &chunk, 12, usual)?;
    let n_left = reader.count_or("frames_back", &left, 13)?.max(1);
    let n_right = reader.count_or("frames_ahead", &right, 0)?;
    let farthest = n_left - 1;
    if !like.is_fourth {
        let window = Window::Uneven {
            back: farthest,
            ahead: n_right,
        };
        return Ok((window, farthest.max(n_right) + 1));
    }
    // The vectors of distances begin at half of what a chunk sees, whatever distance that is.
    if n_right > 1 || (n_chunk + farthest + n_right) / 2 != farthest {
        let problem = format!(
            "expected {farthest} or {n_left}, so that vectors of distances begin at the farthest, and nothing ahead; found {n_chunk}, and {n_right} ahead"
        );
        return Err(Error::config(reader.path(), &chunk, problem));
    }
    let back = farthest.checked_sub(1).ok_or_else(|| {
        let problem = format!("expected at least 2, found {n_left}: a frame would see none");
        Error::config(reader.path(), &left, problem)
    })?;
    Ok((Window::Uneven { back, ahead: 0 }, farthest + 1))
}

impl Block<'_> {
    fn read(&self, at: &str) -> BlockSpec {
        let named = |name: &str, eps| rms_norm(format!("{at}.{name}.weight"), self.d_model, eps);
        let [before, after] = self.names.layers;
        let norm = |layer: &str, place: &str| named(&format!("{layer}.{place}_layer_norm"), EPS);
        let [attn_pre, attn_out, mlp_post] = self.names.norms.map(|name| Some(named(name, EPS)));
        let conformer = ConformerSpec {
            guess: None,
            before_norm: Some(norm(before, "pre")),
            before: self.mlp(&format!("{at}.{before}")),
            before_out: Some(norm(before, "post")),
            before_scale: self.share,
            before_factor: 1.0,
            before_post: None,
            last: None,
            convolution: Some(self.convolution(
                &format!("{at}.lconv1d"),
                ["lconv1d.pre_layer_norm", "lconv1d.conv_norm"].map(|name| named(name, self.eps)),
            )),
        };
        BlockSpec {
            attn_pre,
            attn_out,
            mlp_pre: Some(norm(after, "pre")),
            mlp_out: Some(norm(after, "post")),
            mlp_post,
            branch_scales: [1.0, self.share],
            conformer: Some(Box::new(conformer)),
            ..BlockSpec::plain(
                self.attention.clone(),
                self.projections(at),
                FeedForward::Dense(Box::new(self.mlp(&format!("{at}.{after}")))),
            )
        }
    }

    /// A map without a bias.
    fn map(&self, name: &str, n_in: usize, n_out: usize) -> LinearSource {
        linear(&format!("{name}{}", self.names.map), n_in, n_out, false)
    }

    fn mlp(&self, at: &str) -> MlpSpec {
        let (d, d_mlp) = (self.d_model, 4 * self.d_model);
        let up = self.map(&format!("{at}.ffw_layer_1"), d, d_mlp);
        let down = self.map(&format!("{at}.ffw_layer_2"), d_mlp, d);
        MlpSpec::plain(up, down, self.activation)
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let (d, own) = (self.d_model, &self.attention);
        let of = format!("{at}.{}", self.names.attention);
        let [mut q, k, v] =
            ["q_proj", "k_proj", "v_proj"].map(|name| self.map(&format!("{of}.{name}"), d, d));
        let held = FactorsHeld::OfHead(own.n_heads);
        q.factors = Some(query_factors(
            format!("{of}.per_dim_scale"),
            held,
            own.d_head,
        ));
        let o = self.map(&format!("{at}.{}", self.names.o), d, d);
        let Bias::Relative(Relative { span, .. }) = own.bias else {
            return ProjectionSpec::plain(q, k, v, o);
        };
        let distances = linear(&format!("{at}.{}", self.names.distances), d, d, false);
        let relative = RelativeSource {
            key: Some(distances),
            ..RelativeSource::plain(DistanceRows::Sines {
                n_rows: 2 * span,
                width: d,
                order: Sines::HalvesToEnd,
            })
        };
        ProjectionSpec {
            relative: Some(Box::new(relative)),
            ..ProjectionSpec::plain(q, k.scaled(1.0, self.key_factor), v, o)
        }
    }

    fn convolution(&self, at: &str, [pre, norm]: [NormSource; 2]) -> ConvolutionModule {
        let d = self.d_model;
        ConvolutionModule {
            pre: Some(pre),
            expand: self.map(&format!("{at}.linear_start"), d, 2 * d),
            gate_biases: None,
            gate: Activation::Sigmoid,
            kernel: format!("{at}.depthwise_conv1d.weight"),
            kernel_bias: None,
            n_channels: d,
            n_wide: self.n_wide,
            n_before: self.n_wide - 1,
            mixed: None,
            norm: ChannelNorm::Row(norm),
            activation: self.activation,
            out: self.map(&format!("{at}.linear_end"), d, d),
            scale: 1.0,
            resid_factor: 1.0,
            post: None,
        }
    }
}
