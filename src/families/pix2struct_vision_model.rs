//! Pix2Struct's encoder of pictures: patches of a picture whose own mean is subtracted, positions of rows and of columns, scores that are not
//! scaled, RMSNorm and gates.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::attention::Scale;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Biases, Kernel, Keys, Lines, MlpKey, Names, OF_MOST, OF_VIT, Pictures, Reads, VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("pix2struct_vision_model", "Pix2StructVision", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let widths = ("d_ff", "d_kv");
    let lines = ("seq_len", Processor::PIX2STRUCT);
    let mut spec = read_as(FAMILY.model_type, checkpoint, reader, (widths, lines))?;
    for block in spec.stacks[0].blocks_mut() {
        if let Some(own) = block.own_mut() {
            own.attention.scale = Scale::One;
        }
    }
    Ok(spec)
}

/// Reads an encoder like Pix2Struct's, with these keys of widths and of the number of lines.
///
/// # Errors
/// When a value of the configuration is impossible.
pub(super) fn read_as(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    ((d_mlp, d_head), (n_lines, processor)): (
        (&'static str, &'static str),
        (&'static str, Processor),
    ),
) -> Result<ModelSpec> {
    const PATCH: &str = "patch_embed_hidden_size";
    let n_values = reader.count_or(PATCH, PATCH, 768)?;
    let side = (n_values / 3).isqrt();
    if side == 0 || 3 * side * side != n_values {
        let problem = format!("expected the values of a square of three colours, found {n_values}");
        return Err(Error::config(reader.path(), PATCH, problem));
    }
    let like = VitLike {
        keys: Keys {
            d_mlp: MlpKey::Width(d_mlp),
            activation: "dense_act_fn",
            aside: &[
                "dropout_rate",
                "initializer_factor",
                "relative_attention_num_buckets",
                "relative_attention_max_distance",
            ],
            ..OF_MOST
        },
        eps: 1e-6,
        activation: "gelu_new",
        norm: NormKind::RmsNorm,
        names: Names {
            q: "attention.query",
            k: "attention.key",
            v: "attention.value",
            o: "attention.output",
            norms: ["pre_attention_layer_norm", "pre_mlp_layer_norm"],
            up: "mlp.wi_1",
            gate: Some("mlp.wi_0"),
            down: "mlp.wo",
            biases: Biases::Stored,
            ..OF_VIT
        },
        reads: Reads::Pictures(Pictures {
            kernel: "embeddings.patch_projection.weight",
            form: Kernel::FlatChannelsLast,
            class: None,
            positions: None,
            lines: Some(Lines {
                tensors: [
                    "embeddings.row_embedder.weight",
                    "embeddings.column_embedder.weight",
                ],
                n: (n_lines, 4096),
                first: 1,
            }),
            area: Some(processor.size),
            patch: side,
            processor,
            ..vit::PICTURES
        }),
        ..vit::like(&["", "encoder.", "vision_model.", "model.vision_model."])
    };
    let spec = vit_like::read(family, checkpoint, reader, like)?;
    let own = spec.main_stack().first_attention();
    let (found, expected) = (
        reader.count_or("d_head", d_head, 64)?,
        own.map_or(64, |own| own.d_head),
    );
    if found != expected {
        let problem =
            format!("expected {expected}, hidden_size / num_attention_heads, found {found}");
        return Err(Error::config(reader.path(), d_head, problem));
    }
    Ok(spec)
}
