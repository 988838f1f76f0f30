//! BridgeTower's tower of pictures: CLIP under the names of its first code, with heads of 64 columns. The norm that is shared by the outputs
//! of all its layers is the last one here.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Keys, MlpKey, Names, OF_MOST, OF_QWEN, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, clip_vision_model};

pub const FAMILY: Family = Family::own("bridgetower_vision_model", "BridgeTowerVisionModel", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const WIDTH: &str = "hidden_size";
    const SHARED: &str = "share_layernorm";
    let d_model = reader.size_or("d_model", WIDTH, 768, Origin::Default(WIDTH.to_owned()))?;
    if !d_model.is_multiple_of(64) {
        let problem = format!("expected a multiple of 64, the width of a head, found {d_model}");
        return Err(Error::config(reader.path(), WIDTH, problem));
    }
    if !reader.flag_or(SHARED, SHARED, true)? {
        let problem = "expected true: a norm for the output of every layer is not read";
        return Err(Error::config(reader.path(), SHARED, problem));
    }
    let like = VitLike {
        bases: &[
            "visual.",
            "vision_model.visual.",
            "bridgetower.vision_model.visual.",
        ],
        sizes: Sizes {
            n_heads: d_model / 64,
            ..vit_like::BASE
        },
        keys: Keys {
            // No key states them.
            n_heads: "vision_attention_heads",
            d_mlp: MlpKey::Ratio("vision_mlp_ratio"),
            aside: &["stop_gradient"],
            off: &["remove_last_layer"],
            ..OF_MOST
        },
        names: Names {
            layers: "transformer.resblocks",
            qkv: Some("attn.in_proj"),
            o: "attn.out_proj",
            norms: ["ln_1", "ln_2"],
            up: "mlp.c_fc",
            down: "mlp.c_proj",
            ..OF_QWEN
        },
        reads: Reads::Pictures(Pictures {
            norm: Some("ln_pre"),
            size: 288,
            patch: 16,
            processor: Processor::CLIP,
            ..clip_vision_model::PICTURES
        }),
        last_norm: Some("ln_post"),
        ..clip_vision_model::LIKE
    };
    vit_like::read(FAMILY.model_type, checkpoint, reader, like)
}
