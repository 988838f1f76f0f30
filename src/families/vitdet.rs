//! ViTDet: ViT for detection. Patches see those of their own window in some layers, and positions may be learned vectors by distance in
//! rows and in columns besides.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, Resampling};

use super::reading::vit_like::{
    self, Count, Keys, MlpKey, Names, OF_MOST, OF_VIT, Pictures, Reads, VitLike,
};
use super::reading::windowed::{Windowed, fixed_grid};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("vitdet", "VitDet", read);

/// ViT for detection, under the given prefixes: positions are those of an earlier training, with one for a class token that is not there.
///
/// # Errors
/// When a value of the configuration is impossible.
pub(super) fn like(reader: &mut Reader<'_>, bases: &'static [&'static str]) -> Result<VitLike> {
    const STORED: &str = "use_absolute_position_embeddings";
    let has_positions = reader.flag_or("stores_positions", STORED, true)?;
    Ok(VitLike {
        keys: Keys {
            d_mlp: MlpKey::Ratio("mlp_ratio"),
            aside: &[
                "drop_path_rate",
                "dropout_prob",
                "num_windows_side",
                "out_features",
                "out_indices",
                "stage_names",
            ],
            ..OF_MOST
        },
        eps: 1e-6,
        reads: Reads::Pictures(Pictures {
            kernel: "embeddings.projection.weight",
            class: None,
            positions: vit::PICTURES.positions.filter(|_| has_positions),
            places: Count::Apart("pretrain_image_size", 224),
            n_spare: 1,
            resampled: Some(Resampling::Nearest),
            ..vit::PICTURES
        }),
        last_norm: None,
        ..vit::like(bases)
    })
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const RESIDUAL: &str = "residual_block_indices";
    const WINDOWS: &str = "window_block_indices";
    if let Some(layers) = reader.numbers(RESIDUAL)?.filter(|all| !all.is_empty()) {
        let problem =
            format!("expected none: the convolutions behind layers are not read, found {layers:?}");
        return Err(Error::config(reader.path(), RESIDUAL, problem));
    }
    let like = VitLike {
        names: Names {
            qkv: Some("attention.qkv"),
            o: "attention.proj",
            norms: ["norm1", "norm2"],
            up: "mlp.fc1",
            down: "mlp.fc2",
            ..OF_VIT
        },
        ..like(reader, &["vitdet.", "backbone.", ""])?
    };
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let has_steps = reader.flag_or(
        "distance_vectors",
        "use_relative_position_embeddings",
        false,
    )?;
    let windows = reader.numbers(WINDOWS)?.unwrap_or_default();
    let side = reader.count_or("window", "window_size", 0)?;
    let windowed = Windowed {
        grid: fixed_grid(reader, &spec)?,
        sides: [side; 2],
        n_first: 0,
        key: WINDOWS,
        whole: &|layer_idx| side == 0 || !windows.contains(&(layer_idx as u64)),
        tables: has_steps.then_some(("qkv.weight", ["rel_pos_h", "rel_pos_w"])),
    };
    windowed.apply(reader, &mut spec);
    Ok(spec)
}
