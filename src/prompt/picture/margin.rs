//! Margins of a page, which are cut off, as Nougat's processor does it.

use super::image::Image;

/// Of greys between the darkest and the lightest of a page, those below this one are ink.
const INK: f32 = 200.0;

/// The smallest part of a picture that holds all its ink; a picture of one grey stays as it is.
pub(super) fn without_margin(image: Image) -> Image {
    let n = image.n_channels.max(1);
    let grey = |pixel: &[u8]| match pixel {
        [r, g, b, ..] => {
            (0.2989 * f32::from(*r) + 0.587 * f32::from(*g) + 0.114 * f32::from(*b)) as u8
        }
        _ => pixel.first().copied().unwrap_or(0),
    };
    let greys: Vec<u8> = image.bytes.chunks(n).map(grey).collect();
    let (Some(darkest), Some(lightest)) = (greys.iter().min(), greys.iter().max()) else {
        return image;
    };
    let range = f32::from(lightest - darkest);
    let is_ink = |at: usize| f32::from(greys[at] - darkest) / range * 255.0 < INK;
    let (mut rows, mut columns) = ([image.height, 0], [image.width, 0]);
    for at in (0..greys.len()).filter(|at| range > 0.0 && is_ink(*at)) {
        for (ends, place) in [
            (&mut rows, at / image.width),
            (&mut columns, at % image.width),
        ] {
            *ends = [ends[0].min(place), ends[1].max(place + 1)];
        }
    }
    if rows[0] >= rows[1] {
        return image;
    }
    let (height, width) = (rows[1] - rows[0], columns[1] - columns[0]);
    let mut bytes = Vec::with_capacity(height * width * n);
    for row in rows[0]..rows[1] {
        let first = (row * image.width + columns[0]) * n;
        bytes.extend_from_slice(&image.bytes[first..first + width * n]);
    }
    Image {
        height,
        width,
        n_channels: image.n_channels,
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_as_light_as_the_paper_is_cut_off() {
        let page = |bytes: &[u8]| Image {
            height: 3,
            width: 4,
            n_channels: 1,
            bytes: bytes.to_vec(),
        };
        let cut = without_margin(page(&[
            250, 250, 230, 250, 250, 50, 250, 190, 250, 250, 250, 250,
        ]));
        assert_eq!((cut.height, cut.width), (1, 3));
        assert_eq!(cut.bytes, [50, 250, 190]);
        assert_eq!(without_margin(page(&[9; 12])), page(&[9; 12]));
    }
}
