//! Rotary embeddings of layers whose parameters are listed by layer type; some rotate a share of the whole head's frequencies.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::attention::{RopeScaling, RopeSpec};
use attnscope_compute::error::{Error, Result};

use super::rope::{RopeRule, rope};

/// The rotary embedding of a layer, from the parameters of its layer type.
///
/// # Errors
/// When its parameters are missing or impossible.
pub fn rotation(
    reader: &mut Reader<'_>,
    is_windowed: bool,
    d_head: usize,
    n_ctx: usize,
) -> Result<RopeSpec> {
    const KEY: &str = "rope_parameters";
    let kind = if is_windowed {
        "sliding_attention"
    } else {
        "full_attention"
    };
    let stated = reader.value(KEY);
    let own = stated
        .and_then(|all| all.get(kind))
        .filter(|own| !own.is_null());
    if stated.is_some() && own.is_none() {
        let problem = "missing, expected the parameters of rotation";
        return Err(Error::config(
            reader.path(),
            format!("{KEY}.{kind}"),
            problem,
        ));
    }
    let word = own.and_then(|own| own.get("rope_type")?.as_str());
    let is_proportional = match word {
        None => stated.is_none() && !is_windowed,
        Some(word) => word == "proportional",
    };
    if !is_proportional {
        let rule = RopeRule {
            layer_type: Some(kind),
            ..RopeRule::plain(d_head, n_ctx)
        };
        return rope(reader, rule);
    }
    let number = |key: &str, default: f64| -> Result<f64> {
        let Some(value) = own.and_then(|own| own.get(key)).filter(|v| !v.is_null()) else {
            return Ok(default);
        };
        let found = value.as_f64().filter(|number| *number > 0.0);
        found.ok_or_else(|| {
            let problem = format!("expected a number above 0, found {value}");
            Error::config(reader.path(), format!("{KEY}.{kind}.{key}"), problem)
        })
    };
    let usual_share = if stated.is_none() { 0.25 } else { 1.0 };
    let usual_theta = if stated.is_none() { 1e6 } else { 10_000.0 };
    let share = number("partial_rotary_factor", usual_share)?;
    let (theta, factor) = (number("rope_theta", usual_theta)?, number("factor", 1.0)?);
    // Frequencies are those of the whole head; pairs that do not rotate have none.
    let n_turning = ((share * d_head as f64) / 2.0).floor() as usize;
    let divisors: Vec<f64> = (0..d_head / 2)
        .map(|pair_idx| {
            if pair_idx < n_turning {
                factor
            } else {
                f64::INFINITY
            }
        })
        .collect();
    reader.note("rope_theta", theta, Origin::Key(format!("{KEY}.{kind}")));
    let said = format!("rotary, halves, {} of {d_head}", 2 * n_turning);
    reader.note("positions", said, Origin::Family);
    Ok(RopeSpec {
        scaling: RopeScaling::Long {
            short: divisors.clone(),
            long: divisors,
            original_n_ctx: usize::MAX,
        },
        ..RopeSpec::plain(theta, d_head)
    })
}
