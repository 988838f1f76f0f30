//! `attnscope lab variance --match`: gradients that hard and soft lookups return to queries and keys.

use anyhow::{Result, bail};
use attnscope_compute::sample::Distribution;
use attnscope_report::lab::{
    MATCH_COLUMNS, MatchReport, describe, match_figure, match_rows, match_table, match_words,
    write_match_json,
};
use attnscope_report::wrapped;
use attnscope_screen::figure_text;
use attnscope_studies::lab::{Match, MatchSetup, Similarity, match_lab};
use clap::ValueEnum;

use super::figures::{FigureArgs, Format};

/// How a lookup matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MatchArg {
    /// The best key alone: its value (argmax), and its value times its score (max)
    Hard,
    /// Softmax over all keys
    Soft,
}

/// How alike a query and a key are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimilarityArg {
    /// q·k/√d
    Dot,
    /// −‖q − k‖²/(2√d)
    Rbf,
    /// √d·cos(q, k)
    Cosine,
}

#[derive(Debug, clap::Args)]
pub struct MatchArgs {
    /// Gradients that a lookup sends back to its query and each of its keys, instead of variances
    #[arg(
        long = "match",
        value_name = "KIND,…",
        value_delimiter = ',',
        value_enum
    )]
    matches: Vec<MatchArg>,
    /// Score of a query and a key, with --match
    #[arg(long, value_enum, default_value_t = SimilarityArg::Dot)]
    similarity: SimilarityArg,
    /// What scores are divided by before the softmax, with --match soft [default: powers of two from 1/16 to 16]
    #[arg(long, value_name = "T,…", value_delimiter = ',')]
    temperature: Vec<f64>,
}

impl MatchArgs {
    /// Whether lookups were requested.
    ///
    /// # Errors
    /// When one of their flags was given without `--match`.
    pub fn is_asked(&self) -> Result<bool> {
        if self.matches.is_empty() && !self.temperature.is_empty() {
            bail!("--temperature: belongs to --match soft");
        }
        if self.matches.is_empty() && self.similarity != SimilarityArg::Dot {
            bail!("--similarity: belongs to --match hard|soft");
        }
        Ok(!self.matches.is_empty())
    }

    fn points(&self) -> Vec<(Match, f64)> {
        let usual = (-4..=4).map(|exponent| 2.0f64.powi(exponent));
        let temperatures = if self.temperature.is_empty() {
            usual.collect()
        } else {
            self.temperature.clone()
        };
        let mut points = Vec::new();
        if self.matches.contains(&MatchArg::Hard) {
            points.extend([(Match::Argmax, 0.0), (Match::Max, 0.0)]);
        }
        if self.matches.contains(&MatchArg::Soft) {
            points.extend(temperatures.into_iter().map(|t| (Match::Soft, t)));
        }
        points
    }
}

/// Sizes shared with the other simulations.
pub struct Sizes {
    pub d: usize,
    pub keys: usize,
    pub rows: usize,
    pub components: Distribution,
    pub seed: u64,
}

/// Runs the lookups.
///
/// # Errors
/// When they cannot be simulated, or a target cannot be written.
pub fn run(args: &MatchArgs, sizes: Sizes, figures: (&FigureArgs, bool)) -> Result<()> {
    let setup = MatchSetup {
        d: sizes.d,
        n_keys: sizes.keys,
        n_rows: sizes.rows,
        components: sizes.components,
        similarity: match args.similarity {
            SimilarityArg::Dot => Similarity::Dot,
            SimilarityArg::Rbf => Similarity::Rbf,
            SimilarityArg::Cosine => Similarity::Cosine,
        },
        matches: args.points(),
        seed: sizes.seed,
    };
    setup.check()?;
    let (figures, is_forced) = figures;
    let targets = figures.open(is_forced)?;
    let points = match_lab(&setup)?;
    let says = match_words(&setup, &points);
    let figure = match_figure(&setup, &points);
    let mut numbers = Vec::new();
    match figures.format {
        Format::Json => write_match_json(&MatchReport::of(&setup, &points, says), &mut numbers)?,
        Format::Csv => match_rows(&setup, &points).write_csv(true, &mut numbers)?,
        Format::Markdown => numbers = match_rows(&setup, &points).markdown().into_bytes(),
        Format::Text => {
            let width = figures.width();
            let about = format!(
                "{} lookups of {} keys, d = {}, similarity {}; {}, seed {}",
                setup.n_rows,
                setup.n_keys,
                setup.d,
                setup.similarity.formula(),
                describe(&setup.components),
                setup.seed
            );
            let mut text = wrapped(&about, width.into(), "") + "\n" + &figure_text(&figure, width);
            text += &match_table(&setup, &points);
            text.push('\n');
            text += &wrapped(MATCH_COLUMNS, width.into(), "");
            text.push('\n');
            for said in &says {
                text += &wrapped(said, width.into(), "  ");
            }
            numbers = text.into_bytes();
        }
    }
    targets.write(|| vec![figure], &numbers)
}
