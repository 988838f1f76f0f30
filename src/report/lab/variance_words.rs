//! Sentences that describe the measured variances and gradients.

use attnscope_studies::lab::{Saturation, VarianceLab, VarianceSetup};

use super::variance::scaled;
use crate::text_table::digits;

/// A measured variance this many standard errors from the prediction contradicts independence. Our choice: by chance once in
/// 16,000, for tails that are not too heavy.
const FAR: f64 = 4.0;

/// Describes the widths together, the widest one, and growing scores.
pub fn variance_words(setup: &VarianceSetup, lab: &VarianceLab) -> Vec<String> {
    let mut says = Vec::new();
    says.extend(agreement(lab));
    let widest = lab.widths.iter().max_by_key(|of| of.d);
    if let Some(widest) = widest {
        says.push(widest_words(setup, widest));
        says.push(with_qk_norm(widest));
    }
    says.extend(grown(lab));
    says
}

/// Returns the distance of the measured variance from the predicted one, in standard errors.
fn off(of: &Saturation) -> Option<f64> {
    let predicted = of.product.predicted?;
    Some((of.product.variance - predicted).abs() / of.product.standard_error)
}

fn agreement(lab: &VarianceLab) -> Option<String> {
    let off: Vec<f64> = lab.widths.iter().filter_map(off).collect();
    let largest = off.iter().copied().fold(f64::NAN, f64::max);
    if off.is_empty() {
        return None;
    }
    let near = off.iter().filter(|off| **off <= FAR).count();
    Some(format!(
        "variance: d·(σ⁴ + 2σ²μ²) predicts Var(q·k) within {FAR} standard errors at {near} of {} widths; the largest distance is {largest:.1}",
        off.len()
    ))
}

fn widest_words(setup: &VarianceSetup, of: &Saturation) -> String {
    let most = 1.0 - 1.0 / setup.n_keys as f64;
    format!(
        "d = {}: Var(q·k) is {} and {} after 1/√d; over {} keys tr J is {} unscaled and {} scaled (at most {}), the largest weight {} and {}",
        of.d,
        digits(of.product.variance),
        digits(scaled(of).variance),
        setup.n_keys,
        digits(of.unscaled.trace),
        digits(of.scaled.trace),
        digits(most),
        digits(of.unscaled.max_probability),
        digits(of.scaled.max_probability)
    )
}

fn with_qk_norm(of: &Saturation) -> String {
    let predicted = match of.normed.predicted {
        Some(predicted) => format!("predicted {predicted}"),
        None => "nothing predicted: the components are not symmetric around 0".to_owned(),
    };
    format!(
        "QK-norm: the variance is {} ({predicted}) and tr J {}, however long q and k are: growth cannot harden this softmax; a learned gain can",
        digits(of.normed.variance),
        digits(of.with_qk_norm.trace)
    )
}

fn grown(lab: &VarianceLab) -> Option<String> {
    let (first, last) = (lab.growth.first()?, lab.growth.last()?);
    Some(format!(
        "gradients: as q·k/√d grows from {} to {} times, tr J goes from {} to {} and the spectral norm from {} to {}; argmax, which \
         softmax comes near, gives 0 to every score at any scale",
        first.growth,
        last.growth,
        digits(first.softmax.trace),
        digits(last.softmax.trace),
        digits(first.softmax.spectral),
        digits(last.softmax.spectral)
    ))
}
