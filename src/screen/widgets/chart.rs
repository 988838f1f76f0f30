//! A chart in cells: lines in braille, a glyph per series to tell them apart without colour, ticks at round numbers.

use attnscope_report::chart::labels::{Label, n_rows, placed};
use attnscope_report::chart::{Chart, Mark, Series, Stroke, Ticks};
use attnscope_terminal::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Line, Points};
use unicode_width::UnicodeWidthStr;

use crate::figure::cut;

/// One glyph per series.
const GLYPHS: [&str; 7] = ["●", "■", "▲", "◆", "○", "□", "△"];
/// The sign of a threshold line in legends and titles.
pub const RULE: &str = "┄";
/// The look of every threshold line: it is no series of data, and has no glyphs.
const OF_RULES: usize = 1;
/// Columns between the glyphs of a series.
const GLYPH_EVERY: usize = 12;
/// Rows below a plot: the axis, its numbers, its label.
const BELOW: u16 = 3;
/// A rule has one dot in this many, to look different from a curve.
const RULE_EVERY: u16 = 3;
/// Labels of marks take at most one row in this many.
const LABELS_SHARE: u16 = 3;
/// Minimum size of a plot.
const LEAST: (u16, u16) = (6, 3);

/// Rows that a chart needs, with its titles and axes.
const CHART_ROWS: usize = 11;

/// Divides an area for charts: side by side in a wide or low one, else one below the other.
pub fn chart_places(area: Rect, n: usize) -> Vec<Rect> {
    let each = vec![Constraint::Fill(1); n];
    match area.width {
        100.. => Layout::horizontal(each).spacing(2).split(area).to_vec(),
        _ if (area.height as usize) < n * CHART_ROWS => {
            Layout::horizontal(each).spacing(1).split(area).to_vec()
        }
        _ => Layout::vertical(each).split(area).to_vec(),
    }
}

/// The cells of a chart that is drawn into an area.
pub struct Cells<'a>(Place<'a>);

impl Cells<'_> {
    /// The area of the points, without axes, legend and labels.
    pub fn plot(&self) -> Rect {
        self.0.plot
    }

    /// The cell of a point.
    pub fn at(&self, (x, y): (f64, f64)) -> (u16, u16) {
        (self.0.column(x), self.0.row(y))
    }
}

/// Finds where [`draw_chart`] draws points into an area; `None` if it draws no plot there.
pub fn cells_of(chart: &Chart, area: Rect) -> Option<Cells<'_>> {
    placed_in(chart, area).map(|(place, _)| Cells(place))
}

/// Lays a chart out in an area; `None` without finite values, or if there is no room for the plot.
fn placed_in(chart: &Chart, area: Rect) -> Option<(Place<'_>, Labels)> {
    let (x_ends, y_ends) = chart.x_range().zip(chart.y_range())?;
    let y = area.y + n_title(chart) + legend_lines(chart, area.width as usize).len() as u16;
    let rows = area.bottom().saturating_sub(y + BELOW);
    let y_labels = y_ticks(chart, y_ends, rows).labels();
    let gutter = y_labels
        .iter()
        .map(|label| label.width())
        .max()
        .unwrap_or(0) as u16
        + 1;
    let whole = Rect {
        x: area.x + gutter,
        y,
        width: area.width.saturating_sub(gutter + 1),
        height: rows,
    };
    let labels = labels(chart, x_ends, whole);
    let plot = Rect {
        y: y + labels.n_rows,
        height: rows - labels.n_rows,
        ..whole
    };
    let has_room = plot.width >= LEAST.0 && plot.height >= LEAST.1;
    let place = Place {
        chart,
        plot,
        x: x_ends,
        y: y_ends,
    };
    has_room.then_some((place, labels))
}

/// Ticks of the y axis of a plot with so many rows, its labels included.
fn y_ticks(chart: &Chart, ends: (f64, f64), rows: u16) -> Ticks {
    chart.y.ticks(ends, (rows as usize / 3).max(2))
}

/// Rows of the title: none if it has no letters.
fn n_title(chart: &Chart) -> u16 {
    u16::from(!chart.title.is_empty())
}

/// Draws a chart into an area: title, legend, plot, axes. Screens and text output use the same drawing.
pub fn draw_chart(chart: &Chart, area: Rect, buf: &mut Buffer, theme: &Theme) {
    let area = area.intersection(buf.area);
    if area.is_empty() {
        return;
    }
    let mut write = |x: u16, y: u16, text: &str, style: Style| {
        if x < area.right() && y < area.bottom() {
            buf.set_stringn(x, y, text, (area.right() - x) as usize, style);
        }
    };
    let width = area.width as usize;
    write(area.x, area.y, &cut(&chart.title, width), theme.strong());
    let n_title = n_title(chart);
    if chart.x_range().zip(chart.y_range()).is_none() {
        write(
            area.x,
            area.y + n_title,
            &cut("no finite value to draw", width),
            theme.dim(),
        );
        return;
    }
    let mut y = area.y + n_title;
    for line in legend_lines(chart, width) {
        let mut x = area.x;
        for (look, text) in line {
            write(x, y, &text, style_of(theme, look));
            x += text.width() as u16;
        }
        y += 1;
    }
    let Some((place, labels)) = placed_in(chart, area) else {
        write(area.x, y, &cut("no room for a chart", width), theme.dim());
        return;
    };
    let ticks = y_ticks(chart, place.y, place.plot.height + labels.n_rows);
    for (value, label) in ticks.values.iter().zip(ticks.labels()) {
        let row = place.row(*value);
        let x = place.plot.x - 1 - label.width() as u16;
        write(x, row, &label, theme.dim());
    }
    draw_x_axis(&place, area, buf, theme);
    place.draw_marks(&labels, buf, theme);
    let (below, above): (Vec<usize>, Vec<usize>) =
        chart.from_below().into_iter().partition(|idx| {
            let stroke = chart.series[*idx].stroke;
            matches!(stroke, Stroke::Rule | Stroke::Area)
        });
    for idx in below {
        place.draw_line(idx, buf, theme);
        place.draw_glyphs(idx, buf, theme);
    }
    place.draw_lines(&above, buf, theme);
    for idx in above {
        place.draw_glyphs(idx, buf, theme);
    }
}

/// Labels of marks above a plot: text, position, and the rows they take.
struct Labels {
    all: Vec<(String, Label)>,
    n_rows: u16,
}

/// Places labels of marks in the first rows of the plot area; drops those that do not fit.
fn labels(chart: &Chart, ends: (f64, f64), whole: Rect) -> Labels {
    let inside = chart.marks_inside(ends);
    let width = |mark: &&Mark| cut(&mark.label, whole.width as usize);
    let texts: Vec<String> = inside.iter().map(width).collect();
    let marks: Vec<(f64, f64)> = inside
        .iter()
        .zip(&texts)
        .map(|(mark, text)| {
            let column = column_of(chart, mark.at, ends, whole);
            (f64::from(column), text.width() as f64)
        })
        .collect();
    let room = (f64::from(whole.left()), f64::from(whole.right()));
    let all: Vec<(String, Label)> = texts.into_iter().zip(placed(&marks, room, 1.0)).collect();
    let is_labelled = all.iter().any(|(text, _)| !text.is_empty());
    let placed: Vec<Label> = all.iter().map(|(_, label)| *label).collect();
    let needed = if is_labelled { n_rows(&placed) } else { 0 };
    Labels {
        all,
        n_rows: (needed as u16).min(whole.height / LABELS_SHARE),
    }
}

/// Position of a value in dots as the canvas computes it: two per column and four per row.
fn dot(share: f64, n_cells: u16, per_cell: u16) -> u16 {
    let dots = f64::from(n_cells * per_cell).max(1.0) - 1.0;
    (share.clamp(0.0, 1.0) * dots).round() as u16
}

fn column_of(chart: &Chart, x: f64, ends: (f64, f64), plot: Rect) -> u16 {
    plot.x + dot(chart.x.share(x, ends), plot.width, 2) / 2
}

/// Combines the dots of two braille cells.
fn both_dots(below: &str, above: &str) -> Option<char> {
    const BLANK: u32 = 0x2800;
    let dots = |symbol: &str| {
        let code = u32::from(symbol.chars().next()?);
        (BLANK..BLANK + 256).contains(&code).then_some(code)
    };
    char::from_u32(dots(below)? | dots(above)?)
}

fn style_of(theme: &Theme, look: Option<usize>) -> Style {
    match look {
        None => theme.dim(),
        Some(look) => match look % 5 {
            0 => theme.accent(),
            1 => theme.notable(),
            2 => theme.good(),
            3 => theme.bad(),
            _ => Style::new(),
        },
    }
}

/// The y label and the names of series with their glyphs, wrapped into lines.
fn legend_lines(chart: &Chart, width: usize) -> Vec<Vec<(Option<usize>, String)>> {
    let label = (!chart.y.label.is_empty()).then(|| (None, chart.y.label.clone()));
    let named = chart.legend(false).into_iter().map(|series_idx| {
        let (look, series) = (chart.look_of(series_idx), &chart.series[series_idx]);
        match series.stroke {
            Stroke::Rule => (Some(OF_RULES), format!("{RULE} {}", series.name)),
            _ => (
                Some(look),
                format!("{} {}", GLYPHS[look % GLYPHS.len()], series.name),
            ),
        }
    });
    let mut lines: Vec<Vec<(Option<usize>, String)>> = Vec::new();
    let mut used = 0;
    for (look, text) in label.into_iter().chain(named) {
        let text = cut(&text, width);
        if lines.is_empty() || used + 3 + text.width() > width {
            used = text.width();
            lines.push(vec![(look, text)]);
        } else if let Some(line) = lines.last_mut() {
            used += 3 + text.width();
            line.push((look, format!("   {text}")));
        }
    }
    lines
}

/// Draws the axis with its ticks, their numbers, and the label below; drops numbers that would touch.
fn draw_x_axis(place: &Place<'_>, area: Rect, buf: &mut Buffer, theme: &Theme) {
    let plot = place.plot;
    let (axis_y, numbers_y, label_y) = (plot.bottom(), plot.bottom() + 1, plot.bottom() + 2);
    let line = format!("└{}", "─".repeat(plot.width as usize));
    buf.set_string(plot.x - 1, axis_y, line, theme.dim());
    for y in plot.top()..plot.bottom() {
        buf.set_string(plot.x - 1, y, "│", theme.dim());
    }
    let ticks = place
        .chart
        .x
        .ticks(place.x, (plot.width as usize / 7).max(2));
    let mut free = area.x;
    for (value, label) in ticks.values.iter().zip(ticks.labels()) {
        let column = place.column(*value);
        buf.set_string(column, axis_y, "┴", theme.dim());
        let width = label.width() as u16;
        let last = area.right().saturating_sub(width);
        let x = column.saturating_sub(width / 2).max(area.x).min(last);
        if x >= free {
            buf.set_string(x, numbers_y, &label, theme.dim());
            free = x + width + 1;
        }
    }
    let label = cut(&place.chart.x.label, area.width as usize);
    let room = plot.width.saturating_sub(label.width() as u16);
    let x = (plot.x + room / 2).min(area.right().saturating_sub(label.width() as u16));
    buf.set_string(x, label_y, &label, theme.dim());
}

/// Positions of values in the cells of a plot.
struct Place<'a> {
    chart: &'a Chart,
    plot: Rect,
    x: (f64, f64),
    y: (f64, f64),
}

impl Place<'_> {
    fn column(&self, x: f64) -> u16 {
        column_of(self.chart, x, self.x, self.plot)
    }

    fn row(&self, y: f64) -> u16 {
        let share = self.chart.y.share(y, self.y);
        let from_below = dot(share, self.plot.height, 4) / 4;
        self.plot.bottom() - 1 - from_below
    }

    /// The contiguous parts of a series as shares of both axes; values outside the plot run along its edge.
    fn parts(&self, series: &Series) -> Vec<Vec<(f64, f64)>> {
        let (x_axis, y_axis) = (&self.chart.x, &self.chart.y);
        let is_broken = |(x, y): &(f64, f64)| !x_axis.holds(*x) || !y_axis.holds(*y);
        let parts = series.points.split(is_broken);
        let shares = |part: &[(f64, f64)]| -> Vec<(f64, f64)> {
            let shares = part.iter().map(|(x, y)| {
                let y = y_axis.share(*y, self.y).clamp(0.0, 1.0);
                (x_axis.share(*x, self.x), y)
            });
            shares
                .filter(|(x, _)| (-1e-9..=1.0 + 1e-9).contains(x))
                .collect()
        };
        parts.map(shares).filter(|part| !part.is_empty()).collect()
    }

    /// A point for each dot column that a part crosses.
    fn columns_of(&self, part: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let last = f64::from(self.plot.width * 2 - 1);
        let at = |nth: u16| f64::from(nth) / last;
        let columns = (0..self.plot.width * 2).map(at);
        columns
            .filter_map(|x| {
                let right = part.iter().position(|(px, _)| *px >= x)?;
                let (x1, y1) = part[right];
                let Some((x0, y0)) = right.checked_sub(1).map(|left| part[left]) else {
                    return (x1 - x < 0.5 / last).then_some((x, y1));
                };
                let between = if x1 > x0 { (x - x0) / (x1 - x0) } else { 1.0 };
                Some((x, y0 + between * (y1 - y0)))
            })
            .collect()
    }

    /// Draws lines so that all dots show, also where two lines cross a cell.
    fn draw_lines(&self, series: &[usize], buf: &mut Buffer, theme: &Theme) {
        let mut all = Buffer::empty(self.plot);
        for idx in series {
            let mut one = Buffer::empty(self.plot);
            self.draw_line(*idx, &mut one, theme);
            for at in self.plot.positions() {
                let dots = one[at].symbol();
                if dots == " " {
                    continue;
                }
                let both = both_dots(all[at].symbol(), dots);
                all[at] = one[at].clone();
                if let Some(both) = both {
                    all[at].set_char(both);
                }
            }
        }
        for at in self.plot.positions() {
            if all[at].symbol() != " " {
                buf[at]
                    .set_symbol(all[at].symbol())
                    .set_style(all[at].style());
            }
        }
    }

    fn draw_line(&self, series_idx: usize, buf: &mut Buffer, theme: &Theme) {
        let series = &self.chart.series[series_idx];
        let look = match series.stroke {
            Stroke::Rule => OF_RULES,
            _ => self.chart.look_of(series_idx),
        };
        let style = style_of(theme, Some(look));
        let color = style.fg.unwrap_or_default();
        let parts = self.parts(series);
        let canvas = Canvas::default()
            .x_bounds([0.0, 1.0])
            .y_bounds([0.0, 1.0])
            .marker(Marker::Braille)
            .paint(|canvas| {
                for part in &parts {
                    match series.stroke {
                        Stroke::Line => {
                            for pair in part.windows(2) {
                                let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
                                canvas.draw(&Line::new(x1, y1, x2, y2, color));
                            }
                        }
                        Stroke::Area => {
                            for (x, y) in self.columns_of(part) {
                                canvas.draw(&Line::new(x, 0.0, x, y, color));
                            }
                        }
                        Stroke::Rule => {
                            let dots: Vec<(f64, f64)> = self.columns_of(part);
                            let dots = dots.into_iter().step_by(RULE_EVERY as usize);
                            let coords: Vec<(f64, f64)> = dots.collect();
                            canvas.draw(&Points {
                                coords: &coords,
                                color,
                            });
                        }
                        // The edges of a spread would hide the lines; pictures have room for them.
                        Stroke::Edge { .. } | Stroke::Points => {}
                    }
                }
            });
        canvas.render(self.plot, buf);
    }

    /// Draws glyphs along a line. Each series starts at another column, so that overlapping lines show in turn.
    fn draw_glyphs(&self, series_idx: usize, buf: &mut Buffer, theme: &Theme) {
        let series = &self.chart.series[series_idx];
        let look = self.chart.look_of(series_idx);
        let (glyph, style) = (GLYPHS[look % GLYPHS.len()], style_of(theme, Some(look)));
        let cell = |x: f64, y: f64| {
            let column = self.plot.x + dot(x, self.plot.width, 2) / 2;
            let row = self.plot.bottom() - 1 - dot(y, self.plot.height, 4) / 4;
            (column, row)
        };
        let is_alone = self.chart.legend(false).is_empty();
        for part in self.parts(series) {
            match series.stroke {
                Stroke::Points => {
                    for (x, y) in part {
                        let (column, row) = cell(x, y);
                        buf.set_string(column, row, glyph, style);
                    }
                }
                Stroke::Line if !is_alone => {
                    let columns = self.columns_of(&part);
                    let first = 4 + 2 * ((look * 5) % GLYPH_EVERY);
                    for (x, y) in columns.into_iter().skip(first).step_by(2 * GLYPH_EVERY) {
                        let (column, row) = cell(x, y);
                        buf.set_string(column, row, glyph, style);
                    }
                }
                _ => {}
            }
        }
    }

    /// Draws lines through the plot up to their labels, and the labels above it.
    fn draw_marks(&self, labels: &Labels, buf: &mut Buffer, theme: &Theme) {
        let inside = self.chart.marks_inside(self.x);
        let is_shown = |(text, label): &(String, Label)| {
            !text.is_empty() && (label.row as u16) < labels.n_rows
        };
        for (mark, label) in inside.iter().zip(&labels.all) {
            let rows = if is_shown(label) {
                label.1.row as u16
            } else {
                0
            };
            let column = self.column(mark.at);
            for y in self.plot.top() - rows..self.plot.bottom() {
                buf.set_string(column, y, "┊", theme.dim());
            }
        }
        for (text, label) in labels.all.iter().filter(|label| is_shown(label)) {
            let y = self.plot.top() - 1 - label.row as u16;
            buf.set_string(label.x as u16, y, text, theme.strong());
        }
    }
}
