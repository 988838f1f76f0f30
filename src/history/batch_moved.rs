//! What a log's batches have to do with a jump of the loss: padding, documents, and the positions where the loss changed.

use attnscope_report::digits;

use super::jumps::Jump;
use super::log::BatchFacts;
use super::robust::median;
use super::value::History;

/// Records on either side.
const AROUND: usize = 5;
/// A share of padding that changed by this much, and a number of documents by this factor, are worth telling. Ours.
const PADDING: f64 = 0.1;
const DOCUMENTS: f64 = 1.5;
/// Position from which a context counts as long.
const LATE: u32 = 16;

/// A measured loss is the training's own within this share of it, and this many nats. Ours: some hundred sampled positions.
const NEAR: (f64, f64) = (0.15, 0.02);
/// Records before a jump that have to agree on what labels are.
const FEWEST: usize = 3;

/// Whether a loss that was measured at sampled positions is the training's own.
pub(super) fn is_near(measured: f64, loss: f64) -> bool {
    (measured - loss).abs() <= NEAR.0 * loss.abs() + NEAR.1
}

/// Returns the loss of the next token where a jump begins, if labels were the next tokens before it and are no longer: the loss
/// was that of the next token, and is much higher now.
pub(super) fn lost_labels(history: &History, jump: &Jump) -> Option<f64> {
    let losses = |idx: usize| {
        let record = &history.records()[idx];
        Some((record.loss()?, record.batch()?.next_loss?))
    };
    let before: Vec<(f64, f64)> = (0..jump.begin)
        .rev()
        .filter_map(losses)
        .take(AROUND)
        .collect();
    let agree = before.iter().filter(|(loss, next)| is_near(*next, *loss));
    if before.len() < FEWEST || agree.count() < FEWEST {
        return None;
    }
    let (loss, next) = losses(jump.begin)?;
    (loss > next && !is_near(next, loss) && loss - next > 0.5 * (jump.to - jump.from))
        .then_some(next)
}

/// Returns what changed in the batches at the same record, each in a few words.
pub(super) fn batch_moved(history: &History, jump: &Jump) -> Vec<String> {
    let around = |of: &dyn Fn(&BatchFacts) -> Option<f64>| {
        let end = jump.end.unwrap_or(history.records().len());
        let after = (jump.begin..end.min(jump.begin + AROUND)).collect();
        let before = (jump.begin.saturating_sub(AROUND)..jump.begin).collect();
        let [before, after] = [before, after].map(|range: Vec<usize>| {
            let values = range
                .into_iter()
                .filter_map(|idx| of(history.records()[idx].batch()?));
            median(values)
        });
        (before.is_finite() && after.is_finite()).then_some((before, after))
    };
    let mut told = Vec::new();
    if let Some((before, after)) = around(&|facts| facts.padding)
        && (after - before).abs() > PADDING
    {
        let (before, after) = (digits(before), digits(after));
        told.push(format!(
            "the share of padding went from {before} to {after}"
        ));
    }
    if let Some((before, after)) = around(&|facts| facts.documents)
        && before.max(after) > DOCUMENTS * before.min(after)
    {
        let (before, after) = (digits(before), digits(after));
        told.push(format!("documents in a row went from {before} to {after}"));
    }
    let (early, late) = (around(&early), around(&late));
    if let (Some(early), Some(late)) = (early, late) {
        told.push(format!(
            "{} → {} at the first positions, {} → {} from position {LATE} on",
            digits(early.0),
            digits(early.1),
            digits(late.0),
            digits(late.1)
        ));
    }
    told
}

/// The loss of the first two positions, in nats.
fn early(facts: &BatchFacts) -> Option<f64> {
    mean_of(facts, |begin| begin < 2)
}

/// The loss of positions with a context of some length, in nats.
fn late(facts: &BatchFacts) -> Option<f64> {
    mean_of(facts, |begin| begin >= LATE)
}

/// The mean over the ranges that begin at such positions, each counted by its length.
fn mean_of(facts: &BatchFacts, is_meant: impl Fn(u32) -> bool) -> Option<f64> {
    let (mut sum, mut n, mut begin) = (0.0, 0.0, 0);
    for (end, loss) in &facts.by_position {
        if let Some(loss) = loss.0
            && is_meant(begin)
        {
            let length = f64::from(end.saturating_sub(begin));
            sum += loss * length;
            n += length;
        }
        begin = *end;
    }
    (n > 0.0).then(|| sum / n)
}
