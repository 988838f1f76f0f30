//! A model that `attnscope.toml` describes: `[tensors]` says which tensors hold which part, `[set]` everything else.

use attnscope_checkpoint::{Checkpoint, Config, Origin, Reader, SetBy};
use attnscope_compute::attention::RopePrecision;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{DecoderInput, DecoderStart, ModelSpec, Pooled, Sines};
use serde_json::{Map, Value};

use super::Family;
use super::layouts::Keys;
use super::overrides::value_of_stack;
use super::reading::bart_like::decoder_start;
use super::reading::described::{
    Described, ENCODER, EmbedScale, Layers, Positions, Sizes, read_pictures,
};
use super::reading::{activation_by_name, note_attention, note_bias};

pub const FAMILY: Family = Family::own("described", "Described", read)
    .with_keys(Keys::Described)
    .leaving_unread(&["(angles)"]);

/// The key of the configuration that holds the `[tensors]` tables.
pub(super) const TENSORS: &str = "tensors";

/// The key of `[tensors.encoder]` with the settings in which the encoder differs from the decoder.
const SET: &str = "set";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let described = describe(checkpoint, reader)?;
    let refused = |problem: String| Error::config(reader.path(), TENSORS, problem);
    let mut spec = described.spec(&checkpoint.tensors).map_err(refused)?;
    if let Some(attention) = spec.main_stack().first_attention().cloned() {
        note_attention(reader, &attention, Origin::Family);
    }
    if let Some(bias) = &described.bias {
        note_bias(reader, bias.words());
    }
    spec.family = FAMILY.model_type;
    if let Some(encoder) = &described.encoder {
        // Two tables are treated as two vocabularies.
        spec.decoder_start = Some(DecoderStart {
            reads_again: DecoderInput::Never,
            has_own_vocabulary: encoder.tokens != described.tokens,
            ..decoder_start(reader, None, spec.d_vocab)?
        });
    }
    // Names and shapes of home-made weights told these, and the norms are placed by them already.
    if reader.is_stated("n_ctx") {
        let n_ctx = reader.size("n_ctx", "n_ctx")?;
        spec.n_ctx = Some(spec.n_ctx.map_or(n_ctx, |rows| rows.min(n_ctx)));
    }
    if reader.is_stated("norm_first") {
        reader.flag_or("norm_first", "norm_first", true)?;
    }
    reader.note(
        "d_model",
        spec.d_model,
        Origin::Derived(format!("shape of {}", described.tokens)),
    );
    Ok(spec)
}

/// Adds the rearranged tensors that a description needs.
///
/// # Errors
/// When the description is invalid, or a tensor cannot be rearranged.
pub(super) fn arrange(checkpoint: &mut Checkpoint) -> Result<()> {
    let described = {
        let mut reader = Reader::new(&checkpoint.config);
        describe(checkpoint, &mut reader)?
    };
    let arranged = described.arrange(&mut checkpoint.tensors, true);
    arranged.map_err(|problem| Error::config(checkpoint.config.path(), TENSORS, problem))
}

fn describe(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<Described> {
    let Some(Value::Object(values)) = reader.value(TENSORS) else {
        let problem = "missing, expected [tensors] in attnscope.toml: attnscope guess writes one";
        return Err(Error::config(reader.path(), TENSORS, problem));
    };
    let mut values = values.clone();
    let refused = |key: &str, problem: String| {
        let key = format!("{TENSORS}.{key}");
        Err(Error::config(checkpoint.config.path(), key, problem))
    };
    let encoder = match values.remove(ENCODER) {
        None => None,
        Some(Value::Object(encoder)) => Some(encoder),
        Some(other) => return refused(ENCODER, format!("expected a table, found {other}")),
    };
    let mut described = stack(checkpoint, reader, &values)?;
    match (&described.cross, encoder) {
        (Some(_), Some(encoder)) => {
            described.encoder = Some(Box::new(encoder_of(checkpoint, encoder)?));
        }
        (None, None) => {}
        (Some(_), None) => {
            let problem =
                format!("missing, expected [{TENSORS}.{ENCODER}]: [{TENSORS}.cross] attends to it");
            return refused(ENCODER, problem);
        }
        (None, Some(_)) => {
            let problem =
                format!("missing, expected the decoder's attention to [{TENSORS}.{ENCODER}]");
            return refused("cross", problem);
        }
    }
    Ok(described)
}

/// Reads `[tensors.encoder]`. Its settings are those of the decoder, except for the mask and for what its own `set` says.
fn encoder_of(checkpoint: &Checkpoint, mut values: Map<String, Value>) -> Result<Described> {
    const KEY: &str = "tensors.encoder";
    let refused = |problem: String| Error::config(checkpoint.config.path(), KEY, problem);
    let mut config: Config = checkpoint.config.clone();
    config.fix("mask", false, Origin::Family);
    let mut own = Vec::new();
    match values.remove(SET) {
        None => {}
        Some(Value::Object(set)) => {
            for (key, value) in set {
                let value =
                    value_of_stack(&key, &value).map_err(|e| refused(format!("set: {e}")))?;
                config.fix(&key, value, Origin::Set(SetBy::File));
                own.push(key);
            }
        }
        Some(other) => return Err(refused(format!("set: expected a table, found {other}"))),
    }
    if values.contains_key("positions") && !own.iter().any(|key| key == "positions") {
        config.fix("positions", "learned", Origin::Family);
    }
    if values.contains_key("cross") {
        return Err(refused(
            "cross: an encoder attends to no other stack".to_owned(),
        ));
    }
    // Its knobs are those of the decoder, or differ from them: which is whose would not be seen in the list.
    let mut inner = Reader::new(&config);
    let encoder = stack(checkpoint, &mut inner, &values)?;
    let unread = inner.fixed_unread();
    match own.iter().find(|key| unread.contains(&key.as_str())) {
        Some(key) => Err(refused(format!(
            "set: a described encoder has no {key} to set"
        ))),
        None => Ok(encoder),
    }
}

/// Reads one stack: the only one, the decoder or the encoder.
fn stack(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    values: &Map<String, Value>,
) -> Result<Described> {
    let n_layers = reader.layers("n_layers")?;
    let n_heads = reader.size("n_heads", "n_heads")?;
    let same = Origin::Derived("n_heads".to_owned());
    let n_kv_heads = reader.size_or("n_kv_heads", "n_kv_heads", n_heads, same)?;
    let refused =
        |reader: &Reader<'_>, problem: String| Error::config(reader.path(), TENSORS, problem);
    let sizes = Sizes {
        n_layers,
        n_heads,
        n_kv_heads: Some(n_kv_heads),
        d_head: None,
    };
    let mut described =
        Described::read(values, &sizes).map_err(|problem| refused(reader, problem))?;
    if n_layers > checkpoint.tensors.len() {
        let found = checkpoint.tensors.len();
        let problem =
            format!("{n_layers} layers need more than the {found} tensors that are stored");
        return Err(Error::config(reader.path(), "n_layers", problem));
    }
    described.attention_layers = layers(reader, "attention_layers")?;
    described.feed_forward_layers = layers(reader, "feed_forward_layers")?;
    if let Err((key, problem)) = described.check_layers() {
        return Err(Error::config(reader.path(), key, problem));
    }
    match reader.size_or("top_keys", "top_keys", 0, Origin::Family)? {
        0 => reader.forget(&["top_keys"]),
        n => described.top_keys = Some(n),
    }
    let even = described.even_d_head(&checkpoint.tensors);
    let origin = Origin::Derived("inputs of o / n_heads".to_owned());
    described.d_head = reader.size_or("d_head", "d_head", even.unwrap_or(1), origin)?;
    match reader.size_or("d_value", "d_value", 0, Origin::Family)? {
        0 => reader.forget(&["d_value"]),
        n => described.d_value = Some(n),
    }
    described.causal = reader.flag_or("mask", "mask", true)?;
    reader.forget(&["mask"]);
    described.is_parallel =
        one_of(reader, "block", "serial", &["serial", "parallel"])? == "parallel";
    described.has_no_residual = stated(reader, "residual")?.is_some_and(|word| word == "none");
    described.has_no_head = stated(reader, "head")?.is_some_and(|word| word == "none");
    described.pooled = match stated(reader, "pooled")?.unwrap_or_default().as_str() {
        "first" => Some(Pooled::First),
        "last" => Some(Pooled::Last(None)),
        "mean" => Some(Pooled::Mean),
        "max" => Some(Pooled::Max),
        word => word
            .strip_prefix("mean from ")
            .and_then(|first| Some(Pooled::MeanFrom(first.parse().ok()?))),
    };
    described.norm_is_rms = one_of(reader, "norm", "layer", &["layer", "rms"])? == "rms";
    described.norm_adds_one = reader.flag_or("norm_adds_one", "norm_adds_one", false)?;
    described.norms_after_rope = reader.flag_or("norms_after_rope", "norms_after_rope", false)?;
    described.norm_eps = reader.number_or("norm_eps", "norm_eps", 1e-5)?;
    described.activation = reader.word_or("activation", "activation", "gelu")?;
    if activation_by_name(&described.activation).is_none() {
        let problem = format!("{:?} is not known", described.activation);
        return Err(Error::config(reader.path(), "activation", problem));
    }
    described.head_activation = stated(reader, "head_activation")?;
    described.out_activation = stated(reader, "out_activation")?;
    if described.out_activation.is_some()
        && (described.down.is_none() || described.experts.is_some())
    {
        let problem = "expected down, and no experts, beside it".to_owned();
        return Err(Error::config(reader.path(), "out_activation", problem));
    }
    let usual = if described.positions.is_some() {
        "learned"
    } else {
        "none"
    };
    let kinds = [
        "none",
        "learned",
        "sines",
        "sines_halves",
        "sines_halves_to_end",
        "cosines_to_end",
        "rotary",
        "alibi",
    ];
    let kind = one_of(reader, "positions", usual, &kinds)?;
    let d_rotary = reader.size_or(
        "d_rotary",
        "d_rotary",
        described.d_head,
        Origin::Derived("d_head".to_owned()),
    )?;
    if kind == "rotary" && (d_rotary % 2 == 1 || d_rotary > described.d_head) {
        let problem = format!(
            "expected an even number up to the {} dimensions of a head, found {d_rotary}",
            described.d_head
        );
        return Err(Error::config(reader.path(), "d_rotary", problem));
    }
    if kind == "none" {
        described.positions = None;
    }
    if kind != "rotary" {
        reader.forget(&["d_rotary"]);
    }
    read_pictures(checkpoint, reader, &mut described)?;
    if let Some(text) = stated(reader, "rope_divisors")?.filter(|_| kind == "rotary") {
        described.rope_divisors = text
            .split_whitespace()
            .filter_map(|divisor| divisor.parse().ok())
            .collect();
        if described.rope_divisors.len() != d_rotary / 2 {
            let (expected, found) = (d_rotary / 2, described.rope_divisors.len());
            let problem = format!("expected {expected} numbers, one for each pair, found {found}");
            return Err(Error::config(reader.path(), "rope_divisors", problem));
        }
    }
    if kind == "rotary" {
        let names = RopePrecision::ALL.map(RopePrecision::name);
        let name = one_of(reader, "rope_precision", names[0], &names)?;
        let named = |precision: &RopePrecision| precision.name() == name;
        described.rope_precision = RopePrecision::ALL
            .into_iter()
            .find(named)
            .unwrap_or_default();
    }
    described.computed = match kind.as_str() {
        "sines" => Positions::Sines(Sines::Interleaved),
        "sines_halves" => Positions::Sines(Sines::Halves),
        "sines_halves_to_end" => Positions::Sines(Sines::HalvesToEnd),
        "cosines_to_end" => Positions::Sines(Sines::CosinesToEnd),
        "alibi" => Positions::Alibi,
        "rotary" => Positions::Rotary {
            theta: reader.number_or("rope_theta", "rope_theta", 10_000.0)?,
            interleaved: reader.flag_or("rope_interleaved", "rope_interleaved", false)?,
            d_rotary,
        },
        _ => Positions::None,
    };
    if reader.is_word("embed_scale", "embed_scale", "sqrt_d") {
        reader.word_or("embed_scale", "embed_scale", "sqrt_d")?;
        described.embed_scale = EmbedScale::SqrtD;
    } else {
        described.embed_scale =
            EmbedScale::Factor(reader.number_or("embed_scale", "embed_scale", 1.0)?);
    }
    Ok(described)
}

/// Reads which layers have a part, checked when it was set.
fn layers(reader: &mut Reader<'_>, key: &'static str) -> Result<Layers> {
    let stated = stated(reader, key)?;
    Ok(stated
        .and_then(|text| Layers::read(&text))
        .unwrap_or(Layers::All))
}

/// Reads a word that few descriptions state, checked when it was set.
fn stated(reader: &mut Reader<'_>, key: &'static str) -> Result<Option<String>> {
    let word = reader.word_or(key, key, "")?;
    if word.is_empty() {
        reader.forget(&[key]);
        return Ok(None);
    }
    Ok(Some(word))
}

/// Reads one of several allowed words.
fn one_of(
    reader: &mut Reader<'_>,
    key: &'static str,
    usual: &str,
    words: &[&str],
) -> Result<String> {
    let found = reader.word_or(key, key, usual)?;
    if words.contains(&found.as_str()) {
        return Ok(found);
    }
    let problem = format!("expected one of {}, found {found:?}", words.join(", "));
    Err(Error::config(reader.path(), key, problem))
}
