//! Rotary embeddings as configurations state them: in the keys of transformers 4 or 5.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::attention::{RopeScaling, RopeSpec};
use attnscope_compute::error::{Error, Result};
use serde_json::Value;

/// A family's rules for its rotary embedding, before the configuration is read.
#[derive(Debug, Clone, Copy)]
pub struct RopeRule<'a> {
    /// The width that rotates, before the share is applied.
    pub d_head: usize,
    pub theta: f64,
    pub theta_key: &'a str,
    /// The share of the width that rotates, and the key that states it; without a key the whole width rotates.
    pub share: f64,
    pub share_key: Option<&'a str>,
    /// Whether `yarn` means long-context factors (`longrope`) in this family.
    pub yarn_is_long: bool,
    pub interleaved: bool,
    /// The type of layer whose parameters to read, if each type has its own.
    pub layer_type: Option<&'a str>,
    /// Whether `rope_scaling` applies.
    pub is_scaled: bool,
    pub n_ctx: usize,
}

impl RopeRule<'_> {
    /// The whole head, by halves, base 10,000.
    pub fn plain(d_head: usize, n_ctx: usize) -> Self {
        Self {
            d_head,
            theta: 10_000.0,
            theta_key: "rope_theta",
            share: 1.0,
            share_key: None,
            yarn_is_long: false,
            interleaved: false,
            layer_type: None,
            is_scaled: true,
            n_ctx,
        }
    }
}

/// Kinds that stretch the base. For text, the several positions of the second are equal.
const DYNAMIC: [&str; 2] = ["dynamic", "xdrope"];

/// Parameters nested under one key of the configuration.
struct Inside<'a> {
    path: String,
    values: Option<&'a Value>,
}

impl<'a> Inside<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.values?.get(key).filter(|v| !v.is_null())
    }

    /// The kind of scaling, under its new or its old key.
    fn kind(&self) -> Option<&'a Value> {
        self.get("rope_type").or_else(|| self.get("type"))
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    /// Reads a number and notes it as a knob; `None` if absent.
    fn number(
        &self,
        reader: &mut Reader<'_>,
        knob: &'static str,
        key: &str,
    ) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_f64().filter(|v| v.is_finite() && *v > 0.0) {
            Some(number) => {
                reader.note(knob, number, Origin::Key(self.key(key)));
                Ok(Some(number))
            }
            None => {
                let problem = format!("expected a number above 0, found {value}");
                Err(Error::config(reader.path(), self.key(key), problem))
            }
        }
    }

    fn needed(&self, reader: &mut Reader<'_>, knob: &'static str, key: &str) -> Result<f64> {
        let found = self.number(reader, knob, key)?;
        found.ok_or_else(|| {
            Error::config(reader.path(), self.key(key), "missing, expected a number")
        })
    }

    /// A list of divisors, one per rotating pair.
    fn divisors(&self, reader: &Reader<'_>, key: &str, n_pairs: usize) -> Result<Vec<f64>> {
        let list = self.get(key).and_then(Value::as_array);
        let numbers: Option<Vec<f64>> =
            list.and_then(|list| list.iter().map(Value::as_f64).collect());
        match numbers {
            Some(numbers) if numbers.len() == n_pairs && numbers.iter().all(|v| *v > 0.0) => {
                Ok(numbers)
            }
            _ => {
                let problem = format!("expected {n_pairs} numbers above 0, one per rotating pair");
                Err(Error::config(reader.path(), self.key(key), problem))
            }
        }
    }
}

/// Reads a rotary embedding.
///
/// # Errors
/// When a value is missing or impossible, or the kind of scaling is not known.
pub fn rope(reader: &mut Reader<'_>, rule: RopeRule<'_>) -> Result<RopeSpec> {
    let inside = parameters(reader, rule);
    check_versions(reader, &inside, rule)?;
    let theta = match inside.number(reader, "rope_theta", "rope_theta")? {
        Some(theta) => theta,
        None => reader.number_or("rope_theta", rule.theta_key, rule.theta)?,
    };
    if theta <= 0.0 {
        let problem = format!("expected more than 0, found {theta}");
        return Err(Error::config(reader.path(), rule.theta_key, problem));
    }
    let share = rotating_share(reader, &inside, rule)?;
    let d_rotary = (rule.d_head as f64 * share) as usize;
    if !(d_rotary.is_multiple_of(2) && (2..=rule.d_head).contains(&d_rotary)) {
        let problem = format!(
            "expected an even number of dimensions from 2 to {} to rotate, found {d_rotary}",
            rule.d_head
        );
        let key = rule.share_key.unwrap_or("head_dim");
        return Err(Error::config(reader.path(), key, problem));
    }
    let pairs = if rule.interleaved {
        "interleaved"
    } else {
        "halves"
    };
    let positions = format!("rotary, {pairs}, {d_rotary} of {}", rule.d_head);
    reader.note("positions", positions, Origin::Family);
    let (scaling, magnitude) = scaling(reader, &inside, rule, d_rotary)?;
    let alpha = inside.get("alpha").and_then(Value::as_f64);
    let kind = inside.kind().and_then(Value::as_str);
    let is_dynamic = kind.is_some_and(|kind| DYNAMIC.contains(&kind));
    let stretched = alpha.filter(|alpha| *alpha != 0.0 && is_dynamic && d_rotary > 2);
    let theta = match stretched {
        Some(alpha) => theta * alpha.powf(d_rotary as f64 / (d_rotary as f64 - 2.0)),
        None => theta,
    };
    Ok(RopeSpec {
        interleaved: rule.interleaved,
        scaling,
        magnitude,
        ..RopeSpec::plain(theta, d_rotary)
    })
}

/// Reads an unscaled rotary embedding over the whole head. `has_key` says whether `rope_theta` counts, or only the user's
/// setting.
///
/// # Errors
/// When the user's setting is impossible.
pub fn plain_rope(
    reader: &mut Reader<'_>,
    d_rotary: usize,
    interleaved: bool,
    has_key: bool,
) -> Result<RopeSpec> {
    const KEY: &str = "rope_theta";
    const THETA: f64 = 10_000.0;
    let theta = if has_key || reader.is_set(KEY) {
        reader.number_or("rope_theta", KEY, THETA)?
    } else {
        reader.note("rope_theta", THETA, Origin::Family);
        THETA
    };
    if theta <= 0.0 {
        let problem = format!("expected more than 0, found {theta}");
        return Err(Error::config(reader.path(), KEY, problem));
    }
    let pairs = if interleaved { "interleaved" } else { "halves" };
    let positions = format!("rotary, {pairs}, {d_rotary} of {d_rotary}");
    reader.note("positions", positions, Origin::Family);
    Ok(RopeSpec {
        interleaved,
        ..RopeSpec::plain(theta, d_rotary)
    })
}

/// Refuses settings that versions of transformers read differently if layer types have separate parameters: version 5 ignores a
/// scaling that is named by `type`, and merges `rope_scaling` into the parameters beside it.
fn check_versions(reader: &mut Reader<'_>, inside: &Inside<'_>, rule: RopeRule<'_>) -> Result<()> {
    const KEY: &str = "rope_scaling";
    if rule.layer_type.is_none() || inside.path != KEY || inside.values.is_none() {
        return Ok(());
    }
    let by_type = inside.get("type").filter(|kind| *kind != "default");
    let problem = if inside.get("rope_type").is_none() && by_type.is_some() {
        "versions of transformers differ on type in a model with windows; expected rope_type in its place"
    } else if stated(reader, "rope_parameters").is_some() {
        "versions of transformers differ on rope_scaling beside rope_parameters in a model with windows; expected one of them"
    } else {
        return Ok(());
    };
    Err(Error::config(reader.path(), KEY, problem))
}

/// The share of the width that rotates.
fn rotating_share(reader: &mut Reader<'_>, inside: &Inside<'_>, rule: RopeRule<'_>) -> Result<f64> {
    const INNER: &str = "partial_rotary_factor";
    let Some(key) = rule.share_key else {
        // A family that rotates the whole head ignores this value: refuse it rather than guess.
        let stated = inside.get(INNER).or_else(|| reader.value(INNER));
        return match stated.map(|value| (value, value.as_f64())) {
            None | Some((_, Some(1.0))) => Ok(1.0),
            Some((value, _)) => {
                let problem =
                    format!("expected 1, all of a head rotates in this family, found {value}");
                Err(Error::config(reader.path(), INNER, problem))
            }
        };
    };
    if let Some(share) = inside.number(reader, "rotary_share", INNER)? {
        return Ok(share);
    }
    reader.number_or("rotary_share", key, rule.share)
}

/// Parameters under a key; `None` if empty, which transformers treats as absent.
pub fn stated<'a>(reader: &mut Reader<'a>, key: &str) -> Option<&'a Value> {
    let value = reader.value(key)?;
    let is_empty = value.as_object().is_some_and(|values| values.is_empty());
    (!is_empty).then_some(value)
}

/// Finds the parameters: in `rope_parameters`, perhaps by layer type, or in `rope_scaling`.
fn parameters<'a>(reader: &mut Reader<'a>, rule: RopeRule<'_>) -> Inside<'a> {
    // The older key takes precedence if both exist, as in transformers.
    let scaling = stated(reader, "rope_scaling");
    let newer = stated(reader, "rope_parameters");
    if let Some(values) = scaling.filter(|_| rule.is_scaled || newer.is_none()) {
        return Inside {
            path: "rope_scaling".to_owned(),
            values: Some(values).filter(|_| rule.is_scaled),
        };
    }
    let Some(values) = newer else {
        return Inside {
            path: "rope_scaling".to_owned(),
            values: None,
        };
    };
    let nested = rule
        .layer_type
        .and_then(|kind| Some((kind, values.get(kind)?)));
    match nested {
        Some((kind, values)) => Inside {
            path: format!("rope_parameters.{kind}"),
            values: Some(values),
        },
        None => Inside {
            path: "rope_parameters".to_owned(),
            values: Some(values),
        },
    }
}

/// The rescaling of frequencies, and the factor of cosines and sines.
fn scaling(
    reader: &mut Reader<'_>,
    inside: &Inside<'_>,
    rule: RopeRule<'_>,
    d_rotary: usize,
) -> Result<(RopeScaling, f64)> {
    let kind = match inside.kind() {
        None => "default",
        Some(Value::String(kind)) => kind,
        Some(other) => {
            let problem = format!("expected a string, found {other}");
            return Err(Error::config(
                reader.path(),
                inside.key("rope_type"),
                problem,
            ));
        }
    };
    let origin = match inside.values {
        Some(_) => Origin::Key(inside.key("rope_type")),
        None => Origin::Default("rope_scaling".to_owned()),
    };
    reader.note("rope_scaling", kind, origin);
    let n_ctx = rule.n_ctx as f64;
    let scaling = match kind {
        // For text, all three of its positions are equal.
        "default" | "mrope" => return Ok((RopeScaling::None, 1.0)),
        // A fixed factor stretches the base, whatever the length of the text.
        kind if DYNAMIC.contains(&kind)
            && inside
                .get("alpha")
                .is_some_and(|alpha| alpha.as_f64() != Some(0.0)) =>
        {
            inside.needed(reader, "rope_alpha", "alpha")?;
            return Ok((RopeScaling::None, 1.0));
        }
        "linear" => RopeScaling::Linear {
            factor: inside.needed(reader, "rope_factor", "factor")?,
        },
        "dynamic" => RopeScaling::Dynamic {
            factor: inside.needed(reader, "rope_factor", "factor")?,
            n_ctx,
        },
        "llama3" => RopeScaling::Llama3 {
            factor: inside.needed(reader, "rope_factor", "factor")?,
            low_freq_factor: inside.needed(reader, "rope_low_freq_factor", "low_freq_factor")?,
            high_freq_factor: inside.needed(reader, "rope_high_freq_factor", "high_freq_factor")?,
            original_n_ctx: original_n_ctx(reader, inside, n_ctx)?,
        },
        "longrope" | "su" => return long(reader, inside, n_ctx, d_rotary),
        "yarn" if rule.yarn_is_long => return long(reader, inside, n_ctx, d_rotary),
        "yarn" => return yarn(reader, inside, n_ctx),
        other => {
            let problem = format!(
                "{other:?} is not known; known: default, linear, dynamic, llama3, yarn, longrope"
            );
            return Err(Error::config(
                reader.path(),
                inside.key("rope_type"),
                problem,
            ));
        }
    };
    Ok((scaling, 1.0))
}

fn original_n_ctx(reader: &mut Reader<'_>, inside: &Inside<'_>, n_ctx: f64) -> Result<f64> {
    const KEY: &str = "original_max_position_embeddings";
    // The outer value takes precedence, as in transformers.
    if reader.value(KEY).is_some() {
        let outer = reader.number_or("rope_original_n_ctx", KEY, n_ctx)?;
        if outer < 1.0 {
            let problem = format!("expected a number from 1, found {outer}");
            return Err(Error::config(reader.path(), KEY, problem));
        }
        return Ok(outer);
    }
    match inside.number(reader, "rope_original_n_ctx", KEY)? {
        Some(inner) => Ok(inner),
        None => reader.number_or("rope_original_n_ctx", KEY, n_ctx),
    }
}

/// 0.1·m·ln(factor) + 1: how much longer contexts sharpen attention.
fn sharpening(factor: f64, m: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * m * factor.ln() + 1.0
    }
}

fn yarn(reader: &mut Reader<'_>, inside: &Inside<'_>, n_ctx: f64) -> Result<(RopeScaling, f64)> {
    let original_n_ctx = original_n_ctx(reader, inside, n_ctx)?;
    let factor = match inside.number(reader, "rope_factor", "factor")? {
        Some(factor) => factor,
        None => n_ctx / original_n_ctx,
    };
    let is_null = inside.values.and_then(|values| values.get("truncate")) == Some(&Value::Null);
    let truncates = match inside.get("truncate") {
        // Python treats null as false.
        None => !is_null,
        Some(Value::Bool(truncates)) => *truncates,
        Some(other) => {
            let problem = format!("expected true or false, found {other}");
            return Err(Error::config(
                reader.path(),
                inside.key("truncate"),
                problem,
            ));
        }
    };
    let optional = |reader: &mut Reader<'_>, knob, key| inside.number(reader, knob, key);
    let scaling = RopeScaling::Yarn {
        factor,
        beta_fast: optional(reader, "rope_beta_fast", "beta_fast")?.unwrap_or(32.0),
        beta_slow: optional(reader, "rope_beta_slow", "beta_slow")?.unwrap_or(1.0),
        original_n_ctx,
        truncates,
    };
    let stated = optional(reader, "rope_attention_factor", "attention_factor")?;
    // 0 means absent here.
    let plain = |key: &str| {
        inside
            .get(key)
            .and_then(Value::as_f64)
            .filter(|v| *v != 0.0)
    };
    let magnitude = match (stated, plain("mscale"), plain("mscale_all_dim")) {
        (Some(stated), ..) => stated,
        (None, Some(one), Some(all)) => sharpening(factor, one) / sharpening(factor, all),
        _ => sharpening(factor, 1.0),
    };
    Ok((scaling, magnitude))
}

/// The factor that the scaling adds to the scale of scores: DeepSeek's models apply the sharpening there.
///
/// # Errors
/// When a required factor is missing.
pub fn score_sharpening(reader: &mut Reader<'_>, rule: RopeRule<'_>) -> Result<f64> {
    let inside = parameters(reader, rule);
    let m = inside.get("mscale_all_dim").and_then(Value::as_f64);
    let kind = inside.get("rope_type").or_else(|| inside.get("type"));
    let is_scaled = kind
        .and_then(Value::as_str)
        .is_some_and(|kind| kind != "default");
    match m.filter(|m| *m != 0.0 && is_scaled) {
        None => Ok(1.0),
        Some(m) => {
            let factor = inside.needed(reader, "rope_factor", "factor")?;
            Ok(sharpening(factor, m).powi(2))
        }
    }
}

fn long(
    reader: &mut Reader<'_>,
    inside: &Inside<'_>,
    n_ctx: f64,
    d_rotary: usize,
) -> Result<(RopeScaling, f64)> {
    let original_n_ctx = original_n_ctx(reader, inside, n_ctx)?;
    let scaling = RopeScaling::Long {
        short: inside.divisors(reader, "short_factor", d_rotary / 2)?,
        long: inside.divisors(reader, "long_factor", d_rotary / 2)?,
        original_n_ctx: original_n_ctx as usize,
    };
    let factor = match inside.number(reader, "rope_factor", "factor")? {
        Some(factor) => factor,
        None => n_ctx / original_n_ctx,
    };
    let magnitude = match inside.number(reader, "rope_attention_factor", "attention_factor")? {
        Some(stated) => stated,
        None if factor <= 1.0 => 1.0,
        None => (1.0 + factor.ln() / original_n_ctx.ln()).sqrt(),
    };
    Ok((scaling, magnitude))
}
