//! Kimi K2.5's tower of pictures: a grid of learned positions that is resampled, and patches that turn, each pair of a column beside
//! that of a row.

use attnscope_compute::attention::GridFrequencies;
use attnscope_spec::Resampling;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    Count, Kernel, Keys, Names, OF_MOST, OF_QWEN, Pictures, Reads, Sizes, Turn, VitLike,
};
use super::{Family, qwen2_vl_vision};

pub const FAMILY: Family = Family::seeing("kimi_k25_vision", "Kimi_K25VisionModel", || VitLike {
    sizes: Sizes {
        d_model: 1152,
        d_mlp: 4304,
        n_layers: 27,
        n_heads: 16,
    },
    keys: Keys {
        eps: None,
        aside: &["merge_kernel_size", "pos_emb_time"],
        ..OF_MOST
    },
    eps: 1e-5,
    activation: "gelu_pytorch_tanh",
    names: Names {
        layers: "layers",
        q: "attn.q_proj",
        k: "attn.k_proj",
        v: "attn.v_proj",
        qkv: None,
        ..OF_QWEN
    },
    reads: Reads::Pictures(Pictures {
        form: Kernel::Picture,
        positions: Some("patch_embed.pos_emb.position_embeddings"),
        places: Count::Grid(["pos_emb_height", "pos_emb_width"], 64),
        resampled: Some(Resampling::Nearest),
        turn: Some(Turn {
            frequencies: GridFrequencies::ColumnThenRow,
            ..Turn::PLAIN
        }),
        processor: Processor::SIGLIP.in_multiples(),
        ..qwen2_vl_vision::PICTURES
    }),
    last_norm: Some("final_layernorm"),
    ..qwen2_vl_vision::LIKE
});
