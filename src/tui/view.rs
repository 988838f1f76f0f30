//! State → one frame: header, tabs, the panel, the footer, and what lies over them. Changes nothing.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::app::{App, Overlay};
use super::areas::{SMALLEST, areas, has_room};
use super::figure::{bar, cut, cut_left};
use super::keys::{self, Action, Binding};
use super::panel::Panel;
use super::panels;
use super::run::{Preparing, Run, RunState};
use super::runs::{Second, Way};
use super::scene::Scene;
use super::theme::Theme;
use super::widgets::{chooser, overlay, palette};
use crate::report::is_hidden;
use crate::worker::{Against, PromptOrigin};
use attnscope_engine::analysis::{Progress, Subject};
use attnscope_engine::checks::Severity;

/// Draws one frame.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let app = app.scene();
    let size = frame.area().as_size();
    if !has_room((size.width, size.height)) {
        let text = format!(
            "attnscope needs {} × {}, this terminal is {} × {}",
            SMALLEST.0, SMALLEST.1, size.width, size.height
        );
        frame.render_widget(
            Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }),
            frame.area(),
        );
        return;
    }
    let areas = areas((size.width, size.height));
    frame.render_widget(header(app, areas.header.width), areas.header);
    frame.render_widget(tabs(app, areas.tabs.width), areas.tabs);
    panels::draw(frame, areas.body, app);
    frame.render_widget(footer(app, areas.footer.width), areas.footer);
    match &app.overlay {
        Some(Overlay::Help { scroll }) => overlay::help(frame, areas.body, app, *scroll),
        Some(Overlay::Page { check, scroll }) => {
            overlay::page(frame, areas.body, app, check, *scroll);
        }
        Some(Overlay::Find(find)) => overlay::find(frame, areas.body, app, find),
        Some(Overlay::Palette(find)) => palette::draw(frame, areas.body, app, find),
        Some(Overlay::Edit(editor)) => overlay::edit(frame, areas.body, app, editor),
        Some(Overlay::WhatIf(chooser)) => chooser::draw(frame, areas.body, app, chooser),
        None => {}
    }
    leave_hidden_out(frame.buffer_mut());
}

/// Takes letters out that a terminal would act on: names and texts of files may hold any.
fn leave_hidden_out(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol().len() > 1 && cell.symbol().contains(is_hidden) {
            let shown: String = cell.symbol().chars().filter(|c| !is_hidden(*c)).collect();
            cell.set_symbol(if shown.is_empty() { " " } else { &shown });
        }
    }
}

/// Line 1: what is open, what runs, and the worst that was found.
fn header(app: Scene<'_>, width: u16) -> Line<'static> {
    if (app.panel == Panel::History || app.subject().is_none())
        && let Some((left, right)) = panels::history_head::header(app, width)
    {
        return spread(left, right, width);
    }
    let theme = &app.theme;
    // A narrow terminal needs the room for what is open.
    let program = if width < 100 { " " } else { " attnscope  " };
    let mut left = vec![Span::styled(program, theme.title())];
    match app.subject() {
        None => left.push(Span::raw(format!("opening {} …", app.opening))),
        Some(subject) => {
            // Beside the name of B stands that of A, whichever is shown.
            let a = app.runs.a.as_ref().filter(|_| app.runs.b.is_some());
            let name = a.map_or_else(|| subject.name(), |a| a.subject.name());
            left.push(Span::styled(name, theme.strong()));
            let facts = facts(app, subject);
            match &app.runs.b {
                // What is shown is not the checkpoint: that matters more than its sizes.
                Some(second) => left.extend(banner(app, second, width as usize / 2)),
                None => left.push(Span::raw(facts)),
            }
        }
    }
    let mut right = Vec::new();
    if let Some(Preparing::Target { n_written, n_most }) = app.preparing {
        let what = format!("writing the target · {n_written} of at most {n_most}");
        right.extend(gauge(&app.theme, n_written as f32 / n_most as f32, &what));
    } else if let Some(run) = app.run() {
        match &run.probing {
            Some(step) => {
                let what = format!("{} · {} of {}", step.what, step.n_done, step.n);
                right.extend(gauge(
                    theme,
                    step.n_done as f32 / step.n.max(1) as f32,
                    &what,
                ));
            }
            None => right.extend(state_of(app, run)),
        }
        if let Some(step) = app.compares_now().filter(|_| run.probing.is_none()) {
            let (share, what) = match step {
                Some(step) => (
                    step.n_done as f32 / step.n.max(1) as f32,
                    format!("{} · {} of {}", step.what, step.n_done, step.n),
                ),
                None => (0.0, "comparing".to_owned()),
            };
            right = gauge(theme, share, &what);
        }
        right.push(Span::raw("  "));
        right.push(badge(app, run));
        right.push(Span::raw(" "));
    }
    spread(left, right, width)
}

/// What is open, in a line: its kind, its sizes, its element type, and what computes.
fn facts(app: Scene<'_>, subject: &Subject) -> String {
    let sizes = subject.sizes();
    let n_layers: Vec<String> = sizes.n_layers.iter().map(usize::to_string).collect();
    let plural = if sizes.n_heads == 1 { "" } else { "s" };
    let kv = match sizes.n_kv_heads {
        n if n == sizes.n_heads => String::new(),
        n => format!(" ({n} kv)"),
    };
    let heads = format!(
        "{} × {} head{plural}{kv}",
        n_layers.join("+"),
        sizes.n_heads
    );
    let parts = [
        Some(subject.kind().to_owned()),
        Some(heads),
        sizes.d_head.map(|d_head| format!("d_head {d_head}")),
        // Without weights there is no type of theirs.
        Some(subject.dtype_label()).filter(|label| !label.is_empty()),
        Some(app.device.to_string()),
    ];
    let parts = parts.into_iter().flatten();
    parts.map(|part| format!(" · {part}")).collect()
}

/// What B is, and which side is shown.
fn banner(app: Scene<'_>, second: &Second, room: usize) -> [Span<'static>; 3] {
    let style = app
        .theme
        .notable()
        .add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let shown = second.way.label(app.runs.shows).to_uppercase();
    let [what, note] = second.way.banner(app.runs.shows);
    // What is shown must be read: of a long name, the end says more than the beginning.
    let room = room.saturating_sub(what.len() + shown.len() + 8);
    let words = match second.way {
        Way::WhatIf(_) => second.way.words(),
        Way::Against(Against::Target(_)) => cut_left(&second.way.words(), room),
        Way::Against(Against::Prompt(_)) => cut(&second.way.words(), room),
    };
    [
        Span::raw("  "),
        Span::styled(format!(" {what} {words} · {shown} "), style),
        Span::styled(format!(" {note}"), app.theme.notable()),
    ]
}

/// The worst that is known of the run so far.
fn badge(app: Scene<'_>, run: &Run) -> Span<'static> {
    let theme = &app.theme;
    match &run.nonfinite {
        Some(found) if found.value.is_nan() => return Span::styled("● NaN", theme.bad()),
        Some(_) => return Span::styled("● infinity", theme.bad()),
        None => {}
    }
    let findings = app.findings();
    let n_of = |severity: Severity| findings.iter().filter(|f| f.severity == severity).count();
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    match (n_of(Severity::Error), n_of(Severity::Warning)) {
        (0, 0) if !findings.is_empty() => {
            let notes = plural(findings.len(), "note");
            Span::styled(format!("○ {notes}"), theme.accent())
        }
        (0, 0) if run.judgement.is_some() => Span::styled("● no findings", theme.good()),
        (0, 0) => Span::styled("● finite", theme.good()),
        (0, n) => Span::styled(format!("! {}", plural(n, "warning")), theme.notable()),
        (n, _) => Span::styled(format!("✖ {}", plural(n, "error")), theme.bad()),
    }
}

/// How much of something is done, what it is, and how to stop it.
fn gauge(theme: &Theme, share: f32, what: &str) -> Vec<Span<'static>> {
    let bar = bar(share, 10);
    vec![
        Span::styled(format!("▕{bar:<10}▏"), theme.accent()),
        Span::raw(format!(" {what} ")),
        Span::styled("c stops", theme.dim()),
    ]
}

fn state_of(app: Scene<'_>, run: &Run) -> Vec<Span<'static>> {
    let theme = &app.theme;
    match &run.state {
        // What is shown is not what the file holds: that matters more than how long it took.
        RunState::Done { .. } | RunState::Ended(_) if app.changed.is_some() => {
            vec![Span::styled(
                "changed on disk · r reads it again",
                theme.notable(),
            )]
        }
        RunState::Running(progress) => {
            let subject = app.subject();
            let n_layers = subject.map_or(1, |subject| subject.n_layers_to_run().max(1));
            let (done, what) = match progress {
                Progress::Embedding => (0, "embedding".to_owned()),
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
                        format!("{stack}layer {layer_idx} · {n_done} of {n_layers}"),
                    )
                }
                Progress::Predictions => (n_layers, "predictions".to_owned()),
            };
            let by_layers = done as f32 / (n_layers + 1) as f32;
            gauge(theme, run.share.unwrap_or(by_layers), &what)
        }
        RunState::Done { .. } if !app.shows_times => Vec::new(),
        RunState::Done { took, .. } => vec![Span::styled(
            format!("done in {}", duration(*took)),
            theme.dim(),
        )],
        RunState::Broken(_) => vec![Span::styled("broken · e runs again", theme.bad())],
        RunState::Ended(reason) => vec![Span::styled(cut(reason, 40), theme.notable())],
    }
}

/// Seconds, or milliseconds where seconds would say 0.
fn duration(took: std::time::Duration) -> String {
    match took.as_secs_f64() {
        seconds if seconds < 0.1 => format!("{:.0} ms", seconds * 1e3),
        seconds => format!("{seconds:.1} s"),
    }
}

/// Left and right ends of one line; the left is cut where both do not fit.
fn spread(left: Vec<Span<'static>>, right: Vec<Span<'static>>, width: u16) -> Line<'static> {
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

/// The tabs as text, in order; titles are cut alike where they do not all fit.
fn tab_texts(app: Scene<'_>, width: u16) -> Vec<(Panel, String)> {
    let texts = |most: usize| -> Vec<(Panel, String)> {
        let text = |panel: Panel| format!(" {} {}", app.key_of(panel), cut(panel.title(), most));
        app.panels().map(|panel| (panel, text(panel))).collect()
    };
    let longest = Panel::ALL.into_iter().map(|panel| panel.title().len());
    let longest = longest.max().unwrap_or(0);
    let fits = |texts: &[(Panel, String)]| {
        let used: usize = texts.iter().map(|(_, text)| text.chars().count()).sum();
        used <= width as usize
    };
    let fitting = (1..=longest).rev().map(texts).find(|texts| fits(texts));
    fitting.unwrap_or_else(|| texts(1))
}

/// Line 2: the panels, and what text is on screen.
fn tabs(app: Scene<'_>, width: u16) -> Line<'static> {
    let theme = &app.theme;
    let style = |panel: Panel| {
        if panel == app.panel {
            theme.selected().add_modifier(Modifier::BOLD)
        } else {
            theme.dim()
        }
    };
    let left: Vec<Span<'static>> = tab_texts(app, width)
        .into_iter()
        .map(|(panel, text)| Span::styled(text, style(panel)))
        .collect();
    // The tabs are buttons: what stands beside them is cut, not they.
    let used: usize = left.iter().map(Span::width).sum();
    let room = (width as usize).saturating_sub(used + 2);
    let right = match app.run() {
        None => Vec::new(),
        Some(run) => {
            let origin = match run.origin {
                PromptOrigin::BuiltIn => " · built-in text",
                PromptOrigin::Asked => "",
            };
            let ids = if app.has_tokenizer {
                ""
            } else {
                " · ids, no tokenizer"
            };
            let dropped = match run.prompt.given().n_cut {
                0 => String::new(),
                n => format!(" · {n} cut"),
            };
            let limits = run.subject.model().map(|model| model.spec.limits());
            let is_beyond = limits.is_some_and(|limits| limits.beyond(&run.prompt).is_some());
            let beyond = if is_beyond {
                " · beyond the context"
            } else {
                ""
            };
            let lost = run.prompt.lost_words();
            let lost = lost.map_or(String::new(), |said| format!(" · {said}"));
            let text = format!("{}{beyond}{dropped}{origin}{ids}{lost}", n_tokens(run));
            vec![Span::styled(format!("{} ", cut(&text, room)), theme.dim())]
        }
    };
    spread(left, right, width)
}

/// How many tokens the run has, on both sides where there are two.
fn n_tokens(run: &Run) -> String {
    let n = run.prompt.tokens.len();
    match &run.prompt.source {
        Some(source) => format!("{} → {n} tokens", source.tokens.len()),
        None => format!("{n} tokens"),
    }
}

/// The panel whose tab is at a place.
pub fn tab_at(app: Scene<'_>, tabs: Rect, (column, row): (u16, u16)) -> Option<Panel> {
    if !tabs.contains(Position::new(column, row)) {
        return None;
    }
    let mut start = tabs.x as usize;
    tab_texts(app, tabs.width)
        .into_iter()
        .find_map(|(panel, text)| {
            let end = start + text.chars().count();
            let is_hit = (start..end).contains(&(column as usize));
            start = end;
            is_hit.then_some(panel)
        })
}

/// Last line: a notice, what was written, or the keys that matter here.
fn footer(app: Scene<'_>, width: u16) -> Line<'static> {
    let theme = &app.theme;
    if let Some(notice) = &app.notice {
        return Line::styled(
            format!(" {}", cut(notice, width as usize - 1)),
            theme.notable(),
        );
    }
    if let Some(written) = &app.written {
        let text = cut(written, width as usize - 1);
        return Line::styled(format!(" {text}"), theme.good());
    }
    let texts = |binding: &Binding| {
        [
            format!("   {}", binding.shown),
            format!(" {}", binding.label),
        ]
    };
    let used = |binding: &Binding| -> usize {
        let texts = texts(binding);
        texts.iter().map(|text| text.chars().count()).sum()
    };
    let enabled: Vec<&Binding> = keys::footer_of(app.panel)
        .filter(|binding| (binding.disabled)(&app).is_none())
        .collect();
    // Whoever is lost needs these: the others have what room they leave.
    let is_kept = |binding: &&&Binding| matches!(binding.action, Action::Help | Action::Quit);
    let kept: usize = enabled.iter().filter(is_kept).map(|b| used(b)).sum();
    let mut room = (width as usize).saturating_sub(11 + kept);
    let mut spans = vec![Span::styled(" ←↓↑→ move", theme.dim())];
    let mut is_full = false;
    for binding in &enabled {
        if !is_kept(&binding) {
            is_full |= used(binding) > room;
            if is_full {
                continue;
            }
            room -= used(binding);
        }
        let [shown, label] = texts(binding);
        spans.push(Span::styled(shown, theme.accent()));
        spans.push(Span::styled(label, theme.dim()));
    }
    Line::from(spans)
}
