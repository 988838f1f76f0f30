//! What a line of a log says of its batch: padding, documents, labels, and losses by position.

use serde::{Deserialize, Deserializer};

use super::line::Figure;
use super::masks::Masks;
use crate::layout::Layout;

/// What labels are, compared with the tokens of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Labels {
    /// The tokens one further on.
    Next,
    /// The tokens themselves, which the model shifts.
    Own,
    /// Some real tokens have none.
    Part,
    #[serde(other)]
    Other,
}

/// The token that a position reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    Own,
    /// The model shifts its input by one.
    Previous,
    #[serde(other)]
    Other,
}

/// A batch, as far as the monitor saw it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BatchFacts {
    /// Share of positions that are padding.
    #[serde(deserialize_with = "figure")]
    pub padding: Option<f64>,
    /// Mean number of documents in a row.
    #[serde(deserialize_with = "figure")]
    pub documents: Option<f64>,
    pub labels: Option<Labels>,
    /// Mean −log p of the next token at sampled positions, in nats.
    #[serde(deserialize_with = "figure")]
    pub next_loss: Option<f64>,
    /// The same of the token that a position holds itself.
    #[serde(deserialize_with = "figure")]
    pub own_loss: Option<f64>,
    /// Ranges of positions by their ends, exclusive, with the mean −log p of the next token in each.
    pub by_position: Vec<(u32, Loss)>,
    /// What a position reads of the tokens.
    pub reads: Option<Reads>,
    /// For each layer of the line, the share of its rows in which some head gives later keys anything.
    pub later_rows: Vec<Option<f64>>,
    /// For each layer of the line, the axis of its softmax if that is not the keys.
    pub over: Vec<Option<String>>,
    /// What the mask of each layer and head is, as far as its rows tell.
    pub masks: Option<Masks>,
}

impl BatchFacts {
    /// Moves what is said of layers to where a history has them.
    pub(crate) fn lay(&mut self, layout: &Layout) {
        self.later_rows = layout.of_layers(&self.later_rows);
        self.over = layout.of_layers(&self.over);
        if let Some(masks) = &mut self.masks {
            masks.lay(layout);
        }
    }
}

/// A loss in nats, if it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss(pub Option<f64>);

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        figure(from).map(Self)
    }
}

pub(super) fn figure<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    serde::de::DeserializeSeed::deserialize(Figure, from)
}
