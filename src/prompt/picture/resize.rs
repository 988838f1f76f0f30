//! Resizes pictures, bit-identical to Pillow 13: rows and columns one after the other, each rounded to bytes.

use super::image::Image;
use super::taps::{Filter, Taps, filter_taps};

/// Fractional bits of a fixed-point weight.
const BITS: u32 = 22;

/// Resizes a picture.
pub(super) fn resized(image: &Image, height: usize, width: usize, filter: Filter) -> Image {
    if columns_first(image, height, width) {
        let short = with_height(image, height, filter);
        return with_width(&short, width, filter);
    }
    let wide = with_width(image, width, filter);
    with_height(&wide, height, filter)
}

/// Whether to resample columns before rows, if that is less work. Pillow before 13 always begins with rows, which differs by one
/// level in places.
fn columns_first(image: &Image, height: usize, width: usize) -> bool {
    let fewer_rows = image.height as i64 - height as i64;
    let fewer_columns = image.width as i64 - width as i64;
    fewer_rows > 0 && fewer_rows > 2 * fewer_columns
}

fn with_width(image: &Image, width: usize, filter: Filter) -> Image {
    if image.width == width {
        return image.clone();
    }
    let n = image.n_channels;
    let taps = fixed(&filter_taps(image.width, width, filter), filter);
    let mut bytes = Vec::with_capacity(image.height * width * n);
    for row in image.bytes.chunks(image.width * n) {
        for taps in &taps {
            bytes.extend((0..n).map(|channel| weighed(taps, |at| row[at * n + channel])));
        }
    }
    Image {
        width,
        bytes,
        ..*image
    }
}

fn with_height(image: &Image, height: usize, filter: Filter) -> Image {
    if image.height == height {
        return image.clone();
    }
    let line = image.width * image.n_channels;
    let taps = fixed(&filter_taps(image.height, height, filter), filter);
    let mut bytes = Vec::with_capacity(height * line);
    for taps in &taps {
        bytes.extend((0..line).map(|column| weighed(taps, |at| image.bytes[at * line + column])));
    }
    Image {
        height,
        bytes,
        ..*image
    }
}

/// Weights in fixed point, in units of 2⁻²², rounded half away from zero.
fn fixed(taps: &[Taps], filter: Filter) -> Vec<Vec<(usize, i64)>> {
    let one = f64::from(1u32 << BITS);
    let whole = |weight: f64| match filter {
        Filter::Nearest => 1 << BITS,
        _ => (weight * one + 0.5f64.copysign(weight)) as i64,
    };
    let of = |taps: &Taps| {
        let all = taps.iter().map(|(at, weight)| (*at, whole(*weight)));
        all.collect()
    };
    taps.iter().map(of).collect()
}

fn weighed(taps: &[(usize, i64)], byte: impl Fn(usize) -> u8) -> u8 {
    let half = 1i64 << (BITS - 1);
    let weighed = |(at, weight): &(usize, i64)| i64::from(byte(*at)) * weight;
    let sum: i64 = taps.iter().map(weighed).sum();
    ((sum + half) >> BITS).clamp(0, 255) as u8
}
