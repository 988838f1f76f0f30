//! Where each head of an atlas stands: as many heads as fit, as large as fits.

use std::ops::Range;

use attnscope_compute::attention::POOLED_CELLS;
use attnscope_run::Subject;
use attnscope_spec::{Place, Stack};
use ratatui::layout::{Position, Rect};

use crate::state::scene::Scene;
use crate::widgets::thumbnail::Thumbnail;

/// Columns of a layer's label.
pub const LABEL: u16 = 5;
/// Columns beside a map: a marker, and the strip of the statistic or the other end of the frame.
pub const BESIDE: u16 = 2;
/// Smallest map: columns and rows. Fewer are no texture.
const SMALLEST: (u16, u16) = (4, 2);
/// A strip above the map needs a cell of this size.
const WITH_STRIP_ABOVE: (u16, u16) = (10, 6);

/// Where the strip of the statistic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strip {
    /// One row above the map, with the head's number and its value.
    Above,
    /// One column left of the map.
    Left,
}

/// The size of all heads of an atlas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub width: u16,
    pub height: u16,
    pub strip: Strip,
    /// Columns and half rows of the map.
    pub pixels: (usize, usize),
}

impl Cell {
    /// The largest cell within a width and a height for maps of so many rows and columns.
    fn within(width: u16, height: u16, map: Maps) -> Self {
        let (least_width, least_height) = WITH_STRIP_ABOVE;
        let strip = if width >= least_width && height >= least_height {
            Strip::Above
        } else {
            Strip::Left
        };
        let n_columns = usize::from(width.saturating_sub(BESIDE).max(SMALLEST.0));
        let height = height.max(SMALLEST.1);
        let n_half_rows = match strip {
            Strip::Above => 2 * usize::from(height - 1),
            // Half a row stays free below, so that maps of two layers do not touch.
            Strip::Left if height > SMALLEST.1 || !map.is_causal => 2 * usize::from(height) - 1,
            Strip::Left => 2 * usize::from(height),
        };
        // Cells are squares: a map may be stretched to use the room, but not much.
        let (n_rows, n_cols) = (map.size.0.max(1), map.size.1.max(1));
        let widest = (5 * n_half_rows * n_cols).div_ceil(2 * n_rows);
        let highest = (3 * n_columns * n_rows).div_ceil(2 * n_cols);
        let most = (n_columns.min(widest), n_half_rows.min(highest));
        let most = (most.0.max(SMALLEST.0.into()), most.1.max(3));
        let pixels = Thumbnail::size(map.size, most);
        let rows = pixels.1.div_ceil(2) as u16;
        Self {
            width: match strip {
                // A strip needs room for a number.
                Strip::Above => (pixels.0 as u16 + BESIDE).max(least_width),
                Strip::Left => (pixels.0 as u16).max(SMALLEST.0) + BESIDE,
            },
            height: match strip {
                Strip::Above => rows + 1,
                Strip::Left if height > SMALLEST.1 => (pixels.1 as u16 + 2) / 2,
                Strip::Left => height,
            },
            strip,
            pixels: most,
        }
    }
}

/// The maps of a grid.
#[derive(Debug, Clone, Copy)]
struct Maps {
    /// Rows and columns.
    size: (usize, usize),
    /// Whether the upper right half is blank, so that maps that touch can be told apart.
    is_causal: bool,
}

/// Heads of one layer that stand side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub layer_idx: usize,
    /// Empty if the layer has no attention.
    pub heads: Range<usize>,
    /// First terminal row, counted from the first row of the box, and number of rows.
    pub top: u16,
    pub height: u16,
}

/// The layout of an atlas in its box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub stack: Stack,
    pub inside: Rect,
    pub cell: Cell,
    pub rows: Vec<Row>,
    /// Shown layers and heads, as titles say them.
    pub layers: Range<usize>,
    pub heads: Range<usize>,
    /// Rows of the legend.
    pub n_legend: u16,
    /// Heads of one layer in several rows.
    pub is_wrapped: bool,
}

/// Indices around the selected one that fit.
fn around(selected: usize, n_shown: usize, n: usize) -> Range<usize> {
    let n_shown = n_shown.min(n);
    let first = selected.saturating_sub(n_shown / 2).min(n - n_shown);
    first..first + n_shown
}

/// Indices around the selected one whose heights fit into a number of rows.
fn around_within(
    selected: usize,
    n: usize,
    rows: u16,
    height: impl Fn(&usize) -> u16,
) -> Range<usize> {
    if n == 0 {
        return 0..0;
    }
    let selected = selected.min(n - 1);
    let (mut first, mut end, mut used) = (selected, selected + 1, height(&selected));
    loop {
        let before = first
            .checked_sub(1)
            .filter(|idx| used + height(idx) <= rows);
        let after = Some(end).filter(|idx| *idx < n && used + height(idx) <= rows);
        // Grow on the shorter side first.
        let takes_before = match (before, after) {
            (None, None) => return first..end,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(_), Some(_)) => selected - first < end - selected,
        };
        if takes_before {
            first -= 1;
            used += height(&first);
        } else {
            used += height(&end);
            end += 1;
        }
    }
}

/// The largest number of heads in a layer of a grid: layers without attention have none.
pub fn most_heads(app: Scene<'_>, stack: Stack) -> usize {
    let Some(subject) = app.subject() else {
        return 0;
    };
    let layers = 0..subject.n_layers(stack);
    let heads = layers.map(|layer_idx| subject.n_heads(stack, layer_idx));
    heads.max().unwrap_or(0)
}

/// The maps of a grid, as the first layer with heads has them.
fn maps(app: Scene<'_>, stack: Stack) -> Maps {
    let layers = app.layers_of(stack).iter();
    let first = layers.into_iter().find_map(|layer| {
        let pooled = &layer.heads.first()?.summary.pooled;
        Some(Maps {
            size: (pooled.n_rows, pooled.n_cols),
            is_causal: layer.spec.mask.causal,
        })
    });
    first.unwrap_or(Maps {
        size: (POOLED_CELLS, POOLED_CELLS),
        is_causal: true,
    })
}

impl Layout {
    pub fn of(app: Scene<'_>, area: Rect, stack: Stack, n_legend: u16) -> Self {
        let inside = Rect {
            x: area.x + 1,
            y: area.y + 1,
            width: area.width.saturating_sub(2),
            height: area.height.saturating_sub(2),
        };
        let n_layers = app.n_layers_of(stack);
        let (n_heads, map) = (most_heads(app, stack), maps(app, stack));
        let is_of_layer = app.overview_view.is_of_layer && app.overview_view.shows_maps();
        let is_wrapped = n_layers == 1 || (is_of_layer && stack == app.selection.stack);
        let room = (
            inside.width.saturating_sub(LABEL + 1),
            inside.height.saturating_sub(n_legend),
        );
        let at = app.selection;
        if is_wrapped {
            let layer_idx = at.layer_idx.min(n_layers.saturating_sub(1));
            let n = app.subject().map_or(0, |of| of.n_heads(stack, layer_idx));
            let (cell, n_across) = wrapped(room, n.max(1), map);
            let n_down = usize::from(room.1 / cell.height).max(1);
            let first = (at.head_idx / n_across + 1).saturating_sub(n_down) * n_across;
            let starts = (first..n).step_by(n_across).take(n_down).zip(0..);
            let rows: Vec<Row> = starts
                .map(|(start, nth)| Row {
                    layer_idx,
                    heads: start..(start + n_across).min(n),
                    top: head_row(cell.strip) + nth * cell.height,
                    height: cell.height,
                })
                .collect();
            let last = rows.last().map_or(0, |row| row.heads.end);
            return Self {
                stack,
                inside,
                cell,
                rows,
                layers: 0..n_layers,
                heads: first.min(last)..last,
                n_legend,
                is_wrapped,
            };
        }
        let n_across = n_heads.clamp(1, usize::from(room.0 / (SMALLEST.0 + BESIDE)).max(1));
        let width = room.0 / n_across as u16;
        let has_heads = |layer_idx: &usize| {
            let of = |subject: &Subject| subject.n_heads(stack, *layer_idx) > 0;
            app.subject().is_none_or(of)
        };
        let n_attending = (0..n_layers).filter(has_heads).count();
        let cell_in = |height: u16| {
            // A layer without heads is one line of text.
            let height = height.saturating_sub((n_layers - n_attending) as u16);
            let height = height.max(SMALLEST.1);
            let n_down = n_attending.clamp(1, usize::from(height / SMALLEST.1).max(1));
            Cell::within(width, height / n_down as u16, map)
        };
        let mut cell = cell_in(room.1);
        if cell.strip == Strip::Left {
            // The numbers of heads stand above the first layer.
            cell = Cell {
                strip: Strip::Left,
                ..cell_in(room.1.saturating_sub(1))
            };
        }
        let height_of = |layer_idx: &usize| {
            if has_heads(layer_idx) { cell.height } else { 1 }
        };
        let high = room.1.saturating_sub(head_row(cell.strip));
        let layers = around_within(at.layer_idx, n_layers, high, height_of);
        let n_fitting = usize::from(room.0 / cell.width);
        let heads = around(at.head_idx, n_fitting.min(n_heads), n_heads);
        let mut top = head_row(cell.strip);
        let rows = layers.clone().map(|layer_idx| {
            let n = app.subject().map_or(0, |of| of.n_heads(stack, layer_idx));
            let height = height_of(&layer_idx);
            top += height;
            Row {
                layer_idx,
                heads: heads.start.min(n)..heads.end.min(n),
                top: top - height,
                height,
            }
        });
        Self {
            stack,
            inside,
            cell,
            rows: rows.collect(),
            layers,
            heads,
            n_legend,
            is_wrapped,
        }
    }

    /// The size that the box needs, borders included.
    pub fn needed(&self) -> (u16, u16) {
        let n_across = self.rows.iter().map(|row| row.heads.len()).max();
        let width = LABEL + 1 + n_across.unwrap_or(0) as u16 * self.cell.width;
        let bottom = self.rows.last().map_or(0, |row| row.top + row.height);
        (width + 2, bottom + self.n_legend + 2)
    }

    /// Whether every layer and head of the grid is shown.
    pub fn is_whole(&self, app: Scene<'_>) -> bool {
        self.layers.len() == app.n_layers_of(self.stack)
            && self.heads.len() == most_heads(app, self.stack)
    }

    /// The area of a head.
    pub fn cell_at(&self, nth_row: usize, nth_head: usize) -> Rect {
        let across = LABEL + nth_head as u16 * self.cell.width;
        let row = &self.rows[nth_row];
        Rect {
            x: self.inside.x + across,
            y: self.inside.y + row.top,
            width: self.cell.width,
            height: row.height,
        }
        .intersection(self.inside)
    }

    /// The layer under the pointer, and the head if it is over one.
    pub fn place_at(&self, (column, row): (u16, u16)) -> Option<Place> {
        if !self.inside.contains(Position::new(column, row)) {
            return None;
        }
        let down = row - self.inside.y;
        let mut rows = self.rows.iter();
        let row = rows.find(|row| (row.top..row.top + row.height).contains(&down))?;
        let layer = Place::layer(self.stack, row.layer_idx);
        let across = (column - self.inside.x).checked_sub(LABEL);
        let head_idx = across
            .map(|x| row.heads.start + usize::from(x / self.cell.width))
            .filter(|head_idx| row.heads.contains(head_idx));
        Some(head_idx.map_or(layer, |head_idx| layer.head(head_idx)))
    }
}

fn head_row(strip: Strip) -> u16 {
    u16::from(strip == Strip::Left)
}

/// The largest cell with which all heads of a layer fit, and how many stand side by side.
fn wrapped(room: (u16, u16), n_heads: usize, map: Maps) -> (Cell, usize) {
    let fitting = (1..=n_heads).filter_map(|n_across| {
        let n_down = n_heads.div_ceil(n_across);
        let (width, height) = (room.0 / n_across as u16, room.1 / n_down as u16);
        let fits = width >= SMALLEST.0 + BESIDE && height >= SMALLEST.1;
        let cell = Cell::within(width, height, map);
        let fits = fits && cell.width <= width && cell.height <= height;
        fits.then_some((cell, n_across))
    });
    let area = |cell: &Cell| {
        let (width, height) = Thumbnail::size(map.size, cell.pixels);
        (width.min(height), width * height)
    };
    fitting
        .max_by_key(|(cell, n_across)| (area(cell), *n_across))
        .unwrap_or_else(|| {
            let n_across = usize::from(room.0 / (SMALLEST.0 + BESIDE)).max(1);
            (Cell::within(0, 0, map), n_across)
        })
}
