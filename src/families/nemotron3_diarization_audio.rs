//! The encoder of Nemotron 3's diarisation: a map of some frames beside each other, and blocks whose queries and keys turn.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_prompt::{Mel, SoundRule};
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, MlpSpec, ModelSpec, ProjectionSpec, SoundStem, StackSpec,
    StemEnd, TableSource,
};

use super::Family;
use super::reading::fast_conformer::{self, Like};
use super::reading::given_rows;
use super::reading::rope::{RopeRule, rope};
use super::reading::{
    activation, check_groups, even_heads, layer_norm, linear, note_attention, prefix,
};

pub const FAMILY: Family = Family::own(
    "nemotron3_diarization_audio",
    "Nemotron3DiarizationAudio",
    read,
)
.leaving_unread(&[
    "asr_norm.*",
    "diarization_model.*",
    "model.proj.*",
    "silence_embeds",
    "speaker_norm.*",
    "upsampler.*",
]);

/// Epsilon of all norms; no configuration states it.
const EPS: f64 = 1e-5;

/// Prefixes: inside a model of diarisation, inside one of transcriptions, and alone.
const BASES: [&str; 5] = [
    "model.audio_tower.",
    "audio_tower.",
    "model.audio_tower.asr_encoder.",
    "asr_encoder.",
    "",
];

/// Set by a model around it that norms each band of a spectrogram.
pub(super) const NORMS_BANDS: &str = "norms_bands";

/// A block's sizes.
struct Block<'a> {
    tensors: &'a Tensors,
    d_model: usize,
    d_mlp: usize,
    activation: Activation,
    attention: AttentionSpec,
    qk_norm: bool,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "num_attention_heads";
    const KV_HEADS: &str = "num_key_value_heads";
    let tensors = &checkpoint.tensors;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", HEADS)?;
    let same = Origin::Derived("n_heads".to_owned());
    let n_kv_heads = reader.size_or("n_kv_heads", KV_HEADS, n_heads, same)?;
    check_groups(reader, n_heads, n_kv_heads, KV_HEADS)?;
    let even = even_heads(reader, HEADS, d_model, n_heads)?;
    let by = Origin::Derived("d_model / n_heads".to_owned());
    let d_head = reader.size_or("d_head", "head_dim", even, by)?;
    let n_positions = reader.size("n_positions", "max_position_embeddings")?;
    let activation = activation(reader, "hidden_act", "gelu")?;
    let rule = RopeRule {
        share_key: Some("partial_rotary_factor"),
        ..RopeRule::plain(d_head, n_positions)
    };
    let block = Block {
        tensors,
        d_model,
        d_mlp,
        activation,
        attention: AttentionSpec {
            rope: Some(rope(reader, rule)?),
            ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, false)
        },
        qk_norm: reader.flag_or("qk_norm", "qk_norm", false)?,
    };
    note_attention(reader, &block.attention, Origin::Family);
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    let reads_rows = reader.flag_or("reads_rows", "reads_rows", false)?;
    let base = prefix(tensors, &BASES, "input_layer_norm.weight");
    let norm = |name: &str| layer_norm(tensors, &format!("{base}{name}"), d_model, EPS);
    let embed = if reads_rows {
        given_rows::remark(reader, "the convolution that divides frames");
        given_rows::embed(format!("{base}input_layer_norm.weight"), d_model)
    } else {
        heard(checkpoint, reader, base, [d_model, n_positions])?
    };
    let embed = EmbedSpec {
        norm: Some(norm("input_layer_norm")),
        ..embed
    };
    let blocks = (0..n_layers).map(|layer_idx| block.read(&format!("{base}layers.{layer_idx}")));
    let stack = StackSpec::only(embed, blocks.collect(), Some(norm("layer_norm")));
    Ok(ModelSpec::of_one_stack(FAMILY.model_type, stack, None))
}

/// How a sound becomes rows: a map of some frames beside each other.
fn heard(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    base: &str,
    [d_model, n_positions]: [usize; 2],
) -> Result<EmbedSpec> {
    const JOINED: &str = "subsampling_factor";
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_mels = reader.size_or("n_mels", "num_mel_bins", 128, default("num_mel_bins"))?;
    let n_joined = reader.size_or("frames_per_position", JOINED, 8, default(JOINED))?;
    let like = if reader.flag_or("norms_bands", NORMS_BANDS, false)? {
        Like::Parakeet
    } else {
        Like::Streaming
    };
    // Zeros follow a last row of fewer frames.
    let steps = [[n_joined, n_joined, n_joined - 1]];
    let sizes = (n_mels, n_positions);
    let rule = fast_conformer::rule(checkpoint, reader, like, sizes, (&steps, n_joined))?;
    let rule = SoundRule {
        mel: Mel {
            n_joined,
            ..rule.mel
        },
        ..rule
    };
    let projection = format!("{base}embedder.projection");
    let places = TableSource {
        tensor: format!("{projection}.weight"),
        n_rows: rule.n_positions(),
        width: d_model,
    };
    let map = linear(&projection, n_joined * n_mels, d_model, false);
    Ok(EmbedSpec {
        sound: Some(Box::new(SoundStem {
            end: Some(Box::new(StemEnd::map(map))),
            ..SoundStem::plain(rule, Activation::Identity)
        })),
        ..EmbedSpec::plain(places)
    })
}

impl Block<'_> {
    fn read(&self, at: &str) -> BlockSpec {
        let (d_model, d_mlp, own) = (self.d_model, self.d_mlp, &self.attention);
        let [d_q, d_kv] = [own.n_heads, own.n_kv_heads].map(|n| n * own.d_head);
        let map = |name: &str, n_in, n_out, has_bias| {
            linear(&format!("{at}.{name}"), n_in, n_out, has_bias)
        };
        let norm = |name: &str| {
            let name = format!("{at}.{name}");
            Some(layer_norm(self.tensors, &name, d_model, EPS))
        };
        let of_head = |name: &str| {
            let norm = layer_norm(self.tensors, &format!("{at}.{name}"), own.d_head, EPS);
            self.qk_norm.then_some(norm)
        };
        let projections = ProjectionSpec {
            q_norm: of_head("self_attn.q_norm"),
            k_norm: of_head("self_attn.k_norm"),
            ..ProjectionSpec::plain(
                map("self_attn.q_proj", d_model, d_q, false),
                map("self_attn.k_proj", d_model, d_kv, false),
                map("self_attn.v_proj", d_model, d_kv, false),
                map("self_attn.o_proj", d_q, d_model, true),
            )
        };
        let mlp = MlpSpec::plain(
            map("mlp.fc1", d_model, d_mlp, true),
            map("mlp.fc2", d_mlp, d_model, true),
            self.activation,
        );
        BlockSpec {
            attn_pre: norm("layer_norm1"),
            mlp_pre: norm("layer_norm2"),
            ..BlockSpec::plain(own.clone(), projections, FeedForward::Dense(Box::new(mlp)))
        }
    }
}
