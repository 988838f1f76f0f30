//! Whisper: a spectrogram through two convolutions into an encoder, and a decoder that attends to it; keys have no bias.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Mask, Window};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_prompt::{PositionRule, SoundRule};
use attnscope_spec::{
    BlockSpec, CrossSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec,
    NormSource, PositionTable, ProjectionSpec, SoundStem, Stack, StackSpec, StemConvolution,
    TableSource,
};

use super::Family;
use super::reading::speech::{Generation, sound_rule};
use super::reading::tasks::refuse_classes;
use super::reading::{
    activation, even_heads, layer_norm, linear, note_attention, prefix, tied_head,
};

pub const FAMILY: Family = Family::own("whisper", "Whisper", read);

/// Fixed; no configuration states it.
const EPS: f64 = 1e-5;

/// Kernel width of each convolution, and their strides.
const N_WIDE: usize = 3;

pub(super) const STRIDES: [usize; 2] = [1, 2];

/// Sizes of the encoder or the decoder.
pub(super) struct Side<'a> {
    pub tensors: &'a Tensors,
    /// What the names of its tensors begin with.
    pub base: String,
    pub stack: Stack,
    pub n_layers: usize,
    pub n_heads: usize,
    pub d_model: usize,
    pub d_head: usize,
    pub d_mlp: usize,
    pub n_positions: usize,
    pub activation: Activation,
    pub keys_have_bias: bool,
    pub window: Option<Window>,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    refuse_classes(
        reader,
        &["ForCausalLM", "ForAudioClassification"],
        "a class with an encoder of sound and a decoder, such as WhisperForConditionalGeneration or WhisperModel",
        "has one of them alone, which is not read",
    )?;
    let tensors = &checkpoint.tensors;
    let d_model = reader.size("d_model", "d_model")?;
    let n_mels = reader.size("n_mels", "num_mel_bins")?;
    let n_source = reader.size("source positions", "max_source_positions")?;
    let activation = activation(reader, "activation_function", "gelu")?;
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    if reader.flag_quietly("scale_embedding")? {
        let said =
            "scale_embedding is set: as in transformers, Whisper does not scale its embeddings";
        reader.remark(said.to_owned());
    }
    let base = prefix(tensors, &["model.", ""], "encoder.conv1.weight");
    let words = format!("{base}decoder.embed_tokens.weight");
    let hears_only = !tensors.contains(&words);
    let rule = sound_rule(
        checkpoint,
        reader,
        n_mels,
        [n_source, STRIDES.iter().product()],
    )?;
    let (both, width) = ((tensors, base), (d_model, activation));
    let encoder = Side::read(reader, both, Stack::Encoder, width, n_source)?;
    let hearing = encoder.stack(encoder.hears(rule));
    if hears_only {
        // Of a decoder.
        for key in ["vocab_size", "max_target_positions"] {
            reader.value(key);
        }
        let positions = format!("stored: {n_source} of sound");
        reader.note("positions", positions, Origin::Family);
        let pools = reader.flag_or("pools_pairs", "pools_pairs", false)?;
        if pools {
            reader.remark(
                "the rows are those of the last block: the mean of each two of them and the norm that follow are not read"
                    .to_owned(),
            );
        }
        let of_encoder = encoder.attention(false);
        note_attention(reader, &of_encoder, Origin::Family);
        let origin = Origin::Derived("tensor names".to_owned());
        reader.note("half", "encoder alone", origin);
        let stack = StackSpec {
            stack: Stack::Only,
            final_norm: hearing.final_norm.clone().filter(|_| !pools),
            ..hearing
        };
        return Ok(ModelSpec {
            n_ctx: Some(n_source),
            ..ModelSpec::of_one_stack("whisper", stack, None)
        });
    }
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let n_ctx = reader.size("n_ctx", "max_target_positions")?;
    let positions = format!("stored: {n_source} of sound, {n_ctx} of text");
    reader.note("positions", positions, Origin::Family);
    let words = TableSource {
        tensor: words,
        n_rows: d_vocab,
        width: d_model,
    };
    let decoder = Side::read(reader, both, Stack::Decoder, width, n_ctx)?;
    note_attention(reader, &decoder.attention(true), Origin::Family);
    let generation = Generation::of(checkpoint);
    let start = generation.start(reader, d_vocab)?;
    let timing = generation.timing(reader, [decoder.n_layers, decoder.n_heads]);
    let weight = tied_head(reader, tensors, &["proj_out.weight"], &words.tensor, true)?;
    let head = HeadSpec::plain(LinearSource::whole(weight, None, d_model, d_vocab));
    let writing = decoder.stack(EmbedSpec {
        positions: Some(decoder.positions()),
        ..EmbedSpec::plain(words)
    });
    Ok(ModelSpec {
        d_vocab,
        n_ctx: Some(n_ctx),
        positions: PositionRule::Index,
        is_causal_lm: true,
        decoder_start: Some(start),
        timing,
        stacks: vec![hearing.clone(), writing],
        ..ModelSpec::of_one_stack("whisper", hearing, Some(head))
    })
}

/// The convolutions whose tensors begin with `base`: one with stride 1, then one with stride 2.
pub(super) fn stem(base: &str, d_model: usize, rule: SoundRule) -> SoundStem {
    let convolution = |(nth, stride): (usize, usize)| StemConvolution {
        weight: format!("{base}conv{}.weight", nth + 1),
        bias: Some(format!("{base}conv{}.bias", nth + 1)),
        n_in: if nth == 0 { rule.n_mels } else { d_model },
        n_out: d_model,
        is_gated: false,
        n_wide: N_WIDE,
        stride,
        padding: [N_WIDE / 2; 2],
        norm: None,
        activation: None,
        last_norm: None,
    };
    SoundStem {
        convolutions: STRIDES.into_iter().enumerate().map(convolution).collect(),
        ..SoundStem::plain(rule, Activation::Gelu)
    }
}

impl<'a> Side<'a> {
    fn read(
        reader: &mut Reader<'_>,
        (tensors, base): (&'a Tensors, &str),
        stack: Stack,
        (d_model, activation): (usize, Activation),
        n_positions: usize,
    ) -> Result<Self> {
        let (name, knobs) = if stack == Stack::Encoder {
            ("encoder", ["encoder n_heads", "encoder d_mlp"])
        } else {
            ("decoder", ["decoder n_heads", "decoder d_mlp"])
        };
        let heads = format!("{name}_attention_heads");
        let n_layers = reader.layers(&format!("{name}_layers"))?;
        let n_heads = reader.size(knobs[0], &heads)?;
        Ok(Self {
            tensors,
            base: format!("{base}{name}."),
            stack,
            n_layers,
            n_heads,
            d_model,
            d_head: even_heads(reader, &heads, d_model, n_heads)?,
            d_mlp: reader.size(knobs[1], &format!("{name}_ffn_dim"))?,
            n_positions,
            activation,
            keys_have_bias: false,
            window: None,
        })
    }

    pub fn attention(&self, is_causal: bool) -> AttentionSpec {
        let plain = AttentionSpec::plain(self.n_heads, self.n_heads, self.d_head, is_causal);
        AttentionSpec {
            mask: Mask {
                window: self.window,
                ..plain.mask
            },
            ..plain
        }
    }

    fn positions(&self) -> PositionTable {
        PositionTable::Stored(TableSource {
            tensor: format!("{}embed_positions.weight", self.base),
            n_rows: self.n_positions,
            width: self.d_model,
        })
    }

    /// The embedding of sound: a convolution with stride 1, then one with stride 2.
    fn hears(&self, rule: SoundRule) -> EmbedSpec {
        let places = TableSource {
            tensor: format!("{}conv1.weight", self.base),
            n_rows: self.n_positions,
            width: self.d_model,
        };
        EmbedSpec {
            sound: Some(Box::new(stem(&self.base, self.d_model, rule))),
            positions: Some(self.positions()),
            ..EmbedSpec::plain(places)
        }
    }

    pub fn norm(&self, name: &str) -> NormSource {
        layer_norm(
            self.tensors,
            &format!("{}{name}", self.base),
            self.d_model,
            EPS,
        )
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let d = self.d_model;
        let one = |name: &str| {
            linear(
                &format!("{}{at}.{name}", self.base),
                d,
                d,
                self.keys_have_bias || name != "k_proj",
            )
        };
        ProjectionSpec::plain(one("q_proj"), one("k_proj"), one("v_proj"), one("out_proj"))
    }

    fn block(&self, layer_idx: usize) -> BlockSpec {
        let at = format!("layers.{layer_idx}");
        let is_decoder = self.stack == Stack::Decoder;
        let map = |name: &str, n_in: usize, n_out: usize| {
            linear(&format!("{}{at}.{name}", self.base), n_in, n_out, true)
        };
        let mlp = MlpSpec::plain(
            map("fc1", self.d_model, self.d_mlp),
            map("fc2", self.d_mlp, self.d_model),
            self.activation,
        );
        let cross = is_decoder.then(|| {
            let attention = AttentionSpec {
                is_cross: true,
                ..self.attention(false)
            };
            Box::new(CrossSpec {
                pre: Some(self.norm(&format!("{at}.encoder_attn_layer_norm"))),
                ..CrossSpec::plain(attention, self.projections(&format!("{at}.encoder_attn")))
            })
        });
        let projections = self.projections(&format!("{at}.self_attn"));
        BlockSpec {
            attn_pre: Some(self.norm(&format!("{at}.self_attn_layer_norm"))),
            cross,
            mlp_pre: Some(self.norm(&format!("{at}.final_layer_norm"))),
            ..BlockSpec::plain(
                self.attention(is_decoder),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    }

    pub fn stack(&self, embed: EmbedSpec) -> StackSpec {
        let blocks = (0..self.n_layers).map(|layer_idx| self.block(layer_idx));
        StackSpec {
            stack: self.stack,
            ..StackSpec::only(embed, blocks.collect(), Some(self.norm("layer_norm")))
        }
    }
}
