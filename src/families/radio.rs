//! RADIO: ViT under the names of timm, with a matrix over patches, several class tokens and registers without positions, and a square of
//! positions that is resampled for the longer side. The model itself subtracts a mean and divides by a deviation.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, Resampling};

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Count, Kernel, Keys, MlpKey, Names, OF_MOST, OF_QWEN, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("radio", "Radio", read).leaving_unread(&[
    "summary_idxs",
    "video_embedder.weight",
    "input_conditioner.*",
]);

const LAYERS: &str = "model.blocks";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const BASES: &[&str] = &["radio_model.", "", "model.radio_model."];
    const KERNEL: &str = "model.patch_generator.embedder.weight";
    let base = super::reading::prefix(&checkpoint.tensors, BASES, KERNEL);
    let scaled = format!("{base}{LAYERS}.0.layer_scale1.lambda1");
    let is_scaled = checkpoint.tensors.contains(&scaled);
    let n_first = reader.count_or("n_class_tokens", "num_cls_tokens", 3)?
        + reader.count_or("n_plain_registers", "num_registers", 7)?;
    let like = VitLike {
        sizes: Sizes {
            d_model: 1280,
            d_mlp: 5120,
            n_layers: 32,
            n_heads: 16,
        },
        keys: Keys {
            d_mlp: MlpKey::Ratio("mlp_ratio"),
            aside: &[
                "qkv_bias",
                "layerscale_value",
                "image_size",
                "patch_dim",
                "video_patch_dim",
                "video_temporal_patch_size",
                "summary_idxs",
                "norm_mean",
                "norm_std",
                "drop_path_rate",
            ],
            off: &["use_swiglu_ffn"],
            ..OF_MOST
        },
        eps: 1e-6,
        names: Names {
            layers: LAYERS,
            factors: is_scaled.then_some(["layer_scale1.lambda1", "layer_scale2.lambda1"]),
            ..OF_QWEN
        },
        reads: Reads::Pictures(Pictures {
            kernel: KERNEL,
            form: Kernel::Flat,
            has_bias: Some(false),
            class: None,
            registers: Some((
                "model.patch_generator.cls_token.token",
                "n_registers",
                n_first,
            )),
            positions: Some("model.patch_generator.pos_embed"),
            places: Count::Side("max_img_size", 2048),
            resampled: Some(Resampling::LinearSquare),
            processor: Processor::CLIP,
            ..vit::PICTURES
        }),
        last_norm: None,
        ..vit::like(BASES)
    };
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let of = |name: &str| format!("{base}input_conditioner.{name}");
    let mean = stored(checkpoint, &of("norm_mean"))?;
    let std = stored(checkpoint, &of("norm_std"))?;
    if std.contains(&0.0) {
        let problem = "expected numbers other than 0";
        return Err(Error::config(reader.path(), "norm_std", problem));
    }
    if let Some(patches) = spec.stacks[0].embed.patches.as_mut() {
        // What the model takes from a picture follows what its processor takes.
        patches.preprocessing = patches.preprocessing.then(mean, std);
    }
    Ok(spec)
}

/// A stored number for each colour, as the model itself reads it.
fn stored(checkpoint: &Checkpoint, name: &str) -> Result<[f32; 3]> {
    let values = checkpoint.tensors.expect(name, &[3, 1, 1])?.widen()?;
    Ok([0, 1, 2].map(|channel| values[channel]))
}
