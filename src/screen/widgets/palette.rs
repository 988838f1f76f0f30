//! The palette: the query, its matches, and a description of the chosen line.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use super::frame::clear_box;
use crate::figure::{fit, wrapped};
use crate::state::find::{Find, Target};
use crate::state::scene::Scene;

const WIDTH: u16 = 104;
const HEIGHT: u16 = 30;
/// Columns of an item's kind, and of its mark.
const KIND: usize = 10;
const MARK: usize = 2;
/// Lines of the chosen item's description.
const ABOUT: u16 = 3;

/// Narrowest list that leaves room for a picture beside it, and the columns of that room.
const LEAST_BESIDE: u16 = 96;
const BESIDE: u16 = 28;

/// Draws the palette; gives the room beside the list that is kept free for a picture of the chosen line, if any line shown is a head.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, find: &Find) -> Option<Rect> {
    let theme = &app.theme;
    let place = area.centered(
        Constraint::Length(WIDTH.min(area.width)),
        Constraint::Length(HEIGHT.min(area.height)),
    );
    let title = find.title.unwrap_or("search everything");
    let title = format!(" {title} · {} · Esc closes ", find.keys);
    let inside = clear_box(frame, place, app, title);
    let rows = [
        Constraint::Length(2),
        Constraint::Min(0),
        Constraint::Length(ABOUT),
    ];
    let [input, list, about] = Layout::vertical(rows).areas(inside);
    let typed = Line::from(vec![
        Span::styled(" : ", theme.accent()),
        Span::raw(find.query.clone()),
        Span::styled(" ", theme.selected()),
    ]);
    frame.render_widget(typed, input);
    let n_rows = list.height as usize;
    let first = find.cursor.saturating_sub(n_rows.saturating_sub(1));
    let of_heads = (first..first + n_rows).filter_map(|idx| find.item(idx));
    let has_heads = of_heads
        .into_iter()
        .any(|item| matches!(item.target, Target::Head { .. }));
    let (list, beside) = if has_heads && list.width >= LEAST_BESIDE {
        let columns = [Constraint::Min(0), Constraint::Length(BESIDE)];
        let [list, beside] = Layout::horizontal(columns).areas(list);
        (list, Some(beside))
    } else {
        (list, None)
    };
    let width = list.width as usize;
    let shown = (first..first + n_rows).map_while(|idx| Some((idx, find.item(idx)?)));
    let both = width.saturating_sub(KIND + MARK + 2);
    // Names have two fifths, and what short descriptions leave.
    let described = shown.clone().filter(|(_, item)| !item.about.is_empty());
    let longest = described.fold((0, 0), |(name, about), (_, item)| {
        (
            name.max(item.label.width() + 1),
            about.max(item.about.width()),
        )
    });
    let most = both.saturating_sub(longest.1.min(both * 3 / 5));
    let name = longest.0.min(most).max(both * 2 / 5).max(12);
    let room = both.saturating_sub(name);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (idx, item) in shown {
        let mark = if find.is_current(idx) { "● " } else { "  " };
        // An item without description uses that room for its name.
        let (label, about) = if item.about.is_empty() {
            (fit(&item.label, name + room), String::new())
        } else {
            (fit(&item.label, name - 1) + " ", fit(&item.about, room))
        };
        let kind = format!(" {:>width$}", item.kind, width = KIND - 1);
        let is_chosen = idx == find.cursor;
        let of = |style: Style| if is_chosen { theme.selected() } else { style };
        lines.push(Line::from(vec![
            Span::styled(format!(" {mark}{label}"), of(Style::new())),
            Span::styled(about, of(theme.dim())),
            Span::styled(kind, of(theme.accent())),
        ]));
    }
    if lines.is_empty() {
        let none = match &find.problem {
            Some(problem) => format!(" {problem}"),
            None => {
                " nothing by that name; compare with PATH or TEXT puts something beside this run, L1 entropy<0.1 type=induction lists heads"
                    .to_owned()
            }
        };
        let said = wrapped(&none, width.saturating_sub(1)).into_iter();
        lines.extend(said.map(|line| Line::styled(format!(" {}", line.trim_start()), theme.dim())));
    }
    frame.render_widget(Paragraph::new(lines), list);
    if let Some(item) = find.item(find.cursor) {
        let said = if item.about.is_empty() {
            &item.label
        } else {
            &item.about
        };
        let said = wrapped(said, (about.width as usize).saturating_sub(2));
        let lines = said.into_iter().take(ABOUT as usize - 1);
        let lines = lines.map(|line| Line::styled(format!(" {line}"), theme.dim()));
        let below = std::iter::once(Line::default()).chain(lines);
        frame.render_widget(Paragraph::new(below.collect::<Vec<_>>()), about);
    }
    beside
}
