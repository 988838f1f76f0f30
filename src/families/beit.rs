//! BEiT: ViT with a learned bias by distance in rows and columns, and learned factors of what branches add.

use attnscope_checkpoint::{Checkpoint, Reader, Tensors};
use attnscope_compute::attention::{Bias, GridDistances};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::Resampling;
use attnscope_spec::{FeedForward, Mixer, ModelSpec, TableSource};

use super::reading::processor::Processor;
use super::reading::task_rules::{NormedMean, TaskRules};
use super::reading::vit_like::{self, Biases, Names, OF_VIT, Pictures, Reads, VitLike, sides};
use super::reading::{either, note_bias};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("beit", "Beit", read)
    .with_tasks(TASKS)
    .leaving_unread(UNREAD);

/// A classifier of pictures reads the mean of the patches through a norm.
pub(super) const TASKS: TaskRules = TaskRules {
    normed_mean: Some(NormedMean {
        key: Some(("use_mean_pooling", true)),
        norm: "pooler.layernorm",
        eps: None,
    }),
    ..TaskRules::USUAL
};

/// Computed from the sizes.
pub(super) const UNREAD: &[&str] = &["relative_position_index"];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let resampled = Some(Resampling::Nearest);
    read_as(
        checkpoint,
        reader,
        (FAMILY.model_type, &["beit.", "", "backbone."], resampled),
    )
}

/// Reads a family with BEiT's switches, and how it resamples positions if it takes pictures of any size.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    (family, bases, resampled): (&'static str, &'static [&'static str], Option<Resampling>),
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let has_positions = reader.flag_or(
        "stores_positions",
        "use_absolute_position_embeddings",
        false,
    )?;
    let takes_mean = reader.flag_or("mean_of_patches", "use_mean_pooling", true)?;
    let like = VitLike {
        names: Names {
            biases: Biases::All,
            ..OF_VIT
        },
        reads: Reads::Pictures(Pictures {
            positions: vit::PICTURES.positions.filter(|_| has_positions),
            processor: Processor::SIGLIP,
            resampled,
            ..vit::PICTURES
        }),
        // The norm follows the mean of the patches.
        last_norm: Some("layernorm").filter(|_| !takes_mean),
        ..vit::like(bases)
    };
    let mut spec = vit_like::read(family, checkpoint, reader, like)?;
    let is_scaled = reader.number_or("layer_scale", "layer_scale_init_value", 0.1)? > 0.0;
    for block in spec.stacks[0].blocks_mut() {
        let (Mixer::Attention(own), FeedForward::Dense(mlp)) =
            (&mut block.mixer, &mut block.feed_forward)
        else {
            continue;
        };
        let maps = &mut own.projections;
        maps.k.bias = None;
        if is_scaled {
            let at = maps
                .q
                .weight
                .replace("attention.attention.query.weight", "");
            maps.o = maps.o.clone().times(format!("{at}lambda_1"));
            mlp.down = mlp.down.clone().times(format!("{at}lambda_2"));
        }
    }
    distances(tensors, reader, &mut spec, resampled.is_some())?;
    Ok(spec)
}

/// The learned bias by distance, of all layers together or of each.
fn distances(
    tensors: &Tensors,
    reader: &mut Reader<'_>,
    spec: &mut ModelSpec,
    is_resampled: bool,
) -> Result<()> {
    const KEYS: [&str; 2] = [
        "use_shared_relative_position_bias",
        "use_relative_position_bias",
    ];
    let is_shared = reader.flag_or("shared_distance_bias", KEYS[0], false)?;
    let is_by_layer = reader.flag_or("distance_bias", KEYS[1], false)?;
    if !is_shared && !is_by_layer {
        return Ok(());
    }
    if is_shared && is_by_layer {
        let problem = "expected false beside the bias that all layers share, found true";
        return Err(Error::config(reader.path(), KEYS[1], problem));
    }
    let (size, patch) = (
        sides(reader, "image_size", 224)?,
        sides(reader, "patch_size", 16)?,
    );
    let grid = [0, 1].map(|side| size[side] / patch[side].max(1));
    if grid[0] == 0 || grid[0] != grid[1] {
        let problem = format!(
            "expected as many rows as columns of patches, found {} × {}",
            grid[0], grid[1]
        );
        return Err(Error::config(reader.path(), "image_size", problem));
    }
    note_bias(reader, "learned, by distance in rows and columns");
    let distances = GridDistances {
        grid,
        has_first: true,
        is_resampled,
    };
    let stack = &mut spec.stacks[0];
    let base = stack.embed.tokens.tensor.clone();
    let base = base
        .split_once("embeddings.")
        .map_or("", |(base, _)| base)
        .to_owned();
    const TABLE: &str = "relative_position_bias.relative_position_bias_table";
    let table = |n_heads: usize, names: [String; 2]| TableSource {
        tensor: either(tensors, names),
        n_rows: distances.n_rows(),
        width: n_heads,
    };
    let mut shared = None;
    for block in stack.blocks_mut() {
        let Mixer::Attention(own) = &mut block.mixer else {
            continue;
        };
        own.attention.bias = Bias::Grid(distances);
        let n_heads = own.attention.n_heads;
        let maps = &mut own.projections;
        if is_by_layer {
            let at = maps
                .q
                .weight
                .replace("attention.attention.query.weight", "");
            let names = [
                format!("{at}attention.attention.{TABLE}"),
                format!("{at}{TABLE}"),
            ];
            maps.bucket_values = Some(table(n_heads, names));
        } else {
            let newer = "shared_position_bias.relative_position_bias_table";
            let names = [format!("{base}encoder.{TABLE}"), format!("{base}{newer}")];
            shared = Some(table(n_heads, names));
        }
    }
    stack.bucket_values = shared;
    Ok(())
}
