//! Encoders of pictures in stages, whose queries see keys of a coarser grid: PVT and its descendants.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_prompt::Size;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, GridPositions, HiddenConvolution, Joining, KeyGrid,
    KeyReduction, MergeSpec, ModelSpec, NormSource, PatchSpec, PlaneConvolution, StackSpec,
    StagePlaces,
};

use super::overlapping::{Overlapping, Patches};
use super::processor::Processor;
use super::vit_like::{Block, Names, NormRule};
use super::vit_pictures::sides;
use super::{activation, note_attention, prefix_of_encoder};

/// How a family of this kind differs from the others. In names, `{}` stands for the number of a stage.
#[derive(Debug, Clone, Copy)]
pub struct PyramidLike {
    /// Possible prefixes; the first one under which the first kernel exists is used.
    pub bases: &'static [&'static str],
    /// Names inside a block; its number follows those of `layers`.
    pub names: Names,
    /// What begins a stage: a convolution of this name, and a norm beside it.
    pub patches: &'static str,
    pub kernel: &'static str,
    /// The norm behind each stage; the last follows the last block.
    pub stage_norm: &'static str,
    /// The convolution that makes keys coarser, and the norm behind it, in a block.
    pub reduction: [&'static str; 2],
    /// The depthwise convolution of feed-forward layers; `None` if they have none.
    pub mixes: Option<&'static str>,
    /// The key of the ratios of grids of queries and of keys.
    pub ratios: &'static str,
    pub d_model: [u64; 4],
    pub patch: [u64; 4],
    pub mlp_ratios: [u64; 4],
    /// The epsilon of norms, if the configuration does not state it; `None` if a key does.
    pub eps: Option<f64>,
    /// The switch of the biases of queries, keys and values; `None` if they have some.
    pub qkv_bias: Option<&'static str>,
    /// The switch of keys that are the means of bins, with activations around.
    pub pools: Option<&'static str>,
    /// Set if patches do not overlap, and stages have stored positions, and the last a token before its patches.
    pub has_places: bool,
    pub processor: Processor,
}

/// Ratios, strides and numbers of layers and heads, as most families have them by default.
const STAGES: [u64; 4] = [2; 4];
const RATIOS: [u64; 4] = [8, 4, 2, 1];
const STRIDES: [u64; 4] = [4, 2, 2, 2];
const HEADS: [u64; 4] = [1, 2, 5, 8];

/// Bins of rows, and of columns, whose means become keys.
const BINS: usize = 7;

/// Keys of training, of what follows the last hidden states, or derived from others.
const ASIDE: [&str; 8] = [
    "decoder_hidden_size",
    "head_in_index",
    "max_depth",
    "out_features",
    "out_indices",
    "reshape_last_stage",
    "semantic_loss_ignore_index",
    "stage_names",
];

/// The sizes of a stage.
#[derive(Debug, Clone, Copy)]
struct Stage {
    n_layers: usize,
    d_model: usize,
    n_heads: usize,
    d_mlp: usize,
    /// Width of the kernel that begins it, in patches, and how far one is from the next.
    kernel: usize,
    stride: usize,
    /// Rows, and columns, of queries to one of keys.
    ratio: usize,
}

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: PyramidLike,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let stages = like.stages(reader)?;
    let eps = match like.eps {
        Some(eps) => {
            reader.value("layer_norm_eps");
            reader.note("norm_eps", format!("{eps:e}"), Origin::Family);
            eps
        }
        None => reader.number_or("norm_eps", "layer_norm_eps", 1e-6)?,
    };
    let norm = NormRule {
        kind: NormKind::LayerNorm,
        eps,
    };
    let probe = format!("{}.{}.weight", like.patches, like.kernel).replace("{}", "0");
    let base = prefix_of_encoder(tensors, like.bases, &probe);
    let reading = Reading {
        like,
        tensors,
        base,
        norm,
        activation: activation(reader, "hidden_act", "gelu")?,
        has_qkv_bias: match like.qkv_bias {
            Some(key) => reader.flag_or("qkv_bias", key, true)?,
            None => true,
        },
        pools: match like.pools {
            Some(key) => reader.flag_or("pools_keys", key, false)?,
            None => false,
        },
    };
    let (embed, size) = reading.embedding(checkpoint, reader, stages[0])?;
    let mut blocks: Vec<BlockSpec> = Vec::new();
    for (nth, stage) in stages.iter().enumerate() {
        let attention = reading.attention(*stage);
        if nth == 0 {
            note_attention(reader, &attention, Origin::Family);
        } else if let Some(last) = blocks.last_mut() {
            let is_last = nth + 1 == stages.len();
            let before = stages[nth - 1].d_model;
            let merge = reading.merge((nth, is_last), (before, *stage), size);
            last.merge = Some(Box::new(merge));
        }
        for layer in 0..stage.n_layers {
            blocks.push(reading.block((nth, layer), *stage, &attention));
        }
    }
    let last = stages[stages.len() - 1];
    let widths: Vec<String> = stages.iter().map(|s| s.d_model.to_string()).collect();
    let origin = Origin::Key("hidden_sizes".to_owned());
    reader.note("d_model", widths.join(", "), origin);
    let final_norm = reading.named(like.stage_norm, stages.len() - 1, last.d_model);
    let mut spec = ModelSpec::of_one_stack(
        family,
        StackSpec::only(embed, blocks, Some(final_norm)),
        None,
    );
    spec.d_model = last.d_model;
    Ok(spec)
}

impl PyramidLike {
    /// The sizes of all stages.
    fn stages(&self, reader: &mut Reader<'_>) -> Result<Vec<Stage>> {
        const COUNT: &str = "num_encoder_blocks";
        let by = Origin::Default(COUNT.to_owned());
        let n = reader.size_or("n_stages", COUNT, 4, by)?;
        let mut list = |key: &'static str, usual: [u64; 4]| -> Result<Vec<usize>> {
            let found = reader.numbers(key)?.unwrap_or(usual.to_vec());
            let is_size = |n: &u64| (1..=1 << 16).contains(n);
            if found.len() < n || !found.iter().all(is_size) {
                let problem = format!("expected a number for each of {n} stages, found {found:?}");
                return Err(Error::config(reader.path(), key, problem));
            }
            let of_stages: Vec<usize> = found.into_iter().take(n).map(|n| n as usize).collect();
            reader.note(key, format!("{of_stages:?}"), Origin::Key(key.to_owned()));
            Ok(of_stages)
        };
        let depths = list("depths", STAGES)?;
        let widths = list("hidden_sizes", self.d_model)?;
        let heads = list("num_attention_heads", HEADS)?;
        let ratios = list("mlp_ratios", self.mlp_ratios)?;
        let (kernels, strides) = (list("patch_sizes", self.patch)?, list("strides", STRIDES)?);
        let reduced = list(self.ratios, RATIOS)?;
        let refused = |key: &str, problem: String| Err(Error::config(reader.path(), key, problem));
        let mut stages = Vec::with_capacity(n);
        for nth in 0..n {
            // One reads its patches by the stride, and goes on by the size of a patch.
            let (kernel, stride) = if self.has_places {
                (strides[nth], kernels[nth])
            } else {
                (kernels[nth], strides[nth])
            };
            if !widths[nth].is_multiple_of(heads[nth]) {
                let problem = format!(
                    "{} heads do not divide a width of {}",
                    heads[nth], widths[nth]
                );
                return refused("num_attention_heads", problem);
            }
            if kernel < stride || self.has_places && kernel != stride {
                let problem = format!(
                    "expected patches that {} and leave no gap, found {kernel} pixels every {stride}",
                    if self.has_places {
                        "touch"
                    } else {
                        "overlap or touch"
                    }
                );
                return refused("strides", problem);
            }
            if self.has_places && nth + 1 == n && reduced[nth] > 1 {
                let problem = format!(
                    "expected 1 in the last stage, whose first token has no place in a grid, found {}",
                    reduced[nth]
                );
                return refused(self.ratios, problem);
            }
            stages.push(Stage {
                n_layers: depths[nth],
                d_model: widths[nth],
                n_heads: heads[nth],
                d_mlp: widths[nth] * ratios[nth],
                kernel,
                stride,
                ratio: reduced[nth],
            });
        }
        Ok(stages)
    }
}

/// What all stages share.
struct Reading<'a> {
    like: PyramidLike,
    tensors: &'a Tensors,
    base: &'a str,
    norm: NormRule,
    activation: Activation,
    has_qkv_bias: bool,
    pools: bool,
}

impl Reading<'_> {
    /// A name of a stage.
    fn name(&self, name: &str, stage: usize) -> String {
        format!("{}{}", self.base, name.replace("{}", &stage.to_string()))
    }

    fn named(&self, name: &str, stage: usize, width: usize) -> NormSource {
        let name = self.name(name, stage);
        self.norm.named(self.tensors, &name, width)
    }

    /// The norm beside the convolution that begins a stage.
    fn patch_norm(&self, stage: usize, width: usize) -> NormSource {
        let name = format!("{}.layer_norm", self.like.patches);
        self.named(&name, stage, width)
    }

    fn kernel(&self, stage: usize) -> String {
        self.name(
            &format!("{}.{}", self.like.patches, self.like.kernel),
            stage,
        )
    }

    fn is_reduced(&self, stage: Stage) -> bool {
        self.pools || stage.ratio > 1
    }

    fn attention(&self, stage: Stage) -> AttentionSpec {
        let d_head = stage.d_model / stage.n_heads;
        AttentionSpec {
            is_cross: self.is_reduced(stage),
            ..AttentionSpec::plain(stage.n_heads, stage.n_heads, d_head, false)
        }
    }

    /// What makes the rows of a stage of those of the stage before.
    fn merge(
        &self,
        (nth, is_last): (usize, bool),
        (before, stage): (usize, Stage),
        size: [usize; 2],
    ) -> MergeSpec {
        let kernel = self.kernel(nth);
        let padding = if self.like.has_places {
            0
        } else {
            stage.kernel / 2
        };
        let at = self.name(self.like.patches, nth);
        MergeSpec {
            rows: (!self.like.has_places)
                .then(|| self.named(self.like.stage_norm, nth - 1, before)),
            joining: Joining::Convolution(PlaneConvolution {
                weight: format!("{kernel}.weight"),
                bias: Some(format!("{kernel}.bias")),
                n_in: before,
                n_out: stage.d_model,
                is_by_channel: false,
                is_line: false,
                apart: 1,
                n_wide: stage.kernel,
                strides: [stage.stride; 2],
                padding: [padding; 2],
                is_activated: false,
            }),
            behind: Some(self.patch_norm(nth, stage.d_model)),
            places: self.like.has_places.then(|| {
                Box::new(StagePlaces {
                    class: is_last.then(|| format!("{at}.cls_token")),
                    positions: Some(format!("{at}.position_embeddings")),
                    // Tables are of a picture that was halved once for the first stage too.
                    grid: size.map(|side| (side >> (nth + 1)) / stage.stride),
                    width: stage.d_model,
                })
            }),
        }
    }

    fn block(
        &self,
        (stage_idx, layer): (usize, usize),
        stage: Stage,
        attention: &AttentionSpec,
    ) -> BlockSpec {
        let like = self.like;
        let block = Block {
            tensors: self.tensors,
            names: like.names,
            d_model: stage.d_model,
            d_keys: stage.d_model,
            d_mlp: stage.d_mlp,
            norm: self.norm,
            activation: self.activation,
            has_qkv_bias: self.has_qkv_bias,
            has_fused_gate: false,
        };
        let at = format!("{}.{layer}", self.name(like.names.layers, stage_idx));
        let mut block = block.read(&at, attention);
        let convolution = |name: String, n: usize, width: usize| PlaneConvolution {
            weight: format!("{name}.weight"),
            bias: Some(format!("{name}.bias")),
            n_in: n,
            n_out: n,
            is_by_channel: false,
            is_line: false,
            apart: 1,
            n_wide: width,
            strides: [width; 2],
            padding: [0; 2],
            is_activated: false,
        };
        let [reduction, norm] = like.reduction.map(|name| format!("{at}.{name}"));
        if let Some(own) = block.own_mut().filter(|_| self.is_reduced(stage)) {
            let width = if self.pools { 1 } else { stage.ratio };
            own.projections.key_grid = Some(Box::new(KeyGrid::Coarser(KeyReduction {
                n_bins: self.pools.then_some(BINS),
                convolution: convolution(reduction, stage.d_model, width),
                norm: self.norm.named(self.tensors, &norm, stage.d_model),
                activation: self.pools.then_some(Activation::Gelu),
            })));
        }
        if let (FeedForward::Dense(mlp), Some(name)) = (&mut block.feed_forward, like.mixes) {
            mlp.convolution = Some(Box::new(HiddenConvolution {
                before: self.pools.then_some(Activation::Relu),
                convolution: PlaneConvolution {
                    is_by_channel: true,
                    strides: [1; 2],
                    padding: [1; 2],
                    ..convolution(format!("{at}.{name}"), stage.d_mlp, 3)
                },
            }));
        }
        block
    }

    /// How pictures become the rows of the first stage, and the rows and columns of pixels that the model was made for.
    fn embedding(
        &self,
        checkpoint: &Checkpoint,
        reader: &mut Reader<'_>,
        first: Stage,
    ) -> Result<(EmbedSpec, [usize; 2])> {
        let like = self.like;
        let stated = match reader.value("image_size") {
            Some(_) => Some(sides(reader, "image_size", 0)?),
            None => None,
        };
        let size = match (stated, like.processor.size) {
            (Some(size), _) => Some(size),
            (None, Size::Exactly(size)) => Some(size),
            (None, _) => None,
        };
        let patches = Overlapping {
            kernel: self.kernel(0),
            n_wide: first.kernel,
            stride: first.stride,
            margin: if like.has_places { 0 } else { first.kernel / 2 },
            d_model: first.d_model,
            processor: like.processor,
            size,
            is_fixed: like.has_places,
        };
        let Patches { spec, tokens } = patches.read(checkpoint, reader)?;
        let size = size.unwrap_or_default();
        let stored = size.map(|side| side / first.stride);
        let positions = like.has_places.then(|| GridPositions {
            tensor: format!("{}.position_embeddings", self.name(like.patches, 0)),
            shape: vec![1, stored[0] * stored[1], first.d_model],
            n_first: 0,
            n_behind: 0,
            shares_first: false,
            grid: stored,
            n_moments: 1,
            moments: None,
            resampled: None,
            has_channels_first: false,
            tiles: None,
        });
        let embed = EmbedSpec {
            patches: Some(Box::new(PatchSpec { positions, ..spec })),
            norm: Some(self.patch_norm(0, first.d_model)),
            norms_before_positions: true,
            ..EmbedSpec::plain(tokens)
        };
        Ok((embed, size))
    }
}
