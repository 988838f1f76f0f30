//! MobileBERT: BERT whose blocks work on a narrower residual, with several feed-forward layers each, and norms that measure nothing.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    Bottleneck, FeedForward, LastInputs, LinearSource, MlpSpec, ModelSpec, Narrowed, NormKind,
    NormSource, NormedMap,
};

use super::reading::bert_like::{self, BertLike};
use super::reading::{even_heads, layer_norm, linear, note_attention};
use super::{Family, bert};

/// Maps that some configurations do not use are stored all the same.
pub const FAMILY: Family = Family::own("mobilebert", "MobileBert", read).leaving_unread(&[
    "bottleneck.attention.*",
    "embeddings.embedding_transformation.*",
]);

const LIKE: BertLike = BertLike {
    may_decode: false,
    activation: (Some("hidden_act"), "relu"),
    ..BertLike::plain("mobilebert.", bert::HEAD)
};

/// Epsilon of the norms for which the configuration's is not used.
const EPS: f64 = 1e-5;

/// What blocks are made of, as the configuration says.
struct Sizes {
    narrow: usize,
    n_layers: usize,
    heads_read_inside: bool,
    kind: NormKind,
    eps: f64,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let (d_model, d_vocab) = (spec.d_model, spec.d_vocab);
    let sizes = sizes(reader)?;
    let n_heads = spec.stacks[0]
        .first_attention()
        .map_or(1, |own| own.n_heads);
    reader.forget(&["d_head", "scale", "scale_factor", "softmax_axis", "mask"]);
    let d_head = even_heads(reader, "num_attention_heads", sizes.narrow, n_heads)?;
    let origin = Origin::Derived("intra_bottleneck_size / n_heads".to_owned());
    reader.note("d_head", d_head, origin);
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    note_attention(reader, &attention, Origin::Family);

    let default = |key: &str| Origin::Default(key.to_owned());
    const EMBED: &str = "embedding_size";
    let d_embed = reader.size_or("d_embed", EMBED, 128, default(EMBED))?;
    let trigrams = reader.flag_or("trigrams", "trigram_input", true)?;
    let embed = &mut spec.stacks[0].embed;
    let words = embed.tokens.tensor.clone();
    let base = words.trim_end_matches("embeddings.word_embeddings.weight");
    embed.tokens.width = d_embed;
    embed.has_neighbours = trigrams;
    embed.projects_first = true;
    let n_in = if trigrams { 3 * d_embed } else { d_embed };
    embed.projection = (trigrams || d_embed != d_model).then(|| {
        let name = format!("{base}embeddings.embedding_transformation");
        linear(&name, n_in, d_model, true)
    });
    embed.norm = Some(sizes.norm(
        tensors,
        &format!("{base}embeddings.LayerNorm"),
        d_model,
        EPS,
    ));
    if let Some(head) = &mut spec.head {
        if d_embed > d_model {
            let problem = format!("expected at most hidden_size, {d_model}, found {d_embed}");
            return Err(Error::config(reader.path(), EMBED, problem));
        }
        head.unembed.last_inputs = Some(LastInputs {
            tensor: "cls.predictions.dense.weight".to_owned(),
            n: d_model - d_embed,
        });
    }
    spec.d_vocab = d_vocab;
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        let at = format!("{base}encoder.layer.{layer_idx}");
        let name = |name: &str| format!("{at}.{name}");
        let narrow = sizes.narrow;
        let map = |of: &str, n_in, n_out| linear(&name(of), n_in, n_out, true);
        let norm = |of: &str, width, eps| sizes.norm(tensors, &name(of), width, eps);
        let normed = |of: &str| NormedMap {
            map: map(&format!("{of}.dense"), d_model, narrow),
            norm: norm(&format!("{of}.LayerNorm"), narrow, sizes.eps),
        };
        block.attn_post = Some(norm("attention.output.LayerNorm", narrow, sizes.eps));
        block.mlp_post = Some(norm("output.LayerNorm", narrow, EPS));
        let FeedForward::Dense(mlp) = &mut block.feed_forward else {
            continue;
        };
        let (d_mlp, activation) = (mlp.up.n_out(), mlp.activation);
        let layer = |at: &str| {
            let up = map(&format!("{at}intermediate.dense"), narrow, d_mlp);
            MlpSpec::plain(
                up,
                map(&format!("{at}output.dense"), d_mlp, narrow),
                activation,
            )
        };
        **mlp = layer("");
        let layers = (0..sizes.n_layers - 1).map(|nth| {
            let at = format!("ffn.{nth}.");
            let post = norm(&format!("{at}output.LayerNorm"), narrow, sizes.eps);
            (layer(&at), post)
        });
        block.bottleneck = Some(Box::new(Bottleneck {
            into: normed("bottleneck.input"),
            heads_read_inside: sizes.heads_read_inside,
            layers: layers.collect(),
            out: map("output.bottleneck.dense", narrow, d_model),
            out_norm: norm("output.bottleneck.LayerNorm", d_model, sizes.eps),
        }));
        let Some(own) = block.own_mut() else { continue };
        own.attention = attention.clone();
        let maps = &mut own.projections;
        let renewed = |stored: &LinearSource, n_in| {
            linear(
                stored.weight.trim_end_matches(".weight"),
                n_in,
                narrow,
                true,
            )
        };
        for of in [&mut maps.q, &mut maps.k, &mut maps.o] {
            *of = renewed(of, narrow);
        }
        let read_by_values = if sizes.heads_read_inside {
            narrow
        } else {
            d_model
        };
        maps.v = renewed(&maps.v, read_by_values);
        maps.narrowed = (!sizes.heads_read_inside).then(|| {
            Box::new(Narrowed {
                by: normed("bottleneck.attention"),
                reaches_keys: true,
            })
        });
    }
    Ok(spec)
}

fn sizes(reader: &mut Reader<'_>) -> Result<Sizes> {
    let default = |key: &str| Origin::Default(key.to_owned());
    const BOTTLENECKS: &str = "use_bottleneck";
    const SHARED: &str = "key_query_shared_bottleneck";
    const LAYERS: &str = "num_feedforward_networks";
    const WIDTH: &str = "intra_bottleneck_size";
    const NORMS: &str = "normalization_type";
    if !reader.flag_or("bottlenecks", BOTTLENECKS, true)? {
        let problem = "expected true: blocks without a bottleneck are not read, found false";
        return Err(Error::config(reader.path(), BOTTLENECKS, problem));
    }
    let inside = "use_bottleneck_attention";
    let heads_read_inside = reader.flag_or("heads_read_bottleneck", inside, false)?;
    let is_shared = reader.flag_or("narrow_queries_and_keys", SHARED, true)?;
    if !heads_read_inside && !is_shared {
        let problem = "expected true: queries and keys are as wide as the bottleneck, found false";
        return Err(Error::config(reader.path(), SHARED, problem));
    }
    let n_layers = reader.size_or("mlps_each", LAYERS, 4, default(LAYERS))?;
    if n_layers > 64 {
        let problem = format!("expected at most 64, found {n_layers}");
        return Err(Error::config(reader.path(), LAYERS, problem));
    }
    let kind = match reader.word_or("norms", NORMS, "no_norm")?.as_str() {
        "no_norm" => NormKind::Fixed,
        "layer_norm" => NormKind::LayerNorm,
        other => {
            let problem = format!("expected \"no_norm\" or \"layer_norm\", found {other:?}");
            return Err(Error::config(reader.path(), NORMS, problem));
        }
    };
    Ok(Sizes {
        narrow: reader.size_or("d_bottleneck", WIDTH, 128, default(WIDTH))?,
        n_layers,
        heads_read_inside,
        kind,
        eps: reader.number_or("norm_eps", "layer_norm_eps", LIKE.eps)?,
    })
}

impl Sizes {
    /// A norm, or gain and bias alone.
    fn norm(&self, tensors: &Tensors, name: &str, width: usize, eps: f64) -> NormSource {
        NormSource {
            kind: self.kind,
            ..layer_norm(tensors, name, width, eps)
        }
    }
}
