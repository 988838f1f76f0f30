//! Muse Glimmer's tower of pictures: patches with learned positions that turn by column and row, counted from 1, and see those of their own
//! window in most layers. What merges patches behind the last norm is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::GridFrequencies;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, Resampling};

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Count, Kernel, Keys, Names, OF_MOST, OF_QWEN, Pictures, Reads, Sizes, Turn, VitLike,
};
use super::reading::windowed::Windowed;
use super::{Family, vit};

pub const FAMILY: Family = Family::own("muse_glimmer_vision", "MuseGlimmerVision", read);

const SIDES: [&str; 2] = ["pos_emb_height", "pos_emb_width"];

/// The epsilon of norms in blocks; a key states that of the two others.
const EPS: f64 = 1e-5;

const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 1536,
        d_mlp: 8960,
        n_layers: 50,
        n_heads: 16,
    },
    keys: Keys {
        aside: &["max_position_embeddings"],
        ..OF_MOST
    },
    eps: EPS,
    names: Names {
        layers: "layers",
        q: "attn.q_proj",
        k: "attn.k_proj",
        v: "attn.v_proj",
        qkv: None,
        ..OF_QWEN
    },
    reads: Reads::Pictures(Pictures {
        kernel: "patch_embedder.patch_embedding.weight",
        form: Kernel::FlatFramesFirst("patch_temporal", 2),
        has_bias: Some(false),
        class: None,
        positions: Some("patch_embedder.position_embedding_table.weight"),
        places: Count::Grid(SIDES, 32),
        resampled: Some(Resampling::LinearTurned),
        turn: Some(Turn {
            first: 1,
            frequencies: GridFrequencies::ColumnsFirst,
            ..Turn::PLAIN
        }),
        merged: Some(("merge_size", 2)),
        norm: Some("ln_pre"),
        patch: 14,
        processor: Processor::MUSE,
        ..vit::PICTURES
    }),
    last_norm: Some("ln_post"),
    ..vit::like(&["", "vision_tower.", "model.vision_tower."])
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const TYPES: &str = "layer_types";
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let [side, columns] = [reader.value(SIDES[0]), reader.value(SIDES[1])]
        .map(|side| side.and_then(serde_json::Value::as_u64).unwrap_or(32) as usize);
    if side != columns {
        let problem = format!("expected {side}, as many as rows, found {columns}");
        return Err(Error::config(reader.path(), SIDES[1], problem));
    }
    let n_layers = spec.main_stack().blocks().len();
    let is_whole: Vec<bool> = match reader.words_by_layer(TYPES, n_layers)? {
        Some(words) => {
            let known = ["full_attention", "window_attention"];
            if let Some(other) = words.iter().find(|word| !known.contains(&word.as_str())) {
                let problem = format!("expected {:?} or {:?}, found {other:?}", known[0], known[1]);
                return Err(Error::config(reader.path(), TYPES, problem));
            }
            words.iter().map(|word| word == known[0]).collect()
        }
        None => (1..=n_layers)
            .map(|nth| nth % 4 == 0 || nth == n_layers)
            .collect(),
    };
    let windowed = Windowed {
        grid: [side; 2],
        sides: [side; 2],
        n_first: 0,
        key: TYPES,
        whole: &|layer_idx| is_whole[layer_idx],
        tables: None,
    };
    windowed.apply(reader, &mut spec);
    reader.note("block_norm_eps", format!("{EPS:e}"), Origin::Family);
    for block in spec.stacks[0].blocks_mut() {
        let norms = [&mut block.attn_pre, &mut block.mlp_pre];
        norms
            .into_iter()
            .flatten()
            .for_each(|norm| norm.eps = EPS as f32);
    }
    Ok(spec)
}
