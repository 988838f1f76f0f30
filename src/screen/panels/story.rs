//! The story of a demo: each page states one thing and shows it.

use attnscope_compute::attention::Visibility;
use attnscope_report::chart::Chart;
use attnscope_report::{Map, Page, Passage, Picture, Sheet, wrapped};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph};

use crate::figure::{cut, figure};
use crate::state::app::App;
use crate::state::scene::Scene;
use crate::state::story_view::StoryView;
use crate::widgets::chart::{chart_places, draw_chart};
use crate::widgets::frame::framed;
use crate::widgets::heatmap::Scale;
use crate::widgets::hidden::Hidden;
use crate::widgets::margins::Margin;
use crate::widgets::whole_map::{WholeMap, draw_whole};

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let theme = &app.theme;
    let Some(story) = &app.story else {
        let inside = framed(frame, area, app, " story ");
        let text = " this session has no story; attnscope demo lists the demos that tell one";
        frame.render_widget(Line::styled(text, theme.dim()), inside);
        return;
    };
    let Some(page) = story.page() else {
        let inside = framed(frame, area, app, " story ");
        let text = " computing the pages of the story …";
        frame.render_widget(Line::styled(text, theme.dim()), inside);
        return;
    };
    let title = format!(
        " {} of {} · {} ",
        story.page_idx + 1,
        story.pages.len(),
        page.title
    );
    framed(frame, area, app, cut(&title, area.width as usize - 4));
    let parts = parts(area, page);
    let words: Vec<Line<'_>> = words(page, area)
        .into_iter()
        .map(|line| Line::raw(format!(" {line}")))
        .collect();
    frame.render_widget(Paragraph::new(words), parts.words);
    match &page.picture {
        Picture::Charts(charts) => draw_charts(frame, parts.picture, app, charts),
        Picture::Maps(maps) => draw_maps(frame, parts.picture, app, maps),
        Picture::Table(_) | Picture::Passages(_) => {
            let text = text(page, parts.picture.width);
            let [title, rest] =
                Layout::vertical([Constraint::Length(text.n_fixed as u16), Constraint::Min(0)])
                    .areas(parts.picture);
            let line = |(line, style): &(String, Look)| match style {
                Look::Plain => Line::raw(format!(" {line}")),
                Look::Title => Line::styled(format!(" {line}"), theme.dim()),
                Look::Heading => Line::styled(format!(" {line}"), theme.strong()),
            };
            let lines: Vec<Line<'_>> = text.lines.iter().map(line).collect();
            let (fixed, moving) = lines.split_at(text.n_fixed);
            let first = story.scroll.min(most_scroll(page, area));
            frame.render_widget(Paragraph::new(fixed.to_vec()), title);
            frame.render_widget(Paragraph::new(moving[first..].to_vec()), rest);
        }
    }
    let hint = cut(&hint(story, page, area), parts.hint.width as usize);
    frame.render_widget(Line::styled(hint, theme.dim()), parts.hint);
}

/// Layout of the panel.
struct Parts {
    words: Rect,
    picture: Rect,
    hint: Rect,
}

fn parts(area: Rect, page: &Page) -> Parts {
    let inside = Block::bordered().inner(area);
    let rows = [
        Constraint::Length(words(page, area).len() as u16 + 1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [words, picture, hint] = Layout::vertical(rows).areas(inside);
    Parts {
        words,
        picture,
        hint,
    }
}

/// The text of the page, in lines.
fn words(page: &Page, area: Rect) -> Vec<String> {
    let width = (area.width as usize).saturating_sub(4);
    let lines = wrapped(&page.words, width, "");
    lines.lines().map(str::to_owned).collect()
}

/// Style of a line of text.
enum Look {
    Plain,
    Title,
    Heading,
}

/// A picture made of text.
struct Text {
    lines: Vec<(String, Look)>,
    /// Leading lines that do not scroll.
    n_fixed: usize,
    /// Columns of a table that do not fit.
    n_left_out: usize,
}

fn text(page: &Page, width: u16) -> Text {
    let width = (width as usize).saturating_sub(2);
    match &page.picture {
        Picture::Table(table) => {
            let (table, n_left_out) = table.text_within(width);
            let line = |(nth, line): (usize, &str)| {
                let look = if nth == 0 { Look::Title } else { Look::Plain };
                (cut(line, width), look)
            };
            Text {
                lines: table.lines().enumerate().map(line).collect(),
                n_fixed: 1,
                n_left_out,
            }
        }
        Picture::Passages(passages) => Text {
            lines: passages
                .iter()
                .flat_map(|passage| passage_lines(passage, width))
                .collect(),
            n_fixed: 0,
            n_left_out: 0,
        },
        Picture::Charts(_) | Picture::Maps(_) => Text {
            lines: Vec::new(),
            n_fixed: 0,
            n_left_out: 0,
        },
    }
}

/// Maximum columns of a passage: longer lines are hard to read.
const MEASURE: usize = 110;

fn passage_lines(passage: &Passage, width: usize) -> Vec<(String, Look)> {
    let width = width.saturating_sub(2).min(MEASURE);
    let mut lines = vec![(passage.title.clone(), Look::Heading)];
    for paragraph in passage.text.lines() {
        let text = wrapped(paragraph, width, "");
        lines.extend(text.lines().map(|line| (format!("  {line}"), Look::Plain)));
    }
    lines.push((String::new(), Look::Plain));
    lines
}

/// Maximum scroll of a page, in lines.
pub fn most_scroll(page: &Page, area: Rect) -> usize {
    let picture = parts(area, page).picture;
    let text = text(page, picture.width);
    let last_is_blank = text.lines.last().is_some_and(|(line, _)| line.is_empty());
    let n_lines = text.lines.len() - usize::from(last_is_blank);
    n_lines.saturating_sub(picture.height as usize)
}

/// Hint about the keys of a page.
fn hint(story: &StoryView, page: &Page, area: Rect) -> String {
    let next = match story.pages.get(story.page_idx + 1) {
        Some(next) => format!(" → next: {}", next.title),
        None => " the last page · ← goes back · 1 to 9 show the model itself".to_owned(),
    };
    let mut hint = next;
    if most_scroll(page, area) > 0 {
        hint += " · ↑↓ more";
    }
    match text(page, parts(area, page).picture.width).n_left_out {
        0 => {}
        1 => hint += " · wider: one more column",
        n => hint += &format!(" · wider: {n} more columns"),
    }
    match &page.picture {
        Picture::Maps(maps) if maps.iter().any(Map::is_of_heads) => hint += " · [ ] other heads",
        _ => {}
    }
    hint
}

fn draw_charts(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, charts: &[Chart]) {
    for (chart, area) in charts.iter().zip(chart_places(area, charts.len())) {
        let inside = Rect {
            x: area.x + 1,
            width: area.width.saturating_sub(1),
            ..area
        };
        draw_chart(chart, inside, frame.buffer_mut(), &app.theme);
    }
}

/// Draws the maps of the selected head side by side, in one scale so that they can be compared.
fn draw_maps(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, maps: &[Map]) {
    let (layer_idx, head_idx) = (app.selection.layer_idx, app.selection.head_idx);
    let sheets: Vec<(&Map, &Sheet)> = maps
        .iter()
        .filter_map(|map| Some((map, map.sheet(layer_idx, head_idx)?)))
        .collect();
    let most = |sheet: &Sheet| sheet.values.level(usize::MAX).cells[0];
    let high = sheets
        .iter()
        .map(|(_, sheet)| most(sheet))
        .fold(0.0, f32::max);
    let scale = Scale {
        low: 0.0,
        high: if high > 0.0 { high } else { 1.0 },
        is_log: false,
    };
    let each = vec![Constraint::Fill(1); sheets.len()];
    let areas = Layout::horizontal(each).split(area);
    for ((map, sheet), area) in sheets.into_iter().zip(areas.iter()) {
        let place = if map.is_of_heads() {
            format!(" · L{layer_idx}H{head_idx}")
        } else {
            String::new()
        };
        let title = format!(" {}{place} ", map.title);
        let inside = framed(frame, *area, app, cut(&title, area.width as usize - 2));
        draw_sheet(frame, inside, app, map, sheet, scale);
    }
}

fn draw_sheet(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    map: &Map,
    sheet: &Sheet,
    scale: Scale,
) {
    let (theme, width) = (&app.theme, area.width as usize);
    let sums = [
        ("row sums", &sheet.row_sums),
        ("column sums", &sheet.column_sums),
    ];
    let told: Vec<String> = sums
        .iter()
        .filter_map(|(name, sums)| Some(format!("{name} {}", ends(sums)?)))
        .collect();
    let n_lines = told.len().min(if width >= 46 { 1 } else { 2 });
    let [above, below] =
        Layout::vertical([Constraint::Length(n_lines as u16), Constraint::Min(0)]).areas(area);
    let told = match n_lines {
        1 => vec![told.join(" · ")],
        _ => told,
    };
    let told: Vec<Line<'_>> = told
        .into_iter()
        .map(|line| Line::styled(cut(&format!(" {line}"), width), theme.accent()))
        .collect();
    frame.render_widget(Paragraph::new(told), above);
    let shares = sums.map(|(_, sums)| {
        let most = sums.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
        move |idx: usize| sums.get(idx).map(|sum| sum / most)
    });
    let finest = sheet.values.finest();
    let [of_rows, of_columns] = &shares;
    let margins = [
        Margin {
            n: map.row_labels.len(),
            pooling: finest.queries_per_cell,
            selected: None,
            label: &|idx| map.row_labels[idx].clone(),
            share: of_rows,
        },
        Margin {
            n: map.column_labels.len(),
            pooling: finest.keys_per_cell,
            selected: None,
            label: &|idx| map.column_labels[idx].clone(),
            share: of_columns,
        },
    ];
    let whole = WholeMap {
        theme,
        values: &sheet.values,
        hidden: hidden(app, map, [finest.queries_per_cell, finest.keys_per_cell]),
        scale,
        crosshair: None,
        margins: Some(margins),
    };
    draw_whole(frame, below, &whole);
}

/// What hides cells of a map: patterns of heads have the mask of the model.
fn hidden(app: Scene<'_>, map: &Map, per_cell: [usize; 2]) -> Hidden<'static> {
    let n = map.row_labels.len();
    let is_own = map.is_pattern && map.column_labels.len() == n;
    let mask = app.attention().map(|spec| spec.mask);
    match mask.filter(|mask| is_own && mask.causal) {
        Some(mask) => Hidden::by(Some(Visibility::of_self(mask, n, None)), per_cell),
        None => Hidden::Nothing,
    }
}

/// The smallest and the largest of some sums, as text.
fn ends(sums: &[f32]) -> Option<String> {
    let low = sums.iter().copied().reduce(f32::min)?;
    let high = sums.iter().copied().reduce(f32::max)?;
    let [low, high] = [low, high].map(|sum| figure(f64::from(sum), 0));
    Some(if low == high {
        low
    } else {
        format!("{low} … {high}")
    })
}

/// Goes to the next page on a click in the right half, and back in the left.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    if area.contains(Position::new(column, row)) {
        let is_right = column >= area.x + area.width / 2;
        app.step_story(if is_right { 1 } else { -1 }, 0);
    }
}
