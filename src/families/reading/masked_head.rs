//! The head of a masked language model: a dense layer, an activation, a norm and the token table.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{HeadSpec, LinearSource, TableSource, TransformSpec};

use super::{either, layer_norm, linear};

/// Names of a masked-language head.
#[derive(Debug, Clone, Copy)]
pub struct MaskedHead {
    /// The dense layer; `None` if there is neither a dense layer nor a norm.
    pub dense: Option<&'static str>,
    pub norm: &'static str,
    pub decoder: &'static str,
    /// Where the decoder's bias is stored if it is not beside its weight.
    pub bias: &'static str,
    /// `None` for the activation of the feed-forward blocks.
    pub activation: Option<Activation>,
}

/// Refuses positions that are not simply added to embeddings.
///
/// # Errors
/// When the configuration asks for others.
pub fn absolute_positions(reader: &mut Reader<'_>) -> Result<()> {
    const KEY: &str = "position_embedding_type";
    let positions = reader.word_or("positions", KEY, "absolute")?;
    // Positions that the user switches off are removed later.
    if ["absolute", "none"].contains(&positions.as_str()) {
        return Ok(());
    }
    let problem = format!("expected \"absolute\", found {positions:?}, which is not known");
    Err(Error::config(reader.path(), KEY, problem))
}

/// Notes whether there is a masked-language head; its tensors show whether it is tied.
pub fn note_head(reader: &mut Reader<'_>, has_head: bool) {
    let what = if has_head {
        "masked language model"
    } else {
        "none stored"
    };
    reader.note("head", what, Origin::Family);
    reader.value("tie_word_embeddings");
}

/// Reads the masked-language head, if its dense layer is stored. The last matrix is often the embedding itself. The prefix
/// belongs before all names.
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
    // If the head is untied, a missing weight is an error, not the embedding.
    let weight = match reader.value("tie_word_embeddings") {
        Some(serde_json::Value::Bool(false)) => own,
        _ => either(tensors, [own, tokens.tensor.clone()]),
    };
    // A stored decoder bias takes precedence: transformers then ignores the other one.
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
        then: None,
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
