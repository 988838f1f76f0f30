//! The decoder of Dia: what it reads of an encoder of text is given as rows.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, Stack, StackSpec};

use super::reading::given_rows;
use super::{Family, dia};

pub const FAMILY: Family = Family::own("dia_decoder", "DiaDecoder", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut decoder = dia::side(checkpoint, reader, "", true)?;
    let (start, n_channels, d_encoder) = dia::complete(reader, "", &mut decoder)?;
    reader.value("is_encoder_decoder");
    given_rows::remark(reader, "the encoder");
    reader.remark(dia::silent(n_channels));
    let first = "layers.0.cross_attention.k_proj.weight".to_owned();
    let hearing = given_rows::encoder(first, d_encoder);
    let writing = StackSpec {
        stack: Stack::Decoder,
        ..decoder.stacks[0].clone()
    };
    Ok(ModelSpec {
        d_vocab: decoder.d_vocab,
        n_ctx: decoder.n_ctx,
        is_causal_lm: false,
        decoder_start: Some(start),
        stacks: vec![hearing.clone(), writing],
        ..ModelSpec::of_one_stack(FAMILY.model_type, hearing, None)
    })
}
