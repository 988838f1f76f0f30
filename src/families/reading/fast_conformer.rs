//! Conformers that hear a spectrogram as long as the sound: Parakeet's encoder and its kin.

use attnscope_checkpoint::{Checkpoint, Config, Origin, Reader};
use attnscope_compute::attention::Window;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::{BandNorm, Mel, SoundRule, Steps};
use attnscope_spec::{
    EmbedSpec, HeadSpec, ModelSpec, PlaneConvolution, SoundStem, StackSpec, StemConvolution,
    StemEnd, TableSource,
};

use super::conformer::{Conformer, ConformerNames, Distances, EPS, HALF};
use super::extractor::{Extractor, FASTEST, MOST_SAMPLES, WIDEST_WINDOW};
use super::rope::{RopeRule, rope};
use super::{activation, even_heads, layer_norm, linear, note_attention, note_bias, prefix};

/// The part of a whole model's configuration that describes its encoder.
const ENCODER: &str = "encoder_config";

/// The usual largest number of positions.
const N_POSITIONS: usize = 5000;

/// Upper limit of halvings of a spectrogram.
const MOST_HALVINGS: u32 = 8;

/// How families of this kind differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Like {
    /// Convolutions over frames and bands, distances have vectors, every position sees all others.
    Parakeet,
    /// The same, where convolutions read nothing later, and a position sees its own chunk and some before it.
    Streaming,
    /// Convolutions over frames alone; queries and keys turn by position; the residual has factors.
    Lasr,
}

/// Reads an encoder alone.
///
/// # Errors
/// When a value of the configuration is missing, impossible or not read.
pub fn read(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: Like,
) -> Result<ModelSpec> {
    let stack = stack(checkpoint, reader, like)?;
    Ok(ModelSpec::of_one_stack(family, stack, None))
}

/// Reads an encoder with a head that writes a token, or none, at every position.
///
/// # Errors
/// When a value of the configuration is missing, impossible or not read.
pub fn read_with_head(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: Like,
) -> Result<ModelSpec> {
    const HEAD: &str = "ctc_head";
    let stack = stack_of_part(checkpoint, reader, like)?;
    let d_model = stack.embed.tokens.width;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    reader.note("head", "a token or none at every position", Origin::Family);
    let head = HeadSpec::plain(linear(HEAD, d_model, d_vocab, true).in_groups(1));
    let spec = ModelSpec::of_one_stack(family, stack, Some(head));
    Ok(ModelSpec { d_vocab, ..spec })
}

/// Reads the encoder of a transducer, whose prediction network has no attention.
///
/// # Errors
/// When a value of the configuration is missing, impossible or not read.
pub fn read_of_transducer(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: Like,
) -> Result<ModelSpec> {
    let stack = stack_of_part(checkpoint, reader, like)?;
    reader.remark(
        "the encoder is read: the network that predicts tokens from those before it, and what joins both, have no attention"
            .to_owned(),
    );
    for key in [
        "vocab_size",
        "decoder_hidden_size",
        "num_decoder_layers",
        "hidden_act",
        "durations",
        "num_prompts",
        "prompt_intermediate_size",
        "default_prompt_id",
    ] {
        reader.value(key);
    }
    Ok(ModelSpec::of_one_stack(family, stack, None))
}

/// The stack that a part of a configuration describes.
///
/// # Errors
/// When a value of the configuration is missing, impossible or not read.
pub fn stack_of_part(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: Like,
) -> Result<StackSpec> {
    let config: Config = reader.part(ENCODER);
    let mut inner = Reader::new(&config);
    inner.value("model_type");
    let stack = stack(checkpoint, &mut inner, like)?;
    reader.absorb(ENCODER, inner);
    Ok(stack)
}

fn stack(checkpoint: &Checkpoint, reader: &mut Reader<'_>, like: Like) -> Result<StackSpec> {
    let tensors = &checkpoint.tensors;
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let even = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let by = Origin::Derived("d_model / n_heads".to_owned());
    let d_head = reader.size_or("d_head", "head_dim", even, by)?;
    let same = Origin::Derived("n_heads".to_owned());
    let n_kv_heads = reader.size_or("n_kv_heads", "num_key_value_heads", n_heads, same)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let activation = activation(reader, "hidden_act", "silu")?;
    let is_lasr = like == Like::Lasr;
    let eps = if is_lasr {
        reader.number_or("norm_eps", "layer_norm_eps", 1e-6)?
    } else {
        reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
        EPS
    };
    const WIDE: &str = "conv_kernel_size";
    let usual = if is_lasr { 32 } else { 9 };
    let n_wide = reader.size_or("convolution_width", WIDE, usual, default(WIDE))?;
    if like == Like::Parakeet && n_wide.is_multiple_of(2) {
        let problem = format!("expected an odd number, found {n_wide}");
        return Err(Error::config(reader.path(), WIDE, problem));
    }
    const MOST: &str = "max_position_embeddings";
    let usual = if is_lasr {
        2 * N_POSITIONS
    } else {
        N_POSITIONS
    };
    let n_positions = reader.size_or("n_positions", MOST, usual, default(MOST))?;
    let base = prefix(
        tensors,
        &["model.encoder.", "encoder.", "model.", ""],
        "layers.0.norm_out.weight",
    );
    let stem = stem(checkpoint, reader, (base, like), [d_model, n_positions])?;
    let mut factors = |key: &str, usual: [f32; 2]| {
        if is_lasr {
            pair(reader, key, usual)
        } else {
            Ok([1.0; 2])
        }
    };
    let layer_factors = factors("feed_forward_residual_weights", [1.5, HALF])?;
    let convolution_factors = factors("conv_residual_weights", [2.0, 1.0])?;
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
        n_before: match like {
            Like::Streaming => n_wide - 1,
            Like::Parakeet | Like::Lasr => (n_wide - 1) / 2,
        },
        activation,
        eps,
        norms_have_bias: !is_lasr,
        has_bias: reader.flag_or("has_bias", "attention_bias", !is_lasr)?,
        convolution_has_bias: reader.flag_or("convolution_bias", "convolution_bias", !is_lasr)?,
        norms_rows: like == Like::Streaming,
        layer_factors: if is_lasr { layer_factors } else { [1.0, HALF] },
        convolution_factors,
        distances: if is_lasr {
            Distances::None
        } else {
            Distances::Sines(stem.rule.n_positions())
        },
        rope: if is_lasr {
            Some(rope(reader, RopeRule::plain(d_head, n_positions))?)
        } else {
            None
        },
        window: match like {
            Like::Streaming => Some(chunks(reader)?),
            Like::Parakeet | Like::Lasr => None,
        },
        n_positions: None,
    };
    if !is_lasr {
        note_bias(reader, "sines of the distance, mapped by each layer");
    }
    note_attention(reader, &conformer.attention(), Origin::Family);
    let places = TableSource {
        tensor: format!("{base}layers.0.norm_out.weight"),
        n_rows: stem.rule.n_positions(),
        width: d_model,
    };
    let scales = !is_lasr && reader.flag_or("scales_input", "scale_input", true)?;
    let embed = EmbedSpec {
        sound: Some(Box::new(stem)),
        scale: if scales { (d_model as f32).sqrt() } else { 1.0 },
        ..EmbedSpec::plain(places)
    };
    let blocks =
        (0..n_layers).map(|layer_idx| conformer.block(&format!("{base}layers.{layer_idx}")));
    let last = is_lasr.then(|| attnscope_spec::NormSource {
        bias: None,
        ..layer_norm(tensors, &format!("{base}out_norm"), d_model, eps)
    });
    Ok(StackSpec::only(embed, blocks.collect(), last))
}

/// Two factors: of the residual, and of what is added to it.
fn pair(reader: &mut Reader<'_>, key: &str, usual: [f32; 2]) -> Result<[f32; 2]> {
    let Some(value) = reader.value(key) else {
        return Ok(usual);
    };
    let numbers = value.as_array().map(Vec::as_slice);
    match numbers.unwrap_or_default() {
        [a, b] if a.is_number() && b.is_number() => {
            Ok([a, b].map(|v| v.as_f64().unwrap_or(1.0) as f32))
        }
        _ => {
            let problem = format!("expected two numbers, found {value}");
            Err(Error::config(reader.path(), key, problem))
        }
    }
}

/// The chunks that positions see.
fn chunks(reader: &mut Reader<'_>) -> Result<Window> {
    const BACK: &str = "sliding_window";
    const LATER: &str = "default_num_lookahead_tokens";
    let back = reader.size_or("window", BACK, 71, Origin::Default(BACK.to_owned()))?;
    let later = match reader.value(LATER) {
        None => 13,
        Some(value) => {
            let later = value.as_u64().filter(|later| *later < 1 << 20);
            later.ok_or_else(|| {
                let problem = format!("expected a whole number, found {value}");
                Error::config(reader.path(), LATER, problem)
            })? as usize
        }
    };
    reader.note("positions_ahead", later, Origin::Key(LATER.to_owned()));
    let width = later + 1;
    Ok(Window::Chunks {
        width,
        n_before: (back - 1) / width,
    })
}

/// What turns frames into rows.
fn stem(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    (base, like): (&str, Like),
    [d_model, n_positions]: [usize; 2],
) -> Result<SoundStem> {
    const CHANNELS: &str = "subsampling_conv_channels";
    const WIDE: &str = "subsampling_conv_kernel_size";
    const STRIDE: &str = "subsampling_conv_stride";
    const FACTOR: &str = "subsampling_factor";
    let default = |key: &str| Origin::Default(key.to_owned());
    let (bands, wide) = match like {
        Like::Lasr => (128, 5),
        Like::Parakeet | Like::Streaming => (80, 3),
    };
    let n_mels = reader.size_or("n_mels", "num_mel_bins", bands, default("num_mel_bins"))?;
    let n_channels = reader.size_or("stem_channels", CHANNELS, 256, default(CHANNELS))?;
    let n_wide = reader.size_or("stem_width", WIDE, wide, default(WIDE))?;
    let stride = reader.size_or("stem_stride", STRIDE, 2, default(STRIDE))?;
    for (key, found, most) in [(WIDE, n_wide, 64), (STRIDE, stride, 16)] {
        if found > most {
            let problem = format!("expected at most {most}, found {found}");
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    if like == Like::Lasr {
        let rule = rule(
            checkpoint,
            reader,
            like,
            (n_mels, n_positions),
            (&[[n_wide, stride, 0]; 2], stride * stride),
        )?;
        let convolution = |nth: usize, n_out| StemConvolution {
            weight: format!("{base}subsampler.conv_{nth}.weight"),
            bias: Some(format!("{base}subsampler.conv_{nth}.bias")),
            n_in: d_model,
            n_out,
            is_gated: false,
            n_wide,
            stride,
            padding: [0; 2],
            norm: None,
            activation: None,
            last_norm: None,
        };
        return Ok(SoundStem {
            first: Some(linear(
                &format!("{base}subsampler.dense_0"),
                n_mels,
                d_model,
                true,
            )),
            convolutions: vec![convolution(0, d_model), convolution(1, n_channels)],
            end: Some(Box::new(StemEnd::map(linear(
                &format!("{base}subsampler.dense_1"),
                n_channels,
                d_model,
                true,
            )))),
            ..SoundStem::plain(rule, Activation::Relu)
        });
    }
    let factor = reader.size_or("frames_per_position", FACTOR, 8, default(FACTOR))?;
    if !(2..1 << MOST_HALVINGS).contains(&factor) {
        let problem = format!(
            "expected a number from 2 to {}, found {factor}",
            (1 << MOST_HALVINGS) - 1
        );
        return Err(Error::config(reader.path(), FACTOR, problem));
    }
    let n = factor.ilog2() as usize;
    let padding = match like {
        Like::Streaming => [n_wide - 1, stride - 1],
        Like::Parakeet | Like::Lasr => [(n_wide - 1) / 2; 2],
    };
    let at = format!("{base}subsampling");
    let plane = |name: String, n_in, is_by_channel, is_wide: bool, is_activated| PlaneConvolution {
        weight: format!("{at}.{name}.weight"),
        bias: Some(format!("{at}.{name}.bias")),
        n_in,
        n_out: n_channels,
        is_by_channel,
        is_line: false,
        apart: 1,
        n_wide: if is_wide { n_wide } else { 1 },
        strides: if is_wide { [stride; 2] } else { [1; 2] },
        padding: if is_wide { padding } else { [0; 2] },
        is_activated,
    };
    let names = |nth: usize| match like {
        Like::Streaming => {
            ["depthwise_conv", "pointwise_conv"].map(|name| format!("layers.{}.{name}", nth - 1))
        }
        Like::Parakeet | Like::Lasr => {
            [2, 3].map(|from| format!("layers.{}", 3 * (nth - 1) + from))
        }
    };
    let first = match like {
        Like::Streaming => "conv_in",
        Like::Parakeet | Like::Lasr => "layers.0",
    };
    let mut planes = vec![plane(first.to_owned(), 1, false, true, true)];
    for nth in 1..n {
        let [apart, together] = names(nth);
        planes.push(plane(apart, n_channels, true, true, false));
        planes.push(plane(together, n_channels, false, false, true));
    }
    let n_bands = planes.iter().fold(n_mels, |n, plane| plane.n_along(n, 1));
    let step = [n_wide, stride, padding[0] + padding[1]];
    let apart = stride.saturating_pow(n as u32);
    let rule = rule(
        checkpoint,
        reader,
        like,
        (n_mels, n_positions),
        (&vec![step; n], apart),
    )?;
    Ok(SoundStem {
        planes,
        end: Some(Box::new(StemEnd::map(linear(
            &format!("{at}.linear"),
            n_channels * n_bands,
            d_model,
            true,
        )))),
        ..SoundStem::plain(rule, Activation::Relu)
    })
}

/// How a sound becomes frames, and those positions.
///
/// # Errors
/// When a setting of the extractor is impossible, or does not fit the model.
pub fn rule(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: Like,
    (n_mels, n_positions): (usize, usize),
    (steps, apart): (&[[usize; 3]], usize),
) -> Result<SoundRule> {
    let extractor = Extractor::of(checkpoint, reader);
    extractor.check_bands(n_mels)?;
    let rate = extractor.size("sampling_rate", 16_000, FASTEST)?;
    let hop = extractor.size("hop_length", 160, WIDEST_WINDOW)?;
    let n_fourier = extractor.size("n_fft", 512, WIDEST_WINDOW)?;
    let n_window = extractor.size("win_length", 400, n_fourier)?;
    let mel = match like {
        Like::Lasr => Mel::lasr(n_fourier),
        Like::Parakeet => Mel::nemo(n_fourier, rate, emphasis(&extractor)?),
        Like::Streaming => Mel {
            norm: BandNorm::None,
            ..Mel::nemo(n_fourier, rate, emphasis(&extractor)?)
        },
    };
    extractor.note_dither(reader);
    if extractor
        .get("mel_filters_dtype")
        .is_some_and(|value| value.as_str() != Some("float32"))
    {
        reader.remark(format!(
            "{} rounds the filters of bands (mel_filters_dtype): they are used as they are",
            extractor.file
        ));
    }
    let steps = Steps::of(steps.iter().copied());
    let mut n_frames = n_positions.saturating_mul(apart).min(MOST_SAMPLES / hop);
    // A longer sound becomes several, each heard by itself.
    const LONGEST: &str = "max_audio_clip_s";
    if let Some(seconds) = extractor.get(LONGEST) {
        let seconds = seconds.as_f64().filter(|seconds| *seconds > 0.0);
        let seconds = seconds.ok_or_else(|| {
            let problem = "expected a number of seconds above 0".to_owned();
            extractor.error(LONGEST, problem)
        })?;
        n_frames = n_frames.min((seconds * rate as f64) as usize / hop);
    }
    // Padding may give a few frames a position beyond the last.
    while steps.n_positions(n_frames) > n_positions {
        n_frames -= 1;
    }
    let rule = SoundRule {
        rate,
        n_window,
        hop,
        n_mels,
        n_frames,
        frames_per_position: apart,
        mel,
        waves: None,
        steps: Some(steps),
        n_least: 0,
        patches: None,
        is_rows: false,
    };
    let said = format!(
        "{n_mels} mel bands of {n_window} samples every {hop}, {rate} Hz, a position every {}",
        apart.saturating_mul(hop)
    );
    reader.note("sound", said, extractor.origin());
    Ok(rule)
}

/// The share of the sample before that is taken from each, in millionths.
fn emphasis(extractor: &Extractor) -> Result<u32> {
    const KEY: &str = "preemphasis";
    if extractor.is_null(KEY) {
        return Ok(0);
    }
    match extractor.get(KEY) {
        None => Ok(970_000),
        Some(value) => {
            let share = value.as_f64().filter(|share| (0.0..=1.0).contains(share));
            let share = share.ok_or_else(|| {
                extractor.error(KEY, format!("expected a number from 0 to 1, found {value}"))
            })?;
            Ok((share * 1e6).round() as u32)
        }
    }
}
