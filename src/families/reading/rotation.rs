//! Effects of position in Llama-like families: rotary embedding, layers without it, and the scale of scores.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::attention::{Growth, GrowthCurve, RopeSpec, Scale};
use attnscope_compute::error::{Error, Result};
use serde_json::Value;

use super::recipe::{Recipe, RopeLayers, ScorePower};
use super::rope::{RopeRule, rope};
use super::sizes::Sizes;

/// The rotary embeddings of layers without and with a window.
pub(super) struct Ropes {
    pub full: RopeSpec,
    windowed: Option<RopeSpec>,
}

impl Ropes {
    /// # Errors
    /// When a value is missing or impossible.
    pub fn read(reader: &mut Reader<'_>, recipe: &Recipe, sizes: &Sizes) -> Result<Self> {
        if !rotates(reader, recipe)? {
            reader.note("positions", "none", Origin::Family);
            return Ok(Self {
                full: RopeSpec::plain(recipe.theta, sizes.d_head),
                windowed: None,
            });
        }
        let rule = RopeRule {
            theta: recipe.theta,
            share: recipe.rotary_share.unwrap_or(1.0),
            share_key: recipe.rotary_share.map(|_| "partial_rotary_factor"),
            yarn_is_long: recipe.yarn_is_long,
            interleaved: recipe.interleaved,
            layer_type: recipe.local_rope.map(|_| "full_attention"),
            ..RopeRule::plain(sizes.d_head, sizes.n_ctx)
        };
        let full = rope(reader, rule)?;
        let windowed = match recipe.local_rope {
            Some(local) => Some(rope(
                reader,
                RopeRule {
                    theta: local.theta,
                    theta_key: local.theta_key.unwrap_or("no key"),
                    layer_type: Some("sliding_attention"),
                    is_scaled: false,
                    ..rule
                },
            )?),
            None => None,
        };
        Ok(Self { full, windowed })
    }

    pub fn of(&self, is_windowed: bool) -> &RopeSpec {
        match &self.windowed {
            Some(windowed) if is_windowed => windowed,
            _ => &self.full,
        }
    }
}

/// Whether any layer rotates.
fn rotates(reader: &mut Reader<'_>, recipe: &Recipe) -> Result<bool> {
    match recipe.rope_layers {
        RopeLayers::Never => Ok(false),
        RopeLayers::IfNamed(key) => match reader.value(key).map(|kind| (kind, kind.as_str())) {
            None => Ok(false),
            // Any other word counts as none.
            Some((_, Some(kind))) => Ok(kind == "rope"),
            Some((kind, None)) => {
                let problem = format!("expected null or rope, found {kind}");
                Err(Error::config(reader.path(), key, problem))
            }
        },
        _ => Ok(true),
    }
}

/// Which layers use the rotary embedding.
///
/// # Errors
/// When a list does not fit the layers.
pub(super) fn rotating_layers<W>(
    reader: &mut Reader<'_>,
    recipe: &Recipe,
    windows: &[Option<W>],
) -> Result<Vec<bool>> {
    let n_layers = windows.len();
    Ok(match recipe.rope_layers {
        RopeLayers::All => vec![true; n_layers],
        RopeLayers::Never | RopeLayers::IfNamed(_) => vec![rotates(reader, recipe)?; n_layers],
        RopeLayers::WindowedUnlessNull(key) if reader.is_null(key) => vec![true; n_layers],
        RopeLayers::Windowed | RopeLayers::WindowedUnlessNull(_) => {
            windows.iter().map(Option::is_some).collect()
        }
        RopeLayers::Listed(key, every) | RopeLayers::ListedIfAny(key, every) => match reader
            .numbers(key)?
            .filter(|list| recipe.rope_layers == RopeLayers::Listed(key, every) || !list.is_empty())
        {
            Some(list) if list.len() == n_layers => list.iter().map(|entry| *entry != 0).collect(),
            Some(list) => {
                let found = list.len();
                let problem = format!("expected {n_layers} entries, one per layer, found {found}");
                return Err(Error::config(reader.path(), key, problem));
            }
            None => {
                let default = Origin::Default("no_rope_layer_interval".to_owned());
                let every =
                    reader.size_or("no_rope_every", "no_rope_layer_interval", every, default)?;
                (0..n_layers).map(|i| (i + 1) % every != 0).collect()
            }
        },
    })
}

/// The scale of scores, and where it comes from.
///
/// # Errors
/// When the key that states it is missing or impossible.
pub(super) fn score_scale(
    reader: &mut Reader<'_>,
    recipe: &Recipe,
    d_head: usize,
) -> Result<(Scale, Origin)> {
    let Some((key, power)) = recipe.score_factor else {
        return Ok((Scale::InvSqrtD, Origin::Family));
    };
    if power == ScorePower::One {
        return Ok((Scale::Factor(1.0), Origin::Family));
    }
    let Some(value) = reader.value(key) else {
        if matches!(
            power,
            ScorePower::AsIsIfStated | ScorePower::InverseRootIfStated
        ) {
            return Ok((Scale::InvSqrtD, Origin::Default(key.to_owned())));
        }
        let problem = "missing, expected a number: the scale of scores depends on it";
        return Err(Error::config(reader.path(), key, problem));
    };
    match value.as_f64().filter(|v| v.is_finite() && *v > 0.0) {
        Some(value) => {
            let factor = match power {
                ScorePower::AsIs | ScorePower::AsIsIfStated => value,
                ScorePower::InverseRoot | ScorePower::InverseRootIfStated => 1.0 / value.sqrt(),
                ScorePower::One => 1.0,
                ScorePower::OverRoot => value / (d_head as f64).sqrt(),
            };
            Ok((Scale::Factor(factor as f32), Origin::Key(key.to_owned())))
        }
        None => {
            let problem = format!("expected a number above 0, found {value}");
            Err(Error::config(reader.path(), key, problem))
        }
    }
}

/// How queries are scaled far into a text, if the rotary parameters say so.
///
/// # Errors
/// When a value is missing or impossible.
pub(super) fn growth(reader: &mut Reader<'_>, grows: bool) -> Result<Option<Growth>> {
    if !grows {
        return Ok(None);
    }
    const BETA: &str = "llama_4_scaling_beta";
    const PERIOD: &str = "original_max_position_embeddings";
    let inside = ["rope_scaling", "rope_parameters"];
    let found = inside
        .into_iter()
        .find_map(|key| Some((key, super::rope::stated(reader, key)?)));
    let stated = |name: &str| found.and_then(|(_, values)| values.get(name)?.as_f64());
    let Some(((key, _), beta)) = found.zip(stated(BETA)) else {
        let problem = "missing, expected a number: queries grow with their position";
        return Err(Error::config(
            reader.path(),
            format!("rope_parameters.{BETA}"),
            problem,
        ));
    };
    let Some(period) = stated(PERIOD).filter(|period| *period >= 1.0) else {
        let problem = "expected a number from 1: queries grow with their position";
        return Err(Error::config(
            reader.path(),
            format!("{key}.{PERIOD}"),
            problem,
        ));
    };
    let said = format!("1 + {beta} ln(1 + position / {period})");
    reader.note("query_growth", said, Origin::Key(format!("{key}.{BETA}")));
    Ok(Some(Growth {
        beta,
        period,
        first: 0,
        curve: GrowthCurve::Steps,
    }))
}

/// Refuses keys that the family does not support, and rotary parameters that are missing but required.
///
/// # Errors
/// When the configuration does not fit the recipe.
pub(super) fn check_keys(reader: &mut Reader<'_>, recipe: &Recipe) -> Result<()> {
    for (key, why) in recipe.forbidden_keys {
        let found = reader.value(key);
        if let Some(found) = found.filter(|found| **found != Value::Bool(false)) {
            let problem = format!("expected null: {why}, found {found}");
            return Err(Error::config(reader.path(), *key, problem));
        }
    }
    super::expected::check(reader, recipe.expected_keys)?;
    let keys = ["rope_scaling", "rope_parameters"];
    if recipe.requires_rope_parameters
        && keys
            .iter()
            .all(|key| super::rope::stated(reader, key).is_none())
    {
        let problem = "missing, expected the rescaling of rotary frequencies or its absence stated";
        return Err(Error::config(reader.path(), "rope_parameters", problem));
    }
    Ok(())
}
