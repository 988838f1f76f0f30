//! The encoder of sound of dots3 note: Qwen 3 Omni's convolutions over the whole sound, and gated blocks whose queries and keys turn in part.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::{Ends, Mel, SoundRule, Steps};
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, MlpSpec, ModelSpec, PlaneConvolution, ProjectionSpec,
    SoundStem, StackSpec, StemEnd, TableSource,
};

use super::Family;
use super::reading::extractor::{Extractor, MOST_SAMPLES};
use super::reading::rope::{RopeRule, rope};
use super::reading::spectrograms::{heard_in_steps, whisper};
use super::reading::{activation, equal_heads, linear, note_attention, prefix, rms_norm, stacked};

pub const FAMILY: Family = Family::own("dots3_note_audio_encoder", "Dots3NoteAudio", read)
    .leaving_unread(&["audio_adapter.*", "adapter.*"]);

/// Epsilon of all norms; no configuration states it.
const EPS: f64 = 1e-6;

/// The share of a head that turns, if the configuration does not state it.
const TURNING: f64 = 0.5;

/// Kernel, stride and padding of a convolution over frames and bands, and the number of these.
const PLANE: [usize; 3] = [3, 2, 2];
const N_PLANES: usize = 3;

/// A block's sizes.
struct Block {
    d_model: usize,
    d_mlp: usize,
    activation: Activation,
    has_bias: bool,
    attention: AttentionSpec,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: [&str; 2] = ["num_attention_heads", "num_key_value_heads"];
    let tensors = &checkpoint.tensors;
    let default = |key: &str| Origin::Default(key.to_owned());
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_layers = reader.layers("num_hidden_layers")?;
    let knobs = ["n_heads", "n_kv_heads"];
    let [n_heads, even] = equal_heads(reader, HEADS, knobs, d_model)?;
    let by = Origin::Derived("d_model / n_heads".to_owned());
    let d_head = reader.size_or("d_head", "head_dim", even, by)?;
    if d_head != even {
        let problem = format!("expected {even}, as wide as stored keys, found {d_head}");
        return Err(Error::config(reader.path(), "head_dim", problem));
    }
    let n_mels = reader.size_or("n_mels", "feature_size", 128, default("feature_size"))?;
    let n_positions = reader.size("n_positions", "max_position_embeddings")?;
    let activation = activation(reader, "hidden_act", "silu")?;
    // Of what follows the blocks.
    for key in ["adapter_input_size", "adapter_out_dim"] {
        reader.value(key);
    }
    let turns = RopeRule {
        share: TURNING,
        share_key: Some("partial_rotary_factor"),
        ..RopeRule::plain(d_head, n_positions)
    };
    let block = Block {
        d_model,
        d_mlp,
        activation,
        has_bias: reader.flag_or("attention_bias", "attention_bias", true)?,
        attention: AttentionSpec {
            rope: Some(rope(reader, turns)?),
            ..AttentionSpec::plain(n_heads, n_heads, d_head, false)
        },
    };
    note_attention(reader, &block.attention, Origin::Family);
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    let bases = [
        "dots_encoder.speech_encoder.",
        "model.audio_tower.dots_encoder.speech_encoder.",
        "speech_encoder.",
        "",
    ];
    let base = prefix(tensors, &bases, "conv_out.weight");
    let rule = rule(checkpoint, reader, (n_mels, n_positions))?;
    const CHANNELS: &str = "downsample_hidden_size";
    let n_channels = reader.size_or("stem_channels", CHANNELS, 480, default(CHANNELS))?;
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
    let n_bands = planes.iter().fold(n_mels, |n, plane| plane.n_along(n, 1));
    let map = format!("{base}conv_out");
    let places = TableSource {
        tensor: format!("{map}.weight"),
        n_rows: rule.n_positions(),
        width: d_model,
    };
    let map = linear(&map, n_channels * n_bands, d_model, false);
    let embed = EmbedSpec {
        sound: Some(Box::new(SoundStem {
            planes,
            has_bands_first: true,
            end: Some(Box::new(StemEnd::map(map))),
            ..SoundStem::plain(rule, Activation::Gelu)
        })),
        ..EmbedSpec::plain(places)
    };
    let blocks = (0..n_layers).map(|layer_idx| block.read(&format!("{base}layers.{layer_idx}")));
    let last = rms_norm(format!("{base}layer_norm.weight"), d_model, EPS);
    let stack = StackSpec::only(embed, blocks.collect(), Some(last));
    Ok(ModelSpec::of_one_stack(FAMILY.model_type, stack, None))
}

impl Block {
    fn read(&self, at: &str) -> BlockSpec {
        let (d_model, d_mlp) = (self.d_model, self.d_mlp);
        let map = |name: &str, n_in, n_out, has_bias| {
            linear(&format!("{at}.{name}"), n_in, n_out, has_bias)
        };
        let norm = |name: &str| Some(rms_norm(format!("{at}.{name}.weight"), d_model, EPS));
        let one = |name: &str, has_bias| map(name, d_model, d_model, has_bias);
        let projections = ProjectionSpec::plain(
            one("self_attn.q_proj", self.has_bias),
            one("self_attn.k_proj", false),
            one("self_attn.v_proj", self.has_bias),
            one("self_attn.out_proj", self.has_bias),
        );
        let [gate, up, _] = stacked(&map("fc1", d_model, 2 * d_mlp, true), [d_mlp, d_mlp, 0]);
        let mlp = MlpSpec {
            gate: Some(gate),
            ..MlpSpec::plain(up, map("fc2", d_mlp, d_model, true), self.activation)
        };
        BlockSpec {
            attn_pre: norm("self_attn_layer_norm"),
            mlp_pre: norm("final_layer_norm"),
            ..BlockSpec::plain(
                self.attention.clone(),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    }
}

/// How a sound becomes frames, and those positions.
fn rule(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    (n_mels, n_positions): (usize, usize),
) -> Result<SoundRule> {
    const LONGEST: &str = "chunk_length";
    let extractor = Extractor::of(checkpoint, reader);
    let rule = whisper(&extractor, reader, n_mels)?;
    for (key, found) in [("sampling_rate", rule.rate), ("hop_length", rule.hop)] {
        let stated = reader.value(key).and_then(serde_json::Value::as_u64);
        if let Some(stated) = stated.filter(|stated| *stated != found as u64) {
            let problem = format!("expected that of the extractor, {found}, found {stated}");
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    // A longer sound becomes several.
    let seconds = extractor.size(LONGEST, 60, MOST_SAMPLES)?;
    let rule = SoundRule {
        n_frames: rule
            .n_frames
            .min(seconds.saturating_mul(rule.rate) / rule.hop),
        mel: Mel {
            ends: Ends::MirroredThenSilent { counts_part: false },
            ..rule.mel
        },
        ..rule
    };
    let steps = Steps::of([PLANE; N_PLANES]);
    let steps = (steps, 1 << N_PLANES);
    heard_in_steps(&extractor, reader, rule, steps, Some(n_positions))
}
