//! VideoPrism's tower of videos: layers whose patches see those of their own frame, then layers whose patches see their own place in all
//! frames. What comes behind, in models that compare videos with texts, sees all patches.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::GridWindow;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{Layers, ModelSpec, MomentRows};

use super::reading::llama_like::cap;
use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Block, Kernel, Keys, MomentPlaces, Moments, Names, OF_CLIP, OF_MOST, Pictures, Reads,
    VitLike,
};
use super::reading::windowed::{self, fixed_grid, see_window};
use super::{Family, vit, vivit};

pub const FAMILY: Family = Family::own("videoprism_vision_model", "VideoPrismVisionModel", read)
    .leaving_unread(&[
        "head.*",
        "*.head.*",
        "head_layernorm.*",
        "*.head_layernorm.*",
        "classifier.*",
    ]);

const NAMES: Names = Names {
    layers: "spatial_layers",
    q: "attention.q_proj",
    k: "attention.k_proj",
    v: "attention.v_proj",
    o: "attention.o_proj",
    norms: ["layernorm_before", "layernorm_after"],
    biases: vit_like::Biases::Switch("qkv_bias"),
    ..OF_CLIP
};

/// The class of models whose videos pass through further layers.
const FURTHER: &str = "auxiliary_layers";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const BASES: &[&str] = &["video_model.vision_model.", "vision_model.", ""];
    let tensors = &checkpoint.tensors;
    let (frames, side) = vivit::of_box(reader, [1, 18, 18])?;
    if frames != 1 {
        let problem = format!("expected 1 frame at once, found {frames}");
        return Err(Error::config(reader.path(), vivit::BOX, problem));
    }
    let like = VitLike {
        keys: Keys {
            n_layers: "num_spatial_layers",
            aside: &["apply_l2norm"],
            ..OF_MOST
        },
        eps: 1e-6,
        activation: "gelu_python",
        names: NAMES,
        reads: Reads::Pictures(Pictures {
            kernel: "spatial_embeddings.patch_embeddings.projection.weight",
            form: Kernel::Video("frames_at_once", 1),
            class: None,
            positions: Some("spatial_embeddings.position_embeddings"),
            moments: Some(Moments {
                frames: ("num_frames", 16),
                sines: None,
                places: MomentPlaces::Shared,
                have_classes: false,
            }),
            size: 288,
            patch: side,
            processor: Processor::PLAIN,
            ..vit::PICTURES
        }),
        last_norm: None,
        ..vit::like(BASES)
    };
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let base = super::reading::prefix_of_encoder(
        tensors,
        BASES,
        "spatial_embeddings.patch_embeddings.projection.weight",
    );
    let cap = cap(reader, "softcap", Some(("attn_logit_softcapping", 50.0)))?;
    let (d_model, grid) = (spec.d_model, fixed_grid(reader, &spec)?);
    let n_frames = spec.preprocessing().map_or(1, |all| all.n_moments);
    let n = |reader: &mut Reader<'_>, knob, key: &str, default| {
        reader.size_or(knob, key, default, Origin::Default(key.to_owned()))
    };
    let n_temporal = n(reader, "layers_over_frames", "num_temporal_layers", 4)?;
    let further = format!("{}{FURTHER}", base.trim_end_matches("vision_model."));
    let n_further = if tensors.contains(&format!("{further}.0.layernorm_before.weight")) {
        n(reader, "layers_behind", "num_auxiliary_layers", 2)?
    } else {
        reader.value("num_auxiliary_layers");
        0
    };
    let Layers::Blocks(blocks) = &mut spec.stacks[0].layers else {
        return Ok(spec);
    };
    let Some(first) = blocks.first() else {
        return Ok(spec);
    };
    let like_first = Block::like(tensors, NAMES, first).zip(first.attention().cloned());
    let Some((like_first, attention)) = like_first else {
        return Ok(spec);
    };
    let others = |name: String, n: usize| {
        (0..n).map(move |nth| like_first.read(&format!("{name}.{nth}"), &attention))
    };
    let of_frame = GridWindow::plain(grid);
    let of_place = GridWindow {
        is_spread: true,
        ..of_frame
    };
    let named = |name: &str| {
        like_first
            .norm
            .named(tensors, &format!("{base}{name}"), d_model)
    };
    let n_spatial = blocks.len();
    blocks.extend(others.clone()(format!("{base}temporal_layers"), n_temporal));
    blocks.extend(others(further, n_further));
    for (layer_idx, block) in blocks.iter_mut().enumerate() {
        if layer_idx + 1 == n_spatial {
            block.mlp_post = Some(named("layernorm1"));
            block.moments = Some(Box::new(MomentRows {
                tensor: format!("{base}temporal_embeddings.position_embeddings"),
                n: n_frames,
                width: d_model,
            }));
        }
        if n_further > 0 && layer_idx + 1 == n_spatial + n_temporal {
            block.mlp_post = Some(named("layernorm2"));
        }
        let Some(own) = block.own_mut() else { continue };
        own.attention.softcap = cap.map(|cap| cap as f32);
        if layer_idx < n_spatial {
            see_window(own, of_frame, grid[0] * grid[1]);
        } else if layer_idx < n_spatial + n_temporal {
            see_window(own, of_place, n_frames);
        }
    }
    let mut last = (n_further == 0).then(|| named("layernorm2"));
    let of_blocks = blocks
        .iter_mut()
        .flat_map(|block| [&mut block.attn_pre, &mut block.mlp_pre, &mut block.mlp_post]);
    for norm in of_blocks.chain([&mut last]).flatten() {
        norm.adds_one = true;
    }
    spec.stacks[0].final_norm = last;
    let said = format!(
        "{n_spatial} layers see the patches of a frame, {n_temporal} one place in {n_frames} frames"
    );
    reader.note("windows", said, Origin::Family);
    reader.remark(windowed::ALIKE.to_owned());
    Ok(spec)
}
