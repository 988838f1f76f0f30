//! GLM 5.3's tower of pictures: GLM-4V's without learned positions, with norms of queries and keys and limited gates.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{FeedForward, GateRule, ModelSpec};

use super::reading::vit_like::{self, KEYS_OF_QWEN, Keys, Names, Pictures, Reads, Sizes, VitLike};
use super::{Family, glm4v_vision, hy_v4, qwen2_vl_vision};

pub const FAMILY: Family = Family::own("glm5_next_vision", "Glm5NextVisionModel", read);

const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 1024,
        d_mlp: 4096,
        n_layers: 24,
        n_heads: 16,
    },
    keys: Keys {
        eps: Some("rms_norm_eps"),
        aside: &[
            "out_hidden_size",
            "attention_bias",
            "projection_intermediate_size",
        ],
        ..KEYS_OF_QWEN
    },
    names: Names {
        head_norms: Some(["attn.q_norm", "attn.k_norm"]),
        ..glm4v_vision::LIKE.names
    },
    reads: Reads::Pictures(Pictures {
        size: 336,
        ..qwen2_vl_vision::PICTURES
    }),
    ..glm4v_vision::LIKE
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let limit = hy_v4::limit(reader)?;
    for block in spec.stacks[0].blocks_mut() {
        if let FeedForward::Dense(mlp) = &mut block.feed_forward {
            mlp.gate_rule = GateRule::LimitedBefore { limit };
        }
    }
    Ok(spec)
}
