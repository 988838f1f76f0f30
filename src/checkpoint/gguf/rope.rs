//! Rotary scaling of a GGUF file in Hugging Face's terms: by name, or derived from the stored factors.

use std::f64::consts::PI;

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value, json};

use super::architectures::{Architecture, Rotary};
use super::facts::Facts;
use crate::tensors::Tensors;

const FREQS: &str = "rope_freqs.weight";
const LONG: &str = "rope_factors_long.weight";
const SHORT: &str = "rope_factors_short.weight";

const TYPE: &str = "rope.scaling.type";
const FACTOR: &str = "rope.scaling.factor";

/// Low and high frequency factors of the published models: 1 and 4 of Llama 3, 1 and 1 of Llama 4, where nothing is blended.
const LOW: f64 = 1.0;
const HIGH: [f64; 2] = [4.0, 1.0];

/// Builds `rope_scaling` as in `config.json`; `None` without scaling.
///
/// # Errors
/// When the file's scaling has no equivalent there.
pub(super) fn scaling(
    architecture: &Architecture,
    facts: &Facts<'_>,
    theta: f64,
) -> Result<Option<Value>> {
    if architecture.rotary == Rotary::ByFactors {
        return Ok(None);
    }
    let tensors = facts.tensors;
    let kind = facts.metadata.word(&facts.key(TYPE))?;
    let factor = facts.number(FACTOR)?;
    let linear = facts.number("rope.scale_linear")?;
    let original = facts.whole("rope.scaling.original_context_length")?;
    let attention = facts.number("rope.scaling.attn_factor")?;
    if let (Some(long), Some(short)) = (factors(tensors, LONG)?, factors(tensors, SHORT)?) {
        let mut scaling =
            json!({"rope_type": "longrope", "long_factor": long, "short_factor": short});
        if let Some(attention) = attention {
            scaling["attention_factor"] = json!(attention);
        }
        return Ok(Some(scaling));
    }
    let factor = factor.or(linear).filter(|f| *f != 0.0 && *f != 1.0);
    if let Some(stored) = factors(tensors, FREQS)? {
        if factor.is_some() {
            let problem = format!("expected 1 or nothing beside {FREQS}, found another factor");
            return facts.refuse(FACTOR, problem);
        }
        if stored.iter().all(|f| *f == 1.0) {
            return Ok(None);
        }
        return llama3(&stored, theta, facts.sizes.d_head, original).map(Some).ok_or_else(|| {
            let problem = "these factors are not llama3 scaling, and no other is known that stores factors";
            Error::tensor(facts.metadata.path, FREQS, problem)
        });
    }
    let kind = match kind.as_deref() {
        None if factor.is_some() => "linear",
        None => "none",
        Some(kind) => kind,
    };
    match (kind, factor) {
        ("none", _) | ("linear", None) => Ok(None),
        ("linear", Some(factor)) => Ok(Some(json!({"rope_type": "linear", "factor": factor}))),
        ("yarn", Some(factor)) => yarn(architecture, facts, factor, original, attention).map(Some),
        ("yarn", None) => {
            let problem = "missing, expected a number other than 0 and 1 for yarn";
            facts.refuse(FACTOR, problem.to_owned())
        }
        (other, _) => {
            let problem = format!("{other:?} is not known here; known: none, linear, yarn");
            facts.refuse(TYPE, problem)
        }
    }
}

fn yarn(
    architecture: &Architecture,
    facts: &Facts<'_>,
    factor: f64,
    original: Option<u64>,
    attention: Option<f64>,
) -> Result<Value> {
    // Values other than these change what yarn computes.
    for (tail, neutral) in [
        ("rope.scaling.yarn_log_multiplier", 0.0),
        ("rope.scaling.yarn_ext_factor", 1.0),
    ] {
        if architecture.reads(tail) {
            continue;
        }
        let found = facts.number(tail)?;
        if let Some(found) = found.filter(|found| *found != neutral && *found != -1.0) {
            let problem = format!("expected {neutral} or nothing, found {found}");
            return facts.refuse(tail, problem);
        }
    }
    let mut scaling = Map::new();
    scaling.insert("rope_type".to_owned(), "yarn".into());
    scaling.insert("factor".to_owned(), factor.into());
    if let Some(original) = original {
        scaling.insert(
            "original_max_position_embeddings".to_owned(),
            original.into(),
        );
    }
    for (tail, name) in [
        ("rope.scaling.yarn_beta_fast", "beta_fast"),
        ("rope.scaling.yarn_beta_slow", "beta_slow"),
    ] {
        if let Some(beta) = facts.number(tail)? {
            scaling.insert(name.to_owned(), beta.into());
        }
    }
    if let Some(truncates) = facts.flag("rope.scaling.yarn_truncate")? {
        scaling.insert("truncate".to_owned(), truncates.into());
    }
    // The converter writes Hugging Face's factor, which replaces yarn's own; llama.cpp does not read it. The other key, which it
    // reads, multiplies yarn's own.
    let whole = match facts.number("rope.scaling.yarn_attn_factor")? {
        Some(whole) => Some(whole),
        None => attention
            .filter(|times| *times != 1.0)
            .map(|times| times * (0.1 * factor.ln() + 1.0)),
    };
    if let Some(whole) = whole {
        scaling.insert("attention_factor".to_owned(), whole.into());
    }
    Ok(Value::Object(scaling))
}

/// Reads the values of a small tensor of factors, if it exists.
fn factors(tensors: &Tensors, name: &str) -> Result<Option<Vec<f64>>> {
    let Some(info) = tensors.info(name) else {
        return Ok(None);
    };
    let n = info.n_elements();
    let values = tensors.expect(name, &[n])?.widen()?;
    if let Some(bad) = values.iter().find(|v| !(v.is_finite() && **v > 0.0)) {
        let problem = format!("expected factors above 0, found {bad}");
        return Err(Error::tensor(tensors.file_of(name), name, problem));
    }
    Ok(Some(values.iter().map(|v| f64::from(*v)).collect()))
}

/// Finds the Llama 3 scaling that gives exactly these factors. Only the context length divided by the bands matters, so one
/// pair of bands suffices; if several lengths fit, they give the same factors.
fn llama3(stored: &[f64], theta: f64, d_head: u64, original: Option<u64>) -> Option<Value> {
    if stored.len() as u64 * 2 != d_head {
        return None;
    }
    let largest = stored.iter().copied().fold(1.0, f64::max);
    let lengths = original
        .into_iter()
        .chain([8192])
        .chain((4..24).map(|p| 1 << p));
    let bands = HIGH
        .into_iter()
        .flat_map(|high| lengths.clone().map(move |length| (high, length)));
    for (high, length) in bands {
        for factor in [largest, 8.0, 32.0, 16.0, 4.0, 2.0, 64.0] {
            let fits = stored.iter().enumerate().all(|(pair, stored)| {
                let wavelength = 2.0 * PI * theta.powf(2.0 * pair as f64 / d_head as f64);
                let expected = llama3_factor(wavelength, factor, length as f64, high);
                (expected - stored).abs() <= 2e-5 * expected
            });
            if fits {
                return Some(json!({
                    "rope_type": "llama3",
                    "factor": factor,
                    "low_freq_factor": LOW,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": length,
                }));
            }
        }
    }
    None
}

/// Computes Llama 3's divisor of a frequency: 1 for short waves, `factor` for long ones, a blend between them.
fn llama3_factor(wavelength: f64, factor: f64, length: f64, high: f64) -> f64 {
    if wavelength < length / high {
        1.0
    } else if wavelength > length / LOW {
        factor
    } else {
        let smooth = (length / wavelength - LOW) / (high - LOW);
        1.0 / ((1.0 - smooth) / factor + smooth)
    }
}

/// Drops the factors, which are now in the configuration.
pub(super) fn forget_factors(tensors: &mut Tensors) {
    for name in [FREQS, LONG, SHORT] {
        tensors.forget(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_3_scaling_is_recovered_from_its_factors() {
        for (factor, length, d_head) in [(8.0, 8192u64, 128u64), (32.0, 8192, 64), (8.0, 64, 16)] {
            let stored: Vec<f64> = (0..d_head / 2)
                .map(|pair| {
                    let wavelength = 2.0 * PI * 500_000f64.powf(2.0 * pair as f64 / d_head as f64);
                    f64::from(llama3_factor(wavelength, factor, length as f64, 4.0) as f32)
                })
                .collect();
            let found = llama3(&stored, 500_000.0, d_head, None).expect("a scaling");
            assert_eq!(found["factor"], factor);
            for (pair, stored) in stored.iter().enumerate() {
                let wavelength = 2.0 * PI * 500_000f64.powf(2.0 * pair as f64 / d_head as f64);
                let length = found["original_max_position_embeddings"]
                    .as_f64()
                    .expect("a length");
                assert!((llama3_factor(wavelength, factor, length, 4.0) - stored).abs() < 1e-4);
            }
            // With one factor changed, it is no Llama 3 scaling.
            let mut other = stored.clone();
            other[1] *= 1.01;
            assert!(llama3(&other, 500_000.0, d_head, None).is_none());
        }
    }
}
