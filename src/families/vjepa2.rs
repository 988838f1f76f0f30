//! V-JEPA 2: ViT over boxes of two frames, whose dimensions turn by time, row and column. A picture is one moment, seen twice. What
//! predicts hidden boxes, and the pooler of a classifier, are not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::GridFrequencies;
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Count, Kernel, Keys, MlpKey, Names, OF_MOST, OF_VIT, Pictures, Reads, Sizes, Turn,
    VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family =
    Family::own("vjepa2", "VJEPA2", read).leaving_unread(&["pooler.*", "predictor.*"]);

/// The key of the rows and columns of a picture, and their number.
const SIDE: (&str, usize) = ("crop_size", 256);

const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 1024,
        d_mlp: 4096,
        n_layers: 24,
        n_heads: 16,
    },
    keys: Keys {
        d_mlp: MlpKey::Ratio("mlp_ratio"),
        n_channels: "in_chans",
        aside: &[
            "drop_path_rate",
            "frames_per_clip",
            "num_pooler_layers",
            "pred_hidden_size",
            "pred_mlp_ratio",
            "pred_num_attention_heads",
            "pred_num_hidden_layers",
            "pred_num_mask_tokens",
            "pred_zero_init_mask_tokens",
        ],
        ..OF_MOST
    },
    eps: 1e-6,
    names: Names {
        layers: "layer",
        q: "attention.query",
        k: "attention.key",
        v: "attention.value",
        o: "attention.proj",
        norms: ["norm1", "norm2"],
        up: "mlp.fc1",
        down: "mlp.fc2",
        ..OF_VIT
    },
    reads: Reads::Pictures(Pictures {
        kernel: "embeddings.patch_embeddings.proj.weight",
        form: Kernel::Video("tubelet_size", 2),
        class: None,
        positions: None,
        places: Count::Side(SIDE.0, SIDE.1),
        turn: Some(Turn {
            frequencies: GridFrequencies::BehindTimeInTurn,
            interleaved: true,
            ..Turn::PLAIN
        }),
        processor: Processor::VIDEOMAE,
        ..vit::PICTURES
    }),
    ..vit::like(&["encoder.", "vjepa2.encoder.", ""])
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let (key, usual) = SIDE;
    let side = reader.size_or(key, key, usual, Origin::Default(key.to_owned()))?;
    if let Some(patches) = &mut spec.stacks[0].embed.patches {
        // Places are counted by the rows and columns of this size, whatever the picture has.
        patches.preprocessing.takes = Some([side; 2]);
    }
    reader.remark(
        "a picture is read as a video of one moment: the frames that are seen at once are this picture"
            .to_owned(),
    );
    Ok(spec)
}
