//! Qwen2.5-VL's tower of pictures: Qwen2-VL's with RMSNorm and gates, whose patches see those of their own window in most layers.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::GridWindow;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::reading::vit_like::{self, KEYS_OF_QWEN, Keys, Names, Sizes, VitLike};
use super::reading::windowed::see_window;
use super::{Family, glm4v_vision, qwen2_vl_vision};

pub const FAMILY: Family = Family::own(
    "qwen2_5_vl_vision",
    "Qwen2_5_VisionTransformerPretrainedModel",
    read,
);

const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 3584,
        d_mlp: 3420,
        n_layers: 32,
        n_heads: 16,
    },
    keys: Keys {
        aside: &["out_hidden_size", "tokens_per_second"],
        ..KEYS_OF_QWEN
    },
    reads: qwen2_vl_vision::LIKE.reads,
    eps: 1e-6,
    last_norm: None,
    ..glm4v_vision::LIKE
};

/// Layers in which every patch sees every other one, if the configuration does not state them.
const WHOLE: [u64; 4] = [7, 15, 23, 31];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    // Qwen2.5-Omni stores queries, keys and values apart.
    let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
    let is_fused = names.any(|name| name.ends_with("blocks.0.attn.qkv.weight"));
    // Exaone 4.5 shares keys and values among heads.
    const SHARED: &str = "num_key_value_heads";
    let shared = reader.value(SHARED).is_some();
    let like = VitLike {
        keys: Keys {
            n_kv_heads: shared.then_some((SHARED, 1)),
            ..LIKE.keys
        },
        names: Names {
            qkv: LIKE.names.qkv.filter(|_| is_fused),
            ..LIKE.names
        },
        ..LIKE
    };
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let pixels = reader.size_or("window", "window_size", 112, default("window_size"))?;
    let merged = reader.size_or(
        "merged",
        "spatial_merge_size",
        2,
        default("spatial_merge_size"),
    )?;
    let patch = spec.preprocessing().map_or(1, |pictures| pictures.patch[0]);
    // Windows hold whole groups of the patches that are merged later.
    let side = pixels / merged / patch * merged;
    if side == 0 {
        let problem = format!(
            "expected at least {} pixels, found {pixels}",
            merged * patch
        );
        return Err(Error::config(reader.path(), "window_size", problem));
    }
    const KEY: &str = "fullatt_block_indexes";
    let whole = reader.numbers(KEY)?.unwrap_or(WHOLE.to_vec());
    let said = format!("{side} × {side} patches, but in layers {whole:?}");
    reader.note("windows", said, Origin::Key(KEY.to_owned()));
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        if let Some(own) = block
            .own_mut()
            .filter(|_| !whole.contains(&(layer_idx as u64)))
        {
            see_window(own, GridWindow::plain([side; 2]), side * side);
        }
    }
    Ok(spec)
}
