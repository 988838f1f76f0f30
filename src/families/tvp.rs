//! TVP: BERT's layers over learned rows, a text and the places of a video. What makes these rows is not read.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::bert_like::{self, BertLike, Names};
use super::reading::given_rows;
use super::{Family, bert};

pub const FAMILY: Family = Family::own("tvp", "Tvp", read).leaving_unread(&[
    "embeddings.*",
    "pooler.*",
    "text_prompt",
    "video_grounding_head.*",
    "vision_model.*",
    "visual_prompter.*",
]);

/// Keys of what makes rows, and of training.
const ASIDE: [&str; 9] = [
    "backbone_config",
    "distance_loss_weight",
    "duration_loss_weight",
    "max_grid_col_position_embeddings",
    "max_grid_row_position_embeddings",
    "max_img_size",
    "num_frames",
    "visual_prompt_size",
    "visual_prompter_apply",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BertLike {
        embed_norm: None,
        names: Names {
            q: "attention.query",
            k: "attention.key",
            v: "attention.value",
            o: "attention.dense",
            attn_norm: "attention.layer_norm",
            mlp_norm: "output.layer_norm",
            ..Names::BERT
        },
        may_decode: false,
        ..BertLike::plain("model.", bert::HEAD)
    };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    for key in ASIDE.into_iter().chain(["visual_prompter_type"]) {
        reader.value(key);
    }
    reader.forget(&["d_vocab", "head", "n_positions", "n_token_types"]);
    given_rows::remark(
        reader,
        "its learned prompt, the embeddings of a text, and those of the places of a video",
    );
    spec.n_ctx = None;
    spec.head = None;
    let stack = &mut spec.stacks[0];
    let first = stack.blocks().first().and_then(|block| block.own());
    let tensor = first.map(|own| own.projections.q.weight.clone());
    stack.embed = given_rows::embed(tensor.unwrap_or_default(), spec.d_model);
    spec.d_vocab = spec.d_model;
    Ok(spec)
}
