//! How the checkpoint was read: every knob and its origin, keys that were never read, and every tensor.

use std::collections::BTreeSet;

use attnscope_checkpoint::{Knob, TensorInfo};
use attnscope_report::one_line;
use attnscope_run::{Subject, TensorStats, crossings, probed};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use super::model_change;
use crate::figure::{cut, figure, fit, short_name, wrapped};
use crate::state::app::App;
use crate::state::filter::{List, Row};
use crate::state::scene::Scene;
use crate::widgets::frame::{draw_reason, framed, waiting};

/// Layout of the panel.
struct Parts {
    knobs: Rect,
    unread: Rect,
    tensors: Rect,
    figures: Rect,
}

fn parts(app: Scene<'_>, area: Rect) -> Parts {
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(48), Constraint::Min(0)]).areas(area);
    let [knobs, unread] =
        Layout::vertical([Constraint::Min(0), Constraint::Percentage(26)]).areas(left);
    // A selected name that is shortened above is written out below.
    let selected = app.subject().and_then(|subject| {
        let mut tensors = subject.tensors().iter();
        tensors.nth(app.model_view.tensor_idx)
    });
    let room = right.width.saturating_sub(4).max(1) as usize;
    let n_name = match selected.map_or(0, |(name, _)| name.width()) {
        width if width <= room => 0,
        width => width.div_ceil(room),
    };
    let n_figures = 5 + n_name as u16;
    let [tensors, figures] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(n_figures)]).areas(right);
    let mut parts = Parts {
        knobs,
        unread,
        tensors,
        figures,
    };
    let Parts {
        knobs,
        unread,
        tensors,
        figures,
    } = &mut parts;
    app.arrange(area, &mut [tensors, knobs, unread, figures]);
    parts
}

/// The boxes of the panel, the list of tensors first.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    if app.both_runs().is_some() && app.shows_difference() {
        return Vec::new();
    }
    let parts = parts(app, area);
    vec![parts.tensors, parts.knobs, parts.unread, parts.figures]
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let parts = parts(app, area);
    let Some(subject) = app.subject() else {
        let inside = framed(frame, area, app, " model ");
        return waiting(frame, inside, app);
    };
    if let Some(both) = app.both_runs().filter(|_| app.shows_difference()) {
        return model_change::draw(frame, area, app, both);
    }
    type Draw = fn(&mut Frame<'_>, Rect, Scene<'_>, &Subject);
    let all: [(Rect, Draw); 4] = [
        (parts.knobs, draw_knobs),
        (parts.unread, draw_unread),
        (parts.tensors, draw_tensors),
        (parts.figures, draw_figures),
    ];
    for (area, draw) in all.into_iter().filter(|(area, _)| !area.is_empty()) {
        draw(frame, area, app, subject);
    }
}

fn draw_knobs(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, subject: &Subject) {
    let inside = ratatui::widgets::Block::bordered().inner(area);
    let width = inside.width as usize;
    let mut lines = boundary_lines(app, subject, width);
    lines.extend(knob_lines(app, subject.knobs(), width));
    lines.extend(tried_lines(app, subject, width));
    let n_rows = inside.height as usize;
    let first = app
        .model_view
        .knob_scroll
        .min(lines.len().saturating_sub(n_rows));
    let scrolls = if lines.len() > n_rows {
        {
            use crate::state::keys::Action;
            let keys = [Action::ScrollKnobsDown, Action::ScrollKnobsUp].map(|a| app.keys.key(a));
            format!("· {} more: {} ", lines.len() - n_rows, keys.join(" "))
        }
    } else {
        String::new()
    };
    framed(frame, area, app, format!(" how it was read {scrolls}"));
    let shown: Vec<Line<'_>> = lines.into_iter().skip(first).take(n_rows).collect();
    frame.render_widget(Paragraph::new(shown), inside);
}

/// The boundaries of the model, and whether the prompt crosses them.
fn boundary_lines(app: Scene<'_>, subject: &Subject, width: usize) -> Vec<Line<'static>> {
    let Some(model) = subject.model() else {
        return Vec::new();
    };
    let n_tokens = app.run().map_or(0, |run| run.prompt.tokens.len());
    let rows = crossings(&model.spec, n_tokens)
        .into_iter()
        .filter_map(|crossing| {
            let needs = crossing.needs?;
            Some(if crossing.is_crossed {
                ("✓ crossed", crossing.boundary)
            } else {
                let what = format!("{}: takes {needs} tokens", crossing.boundary);
                ("○ not crossed", what)
            })
        });
    marked_lines(app, subject, width, rows)
}

/// What probes tried on the shown run, and what they did not.
fn tried_lines(app: Scene<'_>, subject: &Subject, width: usize) -> Vec<Line<'static>> {
    let judgement = app.run().and_then(|run| run.judgement.as_deref());
    let Some(judgement) = judgement else {
        return Vec::new();
    };
    let rows = [(true, "✓ tried"), (false, "○ not tried")];
    let rows = rows.into_iter().filter_map(|(is_tried, mark)| {
        let of = probed(&judgement.probes).into_iter();
        let of = of.filter(|crossing| crossing.is_crossed == is_tried);
        let names: Vec<String> = of.map(|crossing| crossing.boundary).collect();
        (!names.is_empty()).then(|| (mark, names.join(", ")))
    });
    marked_lines(app, subject, width, rows)
}

/// Rows of a mark and what it is of; what was put to the test is dimmed.
fn marked_lines(
    app: Scene<'_>,
    subject: &Subject,
    width: usize,
    rows: impl Iterator<Item = (&'static str, String)>,
) -> Vec<Line<'static>> {
    let name_width = name_width(subject.knobs());
    let lines = |(mark, what): (&'static str, String)| {
        let style = if mark.starts_with('✓') {
            app.theme.dim()
        } else {
            Style::default()
        };
        let parts = wrapped(&what, width.saturating_sub(name_width + 3));
        let named = parts.into_iter().enumerate().map(move |(idx, part)| {
            let name = if idx == 0 { mark } else { "" };
            Line::styled(format!(" {} {part}", fit(name, name_width)), style)
        });
        named.collect::<Vec<Line<'static>>>()
    };
    rows.flat_map(lines).collect()
}

/// Columns of the marks that stand where names do.
const MARKS: usize = 13;

/// Width of the column of names.
fn name_width(knobs: &[Knob]) -> usize {
    let longest = knobs.iter().map(|knob| knob.name.len()).max();
    longest.unwrap_or(0).clamp(MARKS, 20)
}

/// Name, value and origin of every knob; an origin that does not fit next to its value goes below it.
fn knob_lines(app: Scene<'_>, knobs: &[Knob], width: usize) -> Vec<Line<'static>> {
    let name_width = name_width(knobs);
    let room = width.saturating_sub(name_width + 3);
    let mut lines = tokenizer_lines(app, name_width, room);
    for knob in knobs {
        let value = cut(&knob.value, room);
        let origin = knob.origin.to_string();
        let gap = room.saturating_sub(value.width() + origin.width());
        let fits_on_line = gap >= 1;
        let mut spans = vec![
            Span::raw(format!(" {} ", fit(knob.name, name_width))),
            Span::styled(value, app.theme.strong()),
        ];
        if fits_on_line {
            spans.push(Span::raw(" ".repeat(gap)));
            spans.push(Span::styled(origin, app.theme.dim()));
        }
        lines.push(Line::from(spans));
        if !fits_on_line {
            let origin = cut(&knob.origin.to_string(), width.saturating_sub(2));
            let below = format!("{origin:>width$}", width = width.saturating_sub(1));
            lines.push(Line::styled(below, app.theme.dim()));
        }
    }
    lines
}

/// The tokenizer's name, or what a recording is; a reason for having none is wrapped over several lines.
fn tokenizer_lines(app: Scene<'_>, name_width: usize, room: usize) -> Vec<Line<'static>> {
    let lines = wrapped(&app.tokenizer, room.max(1)).into_iter();
    // A path may be longer than a line.
    let parts = lines.flat_map(|line| crate::figure::chunks(&line, room.max(1)));
    let is_model = app
        .subject()
        .is_some_and(|subject| subject.model().is_some());
    let first = if is_model { "tokenizer" } else { "read as" };
    let line = |(idx, part): (usize, String)| {
        let name = if idx == 0 { first } else { "" };
        Line::from(vec![
            Span::raw(format!(" {} ", fit(name, name_width))),
            Span::styled(part, app.theme.strong()),
        ])
    };
    parts.enumerate().map(line).collect()
}

fn draw_unread(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, subject: &Subject) {
    let unread = subject.unread_keys();
    let title = format!(" config keys never read · {} ", unread.len());
    let inside = framed(frame, area, app, title);
    let text = if subject.model().is_none() {
        "a recording has no configuration".to_owned()
    } else if unread.is_empty() {
        "every key was read".to_owned()
    } else {
        unread.join(", ")
    };
    let nonfinite = app.run().and_then(|run| run.nonfinite.as_ref());
    let mut texts: Vec<(String, Style)> = nonfinite
        .map(|found| (found.to_string(), app.theme.bad()))
        .into_iter()
        .collect();
    let remarks = subject.remarks().into_iter();
    texts.extend(remarks.map(|said| (one_line(&said).into_owned(), app.theme.notable())));
    texts.push((text, app.theme.dim()));
    let width = (inside.width as usize).saturating_sub(1).max(1);
    let lines = texts.into_iter().flat_map(|(text, style)| {
        let lines = wrapped(&text, width).into_iter();
        lines.map(move |line| (cut(&line, width), style))
    });
    let mut lines: Vec<(String, Style)> = lines.collect();
    let n_rows = inside.height as usize;
    if lines.len() > n_rows {
        lines.truncate(n_rows);
        if let Some((last, _)) = lines.last_mut() {
            // Append an ellipsis, in place of the last letters if necessary.
            *last = cut(&format!("{last} ………"), (last.width() + 2).min(width));
        }
    }
    let lines = lines.into_iter();
    let lines = lines.map(|(text, style)| Line::styled(format!(" {text}"), style));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}

/// The tensors as they are searched: all of the model, or those that differ.
pub fn rows(app: Scene<'_>) -> Vec<Row> {
    if app.shows_difference() {
        let texts = app.comparison().map_or_else(Vec::new, model_change::names);
        let texts = texts.into_iter().enumerate();
        return texts.map(|(key, text)| Row { key, text }).collect();
    }
    let Some(subject) = app.subject() else {
        return Vec::new();
    };
    let unused: BTreeSet<&str> = subject.unused_tensors().into_iter().collect();
    let tensors = subject.tensors().iter().enumerate();
    let text = |name: &str, info: &TensorInfo| {
        let usage = if unused.contains(name) { " unused" } else { "" };
        format!("{name} {} {}{usage}", info.dtype, shape(&info.shape))
    };
    tensors
        .map(|(key, (name, info))| Row {
            key,
            text: text(name, info),
        })
        .collect()
}

/// Rows of the list of tensors, below its heading.
fn tensor_rows(area: Rect) -> usize {
    area.height.saturating_sub(3) as usize
}

fn draw_tensors(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, subject: &Subject) {
    let theme = &app.theme;
    let tensors = subject.tensors();
    let unused: BTreeSet<&str> = subject.unused_tensors().into_iter().collect();
    let never = match unused.len() {
        0 => String::new(),
        n => format!(" · {n} never used"),
    };
    let note = app.filter_note(List::Tensors);
    let title = if note.is_empty() {
        format!(" tensors · {}{never} · Enter figures ", tensors.len())
    } else {
        format!(" tensors {note}· Enter figures ")
    };
    let inside = framed(frame, area, app, title);
    let shape_width = tensors
        .iter()
        .map(|(_, info)| shape(&info.shape).len())
        .max()
        .unwrap_or(5)
        .clamp(5, 16);
    let dtype_width = tensors
        .iter()
        .map(|(_, info)| info.dtype.to_string().len())
        .max()
        .unwrap_or(5)
        .clamp(5, 8);
    // Names get the column of uses where every tensor is used.
    let (uses, use_width) = if unused.is_empty() {
        ("", 0)
    } else {
        ("use", 7)
    };
    let fixed = shape_width + dtype_width + 4 + use_width;
    let name_width = (inside.width as usize).saturating_sub(fixed);
    let header = format!(
        " {} {:dtype_width$} {} {uses:use_width$}",
        fit("name", name_width),
        "dtype",
        fit("shape", shape_width),
    );
    let mut lines = vec![Line::styled(header, theme.dim())];
    let n_rows = tensor_rows(area);
    let selected = app.model_view.tensor_idx;
    let shown = app.visible(List::Tensors, tensors.len(), selected, n_rows);
    if tensors.is_empty() {
        let why = "this recording does not list the arrays that it was read from";
        return draw_reason(frame, inside, app, why);
    }
    if shown.is_empty() {
        lines.push(Line::styled(" no tensor matches", theme.dim()));
    }
    let mut all = tensors.iter().enumerate();
    for wanted in shown {
        let Some((idx, (name, info))) = all.find(|(idx, _)| *idx == wanted) else {
            break;
        };
        let style = if idx == app.model_view.tensor_idx {
            theme.selected()
        } else {
            Style::new()
        };
        let shown = fit(&short_name(name, name_width), name_width);
        let usage = if unused.contains(name) {
            Span::styled("unused", theme.notable())
        } else {
            Span::raw("")
        };
        lines.push(Line::from(vec![
            Span::styled(format!(" {shown}"), style),
            Span::raw(format!(
                " {:dtype_width$} {} ",
                info.dtype,
                fit(&shape(&info.shape), shape_width)
            )),
            usage,
        ]));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

fn shape(dims: &[usize]) -> String {
    dims.iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join("×")
}

fn draw_figures(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, subject: &Subject) {
    let Some((name, info)) = subject.tensors().iter().nth(app.model_view.tensor_idx) else {
        return;
    };
    let room = area.width.saturating_sub(4) as usize;
    let title = format!(" {} ", short_name(name, room));
    let inside = framed(frame, area, app, title);
    let mut lines = Vec::new();
    if name.width() > room {
        let whole = crate::figure::chunks(name, room);
        lines.extend(whole.into_iter().map(|part| Line::raw(format!(" {part}"))));
    }
    let facts = format!(" {} elements · {} bytes", info.n_elements(), info.n_bytes());
    lines.push(Line::raw(facts));
    match app.model_view.stats.get(name) {
        None => lines.push(Line::styled(
            " Enter: min, max, mean, NaN count",
            app.theme.dim(),
        )),
        Some(None) => lines.push(Line::styled(" computing …", app.theme.dim())),
        Some(Some(None)) => lines.push(Line::styled(
            " not floating point: no figures",
            app.theme.dim(),
        )),
        Some(Some(Some(stats))) => lines.extend(figure_lines(app, stats)),
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

fn figure_lines(app: Scene<'_>, stats: &TensorStats) -> [Line<'static>; 2] {
    let number = |v: f64| figure(v, 0);
    let text = format!(
        " min {}   max {}   mean {}",
        number(f64::from(stats.min)),
        number(f64::from(stats.max)),
        number(stats.mean)
    );
    let style = if stats.n_nan + stats.n_infinite > 0 {
        app.theme.bad()
    } else {
        app.theme.good()
    };
    let broken = format!(" {} NaN, {} infinite", stats.n_nan, stats.n_infinite);
    [Line::raw(text), Line::styled(broken, style)]
}

/// Selects the tensor under the pointer.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    let area = parts(app.scene(), area).tensors;
    let n_tensors = app
        .scene()
        .subject()
        .map_or(0, |subject| subject.tensors().len());
    if !area.contains(Position::new(column, row)) || n_tensors == 0 {
        return;
    }
    let selected = app.model_view.tensor_idx;
    let shown = app.visible(List::Tensors, n_tensors, selected, tensor_rows(area));
    if let Some(down) = (row as usize)
        .checked_sub(area.y as usize + 2)
        .filter(|down| *down < tensor_rows(area))
    {
        let last = shown.last().copied();
        let found = shown.get(down).copied().or(last);
        app.model_view.tensor_idx = found.unwrap_or(app.model_view.tensor_idx);
    }
}
