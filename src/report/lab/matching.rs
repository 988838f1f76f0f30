//! Gradients of queries and keys under hard and soft lookups: as a table, JSON and CSV, as a figure, and in sentences.

use std::io::{self, Write};

use attnscope_studies::lab::{Match, MatchPoint, MatchSetup};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Components, VERSION};
use crate::chart::{Axis, Chart, Figure, Series};
use crate::json::write_pretty;
use crate::number::Number;
use crate::table::Table;
use crate::table_row;
use crate::text_table::{digits, text_table};

/// Gradients of hard and soft lookups.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MatchReport {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    #[schemars(extend("const" = "lab variance --match"))]
    command: &'static str,
    seed: u64,
    components: Components,
    /// Width of queries and keys.
    d: usize,
    /// Keys of a lookup.
    keys: usize,
    /// Lookups.
    rows: usize,
    /// dot, rbf or cosine.
    similarity: &'static str,
    matches: Vec<MatchRecord>,
    /// What the numbers say, in sentences.
    says: Vec<String>,
}

/// One kind of match.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct MatchRecord {
    /// argmax, max or soft.
    #[serde(rename = "match")]
    matching: &'static str,
    /// What scores are divided by before the softmax; null for hard matches.
    temperature: Option<Number>,
    /// The largest weight.
    max_probability: Number,
    /// Length of the gradient of the query.
    query_gradient: Number,
    /// Median over the lookups of the length of the gradient of the query.
    query_gradient_median: Number,
    /// Lengths of the gradients of the keys, the best match first.
    key_gradients: Vec<Number>,
    /// e to the entropy of the keys' shares of the gradient; 0 where no key has any.
    keys_reached: Number,
}

fn name(matching: Match) -> &'static str {
    match matching {
        Match::Argmax => "argmax",
        Match::Max => "max",
        Match::Soft => "soft",
    }
}

impl MatchReport {
    pub fn of(setup: &MatchSetup, points: &[MatchPoint], says: Vec<String>) -> Self {
        let record = |of: &MatchPoint| MatchRecord {
            matching: name(of.matching),
            temperature: (of.matching == Match::Soft).then_some(Number(of.temperature)),
            max_probability: Number(of.max_probability),
            query_gradient: Number(of.of_query),
            query_gradient_median: Number(of.of_query_median),
            key_gradients: of.by_rank.iter().copied().map(Number).collect(),
            keys_reached: Number(of.keys_reached),
        };
        Self {
            version: VERSION,
            command: "lab variance --match",
            seed: setup.seed,
            components: Components::from(&setup.components),
            d: setup.d,
            keys: setup.n_keys,
            rows: setup.n_rows,
            similarity: setup.similarity.id(),
            matches: points.iter().map(record).collect(),
            says,
        }
    }
}

/// Writes the document, indented, with a newline at the end.
///
/// # Errors
/// When the target cannot be written.
pub fn write_match_json(report: &MatchReport, to: &mut impl Write) -> io::Result<()> {
    write_pretty(report, to)
}

/// Returns one row per match and key rank; the rank is empty in the row of the query.
pub fn match_rows(setup: &MatchSetup, points: &[MatchPoint]) -> Table {
    let rows = points.iter().flat_map(|of| {
        let temperature = match of.matching {
            Match::Soft => Some(of.temperature),
            Match::Argmax | Match::Max => None,
        };
        let keys = (1..).map(Some).zip(of.by_rank.iter().copied());
        let query = std::iter::once((None, of.of_query));
        query.chain(keys).map(move |(rank, gradient)| MatchRow {
            similarity: setup.similarity.id(),
            matching: name(of.matching),
            temperature,
            max_probability: of.max_probability,
            keys_reached: of.keys_reached,
            rank,
            gradient,
        })
    });
    Table::of(rows)
}

table_row! {
    /// The gradient of one key, or of the query.
    struct MatchRow {
        similarity: &'static str, "", "similarity of queries and keys";
        matching as "match": &'static str, "", "how the lookup matches";
        temperature: Option<f64>, "", "temperature of a soft match";
        max_probability: f64, "", "mean of the largest weight";
        keys_reached: f64, "keys", "e to the entropy of the keys' shares of the gradient";
        rank: Option<usize>, "", "rank of the key, from 1; empty for the query";
        gradient: f64, "", "mean length of the gradient";
    }
}

/// Legend of the table's columns.
pub const MATCH_COLUMNS: &str = "|dL/dq|: mean length of the query's gradient, and its median over the lookups; 1st, 2nd, …: that of the key that matches best, second best, …; \
    keys: e to the entropy of the keys' shares of the gradient";

/// Ranks shown in a table of 80 columns: powers of two, and the last.
fn ranks(n_keys: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1usize), |rank| Some(rank * 4));
    let mut ranks: Vec<usize> = powers.take_while(|rank| *rank < n_keys).take(3).collect();
    if n_keys > 2 && !ranks.contains(&2) {
        ranks.insert(1, 2);
    }
    ranks.push(n_keys);
    ranks
}

fn ordinal(rank: usize) -> String {
    let ending = match (rank % 10, rank % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{rank}{ending}")
}

/// Formats the gradients, a line for each match.
pub fn match_table(setup: &MatchSetup, points: &[MatchPoint]) -> String {
    let ranks = ranks(setup.n_keys);
    let ordinals: Vec<String> = ranks.iter().map(|rank| ordinal(*rank)).collect();
    let mut titles = vec!["match", "T", "max p", "|dL/dq|", "median"];
    titles.extend(ordinals.iter().map(String::as_str));
    titles.push("keys");
    let row = |of: &MatchPoint| {
        let temperature = match of.matching {
            Match::Soft => of.temperature.to_string(),
            Match::Argmax | Match::Max => "-".to_owned(),
        };
        let mut cells = vec![name(of.matching).to_owned(), temperature];
        cells.extend([of.max_probability, of.of_query, of.of_query_median].map(digits));
        cells.extend(ranks.iter().map(|rank| digits(of.by_rank[rank - 1])));
        cells.push(digits(of.keys_reached));
        cells
    };
    text_table(&titles, &points.iter().map(row).collect::<Vec<_>>())
}

/// Plots the gradients of keys against temperature, and the number of keys that receive any.
pub fn match_figure(setup: &MatchSetup, points: &[MatchPoint]) -> Figure {
    let mut soft: Vec<&MatchPoint> = points
        .iter()
        .filter(|of| of.matching == Match::Soft)
        .collect();
    soft.sort_by(|a, b| a.temperature.total_cmp(&b.temperature));
    let hard = |matching: Match| points.iter().find(|of| of.matching == matching);
    let ends: Vec<f64> = match (soft.first(), soft.last()) {
        (Some(first), Some(last)) => vec![first.temperature, last.temperature],
        _ => vec![0.125, 8.0],
    };
    let level = |value: f64| ends.iter().map(|at| (*at, value)).collect::<Vec<_>>();
    let by = |figure: &dyn Fn(&MatchPoint) -> f64| -> Vec<(f64, f64)> {
        soft.iter().map(|of| (of.temperature, figure(of))).collect()
    };
    let mut gradients = vec![
        Series::line("best key", by(&|of| of.by_rank[0])),
        Series::line("2nd", by(&|of| of.by_rank[1])),
        Series::line("last", by(&|of| of.by_rank[setup.n_keys - 1])),
        Series::line("query", by(&|of| of.of_query)),
        Series::line("query, median", by(&|of| of.of_query_median)),
    ];
    let mut reached = vec![Series::line("soft", by(&|of| of.keys_reached))];
    for (matching, label) in [(Match::Max, "hard, max"), (Match::Argmax, "hard, argmax")] {
        if let Some(of) = hard(matching) {
            gradients.push(Series::line(label, level(of.by_rank[0])));
            reached.push(Series::line(label, level(of.keys_reached)));
        }
    }
    let chart = |title: String, y: Axis, series: Vec<Series>| Chart {
        title,
        x: Axis::logarithmic("temperature"),
        y,
        series,
        marks: Vec::new(),
    };
    Figure {
        title: format!(
            "why attention is soft: {}, d = {}, {} keys, seed {}",
            setup.similarity.formula(),
            setup.d,
            setup.n_keys,
            setup.seed
        ),
        charts: vec![
            chart(
                "length of the gradient".to_owned(),
                Axis::linear("mean over lookups").from(0.0),
                gradients,
            ),
            chart(
                "keys that learn".to_owned(),
                Axis::linear("keys").from(0.0),
                reached,
            ),
        ],
        n_columns: 2,
    }
}

/// Describes the results in sentences.
pub fn match_words(setup: &MatchSetup, points: &[MatchPoint]) -> Vec<String> {
    let mut says = Vec::new();
    for of in points.iter().filter(|of| of.matching != Match::Soft) {
        says.push(match of.matching {
            Match::Argmax => "hard, argmax: the lookup gives the same value until another key matches best; no gradient reaches the query or any key, and none of them can learn".to_owned(),
            _ => format!(
                "hard, max: the score of the best key is passed on; its key and the query learn, the other {} keys get exactly 0",
                setup.n_keys - 1
            ),
        });
    }
    let soft = points.iter().filter(|of| of.matching == Match::Soft);
    let warmest = soft
        .clone()
        .max_by(|a, b| a.temperature.total_cmp(&b.temperature));
    let coldest = soft.min_by(|a, b| a.temperature.total_cmp(&b.temperature));
    if let (Some(warmest), Some(coldest)) = (warmest, coldest) {
        says.push(format!(
            "soft: every key learns. At temperature {} the gradient reaches {} of {} keys and half of the lookups send the query one shorter than {}",
            warmest.temperature,
            digits(warmest.keys_reached),
            setup.n_keys,
            digits(warmest.of_query_median),
        ));
        if coldest.temperature < warmest.temperature {
            says.push(format!(
                "at temperature {} it reaches {} keys, and the median is {}: most lookups are as hard as an argmax and teach nothing, a few near ties are steep and carry the mean ({})",
                coldest.temperature,
                digits(coldest.keys_reached),
                digits(coldest.of_query_median),
                digits(coldest.of_query),
            ));
        }
    }
    says
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_ranks_begin_with_the_best_two_and_end_with_the_last() {
        assert_eq!(ranks(2), [1, 2]);
        assert_eq!(ranks(32), [1, 2, 4, 16, 32]);
        assert_eq!(
            [1, 2, 3, 4, 11, 22, 101].map(ordinal).concat(),
            "1st2nd3rd4th11th22nd101st"
        );
    }
}
