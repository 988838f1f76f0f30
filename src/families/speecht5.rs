//! SpeechT5 that hears and writes: wav2vec 2.0's convolutions, vectors of distances in the encoder, and BART's kind of decoder.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Bias, Relative};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::PositionRule;
use attnscope_spec::{
    BlockSpec, CrossSpec, DecoderInput, DecoderStart, DistanceRows, EmbedSpec, FeedForward,
    HeadSpec, LinearSource, MlpSpec, ModelSpec, NormSource, PositionTable, ProjectionSpec,
    RelativeSource, Sines, Stack, StackSpec, StemSines, TableSource,
};

use super::Family;
use super::reading::bart_like::decoder_start;
use super::reading::tasks::refuse_classes;
use super::reading::wave_like::{self, WaveLike, WaveNames};
use super::reading::{
    activation, even_heads, layer_norm, linear, note_attention, note_bias, prefix, tied_head,
};

pub const FAMILY: Family =
    Family::own("speecht5", "SpeechT5", read).leaving_unread(&["masked_spec_embed"]);

/// Sizes of the encoder or the decoder.
struct Side<'a> {
    tensors: &'a Tensors,
    /// What the names of its tensors begin with.
    base: String,
    n_layers: usize,
    n_heads: usize,
    d_model: usize,
    d_head: usize,
    d_mlp: usize,
    activation: Activation,
    eps: f64,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    refuse_classes(
        reader,
        &["ForTextToSpeech", "ForSpeechToSpeech"],
        "SpeechT5ForSpeechToText",
        "writes spectrograms, which is not read",
    )?;
    const HEAD: &str = "text_decoder_postnet.lm_head.weight";
    let tensors = &checkpoint.tensors;
    let base = prefix(
        tensors,
        &["speecht5.", ""],
        "decoder.prenet.embed_tokens.weight",
    );
    let words = format!("{base}decoder.prenet.embed_tokens.weight");
    if !tensors.contains(&words) {
        let problem = format!("expected a model that hears and writes, found no {words}");
        return Err(Error::file(reader.path(), problem));
    }
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let n_ctx = reader.size("n_ctx", "max_text_positions")?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?;
    let activation = activation(reader, "hidden_act", "gelu")?;
    let pad = reader.count_or("pad_token", "pad_token_id", 1)?;
    if pad == 0 {
        let problem = "expected a token above 0: positions of sounds are counted from it, found 0";
        return Err(Error::config(reader.path(), "pad_token_id", problem));
    }
    let mut side = |name: &str, inside: &str, knobs: [&'static str; 2]| {
        let heads = format!("{name}_attention_heads");
        let n_layers = reader.layers(&format!("{name}_layers"))?;
        let n_heads = reader.size(knobs[0], &heads)?;
        Ok::<_, Error>(Side {
            tensors,
            base: format!("{base}{name}.{inside}."),
            n_layers,
            n_heads,
            d_model,
            d_head: even_heads(reader, &heads, d_model, n_heads)?,
            d_mlp: reader.size(knobs[1], &format!("{name}_ffn_dim"))?,
            activation,
            eps,
        })
    };
    let encoder = side(
        "encoder",
        "wrapped_encoder",
        ["encoder n_heads", "encoder d_mlp"],
    )?;
    let decoder = side(
        "decoder",
        "wrapped_decoder",
        ["decoder n_heads", "decoder d_mlp"],
    )?;
    const SPAN: &str = "encoder_max_relative_position";
    let span = reader.size_or("bias_span", SPAN, 160, Origin::Default(SPAN.to_owned()))?;
    note_bias(reader, "learned by distance, and multiplied with queries");
    note_attention(reader, &decoder.attention(true), Origin::Family);
    reader.note("positions", "sines and cosines", Origin::Family);
    let hearing = encoder.hears(checkpoint, reader, (base, pad), span)?;
    // Settings of what reads and writes spectrograms.
    for key in ["max_speech_positions", "num_mel_bins", "reduction_factor"] {
        reader.value(key);
    }
    let scales = reader.flag_or("scales_embedding", "scale_embedding", false)?;
    let words = TableSource {
        tensor: words,
        n_rows: d_vocab,
        width: d_model,
    };
    let start = DecoderStart {
        reads_again: DecoderInput::Never,
        ..decoder_start(reader, None, d_vocab)?
    };
    let weight = tied_head(reader, tensors, &[HEAD], &words.tensor, true)?;
    let head = HeadSpec::plain(LinearSource::whole(weight, None, d_model, d_vocab));
    let writing = decoder.writes(EmbedSpec {
        scale: if scales { (d_model as f32).sqrt() } else { 1.0 },
        positions: Some(PositionTable::Sinusoid(Sines::HalvesToEnd)),
        ..EmbedSpec::plain(words)
    });
    Ok(ModelSpec {
        d_vocab,
        n_ctx: Some(n_ctx),
        positions: PositionRule::NotPad { pad: pad as u32 },
        is_causal_lm: true,
        decoder_start: Some(start),
        stacks: vec![hearing.clone(), writing],
        ..ModelSpec::of_one_stack(FAMILY.model_type, hearing, Some(head))
    })
}

impl Side<'_> {
    fn attention(&self, is_causal: bool) -> AttentionSpec {
        AttentionSpec::plain(self.n_heads, self.n_heads, self.d_head, is_causal)
    }

    fn norm(&self, name: &str) -> NormSource {
        let name = format!("{}{name}", self.base);
        layer_norm(self.tensors, &name, self.d_model, self.eps)
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let d = self.d_model;
        let [q, k, v, o] = ["q_proj", "k_proj", "v_proj", "out_proj"]
            .map(|name| linear(&format!("{}{at}.{name}", self.base), d, d, true));
        ProjectionSpec::plain(q, k, v, o)
    }

    fn mlp(&self, at: &str) -> FeedForward {
        let map = |name: &str, n_in, n_out| {
            linear(
                &format!("{}{at}.feed_forward.{name}", self.base),
                n_in,
                n_out,
                true,
            )
        };
        let (d, d_mlp) = (self.d_model, self.d_mlp);
        FeedForward::Dense(Box::new(MlpSpec::plain(
            map("intermediate_dense", d, d_mlp),
            map("output_dense", d_mlp, d),
            self.activation,
        )))
    }

    /// The encoder: norms behind the branches, and distances of so many positions to either side.
    fn hears(
        &self,
        checkpoint: &Checkpoint,
        reader: &mut Reader<'_>,
        (base, pad): (&str, usize),
        span: usize,
    ) -> Result<StackSpec> {
        let usual = WaveLike::usual(&[]);
        let like = WaveLike {
            names: WaveNames {
                convolutions: "feature_encoder.conv_layers",
                positions: "pos_conv_embed",
                ..usual.names
            },
            ..usual
        };
        let place = format!("{base}encoder.prenet.");
        let width = (self.d_model, self.eps);
        let place = (place.as_str(), like);
        let mut stem = wave_like::stem(checkpoint, reader, place, width, self.activation)?;
        if let Some(end) = &mut stem.end {
            end.sines = Some(StemSines {
                order: Sines::HalvesToEnd,
                first: pad + 1,
                scale: 1.0,
            });
        }
        let places = TableSource {
            tensor: stem.convolutions[0].weight.clone(),
            n_rows: stem.rule.n_positions(),
            width: self.d_model,
        };
        let embed = EmbedSpec {
            sound: Some(Box::new(stem)),
            norm: Some(self.norm("layer_norm")),
            ..EmbedSpec::plain(places)
        };
        let attention = AttentionSpec {
            bias: Bias::Relative(Relative {
                span,
                log_until: None,
            }),
            ..self.attention(false)
        };
        let relative = RelativeSource::plain(DistanceRows::Shared {
            table: TableSource {
                tensor: format!("{}embed_positions.pe_k.weight", self.base),
                n_rows: 2 * span,
                width: self.d_head,
            },
            n_heads: self.n_heads,
            middle: span,
            is_reversed: false,
            limits: false,
            span,
        });
        let block = |layer_idx: usize| {
            let at = format!("layers.{layer_idx}");
            let projections = ProjectionSpec {
                relative: Some(Box::new(relative.clone())),
                ..self.projections(&format!("{at}.attention"))
            };
            BlockSpec {
                attn_post: Some(self.norm(&format!("{at}.layer_norm"))),
                mlp_post: Some(self.norm(&format!("{at}.final_layer_norm"))),
                ..BlockSpec::plain(attention.clone(), projections, self.mlp(&at))
            }
        };
        Ok(StackSpec {
            stack: Stack::Encoder,
            ..StackSpec::only(embed, (0..self.n_layers).map(block).collect(), None)
        })
    }

    /// The decoder: norms behind the branches.
    fn writes(&self, embed: EmbedSpec) -> StackSpec {
        let block = |layer_idx: usize| {
            let at = format!("layers.{layer_idx}");
            let post = |name: &str| Some(self.norm(&format!("{at}.{name}")));
            let of_cross = AttentionSpec {
                is_cross: true,
                ..self.attention(false)
            };
            let cross = CrossSpec {
                post: post("encoder_attn_layer_norm"),
                ..CrossSpec::plain(of_cross, self.projections(&format!("{at}.encoder_attn")))
            };
            let projections = self.projections(&format!("{at}.self_attn"));
            BlockSpec {
                attn_post: post("self_attn_layer_norm"),
                cross: Some(Box::new(cross)),
                mlp_post: post("final_layer_norm"),
                ..BlockSpec::plain(self.attention(true), projections, self.mlp(&at))
            }
        };
        StackSpec {
            stack: Stack::Decoder,
            ..StackSpec::only(embed, (0..self.n_layers).map(block).collect(), None)
        }
    }
}
