//! Effects of heads on the output: heads by a measure, the path of a logit through the layers, and the logit lens.

use attnscope_spec::Place;
use attnscope_terminal::theme::Theme;
use attnscope_worker::EffectShown;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use super::{effect_path, effect_ranking};
use crate::figure::{cut, figure, figure_within, fit, share, wrapped};
use crate::state::app::App;
use crate::state::keys::Action;
use crate::state::needs::NO_EFFECT;
use crate::state::runs::Shows;
use crate::state::scene::Scene;
use crate::state::views::Axis;
use crate::widgets::frame::{draw_reason, framed, waiting};
use crate::widgets::legend::legend;

/// Rows of the grid besides its layers: border, head numbers, legend.
const AROUND: usize = 4;

/// Columns of a layer's label.
const LABEL: usize = 6;

/// Layout of the panel.
struct Parts {
    grid: Rect,
    ranking: Rect,
    lens: Rect,
    path: Rect,
}

fn parts(app: Scene<'_>, area: Rect) -> Parts {
    // Without predictions there is neither a lens nor a path.
    let share = match app.no_predictions() {
        Some(_) => 100,
        None => 48,
    };
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(share), Constraint::Min(0)]).areas(area);
    let n_layers = app.n_layers();
    let around = AROUND + n_below(app, left.width) as usize;
    let n_grid = (n_layers + around)
        .min(area.height as usize / 2)
        .max(around + 1);
    let [grid, ranking] =
        Layout::vertical([Constraint::Length(n_grid as u16), Constraint::Min(0)]).areas(left);
    let n_depths = app
        .effects()
        .map_or(n_layers + 1, |shown| shown.lens.len().max(1));
    let n_lens = (n_depths + 3).min(area.height as usize * 3 / 5);
    let [lens, path] =
        Layout::vertical([Constraint::Length(n_lens as u16), Constraint::Min(0)]).areas(right);
    let mut parts = Parts {
        grid,
        ranking,
        lens,
        path,
    };
    let Parts {
        grid,
        ranking,
        lens,
        path,
    } = &mut parts;
    app.arrange(area, &mut [grid, ranking, lens, path]);
    parts
}

/// The boxes of the panel; none while nothing is measured.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    if app.effects().is_none() {
        return Vec::new();
    }
    let parts = parts(app, area);
    vec![parts.grid, parts.ranking, parts.lens, parts.path]
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let is_model = app
        .subject()
        .is_none_or(|subject| subject.model().is_some());
    if !is_model {
        let inside = framed(frame, area, app, " effect ");
        return draw_reason(frame, inside, app, NO_EFFECT);
    }
    let parts = parts(app, area);
    let Some(shown) = app.effects() else {
        let measure = app.effect_measure();
        let inside = framed(frame, area, app, format!(" effect by {} ", measure.title()));
        if app.awaits_effects() {
            let stops = app.keys.key(Action::StopRun);
            let text = format!("measuring: {} … {stops} stops", measure.about());
            draw_reason(frame, inside, app, &text);
        } else {
            waiting(frame, inside, app);
        }
        return;
    };
    let ends = ends(app, shown);
    if !parts.grid.is_empty() {
        draw_grid(frame, parts.grid, app, shown, ends);
    }
    if !parts.ranking.is_empty() {
        effect_ranking::draw(frame, parts.ranking, app, shown, ends);
    }
    if !parts.lens.is_empty() {
        draw_lens(frame, parts.lens, app, shown);
    }
    if !parts.path.is_empty() {
        effect_path::draw(frame, parts.path, app, shown);
    }
}

/// The ends of the scale: around 0, or from 0 for a measure that cannot be negative.
pub fn ends(app: Scene<'_>, shown: &EffectShown) -> (f64, f64) {
    let heads = shown.heads.iter().map(|(_, value)| value.abs());
    let others = shown.others.iter().map(|(_, value)| value.abs());
    let finite = heads.chain(others).filter(|value| value.is_finite());
    let most = finite.fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    let low = if app.effect_measure().is_signed() {
        -most
    } else {
        0.0
    };
    (low, most)
}

/// The theme of a scale.
pub(super) fn theme_of(app: Scene<'_>, (low, _): (f64, f64)) -> Theme {
    if low < 0.0 {
        app.theme.diverging()
    } else {
        app.theme.clone()
    }
}

fn title(app: Scene<'_>, shown: &EffectShown) -> String {
    let (n_done, n_all) = shown.progress;
    let so_far = match app.awaits_effects() {
        true if n_all > 0 => format!(" · {n_done} of {n_all} … c stops"),
        true => " · …".to_owned(),
        false => String::new(),
    };
    let label = app.selection.stack.label();
    let grid = label.map_or(String::new(), |label| format!("{label} · "));
    let title = app.effect_measure().title();
    format!(" {grid}{title}{}{so_far} ", side(app))
}

/// Label of the measured run when the screen shows a difference: effects are measured on one run.
pub(super) fn side(app: Scene<'_>) -> String {
    let second = app.runs.b.as_ref().filter(|_| app.shows_difference());
    second.map_or(String::new(), |second| {
        format!(" · {}", second.way.label(Shows::B))
    })
}

/// Columns of a head's cell.
fn cell_width(app: Scene<'_>, width: usize) -> usize {
    let room = width.saturating_sub(LABEL + 2);
    (room / app.n_heads().max(1)).clamp(2, 7)
}

fn draw_grid(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    shown: &EffectShown,
    ends: (f64, f64),
) {
    let inside = ratatui::widgets::Block::bordered().inner(area);
    let theme = theme_of(app, ends);
    let width = cell_width(app, area.width as usize);
    let n_rows = (inside.height as usize).saturating_sub(2 + n_below(app, area.width) as usize);
    let n_layers = app.n_layers();
    let selected = app.selection.layer_idx;
    let first = selected
        .saturating_sub(n_rows / 2)
        .min(n_layers.saturating_sub(n_rows));
    let mut title = title(app, shown);
    if n_rows < n_layers {
        title += &format!(
            "· layers {first}–{} of {n_layers} ",
            first + n_rows.max(1) - 1
        );
    }
    framed(frame, area, app, title);
    let numbers: String = (0..app.n_heads())
        .map(|head_idx| {
            let is_shown = width > 2 || head_idx % 5 == 0;
            let text = if is_shown {
                head_idx.to_string()
            } else {
                String::new()
            };
            format!("{text:<width$}")
        })
        .collect();
    let mut lines = vec![Line::styled(
        cut(&format!("{:LABEL$}{numbers}", ""), inside.width as usize),
        app.theme.dim(),
    )];
    for layer_idx in (first..n_layers).take(n_rows) {
        let is_here = layer_idx == selected;
        let style = if is_here {
            app.theme.strong()
        } else {
            app.theme.dim()
        };
        let mut spans = vec![Span::styled(
            format!(" {:<5}", format!("L{layer_idx}")),
            style,
        )];
        for head_idx in 0..app.n_heads() {
            let place = Place::layer(app.selection.stack, layer_idx).head(head_idx);
            let found = shown
                .heads
                .iter()
                .find(|(known, _)| known.is_same_head(&place));
            let is_selected = is_here && head_idx == app.selection.head_idx;
            let Some((_, value)) = found else {
                spans.push(Span::styled(fit("·", width), app.theme.dim()));
                continue;
            };
            let at = share(*value, ends);
            let mark = if is_selected { '◆' } else { ' ' };
            let (style, glyph) = if theme.has_colour() {
                (Style::new().bg(theme.heat(at)).fg(theme.on_heat(at)), ' ')
            } else {
                (Style::new(), theme.glyph(at))
            };
            let mut text = if width >= 7 {
                format!("{mark}{}", figure_within(*value, width - 2))
            } else if is_selected {
                mark.to_string()
            } else {
                glyph.to_string()
            };
            text = fit(&text, width - 1);
            spans.push(Span::styled(text, style));
            spans.push(Span::raw(" "));
        }
        lines.push(Line::from(spans));
    }
    frame.render_widget(Paragraph::new(lines), inside);
    let n_below = n_below(app, area.width);
    let bottom = Rect {
        y: inside.bottom().saturating_sub(n_below + 1),
        height: 1.min(inside.height),
        ..inside
    };
    let has_values = shown.heads.iter().any(|(_, value)| value.is_finite());
    let mut line = match &shown.note {
        _ if has_values => legend(
            &theme,
            &format!(" {}", figure(ends.0, 0)),
            &figure(ends.1, 0),
            9,
        ),
        _ if app.awaits_effects() => Line::styled(" measuring … c stops", app.theme.dim()),
        // The ranking has room for the reason.
        Some(_) => Line::styled(" no values", app.theme.dim()),
        None => Line::styled(" no value yet", app.theme.dim()),
    };
    let about = about(app);
    if n_below == 0 {
        line.push_span(Span::styled(format!("  {about}"), app.theme.dim()));
        frame.render_widget(line, bottom);
        return;
    }
    frame.render_widget(line, bottom);
    let below = Rect {
        x: inside.x + 1,
        y: bottom.y + 1,
        width: inside.width.saturating_sub(1),
        height: n_below,
    };
    let lines = wrapped(&about, below.width as usize);
    let lines = lines
        .into_iter()
        .map(|line| Line::styled(line, app.theme.dim()));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), below);
}

/// What the numbers mean, and why there are no others.
fn about(app: Scene<'_>) -> String {
    let about = app.effect_measure().about();
    match app.no_predictions() {
        Some(why) => format!("{about} · {why}"),
        None => about.to_owned(),
    }
}

/// Columns of the scale below the grid, with the numbers at its ends.
const SCALE: usize = 28;

/// Rows below the scale for the meaning of a number; 0 if the meaning fits next to the scale.
fn n_below(app: Scene<'_>, width: u16) -> u16 {
    let about = about(app);
    let width = (width as usize).saturating_sub(3);
    if SCALE + about.chars().count() <= width {
        0
    } else {
        wrapped(&about, width.max(1)).len() as u16
    }
}

/// The selected head's value of the chosen measure.
pub fn selected_value(app: Scene<'_>) -> Option<f64> {
    let here = app.selected_place();
    let mut heads = app.effects()?.heads.iter();
    let found = heads.find(|(place, _)| place.is_same_head(&here));
    found.map(|(_, value)| *value)
}

pub(super) fn label(shown: &EffectShown, id: u32) -> String {
    let found = shown.labels.get(&id);
    found.map_or_else(|| id.to_string(), |label| crate::figure::token_label(label))
}

fn draw_lens(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, shown: &EffectShown) {
    let query = app.selection.query_idx;
    let title = format!(
        " lens{} · after {query} “{}” · ←→ ",
        side(app),
        app.token(Axis::Query, query)
    );
    let inside = framed(frame, area, app, cut(&title, area.width as usize - 4));
    if shown.lens.is_empty() {
        let why = shown
            .note
            .clone()
            .unwrap_or_else(|| "no lens here".to_owned());
        return draw_reason(frame, inside, app, &why);
    }
    let heading = format!(" {:<7}{:>7} {:>6}  {}", "layers", "KL", "rank", "likeliest");
    let mut lines = vec![Line::styled(
        cut(&heading, inside.width as usize),
        app.theme.dim(),
    )];
    // If not all fit, show the last depths, which matter most.
    let n_rows = (inside.height as usize).saturating_sub(1);
    let first = shown.lens.len().saturating_sub(n_rows);
    for row in &shown.lens[first..] {
        let top = row
            .top
            .iter()
            .map(|(id, p)| format!("{} {p:.2}", label(shown, *id)));
        let rank = row.rank.map_or("–".to_owned(), |rank| rank.to_string());
        let depth = match row.depth {
            0 => "embed".to_owned(),
            depth => depth.to_string(),
        };
        let mut text = format!(" {depth:<7}{} {rank:>6}  ", figure(row.kl, 7));
        // Show as many as fit uncut, and the likeliest one always.
        for (nth, part) in top.enumerate() {
            let part = if nth == 0 {
                part
            } else {
                format!(" · {part}")
            };
            if nth > 0 && text.width() + part.width() >= inside.width as usize {
                break;
            }
            text.push_str(&part);
        }
        lines.push(Line::raw(cut(&text, inside.width as usize)));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

/// Selects the head under the pointer.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    let scene = app.scene();
    let places = parts(scene, area);
    let Some(shown) = scene.effects() else { return };
    let list = ratatui::widgets::Block::bordered().inner(places.ranking);
    if !list.contains(Position::new(column, row)) {
        return;
    }
    let row = usize::from(row - list.y);
    if let Some(place) = effect_ranking::place_at(scene, shown, list.height as usize, row) {
        app.selection.stack = place.grid();
        app.selection.layer_idx = place.layer_idx.unwrap_or(0);
        app.selection.head_idx = place.head_idx.unwrap_or(0);
    }
}
