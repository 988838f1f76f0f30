//! The ids are not those that the tokenizer gives for their text.
//!
//! ## What it does
//! Turns ids that were given in place of a text into text, tokenizes the text again, and counts the ids that are missing.
//!
//! ## Why it matters
//! A model knows texts as its tokenizer cuts them. Random ids, ids of another tokenizer, and texts that were tokenized piece by piece
//! without the spaces between them are noise to any model, so its loss and attention there say nothing about it.
//!
//! ## How it is measured
//! Value: the share of ids that do not occur in the second tokenization, special tokens left out; each id counts as often as it
//! stands there. Prompts given as text are not measured, since attnscope tokenizes them itself.
//!
//! ## False alarms
//! Ids that a model wrote: it may spell a word in pieces that its tokenizer would join. Tokenizers that change text, such as by
//! folding case and accents, give the same ids again and do not fire.
//!
//! ## Example
//! `--tokens` with ids drawn at random: 37 of 40 ids differ from the tokenizer's own ids for their text.

use attnscope_spec::Place;

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "foreign-ids",
    severity: Severity::Info,
    needs: Needs::Pattern,
    source: include_str!("foreign_ids.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let ids = evidence.lost.ids;
    let limits = &thresholds.foreign_ids;
    if ids.n == 0 {
        return Verdict::not_applicable("no ids were given for which there is a tokenizer");
    }
    if (ids.n as f64) < limits.fewest_ids {
        return Verdict::undecidable(format!(
            "{} ids: at least {} are needed",
            ids.n, limits.fewest_ids
        ));
    }
    let said = format!(
        "{} of {} ids differ from the tokenizer's own ids for their text",
        ids.n_foreign, ids.n
    );
    if ids.foreign_share() < limits.share {
        return Verdict::passed(said);
    }
    let finding = Finding {
        check: CHECK.id,
        severity: CHECK.severity,
        place: Place::MODEL,
        value: ids.foreign_share(),
        threshold: limits.share,
        unit: "of ids",
        evidence: format!("{said}: they are noise to any model"),
        advice:
            "give the text itself (--text), or tokenize it whole with the model's own tokenizer"
                .to_owned(),
    };
    Verdict::of(vec![finding], "")
}
