//! What a line of a log says of the masks of its layers: what the sampled rows of each head prove.
//!
//! A batch proves only what its texts are long enough for, so that two masks of a log differ where no one mask can be both.

use std::fmt;

use serde::{Deserialize, Deserializer};

use super::facts::figure;
use crate::layout::Layout;

/// How many keys the rows see on one side of their own place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// A mask cuts all of them off here.
    Exactly(i64),
    /// They see all there is, which is so far.
    AtLeast(i64),
}

/// A kind of mask, with what tells it from others of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskKind {
    /// Keys so near to each query: causal, a window, or everything.
    Band {
        left: Reach,
        right: Reach,
        /// The first place at which a row was seen to be denied a later key.
        from: i64,
    },
    /// Causal, but the first keys of a text see each other; `size` is the smallest number of them.
    Prefix { size: i64 },
    /// Stretches of keys that see each other alone, though the batch tells of no documents.
    Documents { later: bool },
    /// Anything else; `least` is the smallest number of keys that a row with a gap sees.
    Other { later: bool, least: i64 },
}

/// One mask.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mask {
    pub kind: MaskKind,
    /// Mean number of keys that sampled rows see; NaN if it is unknown.
    pub keys: f64,
}

/// The masks of all layers of a line.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Masks {
    /// `None` for kinds that this program does not know.
    #[serde(deserialize_with = "masks")]
    kinds: Vec<Option<Mask>>,
    /// For each layer its kind; all have the first one if there is no list.
    of: Option<Vec<Option<OfLayer>>>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum OfLayer {
    All(usize),
    Heads(Vec<Option<usize>>),
}

impl Masks {
    /// Returns the mask of a head, if it is known; layers are those of the line, or of the history after [`Masks::lay`].
    pub fn at(&self, layer: usize, head: usize) -> Option<Mask> {
        let kind = match &self.of {
            None => 0,
            Some(of) => match of.get(layer)?.as_ref()? {
                OfLayer::All(kind) => *kind,
                OfLayer::Heads(kinds) => (*kinds.get(head)?)?,
            },
        };
        *self.kinds.get(kind)?
    }

    /// Moves what is said of layers to where a history has them.
    pub(super) fn lay(&mut self, layout: &Layout) {
        let of = self.of.take();
        let of = of.unwrap_or_else(|| vec![Some(OfLayer::All(0)); layout.n_own_layers()]);
        self.of = Some(layout.of_layers(&of));
    }
}

impl Reach {
    /// Returns what is true of both; `None` if nothing is.
    fn meet(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Exactly(a), Self::Exactly(b)) => (a == b).then_some(self),
            (Self::Exactly(at), Self::AtLeast(least))
            | (Self::AtLeast(least), Self::Exactly(at)) => {
                (at >= least).then_some(Self::Exactly(at))
            }
            (Self::AtLeast(a), Self::AtLeast(b)) => Some(Self::AtLeast(a.max(b))),
        }
    }
}

impl MaskKind {
    /// Returns the mask that both may be, as far as both prove it; `None` if they are different masks.
    pub fn meet(self, other: Self) -> Option<Self> {
        match (self, other) {
            (
                Self::Band { left, right, from },
                Self::Band {
                    left: l,
                    right: r,
                    from: f,
                },
            ) => Some(Self::Band {
                left: left.meet(l)?,
                right: right.meet(r)?,
                from: from.min(f),
            }),
            // The length of a prefix is that of a text.
            (Self::Prefix { size: a }, Self::Prefix { size: b }) => {
                Some(Self::Prefix { size: a.min(b) })
            }
            (Self::Prefix { size }, Self::Band { left, right, from })
            | (Self::Band { left, right, from }, Self::Prefix { size }) => {
                let hides_nothing = matches!(left, Reach::AtLeast(_));
                // No row was looked at that would have seen the prefix, or none that would not.
                let may_be = match right {
                    Reach::Exactly(right) => right == 0 && from >= size.saturating_sub(1),
                    Reach::AtLeast(ahead) => ahead < size,
                };
                (hides_nothing && may_be).then_some(Self::Prefix { size })
            }
            (Self::Documents { later: a }, Self::Documents { later: b }) => {
                (a == b).then_some(self)
            }
            (Self::Other { later: a, least: m }, Self::Other { later: b, least: n }) => (a == b)
                .then_some(Self::Other {
                    later: a,
                    least: m.min(n),
                }),
            // Texts that are too short for a gap.
            (
                Self::Other { later, least },
                Self::Band {
                    left: Reach::AtLeast(reach),
                    right,
                    ..
                },
            )
            | (
                Self::Band {
                    left: Reach::AtLeast(reach),
                    right,
                    ..
                },
                Self::Other { later, least },
            ) => {
                let is_causal = right == Reach::Exactly(0);
                (reach < least && (later || is_causal)).then_some(Self::Other { later, least })
            }
            _ => None,
        }
    }
}

impl fmt::Display for MaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Reach::{AtLeast, Exactly};
        match *self {
            Self::Band { left, right, .. } => match (left, right) {
                (AtLeast(_), Exactly(0)) => f.write_str("causal"),
                (AtLeast(_), Exactly(later @ 1..)) => {
                    write!(f, "causal and {later} later")
                }
                (AtLeast(_), Exactly(right)) => {
                    write!(f, "causal without the nearest {}", right.unsigned_abs())
                }
                (AtLeast(_), AtLeast(_)) => f.write_str("bidirectional"),
                (Exactly(left), Exactly(0)) => write!(f, "window {}", left.saturating_add(1)),
                (Exactly(left), Exactly(right)) => {
                    write!(f, "window of {left} before and {right} after")
                }
                (Exactly(left), AtLeast(_)) => {
                    write!(f, "window of {left} before and all after")
                }
            },
            Self::Prefix { size } => write!(f, "prefix {size}"),
            Self::Documents { later: false } => f.write_str("causal within documents"),
            Self::Documents { later: true } => f.write_str("bidirectional within documents"),
            Self::Other { later: false, .. } => f.write_str("another mask"),
            Self::Other { later: true, .. } => f.write_str("another mask with later keys"),
        }
    }
}

/// A mask as the line has it.
#[derive(Deserialize)]
struct Raw {
    kind: String,
    #[serde(default)]
    left: Option<i64>,
    #[serde(default)]
    reach: Option<i64>,
    #[serde(default)]
    right: Option<i64>,
    #[serde(default)]
    ahead: Option<i64>,
    #[serde(default)]
    from: i64,
    #[serde(default)]
    size: i64,
    #[serde(default)]
    later: bool,
    #[serde(default)]
    least: i64,
    #[serde(default, deserialize_with = "figure")]
    keys: Option<f64>,
}

fn masks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Option<Mask>>, D::Error> {
    let raw: Vec<Raw> = Vec::deserialize(from)?;
    let mask = |raw: Raw| {
        Some(Mask {
            kind: kind(&raw)?,
            keys: raw.keys.unwrap_or(f64::NAN),
        })
    };
    Ok(raw.into_iter().map(mask).collect())
}

fn kind(raw: &Raw) -> Option<MaskKind> {
    let left = match raw.left {
        Some(left) => Reach::Exactly(left),
        None => Reach::AtLeast(raw.reach.unwrap_or(0)),
    };
    let right = match (raw.right, raw.ahead) {
        (None, Some(ahead)) => Reach::AtLeast(ahead),
        (right, _) => Reach::Exactly(right.unwrap_or(0)),
    };
    match raw.kind.as_str() {
        "causal" | "window" | "bidirectional" => Some(MaskKind::Band {
            left,
            right,
            from: raw.from,
        }),
        "prefix" => Some(MaskKind::Prefix { size: raw.size }),
        "documents" => Some(MaskKind::Documents { later: raw.later }),
        "other" => Some(MaskKind::Other {
            later: raw.later,
            least: raw.least,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Masks {
        serde_json::from_str(text).expect("masks")
    }

    fn only(text: &str) -> MaskKind {
        let masks = read(&format!("{{\"kinds\":[{text}]}}"));
        masks.at(0, 0).expect("a mask").kind
    }

    const CAUSAL: &str = r#"{"kind":"causal","reach":47}"#;
    const SHORT: &str = r#"{"kind":"causal","reach":7}"#;
    const WINDOW: &str = r#"{"kind":"window","left":15,"right":0}"#;
    const ALL: &str = r#"{"kind":"bidirectional","reach":40,"ahead":40}"#;
    const PREFIX: &str = r#"{"kind":"prefix","size":5}"#;
    const SINKS: &str = r#"{"kind":"other","later":false,"least":20}"#;

    #[test]
    fn a_kind_has_its_words() {
        let both = r#"{"kind":"window","left":7,"right":7}"#;
        let off = r#"{"kind":"causal","reach":9,"right":1}"#;
        let apart = r#"{"kind":"documents","later":false}"#;
        let words = [CAUSAL, WINDOW, ALL, PREFIX, SINKS, both, off, apart];
        let words = words.map(|text| only(text).to_string());
        assert_eq!(
            words,
            [
                "causal",
                "window 16",
                "bidirectional",
                "prefix 5",
                "another mask",
                "window of 7 before and 7 after",
                "causal and 1 later",
                "causal within documents"
            ]
        );
    }

    #[test]
    fn masks_differ_where_no_mask_can_be_both() {
        let alike = [
            (CAUSAL, SHORT, CAUSAL),
            // Texts that do not fill the window.
            (SHORT, WINDOW, WINDOW),
            (SHORT, SINKS, SINKS),
            (r#"{"kind":"causal","reach":47,"from":9}"#, PREFIX, PREFIX),
            (
                r#"{"kind":"bidirectional","reach":3,"ahead":4}"#,
                PREFIX,
                PREFIX,
            ),
        ];
        for (a, b, both) in alike {
            let (a, b) = (only(a), only(b));
            assert_eq!(a.meet(b), Some(only(both)), "{a:?} {b:?}");
            assert_eq!(b.meet(a), a.meet(b));
        }
        let narrow = r#"{"kind":"window","left":7,"right":0}"#;
        let off = r#"{"kind":"causal","reach":9,"right":1}"#;
        let all = [CAUSAL, WINDOW, narrow, ALL, PREFIX, SINKS, off];
        for (nth, a) in all.iter().enumerate() {
            for b in &all[nth + 1..] {
                assert_eq!(only(a).meet(only(b)), None, "{a} {b}");
            }
        }
    }

    #[test]
    fn layers_and_heads_have_the_kind_of_their_number() {
        let text = format!("{{\"kinds\":[{CAUSAL},{{\"kind\":\"new\"}},{WINDOW}],\"of\":");
        let masks = read(&format!("{text}[0,[2,0,null,9],null,1]}}"));
        let at = |layer, head| masks.at(layer, head).map(|mask| mask.kind.to_string());
        let causal = Some("causal".to_owned());
        assert_eq!(at(0, 3), causal);
        assert_eq!(at(1, 0), Some("window 16".to_owned()));
        assert_eq!(
            [at(1, 1), at(1, 2), at(1, 3), at(1, 4)],
            [causal, None, None, None]
        );
        assert_eq!([at(2, 0), at(3, 0), at(4, 0)], [None, None, None]);
        assert_eq!(Masks::default().at(0, 0), None);
    }
}
