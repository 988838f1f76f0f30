//! Cohere's speech recognition: Parakeet's encoder, whose output is mapped to the width of Canary's decoder, with stored positions.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{EmbedSpec, ModelSpec, PositionTable, StackSpec, TableSource};

use super::Family;
use super::canary::side;
use super::reading::fast_conformer::{self, Like};
use super::reading::linear;
use super::reading::sound_writer;

pub const FAMILY: Family = Family::own("cohere_asr", "CohereAsr", read)
    .leaving_unread(&["num_batches_tracked", "featurizer.*"]);

/// Names of published files, which are NeMo's, and what they are here.
pub(super) const PUBLISHED: &[(&str, &str)] = &[
    ("encoder.pre_encode.conv.", "encoder.subsampling.layers."),
    ("encoder.pre_encode.out.", "encoder.subsampling.linear."),
    (
        "transf_decoder._embedding.position_embedding.pos_enc",
        "decoder.pos_emb.weight",
    ),
    (
        "transf_decoder._embedding.token_embedding.",
        "decoder.embed_tokens.",
    ),
    (
        "transf_decoder._embedding.layer_norm.",
        "decoder.embedding_layernorm.",
    ),
    ("transf_decoder._decoder.final_layer_norm.", "decoder.norm."),
    ("transf_decoder._decoder.layers.", "decoder.layers."),
    ("encoder_decoder_proj.", "decoder.proj."),
    (".self_attn.linear_q.", ".self_attn.q_proj."),
    (".self_attn.linear_k.", ".self_attn.k_proj."),
    (".self_attn.linear_v.", ".self_attn.v_proj."),
    (".self_attn.linear_out.", ".self_attn.o_proj."),
    (".self_attn.linear_pos.", ".self_attn.relative_k_proj."),
    (".self_attn.pos_bias_u", ".self_attn.bias_u"),
    (".self_attn.pos_bias_v", ".self_attn.bias_v"),
    (".first_sub_layer.", ".self_attn."),
    (".second_sub_layer.", ".encoder_attn."),
    (".query_net.", ".q_proj."),
    (".key_net.", ".k_proj."),
    (".value_net.", ".v_proj."),
    (".out_projection.", ".o_proj."),
    (".third_sub_layer.dense_in.", ".mlp.fc1."),
    (".third_sub_layer.dense_out.", ".mlp.fc2."),
    (".layer_norm_1.", ".input_layernorm."),
    (".layer_norm_2.", ".post_attention_layernorm."),
    (".layer_norm_3.", ".final_layernorm."),
    (".conv.batch_norm.", ".conv.norm."),
    ("log_softmax.mlp.layer0.", "proj_out."),
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let hearing = fast_conformer::stack_of_part(checkpoint, reader, Like::Parakeet)?;
    let (decoder, [d_vocab, n_ctx]) = side(reader, tensors, None)?;
    reader.note(
        "decoder positions",
        format!("stored: {n_ctx}"),
        Origin::Family,
    );
    let (d_model, of_encoder) = (decoder.d_model, hearing.embed.tokens.width);
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{}{name}.weight", decoder.base),
        n_rows,
        width: d_model,
    };
    let map = format!("{}proj", decoder.base);
    let hearing = StackSpec {
        last_map: Some(linear(&map, of_encoder, d_model, true)),
        ..hearing
    };
    let writing = decoder.stack(EmbedSpec {
        positions: Some(PositionTable::Stored(table("pos_emb", n_ctx))),
        norm: Some(decoder.norm("embedding_layernorm")),
        ..EmbedSpec::plain(table("embed_tokens", d_vocab))
    });
    let both = (checkpoint, reader);
    let spec = sound_writer::whole(FAMILY.model_type, both, [hearing, writing], (n_ctx, true))?;
    Ok(ModelSpec { d_model, ..spec })
}
