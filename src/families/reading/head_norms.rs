//! Query and key norms in Llama-like families.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_spec::NormSource;

use super::recipe::{NormStyle, QkNorm, Recipe};

/// Reads whether and how queries and keys are normalised.
///
/// # Errors
/// When a switch is not true or false.
pub(super) fn qk_norm(reader: &mut Reader<'_>, recipe: &Recipe) -> Result<QkNorm> {
    let norm = match recipe.qk_norm {
        QkNorm::OwnGainsIf(key)
        | QkNorm::ListedGainsIf(key)
        | QkNorm::HeadIf(key)
        | QkNorm::BareAfterRopeIf(key)
        | QkNorm::BiasedHeadIf(key, _) => {
            let default = matches!(
                recipe.qk_norm,
                QkNorm::BiasedHeadIf(_, true) | QkNorm::BareAfterRopeIf(_)
            );
            if reader.flag_or("qk_norm", key, default)? {
                recipe.qk_norm
            } else {
                QkNorm::None
            }
        }
        norm => {
            reader.note("qk_norm", norm != QkNorm::None, Origin::Family);
            norm
        }
    };
    Ok(norm)
}

/// The norm of queries or of keys.
pub(super) fn head_norm(
    style: NormStyle,
    norm: QkNorm,
    attn: &str,
    which: &str,
    n_heads: usize,
    d_head: usize,
    eps: f64,
) -> Option<NormSource> {
    // Only one family gives head norms a bias, whatever its other norms have.
    let style = NormStyle {
        has_bias: false,
        has_gain: true,
        ..style
    };
    match norm {
        QkNorm::None => None,
        QkNorm::Head | QkNorm::HeadIf(_) => {
            Some(style.at(&format!("{attn}.{which}_norm"), d_head, eps))
        }
        QkNorm::HeadAfterRope => {
            let name = if which == "q" { "query" } else { "key" };
            Some(style.at(&format!("{attn}.{name}_layernorm"), d_head, eps))
        }
        QkNorm::Bare | QkNorm::BareAfterRope | QkNorm::BareAfterRopeIf(_) => {
            Some(NormSource::new(style.kind, eps, d_head, None))
        }
        QkNorm::BiasedHeadIf(..) => {
            let style = NormStyle {
                has_bias: true,
                ..style
            };
            Some(style.at(&format!("{attn}.{which}_layernorm"), d_head, eps))
        }
        QkNorm::Whole => Some(style.at(&format!("{attn}.{which}_norm"), n_heads * d_head, eps)),
        QkNorm::OwnGainsIf(_) => Some(NormSource {
            gain_shape: vec![n_heads, d_head],
            ..style.at(&format!("{attn}.{which}_norm"), d_head, eps)
        }),
        QkNorm::CentredByHead => {
            let name = format!("{attn}.{which}_norm");
            Some(NormSource {
                gain_shape: vec![n_heads, d_head],
                bias: Some(format!("{name}.bias")),
                ..NormSource::new(
                    NormKind::LayerNorm,
                    1e-5,
                    d_head,
                    Some(format!("{name}.weight")),
                )
            })
        }
        QkNorm::ListedGainsIf(_) => {
            let name = |head_idx| format!("{attn}.{which}_layernorm.norms.{head_idx}.weight");
            Some(NormSource {
                gain: (0..n_heads).map(name).collect(),
                ..style.at("", d_head, eps)
            })
        }
    }
}
