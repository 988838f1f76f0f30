//! The selected query's row: its figures at the crosshair, and the keys it gives most to.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::tui::app::Axis;
use crate::tui::figure::{bar, figure, fit, share};
use crate::tui::scene::Scene;
use crate::tui::widgets::frame::framed;
use attnscope_engine::analysis::{HeadDetail, Pyramid};

/// The selected query: its figures, and the keys it gives most to.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, detail: &HeadDetail) {
    let theme = &app.theme;
    let (query, key) = (app.selection.query_idx, app.selection.key_idx);
    let inside = framed(
        frame,
        area,
        app,
        format!(" query {query} “{}” ", app.token(Axis::Query, query)),
    );
    let pooling = detail.pooling();
    let (row_idx, col_idx) = (query / pooling, key / pooling);
    let single = app.part_with(&(query..query + 1), &(key..key + 1));
    let single = single.filter(|_| app.shows_part());
    let (score, probability) = match single {
        Some(part) => {
            let at = (query - part.queries.start, key - part.keys.start);
            let of = |values: &Pyramid| values.finest().at(at.0, at.1);
            (of(&part.scores), of(&part.pattern))
        }
        None => {
            let of = |values: &Pyramid| values.finest().at(row_idx, col_idx);
            (of(&detail.scores), of(&detail.pattern))
        }
    };
    let mut lines = vec![Line::styled(
        format!(" → key {key} “{}”", app.token(Axis::Key, key)),
        theme.strong(),
    )];
    let is_exact = pooling == 1 || single.is_some();
    let exact = if is_exact { "" } else { " max of cell" };
    let width = inside.width as usize;
    let mut entry = |name: &str, value: String| {
        let room = width.saturating_sub(name.chars().count() + value.chars().count() + 3);
        lines.push(Line::from(vec![
            Span::styled(format!(" {name}"), theme.dim()),
            Span::raw(" ".repeat(room.max(1))),
            Span::raw(value),
        ]));
    };
    let masked = score == f32::NEG_INFINITY;
    entry(
        &format!("probability{exact}"),
        format!("{:.6}", probability),
    );
    entry(
        &format!("score{exact}"),
        if masked {
            "masked".to_owned()
        } else {
            format!("{score:.5}")
        },
    );
    let head = app
        .layer()
        .and_then(|layer| layer.heads.get(app.selection.head_idx));
    if let Some(head) = head
        && let Some(row) = head.summary.rows.get(query)
    {
        let k_norm = head.summary.k_norms.get(key).copied().unwrap_or(f32::NAN);
        let spec = app.attention();
        // Softcap and bias stand between q·k and the score: then the product cannot be read back from it.
        let is_plain = spec.is_some_and(|s| {
            s.softcap.is_none() && s.bias == attnscope_engine::attention::Bias::None
        });
        if is_plain && app.knows_width() && !masked && pooling == 1 {
            let product = score / spec.map_or(1.0, |s| s.scale.factor(s.d_head));
            entry("q·k", figure(f64::from(product), 0));
            entry(
                "cos(q, k)",
                figure(f64::from(product / (row.q_norm * k_norm)), 0),
            );
        }
        if app.knows_width() {
            let norms = [row.q_norm, k_norm].map(|norm| figure(f64::from(norm), 0));
            entry("‖q‖  ‖k‖", norms.join("  "));
        }
        entry("visible keys", row.n_visible.to_string());
        entry(
            "row entropy",
            format!("{} nats", figure(f64::from(row.entropy), 0)),
        );
        entry("row sum", format!("{:.6}", row.mass));
    }
    lines.push(Line::default());
    let keys = if pooling == 1 {
        "keys it gives most to"
    } else {
        "cells it gives most to"
    };
    lines.push(Line::styled(format!(" {keys}"), theme.title()));
    let n_bars = (inside.height as usize).saturating_sub(lines.len());
    lines.extend(top_keys(app, detail, row_idx, n_bars, width));
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The likeliest keys of a row as labelled bars, highest first.
fn top_keys(
    app: Scene<'_>,
    detail: &HeadDetail,
    row_idx: usize,
    n: usize,
    width: usize,
) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let finest = detail.pattern.finest();
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
        Line::from(vec![
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
        ])
    };
    keys.iter().take(n).map(line).collect()
}
