//! Moonshine Streaming: an encoder without positions, which are added to what its decoder looks at.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{
    AddedPlaces, EmbedSpec, LinearSource, ModelSpec, PlaceRows, Stack, TableSource,
};

use super::reading::rope::{RopeRule, rope};
use super::reading::sound_writer::{self, Side};
use super::reading::{activation, equal_heads, note_attention, prefix};
use super::{Family, moonshine_streaming_encoder};

pub const FAMILY: Family =
    Family::own("moonshine_streaming", "MoonshineStreaming", read).leaving_unread(&["embedder.*"]);

/// The share of a head that turns, if the configuration does not state it.
const TURNING: f64 = 0.8;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const ENCODER: &str = "encoder_config";
    const HEADS: [&str; 2] = ["num_attention_heads", "num_key_value_heads"];
    let tensors = &checkpoint.tensors;
    let config = reader.part(ENCODER);
    let mut inner = Reader::new(&config);
    let encoder = moonshine_streaming_encoder::read(checkpoint, &mut inner)?;
    reader.absorb(ENCODER, inner);
    reader.value("is_encoder_decoder");
    // Zeros that heads are padded with change nothing but the speed.
    reader.value("pad_head_dim_to_multiple_of");
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let n_layers = reader.layers("num_hidden_layers")?;
    let knobs = ["n_heads", "n_kv_heads"];
    let [n_heads, even] = equal_heads(reader, HEADS, knobs, d_model)?;
    let by = Origin::Derived("d_model / n_heads".to_owned());
    let d_head = reader.size_or("d_head", "head_dim", even, by)?;
    let rule = RopeRule {
        share: TURNING,
        share_key: Some("partial_rotary_factor"),
        interleaved: true,
        ..RopeRule::plain(d_head, n_ctx)
    };
    let base = prefix(tensors, &["model.", ""], "decoder.pos_emb.weight");
    let writing = Side {
        tensors,
        base: format!("{base}decoder."),
        stack: Stack::Decoder,
        n_layers,
        n_heads,
        n_kv_heads: n_heads,
        d_head,
        d_model,
        d_mlp,
        activation: activation(reader, "hidden_act", "silu")?,
        has_bias: reader.flag_or("attention_bias", "attention_bias", false)?,
        output_has_bias: false,
        norms_have_bias: false,
        is_gated: true,
        rope: Some(rope(reader, rule)?),
        last_norm: "norm",
    };
    note_attention(reader, &writing.attention(), Origin::Family);
    let mut decoder = writing.stack(EmbedSpec::plain(TableSource {
        tensor: format!("{base}decoder.embed_tokens.weight"),
        n_rows: d_vocab,
        width: d_model,
    }));
    let table = TableSource {
        tensor: format!("{base}decoder.pos_emb.weight"),
        n_rows: n_ctx,
        width: encoder.d_model,
    };
    let mut hearing = encoder.stacks[0].clone();
    // What has no bias maps a sum as it maps both of its parts.
    let map = (encoder.d_model != d_model).then(|| {
        let weight = format!("{base}decoder.proj.weight");
        LinearSource::whole(weight, None, encoder.d_model, d_model)
    });
    let places = match map.clone() {
        Some(map) => PlaceRows::Mapped(table, Box::new(map)),
        None => PlaceRows::Stored(table),
    };
    hearing.last_map = map;
    for block in decoder.blocks_mut() {
        if let Some(cross) = &mut block.cross {
            cross.projections.places = Some(Box::new(AddedPlaces {
                of_queries: None,
                of_keys: Some(places.clone()),
                reach_values: true,
            }));
        }
    }
    reader.note(
        "source_positions",
        "learned, added to what the decoder looks at",
        Origin::Family,
    );
    let both = (checkpoint, reader);
    let spec = sound_writer::whole(FAMILY.model_type, both, [hearing, decoder], (n_ctx, false))?;
    Ok(ModelSpec { d_model, ..spec })
}
