//! YOLOS: ViT with tokens that find objects. They are shown before the patches, although the library puts them behind them; what makes
//! boxes of them is not read.

use attnscope_spec::Resampling;

use super::reading::processor::Processor;
use super::reading::vit_like::{Behind, Keys, OF_MOST, Pictures, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("yolos", "Yolos", || VitLike {
    keys: Keys {
        aside: &[
            "auxiliary_loss",
            "class_cost",
            "bbox_cost",
            "giou_cost",
            "bbox_loss_coefficient",
            "giou_loss_coefficient",
            "eos_coefficient",
        ],
        off: &["use_mid_position_embeddings"],
        ..OF_MOST
    },
    reads: Reads::Pictures(Pictures {
        registers: Some(("embeddings.detection_tokens", "num_detection_tokens", 100)),
        are_registers_placed: true,
        n_behind: Behind::Registers,
        resampled: Some(Resampling::Nearest),
        size: 512,
        processor: Processor::YOLOS,
        ..vit::PICTURES
    }),
    ..vit::like(&["vit.", ""])
});
