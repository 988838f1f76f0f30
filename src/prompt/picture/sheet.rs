//! Pictures in the middle of a sheet, as Donut's processor puts them.

use super::image::Image;

/// The size of a picture made smaller until a sheet holds it, with both sides cut for a square; rounded as Python does it.
pub(super) fn held_by([rows, columns]: [usize; 2], [height, width]: [usize; 2]) -> [usize; 2] {
    let (tall, wide) = (height.min(rows), width.min(columns));
    let shrunk = |side: usize, by: usize, of: usize| (side * by / of.max(1)).max(1);
    if [tall, wide] == [height, width] {
        [height, width]
    } else if height > width {
        [tall, shrunk(width, tall, height)]
    } else if width > height {
        [shrunk(height, wide, width), wide]
    } else {
        [tall, wide]
    }
}

/// A picture in the middle of a black sheet; a margin that is odd is larger behind.
pub(super) fn on_sheet(image: &Image, [height, width]: [usize; 2]) -> Image {
    let n = image.n_channels;
    let (top, left) = (
        height.saturating_sub(image.height) / 2,
        width.saturating_sub(image.width) / 2,
    );
    let wide = image.width.min(width);
    let mut bytes = vec![0; height * width * n];
    for row in 0..image.height.min(height) {
        let from = &image.bytes[row * image.width * n..][..wide * n];
        bytes[((row + top) * width + left) * n..][..wide * n].copy_from_slice(from);
    }
    Image {
        height,
        width,
        n_channels: n,
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_keeps_its_proportions_until_a_sheet_holds_it() {
        assert_eq!(held_by([28, 20], [40, 20]), [28, 14]);
        assert_eq!(held_by([28, 20], [28, 20]), [28, 20]);
        assert_eq!(held_by([24, 40], [24, 46]), [20, 40]);
    }

    #[test]
    fn an_odd_margin_is_larger_behind() {
        let image = Image {
            height: 1,
            width: 2,
            n_channels: 1,
            bytes: vec![7, 9],
        };
        let sheet = on_sheet(&image, [2, 5]);
        assert_eq!(sheet.bytes, [0, 7, 9, 0, 0, 0, 0, 0, 0, 0]);
    }
}
