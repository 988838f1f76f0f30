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
use super::reading::rope::{RopeRule, rope};
use super::reading::{
    activation, check_groups, even_heads, layer_norm, linear, note_attention, prefix,
};

pub const FAMILY: Family = Family::own(
    "nemotron3_diarization_audio",
    "Nemotron3DiarizationAudio",
    read,
);

/// Epsilon of all norms; no configuration states it.
const EPS: f64 = 1e-5;

/// A block's sizes.
struct Block<'a> {
    tensors: &'a Tensors,
    d_model: usize,
    d_mlp: usize,
    activation: Activation,
    attention: AttentionSpec,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "num_attention_heads";
    const KV_HEADS: &str = "num_key_value_heads";
    const JOINED: &str = "subsampling_factor";
    let tensors = &checkpoint.tensors;
    let default = |key: &str| Origin::Default(key.to_owned());
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
    let n_mels = reader.size_or("n_mels", "num_mel_bins", 128, default("num_mel_bins"))?;
    let n_joined = reader.size_or("frames_per_position", JOINED, 8, default(JOINED))?;
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
    };
    note_attention(reader, &block.attention, Origin::Family);
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    let bases = ["model.audio_tower.", "audio_tower.", ""];
    let base = prefix(tensors, &bases, "embedder.projection.weight");
    // Zeros follow a last row of fewer frames.
    let steps = [[n_joined, n_joined, n_joined - 1]];
    let rule = fast_conformer::rule(
        checkpoint,
        reader,
        Like::Streaming,
        (n_mels, n_positions),
        (&steps, n_joined),
    )?;
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
    let norm = |name: &str| layer_norm(tensors, &format!("{base}{name}"), d_model, EPS);
    let embed = EmbedSpec {
        sound: Some(Box::new(SoundStem {
            end: Some(Box::new(StemEnd::map(map))),
            ..SoundStem::plain(rule, Activation::Identity)
        })),
        norm: Some(norm("input_layer_norm")),
        ..EmbedSpec::plain(places)
    };
    let blocks = (0..n_layers).map(|layer_idx| block.read(&format!("{base}layers.{layer_idx}")));
    let stack = StackSpec::only(embed, blocks.collect(), Some(norm("layer_norm")));
    Ok(ModelSpec::of_one_stack(FAMILY.model_type, stack, None))
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
        let projections = ProjectionSpec::plain(
            map("self_attn.q_proj", d_model, d_q, false),
            map("self_attn.k_proj", d_model, d_kv, false),
            map("self_attn.v_proj", d_model, d_kv, false),
            map("self_attn.o_proj", d_q, d_model, true),
        );
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
