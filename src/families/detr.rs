//! DETR behind its convolutions: an encoder over the places of their last map of features, and a decoder over learned queries. What tells
//! places is added to queries and keys in every layer, and not to values.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    AddedPlaces, BlockSpec, CrossSpec, EmbedSpec, FeedForward, LearnedActivation, LinearSource,
    MlpSpec, ModelSpec, NormSource, PlaceRows, ProjectionSpec, SineScale, Stack, StackSpec,
    TableSource,
};

use super::Family;
use super::reading::{
    activation, either, even_heads, given_rows, layer_norm, linear, must_be_off, note_attention,
    prefix,
};

pub const FAMILY: Family = Family::own("detr", "Detr", read).leaving_unread(UNREAD);

/// The convolutions before the encoder, and what makes boxes, classes and masks of the decoder's states.
pub(super) const UNREAD: &[&str] = &[
    "backbone.*",
    "bbox_attention.*",
    "bbox_predictor.*",
    "class_labels_classifier.*",
    "mask_head.*",
];

/// Epsilon of all norms of DETR; no configuration states it.
const EPS: f64 = 1e-5;

/// Keys of the convolutions and of training that detectors of this kind have.
pub(super) const ASIDE_OF_DETECTORS: [&str; 16] = [
    "backbone",
    "backbone_config",
    "backbone_kwargs",
    "bbox_cost",
    "bbox_loss_coefficient",
    "class_cost",
    "cls_loss_coefficient",
    "dilation",
    "focal_alpha",
    "giou_cost",
    "giou_loss_coefficient",
    "init_xavier_std",
    "is_encoder_decoder",
    "num_channels",
    "use_pretrained_backbone",
    "use_timm_backbone",
];

/// Keys of training, and of what is made of the decoder's states.
const ASIDE: [&str; 5] = [
    "decoder_layerdrop",
    "dice_loss_coefficient",
    "encoder_layerdrop",
    "eos_coefficient",
    "mask_loss_coefficient",
];

/// How a family of this kind differs from the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Like {
    /// Norms stand before branches, with one at the end of the encoder, and not after them.
    pub is_before: bool,
    pub reads_decoder: bool,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = Like {
        is_before: false,
        reads_decoder: true,
    };
    read_like(FAMILY.model_type, checkpoint, reader, like)
}

/// One of the two stacks.
pub(super) struct Side<'a> {
    pub tensors: &'a Tensors,
    pub base: String,
    pub stack: Stack,
    pub d_model: usize,
    pub d_mlp: usize,
    pub n_layers: usize,
    pub activation: Activation,
    pub attention: AttentionSpec,
    /// What tells the places of the stack's own rows.
    pub places: PlaceRows,
    pub is_before: bool,
    /// The norm that follows the last layer, if one does.
    pub last_norm: Option<&'static str>,
    /// What each layer calls the slope of its activation below 0, if it is stored.
    pub slope: Option<&'static str>,
    pub eps: f64,
}

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_like(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: Like,
) -> Result<ModelSpec> {
    const POSITIONS: &str = "position_embedding_type";
    let tensors = &checkpoint.tensors;
    ASIDE_OF_DETECTORS.iter().chain(&ASIDE).for_each(|key| {
        reader.value(key);
    });
    must_be_off(
        reader,
        "auxiliary_loss",
        "each layer of such a decoder is normed twice, which is not read",
    )?;
    let kind = reader.word_or("positions", POSITIONS, "sine")?;
    if kind != "sine" {
        let problem = format!("expected \"sine\", found {kind:?}");
        return Err(Error::config(reader.path(), POSITIONS, problem));
    }
    let d_model = reader.size_or(
        "d_model",
        "d_model",
        256,
        Origin::Default("d_model".to_owned()),
    )?;
    if !d_model.is_multiple_of(4) {
        let problem = format!(
            "expected a multiple of 4, for sines and cosines of two sides, found {d_model}"
        );
        return Err(Error::config(reader.path(), "d_model", problem));
    }
    let act = activation(reader, "activation_function", "relu")?;
    let base = prefix(tensors, &["model.", ""], "input_projection.weight");
    let n_queries = reader.size_or(
        "n_queries",
        "num_queries",
        100,
        Origin::Default("num_queries".to_owned()),
    )?;
    let queries = TableSource {
        tensor: format!("{base}query_position_embeddings.weight"),
        n_rows: n_queries,
        width: d_model,
    };
    let mut side = |stack: Stack| -> Result<Side<'_>> {
        let (name, places) = match stack {
            Stack::Decoder => ("decoder", PlaceRows::Stored(queries.clone())),
            _ => ("encoder", PlaceRows::Sines(SineScale::USUAL)),
        };
        let default = |key: &str| Origin::Default(key.to_owned());
        let keys = ["layers", "attention_heads", "ffn_dim"].map(|key| format!("{name}_{key}"));
        let n_layers = match reader.value(&keys[0]) {
            Some(_) => reader.layers(&keys[0])?,
            None => 6,
        };
        let n_heads = reader.size_or("n_heads", &keys[1], 8, default(&keys[1]))?;
        let d_head = even_heads(reader, &keys[1], d_model, n_heads)?;
        let d_mlp = reader.size_or("d_mlp", &keys[2], 2048, default(&keys[2]))?;
        let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
        note_attention(reader, &attention, Origin::Family);
        Ok(Side {
            tensors,
            base: format!("{base}{name}."),
            stack,
            d_model,
            d_mlp,
            n_layers,
            activation: act,
            attention,
            places,
            is_before: like.is_before,
            last_norm: (like.is_before || stack == Stack::Decoder).then_some("layernorm"),
            slope: None,
            eps: EPS,
        })
    };
    let encoder = side(Stack::Encoder)?;
    let decoder = if like.reads_decoder {
        Some(side(Stack::Decoder)?)
    } else {
        None
    };
    let embed = of_map(tensors, reader, base, d_model);
    let Some(decoder) = decoder else {
        reader.remark("the encoder alone is read".to_owned());
        let stack = StackSpec {
            stack: Stack::Only,
            ..encoder.stack(embed)
        };
        return Ok(ModelSpec {
            d_model,
            ..ModelSpec::of_one_stack(family, stack, None)
        });
    };
    let slots = EmbedSpec {
        // Queries begin with zeros: what tells them apart is added in every layer.
        scale: 0.0,
        ..EmbedSpec::plain(queries)
    };
    let stacks = [encoder.stack(embed), decoder.stack(slots)];
    Ok(given_rows::of_numbers(family, reader, "queries", stacks))
}

/// The embedding of the places of the last map of features, of as many channels as its projection reads.
pub(super) fn of_map(
    tensors: &Tensors,
    reader: &mut Reader<'_>,
    base: &str,
    d_model: usize,
) -> EmbedSpec {
    let map = format!("{base}input_projection");
    let stored = tensors.info(&format!("{map}.weight"));
    let n_channels = stored.and_then(|info| info.shape.get(1).copied());
    let kernel = LinearSource::of_patch(
        format!("{map}.weight"),
        Some(format!("{map}.bias")),
        vec![n_channels.unwrap_or_default(), 1, 1],
        d_model,
    );
    given_rows::remark(
        reader,
        "the last of its convolutions, an array [row, column, channel],",
    );
    reader.note(
        "positions",
        "sines of rows and columns, added to queries and keys in every layer",
        Origin::Family,
    );
    given_rows::mapped(kernel)
}

impl Side<'_> {
    fn norm(&self, name: &str) -> Option<NormSource> {
        let name = format!("{}{name}", self.base);
        Some(layer_norm(self.tensors, &name, self.d_model, self.eps))
    }

    fn projections(&self, at: &str, of_keys: PlaceRows) -> ProjectionSpec {
        let d = self.d_model;
        let one = |name: &str| linear(&format!("{at}.{name}"), d, d, true);
        let o = self.map(at, ["out_proj", "o_proj"], [d, d]);
        let places = AddedPlaces {
            of_queries: Some(self.places.clone()),
            of_keys: Some(of_keys),
            reach_values: false,
        };
        ProjectionSpec {
            places: Some(Box::new(places)),
            ..ProjectionSpec::plain(one("q_proj"), one("k_proj"), one("v_proj"), o)
        }
    }

    /// A map under the name of saved files, or that of the library's own code.
    fn map(&self, at: &str, names: [&str; 2], [n_in, n_out]: [usize; 2]) -> LinearSource {
        let names = names.map(|name| format!("{at}.{name}.weight"));
        let found = either(self.tensors, names);
        linear(found.trim_end_matches(".weight"), n_in, n_out, true)
    }

    fn block(&self, layer_idx: usize) -> BlockSpec {
        let name = format!("layers.{layer_idx}");
        let at = format!("{}{name}", self.base);
        let own = self.projections(&format!("{at}.self_attn"), self.places.clone());
        let slope = self.slope.map(|slope| format!("{at}.{slope}"));
        let mlp = MlpSpec {
            learned: slope.map(LearnedActivation::Leaky),
            ..MlpSpec::plain(
                self.map(&at, ["fc1", "mlp.fc1"], [self.d_model, self.d_mlp]),
                self.map(&at, ["fc2", "mlp.fc2"], [self.d_mlp, self.d_model]),
                self.activation,
            )
        };
        let norm = |part: &str| self.norm(&format!("{name}.{part}_layer_norm"));
        let placed = |norm: Option<NormSource>| {
            if self.is_before {
                (norm, None)
            } else {
                (None, norm)
            }
        };
        let (attn_pre, attn_post) = placed(norm("self_attn"));
        let (mlp_pre, mlp_post) = placed(norm("final"));
        let cross = (self.stack == Stack::Decoder).then(|| {
            let attention = AttentionSpec {
                is_cross: true,
                ..self.attention.clone()
            };
            let maps = self.projections(
                &format!("{at}.encoder_attn"),
                PlaceRows::Sines(SineScale::USUAL),
            );
            let (pre, post) = placed(norm("encoder_attn"));
            Box::new(CrossSpec {
                pre,
                post,
                ..CrossSpec::plain(attention, maps)
            })
        });
        BlockSpec {
            attn_pre,
            attn_post,
            mlp_pre,
            mlp_post,
            cross,
            ..BlockSpec::plain(
                self.attention.clone(),
                own,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    }

    pub fn stack(&self, embed: EmbedSpec) -> StackSpec {
        let blocks = (0..self.n_layers).map(|layer_idx| self.block(layer_idx));
        let last = self.last_norm.and_then(|name| self.norm(name));
        StackSpec {
            stack: self.stack,
            ..StackSpec::only(embed, blocks.collect(), last)
        }
    }
}
