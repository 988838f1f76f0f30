//! MLCD: CLIP's blocks over patches that turn by row and column; the class token turns by learned angles. The norm that is stored is of
//! the class token alone.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::reading::vit_like::{self, Keys, OF_MOST, Pictures, Reads, Sizes, Turn, VitLike};
use super::{Family, clip_vision_model};

pub const FAMILY: Family = Family::own("mlcd_vision_model", "MLCDVision", read)
    .leaving_unread(&["class_pos_emb", "post_layernorm.*"]);

const LIKE: VitLike = VitLike {
    bases: &["", "vision_model.", "vision_tower."],
    sizes: Sizes {
        d_model: 1664,
        d_mlp: 8192,
        n_layers: 48,
        n_heads: 16,
    },
    keys: Keys {
        aside: &["initializer_factor"],
        ..OF_MOST
    },
    activation: "gelu",
    reads: Reads::Pictures(Pictures {
        positions: None,
        turn: Some(Turn::PLAIN),
        size: 336,
        patch: 14,
        ..clip_vision_model::PICTURES
    }),
    ..clip_vision_model::LIKE
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const GROUPS: &str = "num_key_value_groups";
    let n = reader.count_or(GROUPS, GROUPS, 1)?;
    if n != 1 {
        let problem = format!("expected 1, as many keys as queries, found {n}");
        return Err(Error::config(reader.path(), GROUPS, problem));
    }
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let kernel = clip_vision_model::PICTURES.kernel;
    let base = super::reading::prefix(&checkpoint.tensors, LIKE.bases, kernel);
    let name = format!("{base}class_pos_emb");
    for block in spec.stacks[0].blocks_mut() {
        let own = block.own_mut();
        let Some(rope) = own.and_then(|own| own.attention.rope.as_mut()) else {
            continue;
        };
        let stored = checkpoint.tensors.expect(&name, &[1, rope.d_rotary / 2])?;
        rope.angles_before = stored.widen()?.to_vec();
    }
    Ok(spec)
}
