//! Recognises how a head's scores became its pattern: normalisers used by design, and faults.

mod added;
mod by_design;
mod faults;
mod rows;
mod sparse;
mod unscored;

use std::fmt;

use added::{Added, Sum};
pub use rows::{Head, HeadRow, Vectors};
pub use unscored::dropout;

/// A deliberate way to turn scores into a pattern.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Normaliser {
    Softmax,
    /// Adds 1 to the denominator, like a key with score 0 and no value.
    SoftmaxOne,
    /// One learned logit takes part of every row.
    LearnedSink {
        logit: f64,
    },
    /// A key that was not recorded takes part of every row, a different share each. The field is the smallest share that a row
    /// keeps.
    SinkOfRows {
        least: f64,
    },
    /// A sigmoid of each score plus a bias, without division by a sum.
    Sigmoid {
        bias: f64,
    },
    /// max(score, 0) to a power, times a factor.
    Relu {
        power: u8,
        divided_by: Divided,
    },
    Sparsemax,
    Entmax15,
    /// Sparse, of an unknown kind: rows sum to 1 and contain exact zeros.
    Sparse,
    /// Rows and columns sum to 1.
    Sinkhorn,
    /// Nonnegative scores divided by their sum.
    Linear {
        features: Features,
    },
    /// The difference of two softmaxes: rows sum to 1 − λ.
    Differential {
        lambda: f64,
    },
    /// A multiple of the softmax plus a matrix that does not depend on the scores. With negative cells it may be a bias that came
    /// too late.
    Mixture {
        weight: f64,
        is_signed: bool,
    },
}

/// What the rectified scores are divided by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Divided {
    /// One number for all rows.
    Factor(f64),
    /// The number of visible keys of the row.
    Visible(f64),
    /// The row's sum.
    Sum,
}

/// Feature map that a linear attention applies to queries and keys before their product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Features {
    /// Scores are already products of features, and are divided by their sum.
    Scores,
    /// Scores are already products of features, and are not divided.
    Bare,
    /// Queries and keys as they are; products are divided by the number of keys.
    Mean,
    Elu,
    Relu,
    Exp,
    Softmax,
}

/// A fault between scores and pattern.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The softmax of the softmax.
    Twice,
    /// The softmax of the scores times this factor.
    Temperature(f64),
    /// The softmax over all keys, with hidden ones set to 0 afterwards.
    MaskedAfter,
    /// The softmax times one factor.
    Scaled(f64),
    /// Each row is the softmax times its own factor: the smallest and the largest.
    RowFactors(f64, f64),
    /// exp(score), not divided by the sum.
    NoSum,
    /// The scores themselves.
    NoSoftmax,
    /// The softmax plus a mask.
    MaskAdded,
}

/// The explanation of a pattern, and its remaining error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Explained<T> {
    pub by: T,
    /// Largest |found − expected|, divided by the largest expected cell of its row.
    pub off: f64,
    /// Number of cells compared.
    pub n_cells: usize,
}

/// The simplest normaliser that explains a head within `tolerance`, using scores if there are any.
pub fn recognise(head: &Head<'_>, tolerance: f64) -> Option<Explained<Normaliser>> {
    if head.has_scores {
        by_design::explain(head, tolerance)
            .or_else(|| unscored::signed(head, tolerance))
            .or_else(|| by_design::of_two(head, tolerance))
    } else {
        unscored::explain(head, tolerance)
    }
}

/// What explains a head to which a known matrix was added: a mixture, or a mask in the wrong place.
/// // added: [query, key]
pub fn with_added(
    head: &Head<'_>,
    added: &[f32],
    tolerance: f64,
) -> Option<Result<Explained<Normaliser>, Explained<Fault>>> {
    let Sum { weight, added, off } = added::explain(head, added, tolerance)?;
    let n_cells = head.n_cells();
    if added == Added::Mask {
        let by = Fault::MaskAdded;
        return Some(Err(Explained { by, off, n_cells }));
    }
    let is_signed = added == Added::Signed;
    let by = Normaliser::Mixture { weight, is_signed };
    Some(Ok(Explained { by, off, n_cells }))
}

/// The fault that explains a head that no normaliser explains.
pub fn diagnose(head: &Head<'_>, tolerance: f64) -> Option<Explained<Fault>> {
    if head.has_scores {
        faults::explain(head, tolerance)
    } else {
        unscored::fault(head, tolerance)
    }
}

impl fmt::Display for Normaliser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Softmax => f.write_str("softmax"),
            Self::SoftmaxOne => f.write_str("softmax with a 1 added to the denominator"),
            Self::LearnedSink { logit } => {
                write!(f, "softmax with a learned sink of logit {logit:.3}")
            }
            Self::SinkOfRows { least } => write!(
                f,
                "softmax with a sink that is cut off: rows keep {:.1} % or more",
                100.0 * least
            ),
            Self::Sigmoid { bias } => write!(f, "sigmoid of score {bias:+.3}"),
            Self::Relu { power, divided_by } => {
                f.write_str(if *power == 1 { "ReLU" } else { "squared ReLU" })?;
                match divided_by {
                    Divided::Factor(factor) if (factor - 1.0).abs() < 1e-3 => Ok(()),
                    Divided::Factor(factor) => write!(f, " times {factor:.4e}"),
                    Divided::Visible(factor) if (factor - 1.0).abs() < 1e-2 => {
                        f.write_str(" divided by the number of visible keys")
                    }
                    Divided::Visible(factor) => {
                        write!(
                            f,
                            " times {factor:.3} divided by the number of visible keys"
                        )
                    }
                    Divided::Sum => f.write_str(" divided by its sum"),
                }
            }
            Self::Sparsemax => f.write_str("sparsemax"),
            Self::Entmax15 => f.write_str("entmax with α = 1.5"),
            Self::Sparse => f.write_str("a sparse normaliser, such as sparsemax or entmax"),
            Self::Sinkhorn => f.write_str("Sinkhorn: rows and columns sum to 1"),
            Self::Linear { features } => f.write_str(match features {
                Features::Scores => "linear attention: scores divided by their sum",
                Features::Bare => {
                    "linear attention or retention: products of features, not divided"
                }
                Features::Mean => {
                    "dot products divided by the number of keys, as in non-local blocks"
                }
                Features::Elu => "linear attention with features elu(x) + 1",
                Features::Relu => "linear attention with features relu(x)",
                Features::Exp => "linear attention with features exp(x)",
                Features::Softmax => "linear attention with features softmax(x)",
            }),
            Self::Mixture { weight, is_signed } => write!(
                f,
                "a mixture: {weight:.3} times the softmax, plus a matrix {}that is added behind the softmax and does not depend on \
                 the scores",
                if *is_signed {
                    "with negative cells "
                } else {
                    ""
                }
            ),
            Self::Differential { lambda } if *lambda < 0.0 => {
                write!(
                    f,
                    "differential: one softmax plus {:.3} of another",
                    -lambda
                )
            }
            Self::Differential { lambda } => {
                write!(f, "differential: one softmax less {lambda:.3} of another")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice => f.write_str("the softmax was applied twice"),
            Self::Temperature(factor) => {
                write!(f, "it is the softmax of the scores times {factor:.4}")
            }
            Self::MaskedAfter => f.write_str(
                "it is the softmax over all keys with hidden keys set to 0 afterwards: rows keep what is left",
            ),
            Self::Scaled(factor) => write!(f, "it is the softmax times {factor:.4} in every row"),
            Self::RowFactors(least, most) => write!(
                f,
                "each row is the softmax times a factor of its own, from {least:.3} to {most:.3}: it was divided by the sum of \
                 other keys"
            ),
            Self::NoSum => f.write_str("it is exp(score), not divided by its sum"),
            Self::MaskAdded => {
                f.write_str("it is the softmax plus a mask: the mask was added behind the softmax")
            }
            Self::NoSoftmax => f.write_str("it is the scores themselves: the softmax is missing"),
        }
    }
}

impl Fault {
    /// Advice for fixing the fault.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Twice => {
                "remove one of the two: a module that returns probabilities is followed by a second softmax"
            }
            Self::Temperature(_) => {
                "compare the scale of the scores with what enters the softmax: a factor of √d or 1/√d is a scale applied twice, or \
                 left out of one of them"
            }
            Self::MaskedAfter => {
                "set hidden scores to −inf before the softmax, or divide each row by its sum afterwards"
            }
            Self::Scaled(_) => "look for a factor between softmax and values",
            Self::RowFactors(..) => {
                "look for a normalisation over other keys than those that are used: padding, a cache, a key that was cut off"
            }
            Self::MaskAdded => "add the mask to the scores, before the softmax",
            Self::NoSum | Self::NoSoftmax => {
                "normalise the scores over keys before they weigh the values"
            }
        }
    }
}
