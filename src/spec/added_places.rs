//! Rows that tell places, and are added to what queries and keys are made of in every layer.

use super::source::{LinearSource, TableSource};

/// Rows added to what queries, and keys, are made of (Carion et al. 2020, arXiv 2005.12872).
#[derive(Debug, Clone, PartialEq)]
pub struct AddedPlaces {
    pub of_queries: Option<PlaceRows>,
    pub of_keys: Option<PlaceRows>,
    /// Whether values are made of what keys are made of; otherwise they are made without the rows.
    pub reach_values: bool,
}

/// A row for each position.
#[derive(Debug, Clone, PartialEq)]
pub enum PlaceRows {
    /// Learned. // [position, d_model]
    Stored(TableSource),
    /// Learned ones, as a map without a bias makes them. // [position, n_in] → [position, d_model]
    Mapped(TableSource, Box<LinearSource>),
    /// Sines of the row, then of the column, in the map that given rows are places of. Both are counted from 1 and divided by their
    /// number, in turns; each sine is followed by the cosine of its frequency. // [position, d_model]
    Sines,
    /// Sines of the row, their cosines, then both of the column, in that map. Both are counted from 0, and frequencies fall from 1 to 1 over
    /// this number. // [position, d_model]
    SinesThenCosines(f64),
}

impl PlaceRows {
    pub fn table(&self) -> Option<&TableSource> {
        match self {
            Self::Stored(table) | Self::Mapped(table, _) => Some(table),
            Self::Sines | Self::SinesThenCosines(_) => None,
        }
    }

    /// The map that rows pass through.
    pub fn map(&self) -> Option<&LinearSource> {
        match self {
            Self::Mapped(_, map) => Some(map),
            Self::Stored(_) | Self::Sines | Self::SinesThenCosines(_) => None,
        }
    }

    /// Says what it is, for comparisons.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Stored(_) => "learned",
            Self::Mapped(..) => "learned, and mapped",
            Self::Sines => "sines of rows and columns",
            Self::SinesThenCosines(_) => "sines, then cosines, of rows and of columns",
        }
    }
}
