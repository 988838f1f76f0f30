//! BROS: BERT for texts on a page; a text alone has all its boxes at one place.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::bert_like::{self, BertLike};
use super::{Family, bert};

pub const FAMILY: Family = Family::own("bros", "Bros", read)
    .leaving_unread(&["bbox_projection.weight", "bbox_sinusoid_emb.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BertLike::plain("bros.", bert::HEAD);
    let spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    // Distances of boxes are 0 then: what they add to the scores of a row is one number, which the softmax takes away.
    for key in [
        "bbox_scale",
        "dim_bbox",
        "dim_bbox_projection",
        "dim_bbox_sinusoid_emb_1d",
        "dim_bbox_sinusoid_emb_2d",
        "n_relations",
    ] {
        reader.value(key);
    }
    reader.remark(
        "a text has no boxes: all stand at one place, and scores are shown without what that adds to a whole row".to_owned(),
    );
    Ok(spec)
}
