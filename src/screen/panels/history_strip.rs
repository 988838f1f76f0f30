//! Steps × heads by one statistic, pooled to the available cells. Signs above mark the steps read, open, marked and selected;
//! below are the steps at which something begins.

use attnscope_checks::Severity;
use attnscope_checks::stats::Compute;
use attnscope_history::{LINES, Side, State};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Line};

use crate::figure::{colour_range, cut, figure, fit, share};
use crate::state::history_view::HistoryView;
use crate::state::scene::Scene;

/// Columns of the row labels.
const LABELS: u16 = 9;
/// Most columns of a step among many, and among a few.
const WIDE: usize = 8;
const WIDEST: usize = 40;

/// How the values of several steps or heads are pooled into one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    Least,
    Largest,
    Mean,
}

impl Pool {
    /// The pooling that hides no fault: towards the threshold of the first check on this statistic.
    pub fn of(statistic: &str) -> Self {
        match LINES.iter().find(|line| line.statistic == statistic) {
            Some(line) if line.side == Side::Below => Self::Least,
            Some(_) => Self::Largest,
            None => Self::Mean,
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Least => "least",
            Self::Largest => "largest",
            Self::Mean => "mean",
        }
    }

    /// Pools values; a NaN makes the result NaN.
    fn pooled(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        let mut n = 0.0;
        let whole = values.fold(None, |pooled: Option<f64>, value| {
            n += 1.0;
            Some(match pooled {
                None => value,
                Some(known) if known.is_nan() || value.is_nan() => f64::NAN,
                Some(known) => match self {
                    Self::Least => known.min(value),
                    Self::Largest => known.max(value),
                    Self::Mean => known + value,
                },
            })
        })?;
        Some(if self == Self::Mean { whole / n } else { whole })
    }
}

/// Layout of steps and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strip {
    /// Area of the cells.
    pub cells: Rect,
    pub n_records: usize,
    /// Records per column.
    pub per_column: usize,
    pub n_columns: usize,
    /// The first cell shown of the grid, and how many.
    pub first_cell: usize,
    pub n_cells: usize,
    /// Grid cells per row.
    pub per_row: usize,
    pub n_rows: usize,
}

impl Strip {
    /// Lays out a training in an area, with row labels at the left.
    pub fn new(app: Scene<'_>, view: &HistoryView, area: Rect) -> Self {
        let grid = view.history.grid();
        let (first_cell, n_cells) = if is_of_layers(app) {
            (grid.n_heads(), grid.layers().len())
        } else {
            (0, grid.n_heads())
        };
        let n_records = view.history.records().len();
        let room = area.width.saturating_sub(LABELS + 1).max(1) as usize;
        let per_column = n_records.div_ceil(room).max(1);
        let n_columns = n_records.div_ceil(per_column);
        // A few steps fill the room.
        let widest = (room / n_columns.max(1)).clamp(WIDE, WIDEST);
        let per_row = n_cells.div_ceil(area.height.max(1) as usize).max(1);
        let n_rows = n_cells.div_ceil(per_row);
        Self {
            cells: Rect {
                x: area.x + LABELS,
                y: area.y,
                width: room.min(n_columns * widest) as u16,
                height: n_rows as u16,
            },
            n_records,
            per_column,
            n_columns,
            first_cell,
            n_cells,
            per_row,
            n_rows,
        }
    }

    /// Terminal columns of a strip column; the newest ends at the right edge.
    fn span(&self, column: usize) -> (u16, u16) {
        let at =
            |column: usize| (self.cells.width as usize * column / self.n_columns.max(1)) as u16;
        (self.cells.x + at(column), self.cells.x + at(column + 1))
    }

    fn column_of(&self, record_idx: usize) -> usize {
        record_idx / self.per_column
    }

    fn middle(&self, record_idx: usize) -> u16 {
        let (start, end) = self.span(self.column_of(record_idx));
        start + (end - start) / 2
    }

    fn records_of(&self, column: usize) -> std::ops::Range<usize> {
        let first = column * self.per_column;
        first..(first + self.per_column).min(self.n_records)
    }

    fn cells_of(&self, row: usize) -> std::ops::Range<usize> {
        let first = row * self.per_row;
        self.first_cell + first..self.first_cell + (first + self.per_row).min(self.n_cells)
    }

    /// The record and the grid cell at a position.
    pub fn at(&self, (column, row): (u16, u16)) -> Option<(usize, usize)> {
        if !self.cells.contains((column, row).into()) {
            return None;
        }
        let here = (0..self.n_columns).find(|nth| column < self.span(*nth).1)?;
        let cell = self.cells_of((row - self.cells.y) as usize).start;
        Some((self.records_of(here).end - 1, cell))
    }

    /// What a cell covers, as text.
    pub fn pooling(&self, pool: Pool, rows: &str) -> String {
        match (self.per_column, self.per_row) {
            (1, 1) => format!("step × {rows}"),
            (n, 1) => format!("{} of {n} steps × 1 {rows}", pool.label()),
            (1, n) => format!("1 step × {} of {n} {rows}s", pool.label()),
            (n, m) => format!("{} of {n} steps × {m} {rows}s", pool.label()),
        }
    }

    /// What a cell shows of how many steps and rows, in few columns.
    pub fn cell(&self, pool: Pool) -> String {
        format!("{} of {} × {}", pool.label(), self.per_column, self.per_row)
    }
}

/// Whether the chosen statistic is per layer.
pub fn is_of_layers(app: Scene<'_>) -> bool {
    matches!(app.statistic().compute, Compute::Layer(_))
}

/// Draws the numbers of the steps at equal distances, as many as fit.
pub fn draw_steps(strip: &Strip, view: &HistoryView, y: u16, app: Scene<'_>, buf: &mut Buffer) {
    let label = |column: usize| {
        let record = &view.history.records()[strip.records_of(column).start];
        record
            .step
            .map_or_else(|| cut(&record.name, 12), |step| step.to_string())
    };
    let labels: Vec<String> = (0..strip.n_columns).map(label).collect();
    let end = |column: usize| strip.span(column).0 + labels[column].chars().count() as u16;
    let fits = |every: &usize| {
        let shown = (0..strip.n_columns).step_by(*every);
        let mut next = shown.clone().skip(1);
        shown
            .zip(&mut next)
            .all(|(here, next)| end(here) < strip.span(next).0)
    };
    let distances = (0..).flat_map(|power| [1, 2, 5].map(|factor| factor * 10usize.pow(power)));
    let every = distances
        .take_while(|every| *every < strip.n_columns)
        .find(fits)
        .unwrap_or(strip.n_columns.max(1));
    for column in (0..strip.n_columns).step_by(every) {
        if column == 0 || end(column) <= strip.cells.right() {
            let (start, _) = strip.span(column);
            buf.set_string(start, y, &labels[column], app.theme.dim());
        }
    }
}

/// The sign of a state other than read.
fn sign(state: &State) -> Option<&'static str> {
    match state {
        State::Done => None,
        State::Waiting => Some("·"),
        State::Reading => Some("»"),
        State::Incomplete(_) => Some("…"),
        State::Failed(_) => Some("✖"),
        State::Gone => Some("–"),
        State::Changed => Some("~"),
    }
}

/// Explains the signs that are used above the strip.
pub fn signs(view: &HistoryView) -> String {
    let mut known: Vec<String> = Vec::new();
    for record in view.history.records() {
        if let Some(sign) = sign(&record.state) {
            let said = format!("{sign} {}", record.state.label());
            if !known.contains(&said) {
                known.push(said);
            }
        }
    }
    known.join("  ")
}

/// Draws signs of steps that are not read, then of A and B, then of the selected step.
pub fn draw_signs(strip: &Strip, view: &HistoryView, y: u16, app: Scene<'_>, buf: &mut Buffer) {
    let theme = &app.theme;
    for (idx, record) in view.history.records().iter().enumerate() {
        if let Some(sign) = sign(&record.state) {
            let style = match record.state {
                State::Failed(_) => theme.bad(),
                State::Reading => theme.accent(),
                _ => theme.notable(),
            };
            buf.set_string(strip.middle(idx), y, sign, style);
        }
    }
    let strong = Style::new().add_modifier(Modifier::BOLD);
    let (a, b) = (view.opened(), app.marked_step());
    for (idx, letter) in [(a, "A"), (b, "B")] {
        if let Some(idx) = idx {
            buf.set_string(strip.middle(idx), y, letter, theme.notable().patch(strong));
        }
    }
    let (here, right) = (strip.middle(view.at), strip.cells.right());
    let is_taken = [a, b]
        .into_iter()
        .flatten()
        .any(|idx| strip.middle(idx) == here);
    let x = match is_taken {
        true if here + 1 < right => here + 1,
        true => here.saturating_sub(1),
        false => here,
    };
    let arrow = if x > here {
        "◂"
    } else if x < here {
        "▸"
    } else {
        "▼"
    };
    buf.set_string(x, y, arrow, theme.accent().patch(strong));
}

/// Draws the cells with the labels of their rows; returns the range of their colours.
pub fn draw_cells(
    strip: &Strip,
    view: &HistoryView,
    app: Scene<'_>,
    buf: &mut Buffer,
) -> Option<(f64, f64)> {
    let (theme, history) = (&app.theme, &view.history);
    let column_idx = history.column(app.statistic().id)?;
    let pool = Pool::of(app.statistic().id);
    let values: Vec<Vec<Option<f64>>> = (0..strip.n_rows)
        .map(|row| {
            let of = |column: usize| {
                let read = strip.records_of(column);
                let read = read.filter(|idx| history.records()[*idx].numbers.is_some());
                let all = read.flat_map(|idx| {
                    let cells = strip.cells_of(row);
                    cells.filter_map(move |cell| history.known(idx, column_idx, cell))
                });
                pool.pooled(all)
            };
            (0..strip.n_columns).map(of).collect()
        })
        .collect();
    let range = colour_range(app.statistic(), values.iter().flatten().flatten().copied());
    let selected = history
        .grid()
        .cell(&app.history_place(is_of_layers(app)))
        .unwrap_or(usize::MAX);
    for (row, of_row) in values.iter().enumerate() {
        let y = strip.cells.y + row as u16;
        let is_selected = strip.cells_of(row).contains(&selected);
        let style = if is_selected {
            theme.selected()
        } else {
            theme.dim()
        };
        let label = fit(&row_label(strip, view, row), LABELS as usize - 1);
        buf.set_string(strip.cells.x - LABELS, y, label, style);
        for (column, value) in of_row.iter().enumerate() {
            let (start, end) = strip.span(column);
            let width = (end - start) as usize;
            match value {
                None => {
                    buf.set_string(start, y, " ".repeat(width), Style::new());
                    if width > 0 {
                        buf.set_string(start + (width as u16) / 2, y, "·", theme.dim());
                    }
                }
                Some(value) => {
                    let share = share(*value, range);
                    if theme.has_colour() && !value.is_nan() {
                        let style = Style::new().bg(theme.heat(share));
                        buf.set_string(start, y, " ".repeat(width), style);
                    } else {
                        let glyph = theme.glyph(share).to_string();
                        let style = if value.is_nan() {
                            theme.bad()
                        } else {
                            Style::new()
                        };
                        buf.set_string(start, y, glyph.repeat(width), style);
                    }
                }
            }
        }
    }
    Some(range)
}

/// Label of a row: its first head, and its last if it has several.
fn row_label(strip: &Strip, view: &HistoryView, row: usize) -> String {
    let grid = view.history.grid();
    let cells = strip.cells_of(row);
    let (first, last) = (grid.place(cells.start), grid.place(cells.end - 1));
    match (first == last, first.layer_idx == last.layer_idx) {
        (true, _) => first.to_string(),
        (false, true) => match last.head_idx {
            Some(head_idx) => format!("{first}–{head_idx}"),
            None => first.to_string(),
        },
        (false, false) => {
            let layer = last.layer_idx.unwrap_or(0);
            format!("L{}–L{layer}", first.layer_idx.unwrap_or(0))
        }
    }
}

/// Draws the steps at which onsets are.
pub fn draw_onsets(strip: &Strip, view: &HistoryView, y: u16, app: Scene<'_>, buf: &mut Buffer) {
    let theme = &app.theme;
    let findings = view.judge.findings();
    for severity in [Severity::Info, Severity::Warning, Severity::Error] {
        let style = match severity {
            Severity::Error => theme.bad(),
            Severity::Warning => theme.notable(),
            Severity::Info => theme.accent(),
        };
        for finding in findings.iter().filter(|f| f.severity == severity) {
            if finding.begin < strip.n_records {
                buf.set_string(strip.middle(finding.begin), y, "▲", style);
            }
        }
    }
}

/// Draws the loss under the columns of its steps: the one that the training logged, if there is one.
pub fn draw_loss(strip: &Strip, view: &HistoryView, area: Rect, app: Scene<'_>, buf: &mut Buffer) {
    let (history, records) = (&view.history, view.history.records());
    let is_logged = (0..records.len()).any(|idx| history.training_loss(idx).is_some());
    let loss = |idx: usize| {
        if is_logged {
            history.training_loss(idx)
        } else {
            records[idx].loss()
        }
    };
    let points: Vec<(f64, f64)> = (0..strip.n_columns)
        .filter_map(|column| {
            let losses = strip.records_of(column).filter_map(loss);
            let losses = losses.filter(|loss| loss.is_finite());
            let loss = Pool::Mean.pooled(losses)?;
            let (start, end) = strip.span(column);
            let x = f64::from(start + end - 1) / 2.0 - f64::from(strip.cells.x);
            Some((x, loss))
        })
        .collect();
    let ends = points
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), (_, y)| {
            (low.min(*y), high.max(*y))
        });
    if points.is_empty() {
        let said = cut("no loss is known", area.width as usize);
        buf.set_string(area.x, area.y, said, app.theme.dim());
        return;
    }
    let (low, high) = if ends.0 < ends.1 {
        ends
    } else {
        (ends.0 - 0.5, ends.1 + 0.5)
    };
    let width = LABELS as usize - 1;
    let usual = [high, low].map(|end| figure(end, width));
    let is_alike = usual[0] == usual[1];
    for (y, value) in [(area.y, high), (area.bottom() - 1, low)] {
        // A nearly constant loss needs more digits for its two ends to differ.
        let label = if is_alike {
            fit(&format!("{value:>width$.5}"), width)
        } else {
            figure(value, width)
        };
        buf.set_string(strip.cells.x - LABELS, y, label, app.theme.dim());
    }
    let color = app.theme.accent().fg.unwrap_or_default();
    let canvas = Canvas::default()
        .x_bounds([0.0, f64::from(strip.cells.width.max(2) - 1)])
        .y_bounds([low, high])
        .marker(Marker::Braille)
        .paint(|canvas| {
            for pair in points.windows(2) {
                let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
                canvas.draw(&Line::new(x1, y1, x2, y2, color));
            }
            if let [(x, y)] = points.as_slice() {
                canvas.draw(&Line::new(*x, *y, *x, *y, color));
            }
        });
    let plot = Rect {
        x: strip.cells.x,
        width: strip.cells.width,
        ..area
    };
    canvas.render(plot, buf);
}
