//! Encoders of sound that hear samples: convolutions, positions from the rows around each, and blocks of one shape.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Bias, Buckets};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::{MOST_CONVOLUTIONS, Mel, Silence, SoundRule, Steps, Waves};
use attnscope_spec::{
    BiasGate, BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec,
    ProjectionSpec, ShareGate, SoundStem, StackSpec, StemConvolution, StemEnd, StemNorm,
    TableSource,
};
use serde_json::Value;

use super::conformer::Conformer;
use super::deberta_like::{self, DebertaLike};
use super::extractor::{Extractor, FASTEST, MOST_SAMPLES};
use super::tasks::refuse_classes;
use super::wave_positions::positions;
use super::{
    activation, activation_named, even_heads, layer_norm, linear, must_be_off,
    norm_before_or_after, note_attention, note_bias, prefix_of_encoder,
};

/// How a family of this kind differs from wav2vec 2.0.
#[derive(Debug, Clone, Copy)]
pub struct WaveLike {
    pub bases: &'static [&'static str],
    /// A switch; if it is off, rows are not normalised before they are mapped to the width of the residual.
    pub norm_if: Option<&'static str>,
    pub names: WaveNames,
    pub shape: WaveShape,
}

/// Names of tensors that families spell in two ways, behind the base.
#[derive(Debug, Clone, Copy)]
pub struct WaveNames {
    pub convolutions: &'static str,
    pub feature_norm: &'static str,
    pub projection: &'static str,
    pub encoder: &'static str,
    pub positions: &'static str,
}

/// What the rows of a sound pass through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaveShape {
    /// One convolution over the rows around each, stored by length and direction; blocks of attention and a feed-forward layer.
    Usual,
    /// Several convolutions over the rows around each, with norms that store nothing.
    ManyPositions,
    /// One convolution, stored whole; norms before the branches of blocks, whose activation is that of the convolutions too.
    Plain,
    /// The usual, with a bias by distance that each layer multiplies by what a query's position holds.
    GatedBias,
    /// The usual, where the mean of a few rows becomes one.
    Squeezed,
    /// The same, with DeBERTa's blocks.
    SqueezedDeberta,
    /// The blocks of a Conformer.
    Conformer,
}

impl WaveShape {
    /// Whether the mean of a few rows becomes one.
    fn is_squeezed(self) -> bool {
        matches!(self, Self::Squeezed | Self::SqueezedDeberta)
    }
}

impl WaveLike {
    /// wav2vec 2.0, under the name of a family.
    pub const fn usual(bases: &'static [&'static str]) -> Self {
        Self {
            bases,
            norm_if: None,
            names: WaveNames {
                convolutions: "feature_extractor.conv_layers",
                feature_norm: "feature_projection.layer_norm",
                projection: "feature_projection.projection",
                encoder: "encoder.",
                positions: "encoder.pos_conv_embed",
            },
            shape: WaveShape::Usual,
        }
    }
}

/// DeBERTa's second version, as it stands behind convolutions.
const DISENTANGLED: DebertaLike = DebertaLike {
    family: "sew-d",
    is_fused: false,
    is_second: true,
    maps: ["pos_key_proj", "pos_query_proj"],
};

/// Epsilon of the norms of convolutions; no configuration states it.
pub(super) const EPS: f64 = 1e-5;

/// Samples of silence before and behind every sound, of an encoder beside a codec.
pub const SILENCE: &str = "silence_around";

/// Where such a codec keeps the encoder.
pub const BESIDE_CODEC: &str = "semantic_model.";

/// Outputs of the map of a bias's gate.
const N_GATES: usize = 8;

/// Channels, widths and strides of the convolutions, if the configuration does not state them.
const DEFAULTS: [(&str, [u64; 7]); 3] = [
    ("conv_dim", [512; 7]),
    ("conv_kernel", [10, 3, 3, 3, 3, 2, 2]),
    ("conv_stride", [5, 2, 2, 2, 2, 2, 2]),
];

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: WaveLike,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    refuse_classes(
        reader,
        &["ForSequenceClassification"],
        "a class that hears, such as one for CTC",
        "maps the mean of its states, which is not read",
    )?;
    must_be_off(
        reader,
        "add_adapter",
        "layers behind the encoder are not read",
    )?;
    must_be_off(
        reader,
        "conv_pos_batch_norm",
        "positions from normed rows are not read",
    )?;
    const OWN_LAYERS: &str = "adapter_attn_dim";
    if let Some(found) = reader.value(OWN_LAYERS).filter(|value| !value.is_null()) {
        let problem = format!("expected null: layers of a language are not read, found {found}");
        return Err(Error::config(reader.path(), OWN_LAYERS, problem));
    }
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let is_deberta = like.shape == WaveShape::SqueezedDeberta;
    let usual = if is_deberta { 1e-7 } else { EPS };
    let eps = reader.number_or("norm_eps", "layer_norm_eps", usual)?;
    let eps_of_features = if is_deberta {
        reader.number_or("features_norm_eps", "feature_layer_norm_eps", EPS)?
    } else {
        eps
    };
    let activation = activation(reader, "hidden_act", "gelu")?;
    let is_pre_norm = match like.shape {
        WaveShape::Usual | WaveShape::GatedBias => {
            reader.flag_or("norms_before", "do_stable_layer_norm", false)?
        }
        WaveShape::ManyPositions | WaveShape::Squeezed | WaveShape::SqueezedDeberta => false,
        WaveShape::Plain | WaveShape::Conformer => true,
    };
    // Not the norm of features: some have none.
    let probe = format!("{}.0.conv.weight", like.names.convolutions);
    let base = prefix_of_encoder(tensors, like.bases, &probe);
    let of_stem = (d_model, eps_of_features);
    let mut stem = stem(checkpoint, reader, (base, like), of_stem, activation)?;
    let encoder = like.names.encoder;
    let conformer = if like.shape == WaveShape::Conformer {
        let sizes = [d_model, d_mlp, n_heads];
        let n_heard = stem.rule.n_positions();
        let read = Conformer::read(reader, tensors, sizes, activation, n_heard);
        Some(read?)
    } else {
        None
    };
    let deberta = if is_deberta {
        let n_rows = reader.size("n_positions", "max_position_embeddings")?;
        let sizes = [d_model, d_mlp, n_heads, n_rows];
        let place = (tensors, format!("{base}{encoder}encoder."));
        let read =
            deberta_like::Blocks::read(reader, place, DISENTANGLED, sizes, (activation, eps));
        Some(read?)
    } else {
        None
    };
    let buckets = match like.shape {
        WaveShape::GatedBias => Some(buckets(reader)?),
        _ => None,
    };
    let attention = match (&conformer, buckets) {
        (Some(conformer), _) => conformer.attention(),
        (None, _) if deberta.is_some() => {
            let plain = AttentionSpec::plain(n_heads, n_heads, d_head, false);
            deberta
                .as_ref()
                .map_or(plain, |blocks| blocks.attention.clone())
        }
        (None, buckets) => AttentionSpec {
            bias: buckets.map_or(Bias::None, Bias::Buckets),
            ..AttentionSpec::plain(n_heads, n_heads, d_head, false)
        },
    };
    if !is_deberta {
        note_attention(reader, &attention, Origin::Family);
    }
    if let Some(n_positions) = conformer.as_ref().and_then(Conformer::n_positions) {
        let n_frames = n_positions.saturating_mul(stem.rule.frames_per_position);
        stem.rule.n_frames = stem.rule.n_frames.min(n_frames);
    }
    let norm = |name: &str| layer_norm(tensors, &format!("{base}{encoder}{name}"), d_model, eps);
    let block = |layer_idx: usize| {
        let at = format!("layers.{layer_idx}");
        if let Some(blocks) = &deberta {
            return blocks.block(layer_idx);
        }
        if let Some(conformer) = &conformer {
            return conformer.block(&format!("{base}{encoder}{at}"));
        }
        let map = |name: &str, n_in, n_out| {
            linear(&format!("{base}{encoder}{at}.{name}"), n_in, n_out, true)
        };
        let one = |name: &str| map(&format!("attention.{name}"), d_model, d_model);
        let gate = || ShareGate {
            map: map("attention.gru_rel_pos_linear", d_head, N_GATES),
            scales: format!("{base}{encoder}{at}.attention.gru_rel_pos_const"),
            n_heads,
        };
        let projections = ProjectionSpec {
            bias_gate: buckets.map(|_| Box::new(BiasGate::Shares(gate()))),
            ..ProjectionSpec::plain(one("q_proj"), one("k_proj"), one("v_proj"), one("out_proj"))
        };
        let mlp = MlpSpec::plain(
            map("feed_forward.intermediate_dense", d_model, d_mlp),
            map("feed_forward.output_dense", d_mlp, d_model),
            activation,
        );
        let placed = |name: &str| norm_before_or_after(norm(&format!("{at}.{name}")), is_pre_norm);
        let (attn_pre, attn_post) = placed("layer_norm");
        let (mlp_pre, mlp_post) = placed("final_layer_norm");
        BlockSpec {
            attn_pre,
            attn_post,
            mlp_pre,
            mlp_post,
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    // The norm behind the positions, or behind the last block.
    let (last, first) = if is_deberta {
        (None, None)
    } else {
        norm_before_or_after(norm("layer_norm"), is_pre_norm)
    };
    let places = TableSource {
        tensor: stem.convolutions[0].weight.clone(),
        n_rows: stem.rule.n_positions(),
        width: d_model,
    };
    let embed = EmbedSpec {
        sound: Some(Box::new(stem)),
        norm: first,
        ..EmbedSpec::plain(places)
    };
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec {
        bucket_values: buckets.map(|buckets| TableSource {
            tensor: format!("{base}{encoder}layers.0.attention.rel_attn_embed.weight"),
            n_rows: buckets.n_buckets,
            width: n_heads,
        }),
        ..StackSpec::only(embed, blocks, last)
    };
    let head = if like.shape.is_squeezed() {
        let said = "the rows are those of the last block: what widens them again, and the head behind it, are not read";
        reader.remark(said.to_owned());
        reader.value("vocab_size");
        None
    } else {
        head(reader, tensors, d_model)?
    };
    let d_vocab = head.as_ref().map(|head| head.unembed.n_out());
    let spec = ModelSpec::of_one_stack(family, stack, head);
    Ok(ModelSpec {
        d_vocab: d_vocab.unwrap_or(spec.d_vocab),
        ..spec
    })
}

/// The buckets of a bias by distance to both sides.
fn buckets(reader: &mut Reader<'_>) -> Result<Buckets> {
    let default = |key: &str| Origin::Default(key.to_owned());
    let (count, most) = ("num_buckets", "max_bucket_distance");
    let n_buckets = reader.size_or("n_buckets", count, 320, default(count))?;
    let max_distance = reader.size_or("max_distance", most, 800, default(most))?;
    if !n_buckets.is_multiple_of(4) || max_distance <= n_buckets / 4 {
        let problem = format!(
            "expected a multiple of 4, and distances beyond a quarter of it, found {n_buckets} and {max_distance}"
        );
        return Err(Error::config(reader.path(), count, problem));
    }
    note_bias(
        reader,
        "learned by distance, times a gate of each query and head",
    );
    Ok(Buckets::plain(n_buckets, max_distance, true))
}

/// The head that writes a token, or none, at every position.
///
/// # Errors
/// When the configuration does not state the size of the vocabulary.
pub fn head(
    reader: &mut Reader<'_>,
    tensors: &Tensors,
    d_model: usize,
) -> Result<Option<HeadSpec>> {
    let names = ["lm_head", "ctc_head"];
    let stored = names
        .into_iter()
        .find(|name| tensors.contains(&format!("{name}.weight")));
    let Some(name) = stored else {
        reader.value("vocab_size");
        reader.note("head", "none stored", Origin::Family);
        return Ok(None);
    };
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    reader.note("head", "a token or none at every position", Origin::Family);
    Ok(Some(HeadSpec::plain(linear(name, d_model, d_vocab, true))))
}

/// What turns samples into rows.
///
/// # Errors
/// When a value of the configuration is impossible or not read.
pub fn stem(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    (base, like): (&str, WaveLike),
    (d_model, eps): (usize, f64),
    of_blocks: Activation,
) -> Result<SoundStem> {
    let tensors = &checkpoint.tensors;
    let mut lists = Vec::new();
    for (key, default) in DEFAULTS {
        let list = reader.numbers(key)?.unwrap_or(default.to_vec());
        let first: &Vec<u64> = lists.first().unwrap_or(&list);
        let fits = (1..=MOST_CONVOLUTIONS).contains(&list.len()) && list.len() == first.len();
        if !fits || !list.iter().all(|n| (1..=1 << 14).contains(n)) {
            let problem = format!(
                "expected a number for each of at most {MOST_CONVOLUTIONS} convolutions, found {list:?}"
            );
            return Err(Error::config(reader.path(), key, problem));
        }
        lists.push(list);
    }
    let sizes = |nth: usize| {
        lists[nth]
            .iter()
            .map(|n| *n as usize)
            .collect::<Vec<usize>>()
    };
    let (channels, widths, strides) = (sizes(0), sizes(1), sizes(2));
    let norm = match like.shape {
        WaveShape::ManyPositions | WaveShape::Plain => "layer".to_owned(),
        _ => reader.word_or("conv_norm", "feat_extract_norm", "group")?,
    };
    if !["group", "layer"].contains(&norm.as_str()) {
        let problem = format!("expected \"group\" or \"layer\", found {norm:?}");
        return Err(Error::config(reader.path(), "feat_extract_norm", problem));
    }
    let is_plain = like.shape == WaveShape::Plain;
    let has_bias = reader.flag_or("conv_bias", "conv_bias", is_plain)?;
    let convolution = |nth: usize| {
        let at = format!("{base}{}.{nth}", like.names.convolutions);
        let of = || layer_norm(tensors, &format!("{at}.layer_norm"), channels[nth], EPS);
        StemConvolution {
            weight: format!("{at}.conv.weight"),
            bias: has_bias.then(|| format!("{at}.conv.bias")),
            n_in: nth.checked_sub(1).map_or(1, |before| channels[before]),
            n_out: channels[nth],
            is_gated: false,
            n_wide: widths[nth],
            stride: strides[nth],
            padding: [0; 2],
            norm: match (norm.as_str(), nth) {
                ("layer", _) => Some(StemNorm::Row(of())),
                (_, 0) => Some(StemNorm::Channel(of())),
                _ => None,
            },
            activation: None,
            last_norm: None,
        }
    };
    let activation = if is_plain {
        of_blocks
    } else {
        let word = reader.word_or("conv_activation", "feat_extract_activation", "gelu")?;
        activation_named(reader, "feat_extract_activation", &word)?
    };
    let last = channels.last().copied().unwrap_or(1);
    let is_normed = match like.norm_if {
        Some(key) => reader.flag_or("norms_features", key, true)?,
        None => true,
    };
    let named = |name: &str| format!("{base}{name}");
    let n_pooled = if like.shape.is_squeezed() {
        const SQUEEZED: &str = "squeeze_factor";
        let default = Origin::Default(SQUEEZED.to_owned());
        reader.size_or("rows_per_position", SQUEEZED, 2, default)?
    } else {
        1
    };
    // A family may leave out a map that changes no width.
    let is_mapped = !like.shape.is_squeezed() || last != d_model;
    let projection =
        || -> LinearSource { linear(&named(like.names.projection), last, d_model, true) };
    let positions = positions(reader, tensors, (base, like), d_model)?;
    Ok(SoundStem {
        convolutions: (0..channels.len()).map(convolution).collect(),
        end: Some(Box::new(StemEnd {
            norm: is_normed
                .then(|| layer_norm(tensors, &named(like.names.feature_norm), last, eps)),
            projection: is_mapped.then(projection),
            n_pooled,
            positions,
            sines: None,
        })),
        ..SoundStem::plain(
            rule(checkpoint, reader, (&widths, &strides), n_pooled)?,
            activation,
        )
    })
}

/// How a sound becomes samples, and those positions.
///
/// # Errors
/// When a setting of the feature extractor, or a stride, is impossible.
pub fn rule(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    (widths, strides): (&[usize], &[usize]),
    n_pooled: usize,
) -> Result<SoundRule> {
    let extractor = Extractor::of(checkpoint, reader);
    let silence = match reader.value(SILENCE) {
        Some(_) => Some(Silence {
            multiple: extractor.size("hop_length", 1, MOST_SAMPLES)?,
            around: reader.count_or("silence", SILENCE, 0)?.min(MOST_SAMPLES),
        }),
        None => None,
    };
    // A codec gives its samples as they are.
    let is_normalised = silence.is_none() && extractor.flag("do_normalize", true)?;
    let rate = extractor.size("sampling_rate", 16_000, FASTEST)?;
    // It adds more to the variance than others do.
    let kind = extractor
        .get("feature_extractor_type")
        .and_then(Value::as_str);
    let is_by_omniasr = kind == Some("OmniASRFeatureExtractor");
    if n_pooled > 1 && widths.len() == MOST_CONVOLUTIONS {
        let problem = format!("expected fewer than {MOST_CONVOLUTIONS} convolutions");
        return Err(Error::config(reader.path(), "conv_stride", problem));
    }
    let convolutions = widths.iter().zip(strides);
    let convolutions = convolutions.map(|(wide, stride)| [*wide, *stride, 0]);
    let steps = Steps::of(convolutions.chain((n_pooled > 1).then_some([n_pooled, n_pooled, 0])));
    let apart = strides
        .iter()
        .try_fold(n_pooled, |all, one| all.checked_mul(*one));
    let Some(apart) = apart.filter(|apart| *apart <= MOST_SAMPLES) else {
        let problem = format!("expected strides of at most {MOST_SAMPLES} samples together");
        return Err(Error::config(reader.path(), "conv_stride", problem));
    };
    let normalised = if is_normalised { "normalised, " } else { "" };
    let said = format!("samples, {normalised}{rate} Hz, a position every {apart}");
    reader.note("sound", said, extractor.origin());
    Ok(SoundRule {
        rate,
        n_window: 1,
        hop: 1,
        n_mels: 1,
        n_frames: MOST_SAMPLES,
        frames_per_position: apart,
        mel: Mel::whisper(1),
        waves: Some(Waves {
            is_normalised,
            added_decades: if is_by_omniasr { -5 } else { -7 },
            silence,
        }),
        steps: Some(steps),
        n_least: 0,
        patches: None,
        is_rows: false,
    })
}
