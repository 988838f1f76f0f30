//! The encoder of ViTPose: ViT without a class token, whose stored position is added to every patch. Patches are cut from a picture with a
//! margin of two zeros.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Keys, MlpKey, Names, OF_MOST, OF_VIT, Pictures, Reads, VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("vitpose_backbone", "VitPoseBackbone", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const EXPERTS: &str = "num_experts";
    let n = reader.count_or(EXPERTS, EXPERTS, 1)?;
    if n != 1 {
        let problem = format!("expected 1: experts by data set are not read, found {n}");
        return Err(Error::config(reader.path(), EXPERTS, problem));
    }
    let like = VitLike {
        keys: Keys {
            d_mlp: MlpKey::Ratio("mlp_ratio"),
            aside: &[
                "part_features",
                "out_features",
                "out_indices",
                "stage_names",
            ],
            ..OF_MOST
        },
        names: Names {
            up: "mlp.fc1",
            down: "mlp.fc2",
            ..OF_VIT
        },
        reads: Reads::Pictures(Pictures {
            class: None,
            n_spare: 1,
            shares_spare: true,
            margin: 2,
            size: 256,
            processor: Processor::VITPOSE,
            ..vit::PICTURES
        }),
        ..vit::like(&["backbone.", "vit.", ""])
    };
    reader.remark(
        "a picture is resized as a whole: transformers cuts out a person by the box that it is given".to_owned(),
    );
    vit_like::read(FAMILY.model_type, checkpoint, reader, like)
}
