//! Aligns the words of two sentences by attention between two embedding tables: softmax(Q Kᵀ/√d), with the keys as values.

mod attend;
mod knobs;
mod sentence;
mod spec;

pub use self::sentence::{Sentence, Word};
pub use self::spec::AlignSpec;

use std::sync::Arc;

use attnscope_checkpoint::Knob;
use attnscope_checkpoint::embeddings::Table;
use attnscope_checks::stats::{LayerEvidence, LayerReport};
use attnscope_checks::{Check, Evidence, Probes, Subject, Thresholds, Verdict};
use attnscope_compute::attention::{Audit, AuditReference, SoftmaxAxis};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::Prompt;
use attnscope_spec::{Place, Stack};

use self::attend::{Attended, attend};
use self::knobs::knobs_of;
use super::captured::{F32_TOLERANCE, Heads, first_nonfinite, whole_head};
use super::head::{HeadDetail, HeadQuery};
use super::layer::head_report;
use super::what_if::{WhatIf, alignment_with_what_ifs};

/// Separator between the two sentences when both are given as one text.
const BETWEEN: char = '|';

/// Two sentences, the rows of their words, and the attention between them.
#[derive(Debug, Clone)]
pub struct Alignment {
    tables: Arc<[Table; 2]>,
    pub queries: Sentence,
    pub keys: Sentence,
    pub spec: AlignSpec,
    /// Facts about the tables and sentences, one line each.
    pub knobs: Vec<Knob>,
}

/// Attention computed for an alignment.
#[derive(Debug, Clone)]
pub struct Aligned {
    pub layer: Arc<LayerReport>,
    /// [query, key]
    pub scores: Vec<f32>,
    pub pattern: Vec<f32>,
    /// Cosine of each pair; NaN where a word's row is zero. // [query, key]
    pub cosines: Vec<f32>,
    /// Σ p·v. // [query, width]
    pub output: Vec<f32>,
    pub width: usize,
    first_nonfinite: Option<(Place, String)>,
}

impl Alignment {
    /// Words of the first table are the queries, words of the second the keys.
    ///
    /// # Errors
    /// When the tables are not equally wide, a text has no words or too many, or a row cannot be read.
    pub fn new(
        tables: [Table; 2],
        [query_text, key_text]: [&str; 2],
        axis: SoftmaxAxis,
        what_ifs: &[WhatIf],
    ) -> Result<Self> {
        let [queries, keys] = &tables;
        if queries.embeddings.width != keys.embeddings.width {
            let problem = format!(
                "rows are {} wide, those of {} {}: expected tables of one width",
                queries.embeddings.width,
                keys.embeddings.path.display(),
                keys.embeddings.width
            );
            return Err(Error::file(&queries.embeddings.path, problem));
        }
        let sentences = [
            Sentence::read(queries, "query", query_text)?,
            Sentence::read(keys, "key", key_text)?,
        ];
        let [queries, keys] = sentences;
        let plain = Self {
            spec: AlignSpec::plain(queries.width, axis),
            knobs: knobs_of(&tables, [&queries, &keys], axis),
            tables: Arc::new(tables),
            queries,
            keys,
        };
        plain.with_what_ifs(what_ifs)
    }

    /// Aligns other sentences with the same tables and attention.
    ///
    /// # Errors
    /// When the text is not two sentences with `|` between them, or one has no words or too many.
    pub fn of_texts(&self, both: &str) -> Result<Self> {
        let parts: Vec<&str> = both.split(BETWEEN).collect();
        let [query_text, key_text] = parts.as_slice() else {
            let found = parts.len() - 1;
            let problem = format!("expected QUERY WORDS | KEY WORDS, found {found} |");
            return Err(Error::Prompt(problem));
        };
        let [queries, keys] = &*self.tables;
        let queries = Sentence::read(queries, "query", query_text)?;
        let keys = Sentence::read(keys, "key", key_text)?;
        Ok(Self {
            tables: self.tables.clone(),
            spec: self.spec.clone(),
            knobs: knobs_of(
                &self.tables,
                [&queries, &keys],
                self.spec.attention.softmax_axis,
            ),
            queries,
            keys,
        })
    }

    /// Aligns the same sentences with a changed attention.
    ///
    /// # Errors
    /// When a what-if names a place that an alignment does not have.
    pub fn with_what_ifs(&self, what_ifs: &[WhatIf]) -> Result<Self> {
        Ok(Self {
            spec: alignment_with_what_ifs(&self.spec, what_ifs)?,
            ..self.clone()
        })
    }

    /// Names of both tables.
    pub fn name(&self) -> String {
        let [queries, keys] = self.tables();
        format!("{} → {}", queries.embeddings.name(), keys.embeddings.name())
    }

    /// Returns the tables, queries first.
    pub fn tables(&self) -> [&Table; 2] {
        let [queries, keys] = &*self.tables;
        [queries, keys]
    }

    /// Both sentences as one text, as [`Alignment::of_texts`] reads it.
    pub fn text(&self) -> String {
        format!("{} {BETWEEN} {}", self.queries.text(), self.keys.text())
    }

    /// Prompt made of the query words, with the key words as its source.
    pub fn prompt(&self) -> Prompt {
        let prompt = |sentence: &Sentence| Prompt {
            tokens: sentence.tokens(),
            labels: sentence.words.iter().map(Word::label).collect(),
            positions: (0..sentence.words.len()).collect(),
            ..Prompt::default()
        };
        Prompt {
            source: Some(Box::new(prompt(&self.keys))),
            ..prompt(&self.queries)
        }
    }

    /// Computes the attention and all its statistics.
    pub fn align(&self) -> Aligned {
        let width = self.queries.width;
        let Attended {
            summary,
            visibility,
            scores,
            pattern,
            cosines,
            output,
        } = attend(&self.queries, &self.keys, &self.spec);
        let spec = &self.spec.attention;
        let against = AuditReference {
            visibility: &visibility,
            axis: spec.softmax_axis,
            documents: &[],
            tolerance: F32_TOLERANCE,
            vectors: None,
            added: None,
            shape: None,
            is_mixed: false,
            has_sinks: false,
            has_own_zeros: true,
        };
        let audit = Audit::of(&against, &pattern, Some(&scores));
        let heads = |values: &[f32]| Heads {
            dims: [1, self.queries.words.len(), self.keys.words.len()],
            values: values.to_vec(),
        };
        let place = Place::layer(Stack::Cross, 0);
        let (of_scores, of_pattern) = (heads(&scores), heads(&pattern));
        let first_nonfinite = first_nonfinite(
            place,
            "alignment",
            &visibility,
            Some(&of_scores),
            Some(&of_pattern),
        );
        let norms: Vec<f32> = output.chunks(width).map(attend::length).collect();
        let head = head_report(spec, summary, (&norms, &[]), false, Some(Box::new(audit)));
        let evidence = LayerEvidence::default();
        let layer = LayerReport {
            stack: Stack::Cross,
            layer_idx: 0,
            name: None,
            has_sinks: false,
            stats: attnscope_checks::stats::of_layer(std::slice::from_ref(&head.stats), &evidence),
            spec: spec.clone(),
            heads: vec![head],
            alike: Vec::new(),
            peak: None,
        }
        .with_absent();
        Aligned {
            layer: Arc::new(layer),
            scores,
            pattern,
            cosines,
            output,
            width,
            first_nonfinite,
        }
    }
}

impl Aligned {
    /// Scores and pattern at full resolution.
    pub fn detail(&self, query: HeadQuery) -> HeadDetail {
        let dims = [self.n_queries(), self.n_keys()];
        let maps = [Some(self.scores.as_slice()), Some(self.pattern.as_slice())];
        whole_head(maps, dims, query.hides_first_key)
    }

    pub fn n_queries(&self) -> usize {
        self.output.len() / self.width.max(1)
    }

    pub fn n_keys(&self) -> usize {
        self.pattern.len() / self.n_queries().max(1)
    }

    /// Runs every check; rows and columns are always both measured.
    pub fn judge(&self, thresholds: &Thresholds) -> Vec<(&'static Check, Verdict)> {
        let probes = Probes::none("there is no model to ask again, only two tables");
        let layers = [self.layer.clone()];
        let evidence = Evidence {
            first_nonfinite: self.first_nonfinite.clone(),
            ..Evidence::of_layers(Subject::Trace, &layers, &probes, F32_TOLERANCE)
        };
        let mut judged = attnscope_checks::judge(&evidence, thresholds);
        for (check, verdict) in &mut judged {
            if OF_TRAINING.contains(&check.id) {
                *verdict = Verdict::not_applicable(
                    "an alignment of words is meant to be sharp: no gradient has to pass through it",
                );
            }
            // No training happened here, so the usual advice does not apply.
            let advice = "normalise over the key words: each row of [query, key] sums to 1";
            for finding in &mut verdict.findings {
                if check.id == "wrong-axis" {
                    finding.advice = advice.to_owned();
                }
            }
        }
        judged
    }
}

/// Checks that warn about a softmax that cannot learn.
const OF_TRAINING: [&str; 2] = ["entropy-collapse", "softmax-saturation"];
