//! `attnscope sweep`: a softmax against the scale of its scores, for given scores or drawn ones.

use anyhow::Result;

use super::figures::{FigureArgs, Format};
use super::lab::family;
use crate::analysis::lab::{Drawn, Family, Wanted, sweep_drawn};
use crate::analysis::{Sweep, sweep_scales};
use crate::error::Error;
use crate::report::chart::Mark;
use crate::report::{Number, SweepShown, SweepSource, wrapped};
use crate::tui::figure_text;

/// The scores of the write-up about attention that collapsed.
const LOGITS: [f64; 4] = [1.0, 0.8, 0.3, -0.2];

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Scores of one row; -inf is a masked key [default: 1.0,0.8,0.3,-0.2]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "S,…",
        allow_hyphen_values = true,
        conflicts_with_all = ["norm", "mean", "std", "keys", "draws", "dist", "seed"]
    )]
    logits: Option<Vec<f64>>,
    /// Smallest scale
    #[arg(
        long,
        default_value_t = 0.1,
        allow_negative_numbers = true,
        value_name = "S"
    )]
    from: f64,
    /// Largest scale
    #[arg(
        long,
        default_value_t = 50.0,
        allow_negative_numbers = true,
        value_name = "S"
    )]
    to: f64,
    /// Scales in equal ratios; round ones (1, 2, 5 times powers of ten) and marks are added
    #[arg(long, default_value_t = 61, value_name = "N")]
    steps: usize,
    /// Mark 1/√d beside 1
    #[arg(long, value_name = "D")]
    d: Option<usize>,
    /// Draw rows with this norm
    #[arg(long, allow_negative_numbers = true, value_name = "X")]
    norm: Option<f64>,
    /// Draw rows with this mean
    #[arg(long, allow_negative_numbers = true, value_name = "X")]
    mean: Option<f64>,
    /// Draw rows with this standard deviation (the population's)
    #[arg(long, allow_negative_numbers = true, value_name = "X")]
    std: Option<f64>,
    /// Draw rows of this many keys
    #[arg(long, value_name = "N")]
    keys: Option<usize>,
    /// How many rows [default: 200]
    #[arg(long, value_name = "N")]
    draws: Option<usize>,
    /// What rows are drawn from, before they are moved and scaled [default: normal]
    #[arg(long, value_parser = family())]
    dist: Option<Family>,
    /// The same seed gives the same rows on every machine [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    figure: FigureArgs,
}

const HELP: &str = "\
Drawn rows: norm, mean, deviation and number of keys are tied, norm² = keys · (mean² + std²). Any three give the fourth; what is not
said is mean 0, 32 keys, deviation 1. Each row is drawn from --dist, then moved and scaled so that its own mean and deviation are
exactly the wanted ones; its norm follows. With norm, mean and deviation the number of keys is rounded, and the norm is what it then is.
The table has round scales, marks and the ends; JSON and CSV have every scale.";

/// Where one is without multiplying anything.
const NOW: &str = "now";

pub fn run(args: &Args) -> Result<()> {
    if args.d == Some(0) {
        return Err(Error::Setting("--d 0: expected 1 or more".to_owned()).into());
    }
    let mut marks = vec![Mark {
        at: 1.0,
        label: NOW.to_owned(),
    }];
    match args.d {
        Some(1) => marks[0].label = format!("{NOW}, 1/√1"),
        Some(d) => marks.push(Mark {
            at: 1.0 / (d as f64).sqrt(),
            label: format!("1/√{d}"),
        }),
        None => {}
    }
    // A mark outside of the interval is told, not drawn.
    let inside: Vec<f64> = marks
        .iter()
        .map(|mark| mark.at)
        .filter(|at| (args.from..=args.to).contains(at))
        .collect();
    let scales = sweep_scales(args.from, args.to, args.steps, &inside)?;
    let is_drawn = args.norm.is_some()
        || args.mean.is_some()
        || args.std.is_some()
        || args.keys.is_some()
        || args.draws.is_some()
        || args.dist.is_some()
        || args.seed.is_some();
    let targets;
    let (of, source, sweep, note) = if is_drawn {
        let wanted = Wanted {
            norm: args.norm,
            mean: args.mean,
            std: args.std,
            n_keys: args.keys,
        };
        let drawn = Drawn::of(wanted, args.dist.unwrap_or(Family::Normal))?;
        let (n_draws, seed) = (args.draws.unwrap_or(200), args.seed.unwrap_or(0));
        targets = args.figure.open()?;
        let sweep = sweep_drawn(&drawn, n_draws, seed, &scales)?;
        let note = drawn.asked_norm.map(|asked| {
            format!(
                "norm {asked} was asked for: {} keys with this mean and deviation have {:.4}",
                drawn.n_keys, drawn.norm
            )
        });
        (
            describe(&drawn, n_draws, seed),
            source_of(&drawn, n_draws, seed),
            sweep,
            note,
        )
    } else {
        let logits = args.logits.clone().unwrap_or(LOGITS.to_vec());
        check_logits(&logits)?;
        targets = args.figure.open()?;
        let mut sweep = Sweep::new(&scales);
        sweep.add_row(&logits);
        let said: Vec<String> = logits.iter().map(ToString::to_string).collect();
        let source = SweepSource::Logits {
            logits: logits.into_iter().map(Number).collect(),
        };
        (format!("scores {}", said.join(", ")), source, sweep, None)
    };
    let shown = SweepShown {
        of,
        source,
        sweep,
        marks: marks
            .into_iter()
            .filter(|mark| inside.contains(&mark.at))
            .collect(),
    };
    let mut numbers = Vec::new();
    match args.figure.format {
        Format::Json => shown.write_json(&mut numbers)?,
        Format::Csv => shown.write_csv(&mut numbers)?,
        Format::Text => {
            let width = args.figure.width();
            let mut text = figure_text(&shown.figure(), width) + &shown.table();
            for said in note.iter().chain(&left_out(&shown.sweep)) {
                text += &wrapped(said, width.into(), "  ");
            }
            numbers = text.into_bytes();
        }
    }
    targets.write(|| shown.figure(), &numbers)
}

fn check_logits(logits: &[f64]) -> Result<(), Error> {
    let refused = |problem: String| Err(Error::Setting(format!("--logits: {problem}")));
    let is_none = |score: &&f64| score.is_nan() || **score == f64::INFINITY;
    if let Some(score) = logits.iter().find(is_none) {
        return refused(format!(
            "expected finite numbers, or -inf for a masked key, found {score}"
        ));
    }
    let visible = logits.iter().filter(|score| score.is_finite()).count();
    if visible < 2 {
        return refused(format!(
            "expected two scores or more, found {visible}: one key has all the weight at any scale"
        ));
    }
    Ok(())
}

fn describe(drawn: &Drawn, n_draws: usize, seed: u64) -> String {
    format!(
        "{n_draws} {} rows of {} keys: norm {:.4}, mean {:.4}, std {:.4}, seed {seed}",
        drawn.family.id(),
        drawn.n_keys,
        drawn.norm,
        drawn.mean,
        drawn.std
    )
}

fn source_of(drawn: &Drawn, draws: usize, seed: u64) -> SweepSource {
    SweepSource::Drawn {
        distribution: drawn.family.id(),
        keys: drawn.n_keys,
        norm: Number(drawn.norm),
        mean: Number(drawn.mean),
        std: Number(drawn.std),
        draws,
        seed,
    }
}

/// Rows that do not count, where there are any.
fn left_out(sweep: &Sweep) -> Option<String> {
    let (single, broken) = (sweep.n_single(), sweep.n_not_finite());
    (single + broken > 0).then(|| {
        format!(
            "{} rows count; left out: {single} that see fewer than two keys, {broken} with a NaN or an infinity",
            sweep.n_rows()
        )
    })
}
