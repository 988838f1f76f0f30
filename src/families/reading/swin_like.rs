//! Encoders of pictures in stages, whose patches see windows that every other layer shifts: Swin and its descendants.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Bias, GridSteps, GridWindow, Scale};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{
    BlockSpec, HeadScales, Joining, MadeValues, MergeSpec, ModelSpec, NormSource, PairValues,
    SquareMap, StackSpec, StepSource,
};

use super::vit_like::{Block, Names, NormRule, Pictures};
use super::vit_pictures::{Place, of_pictures};
use super::windowed::{Distances, fixed_grid, see_windows};
use super::{activation, linear, must_be_off, note_attention, note_bias, prefix_of_encoder};

/// How a family of this kind differs from the others.
#[derive(Debug, Clone, Copy)]
pub struct SwinLike {
    /// Possible prefixes; the first one under which the embeddings exist is used.
    pub bases: &'static [&'static str],
    pub names: Names,
    pub distances: Distances,
    pub pictures: Pictures,
    /// The norm after the last block, if it is part of the last hidden states.
    pub last_norm: Option<&'static str>,
    /// Why no positions can be stored for patches; `None` if they can.
    pub without_positions: Option<&'static str>,
    pub windows: Windows,
    /// Set for the second version: norms follow branches and the map between stages, scores are cosines times a learned factor, and a
    /// network makes what distances add.
    pub is_second: bool,
}

/// What becomes of windows that are not smaller than the patches of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    /// They are filled up, and shifted as others are.
    FilledUp,
    /// Those of the same size are not shifted; larger ones do not run.
    Whole,
    /// They are as large as the patches, and not shifted.
    Cut,
}

/// Patches along each side that become one between stages.
const MERGED: usize = 2;

/// The epsilon of norms between stages and of patches, which no key states.
const EPS: f64 = 1e-5;

/// Keys of training, of what follows the last hidden states, or derived from others.
const ASIDE: [&str; 7] = [
    "encoder_stride",
    "hidden_size",
    "num_layers",
    "out_features",
    "out_indices",
    "stage_names",
    "drop_path_rate",
];

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: SwinLike,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let first = reader.size_or("d_embed", "embed_dim", 96, default("embed_dim"))?;
    let stages = stages(reader, &[2, 2, 6, 2], &[3, 6, 12, 24])?;
    let side = reader.size_or("window", "window_size", 7, default("window_size"))?;
    let ratio = reader.number_or("mlp_ratio", "mlp_ratio", 4.0)?;
    let norm = |eps: f64| NormRule {
        kind: NormKind::LayerNorm,
        eps,
    };
    let eps = reader.number_or("norm_eps", "layer_norm_eps", EPS)?;
    const POSITIONS: &str = "use_absolute_embeddings";
    let has_positions = match like.without_positions {
        Some(why) => {
            must_be_off(reader, POSITIONS, why)?;
            false
        }
        None => reader.flag_or("stores_positions", POSITIONS, false)?,
    };
    let base = prefix_of_encoder(tensors, like.bases, like.pictures.kernel);
    let pictures = Pictures {
        positions: like.pictures.positions.filter(|_| has_positions),
        ..like.pictures
    };
    let place = Place {
        base,
        d_model: first,
        norm: norm(EPS),
        n_channels: "num_channels",
    };
    let (embed, n_ctx) = of_pictures(checkpoint, reader, pictures, place)?;
    let whole = ModelSpec::of_one_stack(family, StackSpec::only(embed, Vec::new(), None), None);
    let mut grid = fixed_grid(reader, &whole)?;
    // Windows that are cut go by the rows of the picture, halved and rounded down by stage.
    let stated = grid[0];
    let block = Block {
        tensors,
        names: like.names,
        d_model: first,
        d_keys: first,
        d_mlp: 0,
        norm: norm(eps),
        activation: activation(reader, "hidden_act", "gelu")?,
        has_qkv_bias: reader.flag_or("qkv_bias", "qkv_bias", true)?,
        has_fused_gate: false,
    };
    let trained = if like.is_second {
        trained_windows(reader)?
    } else {
        Vec::new()
    };
    let mut blocks = Vec::new();
    let mut widths = Vec::new();
    for (stage_idx, [n_layers, n_heads]) in stages.iter().copied().enumerate() {
        let d_model = first << stage_idx;
        widths.push(d_model.to_string());
        if !d_model.is_multiple_of(n_heads) {
            let problem = format!("{n_heads} heads do not divide a width of {d_model}");
            return Err(Error::config(reader.path(), "num_heads", problem));
        }
        let d_mlp = (d_model as f64 * ratio) as usize;
        if d_mlp == 0 {
            let problem = format!("expected a number that leaves a width above 0, found {ratio}");
            return Err(Error::config(reader.path(), "mlp_ratio", problem));
        }
        let attention = AttentionSpec::plain(n_heads, n_heads, d_model / n_heads, false);
        if stage_idx == 0 {
            note_attention(reader, &attention, Origin::Family);
        }
        let block = Block {
            d_model,
            d_keys: d_model,
            d_mlp,
            ..block
        };
        let at = format!("{base}encoder.layers.{stage_idx}");
        for nth in 0..n_layers {
            let mut block = block.read(&format!("{at}.blocks.{nth}"), &attention);
            let steps = GridSteps {
                grid,
                window: Some(like.window(reader, (side, nth), (grid, stated >> stage_idx))?),
            };
            see_windows(&mut block, steps, like.distances);
            if like.is_second {
                second_version(&mut block, (like, steps), trained.get(stage_idx).copied());
            }
            blocks.push(block);
        }
        if stage_idx + 1 == stages.len() {
            break;
        }
        let joined = MERGED * MERGED * d_model;
        let between =
            |width| Some(norm(EPS).named(tensors, &format!("{at}.downsample.norm"), width));
        let merge = MergeSpec {
            rows: None,
            joining: Joining::Squares(Box::new(SquareMap {
                norm: between(joined).filter(|_| !like.is_second),
                ..SquareMap::by_columns(
                    MERGED,
                    linear(
                        &format!("{at}.downsample.reduction"),
                        joined,
                        2 * d_model,
                        false,
                    ),
                )
            })),
            behind: between(2 * d_model).filter(|_| like.is_second),
            places: None,
        };
        grid = merge.to(grid);
        if let Some(last) = blocks.last_mut() {
            last.merge = Some(Box::new(merge));
        }
    }
    let d_model = first << (stages.len() - 1);
    reader.note(
        "d_model",
        widths.join(", "),
        Origin::Derived("embed_dim, doubled by stage".to_owned()),
    );
    if like.is_second {
        reader.note(
            "head_scales",
            "a learned factor of cosines by head",
            Origin::Family,
        );
        note_bias(reader, "a network of distances in rows and in columns");
    } else {
        note_bias(reader, "learned values, by distance in rows and in columns");
    }
    // A backbone gives its stages through norms of their own.
    let n_stages = stages.len();
    let outside = base.strip_suffix("model.").unwrap_or(base);
    let of_stage = [
        format!("{base}hidden_states_norms.stage{n_stages}"),
        format!("{outside}hidden_states_norms.{}", n_stages - 1),
    ];
    let is_stored = |name: &&String| tensors.contains(&format!("{name}.weight"));
    let last = match of_stage.iter().find(is_stored) {
        Some(name) => Some(norm(EPS).named(tensors, name, d_model)),
        None => {
            let name = like.last_norm.map(|name| format!("{base}{name}"));
            name.map(|name| norm(eps).named(tensors, &name, d_model))
        }
    };
    let mut spec = ModelSpec {
        d_model,
        n_ctx,
        ..whole
    };
    let embed = spec.stacks.remove(0).embed;
    spec.stacks.push(StackSpec::only(embed, blocks, last));
    Ok(spec)
}

impl SwinLike {
    /// The windows of a layer.
    fn window(
        &self,
        reader: &Reader<'_>,
        (side, nth): (usize, usize),
        (grid, stated): ([usize; 2], usize),
    ) -> Result<GridWindow> {
        let least = match self.windows {
            Windows::Cut => stated,
            Windows::FilledUp | Windows::Whole => grid[0].min(grid[1]),
        };
        if least == 0 || self.windows == Windows::Whole && least < side {
            let problem = format!(
                "expected at most {least}, the patches along a side of the last stage, found {side}"
            );
            return Err(Error::config(reader.path(), "window_size", problem));
        }
        let is_whole = self.windows != Windows::FilledUp && least <= side;
        let is_shifted = nth % 2 == 1 && !is_whole;
        let shift = if is_shifted { side / 2 } else { 0 };
        let side = match self.windows {
            Windows::Cut => side.min(least),
            Windows::FilledUp | Windows::Whole => side,
        };
        Ok(GridWindow {
            shift: [shift; 2],
            ..GridWindow::plain([side; 2])
        })
    }
}

/// What the second version has otherwise in a block. `trained` is the side of the windows that its network was trained with, if stated.
pub fn second_version(
    block: &mut BlockSpec,
    (like, steps): (SwinLike, GridSteps),
    trained: Option<usize>,
) {
    block.attn_out = block.attn_pre.take();
    block.mlp_out = block.mlp_pre.take();
    let Some(own) = block.own_mut() else {
        return;
    };
    let AttentionSpec {
        d_head, n_heads, ..
    } = own.attention;
    own.attention.scale = Scale::InvD;
    let maps = &mut own.projections;
    maps.k.bias = None;
    // Of vectors as long as √d_head, a product over d_head is the cosine.
    let unit = || Some(NormSource::new(NormKind::RmsNorm, 1e-24, d_head, None));
    maps.q_norm = unit();
    maps.k_norm = unit();
    let map = maps.q.weight.trim_end_matches(".weight");
    let at = map.trim_end_matches(like.names.q.rsplit('.').next().unwrap_or_default());
    maps.head_scales = Some(Box::new(HeadScales {
        logarithms: format!("{at}logit_scale"),
        n_heads,
        most: 100.0,
    }));
    let network = format!("{at}continuous_position_bias_mlp");
    let side = trained
        .filter(|side| *side > 0)
        .or(steps.window.map(|window| window.rows));
    let made = MadeValues {
        up: linear(&format!("{network}.0"), 2, HIDDEN, true),
        down: linear(&format!("{network}.2"), HIDDEN, n_heads, false),
        n_steps: steps.n_steps(),
        farthest: side.unwrap_or(1).saturating_sub(1),
        most: 16.0,
    };
    own.attention.bias = Bias::Steps(steps);
    maps.steps = Some(Box::new(StepSource {
        pairs: Some(PairValues::Made(Box::new(made))),
        has_empty_places: steps.has_empty_places(),
        ..StepSource::default()
    }));
}

/// The hidden width of the network of distances, which no key states.
const HIDDEN: usize = 512;

/// The sides of windows that the networks of the stages were trained with; 0 stands for that of the model.
fn trained_windows(reader: &mut Reader<'_>) -> Result<Vec<usize>> {
    const KEY: &str = "pretrained_window_sizes";
    let found = reader.numbers(KEY)?.unwrap_or_default();
    if found.iter().any(|side| *side == 1 || *side > 1 << 12) {
        let problem = format!("expected 0 or sides above 1, found {found:?}");
        return Err(Error::config(reader.path(), KEY, problem));
    }
    Ok(found.into_iter().map(|side| side as usize).collect())
}

/// The numbers of layers and of heads of each stage.
pub fn stages(reader: &mut Reader<'_>, depths: &[u64], heads: &[u64]) -> Result<Vec<[usize; 2]>> {
    let mut read = |(key, default): (&'static str, &[u64])| -> Result<Vec<usize>> {
        let found = reader.numbers(key)?.unwrap_or(default.to_vec());
        let is_size = |n: &u64| (1..=1 << 12).contains(n);
        if !(1..=MOST_STAGES).contains(&found.len()) || !found.iter().all(is_size) {
            let problem = format!("expected a number for each stage, found {found:?}");
            return Err(Error::config(reader.path(), key, problem));
        }
        reader.note(key, format!("{found:?}"), Origin::Key(key.to_owned()));
        Ok(found.into_iter().map(|n| n as usize).collect())
    };
    let (depths, heads) = (read(("depths", depths))?, read(("num_heads", heads))?);
    if depths.len() != heads.len() {
        let problem = format!(
            "expected a number for each of {} stages, found {heads:?}",
            depths.len()
        );
        return Err(Error::config(reader.path(), "num_heads", problem));
    }
    Ok(depths
        .into_iter()
        .zip(heads)
        .map(|(n, heads)| [n, heads])
        .collect())
}

/// Each stage doubles the width.
const MOST_STAGES: usize = 12;

fn default(key: &str) -> Origin {
    Origin::Default(key.to_owned())
}
