//! Gemma 3n's encoder of sound: a Conformer as Gemma 4's, in which keys have no factor and windows may reach ahead.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::ModelSpec;

use super::Family;
use super::gemma4_audio::{Like, Names, read_like};

pub const FAMILY: Family = Family::own("gemma3n_audio", "Gemma3nAudio", read)
    .leaving_unread(&["subsample_conv_projection.*"]);

const LIKE: Like = Like {
    bases: &["", "audio_tower.", "model.audio_tower."],
    keys: "conf_",
    names: Names {
        blocks: "conformer",
        layers: ["ffw_layer_start", "ffw_layer_end"],
        norms: ["attention.pre_attn_norm", "attention.post_norm", "norm"],
        attention: "attention.attn",
        o: "attention.post",
        distances: "attention.attn.relative_position_embedding.pos_proj",
        map: "",
    },
    is_fourth: false,
};

/// Keys of what rows are made of, and of the whole model.
const ASIDE: [&str; 7] = [
    "input_feat_size",
    "sscp_conv_channel_size",
    "sscp_conv_group_norm_eps",
    "sscp_conv_kernel_size",
    "sscp_conv_stride_size",
    "vocab_offset",
    "vocab_size",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const KEPT: &str = "conf_reduction_factor";
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let n = reader.size_or("rows_apart", KEPT, 4, Origin::Default(KEPT.to_owned()))?;
    if n > 1 {
        reader.remark(format!(
            "the model gives one row in {n} of its last layer: all of them are shown"
        ));
    }
    let act = Activation::Silu;
    Ok(read_like(FAMILY.model_type, checkpoint, reader, LIKE, act)?.0)
}
