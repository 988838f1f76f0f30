//! The encoder of pictures of RF-DETR: DINOv2, most of whose layers see windows. Each window has a class token of its own.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, Resampling};

use super::reading::vit_like::{self, Keys, MlpKey, Names, Pictures, Reads, VitLike};
use super::reading::windowed::Windowed;
use super::{Family, dinov2};

pub const FAMILY: Family = Family::own("rf_detr_dinov2", "RfDetrDinov2", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const WINDOWS: &str = "window_block_indexes";
    const COUNT: &str = "num_windows";
    let usual = dinov2::like(&[
        "model.backbone.backbone.",
        "backbone.backbone.",
        "backbone.",
        "",
    ]);
    let base = super::reading::prefix(&checkpoint.tensors, usual.bases, dinov2::PICTURES.kernel);
    let is_newer = checkpoint
        .tensors
        .contains(&format!("{base}encoder.layer.0.attention.q_proj.weight"));
    let newer = Names {
        q: "attention.q_proj",
        k: "attention.k_proj",
        v: "attention.v_proj",
        o: "attention.o_proj",
        ..usual.names
    };
    let like = VitLike {
        names: if is_newer { newer } else { usual.names },
        reads: Reads::Pictures(Pictures {
            class_by_window: Some((COUNT, 4)),
            resampled: Some(Resampling::Antialiased),
            ..dinov2::PICTURES
        }),
        keys: Keys {
            d_mlp: MlpKey::Ratio("mlp_ratio"),
            off: &["use_swiglu_ffn"],
            ..usual.keys
        },
        ..usual
    };
    for key in [
        "out_features",
        "out_indices",
        "use_mask_token",
        "drop_path_rate",
        "stage_names",
    ] {
        reader.value(key);
    }
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let Some(windows) = reader.numbers(WINDOWS)? else {
        let problem = "missing, expected the layers that see windows";
        return Err(Error::config(reader.path(), WINDOWS, problem));
    };
    let patches = spec.stacks[0].embed.patches.as_mut();
    let along = patches
        .as_ref()
        .map_or(1, |patches| patches.n_first().isqrt());
    let preprocessing = patches.map(|patches| &mut patches.preprocessing);
    let size = preprocessing.and_then(|pictures| {
        // Windows are as many as their class tokens, whatever the size of a picture: one size is read.
        pictures.takes = pictures.fixed_size();
        pictures.takes.map(|size| (size, pictures.patch))
    });
    let grid = size.map(|(size, patch)| [0, 1].map(|axis| size[axis] / patch[axis].max(1)));
    let grid = grid.unwrap_or_default();
    if grid[0] == 0 || grid[0] != grid[1] || !grid[0].is_multiple_of(along.max(1)) {
        let problem = format!(
            "expected a divisor of as many rows as columns of patches, {} × {}, found {along}",
            grid[0], grid[1]
        );
        return Err(Error::config(reader.path(), COUNT, problem));
    }
    let windowed = Windowed {
        grid,
        sides: grid.map(|side| side / along),
        n_first: along * along,
        key: WINDOWS,
        whole: &|layer_idx| along == 1 || !windows.contains(&(layer_idx as u64)),
        tables: None,
    };
    windowed.apply(reader, &mut spec);
    Ok(spec)
}
