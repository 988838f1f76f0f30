//! UDOP: T5 whose tokens also have boxes on a page; a text has none, which is read as boxes of zeros.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ConstantRow, ModelSpec, TableSource};
use serde_json::json;

use super::Family;
use super::layoutlm::{NO_BOXES, n_places};
use super::t5::{self, T5Like};

/// Patches of a picture, and biases by distances on a page: equal for all keys of a text without boxes.
pub const FAMILY: Family = Family::own("udop", "Udop", read).leaving_unread(&[
    "patch_embed.*",
    "embed_patches.*",
    "relative_bias.biases.*",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const BIASES: &str = "relative_bias_args";
    let kinds = json!([{"type": "1d"}, {"type": "horizontal"}, {"type": "vertical"}]);
    if let Some(found) = reader.value(BIASES).filter(|found| **found != kinds) {
        let problem = format!("expected {kinds}, found {found}");
        return Err(Error::config(reader.path(), BIASES, problem));
    }
    for key in ["image_size", "patch_size", "num_channels"] {
        reader.value(key);
    }
    let like = T5Like {
        family: FAMILY.model_type,
        gated_gelu: "gelu",
        encoder_buckets: Some("encoder.relative_bias.biases.0.relative_attention_bias.weight"),
        ..T5Like::PLAIN
    };
    let mut spec = t5::read_as(checkpoint, reader, like)?;
    let (n_rows, width) = (n_places(reader)?, spec.d_model);
    let constant = |side: &str| ConstantRow {
        table: TableSource {
            tensor: format!("encoder.cell_2d_embedding.{side}_position_embeddings.weight"),
            n_rows,
            width,
        },
        // Both edges of a box are looked up in the same table.
        row: 0,
        columns: vec![0, 0],
    };
    spec.stacks[0].embed.constants = ["x", "y"].map(constant).to_vec();
    reader.remark(NO_BOXES.to_owned());
    Ok(spec)
}
