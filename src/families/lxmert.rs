//! LXMERT's layers of text alone: BERT. Those that text and regions of a picture share, and those of regions, are not read, and so neither is
//! the head behind them.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::bert_like::{self, BertLike};
use super::{Family, bert};

pub const FAMILY: Family = Family::own("lxmert", "Lxmert", read).leaving_unread(&[
    "encoder.x_layers.*",
    "encoder.r_layers.*",
    "encoder.visn_fc.*",
    "pooler.*",
    "cls.*",
    "obj_predict_head.*",
    "answer_head.*",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    for key in [
        "n_layers_of_all",
        "x_layers",
        "r_layers",
        "visual_feat_dim",
        "visual_pos_dim",
        "visual_loss_normalizer",
    ] {
        reader.value(key);
    }
    let like = BertLike {
        may_decode: false,
        ..BertLike::plain("lxmert.", bert::HEAD)
    };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    spec.head = None;
    reader.forget(&["head"]);
    reader.remark(
        "the layers of text alone are read: what text and regions of a picture make of each other is not"
            .to_owned(),
    );
    Ok(spec)
}
