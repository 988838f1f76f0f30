//! LFM3-VL's tower of pictures: gated convolutions over rows and columns of patches in most layers, attention whose patches turn by row and
//! column in the others.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::mixers::ShortConvolution;
use attnscope_spec::{Mixer, ModelSpec};

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Biases, Kernel, Keys, Names, OF_CLIP, OF_MOST, Pictures, Reads, Sizes, Turn, VitLike,
};
use super::{Family, lfm3, qwen2_vl_vision, vit};

pub const FAMILY: Family = Family::own("lfm3_vl_vision", "Lfm3VlVision", read);

const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 1024,
        d_mlp: 2560,
        n_layers: 14,
        n_heads: 16,
    },
    keys: Keys {
        n_kv_heads: Some(("num_key_value_heads", 8)),
        n_channels: "in_channels",
        eps: Some("norm_eps"),
        ..OF_MOST
    },
    eps: 1e-5,
    activation: "silu",
    norm: NormKind::RmsNorm,
    names: Names {
        layers: "layers",
        norms: ["operator_norm", "ffn_norm"],
        up: "feed_forward.w3",
        gate: Some("feed_forward.w1"),
        down: "feed_forward.w2",
        head_norms: Some(["self_attn.q_layernorm", "self_attn.k_layernorm"]),
        biases: Biases::Stored,
        ..OF_CLIP
    },
    reads: Reads::Pictures(Pictures {
        kernel: "patchifier.weight",
        form: Kernel::FlatVideo("temporal_patch_size", 2),
        has_bias: Some(false),
        turn: Some(Turn {
            theta: 1e6,
            ..Turn::PLAIN
        }),
        norm: Some("embedding_norm"),
        patch: 16,
        processor: Processor::QWEN,
        ..qwen2_vl_vision::PICTURES
    }),
    last_norm: None,
    ..vit::like(&["", "vision_tower.", "model.vision_tower."])
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const TYPES: &str = "layer_types";
    const SIDE: &str = "conv_kernel_size";
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let side = reader.count_or("conv_width", SIDE, 3)?;
    if side % 2 == 0 {
        let problem = format!("expected an odd number of rows and columns, found {side}");
        return Err(Error::config(reader.path(), SIDE, problem));
    }
    let blocks = spec.stacks[0].blocks_mut();
    let n_layers = blocks.len();
    let words = match reader.words_by_layer(TYPES, n_layers)? {
        Some(words) => words,
        None => {
            let attends = |idx: &usize| *idx >= 2 && idx.is_multiple_of(2);
            let word = |idx| {
                if attends(&idx) {
                    "full_attention"
                } else {
                    "conv"
                }
            };
            (0..n_layers).map(word).map(str::to_owned).collect()
        }
    };
    let base = super::reading::prefix(&checkpoint.tensors, LIKE.bases, "patchifier.weight");
    for (layer_idx, (block, word)) in blocks.iter_mut().zip(&words).enumerate() {
        match (word.as_str(), block.own()) {
            ("full_attention", _) | (_, None) => {}
            ("conv", Some(own)) => {
                let d_model = own.projections.q.n_in;
                let at = format!("{base}layers.{layer_idx}");
                let kernel = ShortConvolution {
                    over_grid: true,
                    ..ShortConvolution::whole(
                        format!("{at}.conv.spatial_conv.weight"),
                        None,
                        d_model,
                        side,
                    )
                };
                block.mixer = Mixer::Other(Box::new(lfm3::gated_convolution(&at, kernel, false)));
            }
            (other, _) => {
                let problem = format!("expected \"conv\" or \"full_attention\", found {other:?}");
                return Err(Error::config(reader.path(), TYPES, problem));
            }
        }
    }
    Ok(spec)
}
