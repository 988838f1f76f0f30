//! `attnscope sweep`: a softmax against the scale of its scores, which are given, random, or from a checkpoint's heads.

use anyhow::Result;
use attnscope_checkpoint::counted::counted;
use attnscope_compute::error::Error;
use attnscope_compute::sample::Family;
use attnscope_report::chart::Mark;
use attnscope_report::{NOW, Number, SweepShown, SweepSource, wrapped};
use attnscope_run::Sweep;
use attnscope_screen::figure_text;
use attnscope_studies::lab::{Drawn, Wanted, sweep_drawn};

use super::figures::{Format, Targets};
use super::sweep_args::Args;
use super::sweep_checkpoint::{self, Swept};

/// Scores from the write-up about collapsed attention.
const LOGITS: [f64; 4] = [1.0, 0.8, 0.3, -0.2];
const DRAWS: usize = 200;

pub fn run(args: &Args) -> Result<()> {
    if let Some(checkpoint) = &args.checkpoint {
        let Swept {
            targets,
            shown,
            notes,
        } = sweep_checkpoint::run(args, checkpoint)?;
        return write(args, targets, &shown, &notes);
    }
    if args.positional.with(&args.prompt)?.request()?.is_some() {
        let problem = "expected a CHECKPOINT to run the prompt, found none";
        return Err(Error::Prompt(problem.to_owned()).into());
    }
    let marks = marks(args.d)?;
    let scales = args.scales.with(&marks)?;
    let targets = args.figure.open(args.run.force)?;
    let rows = &args.rows;
    let is_drawn = [rows.norm, rows.mean, rows.std].iter().any(Option::is_some)
        || rows.keys.is_some()
        || rows.draws.is_some()
        || rows.dist.is_some()
        || args.prompt.seed.is_some();
    let (shown, notes) = if is_drawn {
        drawn(args, &scales, marks)?
    } else {
        (given(args, &scales, marks)?, Vec::new())
    };
    write(args, targets, &shown, &notes)
}

fn marks(d: Option<usize>) -> Result<Vec<Mark>, Error> {
    let now = |label: String| Mark { at: 1.0, label };
    Ok(match d {
        None => vec![now(NOW.to_owned())],
        Some(0) => return Err(Error::Setting("--d 0: expected 1 or more".to_owned())),
        Some(1) => vec![now(format!("{NOW}, 1/√1"))],
        Some(d) => vec![
            now(NOW.to_owned()),
            Mark {
                at: 1.0 / (d as f64).sqrt(),
                label: format!("1/√{d}"),
            },
        ],
    })
}

/// Sweeps the given row.
fn given(args: &Args, scales: &[f64], marks: Vec<Mark>) -> Result<SweepShown> {
    let logits = args.logits.clone().unwrap_or(LOGITS.to_vec());
    check_logits(&logits)?;
    let mut sweep = Sweep::new(scales);
    sweep.add_row(&logits);
    let said: Vec<String> = logits.iter().map(ToString::to_string).collect();
    Ok(SweepShown {
        of: format!("scores {}", said.join(", ")),
        source: SweepSource::Logits {
            logits: logits.into_iter().map(Number).collect(),
        },
        sweep,
        marks,
    })
}

/// Largest score; larger ones would overflow when multiplied.
const MOST: f64 = 1e100;

fn check_logits(logits: &[f64]) -> Result<(), Error> {
    let refused = |problem: String| Err(Error::Setting(format!("--logits: {problem}")));
    let is_none = |score: &&f64| score.is_nan() || **score == f64::INFINITY;
    if let Some(score) = logits.iter().find(is_none) {
        return refused(format!(
            "expected finite numbers, or -inf for a masked key, found {score}"
        ));
    }
    if let Some(score) = logits.iter().find(|s| s.is_finite() && s.abs() > MOST) {
        return refused(format!("expected numbers up to {MOST:e}, found {score:e}"));
    }
    let visible = logits.iter().filter(|score| score.is_finite()).count();
    if visible < 2 {
        return refused(format!(
            "expected two scores or more, found {visible}: one key has all the weight at any scale"
        ));
    }
    Ok(())
}

/// Sweeps random rows; returns notes about them as well.
fn drawn(args: &Args, scales: &[f64], marks: Vec<Mark>) -> Result<(SweepShown, Vec<String>)> {
    let rows = &args.rows;
    let wanted = Wanted {
        norm: rows.norm,
        mean: rows.mean,
        std: rows.std,
        n_keys: rows.keys,
    };
    let drawn = Drawn::of(wanted, rows.dist.unwrap_or(Family::Normal))?;
    let (draws, seed) = (rows.draws.unwrap_or(DRAWS), args.prompt.seed.unwrap_or(0));
    let sweep = sweep_drawn(&drawn, draws, seed, scales)?;
    let note = drawn.asked_norm.map(|asked| {
        format!(
            "norm {asked} was asked for: {} keys with this mean and deviation have {:.4}",
            drawn.n_keys, drawn.norm
        )
    });
    let family = drawn.family.id();
    let short = |value: f64| format!("{value:.3}");
    let shown = SweepShown {
        of: format!(
            "{draws} {family} rows of {} keys: norm {}, mean {}, std {}, seed {seed}",
            drawn.n_keys,
            short(drawn.norm),
            short(drawn.mean),
            short(drawn.std)
        ),
        source: SweepSource::Drawn {
            distribution: family,
            keys: drawn.n_keys,
            norm: Number(drawn.norm),
            mean: Number(drawn.mean),
            std: Number(drawn.std),
            draws,
            seed,
        },
        sweep,
        marks,
    };
    Ok((shown, note.into_iter().collect()))
}

/// Writes the numbers and the figure.
///
/// # Errors
/// When a target cannot be written.
fn write(args: &Args, targets: Targets, shown: &SweepShown, notes: &[String]) -> Result<()> {
    let mut numbers = Vec::new();
    match args.figure.format {
        Format::Json => shown.write_json(&mut numbers)?,
        Format::Csv => shown.rows().write_csv(true, &mut numbers)?,
        Format::Markdown => numbers = shown.rows().markdown().into_bytes(),
        Format::Text => {
            let width = args.figure.width();
            let mut text = figure_text(&shown.figure(), width) + &shown.table();
            for said in notes.iter().chain(&left_out(&shown.sweep)) {
                text += &wrapped(said, width.into(), "  ");
            }
            numbers = text.into_bytes();
        }
    }
    targets.write(|| vec![shown.figure()], &numbers)
}

/// Describes rows that do not count, if there are any.
fn left_out(sweep: &Sweep) -> Option<String> {
    let (single, broken) = (sweep.n_single(), sweep.n_not_finite());
    (single + broken > 0).then(|| {
        format!(
            "counted: {}; left out: {single} with fewer than two visible keys, {broken} with a NaN or an infinity",
            counted(sweep.n_rows() as usize, "row")
        )
    })
}
