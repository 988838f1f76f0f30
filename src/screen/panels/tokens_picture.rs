//! A picture whose patches are the tokens: in half-blocks, two pixels per cell, plain and shaded by the attention of its patches.

use attnscope_prompt::Picture;
use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::tokens_shades::{Shades, axes, selected};
use crate::state::scene::Scene;

/// Weight of the shade in a pixel; the rest is the picture.
const SHADE: f32 = 0.7;
/// Columns between the two pictures.
const GAP: u16 = 3;

/// The picture whose patches are the shown tokens.
pub fn picture(app: Scene<'_>) -> Option<&Picture> {
    app.picture_along(axes(app).1)
}

/// Layout of the view.
struct Parts {
    /// The learned tokens before the patches, such as a class token.
    firsts: Rect,
    /// The picture without shading, if it fits.
    plain: Option<Rect>,
    shaded: Rect,
    /// Pixels, two per cell height. // [rows, columns]
    pixels: [usize; 2],
}

/// Size of a picture in pixels for an area in cells; each patch gets a whole number of pixels if possible.
fn pixels(picture: &Picture, width: u16, height: u16) -> [usize; 2] {
    let ([rows, columns], [tall, wide]) = (picture.grid(), picture.patch_size());
    let (most_rows, most_columns) = (2 * usize::from(height), usize::from(width));
    let of_whole = [rows * tall, columns * wide].map(|n| n.max(1) as f64);
    let scale = (most_rows as f64 / of_whole[0]).min(most_columns as f64 / of_whole[1]);
    let of_patch = [tall, wide].map(|n| (scale * n as f64 + 1e-9) as usize);
    if of_patch.contains(&0) {
        return of_whole.map(|n| ((scale * n) as usize).max(1));
    }
    [rows * of_patch[0], columns * of_patch[1]]
}

fn parts(picture: &Picture, place: Rect) -> Parts {
    let n_firsts = u16::from(!picture.firsts.is_empty()).min(place.height);
    let firsts = Rect {
        height: n_firsts,
        ..place
    };
    let below = Rect {
        y: place.y + n_firsts,
        height: place.height - n_firsts,
        ..place
    };
    let alone = pixels(picture, below.width, below.height);
    let side_by_side = pixels(picture, below.width.saturating_sub(GAP) / 2, below.height);
    let cells = |pixels: [usize; 2]| (pixels[1] as u16, pixels[0].div_ceil(2) as u16);
    // Show two pictures only if that makes neither smaller.
    if side_by_side == alone {
        let (width, height) = cells(side_by_side);
        let at = |x| Rect {
            x,
            width,
            height,
            ..below
        };
        return Parts {
            firsts,
            plain: Some(at(below.x)),
            shaded: at(below.x + width + GAP),
            pixels: side_by_side,
        };
    }
    let (width, height) = cells(alone);
    Parts {
        firsts,
        plain: None,
        shaded: Rect {
            width: width.min(below.width),
            height: height.min(below.height),
            ..below
        },
        pixels: alone,
    }
}

/// Rows that the view wants at a width, including the learned tokens.
pub fn wanted_height(picture: &Picture, width: u16, most: u16) -> u16 {
    let [rows, _] = pixels(picture, width, most);
    rows.div_ceil(2) as u16 + u16::from(!picture.firsts.is_empty())
}

/// The patch that contains the centre of a pixel.
fn patch_at(
    picture: &Picture,
    [n_rows, n_columns]: [usize; 2],
    row: usize,
    column: usize,
) -> usize {
    let [rows, columns] = picture.grid();
    let row = (2 * row + 1) * rows / (2 * n_rows.max(1));
    let column = (2 * column + 1) * columns / (2 * n_columns.max(1));
    row.min(rows - 1) * columns + column.min(columns - 1)
}

/// The colour of the picture at a pixel.
fn colour(
    picture: &Picture,
    [n_rows, n_columns]: [usize; 2],
    row: usize,
    column: usize,
) -> [u8; 3] {
    let ([rows, columns], [tall, wide]) = (picture.grid(), picture.patch_size());
    let span = |at: usize, n: usize, whole: usize| {
        let start = at * whole / n.max(1);
        start..((at + 1) * whole / n.max(1)).max(start + 1)
    };
    picture.mean_colour(
        span(row, n_rows, rows * tall),
        span(column, n_columns, columns * wide),
    )
}

/// Draws the picture, and the learned tokens above it.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    place: Rect,
    app: Scene<'_>,
    picture: &Picture,
    shades: &Shades,
) {
    let parts = parts(picture, place);
    let n_firsts = picture.firsts.len();
    let token = selected(app);
    // The selected token may be a patch of another grid than the shaded ones.
    let of_token = app.picture_along(axes(app).0).unwrap_or(picture);
    let chosen_at = |row, column| {
        of_token.firsts.len() + patch_at(of_token, parts.pixels, row, column) == token
    };
    let mut spans = Vec::new();
    for idx in 0..n_firsts {
        let mut style = shades.style(idx);
        if idx == token {
            style = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        }
        spans.push(Span::styled(app.token(axes(app).1, idx), style));
        spans.push(Span::raw(shades.gap(idx)));
    }
    frame.render_widget(Line::from(spans), parts.firsts);
    let theme = &shades.theme;
    if !theme.has_colour() {
        return draw_glyphs(frame, &parts, picture, shades, &chosen_at);
    }
    let chosen = theme.accent().fg.unwrap_or(Color::White);
    let is_chosen =
        |row, column| chosen_at(row, column) && is_edge(of_token, parts.pixels, row, column);
    if let Some(plain) = parts.plain {
        halves(frame, plain, parts.pixels, |row, column| {
            if is_chosen(row, column) {
                return chosen;
            }
            let [r, g, b] = colour(picture, parts.pixels, row, column);
            nearest(theme, [r, g, b])
        });
    }
    halves(frame, parts.shaded, parts.pixels, |row, column| {
        if is_chosen(row, column) {
            return chosen;
        }
        let patch_idx = patch_at(picture, parts.pixels, row, column);
        let shade = theme.heat(shades.at(n_firsts + patch_idx));
        match shade {
            Color::Rgb(r, g, b) => {
                // Keep only the brightness of the picture: hue is that of the legend.
                let light = f32::from(grey(colour(picture, parts.pixels, row, column)));
                let [r, g, b] =
                    [r, g, b].map(|shade| (SHADE * f32::from(shade) + (1.0 - SHADE) * light) as u8);
                Color::Rgb(r, g, b)
            }
            indexed => indexed,
        }
    });
}

/// The nearest colour that the terminal has; with few colours, a grey.
fn nearest(theme: &Theme, [r, g, b]: [u8; 3]) -> Color {
    if matches!(theme.heat(0.5), Color::Rgb(..)) {
        return Color::Rgb(r, g, b);
    }
    let grey = grey([r, g, b]);
    if theme.n_steps().is_some_and(|n| n > 16) {
        // The 24 greys of 256 colours.
        return Color::Indexed(232 + (u32::from(grey) * 23 / 255) as u8);
    }
    match grey {
        0..64 => Color::Black,
        64..128 => Color::DarkGray,
        128..192 => Color::Gray,
        _ => Color::White,
    }
}

/// Brightness of a colour.
fn grey([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 3 + u32::from(g) * 6 + u32::from(b)) / 10) as u8
}

/// Whether a pixel is on the edge of its patch, or the patch is too small to have an interior.
fn is_edge(picture: &Picture, pixels: [usize; 2], row: usize, column: usize) -> bool {
    let own = patch_at(picture, pixels, row, column);
    let is_other = |row: Option<usize>, column: Option<usize>| match (row, column) {
        (Some(row), Some(column)) if row < pixels[0] && column < pixels[1] => {
            patch_at(picture, pixels, row, column) != own
        }
        _ => true,
    };
    is_other(row.checked_sub(1), Some(column))
        || is_other(Some(row + 1), Some(column))
        || is_other(Some(row), column.checked_sub(1))
        || is_other(Some(row), Some(column + 1))
}

/// Fills cells with two pixels each.
fn halves(
    frame: &mut Frame<'_>,
    place: Rect,
    [n_rows, n_columns]: [usize; 2],
    pixel: impl Fn(usize, usize) -> Color,
) {
    let place = place.intersection(frame.area());
    let buffer = frame.buffer_mut();
    for y in 0..usize::from(place.height) {
        for column in 0..usize::from(place.width).min(n_columns) {
            let cell = &mut buffer[(place.x + column as u16, place.y + y as u16)];
            let (upper, lower) = (2 * y, 2 * y + 1);
            if upper >= n_rows {
                continue;
            }
            cell.set_char('▀').set_fg(pixel(upper, column));
            if lower < n_rows {
                cell.set_bg(pixel(lower, column));
            }
        }
    }
}

/// Draws only the shades, one glyph per cell, for terminals without colour.
fn draw_glyphs(
    frame: &mut Frame<'_>,
    parts: &Parts,
    picture: &Picture,
    shades: &Shades,
    chosen_at: &dyn Fn(usize, usize) -> bool,
) {
    let place = parts.shaded.intersection(frame.area());
    let n_firsts = picture.firsts.len();
    let buffer = frame.buffer_mut();
    for y in 0..usize::from(place.height) {
        for column in 0..usize::from(place.width).min(parts.pixels[1]) {
            let row = (2 * y).min(parts.pixels[0] - 1);
            let idx = n_firsts + patch_at(picture, parts.pixels, row, column);
            let cell = &mut buffer[(place.x + column as u16, place.y + y as u16)];
            let style = if chosen_at(row, column) {
                Style::new().add_modifier(Modifier::REVERSED)
            } else {
                Style::new()
            };
            cell.set_char(shades.theme.glyph(shades.at(idx)))
                .set_style(style);
        }
    }
}

/// The token under the pointer.
pub(super) fn token_at(
    app: Scene<'_>,
    picture: &Picture,
    place: Rect,
    at: Position,
) -> Option<usize> {
    let parts = parts(picture, place);
    let n_firsts = picture.firsts.len();
    if parts.firsts.contains(at) {
        let mut end = parts.firsts.x;
        return (0..n_firsts).find(|idx| {
            let width = app.token(axes(app).1, *idx).chars().count() as u16;
            let is_here = (end..end + width).contains(&at.x);
            end += width + 1;
            is_here
        });
    }
    let inside = [Some(parts.shaded), parts.plain];
    let place = inside
        .into_iter()
        .flatten()
        .find(|place| place.contains(at))?;
    let row = usize::from(at.y - place.y) * 2;
    let column = usize::from(at.x - place.x);
    let is_inside = row < parts.pixels[0] && column < parts.pixels[1];
    is_inside.then(|| n_firsts + patch_at(picture, parts.pixels, row, column))
}

/// Number of tokens between one and the one above or below it.
pub(super) fn step(picture: &Picture, token: usize, down: isize) -> isize {
    let (n_firsts, [rows, columns]) = (picture.firsts.len(), picture.grid());
    let to = match token.checked_sub(n_firsts) {
        None if down > 0 => n_firsts,
        None => token,
        Some(patch_idx) => {
            // Rows of later moments follow those of the first.
            let n_rows = rows.max(picture.n_patches() / columns.max(1));
            let row = (patch_idx / columns) as isize + down;
            if row < 0 && n_firsts > 0 {
                0
            } else {
                let row = row.clamp(0, n_rows as isize - 1) as usize;
                n_firsts + row * columns + patch_idx % columns
            }
        }
    };
    to as isize - token as isize
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_prompt::{Firsts, PicturePreprocessing, PictureSource};

    fn drawn() -> Picture {
        let preprocessing = PicturePreprocessing {
            n_channels: 3,
            resize: None,
            is_framed: false,
            resizes_values: false,
            crop: Some([24, 32]),
            cuts_evenly: false,
            fill: None,
            has_blue_first: false,
            rescale: 1.0,
            mean: [0.0; 3],
            std: [1.0; 3],
            standardises: false,
            crops_margin: false,
            shrinks_by: None,
            patch: [8, 8],
            margin: 0,
            overlap: 0,
            n_moments: 1,
            takes: None,
            firsts: Firsts {
                n_queries: 0,
                has_class: true,
                ..Firsts::default()
            },
        };
        Picture::read(&PictureSource::BuiltIn, &preprocessing).expect("draws")
    }

    #[test]
    fn patches_get_whole_pixels_if_possible_and_are_found_at_their_pixels() {
        let picture = drawn();
        assert_eq!(pixels(&picture, 40, 10), [18, 24]);
        assert_eq!(pixels(&picture, 3, 10), [2, 3]);
        let pixels = pixels(&picture, 40, 10);
        assert_eq!(patch_at(&picture, pixels, 0, 0), 0);
        assert_eq!(patch_at(&picture, pixels, 17, 23), 11);
        assert_eq!(patch_at(&picture, pixels, 6, 5), 4);
        assert!(is_edge(&picture, pixels, 6, 1) && !is_edge(&picture, pixels, 8, 2));
    }

    #[test]
    fn steps_go_from_row_to_row_and_to_the_learned_tokens() {
        let picture = drawn();
        assert_eq!(step(&picture, 0, 1), 1);
        assert_eq!(step(&picture, 0, -1), 0);
        assert_eq!(step(&picture, 3, 1), 4);
        assert_eq!(step(&picture, 3, -1), -3);
        assert_eq!(step(&picture, 12, 1), 0);
    }
}
