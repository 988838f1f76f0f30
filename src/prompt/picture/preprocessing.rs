//! A model's picture preprocessing: resize, crop, rescale, and the layout of the tokens.

use super::corners;
use super::image::{self, Image};
use super::margin::without_margin;
use super::resize::resized;
use super::sheet::{held_by, on_sheet};
use super::size::Size;
use super::taps::Filter;

/// Upper limits of pixels after each step, and of patches.
const MOST_PIXELS: usize = 1 << 24;
const MOST_PATCHES: usize = 1 << 16;

/// How a picture becomes patch values, and these become tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PicturePreprocessing {
    /// 1 for grey, 3 for colour.
    pub n_channels: usize,
    /// Whether what is as light as the paper around the ink of a page is cut off first.
    pub crops_margin: bool,
    /// Target size and filter; `None` to keep the size.
    pub resize: Option<(Size, Filter)>,
    /// The filter by which a sheet holds a larger picture, if it is another one.
    pub shrinks_by: Option<Filter>,
    /// Whether a picture is continued by its mirror image on all sides before it is resized.
    pub is_framed: bool,
    /// Whether values are resized and not bytes, so that the centres of the pixels in the corners stay where they are.
    pub resizes_values: bool,
    /// Rows and columns of the centre crop; a smaller picture is padded with black.
    pub crop: Option<[usize; 2]>,
    /// Where an odd number of rows or columns is cut off, the number before the crop is even, as in torchvision; otherwise it is the
    /// smaller half.
    pub cuts_evenly: bool,
    /// Rows and columns to which a picture is filled up below and to the right, with values of 0.
    pub fill: Option<[usize; 2]>,
    /// Whether blue comes first and red last.
    pub has_blue_first: bool,
    /// Factor of the bytes.
    pub rescale: f64,
    /// Per channel: the mean to subtract, and the standard deviation to divide by.
    pub mean: [f32; 3],
    pub std: [f32; 3],
    /// Whether the mean and the deviation of all values of a picture, before it is resized, are taken instead.
    pub standardises: bool,
    /// Rows and columns of a patch.
    pub patch: [usize; 2],
    /// Rows and columns of zeros on every side of the picture, which patches are cut from too.
    pub margin: usize,
    /// Rows and columns of pixels that a patch shares with the next: those behind it that its map reads too.
    pub overlap: usize,
    /// How often the patches follow each other: a model of videos sees a picture that stands still for so many moments.
    pub n_moments: usize,
    /// Rows and columns that the model accepts; `None` for any size.
    pub takes: Option<[usize; 2]>,
    pub firsts: Firsts,
}

/// No value is NaN: each was checked when it was read.
impl Eq for PicturePreprocessing {}

/// Learned tokens before the patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Firsts {
    /// Tokens that join the others in a later layer, before all of them.
    pub n_queries: usize,
    pub has_class: bool,
    pub has_distillation: bool,
    pub n_registers: usize,
}

impl Firsts {
    /// The tokens of a later stage: a learned one of its own, and those that joined.
    pub fn of_stage(has_class: bool, n_joined: usize) -> Self {
        Self {
            n_queries: n_joined,
            has_class,
            ..Self::default()
        }
    }

    pub fn len(self) -> usize {
        let n_classes = usize::from(self.has_class) + usize::from(self.has_distillation);
        self.n_queries + n_classes + self.n_registers
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Their labels, in order.
    pub fn labels(self) -> impl Iterator<Item = String> {
        let queries = (1..=self.n_queries).map(|nth| format!("[query {nth}]"));
        let class = self.has_class.then(|| "[CLS]".to_owned());
        let distillation = self.has_distillation.then(|| "[DIST]".to_owned());
        let registers = (1..=self.n_registers).map(|nth| format!("[reg {nth}]"));
        queries.chain(class).chain(distillation).chain(registers)
    }
}

impl PicturePreprocessing {
    /// Colour pictures as they are, in patches of a size.
    pub fn of_patches(patch: [usize; 2]) -> Self {
        Self {
            n_channels: 3,
            crops_margin: false,
            resize: None,
            shrinks_by: None,
            is_framed: false,
            resizes_values: false,
            crop: None,
            cuts_evenly: false,
            fill: None,
            has_blue_first: false,
            rescale: 1.0,
            mean: [0.0; 3],
            std: [1.0; 3],
            standardises: false,
            patch,
            margin: 0,
            overlap: 0,
            n_moments: 1,
            takes: None,
            firsts: Firsts::default(),
        }
    }

    /// The steps, with a mean and a deviation that are taken from their values.
    pub fn then(mut self, mean: [f32; 3], std: [f32; 3]) -> Self {
        for channel in 0..3 {
            self.mean[channel] += self.std[channel] * mean[channel];
            self.std[channel] *= std[channel];
        }
        self
    }

    /// The steps for one picture: its own mean and deviation, where those are taken.
    pub(super) fn of_picture(&self, image: &Image) -> Self {
        if !self.standardises || image.bytes.is_empty() {
            return *self;
        }
        let n = image.bytes.len() as f64;
        let values = || {
            image
                .bytes
                .iter()
                .map(|byte| f64::from(*byte) * self.rescale)
        };
        let mean = values().sum::<f64>() / n;
        let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        let std = variance.sqrt().max(1.0 / n.sqrt());
        Self {
            mean: [mean as f32; 3],
            std: [std as f32; 3],
            ..*self
        }
    }

    /// The size of every picture after resizing and cropping; `None` if it depends on the picture.
    pub fn fixed_size(&self) -> Option<[usize; 2]> {
        match (self.fill.or(self.crop), self.resize) {
            (Some(size), _) | (None, Some((Size::Exactly(size) | Size::Sheet(size), _))) => {
                Some(size)
            }
            _ => self.takes,
        }
    }

    /// Refuses a picture size if a step would make it larger than the limits.
    pub(super) fn check_work(&self, size: [usize; 2]) -> Result<(), String> {
        let size = if self.is_framed {
            corners::framed_size(size)
        } else {
            size
        };
        check_pixels("the frame", size, image::MOST_PIXELS)?;
        let mut made = size;
        if let Some((to, _)) = self.resize {
            made = to.of(size);
            if made.contains(&0) {
                let [rows, columns] = size;
                return Err(format!(
                    "{columns} × {rows} pixels leave nothing after resizing"
                ));
            }
            // Resizing changes one direction before the other.
            let between = (made[0].saturating_mul(size[1])).max(size[0].saturating_mul(made[1]));
            check_pixels("resizing", made, MOST_PIXELS)?;
            if between > image::MOST_PIXELS {
                let [rows, columns] = made;
                return Err(format!(
                    "cannot be brought from {} × {} to {columns} × {rows} pixels: expected at most {} in between, found {between}",
                    size[1],
                    size[0],
                    image::MOST_PIXELS
                ));
            }
        }
        if let Some((Size::Sheet(whole), _)) = self.resize {
            made = whole;
        }
        if let Some(crop) = self.crop {
            made = crop;
        }
        if let Some(whole) = self.fill {
            if made[0] > whole[0] || made[1] > whole[1] {
                return Err(format!(
                    "expected at most {} × {} pixels to fill up, found {} × {}",
                    whole[1], whole[0], made[1], made[0]
                ));
            }
            made = whole;
        }
        check_pixels("the processor's steps", made, MOST_PIXELS)?;
        let n_patches = (made[0] / self.patch[0].max(1))
            .saturating_mul(made[1] / self.patch[1].max(1))
            .saturating_mul(self.n_moments);
        if n_patches > MOST_PATCHES {
            return Err(format!(
                "expected at most {MOST_PATCHES} patches, found {n_patches} of {} × {} pixels",
                made[1], made[0]
            ));
        }
        Ok(())
    }

    /// The picture without its margin, where that is cut off.
    pub(super) fn trimmed(&self, image: Image) -> Image {
        if self.crops_margin {
            without_margin(image.coloured())
        } else {
            image
        }
    }

    /// The preprocessed picture, still as bytes.
    pub(super) fn shown(&self, image: Image) -> Image {
        let mut image = if self.n_channels == 1 {
            image.grey()
        } else {
            image.coloured()
        };
        if self.is_framed {
            image = corners::framed(&image);
        }
        let resize = self.resize.filter(|_| !self.resizes_values);
        if let Some((size, filter)) =
            resize.filter(|(size, _)| !matches!(size, Size::Filled { .. }))
        {
            let [height, width] = size.of([image.height, image.width]);
            if let Size::Mirrored { .. } = size {
                return mirrored(&image, [height, width]);
            }
            image = resized(&image, height, width, filter);
            if let Size::Sheet(sheet) = size {
                let made = [image.height, image.width];
                let [height, width] = held_by(sheet, made);
                if [height, width] != made {
                    let filter = self.shrinks_by.unwrap_or(filter);
                    image = resized(&image, height, width, filter);
                }
                image = on_sheet(&image, sheet);
            }
        }
        match self.crop {
            Some(crop) => middle(&image, crop, self.cuts_evenly),
            None => image,
        }
    }

    /// The picture filled up below and to the right, or resized by its values, and these. // values: [channel, row, column]
    pub(super) fn filled(&self, image: Image, values: Vec<f32>) -> (Image, Vec<f32>) {
        if let Some((size, filter)) = self.resize.filter(|_| self.resizes_values) {
            return corners::resized(&image, &values, size, filter);
        }
        let n = image.n_channels;
        let ([height, width], byte) = match (self.fill, self.resize) {
            (Some(whole), _) => (whole, None),
            (None, Some((size @ Size::Filled { .. }, _))) => {
                (size.of([image.height, image.width]), Some(-1.0))
            }
            _ => return (image, values),
        };
        // Values of 0 are the colour that is subtracted.
        let zero = |channel: usize| f64::from(self.mean[channel]) / self.rescale;
        let colour = |channel: usize| byte.unwrap_or_else(|| zero(channel)) as u8;
        let colour: Vec<u8> = (0..n).map(colour).collect();
        let mut bytes = colour.repeat(height * width);
        let value = |channel: usize| {
            let scaled = byte.map(|byte: f64| (byte * self.rescale) as f32);
            scaled.map_or(0.0, |value| {
                (value - self.mean[channel]) / self.std[channel]
            })
        };
        let values_of = |channel: usize| std::iter::repeat_n(value(channel), height * width);
        let mut whole: Vec<f32> = (0..n).flat_map(values_of).collect();
        for row in 0..image.height.min(height) {
            let wide = image.width.min(width);
            let from = &image.bytes[row * image.width * n..][..wide * n];
            bytes[row * width * n..][..wide * n].copy_from_slice(from);
            for channel in 0..n {
                let from = &values[(channel * image.height + row) * image.width..][..wide];
                whole[(channel * height + row) * width..][..wide].copy_from_slice(from);
            }
        }
        let image = Image {
            height,
            width,
            n_channels: n,
            bytes,
        };
        (image, whole)
    }

    /// The values of a picture. // [channel, row, column]
    pub(super) fn values(&self, image: &Image) -> Vec<f32> {
        let (n, n_pixels) = (image.n_channels, image.height * image.width);
        let mut values = Vec::with_capacity(n * n_pixels);
        for channel in 0..n {
            let (mean, std) = (self.mean[channel], self.std[channel]);
            let colour = if self.has_blue_first {
                n - 1 - channel
            } else {
                channel
            };
            let bytes = image.bytes.iter().skip(colour).step_by(n);
            let scaled = bytes.map(|byte| (f64::from(*byte) * self.rescale) as f32);
            values.extend(scaled.map(|value| (value - mean) / std));
        }
        values
    }
}

fn check_pixels(step: &str, [rows, columns]: [usize; 2], most: usize) -> Result<(), String> {
    if rows.saturating_mul(columns) <= most {
        return Ok(());
    }
    Err(format!(
        "expected at most {most} pixels after {step}, found {columns} × {rows}"
    ))
}

/// A picture continued below and to the right by its own mirror image, the last row and column twice.
fn mirrored(image: &Image, [height, width]: [usize; 2]) -> Image {
    let source = |at: usize, whole: usize| {
        let at = at % (2 * whole).max(1);
        if at < whole { at } else { 2 * whole - 1 - at }
    };
    let rows = (0..height).map(|row| source(row, image.height));
    let columns = (0..width).map(|column| source(column, image.width));
    image.of_places(rows, columns)
}

/// The centre of a picture, padded with black if the picture is smaller.
fn middle(image: &Image, [height, width]: [usize; 2], cuts_evenly: bool) -> Image {
    let n = image.n_channels;
    let of = |whole, piece| sources(whole, piece, cuts_evenly);
    let (rows, columns) = (of(image.height, height), of(image.width, width));
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

/// The source index of each sample in a centre crop of a line; `None` for padding. A line that is too short by an odd number gets
/// the larger half before it.
fn sources(
    whole: usize,
    piece: usize,
    cuts_evenly: bool,
) -> impl Iterator<Item = Option<usize>> + Clone {
    let off = whole.saturating_sub(piece);
    let skipped = match off / 2 {
        half if cuts_evenly && off % 2 == 1 => half.next_multiple_of(2),
        half => half,
    };
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
    fn a_picture_is_continued_by_its_mirror_image_and_blue_may_come_first() {
        let image = Image {
            height: 1,
            width: 2,
            n_channels: 3,
            bytes: vec![1, 2, 3, 4, 5, 6],
        };
        let preprocessing = PicturePreprocessing {
            resize: Some((Size::Mirrored { of: 4 }, Filter::Bilinear)),
            has_blue_first: true,
            ..PicturePreprocessing::of_patches([1; 2])
        };
        let shown = preprocessing.shown(image);
        assert_eq!((shown.height, shown.width), (4, 4));
        let reds: Vec<u8> = shown.bytes.iter().copied().step_by(3).collect();
        assert_eq!(reds[..4], [1, 4, 4, 1]);
        let values = preprocessing.values(&shown);
        assert_eq!((values[0], values[16], values[32]), (3.0, 2.0, 1.0));
        // A side that is a multiple already grows too.
        assert_eq!(Size::Mirrored { of: 4 }.of([4, 7]), [8, 8]);
    }

    #[test]
    fn a_picture_cannot_exceed_the_model_limits() {
        let plain = PicturePreprocessing::of_patches([16; 2]);
        let resized = |size| PicturePreprocessing {
            resize: Some((size, Filter::Bilinear)),
            ..plain
        };
        let cropped = |side| PicturePreprocessing {
            crop: Some([side; 2]),
            ..plain
        };
        assert_eq!(resized(Size::Shortest(4096)).check_work([64, 64]), Ok(()));
        assert_eq!(cropped(4096).check_work([64, 64]), Ok(()));
        for (preprocessing, size, words) in [
            (
                resized(Size::Shortest(28_000)),
                [224, 224],
                "pixels after resizing",
            ),
            (
                resized(Size::Shortest(600)),
                [1, 32_000],
                "pixels after resizing",
            ),
            (
                resized(Size::Exactly([32_768, 1])),
                [4, 32_768],
                "in between",
            ),
            (cropped(8_000), [224, 224], "found 8000 × 8000"),
            (
                PicturePreprocessing {
                    patch: [8; 2],
                    ..cropped(4_096)
                },
                [64, 64],
                "65536 patches, found 262144",
            ),
            (plain, [8_000, 8_000], "found 8000 × 8000"),
        ] {
            let said = preprocessing.check_work(size).expect_err("refused");
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn the_centre_is_cropped_or_padded_with_black() {
        let of = |whole, piece| sources(whole, piece, false).collect::<Vec<_>>();
        let evenly = |whole, piece| sources(whole, piece, true).collect::<Vec<_>>();
        assert_eq!(evenly(6, 3), [Some(2), Some(3), Some(4)]);
        assert_eq!(evenly(8, 3), [Some(2), Some(3), Some(4)]);
        assert_eq!(evenly(7, 3), [Some(2), Some(3), Some(4)]);
        assert_eq!(of(6, 3), [Some(1), Some(2), Some(3)]);
        assert_eq!(of(3, 3), [Some(0), Some(1), Some(2)]);
        assert_eq!(of(2, 5), [None, None, Some(0), Some(1), None]);
    }
}
