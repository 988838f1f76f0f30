//! Encoders of pictures in stages, whose first blocks pool queries: Hiera and its descendants.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, GridSteps, GridWindow};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{
    BlockSpec, EmbedSpec, GridPositions, Joining, KeyGrid, MergeSpec, ModelSpec, PatchSpec,
    QueryPooling, StackSpec,
};

use super::overlapping::{Overlapping, Patches};
use super::processor::Processor;
use super::vit_like::{Block, Names, NormRule};
use super::vit_pictures::sides;
use super::windowed::{Distances, see_windows};
use super::{activation, linear, note_attention, prefix_of_encoder, stacked};

/// How a family of this kind differs from the others.
#[derive(Debug, Clone, Copy)]
pub struct HieraLike {
    /// Possible prefixes; the first one under which the kernel exists is used.
    pub bases: &'static [&'static str],
    pub names: Names,
    /// The name of a block, by its stage, its number there, and its number among all.
    pub block: fn([usize; 3]) -> String,
    /// The convolution that makes patches.
    pub kernel: &'static str,
    /// The key of the width of that convolution.
    pub patch: &'static str,
    /// Keys of the numbers of layers and of heads by stage, and of how many stages begin with fewer patches.
    pub depths: &'static str,
    pub heads: &'static str,
    pub n_pooled: &'static str,
    /// Numbers of layers by stage, if the configuration does not state them.
    pub usual_depths: [u64; 4],
    /// Rows and columns of a picture, if the configuration does not state them.
    pub size: usize,
    pub processor: Processor,
    /// Keys of training, of what follows the last hidden states, or derived from others.
    pub aside: &'static [&'static str],
}

/// The sizes of all stages.
#[derive(Debug, Clone)]
pub struct Stages {
    pub depths: Vec<usize>,
    pub heads: Vec<usize>,
    /// How many stages behind the first begin with fewer patches.
    pub n_pooled: usize,
    /// Rows, and columns, of patches to one of the next stage.
    pub side: usize,
    /// Rows and columns of pixels.
    pub size: [usize; 2],
    patches: Overlapping,
}

/// What the stages of a family have besides.
pub struct Parts<'a> {
    pub widths: Vec<usize>,
    /// The side of the windows of keys in a layer, by its stage, its number there, and its number among all; 0 if it has none.
    pub window: &'a dyn Fn([usize; 3]) -> usize,
    pub positions: &'a dyn Fn(&str) -> GridPositions,
}

impl Stages {
    /// Rows and columns of patches of the first stage.
    pub fn grid(&self) -> [usize; 2] {
        self.patches.grid(self.size)
    }

    /// Whether a layer has fewer queries than keys.
    fn is_pooled(&self, stage: usize, nth: usize) -> bool {
        nth == 0 && (1..=self.n_pooled).contains(&stage)
    }
}

/// A number for each stage.
pub fn by_stage(reader: &mut Reader<'_>, key: &'static str, usual: &[u64]) -> Result<Vec<usize>> {
    let found = reader.numbers(key)?.unwrap_or(usual.to_vec());
    let is_size = |n: &u64| (1..=1 << 16).contains(n);
    if found.is_empty() || !found.iter().all(is_size) {
        let problem = format!("expected a number for each stage, found {found:?}");
        return Err(Error::config(reader.path(), key, problem));
    }
    reader.note(key, format!("{found:?}"), Origin::Key(key.to_owned()));
    Ok(found.into_iter().map(|n| n as usize).collect())
}

/// Rows and columns, which have to be equal.
pub fn one_side(reader: &mut Reader<'_>, key: &'static str, usual: usize) -> Result<usize> {
    match sides(reader, key, usual)? {
        [rows, columns] if rows == columns => Ok(rows),
        found => {
            let problem = format!("expected as many rows as columns, found {found:?}");
            Err(Error::config(reader.path(), key, problem))
        }
    }
}

impl HieraLike {
    /// The sizes of all stages.
    ///
    /// # Errors
    /// When a value of the configuration is missing or impossible.
    pub fn stages(&self, reader: &mut Reader<'_>) -> Result<Stages> {
        self.aside.iter().for_each(|key| {
            reader.value(key);
        });
        let depths = by_stage(reader, self.depths, &self.usual_depths)?;
        let heads = by_stage(reader, self.heads, &[1, 2, 4, 8])?;
        if depths.len() != heads.len() {
            let problem = format!(
                "expected a number for each of {} stages, found {heads:?}",
                depths.len()
            );
            return Err(Error::config(reader.path(), self.heads, problem));
        }
        let n_pooled = reader.count_or("n_pooled_stages", self.n_pooled, 3)?;
        if n_pooled >= depths.len() {
            let problem = format!(
                "expected at most the {} stages behind the first, found {n_pooled}",
                depths.len() - 1
            );
            return Err(Error::config(reader.path(), self.n_pooled, problem));
        }
        let side = one_side(reader, "query_stride", 2)?;
        let n_wide = one_side(reader, self.patch, 7)?;
        let stride = one_side(reader, "patch_stride", 4)?;
        let margin = one_side(reader, "patch_padding", 3)?;
        if n_wide < stride {
            let problem = format!(
                "expected patches that overlap or touch, found {n_wide} pixels every {stride}"
            );
            return Err(Error::config(reader.path(), self.patch, problem));
        }
        let size = sides(reader, "image_size", self.size)?;
        let stages = Stages {
            depths,
            heads,
            n_pooled,
            side,
            size,
            patches: Overlapping {
                kernel: String::new(),
                n_wide,
                stride,
                margin,
                d_model: 0,
                processor: self.processor,
                size: Some(size),
                is_fixed: true,
            },
        };
        let whole = side.checked_pow(n_pooled as u32).unwrap_or(usize::MAX);
        let grid = stages.grid();
        if grid.contains(&0) || grid.iter().any(|n| n % whole != 0) {
            let problem = format!(
                "expected a multiple of {whole} patches along each side, which are pooled, found {grid:?}"
            );
            return Err(Error::config(reader.path(), "image_size", problem));
        }
        Ok(stages)
    }

    /// Reads a family of this kind.
    ///
    /// # Errors
    /// When a value of the configuration is missing or impossible.
    pub fn read(
        &self,
        family: &'static str,
        checkpoint: &Checkpoint,
        reader: &mut Reader<'_>,
        (stages, parts): (Stages, Parts<'_>),
    ) -> Result<ModelSpec> {
        let tensors = &checkpoint.tensors;
        let probe = format!("{}.weight", self.kernel);
        let base = prefix_of_encoder(tensors, self.bases, &probe);
        let norm = NormRule {
            kind: NormKind::LayerNorm,
            eps: reader.number_or("norm_eps", "layer_norm_eps", 1e-6)?,
        };
        let ratio = reader.number_or("mlp_ratio", "mlp_ratio", 4.0)?;
        let activation = activation(reader, "hidden_act", "gelu")?;
        let Patches { spec, tokens } = Overlapping {
            kernel: format!("{base}{}", self.kernel),
            d_model: parts.widths[0],
            ..stages.patches.clone()
        }
        .read(checkpoint, reader)?;
        let n_ctx = Some(tokens.n_rows);
        let embed = EmbedSpec {
            patches: Some(Box::new(PatchSpec {
                positions: Some((parts.positions)(base)),
                ..spec
            })),
            ..EmbedSpec::plain(tokens)
        };
        let mut grid = stages.grid();
        let mut blocks: Vec<BlockSpec> = Vec::new();
        let mut before = parts.widths[0];
        for (stage, n_layers) in stages.depths.iter().enumerate() {
            let (d_model, n_heads) = (parts.widths[stage], stages.heads[stage]);
            if !d_model.is_multiple_of(n_heads) {
                let problem = format!("{n_heads} heads do not divide a width of {d_model}");
                return Err(Error::config(reader.path(), self.heads, problem));
            }
            let d_mlp = (d_model as f64 * ratio) as usize;
            if d_mlp == 0 {
                let problem =
                    format!("expected a number that leaves a width above 0, found {ratio}");
                return Err(Error::config(reader.path(), "mlp_ratio", problem));
            }
            let attention = AttentionSpec::plain(n_heads, n_heads, d_model / n_heads, false);
            if stage == 0 {
                note_attention(reader, &attention, Origin::Family);
            }
            let block = Block {
                tensors,
                names: self.names,
                d_model,
                d_keys: d_model,
                d_mlp,
                norm,
                activation,
                has_qkv_bias: true,
                has_fused_gate: false,
            };
            for nth in 0..*n_layers {
                let place = [stage, nth, blocks.len()];
                let at = format!("{base}{}", (self.block)(place));
                let mut block = block.read(&at, &attention);
                let side = if stages.is_pooled(stage, nth) {
                    stages.side
                } else {
                    1
                };
                let window = (parts.window)(place);
                if window % side != 0 {
                    let problem = format!(
                        "expected a multiple of the {side} patches that are pooled along each side, found {window}"
                    );
                    return Err(Error::config(reader.path(), "query_stride", problem));
                }
                let steps = GridSteps {
                    grid,
                    window: (window > 0).then_some(GridWindow {
                        per_query: side,
                        ..GridWindow::plain([window; 2])
                    }),
                };
                see_windows(&mut block, steps, Distances::Nothing);
                // A block that changes the width maps its residual, and pools it.
                if before != d_model {
                    let name = self.names.qkv.unwrap_or_default();
                    let fused = linear(&format!("{at}.{name}"), before, 3 * d_model, true);
                    block.attn_pre =
                        Some(norm.named(tensors, &format!("{at}.{}", self.names.norms[0]), before));
                    if let Some(own) = block.own_mut() {
                        own.attention.is_cross = true;
                        let [q, k, v] = stacked(&fused, [d_model; 3]);
                        let maps = &mut own.projections;
                        (maps.q, maps.k, maps.v) = (q, k, v);
                        maps.key_grid = Some(Box::new(KeyGrid::Finer(QueryPooling {
                            side,
                            residual: linear(&format!("{at}.proj"), before, d_model, true),
                        })));
                    }
                    let merge = MergeSpec {
                        rows: None,
                        joining: Joining::SideBySide {
                            side,
                            width: before,
                        },
                        behind: None,
                        places: None,
                    };
                    grid = merge.to(grid);
                    if let Some(last) = blocks.last_mut() {
                        last.merge = Some(Box::new(merge));
                    }
                } else if side > 1 {
                    let problem = format!(
                        "expected stages of different widths where patches are pooled, found {before} and {d_model}"
                    );
                    return Err(Error::config(reader.path(), self.n_pooled, problem));
                }
                before = d_model;
                blocks.push(block);
            }
        }
        let d_model = parts.widths[parts.widths.len() - 1];
        let widths: Vec<String> = parts.widths.iter().map(usize::to_string).collect();
        reader.note(
            "d_model",
            widths.join(", "),
            Origin::Derived("the width of each stage".to_owned()),
        );
        let stack = StackSpec::only(embed, blocks, None);
        Ok(ModelSpec {
            d_model,
            n_ctx,
            ..ModelSpec::of_one_stack(family, stack, None)
        })
    }
}
