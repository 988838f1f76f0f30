//! CvT: overlapping patches in stages, whose queries, keys and values each pass through a convolution, and a token before the patches of
//! the last stage.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Scale};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{
    BlockSpec, ConvolvedInput, ConvolvedInputs, EmbedSpec, Joining, KeyGrid, MergeSpec, ModelSpec,
    NormSource, PlaneConvolution, StackSpec, StagePlaces,
};
use serde_json::Value;

use super::Family;
use super::reading::hiera_like::by_stage;
use super::reading::overlapping::{Overlapping, Patches};
use super::reading::processor::Processor;
use super::reading::vit_like::{Biases, Block, Names, NormRule, OF_VIT};
use super::reading::{layer_norm, note_attention, prefix_of_encoder};

pub const FAMILY: Family = Family::own("cvt", "Cvt", read);

const NAMES: Names = Names {
    q: "attention.attention.projection_query",
    k: "attention.attention.projection_key",
    v: "attention.attention.projection_value",
    biases: Biases::All,
    ..OF_VIT
};

/// Epsilon of all norms, which no key states.
const EPS: f64 = 1e-5;

const NORM: NormRule = NormRule {
    kind: NormKind::LayerNorm,
    eps: EPS,
};

/// Keys of training, and one that no norm reads.
const ASIDE: [&str; 5] = [
    "attention_drop_rate",
    "drop_path_rate",
    "drop_rate",
    "initializer_range",
    "layer_norm_eps",
];

/// The sizes of a stage.
#[derive(Debug, Clone, Copy)]
struct Stage {
    n_layers: usize,
    d_model: usize,
    n_heads: usize,
    d_mlp: usize,
    /// Width, stride and padding of the convolution that begins it.
    patch: [usize; 3],
    /// Width, stride and padding of the convolutions of queries, and of keys and values.
    of_queries: [usize; 3],
    of_keys: [usize; 3],
    has_qkv_bias: bool,
    has_class: bool,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let stages = stages(reader)?;
    let kernel = |stage: usize| {
        format!("encoder.stages.{stage}.embedding.convolution_embeddings.projection")
    };
    let probe = format!("{}.weight", kernel(0));
    let base = prefix_of_encoder(tensors, &["cvt.", "model.cvt.", ""], &probe);
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    let norm_behind = |stage: usize, width: usize| {
        let name =
            format!("{base}encoder.stages.{stage}.embedding.convolution_embeddings.normalization");
        Some(NORM.named(tensors, &name, width))
    };
    let first = stages[0];
    let [n_wide, stride, margin] = first.patch;
    let patches = Overlapping {
        kernel: format!("{base}{}", kernel(0)),
        n_wide,
        stride,
        margin,
        d_model: first.d_model,
        processor: Processor::CONVNEXT,
        size: None,
        is_fixed: false,
    };
    let Patches { spec, tokens } = patches.read(checkpoint, reader)?;
    let embed = EmbedSpec {
        patches: Some(Box::new(spec)),
        norm: norm_behind(0, first.d_model),
        norms_before_positions: true,
        ..EmbedSpec::plain(tokens)
    };
    let mut blocks: Vec<BlockSpec> = Vec::new();
    for (nth, stage) in stages.iter().enumerate() {
        let d_model = stage.d_model;
        let attention = AttentionSpec {
            is_cross: true,
            // All heads together, and not one, give the scale.
            scale: Scale::Factor((d_model as f32).sqrt().recip()),
            ..AttentionSpec::plain(stage.n_heads, stage.n_heads, d_model / stage.n_heads, false)
        };
        if nth == 0 {
            note_attention(reader, &attention, Origin::Family);
        } else if let Some(last) = blocks.last_mut() {
            let [n_wide, stride, margin] = stage.patch;
            let kernel = format!("{base}{}", kernel(nth));
            last.merge = Some(Box::new(MergeSpec {
                rows: None,
                joining: Joining::Convolution(PlaneConvolution {
                    weight: format!("{kernel}.weight"),
                    bias: Some(format!("{kernel}.bias")),
                    n_in: stages[nth - 1].d_model,
                    n_out: d_model,
                    is_by_channel: false,
                    is_line: false,
                    apart: 1,
                    n_wide,
                    strides: [stride; 2],
                    padding: [margin; 2],
                    is_activated: false,
                }),
                behind: norm_behind(nth, d_model),
                places: stage.has_class.then(|| {
                    Box::new(StagePlaces {
                        class: Some(format!("{base}encoder.stages.{nth}.cls_token")),
                        positions: None,
                        grid: [0; 2],
                        width: d_model,
                    })
                }),
            }));
        }
        for layer in 0..stage.n_layers {
            let at = format!("{base}encoder.stages.{nth}.layers.{layer}");
            blocks.push(block(tensors, &at, *stage, &attention));
        }
    }
    let last = stages[stages.len() - 1];
    let widths: Vec<String> = stages.iter().map(|s| s.d_model.to_string()).collect();
    let origin = Origin::Key("embed_dim".to_owned());
    reader.note("d_model", widths.join(", "), origin);
    // The norm belongs to the class that labels pictures.
    let last_norm = tensors
        .contains("layernorm.weight")
        .then(|| layer_norm(tensors, "layernorm", last.d_model, EPS));
    let stack = StackSpec::only(embed, blocks, last_norm);
    Ok(ModelSpec {
        d_model: last.d_model,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, None)
    })
}

fn block(tensors: &Tensors, at: &str, stage: Stage, attention: &AttentionSpec) -> BlockSpec {
    let d_model = stage.d_model;
    let of_vit = Block {
        tensors,
        names: NAMES,
        d_model,
        d_keys: d_model,
        d_mlp: stage.d_mlp,
        norm: NORM,
        activation: Activation::Gelu,
        has_qkv_bias: stage.has_qkv_bias,
        has_fused_gate: false,
    };
    let mut block = of_vit.read(at, attention);
    let input = |name: &str, [n_wide, stride, padding]: [usize; 3]| {
        let at = format!("{at}.attention.attention.convolution_projection_{name}");
        let at = format!("{at}.convolution_projection");
        let stored = |what: &str| format!("{at}.normalization.{what}");
        ConvolvedInput {
            convolution: PlaneConvolution {
                weight: format!("{at}.convolution.weight"),
                bias: None,
                n_in: d_model,
                n_out: d_model,
                is_by_channel: true,
                is_line: false,
                apart: 1,
                n_wide,
                strides: [stride; 2],
                padding: [padding; 2],
                is_activated: false,
            },
            norm: NormSource {
                bias: Some(stored("bias")),
                statistics: Some(["running_mean", "running_var"].map(stored)),
                ..NormSource::new(NormKind::Fixed, EPS, d_model, Some(stored("weight")))
            },
        }
    };
    if let Some(own) = block.own_mut() {
        let inputs = ConvolvedInputs {
            queries: input("query", stage.of_queries),
            keys: input("key", stage.of_keys),
            values: input("value", stage.of_keys),
        };
        own.projections.key_grid = Some(Box::new(KeyGrid::Convolved(Box::new(inputs))));
    }
    block
}

/// The sizes of all stages.
fn stages(reader: &mut Reader<'_>) -> Result<Vec<Stage>> {
    let depths = by_stage(reader, "depth", &[1, 2, 10])?;
    let n = depths.len();
    let mut sizes = |key: &'static str, usual: [u64; 3]| -> Result<Vec<usize>> {
        let found = by_stage(reader, key, &usual)?;
        has_all(reader, key, (found.len(), n))?;
        Ok(found)
    };
    let widths = sizes("embed_dim", [64, 192, 384])?;
    let heads = sizes("num_heads", [1, 3, 6])?;
    let patches = [
        sizes("patch_sizes", [7, 3, 3])?,
        sizes("patch_stride", [4, 2, 2])?,
    ];
    let kernels = sizes("kernel_qkv", [3; 3])?;
    let strides = [sizes("stride_q", [1; 3])?, sizes("stride_kv", [2; 3])?];
    let paddings = [
        padding(reader, "patch_padding", [2, 1, 1], n)?,
        padding(reader, "padding_q", [1; 3], n)?,
        padding(reader, "padding_kv", [1; 3], n)?,
    ];
    let ratios = of_values(reader, "mlp_ratio", Value::as_f64, 4.0, n)?;
    let biases = of_values(reader, "qkv_bias", Value::as_bool, true, n)?;
    let classes = of_values(reader, "cls_token", Value::as_bool, false, n)?;
    let classes = match reader.value("cls_token") {
        Some(_) => classes,
        None => (0..n).map(|nth| nth == 2).collect(),
    };
    const METHOD: &str = "qkv_projection_method";
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let methods = of_values(reader, METHOD, word, "dw_bn".to_owned(), n)?;
    let refused = |key: &str, problem: String| Err(Error::config(reader.path(), key, problem));
    if let Some(other) = methods.iter().find(|method| *method != "dw_bn") {
        return refused(METHOD, format!("expected dw_bn, found {other}"));
    }
    // A classifier reads the token of the last stage, and stages hand patches on alone.
    if n < 2
        || classes.iter().rposition(|has| *has) != Some(n - 1)
        || classes[..n - 1].contains(&true)
    {
        let problem =
            format!("expected true for the last of several stages alone, found {classes:?}");
        return refused("cls_token", problem);
    }
    let mut stages = Vec::with_capacity(n);
    for nth in 0..n {
        let (d_model, n_heads) = (widths[nth], heads[nth]);
        if d_model % n_heads != 0 {
            let problem = format!("{n_heads} heads do not divide a width of {d_model}");
            return refused("num_heads", problem);
        }
        let d_mlp = (d_model as f64 * ratios[nth]) as usize;
        if d_mlp == 0 {
            let problem = format!("expected numbers that leave a width above 0, found {ratios:?}");
            return refused("mlp_ratio", problem);
        }
        if strides[0][nth] != 1 || kernels[nth] != 2 * paddings[1][nth] + 1 {
            let problem = format!(
                "expected convolutions that leave as many queries as patches, found {} patches every {}, padded by {}",
                kernels[nth], strides[0][nth], paddings[1][nth]
            );
            return refused("stride_q", problem);
        }
        if patches[0][nth] < patches[1][nth] {
            let problem = format!(
                "expected patches that overlap or touch, found {} pixels every {}",
                patches[0][nth], patches[1][nth]
            );
            return refused("patch_stride", problem);
        }
        stages.push(Stage {
            n_layers: depths[nth],
            d_model,
            n_heads,
            d_mlp,
            patch: [patches[0][nth], patches[1][nth], paddings[0][nth]],
            of_queries: [kernels[nth], strides[0][nth], paddings[1][nth]],
            of_keys: [kernels[nth], strides[1][nth], paddings[2][nth]],
            has_qkv_bias: biases[nth],
            has_class: classes[nth],
        });
    }
    Ok(stages)
}

fn has_all(reader: &Reader<'_>, key: &str, (found, n): (usize, usize)) -> Result<()> {
    if found == n {
        return Ok(());
    }
    let problem = format!("expected a value for each of {n} stages, found {found}");
    Err(Error::config(reader.path(), key, problem))
}

/// Zeros beside patches, for each stage.
fn padding(
    reader: &mut Reader<'_>,
    key: &'static str,
    usual: [u64; 3],
    n: usize,
) -> Result<Vec<usize>> {
    let found = reader.numbers(key)?.unwrap_or(usual.to_vec());
    has_all(reader, key, (found.len(), n))?;
    if found.iter().any(|n| *n > 1 << 8) {
        let problem = format!("expected a few patches, found {found:?}");
        return Err(Error::config(reader.path(), key, problem));
    }
    Ok(found.into_iter().map(|n| n as usize).collect())
}

/// A value of a kind for each stage.
fn of_values<T: Clone>(
    reader: &mut Reader<'_>,
    key: &'static str,
    of: impl Fn(&Value) -> Option<T>,
    usual: T,
    n: usize,
) -> Result<Vec<T>> {
    let Some(stated) = reader.value(key) else {
        return Ok(vec![usual; n]);
    };
    let list = stated.as_array().into_iter().flatten();
    let found: Vec<T> = list.filter_map(of).collect();
    has_all(reader, key, (found.len(), n))?;
    Ok(found)
}
