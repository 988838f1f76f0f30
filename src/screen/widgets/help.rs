//! The list of all keys: those of the open panel first, the others by group; letters filter it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::frame::clear_box;
use super::overlay::middle;
use crate::figure::wrapped;
use crate::state::keymap::action_name;
use crate::state::keys::{Binding, Group};
use crate::state::matching::Matching;
use crate::state::scene::Scene;

/// Draws all keys, or those that the typed letters find.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, scroll: usize, typed: Option<&str>) {
    let theme = &app.theme;
    let width = HELP_WIDTH.min(area.width.saturating_sub(2)) as usize;
    let mut lines = Vec::new();
    let rows: Vec<(&'static Binding, &str)> = Group::ALL
        .into_iter()
        .flat_map(|group| app.keys.of_group(group))
        .collect();
    let n_all = rows.len();
    let rows = found(rows, typed.unwrap_or_default());
    // Leave movement keys in their group: they do the same everywhere, even where some panels use other keys.
    let is_own = |binding: &Binding| {
        !binding.panels.is_empty() && binding.is_in(app.panel) && binding.group != Group::Moving
    };
    let own: Vec<(&Binding, &str)> = rows
        .iter()
        .copied()
        .filter(|(binding, _)| is_own(binding))
        .collect();
    let mut section = |title: &str, rows: &[(&Binding, &str)]| {
        if rows.is_empty() {
            return;
        }
        lines.push(Line::styled(title.to_owned(), theme.title()));
        for (binding, shown) in rows {
            lines.extend(help_lines(app, binding, shown, width));
        }
        lines.push(Line::default());
    };
    section(app.panel.title(), &own);
    for group in Group::ALL {
        let others = rows.iter().copied();
        let others: Vec<(&Binding, &str)> = others
            .filter(|(binding, _)| binding.group == group && !is_own(binding))
            .collect();
        // The panel's own keys of this group are listed above.
        let title = if own.iter().any(|(binding, _)| binding.group == group) {
            format!("{}, in other panels", group.title())
        } else {
            group.title().to_owned()
        };
        section(&title, &others);
    }
    let own = own_commands(app, typed.unwrap_or_default());
    if !own.is_empty() {
        lines.push(Line::styled("Commands of your settings", theme.title()));
        for (shown, text) in &own {
            lines.extend(row_lines(app, (shown, text), Style::new(), width));
        }
        lines.push(Line::default());
    }
    let (n_all, n) = (n_all + app.keys.commands().len(), rows.len() + own.len());
    let title = match typed {
        None => " keys · / filters · ↑↓ scroll · any other key closes ".to_owned(),
        Some(typed) => {
            format!(" keys · /{typed}▏ · {n} of {n_all} · Esc shows all ")
        }
    };
    if n == 0 {
        lines.push(Line::styled("no key matches", theme.dim()));
    }
    let mouse = "The mouse works too: click tabs, key hints, the badge of findings, heads, cells, bars and tokens; the wheel moves and \
                 zooms; resting on a cell shows its value.";
    let is_whole = typed.is_none_or(str::is_empty);
    let mouse = wrapped(mouse, width).into_iter().filter(|_| is_whole);
    lines.extend(mouse.map(|line| Line::styled(line, theme.dim())));
    let inside = clear_box(
        frame,
        middle(area, HELP_WIDTH + 2, lines.len() as u16 + 2),
        app,
        title,
    );
    let scroll = scroll.min(lines.len().saturating_sub(inside.height as usize));
    frame.render_widget(Paragraph::new(lines).scroll((scroll as u16, 0)), inside);
}

/// The rows that letters find by their keys, their description, and the name that settings have for them.
fn found<'a>(
    rows: Vec<(&'static Binding, &'a str)>,
    typed: &str,
) -> Vec<(&'static Binding, &'a str)> {
    let mut matching = Matching::of_words(typed);
    let is_found = |(binding, shown): &(&Binding, &str)| {
        let (help, name) = (binding.help, action_name(binding.action));
        let text = format!("{shown} {help} {} {name}", binding.label);
        matching.score(&text).is_some()
    };
    rows.into_iter().filter(is_found).collect()
}

/// The commands of the settings that letters find: their keys, and what they do.
fn own_commands(app: Scene<'_>, typed: &str) -> Vec<(String, String)> {
    let mut matching = Matching::of_words(typed);
    let own = app.keys.commands().iter();
    let own = own.map(|own| {
        let text = format!("{}: {}", own.command.name, own.about());
        (own.shown(), text)
    });
    let found = |(shown, text): &(String, String)| {
        let words = format!("{shown} {text} commands");
        matching.score(&words).is_some()
    };
    own.filter(found).collect()
}

/// Columns of the help, if they fit.
const HELP_WIDTH: u16 = 96;
/// Columns of the keys in it.
const KEYS_WIDTH: usize = 12;

/// A row of the help, wrapped if it is too long: the keys, the action, and why it is not possible now.
fn help_lines(app: Scene<'_>, binding: &Binding, shown: &str, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let applies = binding.is_in(app.panel);
    let reason = app.lacks(binding.needs).filter(|_| applies);
    let style = if reason.is_some() || !applies {
        theme.dim()
    } else {
        Style::new()
    };
    let text = match reason {
        Some(reason) => format!("{} ({reason})", binding.help),
        None => binding.help.to_owned(),
    };
    row_lines(app, (shown, &text), style, width)
}

/// Keys and a text, which is wrapped if it is too long.
fn row_lines(
    app: Scene<'_>,
    (shown, text): (&str, &str),
    style: Style,
    width: usize,
) -> Vec<Line<'static>> {
    let theme = &app.theme;
    // What has no key is reached from the palette.
    let shown = if shown.is_empty() { ":" } else { shown };
    let broken = wrapped(text, width.saturating_sub(KEYS_WIDTH).max(1));
    let lines = broken.into_iter().enumerate();
    lines
        .map(|(nth, part)| {
            let keys = if nth == 0 { shown } else { "" };
            let keys = format!("  {keys:<width$}", width = KEYS_WIDTH - 2);
            Line::from(vec![
                Span::styled(keys, theme.accent()),
                Span::styled(part, style),
            ])
        })
        .collect()
}
