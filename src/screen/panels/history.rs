//! A training: steps × heads by one statistic, the loss below, curves of the selected head next to it, and onsets by step.

use attnscope_history::Origin;
use attnscope_report::digits;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::history_strip::{
    Pool, Strip, draw_cells, draw_loss, draw_onsets, draw_signs, draw_steps, is_of_layers, signs,
};
use super::{history_curves, history_events, history_head};
use crate::figure::{cut, cut_words, figure, wrapped};
use crate::state::app::App;
use crate::state::history_view::{HistoryView, Reading};
use crate::state::keys::Action;
use crate::state::scene::Scene;
use crate::widgets::frame::{draw_reason, framed};
use crate::widgets::legend::legend_on_frame;

/// Layout of the panel inside its frames.
struct Parts {
    left: Rect,
    right: Rect,
    steps: Rect,
    signs: Rect,
    cells: Rect,
    onsets: Rect,
    loss_title: Rect,
    loss: Rect,
    told: Rect,
}

/// Below this height there is no room for a frame around the onsets.
const LOW: u16 = 26;
/// Maximum rows of the loss.
const LOSS: u16 = 24;

/// The boxes of the panel: the strip of steps, the curves beside it, and what begins below.
fn boxes(app: Scene<'_>, area: Rect) -> [Rect; 3] {
    let told = match area.height {
        0..LOW => 5,
        LOW..40 => 10,
        _ => 14,
    };
    let [above, mut told] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(told)]).areas(area);
    let curves_width = (area.width * 2 / 5).clamp(30, 70);
    let [mut left, mut right] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(curves_width)]).areas(above);
    app.arrange(area, &mut [&mut left, &mut right, &mut told]);
    [left, right, told]
}

/// The boxes of the panel.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    boxes(app, area).to_vec()
}

fn parts(app: Scene<'_>, area: Rect) -> Parts {
    let loss = match area.height {
        0..LOW => 2,
        LOW..40 => 3,
        _ => 5,
    };
    let [left, right, told] = boxes(app, area);
    let inside = left.inner(Margin::new(1, 1));
    let [steps, signs, cells, onsets, loss_title, loss] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(loss),
    ])
    .areas(inside);
    Parts {
        left,
        right,
        steps,
        signs,
        cells,
        onsets,
        loss_title,
        loss,
        told,
    }
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let parts = parts(app, area);
    let Some(view) = app.state().training.as_ref() else {
        let inside = framed(frame, area, app, " history ");
        let said =
            "no training is open: run attnscope on a directory of checkpoints, or on a monitor log";
        return draw_reason(frame, inside, app, said);
    };
    if view.history.grid().n_cells() == 0 {
        let inside = framed(frame, area, app, " history ");
        let said = Paragraph::new(waiting(view)).wrap(Wrap { trim: false });
        frame.render_widget(said.style(app.theme.dim()), inside);
        return;
    }
    if !parts.left.is_empty() {
        draw_strip(frame, &parts, app, view);
    }
    if !parts.right.is_empty() {
        let title = format!(" {} ", app.history_place(is_of_layers(app)));
        let curves_area = framed(frame, parts.right, app, title);
        history_curves::draw(curves_area, view, app, frame.buffer_mut());
    }
    if parts.told.is_empty() {
        return;
    }
    let told = if area.height < LOW {
        parts.told.inner(Margin::new(1, 0))
    } else {
        let mut title = vec!["findings, by step".to_owned()];
        title.extend(view.counts());
        framed(frame, parts.told, app, format!(" {} ", title.join(" · ")))
    };
    draw_told(frame, told, view, app);
}

/// Draws the steps by heads, with the loss below them.
fn draw_strip(frame: &mut Frame<'_>, parts: &Parts, app: Scene<'_>, view: &HistoryView) {
    let strip = Strip::new(app, view, parts.cells);
    let rows = if is_of_layers(app) { "layer" } else { "head" };
    let pool = Pool::of(app.statistic().id);
    // The statistic must stay readable, then how many steps and rows a cell has.
    let room = (parts.left.width as usize).saturating_sub(2);
    let of = [strip.pooling(pool, rows), strip.cell(pool)]
        .map(|of| format!(" {} · {of} ", app.statistic().title));
    let title = of.iter().find(|title| title.chars().count() <= room);
    let title = cut_words(title.unwrap_or(&of[1]), room);
    let title_width = title.chars().count();
    framed(frame, parts.left, app, title);
    let buf = frame.buffer_mut();
    draw_steps(&strip, view, parts.steps.y, app, buf);
    draw_signs(&strip, view, parts.signs.y, app, buf);
    match draw_cells(&strip, view, app, buf) {
        Some((low, high)) => {
            let [low, high] = [low, high].map(|end| figure(end, 0));
            legend_on_frame(buf, parts.left, &app.theme, title_width, (&low, &high));
        }
        None => draw_why_empty(strip.cells, view, app, buf),
    }
    // If the strip leaves rows free, the loss gets them.
    let unused = parts.cells.height - strip.cells.height;
    let up = |rect: Rect| Rect {
        y: rect.y - unused,
        ..rect
    };
    draw_onsets(&strip, view, up(parts.onsets).y, app, buf);
    let rule = format!(
        "loss {}",
        "─".repeat((parts.loss_title.width as usize).saturating_sub(5))
    );
    let at = up(parts.loss_title);
    buf.set_string(at.x, at.y, rule, app.theme.border());
    let loss = Rect {
        height: (parts.loss.height + unused).min(LOSS.max(parts.loss.height)),
        ..up(parts.loss)
    };
    draw_loss(&strip, view, loss, app, buf);
}

/// Draws why there are no cells: a statistic of runs may not be recorded in a training.
fn draw_why_empty(cells: Rect, view: &HistoryView, app: Scene<'_>, buf: &mut Buffer) {
    let why = view.why_without(app.statistic_idx).unwrap_or_default();
    let key = app.keys.key(Action::NextStatistic);
    let text = format!("{why}. {key} shows another statistic.");
    let lines = wrapped(&text, (cells.width as usize).max(1));
    for (y, line) in (cells.top()..cells.bottom()).zip(lines) {
        buf.set_string(cells.x, y, line, app.theme.dim());
    }
}

/// Text to show until the first step is read.
fn waiting(view: &HistoryView) -> String {
    let name = &view.history.name;
    let failed = view.history.records().iter();
    let failed = failed.filter_map(|record| {
        let reason = record.state.reason()?;
        Some(format!(
            "\n {}: {}: {reason}",
            record.label(),
            record.state.label()
        ))
    });
    let failed: Vec<String> = failed.take(8).collect();
    let said = match (
        &view.reading,
        view.history.origin,
        view.history.records().len(),
    ) {
        (Reading::Over(Some(why)), ..) => format!("reading {name} stopped: {why}"),
        (_, Origin::Log, _) => format!(
            "{name} has no record yet. Start the training with attnscope.Monitor: records appear here as they are written."
        ),
        (_, _, 0) => {
            format!("{name} has no checkpoint yet. Checkpoints appear here as they are written.")
        }
        (_, _, n) => format!(
            "{} · {n} steps, read in this order: the last, the first, then the steps between them",
            history_head::state(view, false)
        ),
    };
    format!(" {said}{}", failed.concat())
}

/// Draws the selected step, events and trends.
fn draw_told(frame: &mut Frame<'_>, area: Rect, view: &HistoryView, app: Scene<'_>) {
    let (theme, history) = (&app.theme, &view.history);
    let width = area.width as usize;
    let mut lines = vec![selected(view, app, width)];
    let signs = signs(view);
    if !signs.is_empty() {
        lines.push(Line::styled(cut(&signs, width), theme.dim()));
    }
    let note = history.notes.last();
    let room = (area.height as usize).saturating_sub(lines.len() + usize::from(note.is_some()));
    lines.extend(history_events::lines(view, app, width, room));
    if let Some(note) = note {
        lines.push(Line::styled(cut(note, width), theme.dim()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// The selected step as text: its name, its state, its loss, and the value of the selected head.
fn selected(view: &HistoryView, app: Scene<'_>, width: usize) -> Line<'static> {
    let Some(record) = view.record() else {
        return Line::default();
    };
    let place = app.history_place(is_of_layers(app));
    let cell = view.history.grid().cell(&place);
    let value = cell.map(|cell| view.history.at(view.at, app.statistic().id, cell));
    let mut text = format!(" · {}", record.state.label());
    if let Some(reason) = record.state.reason() {
        text += &format!(": {reason}");
    }
    if let Some(loss) = record.loss() {
        text += &format!(" · loss {}", digits(loss));
    }
    if let Some(loss) = view.history.training_loss(view.at) {
        text += &format!(" · training loss {}", digits(loss));
    }
    let is_recorded = record.numbers.is_some() && view.knows(app.statistic_idx);
    if let Some(value) = value.filter(|_| is_recorded) {
        text += &format!(" · {} of {place} {}", app.statistic().title, digits(value));
    }
    let label = record.label();
    let room = width.saturating_sub(label.chars().count());
    Line::from(vec![
        Span::styled(label, app.theme.strong()),
        Span::raw(cut(&text, room)),
    ])
}

/// Description of the step and head under the pointer.
pub fn told_at(app: Scene<'_>, area: Rect, at: (u16, u16)) -> Option<String> {
    let view = app.state().training.as_ref()?;
    let strip = Strip::new(app, view, parts(app, area).cells);
    let (record_idx, cell) = strip.at(at)?;
    let place = view.history.grid().place(cell);
    let record = view.history.records().get(record_idx)?;
    let (step, statistic) = (record.label(), app.statistic());
    let value = view
        .history
        .value(record_idx, view.history.column(statistic.id)?, cell);
    let value = figure(value, 0);
    Some(format!("{step} · {place} · {}: {value}", statistic.title))
}

/// Selects the step and head under the pointer.
pub fn click(app: &mut App, area: Rect, at: (u16, u16)) {
    let scene = app.scene();
    let Some(view) = scene.state().training.as_ref() else {
        return;
    };
    let strip = Strip::new(scene, view, parts(scene, area).cells);
    let Some((record_idx, cell)) = strip.at(at) else {
        return;
    };
    let place = view.history.grid().place(cell);
    app.selection.stack = place.grid();
    app.selection.layer_idx = place.layer_idx.unwrap_or(0);
    if let Some(head_idx) = place.head_idx {
        app.selection.head_idx = head_idx;
    }
    if let Some(view) = &mut app.training {
        (view.at, view.onset) = (record_idx, None);
    }
}
