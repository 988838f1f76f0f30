//! Both versions of DeBERTa: BERT with learned relative-position vectors in the scores.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Bias, Relative, Scale};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, DistanceRows, EmbedSpec, LinearSource, MlpSpec, ModelSpec, PositionTable,
    ProjectionSpec, RelativeSource, StackSpec, TableSource,
};
use serde_json::Value;

use super::masked_head::{MaskedHead, masked_head, note_head};
use super::task_rules::{HeadActivation, TaskRules};
use super::{
    activation, even_heads, grouped, layer_norm, linear, note_attention, note_bias, prefix,
};

/// How the heads of DeBERTa's task classes differ.
pub const TASKS: TaskRules = TaskRules {
    pooler: HeadActivation::Key("pooler_hidden_act", "gelu"),
    ..TaskRules::USUAL
};

/// How the two versions differ.
#[derive(Debug, Clone, Copy)]
pub struct DebertaLike {
    pub family: &'static str,
    /// Query, key and value of each head are in one tensor, and keys have no biases.
    pub is_fused: bool,
    /// Long distances may share vectors; vectors may be normalised, and may pass through the query and key maps themselves.
    pub is_second: bool,
    /// Names of the maps that turn the vectors into keys and queries.
    pub maps: [&'static str; 2],
}

/// Relative-position terms of the scores.
struct Position {
    relative: Relative,
    /// Queries are multiplied with the distance vectors.
    of_queries: bool,
    /// Keys are multiplied with the distance vectors.
    of_keys: bool,
    /// The vectors pass through the maps of queries and keys.
    shares_maps: bool,
    is_normed: bool,
}

/// Reads a model of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: DebertaLike,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_rows = reader.size("n_positions", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-7)?;
    let activation = activation(reader, "hidden_act", "gelu")?;
    let n_types = reader.count_or("n_token_types", "type_vocab_size", 0)?;
    let adds_positions = reader.flag_or("positions_added", "position_biased_input", true)?;
    let same = Origin::Derived("d_model, no embedding_size".to_owned());
    let d_embed = reader.size_or("d_embed", "embedding_size", d_model, same)?;
    let base = prefix(
        tensors,
        &["deberta.", ""],
        "embeddings.word_embeddings.weight",
    );
    let blocks = Blocks::read(
        reader,
        (tensors, format!("{base}encoder.")),
        like,
        [d_model, d_mlp, n_heads, n_rows],
        (activation, eps),
    )?;
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}embeddings.{name}.weight"),
        n_rows,
        width: d_embed,
    };
    let tokens = table("word_embeddings", d_vocab);
    // Newer models have their own head; transformers stores it under either set of names.
    let is_newer = tensors.contains("lm_predictions.lm_head.dense.weight")
        && !tensors.contains("cls.predictions.transform.dense.weight");
    reader.value("legacy");
    let (names, width) = if is_newer {
        (NEWER, d_model)
    } else {
        (OLDER, d_embed)
    };
    let head = masked_head(
        reader,
        tensors,
        ("", names),
        &tokens,
        (d_model, width),
        activation,
        eps,
    );
    note_head(reader, head.is_some());
    let embed = EmbedSpec {
        positions: adds_positions
            .then(|| PositionTable::Stored(table("position_embeddings", n_rows))),
        token_types: (n_types > 0).then(|| table("token_type_embeddings", n_types)),
        norm: Some(layer_norm(
            tensors,
            &format!("{base}embeddings.LayerNorm"),
            d_model,
            eps,
        )),
        projection: (d_embed != d_model).then(|| {
            linear(
                &format!("{base}embeddings.embed_proj"),
                d_embed,
                d_model,
                false,
            )
        }),
        norms_projected: true,
        ..EmbedSpec::plain(tokens)
    };
    let blocks = (0..n_layers).map(|layer_idx| blocks.block(layer_idx));
    let stack = StackSpec::only(embed, blocks.collect(), None);
    Ok(ModelSpec {
        d_model,
        n_ctx: adds_positions.then_some(n_rows),
        ..ModelSpec::of_one_stack(like.family, stack, head)
    })
}

/// The blocks.
pub struct Blocks<'a> {
    tensors: &'a Tensors,
    /// What the names of their tensors, and of those of distances, begin with.
    base: String,
    like: DebertaLike,
    d_model: usize,
    d_mlp: usize,
    d_head: usize,
    activation: Activation,
    eps: f64,
    pub attention: AttentionSpec,
    position: Option<Position>,
}

impl<'a> Blocks<'a> {
    /// Reads what they add to scores; distances have at most so many rows to either side.
    ///
    /// # Errors
    /// When a value of the configuration is impossible or not read.
    pub fn read(
        reader: &mut Reader<'_>,
        (tensors, base): (&'a Tensors, String),
        like: DebertaLike,
        [d_model, d_mlp, n_heads, n_rows]: [usize; 4],
        (activation, eps): (Activation, f64),
    ) -> Result<Self> {
        let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
        refuse_others(reader, d_head)?;
        let (parts, position) = position(reader, like, n_rows)?;
        let scale = Scale::Factor((1.0 / ((d_head * (1 + parts)) as f64).sqrt()) as f32);
        let attention = AttentionSpec {
            scale,
            bias: match &position {
                Some(position) => Bias::Relative(position.relative),
                None => Bias::None,
            },
            ..AttentionSpec::plain(n_heads, n_heads, d_head, false)
        };
        let derived = format!("1/sqrt(d_head \u{b7} {})", 1 + parts);
        note_attention(reader, &attention, Origin::Derived(derived));
        Ok(Self {
            tensors,
            base,
            like,
            d_model,
            d_mlp,
            d_head,
            activation,
            eps,
            attention,
            position,
        })
    }

    pub fn block(&self, layer_idx: usize) -> BlockSpec {
        let Self {
            tensors,
            base,
            like,
            ..
        } = self;
        let (d_model, d_mlp, d_head) = (self.d_model, self.d_mlp, self.d_head);
        let (activation, eps) = (self.activation, self.eps);
        let at = format!("{base}layer.{layer_idx}");
        let own = format!("{at}.attention.self");
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps));
        let [q, k, v] = if like.is_fused {
            let fused = linear(&format!("{own}.in_proj"), d_model, 3 * d_model, false);
            let [q, k, v] = grouped(&fused, 1, d_head);
            let biased = |linear: LinearSource, name: &str| LinearSource {
                bias: Some(format!("{own}.{name}")),
                bias_is_of_part: true,
                ..linear
            };
            [biased(q, "q_bias"), k, biased(v, "v_bias")]
        } else {
            ["query_proj", "key_proj", "value_proj"]
                .map(|name| linear(&format!("{own}.{name}"), d_model, d_model, true))
        };
        let relative = self.position.as_ref().map(|position| {
            let map = |which: usize| {
                let has_bias = like.is_second || which == 1;
                linear(
                    &format!("{own}.{}", like.maps[which]),
                    d_model,
                    d_model,
                    has_bias,
                )
            };
            let [key, query] = if position.shares_maps {
                [k.clone(), q.clone()]
            } else {
                [map(0), map(1)]
            };
            Box::new(RelativeSource {
                embeddings: DistanceRows::Stored(TableSource {
                    tensor: format!("{base}rel_embeddings.weight"),
                    n_rows: position.relative.n_rows(),
                    width: d_model,
                }),
                norm: position
                    .is_normed
                    .then(|| layer_norm(tensors, &format!("{base}LayerNorm"), d_model, eps)),
                key: position.of_queries.then_some(key),
                query: position.of_keys.then_some(query),
                biases: None,
            })
        });
        let projections = ProjectionSpec {
            relative,
            ..ProjectionSpec::plain(q, k, v, one("attention.output.dense", d_model, d_model))
        };
        let mlp = MlpSpec::plain(
            one("intermediate.dense", d_model, d_mlp),
            one("output.dense", d_mlp, d_model),
            activation,
        );
        BlockSpec::post_norm(
            self.attention.clone(),
            projections,
            mlp,
            [norm("attention.output.LayerNorm"), norm("output.LayerNorm")],
        )
    }
}

/// Names of the head as transformers creates it.
const OLDER: MaskedHead = MaskedHead {
    dense: Some("cls.predictions.transform.dense"),
    norm: "cls.predictions.transform.LayerNorm",
    decoder: "cls.predictions.decoder",
    bias: "cls.predictions.bias",
    activation: None,
};

/// Names of the head that the models were trained with.
const NEWER: MaskedHead = MaskedHead {
    dense: Some("lm_predictions.lm_head.dense"),
    norm: "lm_predictions.lm_head.LayerNorm",
    decoder: "lm_predictions.lm_head.decoder",
    bias: "lm_predictions.lm_head.bias",
    activation: None,
};

/// Refuses settings that change the computation and are not supported.
fn refuse_others(reader: &mut Reader<'_>, d_head: usize) -> Result<()> {
    super::must_be_off(reader, "talking_head", "maps between heads are not read")?;
    let refused = |reader: &Reader<'_>, key: &str, problem: String| {
        Err(Error::config(reader.path(), key, problem))
    };
    const CONVOLUTION: &str = "conv_kernel_size";
    let width = reader
        .value(CONVOLUTION)
        .filter(|v| v.as_f64() != Some(0.0));
    if let Some(width) = width {
        let problem = format!(
            "expected 0 or nothing: a convolution beside layer 0 is not read, found {width}"
        );
        return refused(reader, CONVOLUTION, problem);
    }
    const HEAD: &str = "attention_head_size";
    let other = reader
        .value(HEAD)
        .filter(|v| v.as_u64() != Some(d_head as u64));
    if let Some(other) = other {
        let problem = format!("expected d_model / n_heads, which is {d_head}, found {other}");
        return refused(reader, HEAD, problem);
    }
    Ok(())
}

/// Reads the relative-position terms, and how many parts a score has besides content.
fn position(
    reader: &mut Reader<'_>,
    like: DebertaLike,
    n_rows: usize,
) -> Result<(usize, Option<Position>)> {
    const KINDS: &str = "pos_att_type";
    let mut kinds: Vec<String> = match reader.value(KINDS) {
        None => Vec::new(),
        Some(Value::String(words)) => words.split('|').map(|w| w.trim().to_owned()).collect(),
        Some(Value::Array(list)) => list
            .iter()
            .filter_map(|word| word.as_str().map(str::to_owned))
            .collect(),
        Some(other) => {
            let problem = format!("expected a list of words, found {other}");
            return Err(Error::config(reader.path(), KINDS, problem));
        }
    };
    if let Some(other) = kinds
        .iter()
        .find(|kind| !["c2p", "p2c"].contains(&kind.as_str()))
    {
        let problem = format!("expected c2p or p2c, found {other:?}");
        return Err(Error::config(reader.path(), KINDS, problem));
    }
    // Version 2 counts a kind once even if it is named twice; version 1 does not.
    if like.is_second {
        kinds.sort_unstable();
        kinds.dedup();
    }
    let has = |kind: &str| kinds.iter().any(|known| known == kind);
    let (of_queries, of_keys) = (has("c2p"), has("p2c"));
    if !reader.flag_or("relative", "relative_attention", false)? {
        return Ok((kinds.len(), None));
    }
    let signed = |reader: &mut Reader<'_>, key: &str| {
        let stated = reader.value(key).and_then(Value::as_i64);
        stated.filter(|n| *n > 0).map(|n| n as usize)
    };
    let most = signed(reader, "max_relative_positions").unwrap_or(n_rows);
    let buckets = signed(reader, "position_buckets").filter(|_| like.is_second);
    let relative = Relative {
        span: buckets.unwrap_or(most),
        log_until: buckets.map(|_| most),
    };
    if relative.log_until.is_some() && (relative.span < 4 || most <= relative.span / 2 + 1) {
        let problem = format!(
            "expected at least 4 buckets and more positions than half of them, found {} and {most}",
            relative.span
        );
        return Err(Error::config(reader.path(), "position_buckets", problem));
    }
    let shares_maps = like.is_second && reader.flag_or("shares_maps", "share_att_key", false)?;
    let norms = reader.value("norm_rel_ebd").and_then(Value::as_str);
    let is_normed = like.is_second
        && norms.is_some_and(|norms| {
            norms
                .to_lowercase()
                .split('|')
                .any(|n| n.trim() == "layer_norm")
        });
    let said = match relative.log_until {
        Some(until) => format!(
            "learned, {} to either side, by logarithm up to {until}",
            relative.span
        ),
        None => format!("learned, {} to either side", relative.span),
    };
    note_bias(reader, &format!("{said}: {}", kinds.join(" and ")));
    let position = Position {
        relative,
        of_queries,
        of_keys,
        shares_maps,
        is_normed,
    };
    Ok((kinds.len(), Some(position)))
}
