//! The atlas: every head as a small map, beside or under a strip that the chosen statistic colours.

use std::cell::LazyCell;
use std::ops::Range;
use std::sync::Arc;

use attnscope_checks::stats::HeadType;
use attnscope_compute::attention::Pooled;
use attnscope_run::Subject;
use attnscope_spec::{Place, Stack};
use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use super::atlas_cells::{draw_map, map_area, mark_selected, put};
pub use super::atlas_layout::most_heads;
use super::atlas_layout::{BESIDE, Cell, LABEL, Layout, Row, Strip};
use super::atlas_legend::draw_legend;
use super::checks_line::{mark, style_of};
use super::grid_scale::{colours, grid_theme, title};
use super::head_value::{value, why_undefined};
use super::statistic_figure::UNDEFINED;
use crate::figure::{cut, figure_within, share};
use crate::state::drawn::Key;
use crate::state::scene::Scene;
use crate::widgets::frame::{framed, waiting};
use crate::widgets::hidden::Unseen;
use crate::widgets::thumbnail::{Thumbnail, covered};

/// Draws the atlas of a grid.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, layout: &Layout) {
    let stack = layout.stack;
    let of = (app.n_layers_of(stack), most_heads(app, stack));
    let shown = (layout.layers.clone(), layout.heads.clone());
    let mut title = title(app, stack, layout.inside.width, shown, of);
    if let (true, Some(row)) = (layout.is_wrapped && of.0 > 1, layout.rows.first()) {
        title = format!(" L{} ·{title}", row.layer_idx);
    }
    framed(frame, area, app, title);
    if app.run().is_none() {
        return waiting(frame, layout.inside, app);
    }
    let theme = grid_theme(app);
    let range = colours(app, stack);
    let pictures = Pictures::of(app, layout);
    if layout.cell.strip == Strip::Left {
        draw_head_numbers(frame.buffer_mut(), app, layout);
    }
    for (nth_row, row) in layout.rows.iter().enumerate() {
        let is_first = nth_row == 0 || layout.rows[nth_row - 1].layer_idx != row.layer_idx;
        let area = layout.cell_at(nth_row, 0);
        draw_label(
            frame.buffer_mut(),
            app,
            stack,
            (row.layer_idx, is_first),
            area,
        );
        for (nth_head, head_idx) in row.heads.clone().enumerate() {
            let place = (row.layer_idx, head_idx);
            let area = layout.cell_at(nth_row, nth_head);
            let cell = HeadCell {
                app,
                theme: &theme,
                stack,
                place,
                range,
                cell: layout.cell,
            };
            if app.layer_of(stack, row.layer_idx).is_none() {
                cell.draw_waiting(frame.buffer_mut(), area);
            } else if cell.exists() {
                let picture = pictures.of_head(nth_row, nth_head);
                cell.draw(frame.buffer_mut(), area, picture, pictures.most);
            }
        }
        if let Some(mixer) = other_mixer(app, stack, row.layer_idx) {
            let width = layout.inside.width.saturating_sub(LABEL);
            let text = cut(&format!("no heads: {mixer}"), width.into());
            let buffer = frame.buffer_mut();
            buffer.set_stringn(area.x + 1, area.y, text, width.into(), app.theme.dim());
        }
    }
    draw_legend(frame, app, layout, range, pictures.most);
}

/// What mixes the tokens of a layer that has no heads; `None` if it has some.
fn other_mixer(app: Scene<'_>, stack: Stack, layer_idx: usize) -> Option<&'static str> {
    let subject = app.subject()?;
    if subject.n_heads(stack, layer_idx) > 0 {
        return None;
    }
    let Subject::Model(model) = subject else {
        return Some("nothing recorded");
    };
    let block = model.spec.stack_of(stack).blocks().get(layer_idx)?;
    if stack == Stack::Cross {
        return Some("no cross-attention");
    }
    let mixer = block.other_mixer().map(|mixer| mixer.label());
    let crosses = block.cross.as_ref().map(|_| "cross-attention alone");
    Some(mixer.or(crosses).unwrap_or("tokens do not mix"))
}

/// The pictures of all shown heads.
struct Pictures {
    /// [row][head]
    heads: Vec<Vec<Option<Arc<Thumbnail>>>>,
    /// The largest change of any of them, if they are differences.
    most: Option<f32>,
}

impl Pictures {
    fn of(app: Scene<'_>, layout: &Layout) -> Self {
        let stack = layout.stack;
        let of_row = |row: &Row| {
            let heads = (row.layer_idx, row.heads.clone());
            thumbnails(app, stack, heads, layout.cell.pixels)
        };
        let heads: Vec<Vec<Option<Arc<Thumbnail>>>> = layout.rows.iter().map(of_row).collect();
        let most = app.grid_differs().then(|| {
            let all = heads.iter().flatten().flatten();
            all.fold(0.0, |most: f32, picture| most.max(picture.largest()))
        });
        Self { heads, most }
    }

    fn of_head(&self, nth_row: usize, nth_head: usize) -> Option<&Thumbnail> {
        self.heads[nth_row][nth_head].as_deref()
    }
}

/// The pictures of some heads of a layer, each of at most so many pixels: of B less A if the panel shows a difference. There is
/// none of a head that has not arrived, or whose type is not shown.
pub fn thumbnails(
    app: Scene<'_>,
    stack: Stack,
    (layer_idx, heads): (usize, Range<usize>),
    most: (usize, usize),
) -> Vec<Option<Arc<Thumbnail>>> {
    let differs = app.grid_differs();
    let layer = app.layer_of(stack, layer_idx);
    let both = app.both_layers(stack, layer_idx).filter(|_| differs);
    // All heads of a layer are masked alike.
    let first = layer.and_then(|layer| Some((layer, layer.heads.first()?)));
    let unseen =
        LazyCell::new(|| first.map(|(layer, head)| Unseen::of(&head.summary, layer.spec.mask)));
    let run = app.run().map_or(0, |run| run.id);
    let less = app.runs.a.as_ref().map(|run| run.id).filter(|_| differs);
    let of_head = |head_idx: usize| {
        let head = layer?.heads.get(head_idx)?;
        let map = &head.summary.pooled;
        let before = both.and_then(|[before, _]| before.heads.get(head_idx));
        let before = before.map(|head| &head.summary.pooled);
        let before = before.filter(|before| is_of_size(before, map));
        let place = Place::layer(stack, layer_idx).head(head_idx);
        let is_shown = !app.is_left_out(place, head.kind) && (!differs || before.is_some());
        let key = Key {
            run,
            before: less,
            head: (stack, layer_idx, head_idx),
            most,
        };
        let make = || match &*unseen {
            Some(unseen) => Thumbnail::of(map, before, unseen, most),
            None => Thumbnail::of_rows(&[], 0, most),
        };
        is_shown.then(|| app.drawn.get(key, make))
    };
    heads.map(of_head).collect()
}

/// A map of an atlas, and where it is.
pub struct ShownMap {
    pub layer_idx: usize,
    pub head_idx: usize,
    /// Columns and half rows.
    pub pixels: (usize, usize),
    /// The cells that show it.
    pub area: Rect,
}

/// The heads of an atlas that have a map.
pub fn maps_shown(app: Scene<'_>, layout: &Layout) -> Vec<ShownMap> {
    let mut maps = Vec::new();
    for (nth_row, row) in layout.rows.iter().enumerate() {
        let layer = app.layer_of(layout.stack, row.layer_idx);
        for (nth_head, head_idx) in row.heads.clone().enumerate() {
            let head = layer.and_then(|layer| layer.heads.get(head_idx));
            let place = Place::layer(layout.stack, row.layer_idx).head(head_idx);
            let Some(head) = head.filter(|head| !app.is_left_out(place, head.kind)) else {
                continue;
            };
            let map = &head.summary.pooled;
            let size = Thumbnail::size((map.n_rows, map.n_cols), layout.cell.pixels);
            let area = map_area(layout.cell_at(nth_row, nth_head), layout.cell.strip);
            let area = Rect {
                width: area.width.min(size.0 as u16),
                height: area.height.min(size.1.div_ceil(2) as u16),
                ..area
            };
            maps.push(ShownMap {
                layer_idx: row.layer_idx,
                head_idx,
                pixels: size,
                area,
            });
        }
    }
    maps
}

/// Whether two maps are of texts of the same lengths.
fn is_of_size(before: &Pooled, map: &Pooled) -> bool {
    let size = |map: &Pooled| {
        (
            map.n_rows,
            map.n_cols,
            map.queries_per_cell,
            map.keys_per_cell,
        )
    };
    size(before) == size(map)
}

/// Draws the numbers of heads above the first layer.
pub(super) fn draw_head_numbers(buffer: &mut Buffer, app: Scene<'_>, layout: &Layout) {
    // The heads of a layer that is broken into rows have no columns of their own.
    if layout.is_wrapped {
        return;
    }
    let y = layout.inside.y;
    let x = |nth: usize| layout.cell_at(0, nth).x + 1;
    for (nth, head_idx) in layout.heads.clone().enumerate() {
        let is_selected = head_idx == app.selection.head_idx && layout.stack == app.selection.stack;
        let style = if is_selected {
            app.theme.strong()
        } else {
            app.theme.dim()
        };
        let text = if layout.cell.width >= 7 {
            format!("H{head_idx}")
        } else {
            head_idx.to_string()
        };
        buffer.set_stringn(x(nth), y, text, usize::from(layout.cell.width - 1), style);
    }
}

/// Draws a layer's label, after the mark of its worst finding.
pub(super) fn draw_label(
    buffer: &mut Buffer,
    app: Scene<'_>,
    stack: Stack,
    (layer_idx, is_first): (usize, bool),
    area: Rect,
) {
    if !is_first || area.height == 0 {
        return;
    }
    let x = area.x.saturating_sub(LABEL);
    let is_selected = stack == app.selection.stack && layer_idx == app.selection.layer_idx;
    let style = if is_selected {
        app.theme.strong()
    } else {
        app.theme.dim()
    };
    if let Some(worst) = app.worst_at(stack, layer_idx, None) {
        buffer.set_string(x, area.y, mark(worst), style_of(&app.theme, worst));
    }
    let text = format!("L{layer_idx}");
    buffer.set_stringn(x + 1, area.y, text, usize::from(LABEL - 1), style);
}

/// One head and where its colours come from.
struct HeadCell<'a> {
    app: Scene<'a>,
    theme: &'a Theme,
    stack: Stack,
    /// Layer and head.
    place: (usize, usize),
    range: (f64, f64),
    cell: Cell,
}

impl HeadCell<'_> {
    fn kind(&self) -> Option<HeadType> {
        let layer = self.app.layer_of(self.stack, self.place.0)?;
        layer.heads.get(self.place.1)?.kind
    }

    /// Whether the layer has the head.
    fn exists(&self) -> bool {
        let layer = self.app.layer_of(self.stack, self.place.0);
        layer.is_some_and(|layer| self.place.1 < layer.heads.len())
    }

    fn is_selected(&self) -> bool {
        let at = self.app.selection;
        (at.stack, at.layer_idx, at.head_idx) == (self.stack, self.place.0, self.place.1)
    }

    fn draw_waiting(&self, buffer: &mut Buffer, area: Rect) {
        let middle = (area.x + area.width / 2, area.y + (area.height - 1) / 2);
        if area.contains(Position::from(middle)) {
            let style = self.app.theme.dim();
            buffer[middle].set_char('·').set_style(style);
        }
    }

    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        picture: Option<&Thumbnail>,
        most: Option<f32>,
    ) {
        let is_above = self.cell.strip == Strip::Above;
        let map = map_area(area, self.cell.strip);
        match (picture, most) {
            (None, _) => {}
            (Some(picture), None) => draw_map(buffer, map, self.theme, picture, picture.by_row()),
            (Some(picture), Some(most)) => {
                draw_map(buffer, map, self.theme, picture, picture.by_change(most));
            }
        }
        if is_above {
            self.draw_strip_above(buffer, area);
        } else {
            let n = picture.map_or(usize::from(2 * area.height), |picture| picture.height);
            self.draw_strip_left(buffer, area, n);
        }
        self.draw_marks(buffer, area);
    }

    /// The statistic's value here; a statistic of layers is that of the head's layer.
    fn value(&self) -> (f64, bool) {
        let (layer_idx, head_idx) = self.place;
        let is_per_head = self.app.statistic().is_per_head() || self.app.shows_distance();
        let head_idx = is_per_head.then_some(head_idx);
        let value = value(self.app, self.stack, layer_idx, head_idx);
        let why = why_undefined(self.app, self.stack, layer_idx, head_idx);
        (value, why.is_some())
    }

    fn full_place(&self) -> Place {
        Place::layer(self.stack, self.place.0).head(self.place.1)
    }

    /// Colour of the strip, and the glyph that stands for it where there is no colour.
    fn filled(&self) -> (Style, char) {
        let (value, is_undefined) = self.value();
        let at = share(value, self.range);
        let is_left_out = self.app.is_left_out(self.full_place(), self.kind());
        if is_undefined || is_left_out {
            (self.app.theme.dim(), ' ')
        } else if self.theme.has_colour() {
            let style = Style::new().bg(self.theme.heat(at));
            (style.fg(self.theme.on_heat(at)), ' ')
        } else {
            (Style::new(), self.theme.glyph(at))
        }
    }

    /// One row with the head's number, the letter of its type and its value.
    fn draw_strip_above(&self, buffer: &mut Buffer, area: Rect) {
        let (style, glyph) = self.filled();
        let width = usize::from(area.width.saturating_sub(BESIDE));
        let (value, is_undefined) = self.value();
        let letter = self.kind().map(HeadType::letter);
        let letter = letter.map_or(String::new(), |letter| format!(" {letter}"));
        let name = format!("H{}{letter}", self.place.1);
        let room = width.saturating_sub(name.len() + 1);
        let number = if is_undefined {
            UNDEFINED.to_owned()
        } else {
            figure_within(value, room.min(6)).trim().to_owned()
        };
        let between = width.saturating_sub(name.len() + number.chars().count());
        let between = glyph.to_string().repeat(between);
        let text = format!("{name}{between}{number}");
        buffer.set_stringn(area.x + 1, area.y, text, width, style);
    }

    /// Half a column beside the map, as high as `n` pixels; a whole one of glyphs if there is no colour.
    fn draw_strip_left(&self, buffer: &mut Buffer, area: Rect, n: usize) {
        let (style, glyph) = self.filled();
        for row in 0..n.div_ceil(2).min(area.height.into()) {
            let is_half = 2 * row + 1 == n;
            let shown = match (style.bg, is_half) {
                (None, _) => glyph,
                (Some(_), false) => '▌',
                (Some(_), true) => '▘',
            };
            let style = style.bg.map_or(style, |bg| Style::new().fg(bg));
            put(buffer, (area.x + 1, area.y + row as u16), shown, style);
        }
    }

    /// The mark of the worst finding, the letter of the type, and bars on both sides of the selected head.
    fn draw_marks(&self, buffer: &mut Buffer, area: Rect) {
        let theme = &self.app.theme;
        let is_above = self.cell.strip == Strip::Above;
        let head = (self.stack, self.place.0, self.place.1);
        mark_selected(buffer, self.app, (head, self.cell.strip), area);
        if let Some(letter) = self.kind().map(HeadType::letter).filter(|_| !is_above) {
            // A bar stands where the letter of the selected head would be.
            let (x, style) = if self.is_selected() {
                (area.x + 1, theme.strong())
            } else {
                (area.x, theme.dim())
            };
            put(buffer, (x, area.y + 1), letter, style);
        }
        if self.app.marks.has(self.full_place()) {
            // The upper right corner, which a causal mask leaves blank.
            let x = area.x + area.width.saturating_sub(BESIDE);
            put(
                buffer,
                (x, area.y + u16::from(is_above)),
                '•',
                theme.strong(),
            );
        }
        let (layer_idx, head_idx) = self.place;
        if let Some(worst) = self.app.worst_at(self.stack, layer_idx, Some(head_idx)) {
            let mark = mark(worst).chars().next().unwrap_or(' ');
            put(buffer, (area.x, area.y), mark, style_of(theme, worst));
        }
    }
}

/// A pixel of the atlas: a head, the first and last query and key it covers, and its value.
pub struct Pixel {
    pub place: Place,
    pub queries: (usize, usize),
    pub keys: (usize, usize),
    pub value: f32,
}

/// Every pixel that is shown, head by head.
pub fn pixels(app: Scene<'_>, layout: &Layout) -> Vec<Pixel> {
    let pictures = Pictures::of(app, layout);
    let mut pixels = Vec::new();
    for (row, pictures) in layout.rows.iter().zip(&pictures.heads) {
        for (head_idx, picture) in row.heads.clone().zip(pictures) {
            let layer = app.layer_of(layout.stack, row.layer_idx);
            let head = layer.and_then(|layer| layer.heads.get(head_idx));
            let (Some(head), Some(picture)) = (head, picture) else {
                continue;
            };
            let (map, n_queries) = (&head.summary.pooled, head.summary.rows.len());
            let n_keys = head.summary.column_sums.len();
            let covers = |(first, end): (usize, usize), per_cell: usize, n: usize| {
                (first * per_cell, (end * per_cell).min(n).saturating_sub(1))
            };
            let places = (0..picture.height).flat_map(|y| (0..picture.width).map(move |x| (x, y)));
            pixels.extend(places.filter_map(|(x, y)| {
                let rows = covered(map.n_rows, picture.height, y);
                let columns = covered(map.n_cols, picture.width, x);
                Some(Pixel {
                    place: Place::layer(layout.stack, row.layer_idx).head(head_idx),
                    queries: covers(rows, map.queries_per_cell, n_queries),
                    keys: covers(columns, map.keys_per_cell, n_keys),
                    value: picture.at(x, y)?,
                })
            }));
        }
    }
    pixels
}
