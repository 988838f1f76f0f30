//! Picture prompts: reads a file, preprocesses it for the model, and cuts it into patches.

mod corners;
mod image;
mod margin;
mod preprocessing;
mod resize;
mod sheet;
mod size;
mod taps;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use preprocessing::{Firsts, PicturePreprocessing};
pub use size::Size;
pub use taps::{Filter, Resampling, taps};

use self::image::Image;
use attnscope_compute::error::{Error, Result};

/// The most patches on a side of the built-in picture where a model takes any size: a patch of one pixel would give 50 000 of them.
const DRAWN: usize = 32;

/// The source of a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PictureSource {
    /// A built-in drawing: a disc and a square on a background that gets lighter.
    BuiltIn,
    File(PathBuf),
}

impl fmt::Display for PictureSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("the built-in picture"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Whether a path is a picture file, by its extension.
pub fn is_picture(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy());
    ending.is_some_and(|ending| {
        let known = ["png", "jpg", "jpeg"];
        known.iter().any(|known| ending.eq_ignore_ascii_case(known))
    })
}

/// A preprocessed picture, as the model receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    pub source: PictureSource,
    image: Arc<Image>,
    /// [channel, row, column]
    values: Vec<f32>,
    patch: [usize; 2],
    /// Rows and columns of patches, where each was merged of several.
    merged: Option<[usize; 2]>,
    margin: usize,
    overlap: usize,
    n_moments: usize,
    pub firsts: Firsts,
}

/// Its values are rescaled bytes: none is NaN.
impl Eq for Picture {}

impl Picture {
    /// Reads and preprocesses a picture.
    ///
    /// # Errors
    /// When the file is not a picture, or the model does not accept its size.
    pub fn read(source: &PictureSource, preprocessing: &PicturePreprocessing) -> Result<Self> {
        let refused = |problem: String| Error::Prompt(format!("{source}: {problem}"));
        let image = match source {
            PictureSource::BuiltIn => {
                let free = preprocessing.patch.map(|side| (side * DRAWN).min(224));
                let size = preprocessing.fixed_size().unwrap_or(free);
                preprocessing.check_work(size).map_err(refused)?;
                drawing(size)
            }
            PictureSource::File(path) => {
                let image = preprocessing.trimmed(Image::open(path)?);
                preprocessing
                    .check_work([image.height, image.width])
                    .map_err(refused)?;
                image
            }
        };
        let preprocessing = &preprocessing.of_picture(&image);
        let image = preprocessing.shown(image);
        let values = preprocessing.values(&image);
        let (image, values) = preprocessing.filled(image, values);
        let size = [image.height, image.width];
        if let Some(takes) = preprocessing.takes.filter(|takes| *takes != size) {
            let problem = format!(
                "{source}: expected a picture of {} × {} pixels, found {} × {} after the processor's steps",
                takes[1], takes[0], size[1], size[0]
            );
            return Err(Error::Prompt(problem));
        }
        let PicturePreprocessing {
            patch,
            margin,
            overlap,
            ..
        } = *preprocessing;
        let mut sides = size.iter().zip(patch);
        let is_too_small =
            sides.any(|(n, of_patch)| *n < of_patch || n + 2 * margin < of_patch + overlap);
        if is_too_small {
            let problem = format!(
                "{source}: {} × {} pixels hold no patch of {} × {}",
                size[1], size[0], preprocessing.patch[1], preprocessing.patch[0]
            );
            return Err(Error::Prompt(problem));
        }
        Ok(Self {
            source: source.clone(),
            values,
            image: Arc::new(image),
            patch: preprocessing.patch,
            merged: None,
            margin: preprocessing.margin,
            overlap: preprocessing.overlap,
            n_moments: preprocessing.n_moments,
            firsts: preprocessing.firsts,
        })
    }

    /// The picture with its patches merged to this many rows and columns, behind these learned tokens. It has no values for a model
    /// to read.
    #[must_use]
    pub fn merged_to(&self, grid: [usize; 2], firsts: Firsts) -> Self {
        let before = self.grid();
        let patch = [0, 1].map(|axis| match grid[axis].max(1) {
            finer if finer > before[axis] => self.patch[axis] * before[axis] / finer,
            n => self.patch[axis] * before[axis].div_ceil(n),
        });
        Self {
            source: self.source.clone(),
            image: self.image.clone(),
            values: Vec::new(),
            patch,
            merged: Some(grid),
            margin: self.margin,
            overlap: self.overlap,
            n_moments: self.n_moments,
            firsts,
        }
    }

    /// The picture with learned tokens before all others.
    #[must_use]
    pub fn joined_by(mut self, n: usize) -> Self {
        self.firsts.n_queries += n;
        self
    }

    /// Rows and columns of patches, ignoring pixels that do not fill a patch with what it shares with the next.
    pub fn grid(&self) -> [usize; 2] {
        if let Some(grid) = self.merged {
            return grid;
        }
        let sides = [self.image.height, self.image.width];
        [0, 1].map(|axis| {
            (sides[axis] + 2 * self.margin).saturating_sub(self.overlap) / self.patch[axis]
        })
    }

    /// Rows and columns of pixels in a patch.
    pub fn patch_size(&self) -> [usize; 2] {
        self.patch
    }

    /// Number of patches of all moments together.
    pub fn n_patches(&self) -> usize {
        self.grid().iter().product::<usize>() * self.n_moments
    }

    /// Row and column of a patch of any moment.
    pub fn place(&self, patch_idx: usize) -> [usize; 2] {
        let [n_rows, n_columns] = self.grid().map(|n| n.max(1));
        let at = patch_idx % (n_rows * n_columns);
        [at / n_columns, at % n_columns]
    }

    /// The moment of a patch.
    pub fn moment(&self, patch_idx: usize) -> usize {
        let n_still = self.grid().iter().product::<usize>();
        patch_idx / n_still.max(1)
    }

    /// Number of tokens: learned ones, then patches row by row, moment by moment.
    pub fn n_tokens(&self) -> usize {
        self.firsts.len() + self.n_patches()
    }

    /// Describes its tokens briefly.
    pub fn describe(&self) -> String {
        let ([rows, columns], [tall, wide]) = (self.grid(), self.patch);
        let learned = match self.firsts.len() {
            0 => String::new(),
            1 => "1 learned, ".to_owned(),
            n => format!("{n} learned, "),
        };
        let source = &self.source;
        let moments = match self.n_moments {
            1 => String::new(),
            n => format!(", still for {n} moments"),
        };
        format!(
            "{learned}{columns} × {rows} patches of {wide} × {tall} pixels of {source}{moments}"
        )
    }

    /// Labels of its tokens; rows and columns are counted from 1.
    pub fn labels(&self) -> Vec<String> {
        let patches = (0..self.n_patches()).map(|patch_idx| {
            let [row, column] = self.place(patch_idx).map(|at| at + 1);
            match self.n_moments {
                1 => format!("r{row} c{column}"),
                _ => format!("t{} r{row} c{column}", self.moment(patch_idx) + 1),
            }
        });
        self.firsts.labels().chain(patches).collect()
    }

    /// Rows and columns of pixels.
    pub fn size(&self) -> [usize; 2] {
        [self.image.height, self.image.width]
    }

    /// All values that the model reads. // [channel, row, column]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The colour of a pixel, after resizing.
    pub fn pixel(&self, row: usize, column: usize) -> [u8; 3] {
        let n = self.image.n_channels;
        let at = (row * self.image.width + column) * n;
        match self.image.bytes.get(at..at + n) {
            Some([r, g, b]) => [*r, *g, *b],
            Some([grey]) => [*grey; 3],
            _ => [0; 3],
        }
    }

    /// The mean colour of some pixels.
    pub fn mean_colour(
        &self,
        rows: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
    ) -> [u8; 3] {
        let n = (rows.len() * columns.len()).max(1) as u64;
        let mut sums = [0u64; 3];
        for row in rows {
            for column in columns.clone() {
                let pixel = self.pixel(row, column);
                sums.iter_mut()
                    .zip(pixel)
                    .for_each(|(sum, byte)| *sum += u64::from(byte));
            }
        }
        sums.map(|sum| (sum / n) as u8)
    }

    /// Appends the values of a patch, and of pixels that it shares with the next: channels, rows, columns.
    pub fn patch(&self, patch_idx: usize, to: &mut Vec<f32>) {
        let ([row, column], [height, width]) = (self.place(patch_idx), self.patch);
        let [tall, wide] = self.size();
        for channel in self.values.chunks(tall * wide) {
            for y in row * height..(row + 1) * height + self.overlap {
                let line = y.checked_sub(self.margin).filter(|y| *y < tall);
                for x in column * width..(column + 1) * width + self.overlap {
                    let x = x.checked_sub(self.margin).filter(|x| *x < wide);
                    let value = line.zip(x).map_or(0.0, |(y, x)| channel[y * wide + x]);
                    to.push(value);
                }
            }
        }
    }
}

/// The built-in picture: a gradient from left to right, a light disc and a dark square.
fn drawing([height, width]: [usize; 2]) -> Image {
    let mut bytes = Vec::with_capacity(height * width * 3);
    let (h, w) = (height.max(1), width.max(1));
    for row in 0..height {
        for column in 0..width {
            // In thousandths of the sides.
            let (y, x) = (1000 * row / h, 1000 * column / w);
            let (dy, dx) = (y.abs_diff(350), x.abs_diff(320));
            let is_disc = dy * dy + dx * dx < 220 * 220;
            let is_square = (560..860).contains(&y) && (560..880).contains(&x);
            bytes.extend(match (is_disc, is_square) {
                (true, _) => [236, 196, 84],
                (_, true) => [96, 40, 72],
                _ => [
                    (40 + 60 * x / 1000) as u8,
                    (90 + 90 * y / 1000) as u8,
                    (130 + 90 * x / 1000) as u8,
                ],
            });
        }
    }
    Image {
        height,
        width,
        n_channels: 3,
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preprocessing() -> PicturePreprocessing {
        PicturePreprocessing {
            n_channels: 3,
            resize: None,
            is_framed: false,
            resizes_values: false,
            crop: Some([4, 6]),
            cuts_evenly: false,
            fill: None,
            has_blue_first: false,
            rescale: 1.0,
            mean: [0.0; 3],
            std: [1.0; 3],
            standardises: false,
            crops_margin: false,
            shrinks_by: None,
            patch: [2, 2],
            margin: 0,
            overlap: 0,
            n_moments: 1,
            takes: None,
            firsts: Firsts {
                n_queries: 0,
                has_class: true,
                has_distillation: false,
                n_registers: 2,
            },
        }
    }

    #[test]
    fn patches_are_in_row_order_and_tokens_are_named_by_their_places() {
        let picture = Picture::read(&PictureSource::BuiltIn, &preprocessing()).expect("draws");
        assert_eq!((picture.grid(), picture.n_tokens()), ([2, 3], 9));
        let labels = picture.labels();
        assert_eq!(labels[..4], ["[CLS]", "[reg 1]", "[reg 2]", "r1 c1"]);
        assert_eq!(labels[8], "r2 c3");
        let mut values = Vec::new();
        picture.patch(4, &mut values);
        let green = picture.pixel(2, 3)[1];
        assert_eq!((values.len(), values[4 + 1]), (12, f32::from(green)));
    }

    #[test]
    fn what_is_drawn_for_a_model_of_any_size_has_few_patches() {
        let free = |side| PicturePreprocessing {
            crop: None,
            patch: [side, side],
            ..preprocessing()
        };
        let grid = |side| {
            let drawn = Picture::read(&PictureSource::BuiltIn, &free(side)).expect("draws");
            drawn.grid()
        };
        assert_eq!((grid(1), grid(16)), ([32, 32], [14, 14]));
    }

    #[test]
    fn a_still_picture_repeats_and_a_margin_holds_zeros() {
        let preprocessing = PicturePreprocessing {
            margin: 1,
            n_moments: 2,
            ..preprocessing()
        };
        let picture = Picture::read(&PictureSource::BuiltIn, &preprocessing).expect("draws");
        assert_eq!((picture.grid(), picture.n_tokens()), ([3, 4], 3 + 2 * 12));
        assert_eq!(picture.labels()[3 + 12 + 5], "t2 r2 c2");
        let patch = |idx| {
            let mut values = Vec::new();
            picture.patch(idx, &mut values);
            values
        };
        let red = f32::from(picture.pixel(0, 0)[0]);
        assert_eq!(patch(0)[..4], [0.0, 0.0, 0.0, red]);
        assert_eq!(patch(5), patch(12 + 5));
    }

    #[test]
    fn patches_that_overlap_share_pixels_with_the_next() {
        let preprocessing = PicturePreprocessing {
            margin: 1,
            overlap: 1,
            ..preprocessing()
        };
        let picture = Picture::read(&PictureSource::BuiltIn, &preprocessing).expect("draws");
        assert_eq!(picture.grid(), [2, 3]);
        let patch = |idx| {
            let mut values = Vec::new();
            picture.patch(idx, &mut values);
            values
        };
        let (first, next) = (patch(0), patch(1));
        assert_eq!(first.len(), 3 * 3 * 3);
        let red = f32::from(picture.pixel(0, 1)[0]);
        // The last column of the first is the first column of the next, in the row behind the margin.
        assert_eq!((first[3 + 2], next[3]), (red, red));
    }

    #[test]
    fn a_picture_of_a_size_the_model_does_not_accept_is_refused() {
        let preprocessing = PicturePreprocessing {
            takes: Some([8, 8]),
            ..preprocessing()
        };
        let said = Picture::read(&PictureSource::BuiltIn, &preprocessing).expect_err("refused");
        assert!(said.to_string().contains("8 × 8 pixels"), "{said}");
        assert!(is_picture(Path::new("a.JPG")) && !is_picture(Path::new("png")));
    }
}
