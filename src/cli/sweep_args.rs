//! The flags of a sweep.

use std::path::PathBuf;

use attnscope_compute::error::Error;
use attnscope_compute::sample::Family;
use attnscope_report::chart::Mark;
use attnscope_run::sweep_scales;

use super::distribution_family::family;
use super::figures::FigureArgs;
use super::sweep_place::PlaceArgs;
use super::{PositionalPrompt, PromptArgs, RunArgs};

/// Range of scales in the write-up about collapsed attention.
const FROM: f64 = 0.1;
const TO: f64 = 50.0;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Sweep the scores of this checkpoint's heads: a directory or a weight file
    #[arg(requires = "where", conflicts_with_all = ["logits", "norm", "mean", "std", "keys", "draws", "dist", "seed", "d"])]
    pub checkpoint: Option<PathBuf>,
    #[command(flatten)]
    pub positional: PositionalPrompt,
    /// Scores of one row; -inf is a masked key [default: 1.0,0.8,0.3,-0.2]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "S,…",
        allow_hyphen_values = true,
        conflicts_with_all = ["norm", "mean", "std", "keys", "draws", "dist", "seed"]
    )]
    pub logits: Option<Vec<f64>>,
    #[command(flatten)]
    pub scales: ScaleArgs,
    /// Mark 1/√d beside 1
    #[arg(long, value_name = "D")]
    pub d: Option<usize>,
    #[command(flatten)]
    pub figure: FigureArgs,
    #[command(flatten, next_help_heading = "Drawn rows")]
    pub rows: RowArgs,
    #[command(flatten, next_help_heading = "Rows of a checkpoint")]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub prompt: PromptArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Which scales.
#[derive(Debug, clap::Args)]
pub struct ScaleArgs {
    /// Smallest scale [default: 0.1, or the smallest mark]
    #[arg(long, allow_negative_numbers = true, value_name = "S")]
    from: Option<f64>,
    /// Largest scale [default: 50, or the largest mark]
    #[arg(long, allow_negative_numbers = true, value_name = "S")]
    to: Option<f64>,
    /// Scales in equal ratios; round ones (1, 2, 5 times powers of ten) and marks are added
    #[arg(long, default_value_t = 61, value_name = "N")]
    steps: usize,
}

/// What drawn rows are to be like.
#[derive(Debug, clap::Args)]
pub struct RowArgs {
    /// Draw rows with this norm
    #[arg(long, allow_negative_numbers = true, value_name = "X")]
    pub norm: Option<f64>,
    /// Draw rows with this mean
    #[arg(long, allow_negative_numbers = true, value_name = "X")]
    pub mean: Option<f64>,
    /// Draw rows with this standard deviation (the population's)
    #[arg(long, allow_negative_numbers = true, value_name = "X")]
    pub std: Option<f64>,
    /// Draw rows of this many keys
    #[arg(long, value_name = "N")]
    pub keys: Option<usize>,
    /// How many rows [default: 200]
    #[arg(long, value_name = "N")]
    pub draws: Option<usize>,
    /// Distribution of the rows, before they are shifted and scaled [default: normal]
    #[arg(long, value_parser = family())]
    pub dist: Option<Family>,
}

const HELP: &str = "\
Drawn rows: norm, mean, deviation and number of keys are tied, norm² = keys · (mean² + std²). Any three give the fourth. \
Without flags they are mean 0, deviation 1 and 32 keys. Each row is drawn from --dist, then moved and scaled so that its own mean and deviation are \
exactly the wanted ones; its norm follows. With norm, mean and deviation the number of keys is rounded, and the norm follows from it. \
The table has round scales, marks and the ends; JSON and CSV have every scale.";

impl ScaleArgs {
    /// Returns the scales, including the marks. A missing end of the range extends to the marks.
    ///
    /// # Errors
    /// When the requested range is not an interval.
    pub fn with(&self, marks: &[Mark]) -> Result<Vec<f64>, Error> {
        let at = || marks.iter().map(|mark| mark.at).filter(|at| *at > 0.0);
        let from = self.from.unwrap_or_else(|| at().fold(FROM, f64::min));
        let to = self.to.unwrap_or_else(|| at().fold(TO, f64::max));
        let inside: Vec<f64> = at().filter(|at| (from..=to).contains(at)).collect();
        sweep_scales(from, to, self.steps, &inside)
    }
}
