//! Sections of a comparison for one prompt: predictions, heads, and statistics of tables.

use attnscope_checks::stats::STATISTICS;
use attnscope_compare::{HeadDifference, PromptDifference};
use attnscope_spec::Place;

use super::words::{Section, section};
use crate::text_table::digits;

/// Most heads listed in text; the JSON has all of them.
const MOST_HEADS: usize = 8;

/// Most statistics listed in the text of two tables.
const MOST_STATISTICS: usize = 20;

pub(super) fn predictions(prompt: &PromptDifference, of: &str) -> Option<Section> {
    let mut rows = Vec::new();
    if let Some(found) = &prompt.predictions {
        rows.push(vec!["KL of B from A, nats".to_owned(), digits(found.kl)]);
        rows.push(vec![
            "same likeliest token".to_owned(),
            format!("{:.1} %", 100.0 * found.same_top1),
        ]);
    }
    if let [Some(a), Some(b)] = prompt.loss {
        let loss = format!("{} → {}", digits(a), digits(b));
        rows.push(vec!["loss, nats".to_owned(), loss]);
    }
    let title = format!("Predictions{of}");
    section(&title, "", &["", ""], rows)
}

pub(super) fn heads(prompt: &PromptDifference, of: &str) -> Option<Section> {
    let differing = prompt.heads.iter().filter(|head| head.divergence > 0.0);
    let mut heads: Vec<&HeadDifference> = differing.collect();
    heads.sort_by(|a, b| b.divergence.total_cmp(&a.divergence));
    let rows = heads.iter().take(MOST_HEADS).map(|head| {
        let place = Place::layer(head.stack, head.layer_idx).head(head.head_idx);
        vec![place.to_string(), digits(head.divergence)]
    });
    let title = format!("Patterns that differ most{of}");
    section(&title, "", &["head", "JS, nats"], rows.collect())
}

/// Lists the statistics that differ most, for tables: tables hold nothing else.
pub(super) fn statistics(prompt: &PromptDifference, of: &str) -> Option<Section> {
    let mut found: Vec<(f64, Vec<String>)> = Vec::new();
    for head in &prompt.heads {
        let Some([a, b]) = &head.stats else { continue };
        for (idx, statistic) in STATISTICS.iter().enumerate() {
            let (a, b) = (a.at(idx), b.at(idx));
            let share = (a - b).abs() / a.abs().max(b.abs());
            if share > 0.0 || (a.is_nan() != b.is_nan()) {
                let place = Place::layer(head.stack, head.layer_idx).head(head.head_idx);
                let row = vec![
                    place.to_string(),
                    statistic.id.to_owned(),
                    digits(a),
                    digits(b),
                ];
                found.push((if share.is_nan() { f64::INFINITY } else { share }, row));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let rows = found.into_iter().take(MOST_STATISTICS).map(|(_, row)| row);
    let title = format!("Statistics that differ most{of}");
    section(&title, "", &["head", "statistic", "A", "B"], rows.collect())
}
