//! The encoder of pictures of Segment Anything 2: Hiera with windows of other sizes by stage, and positions of a window besides those
//! of the picture. What follows its last layer is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{GridPositions, ModelSpec, Resampling, TilePositions};

use super::Family;
use super::reading::hiera_like::{HieraLike, Parts, by_stage};
use super::reading::processor::Processor;
use super::reading::vit_like::{Biases, Names, OF_CLIP};

pub const FAMILY: Family = Family::own("sam2_hiera_det_model", "Sam2HieraDet", read);

const LIKE: HieraLike = HieraLike {
    bases: &[
        "backbone.",
        "vision_encoder.backbone.",
        "detector_model.vision_encoder.backbone.",
        "",
    ],
    names: Names {
        qkv: Some("attn.qkv"),
        o: "attn.proj",
        norms: ["layer_norm1", "layer_norm2"],
        up: "mlp.proj_in",
        down: "mlp.proj_out",
        biases: Biases::All,
        ..OF_CLIP
    },
    block: |[_, _, nth]| format!("blocks.{nth}"),
    kernel: "patch_embed.projection",
    patch: "patch_kernel_size",
    depths: "blocks_per_stage",
    heads: "num_attention_heads_per_stage",
    n_pooled: "num_query_pool_stages",
    usual_depths: [1, 2, 7, 2],
    size: 1024,
    processor: Processor::SAM2,
    aside: &["hidden_size", "num_attention_heads"],
};

const SIDES: &str = "window_size_per_stage";
const WHOLE: &str = "global_attention_blocks";
const PLACES: &str = "window_positional_embedding_background_size";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let stages = LIKE.stages(reader)?;
    let n_stages = stages.depths.len();
    let widths = by_stage(reader, "embed_dim_per_stage", &[96, 192, 384, 768])?;
    let sides = by_stage(reader, SIDES, &[8, 4, 14, 7])?;
    for (key, found) in [("embed_dim_per_stage", &widths), (SIDES, &sides)] {
        if found.len() != n_stages {
            let problem =
                format!("expected a number for each of {n_stages} stages, found {found:?}");
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    let whole = reader.numbers(WHOLE)?.unwrap_or(vec![5, 7, 9]);
    reader.note(
        "windows",
        format!("{sides:?} patches along each side by stage, but in layers {whole:?}"),
        Origin::Key(SIDES.to_owned()),
    );
    let [tile, grid] = [[sides[0]; 2], stages.grid()];
    if [0, 1].iter().any(|axis| grid[*axis] % tile[*axis] != 0) {
        let problem = format!(
            "expected windows that divide the {grid:?} patches, whose places are added, found {}",
            sides[0]
        );
        return Err(Error::config(reader.path(), SIDES, problem));
    }
    let places = by_stage(reader, PLACES, &[7, 7])?;
    let &[n_rows, n_columns] = places.as_slice() else {
        let problem = format!("expected rows and columns, found {places:?}");
        return Err(Error::config(reader.path(), PLACES, problem));
    };
    let width = widths[0];
    let positions = |base: &str| GridPositions {
        tensor: format!("{base}pos_embed"),
        shape: vec![1, width, n_rows, n_columns],
        n_first: 0,
        n_behind: 0,
        shares_first: false,
        grid: [n_rows, n_columns],
        n_moments: 1,
        moments: None,
        resampled: Some(Resampling::Nearest),
        has_channels_first: true,
        tiles: Some(TilePositions {
            tensor: format!("{base}pos_embed_window"),
            grid: tile,
        }),
    };
    // The first layer of a stage still has the windows of the stage before.
    let window = |[stage, nth, among_all]: [usize; 3]| match (stage, nth) {
        _ if whole.contains(&(among_all as u64)) => 0,
        (1.., 0) => sides[stage - 1],
        _ => sides[stage],
    };
    let parts = Parts {
        widths,
        window: &window,
        positions: &positions,
    };
    let spec = LIKE.read(FAMILY.model_type, checkpoint, reader, (stages, parts))?;
    reader.note(
        "neck",
        "not read: the last hidden state is that of the last layer",
        Origin::Family,
    );
    Ok(spec)
}
