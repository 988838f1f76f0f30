//! One side against the model: whether it departs beyond rounding, by how much, and from which token.

use super::between::{Divergence, divergence, gap};
use super::causes::{Cause, Search};
use super::floor::{Floor, Level};
use super::kinds::TokenKind;
use super::reference::{Reference, lower_half};
use super::scored::LogProbs;

/// A token of a table: index of the prompt, and of the token in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub prompt_idx: usize,
    pub idx: usize,
}

/// What a side and the model say of one token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub at: At,
    pub side: f64,
    pub model: f64,
    /// Scale of bf16 at this token, in nats.
    pub scale: f64,
}

impl Pair {
    pub fn gap(&self) -> f64 {
        gap(self.model, self.side)
    }
}

/// A token of a prompt, counted from 0.
#[derive(Debug, Clone, PartialEq)]
pub struct First {
    pub prompt: String,
    pub position: usize,
}

/// What two say of one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenGap {
    /// Index of the prompt in the side's table, and of the token in it.
    pub prompt_idx: usize,
    pub position: usize,
    /// ln p of the side, and of what it is compared with.
    pub side: f64,
    pub other: f64,
    /// Whether the two are farther apart than rounding explains.
    pub is_beyond: bool,
}

impl TokenGap {
    /// The side less the other, limited.
    pub fn nats(&self) -> f64 {
        gap(self.other, self.side)
    }
}

/// A side as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct SideJudgement {
    pub n_tokens: usize,
    /// Mean and largest |ln p of the side − ln p of the model|, and the mean with its sign, in nats.
    pub mean_abs: f64,
    pub max_abs: f64,
    pub bias: f64,
    /// Divergence of the side from the model.
    pub kl: Divergence,
    /// The precision of its arithmetic, as the quieter half of its tokens tells.
    pub level: Level,
    pub departs: bool,
    /// Tokens beyond what rounding explains.
    pub n_beyond: usize,
    /// The first of these.
    pub first: Option<First>,
    /// Mean |difference| of positions 0–1, 2–3, 4–7, 8–15 …: the position where each begins, tokens, nats.
    pub by_position: Vec<(usize, usize, f64)>,
    /// The same of every prompt: name, tokens, nats.
    pub by_prompt: Vec<(String, usize, f64)>,
    /// The same by how likely the model finds the token: at least this p, tokens, nats.
    pub by_likelihood: Vec<(f64, usize, f64)>,
    /// The same of every kind of token; `None` where pieces of text are not known.
    pub by_kind: Option<Vec<(TokenKind, usize, f64)>>,
    /// Every token that has a value.
    pub tokens: Vec<TokenGap>,
    /// The rounding that is the side's own and no fault, such as that of a cache in f16, where it alone explains why the side is less exact than
    /// its arithmetic.
    pub within: Option<String>,
    pub cause: Option<Cause>,
    /// What was tried to find the cause; `None` where the side does not depart.
    pub search: Option<Search>,
}

impl SideJudgement {
    /// Takes the side for one that does not depart: a rounding that is no fault explains it.
    pub(super) fn keep_within(&mut self, rounding: &str) {
        self.within = Some(rounding.to_owned());
        self.departs = false;
        (self.first, self.cause, self.search) = (None, None, None);
    }

    /// Takes the side for one that does not depart: less precise arithmetic explains it.
    pub(super) fn excuse(&mut self, standing: &Standing) {
        self.level = standing.level;
        self.n_beyond = standing.beyond.len();
        for (idx, token) in self.tokens.iter_mut().enumerate() {
            token.is_beyond = standing.beyond.binary_search(&idx).is_ok();
        }
        (self.departs, self.first, self.search) = (false, None, None);
    }
}

/// How many times its share of rounding one token may be off: extremes of normal noise, and its swings from token to token.
const SWING: f64 = 6.0;

/// What f32 arithmetic in another order leaves, in nats, whatever the scale.
const ORDER: f64 = 2e-5;

/// Least p of the classes of tokens.
const LIKELIHOODS: [f64; 4] = [0.5, 0.1, 0.01, 0.0];

/// The scored tokens of a table with what the model says of them.
pub(super) fn pairs(table: &LogProbs, reference: &Reference) -> Vec<Pair> {
    let pair = |(prompt_idx, idx, side): (usize, usize, f64)| {
        Some(Pair {
            at: At { prompt_idx, idx },
            side,
            model: reference.said.get(prompt_idx)?.get(idx)?.logprob?,
            scale: reference.scales[prompt_idx][idx],
        })
    };
    table.values().filter_map(pair).collect()
}

/// Tolerances of pairs at a level, in nats.
pub(super) fn tolerance(pair: &Pair, level: Level, quantum: f64) -> f64 {
    SWING * level.ratio() * pair.scale + ORDER + 2.0 * quantum
}

fn mean_abs<'a>(pairs: impl Iterator<Item = &'a Pair>) -> (usize, f64) {
    let gaps: Vec<f64> = pairs.map(|pair| pair.gap().abs()).collect();
    (
        gaps.len(),
        gaps.iter().sum::<f64>() / gaps.len().max(1) as f64,
    )
}

/// The precision that the quieter tokens of a side have.
fn level_of(pairs: &[Pair], (usual_half, quantum): (f64, f64)) -> Level {
    let half = |spared: f64| {
        let ratio = |pair: &Pair| (pair.gap().abs() - spared).max(0.0) / pair.scale;
        lower_half(pairs.iter().map(ratio).collect()) / usual_half
    };
    if half(ORDER + quantum) <= Level::F32.ratio() {
        return Level::F32;
    }
    let size = half(quantum);
    let levels = [Level::F16, Level::Bf16];
    let found = levels.into_iter().find(|level| size <= level.ratio());
    found.unwrap_or(Level::Beyond)
}

/// By what a side is judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judge<'a> {
    pub floor: &'a Floor,
    /// Whether the model chooses between experts.
    pub routes: bool,
    pub usual_half: f64,
    pub quantum: f64,
}

/// Whether pairs depart beyond rounding.
pub(super) struct Standing {
    pub level: Level,
    pub departs: bool,
    /// Indices of pairs beyond what rounding explains.
    pub beyond: Vec<usize>,
}

/// Judges pairs: the precision of the side's arithmetic, and what it does not explain.
pub(super) fn standing(pairs: &[Pair], judge: &Judge<'_>) -> Standing {
    let level = level_of(pairs, (judge.usual_half, judge.quantum));
    standing_at(level, pairs, judge)
}

/// The most precise arithmetic that explains what no cause explains, of those less precise than the side's own. Weights or a cache in 16
/// bits before sums in f32 leave most tokens as exact as f32, and few of them farther off than that.
pub(super) fn excused(pairs: &[Pair], judge: &Judge<'_>, own: Level) -> Option<Standing> {
    let levels = [Level::F16, Level::Bf16];
    let wider = levels.into_iter().filter(|level| *level > own);
    let mut found = wider.map(|level| standing_at(level, pairs, judge));
    found.find(|standing| judge.floor.given.is_none() && !standing.departs)
}

/// What arithmetic of a precision does not explain.
pub(super) fn standing_at(level: Level, pairs: &[Pair], judge: &Judge<'_>) -> Standing {
    let &Judge {
        floor,
        routes,
        quantum,
        ..
    } = judge;
    let (n, mean) = mean_abs(pairs.iter());
    let beyond: Vec<usize> = (0..pairs.len())
        .filter(|idx| {
            let apart = pairs[*idx].gap().abs();
            apart.is_nan() || apart > tolerance(&pairs[*idx], level, quantum)
        })
        .collect();
    let scales = pairs.iter().map(|pair| pair.scale).sum::<f64>() / n.max(1) as f64;
    let usual = level.ratio() * scales + ORDER + quantum;
    let is_far =
        |idx: &usize| pairs[*idx].gap().abs() > 5.0 * tolerance(&pairs[*idx], level, quantum);
    let far = beyond.iter().any(is_far);
    // A close choice between experts falls otherwise by rounding alone, and moves what follows it.
    let n_spared = if routes { n / 20 } else { n / 200 };
    let departs = match floor.given {
        Some(limit) => mean.is_nan() || mean > limit,
        None => {
            mean.is_nan()
                || level == Level::Beyond
                || mean > 2.0 * usual
                || beyond.len() > n_spared.max(1)
                || (far && !routes)
        }
    };
    Standing {
        level,
        departs,
        beyond,
    }
}

/// Judges a side without looking for a cause.
pub(super) fn judged(table: &LogProbs, reference: &Reference, judge: &Judge<'_>) -> SideJudgement {
    let pairs = pairs(table, reference);
    let Standing {
        level,
        departs,
        beyond,
    } = standing(&pairs, judge);
    let (n, mean) = mean_abs(pairs.iter());
    let first = beyond.iter().map(|idx| &pairs[*idx]);
    let first = first.min_by_key(|pair| (pair.at.idx, pair.at.prompt_idx));
    let first = first.filter(|_| departs).map(|pair| First {
        prompt: table.prompts[pair.at.prompt_idx].name.clone(),
        position: pair.at.idx,
    });
    let said = |pair: &Pair| {
        let token = &table.prompts[pair.at.prompt_idx].tokens[pair.at.idx];
        let top = &reference.said[pair.at.prompt_idx][pair.at.idx].top;
        (token, pair.model, top.as_slice())
    };
    SideJudgement {
        n_tokens: n,
        mean_abs: mean,
        max_abs: pairs
            .iter()
            .map(|pair| pair.gap().abs())
            .fold(0.0, f64::max),
        bias: pairs.iter().map(Pair::gap).sum::<f64>() / n.max(1) as f64,
        kl: divergence(pairs.iter().map(said)),
        level,
        departs,
        n_beyond: beyond.len(),
        first,
        by_position: by_position(&pairs),
        by_prompt: by_prompt(table, &pairs),
        by_likelihood: by_likelihood(&pairs),
        by_kind: by_kind(table, &pairs),
        tokens: token_gaps(&pairs, &beyond),
        within: None,
        cause: None,
        search: None,
    }
}

fn token_gaps(pairs: &[Pair], beyond: &[usize]) -> Vec<TokenGap> {
    let each = pairs.iter().enumerate().map(|(idx, pair)| TokenGap {
        prompt_idx: pair.at.prompt_idx,
        position: pair.at.idx,
        side: pair.side,
        other: pair.model,
        is_beyond: beyond.binary_search(&idx).is_ok(),
    });
    each.collect()
}

fn by_kind(table: &LogProbs, pairs: &[Pair]) -> Option<Vec<(TokenKind, usize, f64)>> {
    let kinds = table.kinds()?;
    let of = |kind: TokenKind| {
        let is_it = |pair: &&Pair| kinds[pair.at.prompt_idx][pair.at.idx] == kind;
        let (n, mean) = mean_abs(pairs.iter().filter(is_it));
        (kind, n, mean)
    };
    let all = TokenKind::ALL.into_iter().map(of);
    Some(all.filter(|(_, n, _)| *n > 0).collect())
}

fn by_position(pairs: &[Pair]) -> Vec<(usize, usize, f64)> {
    let of = |power: u32| {
        let (from, to) = (
            if power == 0 { 0 } else { 1usize << power },
            2usize << power,
        );
        let (n, mean) = mean_abs(
            pairs
                .iter()
                .filter(|pair| (from..to).contains(&pair.at.idx)),
        );
        (from, n, mean)
    };
    (0..32).map(of).filter(|(_, n, _)| *n > 0).collect()
}

fn by_prompt(table: &LogProbs, pairs: &[Pair]) -> Vec<(String, usize, f64)> {
    let prompts = table.prompts.iter().enumerate();
    let of = prompts.map(|(idx, prompt)| {
        let (n, mean) = mean_abs(pairs.iter().filter(|pair| pair.at.prompt_idx == idx));
        (prompt.name.clone(), n, mean)
    });
    of.filter(|(_, n, _)| *n > 0).collect()
}

fn by_likelihood(pairs: &[Pair]) -> Vec<(f64, usize, f64)> {
    let mut most = f64::INFINITY;
    let classes = LIKELIHOODS.map(|least| {
        let is_in = |pair: &&Pair| (least..most).contains(&pair.model.exp());
        let (n, mean) = mean_abs(pairs.iter().filter(is_in));
        most = least;
        (least, n, mean)
    });
    classes.into_iter().filter(|(_, n, _)| *n > 0).collect()
}
