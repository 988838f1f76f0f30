//! VideoMAE: ViT over boxes of two frames, with computed positions and no class token. Keys have no bias.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, Pooled, Sines};
use serde_json::Value;

use super::reading::processor::Processor;
use super::reading::task_rules::{NormedMean, TaskRules};
use super::reading::vit_like::{
    self, Biases, Kernel, Keys, MomentPlaces, Moments, Names, OF_MOST, OF_VIT, Pictures, Reads,
    VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("videomae", "VideoMAE", read)
    .with_tasks(TaskRules {
        picture: Pooled::MeanFrom,
        normed_mean: Some(NormedMean {
            key: Some(("use_mean_pooling", true)),
            norm: "fc_norm",
            eps: Some(1e-5),
        }),
        ..TaskRules::USUAL
    })
    .leaving_unread(&["decoder.*", "encoder_to_decoder.weight", "mask_token"]);

const LIKE: VitLike = VitLike {
    keys: Keys {
        aside: &[
            "qv_bias",
            "qkv_bias",
            "decoder_num_attention_heads",
            "decoder_hidden_size",
            "decoder_num_hidden_layers",
            "decoder_intermediate_size",
            "norm_pix_loss",
        ],
        ..OF_MOST
    },
    names: Names {
        biases: Biases::Stored,
        ..OF_VIT
    },
    reads: Reads::Pictures(Pictures {
        form: Kernel::Video("tubelet_size", 2),
        class: None,
        positions: None,
        moments: Some(Moments {
            frames: ("num_frames", 16),
            sines: Some(Sines::Interleaved),
            places: MomentPlaces::All,
            have_classes: false,
        }),
        processor: Processor::VIDEOMAE,
        ..vit::PICTURES
    }),
    last_norm: None,
    ..vit::like(&["videomae.", ""])
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const POOLS: &str = "use_mean_pooling";
    let pools = reader.value(POOLS).and_then(Value::as_bool).unwrap_or(true);
    let like = VitLike {
        last_norm: (!pools).then_some("layernorm"),
        ..LIKE
    };
    vit_like::read(FAMILY.model_type, checkpoint, reader, like)
}
