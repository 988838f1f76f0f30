//! Pictures whose patches overlap, or lie within a margin of zeros: what a convolution makes of them.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::{PicturePreprocessing, Size};
use attnscope_spec::{LinearSource, PatchLayout, PatchMap, PatchSpec, TableSource};

use super::processor::{Processor, preprocessing};

/// The convolution that makes rows of a picture.
#[derive(Debug, Clone)]
pub struct Overlapping {
    /// Its name, without what it ends in.
    pub kernel: String,
    /// Pixels of the kernel along each side, and from one patch to the next.
    pub n_wide: usize,
    pub stride: usize,
    /// Zeros around a picture.
    pub margin: usize,
    pub d_model: usize,
    pub processor: Processor,
    /// The rows and columns of pixels that the model was made for, if they are known.
    pub size: Option<[usize; 2]>,
    /// Whether it takes pictures of this size alone.
    pub is_fixed: bool,
}

/// How the rows of a picture are made, and how many there are.
pub struct Patches {
    pub spec: PatchSpec,
    pub tokens: TableSource,
}

impl Overlapping {
    /// Reads how pictures become rows, which have no positions yet.
    ///
    /// # Errors
    /// When a value of the configuration is impossible.
    pub fn read(self, checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<Patches> {
        const CHANNELS: &str = "num_channels";
        let by = Origin::Default(CHANNELS.to_owned());
        let n_channels = reader.size_or("n_channels", CHANNELS, 3, by)?;
        if ![1, 3].contains(&n_channels) {
            let problem = format!("expected 1 channel, grey, or 3 colours, found {n_channels}");
            return Err(Error::config(reader.path(), CHANNELS, problem));
        }
        let resize = self.size.map_or(self.processor.size, Size::Exactly);
        let plain = PicturePreprocessing {
            n_channels,
            rescale: 1.0 / 255.0,
            margin: self.margin,
            overlap: self.n_wide - self.stride,
            takes: self.size.filter(|_| self.is_fixed),
            ..PicturePreprocessing::of_patches([self.stride; 2])
        };
        let preprocessing = preprocessing(checkpoint, reader, self.processor, plain, resize)?;
        let grid = preprocessing
            .fixed_size()
            .map_or([1; 2], |size| self.grid(size));
        if grid.contains(&0) {
            let problem = "expected a size that holds at least one patch";
            return Err(Error::config(reader.path(), "image_size", problem));
        }
        let n_tokens = grid[0] * grid[1];
        let by = Origin::Derived("the size of pictures".to_owned());
        reader.note("n_tokens", n_tokens, by);
        let weight = format!("{}.weight", self.kernel);
        let tokens = TableSource {
            tensor: weight.clone(),
            n_rows: n_tokens,
            width: self.d_model,
        };
        let axes = vec![n_channels, self.n_wide, self.n_wide];
        let bias = Some(format!("{}.bias", self.kernel));
        let spec = PatchSpec {
            preprocessing,
            map: PatchMap::Linear(Box::new(LinearSource::of_patch(
                weight,
                bias,
                axes,
                self.d_model,
            ))),
            value_norm: None,
            row_norm: None,
            layout: PatchLayout::ChannelsFirst,
            n_frames: 1,
            firsts: Vec::new(),
            positions: None,
            lines: None,
        };
        Ok(Patches { spec, tokens })
    }

    /// Rows and columns of patches of a picture of this size.
    pub fn grid(&self, size: [usize; 2]) -> [usize; 2] {
        let overlap = self.n_wide - self.stride;
        size.map(|side| (side + 2 * self.margin).saturating_sub(overlap) / self.stride.max(1))
    }
}
