//! The type of a head, as a letter: the kind of place it looks at, by its statistics.

use attnscope_compute::attention::HeadSummary;

use super::{Stat, Values};

/// The kind of place that gets most of a head's attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeadType {
    Previous,
    Induction,
    Duplicate,
    First,
    Current,
    /// Nearly every query looks at the same distance (Voita et al. 2019 require 90 %).
    Positional,
    Local,
    Broad,
    /// Follows the time of a sound. The checkpoint lists such heads; no statistic shows them.
    Alignment,
}

/// The input that shows the type of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenOn {
    Prompt,
    /// Repeated random tokens, on which a head's behaviour does not depend on a text.
    RandomTokens,
    Both,
}

impl SeenOn {
    pub const ALL: [Self; 3] = [Self::Prompt, Self::RandomTokens, Self::Both];

    pub fn label(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::RandomTokens => "random tokens",
            Self::Both => "both",
        }
    }
}

/// Shares of a head's probability on repeated random tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnRandomTokens {
    pub previous: f64,
    pub induction: f64,
    pub duplicate: f64,
}

/// Minimum share of a head's probability on a kind of place to name the head after it. Notebooks with head detectors use 0.4 to
/// 0.5.
pub const NAMING_SHARE: f64 = 0.4;
/// Minimum share of queries whose largest probability is at one distance.
const POSITIONAL_SHARE: f64 = 0.9;
/// Mean distance, relative to that of a uniform pattern, below which a head is local. Our choice.
const LOCAL_SHARE: f64 = 0.25;
/// Relative entropy above which a head is broad. Our choice.
const BROAD_ENTROPY: f64 = 0.9;
/// With fewer queries, distances mean nothing.
const FEWEST_QUERIES: usize = 8;

impl HeadType {
    /// All types, in the order in which they are tried.
    pub const ALL: [Self; 9] = [
        Self::Previous,
        Self::Induction,
        Self::Duplicate,
        Self::First,
        Self::Current,
        Self::Positional,
        Self::Local,
        Self::Broad,
        Self::Alignment,
    ];

    /// The first type that fits; `None` if none does.
    pub fn of(stats: &Values, summary: &HeadSummary) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.fits(stats, summary))
    }

    /// The type of a head by a prompt and by repeated random tokens, and which of them shows it. A prompt without repeats cannot
    /// show an induction head, so random tokens decide if they show a type more clearly.
    pub fn of_both(
        stats: &Values,
        summary: &HeadSummary,
        random: Option<OnRandomTokens>,
    ) -> Option<(Self, SeenOn)> {
        let by_prompt = Self::of(stats, summary);
        let random = random.map_or([f64::NAN; 3], |on| {
            [on.previous, on.induction, on.duplicate]
        });
        let told = [Self::Previous, Self::Induction, Self::Duplicate];
        let clear = told.into_iter().zip(random);
        let clear = clear.filter(|(_, share)| *share >= NAMING_SHARE);
        let Some((kind, share)) = clear.max_by(|a, b| a.1.total_cmp(&b.1)) else {
            return by_prompt.map(|kind| (kind, SeenOn::Prompt));
        };
        let on_prompt = |kind: Self| match kind {
            Self::Previous => stats.of(Stat::PreviousMass),
            Self::Induction => stats.of(Stat::InductionMass),
            Self::Duplicate => stats.of(Stat::DuplicateMass),
            _ => f64::NAN,
        };
        match by_prompt {
            Some(same) if same == kind => Some((kind, SeenOn::Both)),
            Some(other) if on_prompt(other) >= share => Some((other, SeenOn::Prompt)),
            _ if on_prompt(kind) >= NAMING_SHARE => Some((kind, SeenOn::Both)),
            _ => Some((kind, SeenOn::RandomTokens)),
        }
    }

    fn fits(self, stats: &Values, summary: &HeadSummary) -> bool {
        let of = |stat: Stat| stats.of(stat);
        match self {
            Self::Previous => of(Stat::PreviousMass) >= NAMING_SHARE,
            Self::Induction => of(Stat::InductionMass) >= NAMING_SHARE,
            Self::Duplicate => of(Stat::DuplicateMass) >= NAMING_SHARE,
            Self::First => of(Stat::FirstKeyMass) >= NAMING_SHARE,
            Self::Current => of(Stat::DiagonalMass) >= NAMING_SHARE,
            Self::Positional => {
                commonest_distance(summary).is_some_and(|(_, share)| share >= POSITIONAL_SHARE)
            }
            Self::Local => of(Stat::MeanDistance) <= LOCAL_SHARE * even_distance(summary),
            Self::Broad => of(Stat::EntropyRelative) >= BROAD_ENTROPY,
            Self::Alignment => false,
        }
    }

    pub fn letter(self) -> char {
        match self {
            Self::Previous => 'p',
            Self::Induction => 'i',
            Self::Duplicate => 'd',
            Self::First => 'f',
            Self::Current => 'c',
            Self::Positional => 'o',
            Self::Local => 'l',
            Self::Broad => 'b',
            Self::Alignment => 'a',
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Previous => "previous token",
            Self::Induction => "induction",
            Self::Duplicate => "duplicate token",
            Self::First => "first token",
            Self::Current => "current token",
            Self::Positional => "positional",
            Self::Local => "local",
            Self::Broad => "broad",
            Self::Alignment => "alignment",
        }
    }
}

/// The distance from key to query at which most queries with several visible keys have their largest probability, and their
/// share; `None` if there are few such queries.
pub fn commonest_distance(summary: &HeadSummary) -> Option<(isize, f64)> {
    let rows = summary.rows.iter().enumerate();
    let rows = rows.filter(|(_, row)| row.is_real && row.n_visible >= 2);
    let mut distances: Vec<isize> = rows
        .map(|(query_idx, row)| query_idx as isize - row.argmax as isize)
        .collect();
    if distances.len() < FEWEST_QUERIES {
        return None;
    }
    distances.sort_unstable();
    let runs = distances.chunk_by(|a, b| a == b);
    let commonest = runs.max_by_key(|run| run.len())?;
    let share = commonest.len() as f64 / distances.len() as f64;
    Some((*commonest.first()?, share))
}

/// The mean distance of a uniform pattern under the same mask: rows of n visible keys up to the query.
fn even_distance(summary: &HeadSummary) -> f64 {
    let rows = summary
        .rows
        .iter()
        .filter(|row| row.is_real && row.n_visible > 0);
    let distances: Vec<f64> = rows
        .map(|row| (f64::from(row.n_visible) - 1.0) / 2.0)
        .collect();
    if distances.len() < FEWEST_QUERIES {
        return f64::NAN;
    }
    distances.iter().sum::<f64>() / distances.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_titles_are_unique() {
        for (idx, kind) in HeadType::ALL.iter().enumerate() {
            for other in &HeadType::ALL[idx + 1..] {
                assert_ne!(kind.letter(), other.letter());
                assert_ne!(kind.title(), other.title());
            }
        }
    }
}
