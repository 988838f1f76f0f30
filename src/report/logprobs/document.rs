//! A comparison of log-probabilities as JSON.

use attnscope_compare::logprobs::{Cause, First, SideJudgement, TokenKind};
use schemars::JsonSchema;
use serde::Serialize;

use super::difference::LogProbDifference;
use crate::number::Number;

const VERSION: u32 = 1;

/// Two tables of log-probabilities compared, with a checkpoint as the third side. All differences are in nats.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Document {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    #[schemars(extend("const" = "logprobs"))]
    kind: &'static str,
    a: String,
    /// Null where one table is compared with the reference alone.
    b: Option<String>,
    reference: Option<String>,
    /// Tokens that both sides scored; those of the only table where there is one.
    tokens: usize,
    sides: Sides,
    between: Option<Between>,
    /// Prompts whose ids differ.
    ids: Vec<Ids>,
    same: bool,
    /// Mean |difference| that bf16 arithmetic explains, or the limit that was given.
    floor: Number,
    floors: Floors,
    notes: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Sides {
    a: Option<Side>,
    b: Option<Side>,
}

/// One side against the reference.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Side {
    tokens: usize,
    mean_abs: Number,
    max_abs: Number,
    /// Mean of the side less the reference.
    bias: Number,
    kl: Number,
    /// What the divergence is of: `top`, the likeliest tokens of both, or `tokens`, those of the text.
    kl_of: &'static str,
    /// The precision of the side's arithmetic: `f32`, `f16`, `bf16` or `beyond bf16`.
    precision: &'static str,
    departs: bool,
    /// The rounding that alone makes a side that does not depart less exact than its arithmetic: `kv=f16`, a cache in f16; null otherwise.
    within: Option<String>,
    /// Tokens beyond what rounding explains.
    beyond: usize,
    first: Option<Token>,
    cause: Option<CauseRecord>,
    /// Explanations that were tried; null where the side does not depart.
    tried: Option<usize>,
    /// Explanations that were left out, since a search may not cost more; null where the side does not depart.
    left_out: Option<usize>,
    /// The best of those that do not explain enough.
    best: Option<Best>,
    /// Roundings, as what-ifs, from which a side without a cause cannot be told apart.
    like: Vec<String>,
    /// Mean |difference| of positions from each power of two on.
    by_position: Vec<Bucket>,
    by_prompt: Vec<OfPrompt>,
    /// Mean |difference| of tokens that the reference gives at least this probability.
    by_likelihood: Vec<OfLikelihood>,
    /// Mean |difference| of each kind of token; null where neither the reference nor the table has the tokens' text.
    by_kind: Option<Vec<OfKind>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Token {
    prompt: String,
    position: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CauseRecord {
    reading: String,
    /// What to set or do; null where there are no words for it.
    advice: Option<String>,
    /// Share of the summed |difference| that it takes away.
    explains: Number,
    first: Option<Token>,
    /// Others that explain as much.
    rivals: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Best {
    reading: String,
    explains: Number,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Bucket {
    from: usize,
    tokens: usize,
    mean_abs: Number,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct OfPrompt {
    prompt: String,
    tokens: usize,
    mean_abs: Number,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct OfLikelihood {
    at_least: Number,
    tokens: usize,
    mean_abs: Number,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct OfKind {
    /// `special`, `whitespace`, `word-start`, `word-inside`, `digits`, `punctuation`, `non-ascii` or `byte`.
    kind: &'static str,
    tokens: usize,
    mean_abs: Number,
}

/// The two tables against each other.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Between {
    mean_abs: Number,
    max_abs: Number,
    worst: Option<Token>,
    kl: Number,
    kl_of: &'static str,
    /// p of B / p of A of single tokens: the least, the mean and the largest.
    ratio: [Number; 3],
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Ids {
    prompt: String,
    /// First token that differs.
    first: usize,
    /// Ids there; null behind the end of a side.
    ids: [Option<u32>; 2],
    lengths: [usize; 2],
    said: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Floors {
    f32: Number,
    f16: Number,
    bf16: Number,
    /// Whether they were measured on the reference.
    measured: bool,
}

fn kl_of(is_of_top: bool) -> &'static str {
    if is_of_top { "top" } else { "tokens" }
}

fn token(first: &First) -> Token {
    Token {
        prompt: first.prompt.clone(),
        position: first.position,
    }
}

fn cause(cause: &Cause) -> CauseRecord {
    CauseRecord {
        reading: cause.reading.clone(),
        advice: (!cause.advice.is_empty()).then(|| cause.advice.clone()),
        explains: Number(cause.explains),
        first: cause.first.as_ref().map(token),
        rivals: cause.rivals.clone(),
    }
}

fn side(side: &SideJudgement) -> Side {
    let best = side.search.as_ref().and_then(|search| search.best.as_ref());
    Side {
        tokens: side.n_tokens,
        mean_abs: Number(side.mean_abs),
        max_abs: Number(side.max_abs),
        bias: Number(side.bias),
        kl: Number(side.kl.nats),
        kl_of: kl_of(side.kl.is_of_top),
        precision: side.level.label(),
        departs: side.departs,
        within: side.within.clone(),
        beyond: side.n_beyond,
        first: side.first.as_ref().map(token),
        cause: side.cause.as_ref().map(cause),
        tried: side.search.as_ref().map(|search| search.n_tried),
        left_out: side.search.as_ref().map(|search| search.n_left_out),
        like: side
            .search
            .iter()
            .flat_map(|search| search.like.clone())
            .collect(),
        best: best.map(|(reading, explains)| Best {
            reading: reading.clone(),
            explains: Number(*explains),
        }),
        by_position: side
            .by_position
            .iter()
            .map(|(from, tokens, mean)| Bucket {
                from: *from,
                tokens: *tokens,
                mean_abs: Number(*mean),
            })
            .collect(),
        by_prompt: side
            .by_prompt
            .iter()
            .map(|(prompt, tokens, mean)| OfPrompt {
                prompt: prompt.clone(),
                tokens: *tokens,
                mean_abs: Number(*mean),
            })
            .collect(),
        by_likelihood: side
            .by_likelihood
            .iter()
            .map(|(least, tokens, mean)| OfLikelihood {
                at_least: Number(*least),
                tokens: *tokens,
                mean_abs: Number(*mean),
            })
            .collect(),
        by_kind: side.by_kind.as_ref().map(|kinds| {
            let of = |(kind, tokens, mean): &(TokenKind, usize, f64)| OfKind {
                kind: kind.id(),
                tokens: *tokens,
                mean_abs: Number(*mean),
            };
            kinds.iter().map(of).collect()
        }),
    }
}

impl Document {
    pub fn of(difference: &LogProbDifference<'_>) -> Self {
        let compared = difference.comparison;
        let [a, b] = compared
            .sides
            .each_ref()
            .map(|judged| judged.as_ref().map(side));
        let floor = &compared.floor;
        Self {
            version: VERSION,
            kind: "logprobs",
            a: difference.a.to_owned(),
            b: difference.b.map(str::to_owned),
            reference: difference.reference.map(str::to_owned),
            tokens: compared.n_tokens,
            sides: Sides { a, b },
            between: compared.between.as_ref().map(|both| Between {
                mean_abs: Number(both.mean_abs),
                max_abs: Number(both.max_abs),
                worst: both.worst.as_ref().map(|(prompt, position)| Token {
                    prompt: prompt.clone(),
                    position: *position,
                }),
                kl: Number(both.kl.nats),
                kl_of: kl_of(both.kl.is_of_top),
                ratio: both.ratios.map(Number),
            }),
            ids: compared
                .ids
                .iter()
                .map(|apart| Ids {
                    prompt: apart.prompt.clone(),
                    first: apart.first,
                    ids: apart.ids,
                    lengths: apart.lengths,
                    said: apart.words(),
                })
                .collect(),
            same: compared.is_same(),
            floor: Number(floor.limit()),
            floors: Floors {
                f32: Number(floor.f32),
                f16: Number(floor.f16),
                bf16: Number(floor.bf16),
                measured: floor.is_measured,
            },
            notes: difference.notes.clone(),
        }
    }
}
