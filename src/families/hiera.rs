//! Hiera: patches that see their own mask unit in the first stages, which begin by pooling queries.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{GridPositions, ModelSpec, Pooled};
use serde_json::Value;

use super::Family;
use super::reading::hiera_like::{HieraLike, Parts, Stages, one_side};
use super::reading::processor::Processor;
use super::reading::task_rules::{NormedMean, TaskRules};
use super::reading::vit_like::{Biases, Names, OF_VIT};

pub const FAMILY: Family = Family::own("hiera", "Hiera", read)
    .with_tasks(TaskRules {
        picture: |_| Pooled::Mean,
        normed_mean: Some(NormedMean {
            key: None,
            norm: "pooler.layernorm",
            eps: None,
        }),
        ..TaskRules::USUAL
    })
    .leaving_unread(&["decoder.*", "encoder_norm.*", "multiscale_fusion.*"]);

const LIKE: HieraLike = HieraLike {
    bases: &["hiera.", "model.hiera.", ""],
    names: Names {
        qkv: Some("attn.qkv"),
        o: "attn.proj",
        up: "mlp.fc1",
        down: "mlp.fc2",
        biases: Biases::All,
        ..OF_VIT
    },
    block: |[stage, nth, _]| format!("encoder.stages.{stage}.layers.{nth}"),
    kernel: "embeddings.patch_embeddings.projection",
    patch: "patch_size",
    depths: "depths",
    heads: "num_heads",
    n_pooled: "num_query_pool",
    usual_depths: [2, 3, 16, 3],
    size: 224,
    processor: Processor::PVT,
    aside: &[
        "decoder_depth",
        "decoder_hidden_size",
        "decoder_num_heads",
        "drop_path_rate",
        "hidden_size",
        "layer_norm_init",
        "mask_ratio",
        "normalize_pixel_loss",
        "num_layers",
        "out_features",
        "out_indices",
        "stage_names",
    ],
};

const UNIT: &str = "masked_unit_size";
const SEES_UNIT: &str = "masked_unit_attention";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let stages = LIKE.stages(reader)?;
    let (first, by) = (
        reader.number_or("d_embed", "embed_dim", 96.0)?,
        reader.number_or("widening", "embed_dim_multiplier", 2.0)?,
    );
    let width = |stage: usize| (first * by.powi(stage as i32)) as usize;
    let widths: Vec<usize> = (0..stages.depths.len()).map(width).collect();
    if widths.iter().any(|width| !(1..=1 << 16).contains(width)) {
        let problem = format!("expected widths of stages, found {widths:?}");
        return Err(Error::config(
            reader.path(),
            "embed_dim_multiplier",
            problem,
        ));
    }
    let units = units(reader, &stages)?;
    let (grid, width) = (stages.grid(), widths[0]);
    let window = |[stage, nth, _]: [usize; 3]| match (stage, nth) {
        // The first layer of a stage still sees the units of the stage before.
        (1.., 0) => units[stage - 1].max(units[stage] * stages.side),
        _ => units[stage],
    };
    let positions = |base: &str| GridPositions {
        tensor: format!("{base}embeddings.position_embeddings"),
        shape: vec![1, grid[0] * grid[1], width],
        n_first: 0,
        n_behind: 0,
        shares_first: false,
        grid,
        n_moments: 1,
        moments: None,
        resampled: None,
        has_channels_first: false,
        tiles: None,
    };
    let parts = Parts {
        widths,
        window: &window,
        positions: &positions,
    };
    LIKE.read(
        FAMILY.model_type,
        checkpoint,
        reader,
        (stages.clone(), parts),
    )
}

/// The side of the mask unit that the patches of a stage see; 0 where each sees all of them.
fn units(reader: &mut Reader<'_>, stages: &Stages) -> Result<Vec<usize>> {
    let unit = one_side(reader, UNIT, 8)?;
    let n_stages = stages.depths.len();
    let sees: Vec<bool> = match reader.value(SEES_UNIT) {
        Some(stated) => {
            let list = stated.as_array().into_iter().flatten();
            list.filter_map(Value::as_bool).collect()
        }
        None => vec![true, true, false, false],
    };
    if sees.len() < n_stages {
        let problem = format!("expected a switch for each of {n_stages} stages, found {sees:?}");
        return Err(Error::config(reader.path(), SEES_UNIT, problem));
    }
    // Patches are put in an order of units that are halved as often as there are further stages.
    let whole = stages.side.checked_pow(n_stages as u32 - 1);
    let is_cut = stages.grid().iter().any(|n| n % unit != 0);
    if whole != Some(unit) || is_cut {
        let problem = format!(
            "expected units of {} patches along each side, which divide {:?}, found {unit}",
            whole.unwrap_or(usize::MAX),
            stages.grid()
        );
        return Err(Error::config(reader.path(), UNIT, problem));
    }
    let last = (0..n_stages).rfind(|stage| sees[*stage]).unwrap_or(0);
    // A stage that keeps its patches would cut other units than those of neighbours.
    if stages.n_pooled + 1 < n_stages && last >= stages.n_pooled {
        let problem = format!(
            "expected true for the first {} stages at most, whose patches are pooled, found {sees:?}",
            stages.n_pooled
        );
        return Err(Error::config(reader.path(), SEES_UNIT, problem));
    }
    let side = |stage: usize| unit / stages.side.pow(stage as u32);
    let each = (0..n_stages).map(|stage| if sees[stage] { side(stage) } else { 0 });
    Ok(each.collect())
}
