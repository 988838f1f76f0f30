//! The head of a masked language model: a map, an activation, a norm, and the words.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{HeadSpec, LinearSource, TableSource, TransformSpec};

use super::{either, layer_norm, linear};

/// Names of a masked-language head.
#[derive(Debug, Clone, Copy)]
pub struct MaskedHead {
    /// The map before the words; `None` where there is none, nor a norm.
    pub dense: Option<&'static str>,
    pub norm: &'static str,
    pub decoder: &'static str,
    /// Where the decoder's bias is kept when it is not with it.
    pub bias: &'static str,
    /// `None` for that of the feed-forward layers.
    pub activation: Option<Activation>,
}

/// Refuses positions that are not simply added to embeddings.
///
/// # Errors
/// When the configuration asks for others.
pub fn absolute_positions(reader: &mut Reader<'_>) -> Result<()> {
    const KEY: &str = "position_embedding_type";
    let positions = reader.word_or("positions", KEY, "absolute")?;
    // Those that a person leaves out are taken away later.
    if ["absolute", "none"].contains(&positions.as_str()) {
        return Ok(());
    }
    let problem = format!("expected \"absolute\", found {positions:?}, which is not known");
    Err(Error::config(reader.path(), KEY, problem))
}

/// Notes whether there is a masked-language head; whether it is tied shows in its tensors.
pub fn note_head(reader: &mut Reader<'_>, has_head: bool) {
    let what = if has_head {
        "masked language model"
    } else {
        "none stored"
    };
    reader.note("head", what, Origin::Family);
    reader.value("tie_word_embeddings");
}

/// The masked-language head, when its dense layer is stored. The last matrix is often the embedding itself. What is given with
/// the names stands before them.
pub fn masked_head(
    reader: &mut Reader<'_>,
    tensors: &Tensors,
    (at, names): (&str, MaskedHead),
    tokens: &TableSource,
    (d_model, width): (usize, usize),
    activation: Activation,
    eps: f64,
) -> Option<HeadSpec> {
    let decoder = format!("{at}{}", names.decoder);
    let own_bias = format!("{at}{}", names.bias);
    let own = format!("{decoder}.weight");
    let bias = format!("{decoder}.bias");
    let is_stored = match names.dense {
        Some(dense) => tensors.contains(&format!("{at}{dense}.weight")),
        None => [&own, &bias, &own_bias]
            .iter()
            .any(|name| tensors.contains(name)),
    };
    if !is_stored {
        return None;
    }
    // Untied and not stored is a lack, not an embedding.
    let weight = match reader.value("tie_word_embeddings") {
        Some(serde_json::Value::Bool(false)) => own,
        _ => either(tensors, [own, tokens.tensor.clone()]),
    };
    // A stored decoder bias wins: transformers ignores the other one then.
    let bias = either(tensors, [bias, own_bias]);
    let transform = names.dense.map(|dense| TransformSpec {
        dense: linear(&format!("{at}{dense}"), d_model, width, true),
        activation: Some(names.activation.unwrap_or(activation)),
        norm: Some(layer_norm(
            tensors,
            &format!("{at}{}", names.norm),
            width,
            eps,
        )),
    });
    Some(HeadSpec {
        transform,
        ..HeadSpec::plain(LinearSource::whole(
            weight,
            Some(bias),
            width,
            tokens.n_rows,
        ))
    })
}
