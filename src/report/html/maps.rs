//! The pooled map of each head, as a small PNG inside the page.

use std::io;

use attnscope_compute::attention::Pooled;
use attnscope_spec::Stack;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};

use super::Part;
use super::colour::{Colours, NOT_A_NUMBER};

/// Palette entries before the colours of the map: a masked cell, and NaN.
const MASKED: u8 = 0;

const NAN: u8 = 1;
const FIRST: u8 = 2;

/// Probabilities labelled in the legend.
const TICKS: [f64; 5] = [0.0, 0.05, 0.25, 0.5, 1.0];

/// Colours show the square root, since small probabilities are common and matter; all maps share one scale.
fn share(probability: f64) -> f64 {
    probability.max(0.0).sqrt()
}

pub(super) fn section(part: &Part<'_>, stack: Stack) -> io::Result<Markup> {
    let mut rows = Vec::new();
    let mut tile = None;
    let mut is_causal = false;
    for layer in part.shown.maps.iter().filter(|maps| maps.stack == stack) {
        let mut heads = Vec::new();
        is_causal |= layer.is_causal;
        for (head, pooled) in layer.heads.iter().enumerate() {
            tile = tile.or(Some((pooled.queries_per_cell, pooled.keys_per_cell)));
            let image = STANDARD.encode(png(pooled, layer.is_causal, part.colours)?);
            let mark = part.marks.class(stack, layer.layer_idx, Some(head));
            let entropy = super::grid::entropy_of(part, stack, layer.layer_idx, head);
            heads.push(html! {
                figure id=(part.anchor(stack, layer.layer_idx, head)) class=[mark] {
                    img src={ "data:image/png;base64," (image) }
                        alt={ "pattern of L" (layer.layer_idx) " H" (head) }
                        style=[aspect(pooled)];
                    figcaption { b { "H" (head) } span { (entropy) } }
                }
            });
        }
        rows.push(html! {
            div.layer {
                h5 { "L" (layer.layer_idx) }
                div.maps.many[layer.heads.len() > 16].few[layer.heads.len() <= 6] { @for head in &heads { (head) } }
            }
        });
    }
    let (queries, keys) = tile.unwrap_or((1, 1));
    let of = match (queries, keys) {
        (1, 1) => "Each cell is a probability.".to_owned(),
        (queries, keys) => {
            format!("Each cell is the largest probability of {queries} × {keys} queries and keys.")
        }
    };
    Ok(html! {
        h4 { "Patterns" }
        p.quiet { "Queries run down, keys to the right. " (of) " Beside each name: relative entropy." }
        p.legend {
            span { "probability" }
            span.ramp.ticked style={ "background:" (part.colours.css_gradient()) } {
                @for tick in TICKS {
                    i style={ "left:" (format!("{:.1}", 100.0 * share(tick))) "%" } { (tick) }
                }
            }
            @if is_causal { span.key { span.swatch.masked {} "masked" } }
            span.key { span.swatch style="background:#ff00aa" {} "NaN" }
        }
        @for row in &rows { (row) }
    })
}

/// Returns width over height of a map that is not square: cross-attention may have many more keys than queries.
fn aspect(pooled: &Pooled) -> Option<String> {
    let cells = (pooled.n_cols as f64, pooled.n_rows.max(1) as f64);
    let aspect = (cells.0 / cells.1).clamp(0.5, 2.0);
    (pooled.n_cols != pooled.n_rows).then(|| format!("aspect-ratio:{aspect:.3}"))
}

/// Whether every query-key pair of a cell is masked by causality.
fn is_masked(pooled: &Pooled, row_idx: usize, col_idx: usize) -> bool {
    col_idx * pooled.keys_per_cell > (row_idx + 1) * pooled.queries_per_cell - 1
}

/// Draws the map as an indexed image, a pixel per cell.
fn png(pooled: &Pooled, is_causal: bool, colours: &Colours) -> io::Result<Vec<u8>> {
    let mut pixels = Vec::with_capacity(pooled.cells.len());
    for row_idx in 0..pooled.n_rows {
        for col_idx in 0..pooled.n_cols {
            let value = pooled.at(row_idx, col_idx);
            pixels.push(match value {
                value if value.is_nan() => NAN,
                // Nonzero weights beyond the mask are shown.
                0.0 if is_causal && is_masked(pooled, row_idx, col_idx) => MASKED,
                value => FIRST + Colours::step(share(f64::from(value))) as u8,
            });
        }
    }
    let mut palette = vec![0, 0, 0];
    palette.extend(NOT_A_NUMBER);
    palette.extend(colours.steps().as_flattened());
    let mut bytes = Vec::new();
    let size = |n: usize| u32::try_from(n).map_err(io::Error::other);
    let mut encoder = png::Encoder::new(&mut bytes, size(pooled.n_cols)?, size(pooled.n_rows)?);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette);
    encoder.set_trns(vec![0]);
    encoder.set_compression(png::Compression::High);
    // Neighbours in a palette are not similar colours: filters would only make the file larger.
    encoder.set_filter(png::Filter::NoFilter);
    let mut writer = encoder.write_header().map_err(io::Error::other)?;
    writer.write_image_data(&pixels).map_err(io::Error::other)?;
    writer.finish().map_err(io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_an_image_with_one_pixel_per_cell() {
        let mut pooled = Pooled::new(3, 3);
        pooled.add_row(0, &[1.0, 0.0, 0.0]);
        pooled.add_row(1, &[0.25, 0.75, 0.5]);
        pooled.add_row(2, &[f32::NAN, 0.0, 0.0]);
        let bytes = png(&pooled, true, &Colours::new()).expect("encodes");
        let mut reader = png::Decoder::new(io::Cursor::new(bytes))
            .read_info()
            .expect("a PNG");
        let mut pixels = vec![0; 9];
        reader.next_frame(&mut pixels).expect("a frame");
        let last = FIRST + (super::super::colour::STEPS - 1) as u8;
        assert_eq!(pixels[..3], [last, MASKED, MASKED]);
        assert_eq!(
            pixels[5],
            FIRST + Colours::step(share(0.5)) as u8,
            "a leak is shown"
        );
        assert_eq!(pixels[6..], [NAN, FIRST, FIRST]);
    }
}
