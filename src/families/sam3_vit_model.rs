//! The encoder of pictures of SAM 3: patches see those of their own window in most layers, and turn by column and row.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::attention::{GridFrequencies, RopeScaling};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, Resampling};

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Count, Keys, Names, OF_CLIP, OF_MOST, Pictures, Reads, Sizes, Turn, VitLike,
};
use super::reading::windowed::{Windowed, fixed_grid};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("sam3_vit_model", "Sam3ViT", read);

const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 1024,
        d_mlp: 4736,
        n_layers: 32,
        n_heads: 16,
    },
    keys: Keys {
        aside: &["layer_scale_init_value", "hidden_dropout"],
        ..OF_MOST
    },
    eps: 1e-6,
    names: Names {
        layers: "layers",
        q: "attention.q_proj",
        k: "attention.k_proj",
        v: "attention.v_proj",
        o: "attention.o_proj",
        ..OF_CLIP
    },
    reads: Reads::Pictures(Pictures {
        has_bias: Some(false),
        class: None,
        places: Count::Apart("pretrain_image_size", 336),
        resampled: Some(Resampling::Tiles),
        turn: Some(Turn {
            frequencies: GridFrequencies::ColumnsFirst,
            interleaved: true,
            ..Turn::PLAIN
        }),
        norm: Some("layer_norm"),
        size: 1008,
        patch: 14,
        processor: Processor::SAM3,
        ..vit::PICTURES
    }),
    last_norm: None,
    ..vit::like(&[
        "backbone.",
        "vision_encoder.backbone.",
        "detector_model.vision_encoder.backbone.",
        "",
    ])
};

/// Layers in which every patch sees every other one, if the configuration does not state them.
const WHOLE: [u64; 4] = [7, 15, 23, 31];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const KEY: &str = "global_attn_indexes";
    const SIDE: &str = "window_size";
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let whole = reader.numbers(KEY)?.unwrap_or(WHOLE.to_vec());
    let side = reader.count_or("window", SIDE, 24)?;
    if side == 0 {
        let problem = "expected at least 1: places are counted in windows, found 0";
        return Err(Error::config(reader.path(), SIDE, problem));
    }
    let grid = fixed_grid(reader, &spec)?;
    let is_whole = |layer_idx: usize| whole.contains(&(layer_idx as u64));
    let windowed = Windowed {
        grid,
        sides: [side; 2],
        n_first: 0,
        key: KEY,
        whole: &is_whole,
        tables: None,
    };
    windowed.apply(reader, &mut spec);
    // Where patches see the whole picture, it is as wide as a window.
    let factor = grid[1] as f64 / side as f64;
    let blocks = spec.stacks[0].blocks_mut().iter_mut().enumerate();
    for (_, block) in blocks.filter(|(layer_idx, _)| is_whole(*layer_idx)) {
        let rope = block.own_mut().and_then(|own| own.attention.rope.as_mut());
        if let Some(rope) = rope.filter(|_| factor != 1.0) {
            rope.scaling = RopeScaling::Linear { factor };
        }
    }
    Ok(spec)
}
