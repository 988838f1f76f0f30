//! Sentences that describe the numbers of the divisors.

use attnscope_studies::lab::{Divisor, Rescaled, Rescaling, Totals};

use crate::text_table::digits;

/// Rows with at least this share of the largest entropy are called almost uniform. Our choice.
const ALMOST_UNIFORM: f64 = 0.99;

/// Divisors whose ratio is within this distance of 1 are called the same. Our choice.
const NEAR: f64 = 0.1;

/// Describes each case, and tests the claim that Σ‖k‖ is the better divisor.
pub fn rescale_words(cases: &[Rescaled]) -> Vec<String> {
    let mut says = Vec::new();
    for case in cases {
        let place = format!("d = {}, {} keys", case.d, case.n_keys);
        says.extend(
            case.by(Divisor::None)
                .map(|none| undivided(&place, case, none)),
        );
        let pair = case.by(Divisor::SqrtD).zip(case.by(Divisor::SumKeyNorms));
        if let Some((root, total)) = pair {
            says.push(shape(&place, case, root, total));
            says.push(drawn(&place, case, total));
            says.push(evenness(&place, case, total));
            says.push(gradient(&place, case, root, total));
            says.extend(
                case.by(Divisor::NSqrtD)
                    .map(|fixed| without_keys(&place, total, fixed)),
            );
        }
    }
    says.extend(verdict(cases));
    says
}

fn percent(share: f64) -> String {
    // More nines where they are needed.
    match 1.0 - share {
        left if left > 0.01 => format!("{:.1} %", 100.0 * share),
        left if left > 1e-4 => format!("{:.2} %", 100.0 * share),
        _ => format!("{:.4} %", 100.0 * share),
    }
}

fn undivided(place: &str, case: &Rescaled, none: &Rescaling) -> String {
    let most = 1.0 - 1.0 / case.n_keys as f64;
    format!(
        "{place}: undivided, scores spread by {}; a row's largest weight is {} on average, its entropy {} of log n, \
         tr J {} of at most {}",
        digits(none.score_std),
        digits(none.max_probability),
        percent(none.relative_entropy),
        digits(none.jacobian_trace),
        digits(most)
    )
}

fn shape(place: &str, case: &Rescaled, root: &Rescaling, total: &Rescaling) -> String {
    let than = if total.ks < root.ks {
        "nearer to that of the scores"
    } else {
        "no nearer to that of the scores"
    };
    format!(
        "{place}: the first key's scores have skewness {}, its weights {} after √d and {} after Σ‖k‖ = {}; over all keys the KS \
         distance is {} and {}: with Σ‖k‖ the shape is {than}",
        digits(case.first_score.skewness),
        digits(root.first_weight.skewness),
        digits(total.first_weight.skewness),
        digits(total.value),
        digits(root.ks),
        digits(total.ks)
    )
}

/// Compares this simulation's keys with other keys that could have been drawn.
fn drawn(place: &str, case: &Rescaled, total: &Rescaling) -> String {
    let Totals {
        n_draws,
        mean,
        std,
        smallest,
        largest,
    } = case.totals;
    format!(
        "{place}: Σ‖k‖ = {} is that of the keys drawn here; over {n_draws} other draws of the keys it is {} ± {} (standard deviation), \
         from {} to {}",
        digits(total.value),
        digits(mean),
        digits(std),
        digits(smallest),
        digits(largest)
    )
}

fn evenness(place: &str, case: &Rescaled, total: &Rescaling) -> String {
    let even = 1.0 / case.n_keys as f64;
    let line = format!(
        "weights are the straight line (1 + s − mean s)/n up to {} of their spread",
        percent(total.curvature)
    );
    let verdict = if total.relative_entropy >= ALMOST_UNIFORM {
        "the shape is kept where softmax does nothing but scale, and every key gets almost the same"
    } else {
        "rows are not uniform"
    };
    format!(
        "{place}: with Σ‖k‖ entropy is {} of log n and the largest weight {} where 1/n is {}; {line}: {verdict}",
        percent(total.relative_entropy),
        digits(total.max_probability),
        digits(even)
    )
}

/// Says how many times larger one number is.
fn times(larger: f64, smaller: f64) -> String {
    match larger / smaller {
        ratio if ratio >= 10.0 => format!("{ratio:.0}"),
        ratio => format!("{ratio:.1}"),
    }
}

fn gradient(place: &str, case: &Rescaled, root: &Rescaling, total: &Rescaling) -> String {
    let most = 1.0 - 1.0 / case.n_keys as f64;
    let arrives = if total.product_gradient < root.product_gradient {
        format!(
            "{} times less than with √d",
            times(root.product_gradient, total.product_gradient)
        )
    } else {
        format!(
            "{} times more than with √d",
            times(total.product_gradient, root.product_gradient)
        )
    };
    format!(
        "{place}: tr J is {} with Σ‖k‖ and {} with √d (at most {}); but the division divides gradients too: at q·k arrive {} and {}, \
         {arrives}",
        digits(total.jacobian_trace),
        digits(root.jacobian_trace),
        digits(most),
        digits(total.product_gradient),
        digits(root.product_gradient)
    )
}

/// Compares Σ‖k‖ with a constant divisor that does not depend on the keys.
fn without_keys(place: &str, total: &Rescaling, fixed: &Rescaling) -> String {
    let ratio = fixed.value / total.value;
    let relation = if (ratio - 1.0).abs() < NEAR {
        "comes to the same".to_owned()
    } else {
        format!("is {} times Σ‖k‖", digits(ratio))
    };
    format!(
        "{place}: n√d = {} knows no key and {relation}: entropy differs by {:.1e} of log n, the KS distance by {:.1e}",
        digits(fixed.value),
        (fixed.relative_entropy - total.relative_entropy).abs(),
        (fixed.ks - total.ks).abs()
    )
}

fn verdict(cases: &[Rescaled]) -> Option<String> {
    let pairs = cases
        .iter()
        .filter_map(|case| case.by(Divisor::SqrtD).zip(case.by(Divisor::SumKeyNorms)));
    let pairs: Vec<(&Rescaling, &Rescaling)> = pairs.collect();
    let count = |holds: fn(&(&Rescaling, &Rescaling)) -> bool| {
        pairs.iter().filter(|pair| holds(pair)).count()
    };
    let n = pairs.len();
    if n == 0 {
        return None;
    }
    let kept = count(|(root, total)| total.ks < root.ks);
    let softer = count(|(root, total)| total.jacobian_trace > root.jacobian_trace);
    let less = count(|(root, total)| total.product_gradient < root.product_gradient);
    let uniform = count(|(_, total)| total.relative_entropy >= ALMOST_UNIFORM);
    let ratios = pairs
        .iter()
        .map(|(root, total)| root.product_gradient / total.product_gradient);
    let (least, most) = ratios.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), ratio| {
        (a.min(ratio), b.max(ratio))
    });
    Some(format!(
        "the claim, against √d: Σ‖k‖ keeps the shape better in {kept} of {n} settings and saturates the softmax less in {softer} of {n}; \
         rows are almost uniform in {uniform} of {n}, and less of a gradient arrives at q·k in {less} of {n}: √d lets {} to {} times as much through",
        digits(least),
        digits(most)
    ))
}
