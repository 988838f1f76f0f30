//! The first line: what is open, the current place in it, what runs, and the worst finding.

use attnscope_checkpoint::counted::counted;
use attnscope_checks::Severity;
use attnscope_run::{Progress, Step, Subject};
use attnscope_spec::Place;
use attnscope_worker::Against;
use ratatui::layout::{Position, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::figure::{bar, cut, cut_left, cut_words};
use super::panels;
use super::panels::checks_counts::n_not_run;
use super::state::keys::Action;
use super::state::panel::Panel;
use super::state::run::{Preparing, Run, RunState};
use super::state::runs::{Second, SecondRunKind, Shows};
use super::state::scene::Scene;
use super::state::shown_name::name_of;

/// Below this width, less important words give their room to names.
pub(super) const NARROW: u16 = 100;
/// Below this width, the name of the program gives its room to two runs.
const WIDE: u16 = 140;
/// Columns of the line besides the badge and the words of a gauge: the least of a name, and what stands between.
const BESIDE_GAUGE: usize = 26;

/// Builds line 1: what is open, what runs, and the worst finding.
pub fn header(app: Scene<'_>, width: u16) -> Line<'static> {
    if (app.panel == Panel::History || app.subject().is_none())
        && let Some((left, right)) = panels::history_head::header(app, width)
    {
        return spread(left, right, width);
    }
    let theme = &app.theme;
    // On a narrow terminal, leave the room to the name of what is open.
    let is_crowded = app.runs.b.is_some() && width < WIDE;
    let program = if width < NARROW || is_crowded {
        " "
    } else {
        " attnscope  "
    };
    let mut left = vec![Span::styled(program, theme.title())];
    let mut shown_facts = None;
    match app.subject() {
        None => left.push(Span::raw(format!("opening {} …", app.opening))),
        Some(subject) => {
            // When there is a B, show A's name too, whichever side is shown.
            // A story is about runs of its own, whatever is compared in the other panels.
            let second = app.runs.b.as_ref().filter(|_| app.panel != Panel::Story);
            let a = app.runs.a.as_ref().filter(|_| app.runs.b.is_some());
            let name = a.map_or_else(|| name_of(subject), |a| name_of(&a.subject));
            // Leave room for the current place: cut a long name on the left, because its end says more than its beginning.
            let name = cut_left(&name, (width as usize / 3).max(16));
            left.push(Span::styled(name, theme.strong()));
            left.extend(made_otherwise(app));
            let crumbs = Span::raw(PLACE);
            match second {
                // Panels show B or the difference, not the checkpoint alone: more important than any fact.
                Some(second) => {
                    left.extend(banner(app, second, width as usize / 2));
                    left.push(crumbs);
                }
                None => {
                    left.push(crumbs);
                    shown_facts = Some(facts(app, subject));
                }
            }
        }
    }
    let mut right = Vec::new();
    if let Some(Preparing::Target { n_written, n_most }) = app.preparing {
        let share = n_written as f32 / n_most as f32;
        let count = format!("{n_written} of at most {n_most}");
        right.extend(gauge(app, width, share, ("writing the target", &count)));
    } else if let Some(Preparing::Code { n_done, n }) = app.preparing {
        let count = match n {
            0 => String::new(),
            n => format!("{n_done} of {n} layers"),
        };
        let share = n_done as f32 / n.max(1) as f32;
        right.extend(gauge(app, width, share, ("running the code", &count)));
    } else if let Some(run) = app.run() {
        match &run.probing {
            Some(step) => right.extend(of_step(app, width, step)),
            None => right.extend(state_of(app, width, run)),
        }
        let is_idle = !run.is_running() && run.probing.is_none();
        if let Some((n_done, n)) = app.prompts_view.progress().filter(|_| is_idle) {
            let count = format!("{n_done} of {n}");
            let share = n_done as f32 / n.max(1) as f32;
            right = gauge(app, width, share, ("prompts", &count));
        }
        if let Some(step) = app.compares_now().filter(|_| run.probing.is_none()) {
            right = match step {
                Some(step) => of_step(app, width, step),
                None => gauge(app, width, 0.0, ("comparing", "")),
            };
        }
        right.push(Span::raw("  "));
        right.push(badge(app, run));
        right.push(Span::raw(" "));
    }
    // The place that fits uncut: the tabs name the panel, and its frame the head.
    let used: usize = left.iter().chain(&right).map(Span::width).sum();
    if let Some(place) = left.iter_mut().find(|span| span.content == PLACE) {
        let room = (width as usize + place.width()).saturating_sub(used + 1);
        let fits = |crumbs: &String| Span::raw(crumbs.as_str()).width() <= room;
        *place = Span::raw(crumbs(app).into_iter().find(fits).unwrap_or_default());
    }
    // Show as many facts as fit uncut.
    let used: usize = left.iter().chain(&right).map(Span::width).sum();
    // Reserve room for a longer run time, so that it does not hide a fact.
    let for_time = app.run().map_or(0, |run| spare_room_of_time(app, run));
    let mut room = (width as usize).saturating_sub(used + for_time + 2);
    let mut facts = shown_facts.unwrap_or_default();
    let mut by_weight: Vec<usize> = (0..facts.len()).collect();
    by_weight.sort_by_key(|idx| facts[*idx].0);
    for idx in by_weight {
        let width = 3 + Span::raw(facts[idx].1.as_str()).width();
        match room.checked_sub(width) {
            Some(left) => room = left,
            None => facts[idx].1.clear(),
        }
    }
    let facts = facts.into_iter().filter(|(_, fact)| !fact.is_empty());
    left.extend(facts.map(|(_, fact)| Span::styled(format!(" · {fact}"), theme.dim())));
    spread(left, right, width)
}

/// Stands for the current place until its room is known.
const PLACE: &str = " ›";

/// The current place in the model: the panel, plus layer and head if the panel is about one; the longest form first.
fn crumbs(app: Scene<'_>) -> Vec<String> {
    let panel = app.panel.title();
    let at = app.selection;
    let is_of_all = matches!(app.panel, Panel::Model | Panel::Checks | Panel::Story);
    if is_of_all || app.run().is_none() || app.n_heads() == 0 {
        return vec![format!(" › {panel}")];
    }
    let layer = Place::layer(at.stack, at.layer_idx);
    let whole = format!(" › {panel} › {layer} › H{}", at.head_idx);
    vec![whole, format!(" › {panel}")]
}

/// Whether a position of the line is on the badge of findings.
pub fn is_badge(app: Scene<'_>, line: Rect, (column, row): (u16, u16)) -> bool {
    let width = app.run().map_or(0, |run| badge(app, run).width() as u16);
    let end = line.right().saturating_sub(1);
    line.contains(Position::new(column, row)) && (end.saturating_sub(width)..end).contains(&column)
}

/// Facts about what is open: kind, sizes, element type and device, each with its priority for room (0 first).
fn facts(app: Scene<'_>, subject: &Subject) -> Vec<(u8, String)> {
    let sizes = subject.sizes();
    let n_layers: Vec<String> = sizes.n_layers.iter().map(usize::to_string).collect();
    let kv = match sizes.n_kv_heads {
        n if n == sizes.n_heads => String::new(),
        n => format!(" ({n} kv)"),
    };
    let layers = n_layers.join("+");
    let heads = match fewest_and_most(subject) {
        Some([fewest, most]) => format!("{layers} × {fewest}–{most} heads"),
        None => format!("{layers} × {}{kv}", counted(sizes.n_heads, "head")),
    };
    let parts = [
        Some((0, subject.kind().to_owned())),
        Some((1, heads)),
        sizes.d_head.map(|d_head| (4, format!("d_head {d_head}"))),
        // Without weights there is no element type.
        Some((3, subject.dtype_label())).filter(|(_, label)| !label.is_empty()),
        Some((2, app.device.to_string())),
    ];
    parts.into_iter().flatten().collect()
}

/// The numbers of heads of the layers with fewest and with most, if they differ.
fn fewest_and_most(subject: &Subject) -> Option<[usize; 2]> {
    let grids = subject.shape();
    let of_layers = || {
        grids
            .iter()
            .flat_map(|grid| &grid.n_heads)
            .filter(|n| **n > 0)
    };
    let (fewest, most) = (of_layers().min()?, of_layers().max()?);
    (fewest != most).then_some([*fewest, *most])
}

/// What sets A apart, if it is a run of before that is not the text through the checkpoint as it is.
fn made_otherwise(app: Scene<'_>) -> Option<Span<'static>> {
    let seen = app.seen_of(app.runs.a.as_ref()?)?;
    let apart = Some(seen.apart()).filter(|apart| !apart.is_empty())?;
    let words = format!("  A: {} ", cut(&apart, MOST_APART));
    Some(Span::styled(words, app.theme.notable()))
}

/// Columns of what sets A apart.
const MOST_APART: usize = 30;

/// Room of the banner below which it says which side is shown, and no more.
const SHORT_NOTE: u16 = 70;

/// How B was made, and which side is shown.
fn banner(app: Scene<'_>, second: &Second, room: usize) -> [Span<'static>; 3] {
    let style = app
        .theme
        .notable()
        .add_modifier(Modifier::REVERSED | Modifier::BOLD);
    // A panel that has no differences shows B, and the banner says so.
    let side = match app.runs.shows {
        Shows::Difference if !app.panel.has_differences() => Shows::B,
        side => side,
    };
    let [what, mut note] = second.way.banner(side);
    if room < usize::from(SHORT_NOTE) {
        note = note.split(',').next().unwrap_or(note);
    }
    // The shown side must stay readable: cut a long name on the left, because its end says more than its beginning.
    let room = room.saturating_sub(what.len() + note.len() + 6);
    let words = match second.way {
        SecondRunKind::WhatIf(_) | SecondRunKind::Against(Against::Reload) => second.way.words(),
        SecondRunKind::Against(Against::Target(_)) => cut_left(&second.way.words(), room),
        SecondRunKind::Against(Against::Prompt(_)) | SecondRunKind::Earlier(..) => {
            cut(&second.way.words(), room)
        }
    };
    [
        Span::raw("  "),
        Span::styled(format!(" {what} {words} "), style),
        Span::styled(format!(" {note}"), app.theme.notable()),
    ]
}

/// The worst finding of the run so far.
fn badge(app: Scene<'_>, run: &Run) -> Span<'static> {
    let theme = &app.theme;
    match &run.nonfinite {
        Some(found) if found.value.is_nan() => return Span::styled("● NaN", theme.bad()),
        Some(_) => return Span::styled("● infinity", theme.bad()),
        None => {}
    }
    let findings = app.findings();
    let n_of = |severity: Severity| findings.iter().filter(|f| f.severity == severity).count();
    match (n_of(Severity::Error), n_of(Severity::Warning)) {
        // Checks that were not tested cannot have findings.
        (0, 0) if !findings.is_empty() || n_not_run(app) > 0 => {
            let notes = match findings.len() {
                0 => "no findings".to_owned(),
                n => counted(n, "note"),
            };
            // Beside a B the room is for what is compared.
            let untested = match n_not_run(app) {
                0 => String::new(),
                _ if app.runs.b.is_some() && !findings.is_empty() => String::new(),
                n => format!(", {n} not tested"),
            };
            Span::styled(format!("○ {notes}{untested}"), theme.accent())
        }
        (0, 0) if run.judgement.is_some() => Span::styled("● no findings", theme.good()),
        (0, 0) if run.is_checking() => Span::styled("○ checks running", theme.dim()),
        (0, 0) if run.unjudged.is_some() => Span::styled("○ not checked", theme.dim()),
        (0, 0) => Span::styled("● finite", theme.good()),
        (0, n) => Span::styled(format!("! {}", counted(n, "warning")), theme.notable()),
        (n, _) => Span::styled(format!("✖ {}", counted(n, "error")), theme.bad()),
    }
}

/// Progress bar with what is being done, how much of it, and the key that stops it. On a narrow screen, the first of them is cut.
fn gauge(
    app: Scene<'_>,
    width: u16,
    share: f32,
    (what, count): (&str, &str),
) -> Vec<Span<'static>> {
    let (theme, stops) = (&app.theme, app.keys.key(Action::StopRun));
    let n_bar = if width < NARROW { 5 } else { 10 };
    let bar = bar(share, n_bar);
    let count = match count {
        "" => String::new(),
        count => format!(" · {count}"),
    };
    let stops = format!("{stops} stops");
    let badge = app.run().map_or(0, |run| badge(app, run).width());
    let used = n_bar + count.chars().count() + stops.chars().count() + badge + BESIDE_GAUGE;
    // Two runs leave no room on a narrow screen to say more than how much is done.
    let what = if app.runs.b.is_some() && width < WIDE {
        String::new()
    } else {
        cut_words(what, (width as usize).saturating_sub(used).max(8))
    };
    let said = format!("{what}{count}");
    let said = said.trim_start_matches(" · ");
    vec![
        Span::styled(format!("▕{bar:<n_bar$}▏"), theme.accent()),
        Span::raw(format!(" {said} · ")),
        Span::styled(stops, theme.dim()),
    ]
}

/// Progress of a step of the worker.
fn of_step(app: Scene<'_>, width: u16, step: &Step) -> Vec<Span<'static>> {
    let count = format!("{} of {}", step.n_done, step.n);
    let share = step.n_done as f32 / step.n.max(1) as f32;
    gauge(app, width, share, (&step.what, &count))
}

fn state_of(app: Scene<'_>, width: u16, run: &Run) -> Vec<Span<'static>> {
    let theme = &app.theme;
    match &run.state {
        // The run shown is no longer what the file contains: more important than the time it took.
        RunState::Done { .. } | RunState::Ended(_) if app.changed.is_some() => {
            vec![Span::styled(
                "changed on disk · r reads it again",
                theme.notable(),
            )]
        }
        RunState::Running(progress) => {
            let subject = app.subject();
            let n_layers = subject.map_or(1, |subject| subject.n_layers_to_run().max(1));
            let (done, what, count) = match progress {
                Progress::Embedding => (0, "embedding".to_owned(), String::new()),
                Progress::Layer {
                    stack,
                    layer_idx,
                    n_done,
                } => {
                    let stack = stack
                        .label()
                        .map_or(String::new(), |label| format!("{label} "));
                    (
                        *n_done,
                        format!("{stack}layer {layer_idx}"),
                        format!("{n_done} of {n_layers}"),
                    )
                }
                Progress::Predictions => (n_layers, "predictions".to_owned(), String::new()),
            };
            let by_layers = done as f32 / (n_layers + 1) as f32;
            let share = run.share.unwrap_or(by_layers);
            let left = run
                .left
                .as_ref()
                .filter(|_| app.shows_times && width >= WIDE);
            let count = match left {
                Some(left) if count.is_empty() => left.clone(),
                Some(left) => format!("{count} · {left}"),
                None => count,
            };
            gauge(app, width, share, (&what, &count))
        }
        RunState::Done { .. } if !app.shows_times => Vec::new(),
        // The names of two runs need the room.
        RunState::Done { .. } if app.runs.b.is_some() && width < NARROW => Vec::new(),
        RunState::Done { took, .. } => vec![Span::styled(
            format!("done in {}", duration(*took)),
            theme.dim(),
        )],
        RunState::Broken(_) => vec![Span::styled(
            format!("broken · {} runs again", app.keys.key(Action::Edit)),
            theme.bad(),
        )],
        RunState::Ended(reason) => vec![Span::styled(cut(reason, 40), theme.notable())],
    }
}

/// A time in seconds, or in milliseconds if it is short.
fn duration(took: std::time::Duration) -> String {
    match took.as_secs_f64() {
        seconds if seconds < 0.1 => format!("{:.0} ms", seconds * 1e3),
        seconds => format!("{seconds:.1} s"),
    }
}

/// Extra columns to reserve so that the run time could grow to ten seconds.
fn spare_room_of_time(app: Scene<'_>, run: &Run) -> usize {
    match run.state {
        RunState::Done { took, .. } if app.shows_times => {
            "9.9 s".len().saturating_sub(duration(took).len())
        }
        _ => 0,
    }
}

/// Puts spans at the left and right ends of one line; cuts the left ones if both do not fit.
pub fn spread(left: Vec<Span<'static>>, right: Vec<Span<'static>>, width: u16) -> Line<'static> {
    let right_width: usize = right.iter().map(Span::width).sum();
    let mut room = (width as usize).saturating_sub(right_width + 1);
    let mut line = Vec::new();
    for span in left {
        let text = cut(&span.content, room);
        room -= Span::raw(text.as_str()).width();
        line.push(Span::styled(text, span.style));
    }
    line.push(Span::raw(" ".repeat(room + 1)));
    line.extend(right);
    Line::from(line)
}
