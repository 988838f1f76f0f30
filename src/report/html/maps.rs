//! The pooled map of each head, as a small PNG inside the page.

use std::io;

use attnscope_compute::attention::Pooled;
use attnscope_spec::Stack;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};

use super::Part;
use super::colour::{Colours, FEW_LEVELS, LEVELS, NOT_A_NUMBER, TICKS, share};
use crate::readable::MOST_FINE_MAPS;

/// Palette entries before the colours of the map: a masked cell, NaN, and what no probability is.
const MASKED: u8 = 0;

const NAN: u8 = 1;
const ABOVE_ONE: u8 = 2;
const FIRST: u8 = 3;

/// What rounding alone adds to a probability of 1.
const ROUNDING: f32 = 1e-3;

/// Returns the most by which a probability is rounded: half a level, where levels are furthest apart.
fn rounding(n_levels: usize) -> String {
    format!("{:.3}", 1.0 / (n_levels - 1).max(1) as f64)
}

pub(super) fn section(part: &Part<'_>, stack: Stack) -> io::Result<Markup> {
    let n_maps: usize = part.shown.maps.iter().map(|maps| maps.heads.len()).sum();
    let n_levels = match n_maps {
        n if n <= MOST_FINE_MAPS => LEVELS,
        _ => FEW_LEVELS,
    };
    let mut rows = Vec::new();
    let mut sizes = None;
    let mut are_alike = true;
    let mut is_causal = false;
    for layer in part.shown.maps.iter().filter(|maps| maps.stack == stack) {
        let mut heads = Vec::new();
        is_causal |= layer.is_causal;
        for (head, pooled) in layer.heads.iter().enumerate() {
            let own = (pooled.queries_per_cell, pooled.keys_per_cell);
            let first = *sizes.get_or_insert(own);
            // Layers of later stages have fewer queries and keys.
            let apart = (own != first).then(|| format!("{} {}", own.0, own.1));
            are_alike &= apart.is_none();
            let alt = format!("pattern of L{} H{head}", layer.layer_idx);
            let image = image(pooled, layer.is_causal, (part.colours, n_levels), &alt)?;
            let mark = part.marks.class(stack, layer.layer_idx, Some(head));
            let entropy = super::grid::entropy_of(part, stack, layer.layer_idx, head);
            heads.push(html! {
                figure id=(part.anchor(stack, layer.layer_idx, head)) class=[mark] data-tile=[apart]
                    data-head={ "L" (layer.layer_idx) "H" (head) } {
                    (image)
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
    let (queries, keys) = sizes.unwrap_or((1, 1));
    let of = match (queries, keys) {
        (1, 1) => "Each cell is a probability".to_owned(),
        (queries, keys) if !are_alike => format!(
            "Each cell is the largest probability of {queries} × {keys} queries and keys, in later stages of fewer"
        ),
        (queries, keys) => {
            format!("Each cell is the largest probability of {queries} × {keys} queries and keys")
        }
    };
    Ok(html! {
        h4 { "Patterns" }
        p.quiet {
            "Queries run down, keys to the right. " (of) ", rounded by at most " (rounding(n_levels))
            ". Beside each name: relative entropy."
        }
        p.legend {
            span { "probability" }
            span.ramp.ticked {
                @for (nth, tick) in TICKS.iter().enumerate() { i class={ "t" (nth) } { (tick) } }
            }
            @if is_causal { span.key { span.swatch.masked {} "masked" } }
            span.key { span.swatch.nan {} "NaN" }
        }
        div.patterns data-tile={ (queries) " " (keys) } data-sides=(sides(stack)) data-rounding=(rounding(n_levels)) {
            @for row in &rows { (row) }
        }
    })
}

/// Draws a map as an image inside the page.
pub(super) fn image(
    pooled: &Pooled,
    is_causal: bool,
    (colours, n_levels): (&Colours, usize),
    alt: &str,
) -> io::Result<Markup> {
    let image = STANDARD.encode(png(pooled, is_causal, colours, n_levels)?);
    Ok(html! {
        img class=[aspect(pooled)] src={ "data:image/png;base64," (image) } alt=(alt);
    })
}

/// Returns which tokens are the queries and which the keys, among the texts of a prompt: 1 is the decoder's.
fn sides(stack: Stack) -> &'static str {
    match stack {
        Stack::Only | Stack::Encoder => "0 0",
        Stack::Decoder => "1 1",
        Stack::Cross => "1 0",
    }
}

/// Returns the shape of a map that is not square: cross-attention may have many more keys than queries.
fn aspect(pooled: &Pooled) -> Option<String> {
    let aspect = pooled.n_cols as f64 / pooled.n_rows.max(1) as f64;
    (pooled.n_cols != pooled.n_rows).then(|| Colours::class_of_aspect(aspect))
}

/// Whether every query-key pair of a cell is masked by causality.
fn is_masked(pooled: &Pooled, row_idx: usize, col_idx: usize) -> bool {
    col_idx * pooled.keys_per_cell > (row_idx + 1) * pooled.queries_per_cell - 1
}

/// Draws the map as an indexed image, a pixel per cell.
fn png(
    pooled: &Pooled,
    is_causal: bool,
    colours: &Colours,
    n_levels: usize,
) -> io::Result<Vec<u8>> {
    let mut pixels = Vec::with_capacity(pooled.cells.len());
    for row_idx in 0..pooled.n_rows {
        for col_idx in 0..pooled.n_cols {
            let value = pooled.at(row_idx, col_idx);
            pixels.push(match value {
                value if value.is_nan() => NAN,
                // Nonzero weights beyond the mask are shown.
                0.0 if is_causal && is_masked(pooled, row_idx, col_idx) => MASKED,
                value if value > 1.0 + ROUNDING => ABOVE_ONE,
                value => FIRST + Colours::level(share(f64::from(value)), n_levels) as u8,
            });
        }
    }
    let mut palette = vec![0, 0, 0];
    palette.extend(NOT_A_NUMBER);
    palette.extend(colours.levels(n_levels).last().unwrap_or_default());
    palette.extend(colours.levels(n_levels).flatten());
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
        let bytes = png(&pooled, true, &Colours::new(), LEVELS).expect("encodes");
        let mut reader = png::Decoder::new(io::Cursor::new(bytes))
            .read_info()
            .expect("a PNG");
        let mut pixels = vec![0; 9];
        reader.next_frame(&mut pixels).expect("a frame");
        let last = FIRST + (LEVELS - 1) as u8;
        assert_eq!(pixels[..3], [last, MASKED, MASKED]);
        assert_eq!(
            pixels[5],
            FIRST + Colours::level(share(0.5), LEVELS) as u8,
            "a leak is shown"
        );
        assert_eq!(pixels[6..], [NAN, FIRST, FIRST]);
    }

    #[test]
    fn the_script_reads_the_indices_that_are_written_here() {
        let script = include_str!("head.js");
        let names = [
            ("MASKED", MASKED),
            ("NAN", NAN),
            ("ABOVE_ONE", ABOVE_ONE),
            ("FIRST", FIRST),
        ];
        for (name, index) in names {
            assert!(
                script.contains(&format!("const {name} = {index};")),
                "{name}"
            );
        }
        assert_eq!(usize::from(FIRST) + LEVELS, 256, "one byte for each cell");
    }

    #[test]
    fn probabilities_are_rounded_by_no_more_than_is_said() {
        for n_levels in [LEVELS, FEW_LEVELS] {
            let most: f64 = rounding(n_levels).parse().expect("a number");
            assert_eq!(Colours::new().levels(n_levels).count(), n_levels);
            for nth in 0..=10_000 {
                let probability = f64::from(nth) / 10_000.0;
                let level = Colours::level(share(probability), n_levels) as f64;
                let read = (level / (n_levels - 1) as f64).powi(2);
                assert!((read - probability).abs() <= most, "{probability}");
            }
        }
    }

    #[test]
    fn a_weight_above_one_is_told_from_one_that_is_rounded() {
        let mut pooled = Pooled::new(1, 3);
        pooled.add_row(0, &[1.000_001, 1.5, f32::INFINITY]);
        let bytes = png(&pooled, false, &Colours::new(), LEVELS).expect("encodes");
        let mut reader = png::Decoder::new(io::Cursor::new(bytes))
            .read_info()
            .expect("a PNG");
        let mut pixels = vec![0; 3];
        reader.next_frame(&mut pixels).expect("a frame");
        assert_eq!(pixels, [255, ABOVE_ONE, ABOVE_ONE]);
    }
}
