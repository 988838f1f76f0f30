//! MiniCPM's tower of pictures: SigLIP's, where patches of a window see each other behind one of the layers, and then become one.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, GridSteps, GridWindow};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{
    BlockSpec, FeedForward, Joining, MergeSpec, ModelSpec, ProjectionSpec, Resampling, SquareMap,
};

use super::reading::vit_like::{self, NormRule, OF_CLIP, Pictures, Reads, VitLike};
use super::reading::windowed::{Distances, fixed_grid, see_windows};
use super::reading::{linear, prefix_of_encoder};
use super::{Family, siglip_vision_model};

pub const FAMILY: Family = Family::own("minicpm_ocr_vision", "MiniCPMOcrVision", read);

/// The key of the layer behind which patches become one, and the layer.
const PLACE: (&str, usize) = ("insert_layer_id", 6);

/// The key of the rows and columns of patches that become one.
const SIDES: &str = "window_kernel_size";

const BASES: &[&str] = &["", "model.vision_tower.", "vision_tower."];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let (key, usual) = PLACE;
    // transformers counts rows and columns behind the windows as half of those before.
    let side = 2;
    if let Some(sides) = reader.numbers(SIDES)?.filter(|sides| *sides != [2, 2]) {
        let problem = format!("expected 2 rows and 2 columns, found {sides:?}");
        return Err(Error::config(reader.path(), SIDES, problem));
    }
    let behind = reader.count_or("merges_behind", key, usual)?;
    let like = VitLike {
        reads: Reads::Pictures(Pictures {
            resampled: Some(Resampling::Bins),
            ..siglip_vision_model::PICTURES
        }),
        bases: BASES,
        ..siglip_vision_model::LIKE
    };
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    // Windows are those of pictures of one size.
    let size = reader.size_or(
        "image_size",
        "image_size",
        224,
        Origin::Default("image_size".to_owned()),
    )?;
    if let Some(patches) = &mut spec.stacks[0].embed.patches {
        patches.preprocessing.takes = Some([size; 2]);
    }
    let grid = fixed_grid(reader, &spec)?;
    let n_layers = spec.stacks[0].n_layers();
    if behind >= n_layers {
        return Ok(spec);
    }
    if grid.iter().any(|n| !n.is_multiple_of(side)) {
        let problem = format!(
            "expected a side that divides {} × {} patches, found {side}",
            grid[0], grid[1]
        );
        return Err(Error::config(reader.path(), SIDES, problem));
    }
    let said = format!("{side} × {side} patches, behind layer {behind}");
    reader.note("windows", said, Origin::Key(key.to_owned()));
    reader.remark(format!(
        "layer {} is that of the windows, whose patches become one; it counts as a layer",
        behind + 1
    ));
    let base = prefix_of_encoder(
        &checkpoint.tensors,
        BASES,
        siglip_vision_model::PICTURES.kernel,
    );
    let block = merging(checkpoint, &spec, base, (grid, side));
    let before = spec.stacks[0].blocks().iter().cloned();
    let mut blocks: Vec<BlockSpec> = before.collect();
    blocks.insert(behind + 1, block);
    let read = spec.stacks.remove(0);
    spec.stacks.push(attnscope_spec::StackSpec {
        layers: attnscope_spec::Layers::Blocks(blocks),
        ..read
    });
    Ok(spec)
}

/// The block in which patches see those of their window, before these become one.
fn merging(
    checkpoint: &Checkpoint,
    spec: &ModelSpec,
    base: &str,
    (grid, side): ([usize; 2], usize),
) -> BlockSpec {
    let (tensors, d) = (&checkpoint.tensors, spec.d_model);
    let first = &spec.stacks[0].blocks()[0];
    let norm = NormRule {
        kind: NormKind::LayerNorm,
        eps: first
            .attn_pre
            .as_ref()
            .map_or(1e-6, |norm| f64::from(norm.eps)),
    };
    let at = |name: &str| format!("{base}vit_merger.{name}");
    let one = |name: &str| linear(&at(name), d, d, true);
    let own = first.attention().map_or(1, |own| own.n_heads);
    let attention = AttentionSpec::plain(own, own, d / own.max(1), false);
    let maps = ProjectionSpec::plain(
        one(OF_CLIP.q),
        one(OF_CLIP.k),
        one(OF_CLIP.v),
        one(OF_CLIP.o),
    );
    let joined = side * side * d;
    let stored = tensors.info(&format!("{}.weight", at("linear_1")));
    let hidden = stored.and_then(|info| info.shape.first().copied());
    let hidden = hidden.unwrap_or_default();
    let squares = SquareMap {
        is_by_rows: true,
        norm: Some(norm.named(tensors, &at("pre_norm"), joined)),
        hidden: Some((
            linear(&at("linear_1"), joined, hidden, true),
            Activation::GeluTanh,
        )),
        adds_mean: true,
        ..SquareMap::by_columns(side, linear(&at("linear_2"), hidden, d, true))
    };
    let merge = MergeSpec {
        rows: None,
        joining: Joining::Squares(Box::new(squares)),
        behind: None,
        places: None,
    };
    let mut block = BlockSpec {
        attn_pre: Some(norm.named(tensors, &at("layer_norm1"), d)),
        merge: Some(Box::new(merge)),
        ..BlockSpec::plain(attention, maps, FeedForward::None)
    };
    let steps = GridSteps {
        grid,
        window: Some(GridWindow::plain([side; 2])),
    };
    see_windows(&mut block, steps, Distances::Nothing);
    block
}
