//! The encoder of sound of Qwen 3 Omni, and its kin: Whisper's blocks, where chunks of frames pass through convolutions, and positions
//! see a few chunks.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::Window;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::{Ends, SoundRule, Steps};
use attnscope_spec::{
    EmbedSpec, Lengthened, ModelSpec, PlaneConvolution, Sines, SoundStem, Stack, StackSpec,
    StemChunks, StemEnd, StemSines, TableSource,
};

use super::Family;
use super::reading::extractor::{Extractor, MOST_SAMPLES};
use super::reading::spectrograms::{heard_in_steps, whisper};
use super::reading::{activation, even_heads, linear, note_attention, prefix};
use super::whisper::{Side, stem as stem_of_whisper};

pub const FAMILY: Family = Family::own(
    "qwen3_omni_moe_audio_encoder",
    "Qwen3OmniMoeAudioEncoder",
    |checkpoint, reader| read_as(FAMILY_NAME, checkpoint, reader, Like::Omni3),
)
.leaving_unread(&["proj1.*", "proj2.*"]);

const FAMILY_NAME: &str = "qwen3_omni_moe_audio_encoder";

/// How families of this kind differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Like {
    /// Two convolutions over frames; pairs of rows behind the blocks.
    Omni25,
    /// Three convolutions over frames and bands; two maps behind the blocks.
    Omni3,
    /// The same without maps.
    Asr,
}

/// Half the frames of a chunk: transformers runs these convolutions with chunks of 100 frames only.
const HALF_CHUNK: usize = 50;

/// Kernel, stride and padding of a convolution over frames and bands, and the number of these.
const PLANE: [usize; 3] = [3, 2, 2];
const N_PLANES: usize = 3;

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing, impossible or not read.
pub(super) fn read_as(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: Like,
) -> Result<ModelSpec> {
    const HEADS: &str = "encoder_attention_heads";
    let tensors = &checkpoint.tensors;
    let default = |key: &str| Origin::Default(key.to_owned());
    let d_model = reader.size("d_model", "d_model")?;
    let n_layers = reader.layers("encoder_layers")?;
    let n_heads = reader.size("n_heads", HEADS)?;
    let d_head = even_heads(reader, HEADS, d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "encoder_ffn_dim")?;
    let n_mels = reader.size("n_mels", "num_mel_bins")?;
    let activation = activation(reader, "activation_function", "gelu")?;
    // Of what follows the blocks; of a factor that no code uses; of speed.
    for key in ["output_dim", "scale_embedding", "conv_chunksize"] {
        reader.value(key);
    }
    if d_model < 4 || !d_model.is_multiple_of(2) {
        let problem = format!("expected an even number from 4, found {d_model}");
        return Err(Error::config(reader.path(), "d_model", problem));
    }
    let half = half_chunk(reader, like)?;
    let n_in_chunk = match like {
        Like::Omni25 => half,
        Like::Omni3 | Like::Asr => {
            let planes = Steps::of([PLANE; N_PLANES]);
            planes.n_positions(2 * half)
        }
    };
    let key = if like == Like::Asr {
        "max_position_embeddings"
    } else {
        "max_source_positions"
    };
    let n_positions = reader.size_or("source positions", key, n_in_chunk, default(key))?;
    if n_positions < n_in_chunk {
        let problem =
            format!("expected at least the {n_in_chunk} positions of a chunk, found {n_positions}");
        return Err(Error::config(reader.path(), key, problem));
    }
    let width = match like {
        Like::Omni25 => n_in_chunk,
        Like::Omni3 | Like::Asr => {
            const SEEN: &str = "n_window_infer";
            let usual = if like == Like::Asr { 800 } else { 400 };
            let seen = reader.size_or("window_frames", SEEN, usual, default(SEEN))?;
            if seen < 2 * half {
                let problem = format!("expected at least {}, found {seen}", 2 * half);
                return Err(Error::config(reader.path(), SEEN, problem));
            }
            seen / (2 * half) * n_in_chunk
        }
    };
    let names = [
        "thinker.audio_tower.",
        "audio_tower.",
        "model.audio_tower.",
        "",
    ];
    let base = prefix(tensors, &names, "ln_post.weight").to_owned();
    let rule = rule(checkpoint, reader, like, (n_mels, half))?;
    let stem = stem(reader, like, (&base, rule), (d_model, half))?;
    let side = Side {
        tensors,
        base,
        stack: Stack::Only,
        n_layers,
        n_heads,
        d_model,
        d_head,
        d_mlp,
        n_positions,
        activation,
        keys_have_bias: like != Like::Omni25,
        window: Some(Window::Chunk(width)),
    };
    note_attention(reader, &side.attention(false), Origin::Family);
    reader.note(
        "positions",
        format!("sines and cosines, {n_in_chunk} in each chunk"),
        Origin::Family,
    );
    let said = match like {
        Like::Omni25 => Some("the mean of each two of them, the norm and the map that follow"),
        Like::Omni3 => Some("the maps that follow the last norm"),
        Like::Asr => None,
    };
    if let Some(said) = said {
        reader.remark(format!(
            "the rows are those of the blocks: {said} are not read"
        ));
    }
    let places = TableSource {
        tensor: format!("{}ln_post.weight", side.base),
        n_rows: rule.n_positions(),
        width: d_model,
    };
    let embed = EmbedSpec {
        sound: Some(Box::new(stem)),
        ..EmbedSpec::plain(places)
    };
    let stack = StackSpec {
        final_norm: (like != Like::Omni25).then(|| side.norm("ln_post")),
        ..side.stack(embed)
    };
    Ok(ModelSpec::of_one_stack(family, stack, None))
}

/// Half the frames of a chunk.
fn half_chunk(reader: &mut Reader<'_>, like: Like) -> Result<usize> {
    const HALF: &str = "n_window";
    let usual = if like == Like::Omni25 {
        100
    } else {
        HALF_CHUNK
    };
    let half = reader.size_or("half_chunk", HALF, usual, Origin::Default(HALF.to_owned()))?;
    if like != Like::Omni25 && half != HALF_CHUNK {
        let problem = format!("expected {HALF_CHUNK}: no other chunks are read, found {half}");
        return Err(Error::config(reader.path(), HALF, problem));
    }
    if half > MOST_SAMPLES {
        let problem = format!("expected at most {MOST_SAMPLES}, found {half}");
        return Err(Error::config(reader.path(), HALF, problem));
    }
    Ok(half)
}

/// How a sound becomes frames, and those positions.
fn rule(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: Like,
    (n_mels, half): (usize, usize),
) -> Result<SoundRule> {
    const HALF: &str = "n_window";
    let extractor = Extractor::of(checkpoint, reader);
    let mut rule = whisper(&extractor, reader, n_mels)?;
    if like != Like::Omni25 {
        // These are not lengthened before their frames are made.
        rule.mel.ends = Ends::Mirrored;
    }
    if like == Like::Asr {
        let found = extractor.size(HALF, half, MOST_SAMPLES)?;
        if found != half {
            let problem = format!("expected the model's {half}, found {found}");
            return Err(extractor.error(HALF, problem));
        }
        rule.n_least = extractor.size_or_none("min_length", 8_000, MOST_SAMPLES)?;
    }
    let (steps, apart) = match like {
        Like::Omni25 => (Steps::of([[3, 1, 2], [3, 2, 2]]), 2),
        Like::Omni3 | Like::Asr => (Steps::of([PLANE; N_PLANES]), 1 << N_PLANES),
    };
    let steps = steps.in_chunks(2 * half);
    heard_in_steps(&extractor, reader, rule, (steps, apart), None)
}

/// What turns frames into rows.
fn stem(
    reader: &mut Reader<'_>,
    like: Like,
    (base, rule): (&str, SoundRule),
    (d_model, half): (usize, usize),
) -> Result<SoundStem> {
    let sines = StemSines {
        order: Sines::HalvesToEnd,
        first: 0,
        scale: 1.0,
    };
    let chunks = |lengthened| StemChunks {
        n_frames: 2 * half,
        lengthened,
    };
    if like == Like::Omni25 {
        return Ok(SoundStem {
            chunks: Some(chunks(Lengthened::Never)),
            end: Some(Box::new(StemEnd {
                norm: None,
                projection: None,
                n_pooled: 1,
                positions: Vec::new(),
                sines: Some(sines),
            })),
            ..stem_of_whisper(base, d_model, rule)
        });
    }
    const CHANNELS: &str = "downsample_hidden_size";
    let by = Origin::Default(CHANNELS.to_owned());
    let n_channels = reader.size_or("stem_channels", CHANNELS, 480, by)?;
    let plane = |nth: usize| PlaneConvolution {
        weight: format!("{base}conv2d{nth}.weight"),
        bias: Some(format!("{base}conv2d{nth}.bias")),
        n_in: if nth == 1 { 1 } else { n_channels },
        n_out: n_channels,
        is_by_channel: false,
        is_line: false,
        apart: 1,
        n_wide: PLANE[0],
        strides: [PLANE[1]; 2],
        padding: [1; 2],
        is_activated: true,
    };
    let planes: Vec<PlaneConvolution> = (1..=N_PLANES).map(plane).collect();
    let n_bands = planes
        .iter()
        .fold(rule.n_mels, |n, plane| plane.n_along(n, 1));
    let map = linear(
        &format!("{base}conv_out"),
        n_channels * n_bands,
        d_model,
        false,
    );
    Ok(SoundStem {
        planes,
        has_bands_first: true,
        chunks: Some(chunks(if like == Like::Asr {
            Lengthened::Always
        } else {
            Lengthened::BehindOthers
        })),
        end: Some(Box::new(StemEnd {
            sines: Some(sines),
            ..StemEnd::map(map)
        })),
        ..SoundStem::plain(rule, Activation::Gelu)
    })
}
