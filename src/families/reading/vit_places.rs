//! What says where a patch of a model like ViT lies, besides a grid of stored positions: lines, moments, and turning.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::attention::{GridFrequencies, GridPlaces, GridTurn, RopeSpec};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{LinePositions, Sines};
use serde_json::Value;

use super::rope::stated;
use super::vit_pictures::Pictures;

/// Learned tokens whose positions are stored behind those of the patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    None,
    Class,
    Registers,
}

/// Stored positions of rows and of columns.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    /// The tensors of rows and of columns; one of both holds columns first.
    pub tensors: [&'static str; 2],
    /// The key of how many are stored, and its default.
    pub n: (&'static str, usize),
    /// The stored row of the first line.
    pub first: usize,
}

/// The moments of a video: a picture is seen as one that stands still.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// The key of the number of frames, and its default. A moment is as many frames as the kernel sees at once.
    pub frames: (&'static str, usize),
    /// Positions that are computed, all moments in one line.
    pub sines: Option<Sines>,
    /// What the stored positions are of.
    pub places: MomentPlaces,
    /// Whether each moment has a copy of the class token.
    pub have_classes: bool,
}

/// What the stored positions of a video are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MomentPlaces {
    /// Each place of each moment.
    All,
    /// The places of one moment, which those of all others share.
    Shared,
    /// The same, with a row for each moment besides.
    SharedAnd(&'static str),
}

/// How patches turn by row and column, each counted from a number.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub theta: f64,
    pub first: usize,
    pub frequencies: GridFrequencies,
    pub interleaved: bool,
}

impl Turn {
    /// Turning from 0, with the frequencies of rows first.
    pub const PLAIN: Self = Self {
        theta: 10_000.0,
        first: 0,
        frequencies: GridFrequencies::Shared,
        interleaved: false,
    };
}

impl Lines {
    /// Reads how many there are.
    ///
    /// # Errors
    /// When their number is impossible.
    pub(super) fn read(
        self,
        reader: &mut Reader<'_>,
        base: &str,
        d_model: usize,
    ) -> Result<[LinePositions; 2]> {
        let (key, default) = self.n;
        let n = reader.size_or("n_lines", key, default, Origin::Default(key.to_owned()))?;
        let is_one = self.tensors[0] == self.tensors[1];
        reader.note("positions", "learned, by row and by column", Origin::Family);
        Ok([0, 1].map(|axis| LinePositions {
            tensor: format!("{base}{}", self.tensors[axis]),
            shape: if is_one {
                vec![2, n, d_model]
            } else {
                vec![n, d_model]
            },
            first: self.first + if is_one && axis == 0 { n } else { 0 },
            n: n.saturating_sub(self.first),
        }))
    }
}

impl Pictures {
    /// Reads how patches turn; `n_first` is the number of tokens before them.
    pub(super) fn rope(
        &self,
        reader: &mut Reader<'_>,
        n_first: usize,
        d_head: usize,
    ) -> Result<Option<RopeSpec>> {
        let Some(turn) = self.turn else {
            return Ok(None);
        };
        let theta = theta(reader, turn.theta)?;
        let by_thirds = matches!(
            turn.frequencies,
            GridFrequencies::BehindTime | GridFrequencies::BehindTimeInTurn
        );
        let fits = if by_thirds {
            d_head >= 6
        } else {
            d_head.is_multiple_of(4)
        };
        if d_head == 0 || !fits {
            let expected = if by_thirds {
                "6 or more"
            } else {
                "a multiple of 4"
            };
            let problem = format!("expected heads whose width is {expected}, found {d_head}");
            return Err(Error::config(reader.path(), "num_attention_heads", problem));
        }
        reader.note("positions", "rotary, by row and column", Origin::Family);
        let d_rotary = if by_thirds { d_head / 6 * 6 } else { d_head };
        Ok(Some(RopeSpec {
            d_rotary,
            interleaved: turn.interleaved,
            grid: Some(GridTurn {
                n_first,
                grid: None,
                places: GridPlaces::From(turn.first),
                frequencies: turn.frequencies,
            }),
            ..RopeSpec::plain(theta, d_head)
        }))
    }
}

/// The base of the frequencies, at the top of the configuration or among its rotary parameters, which state nothing else.
///
/// # Errors
/// When it is impossible, or other parameters are stated.
pub fn theta(reader: &mut Reader<'_>, default: f64) -> Result<f64> {
    const KEYS: [&str; 2] = ["rope_parameters", "rope_scaling"];
    let mut inside = None;
    for key in KEYS {
        for (name, value) in stated(reader, key)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let is_known = match name.as_str() {
                "rope_theta" => value.as_f64().map(|theta| inside = Some(theta)).is_some(),
                "rope_type" | "type" => matches!(value.as_str(), Some("axial" | "default")),
                "mrope_section" => true,
                _ => value.is_null(),
            };
            if !is_known {
                let at = format!("{key}.{name}");
                let problem =
                    format!("expected nothing but a base of axial frequencies, found {value}");
                return Err(Error::config(reader.path(), at, problem));
            }
        }
    }
    let theta = reader.number_or("rope_theta", "rope_theta", inside.unwrap_or(default))?;
    if theta <= 0.0 {
        let problem = format!("expected more than 0, found {theta}");
        return Err(Error::config(reader.path(), "rope_theta", problem));
    }
    Ok(theta)
}
