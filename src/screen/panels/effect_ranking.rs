//! The list of what adds most to a measure, beside the grid of heads.

use attnscope_spec::Place;
use attnscope_worker::EffectShown;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::effect::{side, theme_of};
use crate::figure::{bar, figure, fit, share};
use crate::state::filter::List;
use crate::state::keys::Action;
use crate::state::scene::Scene;
use crate::widgets::frame::{draw_reason, framed};

/// A bar that starts at 0: in the middle, to the left for negative values, or at the left if there are none.
fn bar_around(value: f64, (low, most): (f64, f64), width: usize) -> String {
    if low >= 0.0 {
        return fit(&bar(share(value, (low, most)), width), width);
    }
    let half = width.saturating_sub(1) / 2;
    let n = ((value.abs() / most) * half as f64).round() as usize;
    let n = n.min(half);
    if value < 0.0 {
        format!(
            "{}{}│{}",
            " ".repeat(half - n),
            "█".repeat(n),
            " ".repeat(half)
        )
    } else {
        format!(
            "{}│{}{}",
            " ".repeat(half),
            "█".repeat(n),
            " ".repeat(half - n)
        )
    }
}

/// Entries of the ranking: heads, and for attribution every other part that contributes to the logit.
fn entries(shown: &EffectShown) -> Vec<(Option<Place>, String, f64)> {
    let heads = shown
        .heads
        .iter()
        .map(|(place, value)| (Some(*place), place.to_string(), *value));
    let others = shown
        .others
        .iter()
        .map(|(name, value)| (None, name.clone(), *value));
    let mut all: Vec<_> = heads.chain(others).collect();
    all.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
    all
}

/// The entries that the filter of heads shows; parts that are no heads are left out with a filter.
fn shown_entries(app: Scene<'_>, shown: &EffectShown) -> Vec<(Option<Place>, String, f64)> {
    let mut all = entries(shown);
    if app.filter_of(List::Heads).is_some() {
        all.retain(|(place, ..)| place.is_some_and(|place| !app.leaves_out(place)));
    }
    all
}

/// The title of the ranking, shortened to fit.
fn ranking_title(app: Scene<'_>, width: usize) -> String {
    let (key, side) = (app.keys.key(Action::DropHead), side(app));
    let note = app.filter_note(List::Heads);
    let titles = [
        format!(" largest first{side} {note}· {key} drops the head "),
        format!(" largest first{side} {note}· {key} drops it "),
    ];
    let fits = |title: &&String| title.chars().count() + 2 <= width;
    let found = titles.iter().find(fits);
    found.map_or_else(|| format!(" largest first{side} {note}"), String::clone)
}

/// Draws the ranking; `ends` are those of the grid's colours.
pub fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    shown: &EffectShown,
    ends: (f64, f64),
) {
    let inside = framed(frame, area, app, ranking_title(app, area.width as usize));
    let all = shown_entries(app, shown);
    if let (true, Some(why)) = (shown.heads.is_empty(), &shown.note) {
        return draw_reason(frame, inside, app, why);
    }
    let n_rows = inside.height as usize;
    let here = app.selected_place();
    let first = first_row(selected_at(app, &all), all.len(), n_rows);
    // Names are cut only where the bars would have no room.
    let names = all.iter().map(|(_, name, _)| name.chars().count() + 1);
    let least = if inside.width >= 50 { 19 } else { 9 };
    let name_width = names.max().unwrap_or(0).clamp(least, 19);
    let bar_width = (inside.width as usize).saturating_sub(name_width + 10);
    let theme = theme_of(app, ends);
    let lines = all
        .iter()
        .skip(first)
        .take(n_rows)
        .map(|(place, name, value)| {
            let is_selected = place.is_some_and(|place| place.is_same_head(&here));
            let is_marked = place.is_some_and(|place| app.marks.has(place));
            let mark = if is_marked { '•' } else { ' ' };
            let style = if is_selected {
                app.theme.selected()
            } else {
                Style::new()
            };
            // Use the colours at the ends of the grid's scale, so that a bar and a cell of the same sign have the same colour.
            let end = if *value < 0.0 { 0.0 } else { 1.0 };
            let bar_style = Style::new().fg(theme.heat(end));
            Line::from(vec![
                Span::styled(format!("{mark}{}", fit(name, name_width - 1)), style),
                Span::styled(bar_around(*value, ends, bar_width), bar_style),
                Span::raw(format!(" {}", figure(*value, 8))),
            ])
        });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}

/// The first entry of the ranking that is shown, so that the selected one is visible; the largest while nothing needs scrolling.
fn first_row(selected: Option<usize>, n: usize, n_rows: usize) -> usize {
    let first = selected
        .unwrap_or(0)
        .saturating_sub(n_rows.saturating_sub(1));
    first.min(n.saturating_sub(n_rows))
}

/// The place of the selected head among the entries.
fn selected_at(app: Scene<'_>, all: &[(Option<Place>, String, f64)]) -> Option<usize> {
    let here = app.selected_place();
    all.iter()
        .position(|(place, ..)| place.is_some_and(|p| p.is_same_head(&here)))
}

/// The head in a row of the list on screen, of `n_rows`.
pub fn place_at(app: Scene<'_>, shown: &EffectShown, n_rows: usize, row: usize) -> Option<Place> {
    let all = shown_entries(app, shown);
    let first = first_row(selected_at(app, &all), all.len(), n_rows);
    all.get(first + row)?.0
}
