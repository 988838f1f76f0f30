//! LayoutLMv3, its texts alone: RoBERTa whose tokens have boxes on a page, with a learned bias by distance in words.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{Bias, Buckets};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, ModelSpec, TableSource};

use super::layoutlm::{NO_BOXES, n_places, row};
use super::reading::bert_like::{self, BertLike};
use super::reading::note_bias;
use super::{Family, roberta};

pub const FAMILY: Family = Family::own("layoutlmv3", "LayoutLMv3", read).leaving_unread(&[
    "patch_embed.proj.weight",
    "patch_embed.proj.bias",
    "cls_token",
    "pos_embed",
    "layoutlmv3.norm.weight",
    "layoutlmv3.norm.bias",
    "layoutlmv3.LayerNorm.weight",
    "layoutlmv3.LayerNorm.bias",
    // Boxes of zeros have no distances: the bias is the same for all keys.
    "rel_pos_x_bias.weight",
    "rel_pos_y_bias.weight",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const TEXT: &str = "text_embed";
    if !reader.flag_or("reads_text", TEXT, true)? {
        let problem = "expected true: of this family, texts are read, found false";
        return Err(Error::config(reader.path(), TEXT, problem));
    }
    let like = BertLike {
        eps: 1e-5,
        may_decode: false,
        ..roberta::like("layoutlmv3.")
    };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    boxes(reader, &mut spec)?;
    distances(reader, &mut spec)?;
    reader.value("has_spatial_attention_bias");
    reader.remark(format!("{NO_BOXES}, and there is no picture"));
    Ok(spec)
}

/// Edges and sides of a box stand beside each other in a row.
fn boxes(reader: &mut Reader<'_>, spec: &mut ModelSpec) -> Result<()> {
    const KEYS: [&str; 2] = ["coordinate_size", "shape_size"];
    let mut size =
        |key: &'static str| reader.size_or(key, key, 128, Origin::Default(key.to_owned()));
    let (edge, side) = (size(KEYS[0])?, size(KEYS[1])?);
    let n_rows = n_places(reader)?;
    if 4 * edge + 2 * side != spec.d_model {
        let problem = format!(
            "expected four times it and twice {} to be hidden_size, {}, found {edge} and {side}",
            KEYS[1], spec.d_model
        );
        return Err(Error::config(reader.path(), KEYS[0], problem));
    }
    let constants = vec![
        row(spec, "x", (n_rows, edge), vec![0, 2 * edge]),
        row(spec, "y", (n_rows, edge), vec![edge, 3 * edge]),
        row(spec, "h", (n_rows, side), vec![4 * edge]),
        row(spec, "w", (n_rows, side), vec![4 * edge + side]),
    ];
    spec.stacks[0].embed.constants = constants;
    Ok(())
}

/// The bias by distance, which all layers share.
fn distances(reader: &mut Reader<'_>, spec: &mut ModelSpec) -> Result<()> {
    if !reader.flag_or("has_distance_bias", "has_relative_attention_bias", true)? {
        return Ok(());
    }
    let (bins, far) = ("rel_pos_bins", "max_rel_pos");
    let n_buckets = reader.size_or("n_buckets", bins, 32, Origin::Default(bins.to_owned()))?;
    let furthest = reader.size_or("max_distance", far, 128, Origin::Default(far.to_owned()))?;
    if n_buckets < 4 || furthest <= n_buckets / 4 {
        let problem = format!(
            "expected at least 4 buckets, and more than a quarter as many keys to the furthest, found {n_buckets} and {furthest}"
        );
        return Err(Error::config(reader.path(), bins, problem));
    }
    note_bias(reader, "learned, by buckets of distance");
    let stack = &mut spec.stacks[0];
    let words = &stack.embed.tokens.tensor;
    let base = words.trim_end_matches("embeddings.word_embeddings.weight");
    let tensor = format!("{base}encoder.rel_pos_bias.weight");
    let mut n_heads = 1;
    for own in stack.blocks_mut().iter_mut().filter_map(BlockSpec::own_mut) {
        n_heads = own.attention.n_heads;
        own.attention.bias = Bias::Buckets(Buckets {
            is_scaled: true,
            is_by_head: true,
            ..Buckets::plain(n_buckets, furthest, true)
        });
    }
    stack.bucket_values = Some(TableSource {
        tensor,
        n_rows: n_heads,
        width: n_buckets,
    });
    Ok(())
}
