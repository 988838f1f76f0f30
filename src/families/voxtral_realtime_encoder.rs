//! The encoder of Voxtral Realtime: convolutions over frames that read nothing later, and Llama's blocks with Whisper's names.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Mask, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::{BandNorm, Ends, Mel, SoundRule, Steps};
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, MlpSpec, ModelSpec, ProjectionSpec, SoundStem, StackSpec,
    StemConvolution, TableSource,
};

use super::Family;
use super::reading::extractor::Extractor;
use super::reading::rope::{RopeRule, rope};
use super::reading::spectrograms::{heard_in_steps, whisper};
use super::reading::{
    activation, activation_named, check_groups, linear, note_attention, prefix, rms_norm,
};

pub const FAMILY: Family = Family::own("voxtral_realtime_encoder", "VoxtralRealtimeEncoder", read);

/// Width of the convolutions, and the frames from one of their outputs to the next.
const N_WIDE: usize = 3;
const STRIDES: [usize; 2] = [1, 2];

/// A block's sizes.
struct Block<'a> {
    tensors: &'a Tensors,
    d_model: usize,
    d_mlp: usize,
    eps: f64,
    activation: Activation,
    attention: AttentionSpec,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "num_attention_heads";
    const KV_HEADS: &str = "num_key_value_heads";
    const WIDTH: &str = "head_dim";
    const BACK: &str = "sliding_window";
    let tensors = &checkpoint.tensors;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", HEADS)?;
    let same = Origin::Derived("n_heads".to_owned());
    let n_kv_heads = reader.size_or("n_kv_heads", KV_HEADS, n_heads, same)?;
    check_groups(reader, n_heads, n_kv_heads, KV_HEADS)?;
    let d_head = reader.size_or("d_head", WIDTH, 64, Origin::Default(WIDTH.to_owned()))?;
    let n_mels = reader.size("n_mels", "num_mel_bins")?;
    let n_positions = reader.size("n_positions", "max_position_embeddings")?;
    let eps = reader.number_or("norm_eps", "rms_norm_eps", 1e-5)?;
    let activation = activation(reader, "hidden_act", "silu")?;
    // Convolutions are followed by GELU, whatever is named; no text is read.
    let named = reader.word_or("stem activation", "activation_function", "gelu")?;
    if activation_named(reader, "activation_function", &named)? != Activation::Gelu {
        let problem = format!("expected \"gelu\", which follows the convolutions, found {named:?}");
        return Err(Error::config(reader.path(), "activation_function", problem));
    }
    reader.value("vocab_size");
    let window = if reader.is_null(BACK) {
        None
    } else {
        let by = Origin::Default(BACK.to_owned());
        Some(Window::Back(reader.size_or("window", BACK, 750, by)?))
    };
    let plain = AttentionSpec::plain(n_heads, n_kv_heads, d_head, true);
    let block = Block {
        tensors,
        d_model,
        d_mlp,
        eps,
        activation,
        attention: AttentionSpec {
            rope: Some(rope(reader, RopeRule::plain(d_head, n_positions))?),
            mask: Mask {
                window,
                ..plain.mask
            },
            ..plain
        },
    };
    note_attention(reader, &block.attention, Origin::Family);
    let bases = ["audio_tower.", "model.audio_tower.", ""];
    let base = prefix(tensors, &bases, "embedder.conv1.weight");
    let rule = rule(checkpoint, reader, n_mels)?;
    let convolution = |nth: usize| StemConvolution {
        weight: format!("{base}embedder.conv{}.weight", nth + 1),
        bias: Some(format!("{base}embedder.conv{}.bias", nth + 1)),
        n_in: if nth == 0 { n_mels } else { d_model },
        n_out: d_model,
        is_gated: false,
        n_wide: N_WIDE,
        stride: STRIDES[nth],
        padding: [N_WIDE - STRIDES[nth], 0],
        norm: None,
        activation: None,
        last_norm: None,
    };
    let places = TableSource {
        tensor: format!("{base}embedder.conv1.weight"),
        n_rows: rule.n_positions(),
        width: d_model,
    };
    let embed = EmbedSpec {
        sound: Some(Box::new(SoundStem {
            convolutions: (0..STRIDES.len()).map(convolution).collect(),
            ..SoundStem::plain(rule, Activation::Gelu)
        })),
        ..EmbedSpec::plain(places)
    };
    let blocks = (0..n_layers).map(|layer_idx| block.read(&format!("{base}layers.{layer_idx}")));
    let last = rms_norm(format!("{base}norm.weight"), d_model, eps);
    let stack = StackSpec::only(embed, blocks.collect(), Some(last));
    Ok(ModelSpec::of_one_stack(FAMILY.model_type, stack, None))
}

impl Block<'_> {
    fn read(&self, at: &str) -> BlockSpec {
        let (d_model, d_mlp, own) = (self.d_model, self.d_mlp, &self.attention);
        let [d_q, d_kv] = [own.n_heads, own.n_kv_heads].map(|n| n * own.d_head);
        let map = |name: &str, n_in, n_out| {
            let name = format!("{at}.{name}");
            let has_bias = self.tensors.contains(&format!("{name}.bias"));
            linear(&name, n_in, n_out, has_bias)
        };
        let norm = |name: &str| Some(rms_norm(format!("{at}.{name}.weight"), d_model, self.eps));
        let projections = ProjectionSpec::plain(
            map("self_attn.q_proj", d_model, d_q),
            map("self_attn.k_proj", d_model, d_kv),
            map("self_attn.v_proj", d_model, d_kv),
            map("self_attn.o_proj", d_q, d_model),
        );
        let mlp = MlpSpec {
            gate: Some(map("mlp.gate_proj", d_model, d_mlp)),
            ..MlpSpec::plain(
                map("mlp.up_proj", d_model, d_mlp),
                map("mlp.down_proj", d_mlp, d_model),
                self.activation,
            )
        };
        BlockSpec {
            attn_pre: norm("self_attn_layer_norm"),
            mlp_pre: norm("final_layer_norm"),
            ..BlockSpec::plain(own.clone(), projections, FeedForward::Dense(Box::new(mlp)))
        }
    }
}

/// How a sound becomes frames, whose largest value is taken to be a number, and those positions.
fn rule(checkpoint: &Checkpoint, reader: &mut Reader<'_>, n_mels: usize) -> Result<SoundRule> {
    const LARGEST: &str = "global_log_mel_max";
    let extractor = Extractor::of(checkpoint, reader);
    let rule = whisper(&extractor, reader, n_mels)?;
    let wide = extractor.size("win_length", rule.n_window, rule.n_window.max(1))?;
    if wide != rule.n_window {
        let problem = format!("expected n_fft, {}, found {wide}", rule.n_window);
        return Err(extractor.error("win_length", problem));
    }
    let norm = if extractor.is_null(LARGEST) {
        BandNorm::Whisper
    } else {
        let largest = extractor.number(LARGEST, 1.5, 1e6)?;
        BandNorm::WhisperBelow((largest * 1e9).round() as i64)
    };
    let rule = SoundRule {
        mel: Mel {
            ends: Ends::Mirrored,
            norm,
            ..rule.mel
        },
        ..rule
    };
    let step = |stride: usize| [N_WIDE, stride, N_WIDE - stride];
    let steps = Steps::of(STRIDES.map(step));
    heard_in_steps(&extractor, reader, rule, (steps, 2), None)
}
