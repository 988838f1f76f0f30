//! The story of an alignment: words of two sentences matched by scaled dot products of their embeddings, and the axis that goes wrong.

use anyhow::Result;
use attnscope_compute::attention::{Pooled, SoftmaxAxis};
use attnscope_report::chart::{Axis, Chart, Mark, Series};
use attnscope_report::{Map, Page, Picture, Sheet, Table, digits};
use attnscope_run::align::{Aligned, Alignment, Word};
use attnscope_run::{Pyramid, Sweep, sweep_scales};

use super::twins::range;
use crate::bundles::demo_alignment;

/// The query whose row is explained.
const EXPLAINED: usize = 1;
/// Two sentences with words that the tables lack.
const UNKNOWN: &str =
    "she bought eight umbrellas on july ninth | sie hat am neunten juli acht regenschirme gekauft";
/// A key that gets less than this from all queries together gets nothing worth naming.
const NOTHING: f32 = 0.01;
/// Factors of the scores that are tried.
const SCALES: (f64, f64) = (0.01, 20.0);

pub fn pages() -> Result<Vec<Page>> {
    let alignment = demo_alignment(SoftmaxAxis::Keys)?;
    let other = demo_alignment(SoftmaxAxis::Queries)?;
    let (aligned, wrong) = (alignment.align(), other.align());
    Ok(vec![
        matched(&alignment, &aligned),
        one_row(&alignment, &aligned),
        softness(&aligned)?,
        axes((&alignment, &aligned), (&other, &wrong)),
        outputs(&alignment, [&aligned, &wrong]),
        unknown(&alignment)?,
    ])
}

fn labels(words: &[Word]) -> Vec<String> {
    words.iter().map(Word::label).collect()
}

/// The weights with their sums.
fn map(title: &str, alignment: &Alignment, aligned: &Aligned) -> Map {
    let cells = Pooled {
        n_rows: aligned.n_queries(),
        n_cols: aligned.n_keys(),
        queries_per_cell: 1,
        keys_per_cell: 1,
        cells: aligned.pattern.clone(),
    };
    Map {
        title: title.to_owned(),
        row_labels: labels(&alignment.queries.words),
        column_labels: labels(&alignment.keys.words),
        is_pattern: false,
        sheets: vec![vec![Sheet {
            values: Pyramid::new(cells),
            row_sums: row_sums(aligned),
            column_sums: column_sums(aligned),
        }]],
    }
}

fn row_sums(aligned: &Aligned) -> Vec<f32> {
    let rows = aligned.pattern.chunks(aligned.n_keys().max(1));
    rows.map(|row| row.iter().sum()).collect()
}

fn column_sums(aligned: &Aligned) -> Vec<f32> {
    let n_keys = aligned.n_keys();
    let column = |key_idx: usize| aligned.pattern.iter().skip(key_idx).step_by(n_keys).sum();
    (0..n_keys).map(column).collect()
}

/// Words in quotation marks, with “and” before the last.
fn quoted(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("“{word}”")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => "nothing".to_owned(),
    }
}

fn matched(alignment: &Alignment, aligned: &Aligned) -> Page {
    let sums = column_sums(aligned);
    let keys = alignment.keys.words.iter().zip(&sums);
    let empty = keys.filter(|(_, sum)| **sum < NOTHING);
    let empty: Vec<&str> = empty.map(|(word, _)| word.text.as_str()).collect();
    let d = alignment.queries.width;
    Page {
        title: "each word finds its translation",
        words: format!(
            "The demo retells a write-up that aligns words by attention alone (docs/alignment.md). English words are queries, German words \
             are keys and values, each with {d} numbers from a table. A row holds the weights softmax(q·k/√{d}) and sums to 1. The German \
             verb comes last and units come before tens, so the map is no diagonal. {} translate no word here and get nothing.",
            quoted(&empty)
        ),
        picture: Picture::Maps(vec![map("weights: English ↓ German →", alignment, aligned)]),
    }
}

fn one_row(alignment: &Alignment, aligned: &Aligned) -> Page {
    let (n_keys, d) = (aligned.n_keys(), alignment.queries.width);
    let root = (d as f64).sqrt();
    let row = EXPLAINED * n_keys..(EXPLAINED + 1) * n_keys;
    let norm = |vector: &[f32]| {
        vector
            .iter()
            .map(|v| f64::from(*v).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    let query = &alignment.queries.vectors[EXPLAINED * d..(EXPLAINED + 1) * d];
    let keys = alignment
        .keys
        .words
        .iter()
        .zip(alignment.keys.vectors.chunks(d));
    let rows = keys.zip(row.clone()).map(|((word, key), cell)| {
        let score = f64::from(aligned.scores[cell]);
        let figures = [
            norm(key),
            f64::from(aligned.cosines[cell]),
            score * root,
            score,
        ];
        let weight = format!("{:.6}", aligned.pattern[cell]);
        let name = std::iter::once(word.label());
        name.chain(figures.map(digits)).chain([weight]).collect()
    });
    let scores = || aligned.scores[row.clone()].iter().copied();
    let most = scores().fold(f32::NEG_INFINITY, f32::max);
    let second = scores()
        .filter(|score| *score < most)
        .fold(f32::NEG_INFINITY, f32::max);
    Page {
        title: "how one row is made",
        words: format!(
            "The row of “{}”, with ‖q‖ = {}. Each German word gives a product q·k, which is divided by √{d} = {root:.1}; the softmax turns the \
             scores into weights. All vectors are about equally long, so the angle decides. The best score is {} above the second, which \
             makes e to that, {}, times more weight.",
            alignment.queries.words[EXPLAINED].text,
            digits(norm(query)),
            digits(f64::from(most - second)),
            digits(f64::from(most - second).exp()),
        ),
        picture: Picture::Table(Table {
            titles: vec!["German word", "‖k‖", "cosine", "q·k", "q·k/√d", "weight"],
            rows: rows.collect(),
        }),
    }
}

fn softness(aligned: &Aligned) -> Result<Page> {
    let scales = sweep_scales(SCALES.0, SCALES.1, 60, &[1.0])?;
    let mut sweep = Sweep::new(&scales);
    sweep.add_rows(&aligned.scores, aligned.n_keys());
    let points = sweep.points();
    let line = |name: &str, figure: fn(&attnscope_run::SweepPoint) -> f64| {
        let points = points.iter();
        Series::line(name, points.map(|of| (of.scale, figure(of))).collect())
    };
    let root = (aligned.width as f64).sqrt();
    let soft = points.iter().find(|of| of.relative_entropy.mean < 0.5);
    let soft = soft.map_or(f64::NAN, |of| of.scale);
    Ok(Page {
        title: "how soft the choice is",
        words: format!(
            "The same scores times a factor. At 1, which is 1/√{}, every row is a choice of one word: these embeddings are too long for the \
             division to bring the spread of scores down to 1. At {soft:.2}, half of the entropy of even weights is left. At {root:.1}, without \
             the division, nothing changes any more. T sweeps the scale of any head.",
            aligned.width
        ),
        picture: Picture::Charts(vec![Chart {
            title: "mean over the English words".to_owned(),
            x: Axis::logarithmic("factor of q·k/√d"),
            y: Axis::linear("share").from(0.0).to(1.0),
            series: vec![
                line("entropy / ln n", |of| of.relative_entropy.mean),
                line("largest weight", |of| of.max_probability.mean),
            ],
            marks: vec![
                Mark {
                    at: 1.0,
                    label: "1/√d".to_owned(),
                },
                Mark {
                    at: root,
                    label: "unscaled".to_owned(),
                },
            ],
        }]),
    })
}

fn axes(
    (alignment, aligned): (&Alignment, &Aligned),
    (other, wrong): (&Alignment, &Aligned),
) -> Page {
    Page {
        title: "the other axis looks alike and is wrong",
        words: format!(
            "The write-up normalises with axis=1. With axis=0 the softmax runs over the English words: columns sum to 1, rows to {}. Now a \
             German word that translates nothing has to share out a weight of 1 all the same. Translations still stand out, so the picture \
             does not show the mistake. The sums do, and the check wrong-axis reads them: w softmax_axis=queries, then 6.",
            range(row_sums(wrong).into_iter())
        ),
        picture: Picture::Maps(vec![
            map("over German words", alignment, aligned),
            map("over English words", other, wrong),
        ]),
    }
}

fn outputs(alignment: &Alignment, sides: [&Aligned; 2]) -> Page {
    let d = alignment.queries.width;
    let norm = |vector: &[f32]| {
        vector
            .iter()
            .map(|v| f64::from(*v).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    let queries = alignment.queries.words.iter().enumerate();
    let rows: Vec<Vec<String>> = queries
        .map(|(query_idx, word)| {
            let weights = sides[0].pattern.chunks(sides[0].n_keys()).nth(query_idx);
            let weights = weights.unwrap_or_default().iter().enumerate();
            let best = weights
                .max_by(|a, b| a.1.total_cmp(b.1))
                .map_or(0, |(idx, _)| idx);
            let key = &alignment.keys.vectors[best * d..(best + 1) * d];
            let figures = sides.into_iter().flat_map(|side| {
                let output = &side.output[query_idx * d..(query_idx + 1) * d];
                let product: f64 = output.iter().zip(key).map(|(o, k)| f64::from(o * k)).sum();
                [
                    format!("{:.3}", product / (norm(output) * norm(key))),
                    format!("{:.3}", norm(output) / norm(key)),
                ]
            });
            let names = [word.label(), alignment.keys.words[best].label()];
            names.into_iter().chain(figures).collect()
        })
        .collect();
    Page {
        title: "what comes out",
        words: format!(
            "The output of a word is the weighted sum of the German rows, {d} numbers. With the right axis it is the row of the translation: \
             the cosine of both is 1, and so is the ratio of their lengths. With the wrong axis the weights sum to more than 1, and the \
             output is too long and turned towards words that translate nothing."
        ),
        picture: Picture::Table(Table {
            titles: vec![
                "word",
                "translation",
                "cosine",
                "length",
                "wrong axis: cosine",
                "length ",
            ],
            rows,
        }),
    }
}

fn unknown(alignment: &Alignment) -> Result<Page> {
    let asked = alignment.of_texts(UNKNOWN)?;
    let aligned = asked.align();
    let (queries, keys) = (asked.queries.unknown(), asked.keys.unknown());
    let at = asked
        .queries
        .words
        .iter()
        .position(|word| word.row.is_none());
    let even = aligned
        .pattern
        .chunks(aligned.n_keys())
        .nth(at.unwrap_or(0));
    let even = even.unwrap_or_default().iter().copied();
    Ok(Page {
        title: "words that no table has",
        words: format!(
            "{} is not in the English table and {} not in the German one. Such words become rows of zeros, which score 0 with every word. \
             The row of an unknown query is even, {} for each key. An unknown key scores as much as a translation does here, and takes half \
             of every row. The screen marks both: ⟨word⟩?. e edits the sentences: try your own.",
            quoted(&queries),
            quoted(&keys),
            digits(f64::from(even.fold(0.0, f32::max)))
        ),
        picture: Picture::Maps(vec![map("weights: English ↓ German →", &asked, &aligned)]),
    })
}
