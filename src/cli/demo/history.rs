//! The story of a training whose attention collapses midway: when it began, how it looked before, at the onset and after, and which
//! statistic told of it first.

use anyhow::{Result, bail};
use attnscope_checkpoint::counted::counted;
use attnscope_checks::stats::Stat;
use attnscope_checks::{Severity, Thresholds};
use attnscope_history::{Finding, History, Judge, events, heading, of_event, of_text};
use attnscope_report::{digits, text_table, wrapped};
use attnscope_screen::{HistoryView, Steps, Training};

use super::ran::Ran;
use super::story::Telling;
use crate::bundles::{COLLAPSING_LOG, STEADY_LOG, named};

/// What the demo is called.
pub const NAME: &str = "history";
/// What is shown of a head before, at the onset, and after.
const SHOWN: [Stat; 5] = [
    Stat::EntropyRelative,
    Stat::MaxAbsScore,
    Stat::SaturatedRows,
    Stat::QNorm,
    Stat::KNorm,
];
/// What happened to the training, as its fixture has it.
const SLIP: &str = "After step 150 the weight decay of this training had the wrong sign: every matrix grew by 1.2 % a step.";
/// Columns of text.
const WIDTH: usize = 110;
/// The three checkpoints that are compiled in, with the step of each; the last one is open when the screen begins.
const CHECKPOINTS: [(&str, u64); 3] = [
    ("history-step-150", 150),
    ("history-step-250", 250),
    ("history-step-400", 400),
];

/// The history, as `attnscope history run.jsonl` judges it.
///
/// # Errors
/// Never for a program that was built from a complete source tree.
pub fn judged() -> Result<(History, Judge)> {
    judged_log("history", COLLAPSING_LOG)
}

fn judged_log(name: &str, log: &str) -> Result<(History, Judge)> {
    let history = of_text(name, log)?;
    let mut judge = Judge::new(Thresholds::default());
    judge.look(&history);
    Ok((history, judge))
}

/// The history as the screen shows it: its last checkpoint is open.
///
/// # Errors
/// Never for a program that was built from a complete source tree.
pub fn training() -> Result<Training> {
    let (history, judge) = judged()?;
    let of = |(name, step): (&str, u64)| Some((step, named(name)?));
    let bundles = CHECKPOINTS.into_iter().filter_map(of).collect();
    let mut view = HistoryView::whole(history, judge, Steps::Bundled(bundles));
    let [.., (_, last)] = CHECKPOINTS;
    view.is_opened_at(last);
    Ok(Training { view, reader: None })
}

pub fn figures(telling: &Telling<'_>) -> Result<String> {
    let (history, judge) = judged()?;
    let errors = judge.findings().iter();
    let errors: Vec<Finding> = errors
        .filter(|finding| finding.severity == Severity::Error)
        .cloned()
        .collect();
    let Some(first) = errors.first() else {
        bail!("{}: the log of the demo has no error", history.name);
    };
    let mut text = format!("{}\n{}\n", heading(&history), wrapped(SLIP, WIDTH, ""));
    for event in events(&errors) {
        text += &of_event(&history, &event);
    }
    text += &format!(
        "\n{}\n{}",
        warned(&history, &errors),
        moments(&history, first)
    );
    text += &format!("\n{}", twin(first)?);
    text += &format!("\n{}", checkpoints(telling, first)?);
    Ok(text)
}

/// What is found in the training without the slip.
fn twin(finding: &Finding) -> Result<String> {
    let (history, judge) = judged_log("history_steady", STEADY_LOG)?;
    let found = match (judge.findings().len(), judge.trends().len()) {
        (0, 0) => "no findings, and no trend towards one".to_owned(),
        (n, m) => format!("{}, {}", counted(n, "finding"), counted(m, "trend")),
    };
    let last = history.records().len().saturating_sub(1);
    let value = digits(history.at(last, finding.statistic, finding.cell));
    let title =
        Stat::named(finding.statistic).map_or(finding.statistic, |stat| stat.statistic().title);
    let text = format!(
        "Its twin without the slip, on the same texts: {found}. At {} {title} of {} is {value}.",
        history.records()[last].label(),
        finding.place
    );
    Ok(wrapped(&text, WIDTH, ""))
}

/// Which statistic was on its way to a threshold first, and how long before the finding that it warned of.
fn warned(history: &History, errors: &[Finding]) -> String {
    let warnings = errors.iter().filter_map(|finding| {
        let (at, statistic) = finding.warned?;
        Some((at, statistic, finding))
    });
    let Some((at, statistic, finding)) = warnings.min_by_key(|(at, ..)| *at) else {
        return wrapped(
            "No statistic had a trend towards a threshold for long enough to show.",
            WIDTH,
            "",
        );
    };
    let title = Stat::named(statistic).map_or(statistic, |stat| stat.statistic().title);
    let label = |idx: usize| history.records()[idx].label();
    let first = match errors.first() {
        Some(first) if first.warned.is_none() => {
            let n = first.begin - first.from.map_or(first.begin, |(since, _)| since);
            format!(
                "{} collapsed within {n} records, too fast for a trend. ",
                first.place
            )
        }
        _ => String::new(),
    };
    let text = format!(
        "{first}{title} of {} warned first: its trend towards the threshold shows at {}, {} steps before {} begins at {}.",
        finding.place,
        label(at),
        history.x(finding.begin) - history.x(at),
        finding.check,
        label(finding.begin)
    );
    wrapped(&text, WIDTH, "")
}

/// The head of a finding before the move, at the onset, and at the end.
fn moments(history: &History, finding: &Finding) -> String {
    let before = finding.from.map_or(0, |(idx, _)| idx);
    let last = history.records().len().saturating_sub(1);
    let mut titles = vec!["", "step", "loss"];
    let shown = SHOWN
        .iter()
        .filter(|stat| history.column(stat.id()).is_some());
    let shown: Vec<Stat> = shown.copied().collect();
    titles.extend(shown.iter().map(|stat| stat.statistic().title));
    let row = |(word, idx): (&str, usize)| {
        let record = &history.records()[idx];
        let step = record.step.map_or(String::new(), |step| step.to_string());
        let mut row = vec![
            word.to_owned(),
            step,
            record.loss().map_or(String::new(), digits),
        ];
        row.extend(
            shown
                .iter()
                .map(|stat| digits(history.at(idx, stat.id(), finding.cell))),
        );
        row
    };
    let rows: Vec<Vec<String>> = [
        ("before", before),
        ("onset", finding.begin),
        ("after", last),
    ]
    .map(row)
    .into();
    format!("{}\n{}", finding.place, text_table(&titles, &rows))
}

/// The three checkpoints, run on a text.
fn checkpoints(telling: &Telling<'_>, finding: &Finding) -> Result<String> {
    let mut rows = Vec::new();
    let (layer, head) = (
        finding.place.layer_idx.unwrap_or(0),
        finding.place.head_idx.unwrap_or(0),
    );
    for (name, _) in CHECKPOINTS {
        let ran = Ran::of(telling, name, &[])?;
        let stats = ran
            .layers
            .get(layer)
            .and_then(|layer| layer.heads.get(head));
        let of = |stat: Stat| stats.map_or(f64::NAN, |head| head.stats.of(stat));
        let loss = ran.loss().unwrap_or(f64::NAN);
        let mut row = vec![name.to_owned(), digits(loss)];
        row.extend(SHOWN.map(|stat| digits(of(stat))));
        rows.push(row);
    }
    let mut titles = vec!["checkpoint", "loss"];
    titles.extend(SHOWN.map(|stat| stat.statistic().title));
    Ok(format!(
        "{} of the checkpoints, on one text\n{}",
        finding.place,
        text_table(&titles, &rows)
    ))
}
