//! Translation quality of models: as text with a chart, as CSV and as JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use attnscope_studies::quality::{AlignmentErrors, BleuCounts};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::ModelRecord;
use super::json::write_pretty;
use super::number::Number;
use super::plain::one_line;
use super::table::Table;
use super::text_table::{digits, text_table};
use crate::table_row;

/// Version of the JSON.
const VERSION: u32 = 1;
/// Signature of the scores, in sacreBLEU's notation.
const SIGNATURE: &str = "case:mixed|eff:no|tok:13a|smooth:exp";

/// A translated sentence with its scores.
#[derive(Debug, Clone)]
pub struct Translated {
    pub id: String,
    /// Words of the source.
    pub n_words: usize,
    pub counts: BleuCounts,
    /// Equal to a reference.
    pub is_exact: bool,
    pub hypothesis: String,
    pub reference: String,
}

/// Alignment error rates of each attention against gold alignments.
#[derive(Debug)]
pub struct AlignedBy {
    /// Errors of each pair, by place; `None` if the pair has no alignment.
    pub errors: BTreeMap<String, Vec<Option<AlignmentErrors>>>,
    /// The requested place.
    pub asked: Option<String>,
}

table_row! {
    /// Scores of one model on pairs of some lengths.
    struct QualityRow {
        checkpoint: String, "", "name of the checkpoint";
        span: &'static str, "", "all pairs, or those of one range of lengths";
        from: usize, "words", "fewest words of a source";
        to: usize, "words", "most words of a source";
        pairs: usize, "", "number of pairs";
        bleu: f64, "", "BLEU from 0 to 100, as sacreBLEU defines it for a corpus";
        brevity_penalty: f64, "", "penalty of short translations";
        exact: f64, "", "share of the pairs whose translation equals a reference";
        alignment_error: Option<f64>, "", "alignment error rate, with gold alignments";
    }
}

/// What one model scored.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Scored {
    /// Name of the checkpoint.
    checkpoint: String,
    model: ModelRecord,
    /// All pairs together.
    all: Scores,
    /// Pairs by the number of words of their source.
    by_length: Vec<Scores>,
    /// Attention whose links are compared with the alignments; null without alignments.
    aligned_by: Option<String>,
    /// Alignment error rates of every attention to the source, the smallest first; a place without a head is a layer's mean.
    alignments: Vec<PlaceError>,
    translations: Vec<Translation>,
    #[serde(skip)]
    translated: Vec<Translated>,
    #[serde(skip)]
    errors: Vec<Option<AlignmentErrors>>,
}

/// Scores of some pairs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Scores {
    /// Fewest words of a source.
    from: usize,
    /// Most words of a source.
    to: usize,
    pairs: usize,
    /// BLEU from 0 to 100, as sacreBLEU defines it for a corpus.
    bleu: Number,
    /// Smoothed precisions of 1-grams to 4-grams, in percent.
    precisions: Vec<Number>,
    brevity_penalty: Number,
    /// Share of the pairs whose translation is a reference to the letter.
    exact: Number,
    /// Alignment error rate; null without alignments.
    alignment_error: Option<Number>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PlaceError {
    place: String,
    alignment_error: Number,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Translation {
    id: String,
    hypothesis: String,
    reference: String,
    /// BLEU of the sentence, with effective order.
    bleu: Number,
}

/// What several models scored on the same pairs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct QualityDocument {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    /// How BLEU is computed, in sacreBLEU's words.
    signature: &'static str,
    /// What-ifs that were on, as they were written.
    what_if: Vec<String>,
    models: Vec<Scored>,
    #[serde(skip)]
    step: usize,
}

impl Scored {
    pub fn new(
        checkpoint: String,
        model: ModelRecord,
        translated: Vec<Translated>,
        aligned: AlignedBy,
    ) -> Self {
        let rate = |errors: &[Option<AlignmentErrors>]| {
            let mut sum = AlignmentErrors::default();
            errors.iter().flatten().for_each(|one| sum += *one);
            sum.rate()
        };
        let mut alignments: Vec<PlaceError> = aligned
            .errors
            .iter()
            .map(|(place, errors)| PlaceError {
                place: place.clone(),
                alignment_error: Number(rate(errors)),
            })
            .collect();
        alignments.sort_by(|a, b| {
            let by_rate = a.alignment_error.0.total_cmp(&b.alignment_error.0);
            // If rates are equal, prefer the head to the layer that consists of only this head.
            by_rate.then(b.place.len().cmp(&a.place.len()))
        });
        let best = alignments.first().map(|one| one.place.clone());
        let aligned_by = aligned.asked.filter(|_| best.is_some()).or(best);
        let mut errors = aligned.errors;
        let errors = aligned_by.as_ref().and_then(|place| errors.remove(place));
        let errors = errors.unwrap_or_else(|| vec![None; translated.len()]);
        let translations = translated.iter().map(|one| Translation {
            id: one.id.clone(),
            hypothesis: one.hypothesis.clone(),
            reference: one.reference.clone(),
            bleu: Number(one.counts.bleu(true).score),
        });
        let mut scored = Self {
            checkpoint,
            model,
            all: Scores::of(&[], (0, 0)),
            by_length: Vec::new(),
            aligned_by,
            alignments,
            translations: translations.collect(),
            translated,
            errors,
        };
        let lengths = || scored.translated.iter().map(|one| one.n_words);
        let ends = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        scored.all = scored.within(ends);
        scored
    }

    /// Scores the pairs whose source lengths are in a range.
    fn within(&self, (from, to): (usize, usize)) -> Scores {
        let pairs = self.translated.iter().zip(&self.errors);
        let pairs = pairs.filter(|(one, _)| (from..=to).contains(&one.n_words));
        Scores::of(&pairs.collect::<Vec<_>>(), (from, to))
    }
}

impl Scores {
    fn of(pairs: &[(&Translated, &Option<AlignmentErrors>)], (from, to): (usize, usize)) -> Self {
        let mut counts = BleuCounts::default();
        let mut errors: Option<AlignmentErrors> = None;
        for (one, of_one) in pairs {
            counts += one.counts;
            if let Some(of_one) = of_one {
                *errors.get_or_insert_default() += *of_one;
            }
        }
        let bleu = counts.bleu(false);
        let n_exact = pairs.iter().filter(|(one, _)| one.is_exact).count();
        Self {
            from,
            to,
            pairs: pairs.len(),
            bleu: Number(bleu.score),
            precisions: bleu.precisions.map(Number).to_vec(),
            brevity_penalty: Number(bleu.brevity_penalty),
            exact: Number(n_exact as f64 / pairs.len() as f64),
            alignment_error: errors.map(|errors| Number(errors.rate())),
        }
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let aer = self
            .alignment_error
            .as_ref()
            .map(|rate| digits(100.0 * rate.0));
        vec![
            name.to_owned(),
            format!("{}-{}", self.from, self.to),
            self.pairs.to_string(),
            digits(self.bleu.0),
            digits(100.0 * self.exact.0),
            digits(self.brevity_penalty.0),
            aer.unwrap_or_else(|| "-".to_owned()),
        ]
    }
}

impl QualityDocument {
    pub fn new(length_step: usize, what_if: Vec<String>) -> Self {
        Self {
            version: VERSION,
            signature: SIGNATURE,
            what_if,
            models: Vec::new(),
            step: length_step,
        }
    }

    /// Adds a model and scores its pairs by length.
    pub fn add(&mut self, mut scored: Scored) {
        let step = self.step;
        let lengths = scored.translated.iter();
        let mut rows: Vec<usize> = lengths
            .map(|one| one.n_words.max(1).div_ceil(step))
            .collect();
        rows.sort_unstable();
        rows.dedup();
        let spans = rows
            .into_iter()
            .map(|row| ((row - 1) * step + 1, row * step));
        scored.by_length = spans.map(|span| scored.within(span)).collect();
        self.models.push(scored);
    }

    /// Writes the document.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        write_pretty(self, to)
    }

    /// Returns one row per model and length range, the row of all pairs first.
    pub fn rows(&self) -> Table {
        let rows = self.models.iter().flat_map(|of| {
            let all = std::iter::once(("all", &of.all));
            let rows = all.chain(of.by_length.iter().map(|row| ("length", row)));
            rows.map(|(span, row)| QualityRow {
                checkpoint: of.checkpoint.clone(),
                span,
                from: row.from,
                to: row.to,
                pairs: row.pairs,
                bleu: row.bleu.0,
                brevity_penalty: row.brevity_penalty.0,
                exact: row.exact.0,
                alignment_error: row.alignment_error.as_ref().map(|rate| rate.0),
            })
        });
        Table::of(rows)
    }

    /// Returns the table as text.
    pub fn text(&self) -> String {
        let titles = [
            "checkpoint",
            "words",
            "pairs",
            "BLEU",
            "exact %",
            "brevity",
            "AER %",
        ];
        let mut rows = Vec::new();
        for of in &self.models {
            let name = one_line(&of.checkpoint);
            rows.push(of.all.cells(&name));
            rows.extend(of.by_length.iter().map(|row| row.cells("")));
        }
        let mut text = text_table(&titles, &rows);
        text +=
            &format!("\nBLEU: {SIGNATURE}, as sacreBLEU has it; words are those of the source\n");
        for of in &self.models {
            if let Some(place) = &of.aligned_by {
                text += &format!(
                    "AER of {}: links of {place} while the first reference is written\n",
                    one_line(&of.checkpoint)
                );
            }
        }
        text
    }
}
