//! The selected query's row: its figures at the crosshair, and its strongest keys.

use std::fmt::Write as _;

use attnscope_checks::stats::{HeadReport, LayerReport};
use attnscope_run::{HeadDetail, HeadMap, Pyramid};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use super::rows::has_entropy;
use crate::figure::{bar, change, figure, fit, share};
use crate::state::scene::Scene;
use crate::state::views::Axis;
use crate::widgets::frame::framed;

/// Draws the selected query's figures and strongest keys; those of A and B when the difference is shown.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, detail: &HeadDetail) {
    let query = app.selection.query_idx;
    let both = both(app);
    let side = match both {
        Some(_) => "· A → B ",
        None if app.shows_difference() => "· B ",
        None => "",
    };
    let title = format!(" query {query} “{}” {side}", app.token(Axis::Query, query));
    let inside = framed(frame, area, app, title);
    let mut lines: Vec<Line<'static>> = lines(app, both, inside, detail)
        .into_iter()
        .map(|(line, _)| line)
        .collect();
    lines.truncate(inside.height as usize);
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The key of the line under the pointer.
pub fn key_at(app: Scene<'_>, area: Rect, (column, row): (u16, u16)) -> Option<usize> {
    let inside = Block::bordered().inner(area);
    if !inside.contains(Position::new(column, row)) {
        return None;
    }
    let lines = lines(app, both(app), inside, app.shown_detail()?);
    lines.get(usize::from(row - inside.y))?.1
}

/// All lines, each with the key that it is about, if any.
fn lines(
    app: Scene<'_>,
    both: Option<[&HeadDetail; 2]>,
    inside: Rect,
    detail: &HeadDetail,
) -> Vec<(Line<'static>, Option<usize>)> {
    let theme = &app.theme;
    let (query, key) = (app.selection.query_idx, app.selection.key_idx);
    let width = inside.width as usize;
    let head_idx = app.selection.head_idx;
    let mut lines = vec![Line::styled(
        format!(" → key {key} “{}”", app.token(Axis::Key, key)),
        theme.strong(),
    )];
    let shown = app.layer().and_then(|layer| layer.heads.get(head_idx));
    let digits = if both.is_some() {
        Digits::Few
    } else {
        Digits::All
    };
    let of_shown = figures(app, (detail, shown), true, digits);
    let of_a = both.and_then(|[a, _]| {
        let layers = app.both_layers(app.selection.stack, app.selection.layer_idx)?;
        Some(figures(
            app,
            (a, layers[0].heads.get(head_idx)),
            false,
            digits,
        ))
    });
    for (name, value) in of_shown {
        let before = of_a.iter().flatten().find(|(other, _)| *other == name);
        if of_a.is_some() && before.is_none() {
            continue;
        }
        let text = match before {
            Some((_, before)) if *before != value => {
                format!("{before} → {value}")
            }
            _ => value,
        };
        let room = width.saturating_sub(name.chars().count() + text.chars().count() + 3);
        lines.push(Line::from(vec![
            Span::styled(format!(" {name}"), theme.dim()),
            Span::raw(" ".repeat(room.max(1))),
            Span::raw(text),
        ]));
    }
    lines.push(Line::default());
    let mut lines: Vec<_> = lines.into_iter().map(|line| (line, None)).collect();
    let keys = match (detail.pooling(), app.head_map()) {
        (1, HeadMap::Contribution) => "largest contributions",
        (1, _) => "strongest keys",
        (_, HeadMap::Contribution) => "cells of largest contribution",
        (_, _) => "strongest cells",
    };
    match both {
        Some(both) => lines.extend(keys_of_both(app, both, keys, inside)),
        None => lines.push((Line::styled(format!(" {keys}"), theme.title()), None)),
    }
    if both.is_none() {
        let n_bars = (inside.height as usize).saturating_sub(lines.len());
        let row_idx = query / detail.pooling();
        lines.extend(top_keys(app, detail, row_idx, n_bars, width));
    }
    lines
}

/// The head in A and in B, if the difference is shown and their rows correspond.
fn both(app: Scene<'_>) -> Option<[&HeadDetail; 2]> {
    let details = app.both_details().filter(|_| app.shows_difference())?;
    let sizes = details.map(|detail| {
        let map = detail.pattern.finest();
        (map.n_rows, map.n_cols, detail.pooling())
    });
    (sizes[0] == sizes[1] && !app.shows_part()).then_some(details)
}

/// Number of digits that fit: values of two sides share a line.
#[derive(Clone, Copy, PartialEq)]
enum Digits {
    All,
    Few,
}

impl Digits {
    fn of(self, value: f32, n_decimals: usize) -> String {
        match self {
            Self::All => format!("{value:.n_decimals$}"),
            Self::Few => figure(f64::from(value), 0),
        }
    }
}

/// Figures of the crosshair and its row, with their labels.
fn figures(
    app: Scene<'_>,
    (detail, head): (&HeadDetail, Option<&HeadReport>),
    is_shown: bool,
    digits: Digits,
) -> Vec<(String, String)> {
    let (query, key) = (app.selection.query_idx, app.selection.key_idx);
    let pooling = detail.pooling();
    let single = app.part_with(&(query..query + 1), &(key..key + 1));
    let single = single.filter(|_| is_shown && app.shows_part());
    let (score, probability) = match single {
        Some(part) => {
            let at = (query - part.queries.start, key - part.keys.start);
            let of = |values: &Pyramid| values.finest().at(at.0, at.1);
            (of(&part.scores), of(&part.pattern))
        }
        None => {
            let of = |values: &Pyramid| values.finest().at(query / pooling, key / pooling);
            (of(&detail.scores), of(&detail.pattern))
        }
    };
    let is_exact = pooling == 1 || single.is_some();
    let exact = if is_exact { "" } else { " max of cell" };
    let masked = score == f32::NEG_INFINITY;
    let is_model = app
        .subject()
        .is_some_and(|subject| subject.model().is_some());
    let score_text = if app.no_scores().is_some() && !is_model {
        "not recorded".to_owned()
    } else if masked {
        "masked".to_owned()
    } else {
        digits.of(score, 5)
    };
    let mut found = vec![
        (format!("probability{exact}"), digits.of(probability, 6)),
        (format!("score{exact}"), score_text),
    ];
    let Some((head, row)) = head.and_then(|head| Some((head, head.summary.rows.get(query)?)))
    else {
        return found;
    };
    let mut entry = |name: &str, value: String| found.push((name.to_owned(), value));
    // A global token has its own keys and values, whose norms are not stored.
    let is_global = head.summary.global_tokens.contains(&query);
    let norm = head.summary.value_norms.get(key);
    if let Some(norm) = norm.filter(|_| !is_global) {
        entry("‖v W_O‖", figure(f64::from(*norm), 0));
        if is_exact {
            let carried = f64::from(probability) * f64::from(*norm);
            entry("contribution", figure(carried, 0));
        }
    }
    let k_norm = head.summary.k_norms.get(key).copied().unwrap_or(f32::NAN);
    let spec = app.attention();
    // With softcap or bias, q·k cannot be recovered from the score, nor where nothing tells a recording's factor.
    let is_plain = spec
        .is_some_and(|s| s.softcap.is_none() && s.bias == attnscope_compute::attention::Bias::None);
    let factor = match app.layer().and_then(LayerReport::audit) {
        Some(of_layer) => {
            let fitted = of_layer.score_scale.filter(|scale| scale.is_fitted);
            fitted.map(|scale| scale.factor as f32)
        }
        None => spec.map(|spec| spec.scale.factor(spec.d_head)),
    };
    let factor = factor.filter(|_| is_plain);
    // The scale is that of the run on screen only.
    let is_known = is_shown && app.knows_width() && !masked && pooling == 1;
    if let Some(factor) = factor.filter(|_| is_known) {
        let product = score / factor;
        entry("q·k", figure(f64::from(product), 0));
        if !is_global {
            let cosine = f64::from(product / (row.q_norm * k_norm));
            entry("cos(q, k)", figure(cosine, 0));
        }
    }
    if app.knows_width() {
        let norms = [row.q_norm, k_norm].map(|norm| figure(f64::from(norm), 0));
        if is_global {
            let [of_query, _] = norms;
            entry("‖q‖", of_query);
            entry("global token", "own keys".to_owned());
        } else if digits == Digits::All {
            entry("‖q‖  ‖k‖", norms.join("  "));
        } else {
            let [of_query, of_key] = norms;
            entry("‖q‖", of_query);
            entry("‖k‖", of_key);
        }
    }
    entry("visible keys", row.n_visible.to_string());
    let entropy = figure(f64::from(row.entropy), 0);
    if !has_entropy(head) {
        entry("row entropy", "sum is not 1".to_owned());
    } else if digits == Digits::All {
        entry("row entropy", format!("{entropy} nats"));
    } else {
        entry("entropy, nats", entropy);
    }
    entry("row sum", digits.of(row.mass, 6));
    found
}

/// The strongest keys of a row in A or B, with both probabilities and the change.
fn keys_of_both(
    app: Scene<'_>,
    both: [&HeadDetail; 2],
    title: &str,
    inside: Rect,
) -> Vec<(Line<'static>, Option<usize>)> {
    const NARROW: usize = 34;
    let theme = &app.theme;
    let width = inside.width as usize;
    // In little room, leave out the change, which follows from the two values.
    let has_change = width >= NARROW;
    let (n_numbers, number) = if has_change { (3, 7) } else { (2, 6) };
    // A column stays free on both sides.
    let name_width = width.saturating_sub(n_numbers * number + 2);
    let mut heads = format!(
        " {}{:>number$}{:>number$}",
        fit(title, name_width),
        "A",
        "B"
    );
    if has_change {
        let _ = write!(heads, "{:>number$}", "change");
    }
    let mut lines = vec![(Line::styled(heads, theme.title()), None)];
    let pooling = both[0].pooling();
    let row_idx = app.selection.query_idx / pooling;
    let rows = both.map(|detail| {
        let map = detail.pattern.finest();
        &map.cells[row_idx * map.n_cols..(row_idx + 1) * map.n_cols]
    });
    let most = |cell: &usize| rows[0][*cell].max(rows[1][*cell]);
    let mut cells: Vec<usize> = (0..rows[0].len())
        .filter(|cell| most(cell) > 0.0 || most(cell).is_nan())
        .collect();
    cells.sort_by(|a, b| most(b).total_cmp(&most(a)));
    for cell in cells.into_iter().take(inside.height as usize) {
        let key = cell * pooling;
        let style = if key / pooling == app.selection.key_idx / pooling {
            theme.selected()
        } else {
            Style::new()
        };
        let [a, b] = rows.map(|row| f64::from(row[cell]));
        let name = format!(
            "{} {key}",
            fit(&app.token(Axis::Key, key), name_width.saturating_sub(6))
        );
        let mut spans = vec![
            Span::styled(format!(" {}", fit(&name, name_width)), style),
            Span::raw(format!("{}{}", figure(a, number), figure(b, number))),
        ];
        if has_change {
            spans.push(Span::styled(change(a, b, number), theme.title()));
        }
        lines.push((Line::from(spans), Some(key)));
    }
    lines
}

/// The strongest keys of a row as labelled bars, by probability or by contribution, highest first.
fn top_keys(
    app: Scene<'_>,
    detail: &HeadDetail,
    row_idx: usize,
    n: usize,
    width: usize,
) -> Vec<(Line<'static>, Option<usize>)> {
    let theme = &app.theme;
    let map = match app.head_map() {
        HeadMap::Contribution => detail.contribution.as_ref().unwrap_or(&detail.pattern),
        HeadMap::Pattern | HeadMap::Scores => &detail.pattern,
    };
    let finest = map.finest();
    let row = &finest.cells[row_idx * finest.n_cols..(row_idx + 1) * finest.n_cols];
    let mut keys: Vec<usize> = (0..row.len())
        .filter(|idx| row[*idx] > 0.0 || row[*idx].is_nan())
        .collect();
    keys.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    let pooling = detail.pooling();
    let most = keys.first().map_or(1.0, |idx| f64::from(row[*idx]));
    let label_width = if width < 34 { 8 } else { 12 };
    let bar_width = width.saturating_sub(label_width + 14);
    let line = |cell: &usize| {
        let key = cell * pooling;
        let style = if key / pooling == app.selection.key_idx / pooling {
            theme.selected()
        } else {
            Style::new()
        };
        let value = f64::from(row[*cell]);
        let length = share(value, (0.0, most));
        let line = Line::from(vec![
            Span::styled(
                format!(
                    " {} {key:>4}",
                    fit(&app.token(Axis::Key, key), label_width - 1)
                ),
                style,
            ),
            Span::raw(" "),
            Span::styled(
                fit(&bar(length, bar_width), bar_width),
                Style::new().fg(theme.heat(length.max(0.35))),
            ),
            Span::raw(figure(value, 6)),
        ]);
        (line, Some(key))
    };
    keys.iter().take(n).map(line).collect()
}
