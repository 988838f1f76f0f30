//! TimeSformer: ViT over the frames of a video. Each layer attends to its own place in all frames, then to the patches of its own frame
//! and a class token. Here these are two layers, and each frame has a copy of the class token: all copies get the mean of what they get.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, GridWindow};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, FeedForward, FirstRows, Layers, ModelSpec};

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Block, Keys, MomentPlaces, Moments, Names, OF_MOST, OF_VIT, Pictures, Reads, VitLike,
};
use super::reading::windowed::{self, fixed_grid, see_window};
use super::reading::{linear, prefix_of_encoder};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("timesformer", "Timesformer", read);

const BASES: &[&str] = &["timesformer.", ""];

const OVER_SPACE: Names = Names {
    qkv: Some("attention.attention.qkv"),
    ..OF_VIT
};

const OVER_TIME: Names = Names {
    qkv: Some("temporal_attention.attention.qkv"),
    o: "temporal_attention.output.dense",
    norms: ["temporal_layernorm", "layernorm_after"],
    ..OF_VIT
};

/// The key of what a layer attends to.
const KIND: &str = "attention_type";

/// What a layer attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The own place in all frames, then the own frame.
    Divided,
    /// All places in all frames.
    Joint,
    /// The own frame: all frames of a still video are one picture.
    Space,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let kind = match &*reader.word_or("attends_to", KIND, "divided_space_time")? {
        "divided_space_time" => Kind::Divided,
        "joint_space_time" => Kind::Joint,
        "space_only" => Kind::Space,
        other => {
            let problem = format!(
                "expected divided_space_time, joint_space_time or space_only, found {other:?}"
            );
            return Err(Error::config(reader.path(), KIND, problem));
        }
    };
    let moments = Moments {
        frames: ("num_frames", 8),
        sines: None,
        places: MomentPlaces::SharedAnd("embeddings.time_embeddings"),
        have_classes: kind == Kind::Divided,
    };
    let like = VitLike {
        keys: Keys {
            aside: &["drop_path_rate"],
            ..OF_MOST
        },
        eps: 1e-6,
        names: OVER_SPACE,
        reads: Reads::Pictures(Pictures {
            moments: (kind != Kind::Space).then_some(moments),
            processor: Processor::TIMESFORMER,
            ..vit::PICTURES
        }),
        ..vit::like(BASES)
    };
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    match kind {
        Kind::Divided => divide(&checkpoint.tensors, reader, &mut spec)?,
        Kind::Joint => {}
        Kind::Space => {
            reader.value("num_frames");
            reader.remark(
                "frames do not see each other: a picture is read as one of them".to_owned(),
            );
        }
    }
    Ok(spec)
}

/// Puts a layer over time before each layer, which then sees its own frame.
fn divide(tensors: &Tensors, reader: &mut Reader<'_>, spec: &mut ModelSpec) -> Result<()> {
    let grid = fixed_grid(reader, spec)?;
    let n_frames = spec.preprocessing().map_or(1, |all| all.n_moments);
    let patches = spec.stacks[0].embed.patches.as_ref();
    let of_frame = GridWindow {
        n_first: patches.map_or(0, |patches| patches.n_first()),
        ..GridWindow::plain(grid)
    };
    let of_place = GridWindow {
        is_spread: true,
        ..of_frame
    };
    let base = prefix_of_encoder(tensors, BASES, vit::PICTURES.kernel);
    let Layers::Blocks(blocks) = &mut spec.stacks[0].layers else {
        return Ok(());
    };
    let mut divided = Vec::with_capacity(2 * blocks.len());
    for (layer_idx, mut block) in std::mem::take(blocks).into_iter().enumerate() {
        let at = format!("{base}{}.{layer_idx}", OF_VIT.layers);
        let like = Block::like(tensors, OVER_TIME, &block).zip(block.attention());
        if let Some((like, attention)) = like {
            let mut before = over_time(&like, &at, attention);
            if let Some(own) = before.own_mut() {
                see_window(own, of_place, n_frames);
            }
            divided.push(before);
        }
        if let Some(own) = block.own_mut() {
            see_window(own, of_frame, 1 + grid[0] * grid[1]);
            own.projections.firsts = FirstRows::Averaged;
        }
        divided.push(block);
    }
    *blocks = divided;
    let said = format!("one place in {n_frames} frames, then the patches of a frame, in turns");
    reader.note("windows", said, Origin::Key(KIND.to_owned()));
    reader.remark(
        "each layer is shown as two, over time and over space; each frame has a copy of the class token, which passes by the first"
            .to_owned(),
    );
    reader.remark(windowed::ALIKE.to_owned());
    Ok(())
}

/// The layer over time, which has no feed-forward part, and a second map behind that of its output.
fn over_time(like: &Block<'_>, at: &str, attention: &AttentionSpec) -> BlockSpec {
    let mut block = like.read(at, attention);
    block.mlp_pre = None;
    block.feed_forward = FeedForward::None;
    if let Some(own) = block.own_mut() {
        let d_model = like.d_model;
        let then = linear(&format!("{at}.temporal_dense"), d_model, d_model, true);
        own.projections.o.then = Some(Box::new(then));
        own.projections.firsts = FirstRows::LeftOut;
    }
    block
}
