//! The decoder of Pix2Struct: T5 1.1's, which runs alone without its cross-attention.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::expected::{Expected, check};
use super::t5::{self, Alone, T5Like};

/// Cross-attention is stored, and does not run.
pub const FAMILY: Family = Family::own("pix2struct_text_model", "Pix2StructText", read)
    .leaving_unread(&[".encoder_decoder_attention.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let spec = read_as(FAMILY.model_type, checkpoint, reader, false)?;
    reader.remark("the decoder runs without a picture: its cross-attention is left out".to_owned());
    Ok(spec)
}

/// Reads the decoder behind an encoder.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_behind(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
) -> Result<ModelSpec> {
    read_as(family, checkpoint, reader, true)
}

fn read_as(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    crosses: bool,
) -> Result<ModelSpec> {
    check(reader, &[("is_decoder", Expected::Flag(true))])?;
    for key in ["decoder_start_token_id", "add_cross_attention"] {
        reader.value(key);
    }
    let like = T5Like {
        family,
        feed_forward: ("feed_forward_proj", "gated-gelu"),
        activation: Some(("dense_act_fn", "gelu_new")),
        scales_tied: false,
        decoder_alone: Some(Alone { crosses }),
        ..T5Like::PLAIN
    };
    let spec = t5::read_as(checkpoint, reader, like)?;
    if let Some(own) = spec
        .main_stack()
        .blocks()
        .first()
        .and_then(|block| block.own())
        && own.projections.q.n_out() != spec.d_model
    {
        let problem = format!(
            "expected {}, d_model / n_heads, found {}",
            spec.d_model / own.attention.n_heads,
            own.attention.d_head
        );
        return Err(Error::config(reader.path(), "d_kv", problem));
    }
    Ok(spec)
}
