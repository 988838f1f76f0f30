//! One sentence on what the run shows so far: the heads of known types, and what checks found.

use std::cmp::Reverse;
use std::sync::Arc;

use attnscope_checkpoint::counted::counted;
use attnscope_checks::stats::{HeadType, LayerReport};
use attnscope_checks::{Severity, Status};
use attnscope_spec::Place;
use ratatui::text::{Line, Span};

use super::checks_line::{mark, style_of};
use crate::figure::cut;
use crate::state::run::{Run, RunState};
use crate::state::scene::Scene;

/// Types that are named first: what they do is known best. All others are counted by the letters on heads.
const TOLD: [HeadType; 5] = [
    HeadType::Induction,
    HeadType::Previous,
    HeadType::Duplicate,
    HeadType::First,
    HeadType::Broad,
];

/// Most types that are told.
const MOST_TYPES: usize = 3;
/// Most layers or heads that are listed.
const MOST_PLACES: usize = 3;
/// Most heads that are named as feeding induction heads.
const MOST_FEEDS: usize = 2;

/// The sentence, cut to a width; empty while nothing has run.
pub fn summary_line(app: Scene<'_>, width: u16) -> Line<'static> {
    let theme = &app.theme;
    let Some(run) = app.run() else {
        return Line::default();
    };
    let found = found(app, run);
    let (sign, style) = match worst(run) {
        Some(severity) => (mark(severity), style_of(theme, severity)),
        None if run.judgement.is_some() && run.nonfinite.is_none() => ("●", theme.good()),
        None => ("○", theme.dim()),
    };
    let room = usize::from(width).saturating_sub(4);
    // What is wrong must not be cut off.
    let room_of_heads = room.saturating_sub(found.chars().count() + 2);
    let heads = heads(app, room_of_heads);
    let text = match heads.as_str() {
        "" => found,
        heads => format!("{heads}; {found}"),
    };
    Line::from(vec![
        Span::styled(format!(" {sign} "), style),
        Span::raw(cut(&text, room)),
    ])
}

fn worst(run: &Run) -> Option<Severity> {
    let severities = run.findings.iter().map(|finding| finding.severity);
    severities.max().filter(|worst| *worst > Severity::Info)
}

/// The heads of known types and where they are, as far as they fit: `4 induction heads in L1, fed by L0H2, 2 previous token heads
/// in L0`.
fn heads(app: Scene<'_>, room: usize) -> String {
    let mut said = told(app, true);
    let is_too_long = |said: &[String]| said.join(", ").chars().count() > room;
    while said.len() > 1 && is_too_long(&said) {
        said.pop();
    }
    if is_too_long(&said) {
        said = told(app, false);
        said.truncate(1);
    }
    if is_too_long(&said) {
        said.clear();
    }
    said.join(", ")
}

/// One part of the sentence for each type that is told; `with_feeds` adds what feeds induction heads.
fn told(app: Scene<'_>, with_feeds: bool) -> Vec<String> {
    let Some(run) = app.run() else {
        return Vec::new();
    };
    let mut said = Vec::new();
    for kind in TOLD {
        let of_layer = |layer: &Arc<LayerReport>| -> Vec<Place> {
            let heads = layer.heads.iter().enumerate();
            let heads = heads.filter(|(_, head)| head.kind == Some(kind));
            heads
                .map(|(head_idx, _)| layer.place().head(head_idx))
                .collect()
        };
        let of_kind: Vec<Place> = run.layers.values().flatten().flat_map(of_layer).collect();
        if of_kind.is_empty() || said.len() == MOST_TYPES {
            continue;
        }
        let mut part = counted(of_kind.len(), &format!("{} head", kind.title()));
        if let Some(places) = places(&of_kind) {
            part = format!("{part} {places}");
        }
        if let Some(feeds) = feeds(run).filter(|_| with_feeds && kind == HeadType::Induction) {
            part = format!("{part}, fed by {feeds}");
        }
        said.push(part);
    }
    said
}

/// The heads that the keys of most induction heads read from; `None` if there are none.
fn feeds(run: &Run) -> Option<String> {
    let mut n_fed: Vec<(Place, usize)> = Vec::new();
    for (from, _) in &run.fed {
        match n_fed.iter_mut().find(|(place, _)| place == from) {
            Some((_, n)) => *n += 1,
            None => n_fed.push((*from, 1)),
        }
    }
    n_fed.sort_by_key(|(_, n)| Reverse(*n));
    let most = n_fed.iter().take(MOST_FEEDS);
    let names: Vec<String> = most.map(|(from, _)| from.to_string()).collect();
    (!names.is_empty()).then(|| names.join(" and "))
}

/// Where some heads are: the only ones by name, the others by their layers; nothing if those are many.
fn places(heads: &[Place]) -> Option<String> {
    if let [one] = heads {
        return Some(format!("({one})"));
    }
    let layer = |head: &Place| Place {
        head_idx: None,
        ..*head
    };
    let mut layers: Vec<String> = heads.iter().map(|head| layer(head).to_string()).collect();
    // Layers come in order, so equal ones are neighbours.
    layers.dedup();
    (layers.len() <= MOST_PLACES).then(|| format!("in {}", layers.join(", ")))
}

/// What checks found so far: `nothing wrong in 18 checks, 11 not run`.
fn found(app: Scene<'_>, run: &Run) -> String {
    if let Some(nonfinite) = &run.nonfinite {
        return nonfinite.to_string();
    }
    let Some(judgement) = run.judgement.as_deref() else {
        let n_done: usize = run.layers.values().map(Vec::len).sum();
        let n = app
            .subject()
            .map_or(n_done, |subject| subject.n_layers_to_run());
        return match &run.state {
            RunState::Ended(reason) | RunState::Broken(reason) => format!("stopped: {reason}"),
            RunState::Done { .. } => match &run.unjudged {
                Some(reason) => format!("not checked: {reason}"),
                None => "checks running".to_owned(),
            },
            RunState::Running(_) => format!("{n_done} of {n} layers so far, not yet checked"),
        };
    };
    let n_of = |severity: Severity| {
        run.findings
            .iter()
            .filter(|f| f.severity == severity)
            .count()
    };
    let statuses = || judgement.verdicts.iter().map(|(_, verdict)| verdict.status);
    let n_run = statuses().filter(|status| status.is_run()).count();
    let n_not = statuses()
        .filter(|status| *status == Status::NotTested)
        .count();
    let what = match (n_of(Severity::Error), n_of(Severity::Warning)) {
        (0, 0) => "nothing wrong".to_owned(),
        (0, n) => counted(n, "warning"),
        (n, 0) => counted(n, "error"),
        (n, warnings) => format!("{}, {}", counted(n, "error"), counted(warnings, "warning")),
    };
    let first = run
        .findings
        .iter()
        .find(|finding| finding.severity > Severity::Info);
    let first = first.map_or(String::new(), |finding| format!(" ({})", finding.check));
    let rest = match n_not {
        0 => String::new(),
        n => format!(", {n} not run"),
    };
    format!("{what}{first} in {}{rest}", counted(n_run, "check"))
}
