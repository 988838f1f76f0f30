//! An alignment as text, JSON and CSV, and its arrays as files that other programs read.

use std::io::{self, Cursor, Write};
use std::path::Path;

use attnscope_checkpoint::embeddings::Table;
use attnscope_checks::Thresholds;
use attnscope_compute::attention::RowSummary;
use attnscope_compute::error::{Error, Result};
use attnscope_run::align::{Aligned, Alignment, Sentence, Word};
use npyz::WriterBuilder;
use schemars::JsonSchema;
use serde::Serialize;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::json::write_pretty;
use super::number::Number;
use super::table;
use super::text_table::{text_table, wrapped};
use super::verdict_text::{Quiet, write_text};
use super::verdicts::{TargetRecord, TargetVerdict};
use crate::table_row;

/// The version of the shapes in this file.
const VERSION: u32 = 1;
const WIDTH: usize = 80;

/// An alignment, computed and judged.
#[derive(Debug)]
pub struct AlignShown<'a> {
    alignment: &'a Alignment,
    aligned: Aligned,
    verdict: TargetVerdict,
}

/// The attention of one sentence's words to those of another.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Document<'a> {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    #[schemars(extend("const" = "align"))]
    command: &'static str,
    queries: SideRecord<'a>,
    keys: SideRecord<'a>,
    /// The factor of the scores, in words.
    scale: String,
    /// What the softmax sums over.
    #[schemars(schema_with = "super::schema_parts::softmax_axis")]
    softmax_axis: String,
    /// Scaled scores, a list of keys for each query.
    scores: Vec<Vec<Number>>,
    /// Attention weights, a list of keys for each query.
    pattern: Vec<Vec<Number>>,
    /// Rows and columns of the output.
    output_shape: [usize; 2],
    rows: Vec<RowRecord<'a>>,
    columns: Vec<ColumnRecord<'a>>,
    verdict: TargetRecord,
}

/// An embedding table and the words that were looked up in it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct SideRecord<'a> {
    /// Base name of the table's file.
    file: String,
    /// Rows of the table.
    rows: usize,
    /// Columns of the table.
    width: usize,
    /// Element type in the file.
    stored_as: &'a str,
    words: Vec<WordRecord<'a>>,
    /// Words that the table does not have.
    unknown: Vec<&'a str>,
    /// Words whose row in the table is zero.
    zero_rows: Vec<&'a str>,
}

/// A word and its row in the table.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct WordRecord<'a> {
    word: &'a str,
    /// Index of the row, from 0; null for unknown words.
    row: Option<usize>,
    /// Norm of the row.
    norm: Number,
}

/// What one query looks at.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RowRecord<'a> {
    query: &'a str,
    /// Index of the key with the largest weight; null where there is none.
    best_key: Option<usize>,
    /// The largest weight.
    weight: Number,
    /// Entropy of the weights in nats.
    entropy: Number,
    /// Sum of the weights.
    sum: Number,
    /// Cosine of the query and the key with the largest weight.
    cosine: Number,
}

/// What one key receives.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ColumnRecord<'a> {
    key: &'a str,
    /// Sum of the weights over all queries.
    sum: Number,
}

impl<'a> AlignShown<'a> {
    /// Computes and judges; `what_if` is what was supposed, as it was written.
    pub fn new(alignment: &'a Alignment, what_if: Vec<String>, thresholds: &Thresholds) -> Self {
        let aligned = alignment.align();
        let verdict = TargetVerdict {
            error: None,
            target: alignment.name(),
            what_if,
            first: Vec::new(),
            notes: Vec::new(),
            unread: Vec::new(),
            cover: Vec::new(),
            left_out: Vec::new(),
            next: None,
            verdicts: aligned.judge(thresholds),
        };
        Self {
            alignment,
            aligned,
            verdict,
        }
    }

    fn rows(&self) -> impl Iterator<Item = (usize, &RowSummary)> {
        let heads = self.aligned.layer.heads.iter();
        heads.flat_map(|head| &head.summary.rows).enumerate()
    }

    fn column_sums(&self) -> &[f32] {
        let head = self.aligned.layer.heads.first();
        head.map_or(&[], |head| &head.summary.column_sums)
    }

    /// The key that a query looks at most; none where all are alike to it, or its row is NaN.
    fn best(&self, query_idx: usize) -> Option<usize> {
        let word = self.alignment.queries.words.get(query_idx)?;
        let (_, row) = self.rows().nth(query_idx)?;
        (!word.is_zero && !row.top1.is_nan()).then_some(row.argmax as usize)
    }

    /// The cosine of a query with the key it looks at most.
    fn cosine(&self, query_idx: usize, key_idx: usize) -> f32 {
        self.aligned.cosines[query_idx * self.aligned.n_keys() + key_idx]
    }

    /// Every query word with the key word it looks at most; sums of rows and columns; what the checks say.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_text(&self, to: &mut impl Write) -> io::Result<()> {
        let Self {
            alignment, aligned, ..
        } = self;
        let [query_table, key_table] = alignment.tables();
        for (what, table, sentence) in [
            ("queries", query_table, &alignment.queries),
            ("keys", key_table, &alignment.keys),
        ] {
            to.write_all(wrapped(&about(what, table, sentence), WIDTH, "  ").as_bytes())?;
        }
        let spec = &alignment.spec.attention;
        writeln!(
            to,
            "softmax over {}, scale {}; output: {} × {}",
            spec.softmax_axis,
            spec.scale,
            aligned.n_queries(),
            aligned.width
        )?;
        let labels = |sentence: &Sentence| -> Vec<String> {
            sentence.words.iter().map(Word::label).collect()
        };
        let (queries, keys) = (labels(&alignment.queries), labels(&alignment.keys));
        let rows = self.rows().map(|(query_idx, row)| {
            let key_idx = row.argmax as usize;
            let best = self.best(query_idx).map_or("–", |best| &keys[best]);
            vec![
                queries[query_idx].clone(),
                best.to_owned(),
                shown(row.top1),
                shown(row.entropy),
                shown(row.mass),
                shown(self.cosine(query_idx, key_idx)),
            ]
        });
        let titles = [
            "query", "best key", "weight", "entropy", "row sum", "cosine",
        ];
        let rows: Vec<Vec<String>> = rows.collect();
        writeln!(to, "\n{}", text_table(&titles, &rows))?;
        let columns = keys.iter().zip(self.column_sums());
        let columns: Vec<Vec<String>> = columns
            .map(|(key, sum)| vec![key.clone(), shown(*sum)])
            .collect();
        writeln!(to, "{}", text_table(&["key", "column sum"], &columns))?;
        let quiet = Quiet::Counted(
            "those need a model, a mask or several heads; --format json has the reasons",
        );
        write_text(&self.verdict, quiet, to)
    }

    /// Writes the document, indented, with a newline at the end.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        let Self {
            alignment, aligned, ..
        } = self;
        let [query_table, key_table] = alignment.tables();
        let numbers = |values: &[f32]| values.iter().map(|v| wide(*v)).collect::<Vec<_>>();
        let matrix = |values: &[f32]| values.chunks(aligned.n_keys()).map(numbers).collect();
        let rows = self.rows().zip(&alignment.queries.words);
        let columns = alignment.keys.words.iter().zip(self.column_sums());
        let document = Document {
            version: VERSION,
            command: "align",
            queries: side(query_table, &alignment.queries),
            keys: side(key_table, &alignment.keys),
            scale: alignment.spec.attention.scale.to_string(),
            softmax_axis: alignment.spec.attention.softmax_axis.to_string(),
            scores: matrix(&aligned.scores),
            pattern: matrix(&aligned.pattern),
            output_shape: [aligned.n_queries(), aligned.width],
            rows: rows
                .map(|((query_idx, row), word)| RowRecord {
                    query: &word.text,
                    best_key: self.best(query_idx),
                    weight: wide(row.top1),
                    entropy: wide(row.entropy),
                    sum: wide(row.mass),
                    cosine: wide(self.cosine(query_idx, row.argmax as usize)),
                })
                .collect(),
            columns: columns
                .map(|(word, sum)| ColumnRecord {
                    key: &word.text,
                    sum: wide(*sum),
                })
                .collect(),
            verdict: TargetRecord::of(&self.verdict),
        };
        write_pretty(&document, to)
    }

    /// Returns one row for each pair of words.
    pub fn pairs(&self) -> table::Table {
        let n_keys = self.aligned.n_keys();
        let queries = self.alignment.queries.words.iter().enumerate();
        let rows = queries.flat_map(|(query_idx, query)| {
            let keys = self.alignment.keys.words.iter().enumerate();
            keys.map(move |(key_idx, key)| {
                let at = query_idx * n_keys + key_idx;
                PairRow {
                    query_idx,
                    query: query.text.clone(),
                    key_idx,
                    key: key.text.clone(),
                    score: f64::from(self.aligned.scores[at]),
                    weight: f64::from(self.aligned.pattern[at]),
                    cosine: f64::from(self.aligned.cosines[at]),
                }
            })
        });
        table::Table::of(rows)
    }
}

table_row! {
    /// A query word and a key word.
    struct PairRow {
        query_idx: usize, "", "position of the query word";
        query: String, "", "query word";
        key_idx: usize, "", "position of the key word";
        key: String, "", "key word";
        score: f64, "", "score of the pair";
        weight: f64, "", "attention weight of the pair";
        cosine: f64, "", "cosine of the two vectors";
    }
}

/// A figure of the table; a dash where there is none.
fn shown(value: f32) -> String {
    if value.is_nan() {
        "–".to_owned()
    } else {
        format!("{value:.3}")
    }
}

fn wide(value: f32) -> Number {
    Number(f64::from(value))
}

/// One side in a line: its table, its words, and those of them that have no direction.
fn about(what: &str, table: &Table, sentence: &Sentence) -> String {
    let of = &table.embeddings;
    let (unknown, zero) = (sentence.unknown(), sentence.zero());
    let mut said = format!(
        "{what}: {}, {} × {} {}; {}, {} unknown",
        of.name(),
        of.n_rows,
        of.width,
        of.stored_as,
        match sentence.words.len() {
            1 => "1 word".to_owned(),
            n => format!("{n} words"),
        },
        unknown.len()
    );
    if !unknown.is_empty() {
        said += &format!(" (rows of zeros): {}", unknown.join(", "));
    }
    if !zero.is_empty() {
        said += &format!("; known, with a row of zeros: {}", zero.join(", "));
    }
    said
}

fn side<'a>(table: &'a Table, sentence: &'a Sentence) -> SideRecord<'a> {
    let norm = |row: &[f32]| {
        row.iter()
            .map(|v| f64::from(*v).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    let rows = sentence.vectors.chunks(sentence.width);
    let words = sentence.words.iter().zip(rows);
    SideRecord {
        file: table.embeddings.name(),
        rows: table.embeddings.n_rows,
        width: table.embeddings.width,
        stored_as: &table.embeddings.stored_as,
        words: words
            .map(|(word, row)| WordRecord {
                word: &word.text,
                row: word.row,
                norm: Number(norm(row)),
            })
            .collect(),
        unknown: sentence.unknown(),
        zero_rows: sentence.zero(),
    }
}

/// Pattern, scores, queries, keys and output as safetensors or `.npz`, by the ending; pattern and scores have the names by
/// which `attnscope check` judges them.
///
/// # Errors
/// When the ending is neither, or an array cannot be written.
pub fn write_arrays(alignment: &Alignment, aligned: &Aligned, target: &Path) -> Result<Vec<u8>> {
    let (n_queries, n_keys, width) = (aligned.n_queries(), aligned.n_keys(), aligned.width);
    let arrays = [
        (
            "decoder.blocks.0.cross_attn.pattern",
            [n_queries, n_keys],
            &aligned.pattern,
        ),
        (
            "decoder.blocks.0.cross_attn.scores",
            [n_queries, n_keys],
            &aligned.scores,
        ),
        ("output", [n_queries, width], &aligned.output),
        ("queries", [n_queries, width], &alignment.queries.vectors),
        ("keys", [n_keys, width], &alignment.keys.vectors),
    ];
    let failed =
        |e: &dyn std::fmt::Display| Error::file(target, format!("cannot be written ({e})"));
    let ending = target.extension().unwrap_or_default().to_string_lossy();
    match ending.to_lowercase().as_str() {
        "npz" => npz(&arrays).map_err(|e| failed(&e)),
        "safetensors" => {
            let views = arrays.iter().map(|(name, shape, values)| {
                let bytes = bytemuck::cast_slice(values);
                let view = safetensors::tensor::TensorView::new(
                    safetensors::Dtype::F32,
                    shape.to_vec(),
                    bytes,
                );
                view.map(|view| (*name, view))
            });
            let views: Vec<_> = views
                .collect::<std::result::Result<_, _>>()
                .map_err(|e| failed(&e))?;
            let axis = alignment.spec.attention.softmax_axis;
            let said = [
                ("attnscope.source", alignment.name()),
                ("attnscope.queries", alignment.queries.text()),
                ("attnscope.keys", alignment.keys.text()),
                ("attnscope.softmax_axis", axis.to_string()),
            ];
            let metadata = said.map(|(key, value)| (key.to_owned(), value));
            safetensors::serialize(views, Some(metadata.into())).map_err(|e| failed(&e))
        }
        _ => Err(Error::file(
            target,
            "expected a name that ends in .safetensors or .npz",
        )),
    }
}

fn npz(arrays: &[(&str, [usize; 2], &Vec<f32>)]) -> io::Result<Vec<u8>> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    // Without a date of its own the same arrays give the same bytes.
    let options = SimpleFileOptions::default().last_modified_time(zip::DateTime::default());
    for (name, shape, values) in arrays {
        archive.start_file(format!("{name}.npy"), options)?;
        let shape = shape.map(|n| n as u64);
        let mut member = npyz::WriteOptions::new()
            .default_dtype()
            .shape(&shape)
            .writer(&mut archive)
            .begin_nd()?;
        member.extend(values.iter().copied())?;
        member.finish()?;
    }
    Ok(archive.finish()?.into_inner())
}
