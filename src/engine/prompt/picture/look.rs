//! What a model's own processor does to a picture before the model sees it: size, crop, scale, and where the tokens lie.

use super::image::Image;
use super::resize::resized;
use super::taps::Filter;

/// How a picture becomes the values of patches, and these become tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// 1 for grey, 3 for colours.
    pub n_channels: usize,
    /// To which size it is brought, and by which filter; `None` where it stays as it is.
    pub resize: Option<(Size, Filter)>,
    /// Rows and columns that are cut out of the middle; what a picture lacks is black.
    pub crop: Option<[usize; 2]>,
    /// Multiplies bytes.
    pub rescale: f64,
    /// What is taken from each channel, and what that is divided by.
    pub mean: [f32; 3],
    pub std: [f32; 3],
    /// Rows and columns of a patch.
    pub patch: [usize; 2],
    /// Rows and columns that the model takes; `None` where it takes any.
    pub takes: Option<[usize; 2]>,
    pub firsts: Firsts,
}

/// No value of a look is NaN: each was checked where it was read.
impl Eq for Look {}

/// The learned tokens before the patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Firsts {
    pub has_class: bool,
    pub has_distillation: bool,
    pub n_registers: usize,
}

impl Firsts {
    pub fn len(self) -> usize {
        usize::from(self.has_class) + usize::from(self.has_distillation) + self.n_registers
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What they are called, in order.
    pub fn labels(self) -> impl Iterator<Item = String> {
        let class = self.has_class.then(|| "[CLS]".to_owned());
        let distillation = self.has_distillation.then(|| "[DIST]".to_owned());
        let registers = (1..=self.n_registers).map(|nth| format!("[reg {nth}]"));
        class.into_iter().chain(distillation).chain(registers)
    }
}

/// To which size a picture is brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Rows and columns, whatever its own.
    Exactly([usize; 2]),
    /// The shorter side, the other in proportion.
    Shortest(usize),
}

impl Look {
    /// The size of every picture after it was brought to size and cut; `None` where it depends on the picture.
    pub fn fixed_size(&self) -> Option<[usize; 2]> {
        match (self.crop, self.resize) {
            (Some(crop), _) => Some(crop),
            (None, Some((Size::Exactly(size), _))) => Some(size),
            _ => self.takes,
        }
    }

    /// The picture as the model's processor makes it, as bytes still.
    pub(super) fn shown(&self, image: Image) -> Image {
        let mut image = if self.n_channels == 1 {
            image.grey()
        } else {
            image.coloured()
        };
        if let Some((size, filter)) = self.resize {
            let [height, width] = match size {
                Size::Exactly(size) => size,
                Size::Shortest(shortest) => in_proportion(shortest, image.height, image.width),
            };
            image = resized(&image, height, width, filter);
        }
        match self.crop {
            Some(crop) => middle(&image, crop),
            None => image,
        }
    }

    /// The values of a picture. // [channel, row, column]
    pub(super) fn values(&self, image: &Image) -> Vec<f32> {
        let (n, n_pixels) = (image.n_channels, image.height * image.width);
        let mut values = Vec::with_capacity(n * n_pixels);
        for channel in 0..n {
            let (mean, std) = (self.mean[channel], self.std[channel]);
            let bytes = image.bytes.iter().skip(channel).step_by(n);
            let scaled = bytes.map(|byte| (f64::from(*byte) * self.rescale) as f32);
            values.extend(scaled.map(|value| (value - mean) / std));
        }
        values
    }
}

/// The size of a picture whose shorter side is given, as Python's whole numbers have it.
fn in_proportion(shortest: usize, height: usize, width: usize) -> [usize; 2] {
    let (short, long) = (height.min(width), height.max(width));
    let other = shortest * long / short.max(1);
    if height <= width {
        [shortest, other]
    } else {
        [other, shortest]
    }
}

/// The middle of a picture, black where it is smaller.
fn middle(image: &Image, [height, width]: [usize; 2]) -> Image {
    let n = image.n_channels;
    let (rows, columns) = (sources(image.height, height), sources(image.width, width));
    let mut bytes = vec![0; height * width * n];
    for (row, from_row) in rows.enumerate() {
        let Some(from_row) = from_row else { continue };
        for (column, from) in columns.clone().enumerate() {
            let Some(from) = from else { continue };
            let from = (from_row * image.width + from) * n;
            let to = (row * width + column) * n;
            bytes[to..to + n].copy_from_slice(&image.bytes[from..from + n]);
        }
    }
    Image {
        height,
        width,
        n_channels: n,
        bytes,
    }
}

/// Where each sample of a piece of a line comes from; `None` beyond its ends. A line that is too short has half a sample more before it.
fn sources(whole: usize, piece: usize) -> impl Iterator<Item = Option<usize>> + Clone {
    let skipped = whole.saturating_sub(piece) / 2;
    let before = piece.saturating_sub(whole).div_ceil(2);
    (0..piece).map(move |at| {
        let from = at.checked_sub(before)? + skipped;
        (from < whole).then_some(from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_cut_out_or_filled_with_black() {
        let of = |whole, piece| sources(whole, piece).collect::<Vec<_>>();
        assert_eq!(of(6, 3), [Some(1), Some(2), Some(3)]);
        assert_eq!(of(3, 3), [Some(0), Some(1), Some(2)]);
        assert_eq!(of(2, 5), [None, None, Some(0), Some(1), None]);
        assert_eq!(in_proportion(10, 30, 20), [15, 10]);
        assert_eq!(in_proportion(10, 20, 33), [10, 16]);
    }
}
