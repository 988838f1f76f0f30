//! Pictures whose values are resized from corner to corner, in a frame of their own mirror image.

use super::image::Image;
use super::size::Size;
use super::taps::{Filter, Resampling, Taps, taps};

/// Rows and columns of a picture with its frame: three times the root of half a side, before and behind it.
pub(super) fn framed_size(size: [usize; 2]) -> [usize; 2] {
    size.map(|side| side.saturating_add(2 * frame_of(side)))
}

fn frame_of(side: usize) -> usize {
    ((side as f64 / 2.0).sqrt() * 3.0) as usize
}

/// A picture continued on all sides by its mirror image, the first and the last row and column once.
pub(super) fn framed(image: &Image) -> Image {
    let source = |at: usize, whole: usize| {
        let turn = (2 * whole).saturating_sub(2).max(1);
        let at = (at + frame_of(whole).next_multiple_of(turn) - frame_of(whole)) % turn;
        at.min(turn - at)
    };
    let [height, width] = framed_size([image.height, image.width]);
    let rows = (0..height).map(|row| source(row, image.height));
    let columns = (0..width).map(|column| source(column, image.width));
    image.of_places(rows, columns)
}

/// A picture and its values, both resized. // values: [channel, row, column]
pub(super) fn resized(
    image: &Image,
    values: &[f32],
    size: Size,
    filter: Filter,
) -> (Image, Vec<f32>) {
    let from = [image.height, image.width];
    let to = size.of(from);
    let resampling = match filter {
        Filter::Bicubic => Resampling::CubicToEnds,
        _ => Resampling::LinearToEnds,
    };
    let of = [0, 1].map(|axis| taps(from[axis], to[axis], resampling));
    let n = image.n_channels;
    let mut bytes = vec![0; to[0] * to[1] * n];
    for channel in 0..n {
        let colours = image.bytes.iter().skip(channel).step_by(n);
        let colours: Vec<f32> = colours.map(|byte| f32::from(*byte)).collect();
        let made = plane(&colours, image.width, &of);
        let places = bytes.iter_mut().skip(channel).step_by(n);
        places
            .zip(made)
            .for_each(|(to, value)| *to = value.round() as u8);
    }
    let planes = values.chunks(from[0] * from[1]);
    let values = planes
        .flat_map(|values| plane(values, image.width, &of))
        .collect();
    let image = Image {
        height: to[0],
        width: to[1],
        n_channels: n,
        bytes,
    };
    (image, values)
}

/// One channel by the taps of its rows and columns.
fn plane(values: &[f32], width: usize, [rows, columns]: &[Vec<Taps>; 2]) -> Vec<f32> {
    let sum = |taps: &Taps, at: &dyn Fn(usize) -> f64| -> f64 {
        taps.iter().map(|(idx, weight)| weight * at(*idx)).sum()
    };
    let mut made = Vec::with_capacity(rows.len() * columns.len());
    for of_row in rows {
        let column = |at: usize| sum(of_row, &|row| f64::from(values[row * width + at]));
        let line: Vec<f64> = (0..width).map(column).collect();
        made.extend(columns.iter().map(|taps| sum(taps, &|at| line[at]) as f32));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: &[u8]) -> Image {
        Image {
            height: 1,
            width: bytes.len(),
            n_channels: 1,
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn a_frame_mirrors_a_picture_around_its_first_and_last_pixels_as_often_as_it_takes() {
        let framed = framed(&line(&[1, 2, 3]));
        // int(sqrt(1 / 2) * 3) is 2, int(sqrt(3 / 2) * 3) is 3.
        assert_eq!((framed.height, framed.width), (5, 9));
        assert_eq!(framed.bytes[..9], [2, 3, 2, 1, 2, 3, 2, 1, 2]);
    }

    #[test]
    fn corners_stay_and_what_lies_between_them_is_linear_or_cubic() {
        let image = line(&[0, 10, 40]);
        let values = [0.0, 1.0, 4.0];
        let size = Size::Exactly([1, 5]);
        let (linear, exact) = resized(&image, &values, size, Filter::Bilinear);
        assert_eq!(exact, [0.0, 0.5, 1.0, 2.5, 4.0]);
        assert_eq!(linear.bytes, [0, 5, 10, 25, 40]);
        // By hand, with the kernel of Keys at -3/4: -3/32 and 19/32.
        let (_, cubic) = resized(&image, &values, size, Filter::Bicubic);
        assert_eq!(cubic, [0.0, 0.21875, 1.0, 2.59375, 4.0]);
    }
}
