//! All settings of one attention, as data.

use std::fmt;

use super::bias::{Alibi, Buckets, Pairs, Relative};
use super::globals::Globals;
use super::grid_distances::GridDistances;
use super::grid_steps::GridSteps;
use super::kv_format::KvFormat;
use super::profiles::Profiles;
use super::rope::RopeSpec;
use super::scale::Scale;
use super::top_keys::TopKeys;
use super::window::{Streaming, Window};

/// The axis over which scores are normalised. The others than keys are common bugs. Over queries, columns sum to 1 and the future
/// leaks; over heads, the same pair sums to 1 over heads, and each pair is weighed without its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoftmaxAxis {
    Keys,
    Queries,
    Heads,
}

impl fmt::Display for SoftmaxAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keys => "keys",
            Self::Queries => "queries",
            Self::Heads => "heads",
        })
    }
}

/// Which keys a query may see, before padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mask {
    pub causal: bool,
    pub window: Option<Window>,
    /// Keys that a KV cache drops while it streams, besides those that the rest of the mask hides.
    pub streaming: Option<Streaming>,
    /// Pools of so many tokens each, from the first token on, have a key behind those of all tokens, and a query sees the pools that end with
    /// it or before it, however far. Tokens behind the last whole pool are in none.
    pub pools: Option<usize>,
}

impl Mask {
    /// A mask that hides nothing.
    pub const NONE: Self = Self {
        causal: false,
        window: None,
        streaming: None,
        pools: None,
    };

    /// A mask that hides every key after the query.
    pub const CAUSAL: Self = Self {
        causal: true,
        ..Self::NONE
    };

    /// A mask whose window of some width reaches back if it is causal, and to both sides otherwise.
    pub fn with_width(causal: bool, width: Option<usize>) -> Self {
        let window = width.map(|width| Window::of_width(width, causal));
        Self {
            causal,
            window,
            streaming: None,
            pools: None,
        }
    }

    /// Whether a query may see keys after it.
    pub fn sees_later(self) -> bool {
        !self.causal && self.window.is_none_or(Window::reaches_forward)
    }

    /// The range of the `n` queries that may see a key, ignoring padding.
    pub fn queries_seeing(self, key_idx: usize, n: usize) -> std::ops::Range<usize> {
        if let (Some(size), Some(pool_idx)) = (self.pools, key_idx.checked_sub(n)) {
            return ((pool_idx + 1).saturating_mul(size) - 1).min(n)..n;
        }
        let all = self.window.map_or(0..n, |window| window.queries(key_idx));
        let first = if self.causal { key_idx } else { all.start };
        let kept = self.streaming.map_or(0..n, |kept| kept.queries(key_idx));
        let end = all.end.min(kept.end).min(n);
        first.min(end)..end
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.causal {
            "causal"
        } else {
            "bidirectional"
        })?;
        if let Some(window) = self.window {
            write!(f, ", {window}")?;
        }
        if let Some(size) = self.pools {
            write!(f, ", pools of {size} behind all tokens")?;
        }
        match self.streaming {
            Some(streaming) => write!(f, ", {streaming}"),
            None => Ok(()),
        }
    }
}

/// What a row without any visible key becomes. Such rows are always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoVisible {
    /// All zero: nothing is attended.
    Zero,
    /// 1/n over all keys, masked ones included, as a finite mask value gives.
    Uniform,
    /// NaN, as a mask of −inf gives.
    Nan,
}

/// The position bias added to scores.
#[derive(Debug, Clone, PartialEq)]
pub enum Bias {
    None,
    Alibi(Alibi),
    Buckets(Buckets),
    Grid(GridDistances),
    Pairs(Pairs),
    Steps(GridSteps),
    Relative(Relative),
    Profiles(Profiles),
    /// One value for each key and head of keys, which the values of the key's position make.
    OfValues,
}

/// Position-dependent query scaling, which keeps long rows as sharp as short ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    pub beta: f64,
    pub period: f64,
    /// Added to a position counted from 0.
    pub first: usize,
    pub curve: GrowthCurve,
}

/// How queries grow with n, the position (with what is added to it) divided by the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthCurve {
    /// 1 + β·ln(1 + ⌊n⌋).
    Steps,
    /// (1 + n)^β.
    Power,
    /// 1 + β·ln(n), for n above 1.
    Log,
}

impl Growth {
    pub fn factor(self, position: usize) -> f32 {
        let periods = (position + self.first) as f64 / self.period;
        let factor = match self.curve {
            GrowthCurve::Steps => 1.0 + self.beta * (1.0 + periods.floor()).ln(),
            GrowthCurve::Power => (1.0 + periods).powf(self.beta),
            GrowthCurve::Log => 1.0 + self.beta * periods.max(1.0).ln(),
        };
        factor as f32
    }
}

/// All settings of one attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionSpec {
    pub n_heads: usize,
    /// Number of key and value heads; each serves `n_heads / n_kv_heads` consecutive query heads.
    pub n_kv_heads: usize,
    /// Width of queries and keys.
    pub d_head: usize,
    /// Width of values.
    pub d_value: usize,
    pub scale: Scale,
    pub softmax_axis: SoftmaxAxis,
    pub mask: Mask,
    pub no_visible: NoVisible,
    /// cap · tanh(score / cap), applied to scaled scores before mask and bias.
    pub softcap: Option<f32>,
    /// The softcap bounds the sum of a scaled score and its bias, not the score alone.
    pub caps_bias: bool,
    pub bias: Bias,
    pub rope: Option<RopeSpec>,
    /// Scales queries with their position.
    pub growth: Option<Growth>,
    /// Keys belong to another sequence: an encoder's output, or another grid of the picture that queries are patches of.
    pub is_cross: bool,
    /// Tokens that see all others and are seen by all others.
    pub globals: Option<Globals>,
    /// Rounds keys and values as a KV cache does that stores them in this format. Set by what-ifs only.
    pub cache: Option<KvFormat>,
    /// Sparse attention: keeps only some keys per query, those that rank highest.
    pub top_keys: Option<TopKeys>,
}

impl AttentionSpec {
    /// Standard attention: scale 1/√d, softmax over keys, no bias.
    pub fn plain(n_heads: usize, n_kv_heads: usize, d_head: usize, causal: bool) -> Self {
        Self {
            n_heads,
            n_kv_heads,
            d_head,
            d_value: d_head,
            scale: Scale::InvSqrtD,
            softmax_axis: SoftmaxAxis::Keys,
            mask: Mask {
                causal,
                window: None,
                streaming: None,
                pools: None,
            },
            no_visible: NoVisible::Zero,
            softcap: None,
            caps_bias: false,
            bias: Bias::None,
            rope: None,
            growth: None,
            is_cross: false,
            globals: None,
            cache: None,
            top_keys: None,
        }
    }

    /// The key and value head that serves a query head.
    pub fn kv_head_of(&self, head_idx: usize) -> usize {
        head_idx / (self.n_heads / self.n_kv_heads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::Visibility;

    #[test]
    fn queries_seeing_a_key_match_the_mask() {
        let n = 9;
        let widest = usize::MAX;
        let windows = [
            None,
            Some(Window::Back(3)),
            Some(Window::Around(2)),
            Some(Window::Back(widest)),
            Some(Window::Around(widest)),
            Some(Window::Chunk(4)),
            Some(Window::Chunk(widest)),
            Some(Window::Chunks {
                width: 2,
                n_before: 1,
            }),
            Some(Window::Chunks {
                width: widest,
                n_before: widest,
            }),
        ];
        let streams = [
            None,
            Some((3, 2)),
            Some((1, 0)),
            Some((widest, 1)),
            Some((2, widest)),
        ];
        let streams = streams.map(|kept| kept.map(|(recent, sinks)| Streaming { recent, sinks }));
        let masks = [false, true].into_iter().flat_map(|causal| {
            windows.into_iter().flat_map(move |window| {
                streams.map(move |streaming| Mask {
                    causal,
                    window,
                    streaming,
                    pools: None,
                })
            })
        });
        for mask in masks {
            let visibility = Visibility::of_self(mask, n, None);
            for key_idx in 0..n {
                let counted = (0..n).filter(|q| visibility.sees(*q, key_idx)).count();
                assert_eq!(
                    mask.queries_seeing(key_idx, n).len(),
                    counted,
                    "{mask} key {key_idx}"
                );
            }
        }
    }
}
