//! Heads over many prompts: a summary for people, and all figures as JSON and as a table of long form.

use std::collections::BTreeMap;
use std::io::{self, Write};

use attnscope_checks::stats::{STATISTICS, Statistic};
use attnscope_spec::Place;
use attnscope_studies::over_prompts::{
    EXCITEMENT, Excited, Figures, HeadOver, MOST_PLACES, OverPrompts, Spread,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::ModelRecord;
use super::number::Number;
use super::table::Table;

/// Version of the JSON.
const VERSION: u32 = 1;

/// What every head does over a set of prompts.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HeadsOverPrompts {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    model: ModelRecord,
    /// What-ifs that were on, as they were written.
    what_if: Vec<String>,
    /// Number of prompts that ran, and of their tokens.
    prompts: usize,
    tokens: usize,
    /// What `excited` is sorted by.
    excitement: &'static str,
    heads: Vec<HeadRecord>,
}

/// One head over all prompts.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct HeadRecord {
    /// Stack of the layer; null for the only stack.
    #[schemars(schema_with = "super::schema_parts::stack")]
    stack: Option<&'static str>,
    /// Index of the layer in its stack, from 0.
    layer: usize,
    /// Index of the head, from 0.
    head: usize,
    /// The kind of place that the head looks at on most prompts; null where no type fits most of them.
    #[serde(rename = "type")]
    #[schemars(schema_with = "super::schema_parts::head_type")]
    kind: Option<&'static str>,
    /// Number of prompts that show this type.
    type_prompts: usize,
    /// Values of each statistic by its id, one value a prompt.
    #[schemars(schema_with = "super::schema_parts::spreads_of_statistics")]
    statistics: BTreeMap<&'static str, SpreadRecord>,
    /// The places that excite the head most, at most one of a prompt, the best first.
    #[schemars(length(max = MOST_PLACES))]
    excited: Vec<ExcitedRecord>,
}

/// How a statistic of a head spreads over prompts. Figures are null where no prompt has a finite value.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct SpreadRecord {
    /// Number of prompts with a finite value; the figures are of these.
    n: usize,
    /// Number of prompts on which the statistic has no meaning.
    absent: usize,
    /// Number of prompts with NaN or an infinity.
    nonfinite: usize,
    mean: Option<Number>,
    min: Option<Number>,
    /// Id of the first prompt with the smallest value.
    min_prompt: Option<String>,
    /// Values that 10 %, 20 %, … 90 % of the prompts do not exceed.
    deciles: Option<[Number; 9]>,
    max: Option<Number>,
    /// Id of the first prompt with the largest value.
    max_prompt: Option<String>,
}

/// A place that excites a head.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ExcitedRecord {
    /// Id of the prompt.
    prompt: String,
    query: usize,
    key: usize,
    query_token: String,
    key_token: String,
    /// Probability that the query gives to the key.
    probability: Number,
    /// The probability less 1/visible keys.
    excess: Number,
}

/// Finds the id of a prompt by its index.
type Ids<'a> = &'a dyn Fn(usize) -> String;

fn per_head() -> impl Iterator<Item = (usize, &'static Statistic)> {
    let all = STATISTICS.iter().copied().enumerate();
    all.filter(|(_, statistic)| statistic.is_per_head())
}

/// Indices and labels of a head's place.
fn at(place: Place) -> (Option<&'static str>, usize, usize) {
    let (layer, head) = (place.layer_idx, place.head_idx);
    (
        place.grid().label(),
        layer.unwrap_or_default(),
        head.unwrap_or_default(),
    )
}

impl HeadsOverPrompts {
    pub fn new(model: ModelRecord, what_if: Vec<String>, over: &OverPrompts, ids: Ids<'_>) -> Self {
        Self {
            version: VERSION,
            model,
            what_if,
            prompts: over.n_prompts,
            tokens: over.n_tokens,
            excitement: EXCITEMENT,
            heads: over.heads.iter().map(|head| record(head, ids)).collect(),
        }
    }

    /// Writes the document.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        super::json::write_pretty(self, to)
    }
}

fn record(head: &HeadOver, ids: Ids<'_>) -> HeadRecord {
    let (stack, layer, of_layer) = at(head.place);
    let kind = head.kind();
    let statistics = per_head().map(|(idx, statistic)| {
        let spread = head.spread(idx);
        (statistic.id, SpreadRecord::of(spread, ids))
    });
    let excited = head.excited.iter().map(|one| ExcitedRecord {
        prompt: ids(one.prompt_idx),
        query: one.query_idx,
        key: one.key_idx,
        query_token: one.words.query.clone(),
        key_token: one.words.key.clone(),
        probability: Number(one.probability),
        excess: Number(one.excess),
    });
    HeadRecord {
        stack,
        layer,
        head: of_layer,
        kind: kind.map(|(kind, _)| kind.title()),
        type_prompts: kind.map_or(0, |(_, n)| n),
        statistics: statistics.collect(),
        excited: excited.collect(),
    }
}

impl SpreadRecord {
    fn of(spread: &Spread, ids: Ids<'_>) -> Self {
        let figures = spread.figures();
        let number = |of: fn(&Figures) -> f64| figures.as_ref().map(|all| Number(of(all)));
        Self {
            n: spread.n,
            absent: spread.n_absent,
            nonfinite: spread.n_nonfinite,
            mean: number(|all| all.mean),
            min: number(|all| all.least.0),
            min_prompt: figures.map(|all| ids(all.least.1)),
            deciles: figures.map(|all| all.deciles.map(Number)),
            max: number(|all| all.largest.0),
            max_prompt: figures.map(|all| ids(all.largest.1)),
        }
    }
}

crate::table_row! {
    /// A statistic of a head, or a place that excites it.
    pub struct OverPromptsRow {
        part: &'static str, "", "kind of row";
        stack: &'static str, "", "which stack the layer belongs to";
        layer: Option<usize>, "", "the layer";
        head: Option<usize>, "", "the head";
        kind as "type": Option<&'static str>, "", "kind of place that the head looks at on most prompts";
        type_prompts: Option<usize>, "prompts", "how many prompts show the type";
        statistic: Option<&'static str>, "", "id of the statistic";
        unit: Option<&'static str>, "", "its unit";
        n: Option<usize>, "prompts", "prompts with a finite value";
        absent: Option<usize>, "prompts", "prompts on which the statistic has no meaning";
        nonfinite: Option<usize>, "prompts", "prompts with NaN or an infinity";
        mean: Option<f64>, "", "mean over prompts";
        min: Option<f64>, "", "smallest value";
        min_prompt: Option<String>, "", "first prompt with the smallest value";
        p10: Option<f64>, "", "value that 10 % of the prompts do not exceed";
        p20: Option<f64>, "", "value that 20 % of the prompts do not exceed";
        p30: Option<f64>, "", "value that 30 % of the prompts do not exceed";
        p40: Option<f64>, "", "value that 40 % of the prompts do not exceed";
        p50: Option<f64>, "", "the median";
        p60: Option<f64>, "", "value that 60 % of the prompts do not exceed";
        p70: Option<f64>, "", "value that 70 % of the prompts do not exceed";
        p80: Option<f64>, "", "value that 80 % of the prompts do not exceed";
        p90: Option<f64>, "", "value that 90 % of the prompts do not exceed";
        max: Option<f64>, "", "largest value";
        max_prompt: Option<String>, "", "first prompt with the largest value";
        rank: Option<usize>, "", "place among those that excite the head, from 1";
        prompt: Option<String>, "", "prompt that excites the head";
        query: Option<usize>, "", "position of the query";
        key: Option<usize>, "", "position of the key";
        query_token: Option<String>, "", "token of the query";
        key_token: Option<String>, "", "token of the key";
        probability: Option<f64>, "", "probability that the query gives to the key";
        excess: Option<f64>, "", "the probability less 1/visible keys";
    }
}

/// Kinds of rows of the long table, each with its meaning.
pub const OVER_PROMPTS_PARTS: &[(&str, &str)] = &[
    ("statistic", "a statistic of a head over all prompts"),
    ("place", "a place that excites a head"),
];

/// Returns the table of long form: every statistic of every head, then its places.
pub fn over_prompts_rows(over: &OverPrompts, ids: &dyn Fn(usize) -> String) -> Table {
    let rows = over.heads.iter().flat_map(|head| {
        let statistics =
            per_head().map(|(idx, statistic)| statistic_row(head, idx, statistic, ids));
        let places = head.excited.iter().enumerate();
        statistics.chain(places.map(|(nth, one)| place_row(head, nth, one, ids)))
    });
    Table::of(rows)
}

fn row_at(head: &HeadOver, part: &'static str) -> OverPromptsRow {
    let (stack, layer, of_layer) = at(head.place);
    let kind = head.kind();
    OverPromptsRow {
        part,
        stack: stack.unwrap_or_default(),
        layer: Some(layer),
        head: Some(of_layer),
        kind: kind.map(|(kind, _)| kind.title()),
        type_prompts: kind.map(|(_, n)| n),
        ..OverPromptsRow::default()
    }
}

fn statistic_row(
    head: &HeadOver,
    idx: usize,
    statistic: &Statistic,
    ids: Ids<'_>,
) -> OverPromptsRow {
    let spread = head.spread(idx);
    let row = OverPromptsRow {
        statistic: Some(statistic.id),
        unit: Some(statistic.unit).filter(|unit| !unit.is_empty()),
        n: Some(spread.n),
        absent: Some(spread.n_absent),
        nonfinite: Some(spread.n_nonfinite),
        ..row_at(head, "statistic")
    };
    let Some(figures) = spread.figures() else {
        return row;
    };
    let [p10, p20, p30, p40, p50, p60, p70, p80, p90] = figures.deciles.map(Some);
    OverPromptsRow {
        mean: Some(figures.mean),
        min: Some(figures.least.0),
        min_prompt: Some(ids(figures.least.1)),
        p10,
        p20,
        p30,
        p40,
        p50,
        p60,
        p70,
        p80,
        p90,
        max: Some(figures.largest.0),
        max_prompt: Some(ids(figures.largest.1)),
        ..row
    }
}

fn place_row(head: &HeadOver, nth: usize, one: &Excited, ids: Ids<'_>) -> OverPromptsRow {
    OverPromptsRow {
        rank: Some(nth + 1),
        prompt: Some(ids(one.prompt_idx)),
        query: Some(one.query_idx),
        key: Some(one.key_idx),
        query_token: Some(one.words.query.clone()),
        key_token: Some(one.words.key.clone()),
        probability: Some(one.probability),
        excess: Some(one.excess),
        ..row_at(head, "place")
    }
}

crate::table_row! {
    /// A head: one statistic of it, and the place that excites it most.
    struct SummaryRow {
        stack: Option<&'static str>, "", "stack of the layer";
        layer: usize, "", "layer, counted from 0";
        head: usize, "", "head, counted from 0";
        kind as "type": Option<&'static str>, "", "kind of place that the head looks at on most prompts";
        mean: Option<f64>, "", "mean of the statistic over prompts";
        min: Option<f64>, "", "smallest value";
        p10: Option<f64>, "", "value that 10 % of the prompts do not exceed";
        p50: Option<f64>, "", "the median";
        p90: Option<f64>, "", "value that 90 % of the prompts do not exceed";
        max: Option<f64>, "", "largest value";
        excess: Option<f64>, "", "excitement of the place that excites the head most: its probability less an equal share";
        prompt: Option<String>, "", "its prompt";
        query: Option<String>, "", "its query";
        key: Option<String>, "", "its key";
    }
}

/// Returns the summary for people: a row for each head, with the figures of one statistic.
pub fn over_prompts_summary(
    over: &OverPrompts,
    statistic_idx: usize,
    ids: &dyn Fn(usize) -> String,
) -> Table {
    Table::of(over.heads.iter().map(|head| {
        let (stack, layer, of_layer) = at(head.place);
        let figures = head.spread(statistic_idx).figures();
        let number = |of: fn(&Figures) -> f64| figures.as_ref().map(of);
        let best = head.excited.first();
        let token = |idx: usize, text: &str| format!("{idx} “{}”", text.trim());
        SummaryRow {
            stack,
            layer,
            head: of_layer,
            kind: head.kind().map(|(kind, _)| kind.title()),
            mean: number(|all| all.mean),
            min: number(|all| all.least.0),
            p10: number(|all| all.deciles[0]),
            p50: number(|all| all.deciles[4]),
            p90: number(|all| all.deciles[8]),
            max: number(|all| all.largest.0),
            excess: best.map(|one| one.excess),
            prompt: best.map(|one| ids(one.prompt_idx)),
            query: best.map(|one| token(one.query_idx, &one.words.query)),
            key: best.map(|one| token(one.key_idx, &one.words.key)),
        }
    }))
}
