//! Draws one frame from the state: header, tabs, panel, footer and overlays. Changes nothing.

use attnscope_checkpoint::counted::counted;
use attnscope_report::is_hidden;
use attnscope_worker::PromptOrigin;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::areas::{LEAST, has_room};
use super::figure::fitting;
use super::footer::footer;
use super::header::{header, spread};
use super::panels;
use super::state::app::{App, Overlay};
use super::state::find::Target;
use super::state::panel::Panel;
use super::state::run::Run;
use super::state::scene::Scene;
use super::widgets::{chooser, help, overlay, palette, strip, text_field, writing};

/// Draws one frame.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let app = app.scene();
    let size = frame.area().as_size();
    if !has_room((size.width, size.height)) {
        let text = format!(
            "attnscope needs {} × {}, this terminal is {} × {}",
            LEAST.0, LEAST.1, size.width, size.height
        );
        frame.render_widget(
            Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }),
            frame.area(),
        );
        return;
    }
    let areas = app.areas_of((size.width, size.height));
    frame.render_widget(header(app, areas.header.width), areas.header);
    frame.render_widget(tabs(app, areas.tabs.width), areas.tabs);
    panels::draw(frame, areas.body, app);
    mark_focus(frame, areas.body, app);
    if !areas.strip.is_empty() {
        strip::draw(frame, areas.strip, app);
    }
    match &app.overlay {
        Some(Overlay::Help { scroll, typed }) => {
            help::draw(frame, areas.body, app, *scroll, typed.as_deref());
        }
        Some(Overlay::Page { check, scroll }) => {
            overlay::page(frame, areas.body, app, check, *scroll);
        }
        Some(Overlay::Find(find)) => overlay::find(frame, areas.body, app, find),
        Some(Overlay::Palette(find)) => {
            let beside = palette::draw(frame, areas.body, app, find);
            let chosen = find.item(find.cursor).map(|item| &item.target);
            if let (
                Some(beside),
                Some(Target::Head {
                    grid,
                    layer_idx,
                    head_idx,
                }),
            ) = (beside, chosen)
            {
                let head = (*grid, *layer_idx, *head_idx);
                panels::head_preview::draw(frame, beside, app, head);
            }
        }
        Some(Overlay::Edit(editor)) => text_field::text_field(frame, areas.body, app, editor),
        Some(Overlay::Copy(offers)) => overlay::copying(frame, areas.body, app, offers),
        Some(Overlay::WhatIf(chooser)) => chooser::draw(frame, areas.body, app, chooser),
        Some(Overlay::Writing(view)) => writing::draw(frame, areas.body, app, view),
        // It stands in the last line.
        Some(Overlay::Filter { .. }) | None => {}
    }
    frame.render_widget(
        Paragraph::new(footer(app, areas.footer.width)),
        areas.footer,
    );
    leave_hidden_out(frame.buffer_mut());
}

/// Draws the border of the pane with the focus in the colour of what is selected.
fn mark_focus(frame: &mut Frame<'_>, body: Rect, app: Scene<'_>) {
    let Some(focus) = app.focused_pane().filter(|_| !app.shows_one_pane()) else {
        return;
    };
    let panes = panels::panes(app, body);
    let Some(pane) = panes.get(focus.min(panes.len().saturating_sub(1))) else {
        return;
    };
    let buffer = frame.buffer_mut();
    let pane = pane.intersection(buffer.area);
    for at in pane.positions() {
        let is_edge = at.x == pane.x
            || at.y == pane.y
            || at.x + 1 == pane.right()
            || at.y + 1 == pane.bottom();
        let cell = &mut buffer[at];
        if is_edge && "─│┌┐└┘├┤┬┴┼".contains(cell.symbol()) {
            cell.set_style(app.theme.accent());
        }
    }
}

/// Removes characters that a terminal would act on: file names and contents may contain any.
fn leave_hidden_out(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol().len() > 1 && cell.symbol().contains(is_hidden) {
            let shown: String = cell.symbol().chars().filter(|c| !is_hidden(*c)).collect();
            cell.set_symbol(if shown.is_empty() { " " } else { &shown });
        }
    }
}

/// Labels of the tabs in order; if the titles do not all fit, the keys alone, with the title of the open panel.
fn tab_texts(app: Scene<'_>, width: u16) -> Vec<(Panel, String)> {
    let texts = |are_whole: bool| -> Vec<(Panel, String)> {
        let text = |panel: Panel| {
            let key = app.key_name_of(panel);
            if are_whole || panel == app.panel {
                format!(" {key} {}", panel.title())
            } else {
                format!(" {key}")
            }
        };
        app.panels().map(|panel| (panel, text(panel))).collect()
    };
    let whole = texts(true);
    let used: usize = whole.iter().map(|(_, text)| text.chars().count()).sum();
    if used < width as usize {
        whole
    } else {
        texts(false)
    }
}

/// Builds line 2: the panels, and the current text.
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
    // Tabs are buttons, so the text gives way to them.
    let used: usize = left.iter().map(Span::width).sum();
    let room = (width as usize).saturating_sub(used + 4);
    let right = match app.run() {
        None => Vec::new(),
        Some(run) => {
            let picture = run.prompt.picture.as_deref();
            let origin = match run.origin {
                PromptOrigin::BuiltIn if picture.is_some() => "built-in picture",
                PromptOrigin::BuiltIn => "built-in text",
                PromptOrigin::Asked => "",
            };
            let ids = match picture {
                Some(picture) => {
                    let [rows, columns] = picture.grid();
                    format!("{columns} × {rows} patches")
                }
                None if app.has_tokenizer => String::new(),
                None => "ids, no tokenizer".to_owned(),
            };
            let dropped = match run.prompt.given().n_cut {
                0 => String::new(),
                n => format!("{n} cut"),
            };
            let limits = run.subject.model().map(|model| model.spec.limits());
            let is_beyond = limits.is_some_and(|limits| limits.beyond(&run.prompt).is_some());
            let beyond = if is_beyond { "beyond the context" } else { "" };
            let lost = run.prompt.lost_words();
            let lost = lost.unwrap_or_default();
            // What does not fit whole is left out.
            let n_tokens = n_tokens(run);
            let parts = [&n_tokens, beyond, &dropped, origin, &ids, &lost];
            vec![Span::styled(
                format!("{} ", fitting(&parts, room)),
                theme.dim(),
            )]
        }
    };
    spread(left, right, width)
}

/// Number of tokens of the run, on both sides if there are two.
fn n_tokens(run: &Run) -> String {
    let n = run.prompt.tokens.len();
    match &run.prompt.source {
        Some(source) => format!("{} → {}", source.tokens.len(), counted(n, "token")),
        None => counted(n, "token"),
    }
}

/// The panel whose tab is at a position.
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
