//! Gemma 4's tower of pictures: norms before and after both branches, norms of queries, keys and values, scores that are not scaled,
//! positions of columns and of rows, and halves of a head that turn apart. What pools patches is not read.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::attention::{GridFrequencies, Scale};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{ModelSpec, NormSource};

use super::reading::processor::Processor;
use super::reading::rms_norm;
use super::reading::vit_like::{
    self, Biases, Kernel, Keys, Lines, Names, OF_CLIP, OF_MOST, Pictures, Reads, Turn, VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("gemma4_vision", "Gemma4VisionModel", read)
    .leaving_unread(&["std_bias", "std_scale"]);

const KERNEL: &str = "patch_embedder.input_proj.weight";
const POSITIONS: &str = "patch_embedder.position_embedding_table";

const LIKE: VitLike = VitLike {
    bases: &["", "vision_tower.", "model.vision_tower."],
    sizes: vit_like::Sizes {
        n_layers: 16,
        ..vit_like::BASE
    },
    keys: Keys {
        n_kv_heads: Some(("num_key_value_heads", 12)),
        activation: "hidden_activation",
        eps: Some("rms_norm_eps"),
        aside: &[
            "max_position_embeddings",
            "pooling_kernel_size",
            "standardize",
        ],
        off: &["use_clipped_linears", "attention_bias"],
        ..OF_MOST
    },
    eps: 1e-6,
    activation: "gelu_pytorch_tanh",
    norm: NormKind::RmsNorm,
    names: Names {
        q: "self_attn.q_proj.linear",
        k: "self_attn.k_proj.linear",
        v: "self_attn.v_proj.linear",
        o: "self_attn.o_proj.linear",
        norms: ["input_layernorm", "pre_feedforward_layernorm"],
        up: "mlp.up_proj.linear",
        gate: Some("mlp.gate_proj.linear"),
        down: "mlp.down_proj.linear",
        head_norms: Some(["self_attn.q_norm", "self_attn.k_norm"]),
        biases: Biases::Stored,
        ..OF_CLIP
    },
    reads: Reads::Pictures(Pictures {
        kernel: KERNEL,
        form: Kernel::FlatChannelsLast,
        has_bias: Some(false),
        class: None,
        positions: None,
        lines: Some(Lines {
            tensors: [POSITIONS; 2],
            n: ("position_embedding_size", 10 * 1024),
            first: 0,
        }),
        area: Some(Processor::GEMMA4.size),
        turn: Some(Turn {
            theta: 100.0,
            frequencies: GridFrequencies::Apart,
            ..Turn::PLAIN
        }),
        processor: Processor::GEMMA4,
        ..vit::PICTURES
    }),
    last_norm: None,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEAD: &str = "head_dim";
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let (d_model, stated) = (spec.d_model, reader.count_or(HEAD, HEAD, 64)?);
    let base = super::reading::prefix(&checkpoint.tensors, LIKE.bases, KERNEL);
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        let eps = block
            .attn_pre
            .as_ref()
            .map_or(1e-6, |norm| f64::from(norm.eps));
        let norm = |name: &str| {
            let name = format!("{base}encoder.layers.{layer_idx}.{name}.weight");
            Some(rms_norm(name, d_model, eps))
        };
        block.attn_out = norm("post_attention_layernorm");
        block.mlp_out = norm("post_feedforward_layernorm");
        let Some(own) = block.own_mut() else {
            continue;
        };
        let d = own.attention.d_head;
        if d != stated {
            let problem =
                format!("expected {d}, hidden_size / num_attention_heads, found {stated}");
            return Err(Error::config(reader.path(), HEAD, problem));
        }
        own.attention.scale = Scale::One;
        own.projections.v_norm = Some(NormSource::new(NormKind::RmsNorm, eps, d, None));
    }
    if let Some(patches) = spec.stacks[0].embed.patches.as_mut() {
        // The model itself brings values from 0 to 1 between −1 and 1.
        patches.preprocessing = patches.preprocessing.then([0.5; 3], [0.5; 3]);
    }
    Ok(spec)
}
