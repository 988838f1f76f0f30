//! Windows: limits on the distance between a query and the keys it sees. What a window does is said here and nowhere else.

use std::fmt;
use std::ops::Range;

/// A limit on the distance between a query and the keys it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Keys with query − key < width, the query itself included.
    Back(usize),
    /// Keys with |query − key| ≤ reach.
    Around(usize),
    /// Keys at most `back` before the query and at most `ahead` after it.
    Uneven { back: usize, ahead: usize },
    /// Keys of the query's own chunk; chunks of this width are counted from the first token.
    Chunk(usize),
    /// Keys of the query's own chunk and of some chunks before it.
    Chunks { width: usize, n_before: usize },
    /// Keys of the query's own block. Blocks of this width follow each other from the index `first` on; the first of them lacks its
    /// first `lacks` places.
    Blocks {
        width: usize,
        first: usize,
        lacks: usize,
    },
}

impl Window {
    /// A window of some width: back for causal attention, to both sides otherwise.
    pub fn of_width(width: usize, is_causal: bool) -> Self {
        if is_causal {
            Self::Back(width)
        } else {
            Self::Around(width)
        }
    }

    /// The number of keys of a window that reaches back.
    pub fn width_back(self) -> Option<usize> {
        match self {
            Self::Back(width) => Some(width),
            Self::Around(_)
            | Self::Uneven { .. }
            | Self::Chunk(_)
            | Self::Chunks { .. }
            | Self::Blocks { .. } => None,
        }
    }

    /// Whether a key after the query may be within the window.
    pub fn reaches_forward(self) -> bool {
        !matches!(self, Self::Back(_))
    }

    /// The keys within the window of a query; `first` is the position that chunks are counted from.
    pub fn keys(self, query_idx: usize, first: usize) -> Range<usize> {
        match self {
            Self::Back(width) => (query_idx + 1).saturating_sub(width)..query_idx + 1,
            Self::Around(reach) => {
                query_idx.saturating_sub(reach)..(query_idx + 1).saturating_add(reach)
            }
            Self::Uneven { back, ahead } => {
                query_idx.saturating_sub(back)..(query_idx + 1).saturating_add(ahead)
            }
            Self::Chunk(width) => chunk(query_idx, width, first),
            Self::Chunks { width, n_before } => {
                let own = chunk(query_idx, width, first);
                let before = width.max(1).saturating_mul(n_before);
                own.start.saturating_sub(before)..own.end
            }
            Self::Blocks {
                width,
                first,
                lacks,
            } => block(query_idx, width, (first, lacks)),
        }
    }

    /// The queries whose window has a key, where chunks are counted from position 0.
    pub fn queries(self, key_idx: usize) -> Range<usize> {
        match self {
            Self::Back(width) => key_idx..key_idx.saturating_add(width),
            Self::Around(reach) => {
                key_idx.saturating_sub(reach)..(key_idx + 1).saturating_add(reach)
            }
            Self::Uneven { back, ahead } => {
                key_idx.saturating_sub(ahead)..(key_idx + 1).saturating_add(back)
            }
            Self::Chunk(width) => chunk(key_idx, width, 0),
            Self::Chunks { width, n_before } => {
                let own = chunk(key_idx, width, 0);
                let behind = width.max(1).saturating_mul(n_before);
                own.start..own.end.saturating_add(behind)
            }
            Self::Blocks {
                width,
                first,
                lacks,
            } => block(key_idx, width, (first, lacks)),
        }
    }

    /// The window with more keys, or fewer where `by` is negative; at least the query itself remains.
    #[must_use]
    pub fn wider(self, by: isize) -> Self {
        match self {
            Self::Back(width) => Self::Back(width.saturating_add_signed(by).max(1)),
            Self::Around(reach) => Self::Around(reach.saturating_add_signed(by)),
            Self::Uneven { back, ahead } => Self::Uneven {
                back: back.saturating_add_signed(by),
                ahead: ahead.saturating_add_signed(by),
            },
            Self::Chunk(width) => Self::Chunk(width.saturating_add_signed(by).max(1)),
            Self::Chunks { width, n_before } => Self::Chunks {
                width: width.saturating_add_signed(by).max(1),
                n_before,
            },
            Self::Blocks {
                width,
                first,
                lacks,
            } => Self::Blocks {
                width: width.saturating_add_signed(by).max(1),
                first,
                lacks,
            },
        }
    }

    /// The window with a reach of `reach(width)` to both sides in place of a width back.
    #[must_use]
    pub fn to_both_sides(self, reach: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Back(width) => Self::Around(reach(width)),
            other => other,
        }
    }

    /// The window with as many keys in place of a width back, half of them to each side; an odd one, beside the query, is ahead.
    #[must_use]
    pub fn centred(self) -> Self {
        match self {
            Self::Back(width) => Self::Uneven {
                back: width.saturating_sub(1) / 2,
                ahead: width / 2,
            },
            other => other,
        }
    }

    /// The number that states its size.
    pub fn size(self) -> usize {
        match self {
            Self::Back(size) | Self::Around(size) | Self::Chunk(size) => size,
            Self::Chunks { width, .. } | Self::Blocks { width, .. } => width,
            Self::Uneven { back, ahead } => back.max(ahead),
        }
    }

    /// The window for the other direction: chunks are the same in both.
    #[must_use]
    pub fn turned(self, is_causal: bool) -> Self {
        match self {
            Self::Chunk(_) | Self::Chunks { .. } | Self::Blocks { .. } => self,
            Self::Uneven { .. } if !is_causal => self,
            other => Self::of_width(other.size(), is_causal),
        }
    }
}

/// The keys that a streaming KV cache keeps: the first and the latest ones (Xiao et al. 2023, arXiv 2309.17453). A query sees
/// those that were kept when it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streaming {
    /// Number of latest keys, the query's own included.
    pub recent: usize,
    /// Number of first real keys, the attention sinks.
    pub sinks: usize,
}

impl Streaming {
    /// The keys dropped before a query; `first` is the first real key.
    pub fn dropped(self, query_idx: usize, first: usize) -> Range<usize> {
        let end = (query_idx + 1).saturating_sub(self.recent);
        first.saturating_add(self.sinks).min(end)..end
    }

    /// The queries for which a key is not dropped, where keys are counted from position 0. Queries before the key are among them.
    pub fn queries(self, key_idx: usize) -> Range<usize> {
        if key_idx < self.sinks {
            0..usize::MAX
        } else {
            0..key_idx.saturating_add(self.recent)
        }
    }
}

impl fmt::Display for Streaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "streaming: last {} keys and first {}",
            self.recent, self.sinks
        )
    }
}

/// The chunk of a position; before `first`, chunks continue backwards.
fn chunk(position_idx: usize, width: usize, first: usize) -> Range<usize> {
    let width = width.max(1);
    match position_idx.checked_sub(first) {
        Some(idx) => {
            let start = first + idx / width * width;
            start..start.saturating_add(width)
        }
        None => {
            let end = first - (first - position_idx - 1) / width * width;
            end.saturating_sub(width)..end
        }
    }
}

/// The block of a position; those before the first block see each other.
fn block(position_idx: usize, width: usize, (first, lacks): (usize, usize)) -> Range<usize> {
    let width = width.max(1);
    match position_idx.checked_sub(first) {
        Some(idx) => {
            let start = (idx + lacks) / width * width;
            let end = first.saturating_add(start.saturating_add(width).saturating_sub(lacks));
            first + start.saturating_sub(lacks)..end
        }
        None => 0..first,
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Back(width) => write!(f, "window {width} back"),
            Self::Around(reach) => write!(f, "window {reach} either side"),
            Self::Uneven { back, ahead } => write!(f, "window {back} back and {ahead} ahead"),
            Self::Chunk(width) => write!(f, "chunks of {width}"),
            Self::Chunks { width, n_before } => {
                write!(f, "chunks of {width}, {n_before} before")
            }
            Self::Blocks {
                width,
                first,
                lacks,
            } => {
                write!(f, "blocks of {width} from {first} on")?;
                match lacks {
                    0 => Ok(()),
                    lacks => write!(f, ", the first of {}", width - lacks),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_what_stands_before_them_and_the_first_may_be_short() {
        let window = |lacks| Window::Blocks {
            width: 4,
            first: 2,
            lacks,
        };
        let keys = |lacks, query_idx| window(lacks).keys(query_idx, 0);
        assert_eq!([keys(0, 2), keys(0, 5), keys(0, 6)], [2..6, 2..6, 6..10]);
        assert_eq!([keys(2, 2), keys(2, 3), keys(2, 4)], [2..4, 2..4, 4..8]);
        assert_eq!(keys(2, 0), 0..2);
        assert_eq!(window(2).queries(7), 4..8);
    }

    #[test]
    fn a_query_may_see_chunks_before_its_own() {
        let window = Window::Chunks {
            width: 2,
            n_before: 1,
        };
        assert_eq!(
            [0, 3, 6].map(|query_idx| window.keys(query_idx, 0)),
            [0..2, 0..4, 4..8]
        );
        // Chunks are counted from the first real token.
        assert_eq!(window.keys(5, 1), 3..7);
        assert_eq!(window.queries(3), 2..6);
    }
}
