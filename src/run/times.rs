//! Times at which each token of a transcript was spoken: a path through the patterns of heads that follow the sound.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input};
use attnscope_spec::{DecoderStart, Forced, Model, Stack};

use super::job::Options;
use super::observer::Silent;
use super::pipeline::run;
use super::tap::Tap;

/// How the heads that give times were chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// The checkpoint names them.
    Named,
    /// The user names them.
    Asked,
    /// By default, all heads in the later half of the layers.
    LaterHalf,
}

impl Chosen {
    pub fn label(self) -> &'static str {
        match self {
            Self::Named => "checkpoint",
            Self::Asked => "asked",
            Self::LaterHalf => "later half",
        }
    }
}

/// Times at which a decoder's tokens were spoken.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenTimes {
    /// Layer and head of each cross-attention head used.
    pub heads: Vec<[usize; 2]>,
    pub chosen: Chosen,
    /// Number of leading control tokens of the decoder, which are not spoken.
    pub n_start: usize,
    /// Number of keys that cover the sound.
    pub n_keys: usize,
    pub seconds_a_key: f64,
    /// First key of every token. // [token]
    pub first_keys: Vec<usize>,
}

impl TokenTimes {
    /// Start of a token, in seconds.
    pub fn start(&self, token_idx: usize) -> f64 {
        self.first_keys[token_idx] as f64 * self.seconds_a_key
    }

    /// End of a token, in seconds: the start of the next one, or the end of the sound.
    pub fn end(&self, token_idx: usize) -> f64 {
        let next = self.first_keys.get(token_idx + 1).copied();
        let is_start = token_idx < self.n_start;
        let key = if is_start { Some(0) } else { next };
        key.unwrap_or(self.n_keys) as f64 * self.seconds_a_key
    }
}

/// Width of the median filter if the checkpoint does not give one.
const MEDIAN_WIDTH: usize = 7;

/// Finds when the tokens of a prompt were spoken, with the method of transformers. It normalises the patterns of the chosen
/// heads over queries, smooths them by a median and averages them. The result is the cheapest path through them that never goes
/// back.
///
/// # Errors
/// When the model takes no sound as input, or cannot run.
pub fn token_times<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    asked: Option<&[[usize; 2]]>,
    pace: &dyn Pace,
) -> Result<TokenTimes> {
    let spec = &model.spec;
    let sound = input
        .source
        .as_ref()
        .and_then(|source| source.sound.as_deref());
    let (Some(sound), Some(start), Some(rule)) = (sound, &spec.decoder_start, spec.limits().sound)
    else {
        let problem = format!(
            "{}: times of tokens are for models that write what they hear (whisper)",
            spec.family
        );
        return Err(Error::Prompt(problem));
    };
    let later_half = || {
        let blocks = spec.main_stack().blocks();
        let heads = |(layer_idx, cross): (usize, usize)| (0..cross).map(move |h| [layer_idx, h]);
        let n_heads = blocks.iter().map(|block| {
            let cross = block.cross.as_ref();
            cross.map_or(0, |cross| cross.attention.n_heads)
        });
        n_heads
            .enumerate()
            .skip(blocks.len() / 2)
            .flat_map(heads)
            .collect()
    };
    let named = spec.timing.as_ref();
    let median_width = named.map_or(MEDIAN_WIDTH, |timing| timing.median_width);
    let (heads, chosen): (Vec<[usize; 2]>, Chosen) = match (asked, named) {
        (Some(asked), _) => (asked.to_vec(), Chosen::Asked),
        (None, Some(timing)) => (timing.heads.clone(), Chosen::Named),
        (None, None) => (later_half(), Chosen::LaterHalf),
    };
    let tokens = &input.sequence.tokens;
    let n_start = n_start(start, tokens);
    let n_keys = (sound.n_frames / rule.frames_a_position).clamp(1, rule.n_positions());
    let keeper = Keeper {
        heads: &heads,
        n_keys: rule.n_positions(),
        held: Mutex::default(),
    };
    let patterns = collect(ops, model, input, keeper, pace)?;
    // The last token is the prediction of the others: no query after it says when it was spoken.
    let told = n_start..tokens.len().saturating_sub(1).max(n_start);
    let n_told = told.len();
    let maps = patterns.iter().map(|pattern| {
        let rows = pattern
            .chunks(rule.n_positions())
            .skip(n_start)
            .take(n_told);
        let rows: Vec<Vec<f32>> = rows.map(|row| row[..n_keys].to_vec()).collect();
        smoothed(normalised(rows), median_width)
    });
    let maps: Vec<Vec<Vec<f32>>> = maps.collect();
    let mean = |query_idx: usize, key_idx: usize| {
        let sum: f32 = maps.iter().map(|map| map[query_idx][key_idx]).sum();
        f64::from(sum / maps.len().max(1) as f32)
    };
    let costs: Vec<Vec<f64>> = (0..n_told)
        .map(|query_idx| {
            (0..n_keys)
                .map(|key_idx| -mean(query_idx, key_idx))
                .collect()
        })
        .collect();
    let mut first_keys = vec![0; n_start.min(tokens.len())];
    first_keys.extend(first_on_path(&costs));
    let last = first_keys.last().copied().unwrap_or(0);
    first_keys.resize(tokens.len(), last);
    Ok(TokenTimes {
        heads,
        chosen,
        n_start,
        n_keys,
        seconds_a_key: rule.seconds_a_position(),
        first_keys,
    })
}

/// Number of leading control tokens: the decoder's start token, and those that may follow it.
fn n_start(start: &DecoderStart, tokens: &[u32]) -> usize {
    let is_forced = |id: u32| {
        start.forced.iter().any(|forced| match forced {
            Forced::Token(token) => *token == id,
            Forced::OneOf(all) => all.contains(&id),
        })
    };
    let is_prefix = |id: u32| {
        start
            .prefixes
            .iter()
            .any(|prefix| prefix.ids().contains(&id))
    };
    let tells = |id: &&u32| **id == start.start_token || is_forced(**id) || is_prefix(**id);
    let n = tokens.iter().take_while(tells).count();
    // At most as many as a checkpoint defines: one of them may also be an ordinary word.
    let longest = start.prefixes.iter().map(|prefix| prefix.ids().len()).max();
    n.min(1 + longest.unwrap_or(0) + start.forced.len())
}

/// Patterns of some cross-attention heads. // [head][query, key]
fn collect<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    mut keeper: Keeper<'_>,
    pace: &dyn Pace,
) -> Result<Vec<Vec<f32>>> {
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    let heads = keeper.heads;
    let tap: Option<&mut dyn Tap> = Some(&mut keeper);
    run(ops, model, input, options, &mut Silent, tap, pace)?;
    let mut held = keeper
        .held
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let mut take = |place: &[usize; 2]| held.remove(place).unwrap_or_default();
    // A head that is named twice counts twice.
    let mut taken: BTreeMap<[usize; 2], Vec<f32>> = BTreeMap::new();
    let each = heads
        .iter()
        .map(|place| taken.entry(*place).or_insert_with(|| take(place)).clone());
    Ok(each.collect())
}

/// Keeps the patterns of some cross-attention heads.
struct Keeper<'a> {
    heads: &'a [[usize; 2]],
    n_keys: usize,
    held: Mutex<Held>,
}

/// Patterns by layer and head, and the current layer. // [query, key]
#[derive(Default)]
struct Held {
    layer_idx: usize,
    patterns: BTreeMap<[usize; 2], Vec<f32>>,
}

impl Held {
    fn remove(&mut self, place: &[usize; 2]) -> Option<Vec<f32>> {
        self.patterns.remove(place)
    }
}

impl Tap for Keeper<'_> {
    fn wants(&self, _: Stack, _: usize, _: Hook) -> bool {
        false
    }

    fn values(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    fn blocks(&self, stack: Stack, layer_idx: usize) -> Option<&dyn BlockSink> {
        if stack != Stack::Cross || !self.heads.iter().any(|[layer, _]| *layer == layer_idx) {
            return None;
        }
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .layer_idx = layer_idx;
        Some(self)
    }
}

impl BlockSink for Keeper<'_> {
    fn block(&self, head_idx: usize, first_query: usize, _: &[f32], pattern: &[f32]) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let place = [held.layer_idx, head_idx];
        if !self.heads.contains(&place) {
            return;
        }
        let all = held.patterns.entry(place).or_default();
        let at = first_query * self.n_keys;
        if all.len() < at + pattern.len() {
            all.resize(at + pattern.len(), 0.0);
        }
        all[at..at + pattern.len()].copy_from_slice(pattern);
    }
}

/// Standardises each key's column (zero mean, unit standard deviation); a constant column becomes zero. // [query][key]
fn normalised(mut rows: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let n = rows.len().max(1) as f64;
    let n_keys = rows.first().map_or(0, Vec::len);
    for key_idx in 0..n_keys {
        let column = || rows.iter().map(|row| f64::from(row[key_idx]));
        let mean = column().sum::<f64>() / n;
        let spread = (column().map(|p| (p - mean) * (p - mean)).sum::<f64>() / n).sqrt();
        for row in &mut rows {
            let from_mean = f64::from(row[key_idx]) - mean;
            row[key_idx] = if spread > 0.0 {
                (from_mean / spread) as f32
            } else {
                0.0
            };
        }
    }
    rows
}

/// Median filter along each row, mirrored at the ends. // [query][key]
fn smoothed(rows: Vec<Vec<f32>>, width: usize) -> Vec<Vec<f32>> {
    let reach = (width / 2) as isize;
    let row_of = |row: Vec<f32>| -> Vec<f32> {
        let last = row.len() as isize - 1;
        if last < reach {
            return row;
        }
        let at = |key_idx: isize| {
            let mirrored = if key_idx > last {
                2 * last - key_idx
            } else {
                key_idx.abs()
            };
            row[mirrored as usize]
        };
        let median = |key_idx: isize| {
            let mut around: Vec<f32> = (key_idx - reach..=key_idx + reach).map(at).collect();
            around.sort_unstable_by(f32::total_cmp);
            around[reach as usize]
        };
        (0..=last).map(median).collect()
    };
    rows.into_iter().map(row_of).collect()
}

/// Direction of the path's last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Both,
    NextQuery,
    NextKey,
}

/// First key of every query on the cheapest monotonic path from the first query and key to the last (dynamic time warping).
/// // costs: [query][key]
fn first_on_path(costs: &[Vec<f64>]) -> Vec<usize> {
    let (n_queries, n_keys) = (costs.len(), costs.first().map_or(0, Vec::len));
    if n_keys == 0 {
        return vec![0; n_queries];
    }
    let width = n_keys + 1;
    // Sums are f32 as in the original implementation, so that ties break the same way.
    let mut sums = vec![f32::INFINITY; (n_queries + 1) * width];
    let mut steps = vec![Step::NextKey; (n_queries + 1) * width];
    sums[0] = 0.0;
    for key_idx in 1..=n_keys {
        for query_idx in 1..=n_queries {
            let at = query_idx * width + key_idx;
            let [both, query, key] = [sums[at - width - 1], sums[at - width], sums[at - 1]];
            let (least, step) = if both < query && both < key {
                (both, Step::Both)
            } else if query < both && query < key {
                (query, Step::NextQuery)
            } else {
                (key, Step::NextKey)
            };
            sums[at] = (costs[query_idx - 1][key_idx - 1] + f64::from(least)) as f32;
            steps[at] = step;
        }
    }
    let mut first = vec![0; n_queries];
    let (mut query_idx, mut key_idx) = (n_queries, n_keys);
    while query_idx > 0 && key_idx > 0 {
        first[query_idx - 1] = key_idx - 1;
        match steps[query_idx * width + key_idx] {
            Step::Both => (query_idx, key_idx) = (query_idx - 1, key_idx - 1),
            Step::NextQuery => query_idx -= 1,
            Step::NextKey => key_idx -= 1,
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_follows_low_costs_and_never_goes_back() {
        let cost = |query_idx: usize, key_idx: usize| {
            let on = [0..2, 2..3, 3..6][query_idx].contains(&key_idx);
            if on { -1.0 } else { 1.0 }
        };
        let costs: Vec<Vec<f64>> = (0..3)
            .map(|query_idx| (0..6).map(|key_idx| cost(query_idx, key_idx)).collect())
            .collect();
        assert_eq!(first_on_path(&costs), [0, 2, 3]);
        assert_eq!(first_on_path(&[]), Vec::<usize>::new());
        assert_eq!(first_on_path(&[vec![0.0, 0.0, 0.0]]), [0]);
    }

    #[test]
    fn more_queries_than_keys_share_keys() {
        let costs = vec![vec![0.0]; 3];
        assert_eq!(first_on_path(&costs), [0, 0, 0]);
    }

    #[test]
    fn a_median_filter_removes_single_peaks_and_mirrors_ends() {
        let row = vec![0.0, 9.0, 1.0, 1.0, 2.0];
        assert_eq!(smoothed(vec![row.clone()], 3), [[9.0, 1.0, 1.0, 1.0, 1.0]]);
        assert_eq!(smoothed(vec![vec![3.0, 1.0]], 7), [[3.0, 1.0]]);
        assert_eq!(smoothed(vec![row.clone()], 1), [row]);
    }

    #[test]
    fn columns_are_normalised_over_queries_and_constant_ones_are_zero() {
        let rows = normalised(vec![vec![0.0, 5.0], vec![2.0, 5.0]]);
        assert_eq!(rows, [[-1.0, 0.0], [1.0, 0.0]]);
    }
}
