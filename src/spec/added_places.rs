//! Rows that tell places, and are added to what queries and keys are made of in every layer.

use std::f64::consts::TAU;

use super::feed_forward::MlpSpec;
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
    /// number; each sine is followed by the cosine of its frequency. // [position, d_model]
    Sines(SineScale),
    /// Sines of the row, their cosines, then both of the column, in that map. Both are counted from 0, and frequencies fall from 1 to 1 over
    /// this number. // [position, d_model]
    SinesThenCosines(f64),
    /// Rows that are multiplied by what a small network makes of those they are added to (Liu et al. 2022, arXiv 2201.12329).
    Scaled(Box<Self>, Box<MlpSpec>),
}

/// Frequencies of sines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SineScale {
    /// The angle of the last row, and of the last column, at the highest frequency.
    pub range: f64,
    /// Bases of the frequencies, of rows and of columns.
    pub thetas: [f64; 2],
}

impl SineScale {
    /// One turn, and the frequencies that DETR has.
    pub const USUAL: Self = Self {
        range: TAU,
        thetas: [10_000.0; 2],
    };
}

impl PlaceRows {
    pub fn table(&self) -> Option<&TableSource> {
        match self {
            Self::Stored(table) | Self::Mapped(table, _) => Some(table),
            Self::Sines(_) | Self::SinesThenCosines(_) => None,
            Self::Scaled(rows, _) => rows.table(),
        }
    }

    /// The network that makes their factors.
    pub fn factors(&self) -> Option<&MlpSpec> {
        match self {
            Self::Scaled(_, factors) => Some(factors),
            _ => None,
        }
    }

    /// The map that rows pass through.
    pub fn map(&self) -> Option<&LinearSource> {
        match self {
            Self::Mapped(_, map) => Some(map),
            Self::Stored(_) | Self::Sines(_) | Self::SinesThenCosines(_) => None,
            Self::Scaled(rows, _) => rows.map(),
        }
    }

    /// Says what it is, for comparisons.
    pub fn words(&self) -> String {
        let words = match self {
            Self::Stored(_) => "learned",
            Self::Mapped(..) => "learned, and mapped",
            Self::Sines(SineScale::USUAL) => "sines of rows and columns",
            Self::Sines(SineScale { range, thetas }) => {
                let [rows, columns] = thetas;
                return format!(
                    "sines of rows and columns, up to {range:.3}, of bases {rows} and {columns}"
                );
            }
            Self::SinesThenCosines(_) => "sines, then cosines, of rows and of columns",
            Self::Scaled(rows, _) => return format!("{}, scaled by each row", rows.words()),
        };
        words.to_owned()
    }
}
