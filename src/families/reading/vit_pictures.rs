//! How the pictures of a model like ViT become rows: a map of patches, learned tokens before them, and what says where a patch lies.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::{Firsts, Size};
use attnscope_spec::{
    EmbedSpec, GridPositions, LearnedTokens, LinearSource, MomentRows, PatchLayout, PatchMap,
    PatchSpec, PositionTable, Resampling, TableSource,
};

use super::processor::{Processor, preprocessing};
use super::vit_like::NormRule;
use super::vit_places::{Behind, Lines, MomentPlaces, Moments, Turn};

/// Pictures, as rows of patches.
#[derive(Debug, Clone, Copy)]
pub struct Pictures {
    pub kernel: &'static str,
    pub form: Kernel,
    /// Whether the kernel has a bias; `None` if it has one where one is stored.
    pub has_bias: Option<bool>,
    /// A norm of the rows of patches, before positions are added.
    pub patch_norm: Option<&'static str>,
    /// Tensors of the learned tokens before the patches, in order.
    pub class: Option<&'static str>,
    /// The position of the class token, if it is stored by itself.
    pub class_place: Option<&'static str>,
    /// The key of how many windows there are along each side of a picture, and its default: each has a class token of its own.
    pub class_by_window: Option<(&'static str, usize)>,
    pub distillation: Option<&'static str>,
    /// Whether these two have positions, as patches do.
    pub is_class_placed: bool,
    /// The tensor of registers, the key of their number, and its default.
    pub registers: Option<(&'static str, &'static str, usize)>,
    /// Whether registers have positions, as class tokens do.
    pub are_registers_placed: bool,
    /// The tensor of positions; `None` if places are told otherwise.
    pub positions: Option<&'static str>,
    /// Positions of rows and of columns, which are added.
    pub lines: Option<Lines>,
    /// How pictures are resized if no file of a processor says it, where no size is stated.
    pub area: Option<Size>,
    /// What says how many places of a grid have positions.
    pub places: Count,
    /// How positions are resampled if a picture has another grid.
    pub resampled: Option<Resampling>,
    /// How patches turn by their places.
    pub turn: Option<Turn>,
    /// The key of how many patches are merged along each side after the last block, and its default: pictures are resized to
    /// multiples of them.
    pub merged: Option<(&'static str, usize)>,
    /// Number of stored positions before those of the grid that no token has.
    pub n_spare: usize,
    /// Whether the first of these is added to every patch.
    pub shares_spare: bool,
    /// Number of positions stored behind those of the grid: those of the last learned tokens, which the library puts behind the patches.
    pub n_behind: Behind,
    /// Rows and columns of zeros around a picture.
    pub margin: usize,
    /// What makes a video of a picture that stands still.
    pub moments: Option<Moments>,
    /// A norm after adding positions.
    pub norm: Option<&'static str>,
    /// Sides of pictures and of patches, if the configuration does not state them.
    pub size: usize,
    pub patch: usize,
    pub processor: Processor,
}

/// The stored form of the map of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Of a convolution over rows and columns.
    Picture,
    /// Of a convolution over frames too, whose number a key states; a picture is as many equal frames.
    Video(&'static str, usize),
    /// A matrix of channels, rows, columns.
    Flat,
    /// A matrix of channels, frames, rows, columns; a key states the number of frames.
    FlatVideo(&'static str, usize),
    /// The same with frames before channels.
    FlatFramesFirst(&'static str, usize),
    /// A matrix of rows, columns, channels.
    FlatChannelsLast,
}

/// What says how many places have stored positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Sides of pictures and patches.
    Size,
    /// A key with the number of all places of a square, and its default.
    Square(&'static str, usize),
    /// Keys of rows and columns, and their default.
    Grid([&'static str; 2], usize),
    /// A key with the side of the largest picture, and its default.
    Side(&'static str, usize),
    /// Sides of the pictures of an earlier training: a key, and its default. All pictures have the size that is stated besides.
    Apart(&'static str, usize),
}

/// Where the tensors of a model's pictures are, and their width and norms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub base: &'a str,
    pub d_model: usize,
    pub norm: NormRule,
    /// The key of the number of channels.
    pub n_channels: &'static str,
}

/// Reads how pictures become rows, and the number of tokens of a picture if it is always the same.
pub(super) fn of_pictures(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    pictures: Pictures,
    place: Place<'_>,
) -> Result<(EmbedSpec, Option<usize>)> {
    let (tensors, base, d_model) = (&checkpoint.tensors, place.base, place.d_model);
    let default = |key: &str| Origin::Default(key.to_owned());
    let of_channels = place.n_channels;
    let n_channels = reader.size_or("n_channels", of_channels, 3, default(of_channels))?;
    if ![1, 3].contains(&n_channels) {
        let problem = format!("expected 1 channel, grey, or 3 colours, found {n_channels}");
        return Err(Error::config(reader.path(), of_channels, problem));
    }
    let patch = sides(reader, "patch_size", pictures.patch)?;
    let (grid, resize) = pictures.grid(reader, patch)?;
    let takes = match resize {
        Size::Exactly(size) => Some(size),
        _ => None,
    };
    let is_apart = matches!(pictures.places, Count::Apart(..));
    let is_free = !is_apart
        && (pictures.resampled.is_some() || pictures.turn.is_some() || pictures.lines.is_some());
    let takes = takes.filter(|_| !is_free);
    let (projection, n_frames) =
        pictures.projection(tensors, reader, place, (n_channels, patch))?;
    let n_moments = pictures.n_moments(reader, n_frames)?;
    let n_registers = match pictures.registers {
        Some((_, key, default)) => reader.count_or("n_registers", key, default)?,
        None => 0,
    };
    let n_classes = match pictures.class_by_window {
        Some((key, default)) => {
            let along = reader.size_or(key, key, default, Origin::Default(key.to_owned()))?;
            along.saturating_mul(along)
        }
        None if pictures.moments.is_some_and(|moments| moments.have_classes) => n_moments,
        None => 1,
    };
    let firsts = Firsts {
        n_queries: 0,
        has_class: pictures.class.is_some() && n_classes == 1,
        has_distillation: pictures.distillation.is_some(),
        n_registers: n_registers + if n_classes > 1 { n_classes } else { 0 },
    };
    let preprocessing = preprocessing(
        checkpoint,
        reader,
        pictures.processor,
        attnscope_prompt::PicturePreprocessing {
            n_channels,
            resize: None,
            is_framed: false,
            resizes_values: false,
            crop: None,
            cuts_evenly: false,
            fill: None,
            has_blue_first: false,
            rescale: 1.0 / 255.0,
            mean: [0.0; 3],
            std: [1.0; 3],
            standardises: false,
            crops_margin: false,
            shrinks_by: None,
            patch,
            margin: pictures.margin,
            overlap: 0,
            n_moments,
            takes,
            firsts,
        },
        resize,
    )?;
    let learned = |name: &str, n: usize, has_positions: bool| LearnedTokens {
        tensor: format!("{base}{name}"),
        place: None,
        shape: shape_of(tensors, &format!("{base}{name}"), n, [n, 1], d_model),
        n,
        is_repeated: false,
        has_positions,
    };
    let mut learned_tokens = Vec::new();
    let is_placed = pictures.is_class_placed;
    let class_place = pictures.class_place.map(|name| format!("{base}{name}"));
    learned_tokens.extend(pictures.class.map(|name| LearnedTokens {
        place: class_place,
        n: n_classes,
        is_repeated: n_classes > 1,
        ..learned(name, 1, is_placed)
    }));
    let distilled = pictures.distillation;
    learned_tokens.extend(distilled.map(|name| learned(name, 1, is_placed)));
    let registers = pictures.registers.filter(|_| n_registers > 0);
    let is_placed = pictures.are_registers_placed;
    learned_tokens.extend(registers.map(|(name, ..)| learned(name, n_registers, is_placed)));
    let placed = learned_tokens.iter().filter(|tokens| tokens.has_positions);
    let rows = |tokens: &LearnedTokens| if tokens.is_repeated { 1 } else { tokens.n };
    let n_placed = pictures.n_spare + placed.map(rows).sum::<usize>();
    let n_behind = match pictures.n_behind {
        Behind::None => 0,
        Behind::Class => 1,
        Behind::Registers => n_registers,
    };
    let of_moments = pictures.moments.map(|moments| moments.places);
    let n_grids = match of_moments {
        Some(MomentPlaces::Shared | MomentPlaces::SharedAnd(_)) => 1,
        Some(MomentPlaces::All) | None => n_moments,
    };
    let n_rows = n_placed + n_grids * grid[0] * grid[1];
    let positions = pictures.positions.map(|name| format!("{base}{name}"));
    let n_patches = match preprocessing.fixed_size() {
        Some([height, width]) => (height / patch[0]) * (width / patch[1]),
        None => grid[0] * grid[1],
    };
    let n_tokens = n_moments * n_patches + firsts.len();
    reader.note(
        "n_tokens",
        n_tokens,
        Origin::Derived("the size of pictures".to_owned()),
    );
    let tokens = TableSource {
        tensor: projection.weight.clone(),
        n_rows: n_tokens,
        width: d_model,
    };
    let spec = PatchSpec {
        preprocessing,
        map: PatchMap::Linear(Box::new(projection)),
        value_norm: None,
        row_norm: None,
        layout: match pictures.form {
            Kernel::FlatChannelsLast => PatchLayout::ChannelsLast,
            Kernel::FlatFramesFirst(..) => PatchLayout::FramesFirst,
            Kernel::Picture | Kernel::Video(..) | Kernel::Flat | Kernel::FlatVideo(..) => {
                PatchLayout::ChannelsFirst
            }
        },
        n_frames,
        firsts: learned_tokens,
        positions: positions.map(|tensor| GridPositions {
            shape: shape_of(tensors, &tensor, n_rows, grid, d_model),
            tensor,
            n_first: n_placed.saturating_sub(n_behind),
            n_behind,
            shares_first: pictures.shares_spare,
            grid,
            n_moments: n_grids,
            moments: match of_moments {
                Some(MomentPlaces::SharedAnd(name)) => Some(MomentRows {
                    tensor: format!("{base}{name}"),
                    n: n_moments,
                    width: d_model,
                }),
                _ => None,
            },
            resampled: pictures.resampled,
            has_channels_first: false,
            tiles: None,
        }),
        lines: match pictures.lines {
            Some(lines) => Some(lines.read(reader, base, d_model)?),
            None => None,
        },
    };
    let sines = pictures.moments.and_then(|moments| moments.sines);
    // No family has both.
    let norm = pictures.patch_norm.or(pictures.norm);
    let embed = EmbedSpec {
        patches: Some(Box::new(spec)),
        norm: norm.map(|name| place.norm.named(tensors, &format!("{base}{name}"), d_model)),
        norms_before_positions: pictures.patch_norm.is_some(),
        positions: sines.map(PositionTable::Sinusoid),
        ..EmbedSpec::plain(tokens)
    };
    Ok((embed, takes.map(|_| n_tokens)))
}

impl Pictures {
    /// How many times the kernel sees the frames of a video.
    fn n_moments(&self, reader: &mut Reader<'_>, at_once: usize) -> Result<usize> {
        let Some(Moments {
            frames: (key, default),
            ..
        }) = self.moments
        else {
            return Ok(1);
        };
        let n = reader.size_or(
            "n_video_frames",
            key,
            default,
            Origin::Default(key.to_owned()),
        )?;
        let n_moments = n / at_once.max(1);
        if n_moments == 0 {
            let problem =
                format!("expected at least the {at_once} that are seen at once, found {n}");
            return Err(Error::config(reader.path(), key, problem));
        }
        let said =
            "a picture is read as a video that stands still: each of {n} frames is this picture";
        reader.remark(said.replace("{n}", &n.to_string()));
        Ok(n_moments)
    }

    /// Rows and columns of places with positions, and how pictures are resized if no file of a processor says it.
    fn grid(&self, reader: &mut Reader<'_>, patch: [usize; 2]) -> Result<([usize; 2], Size)> {
        let count = |reader: &mut Reader<'_>, key: &'static str, default| {
            reader.size_or(key, key, default, Origin::Default(key.to_owned()))
        };
        let merged = match self.merged {
            Some((key, default)) => count(reader, key, default)?,
            None => 1,
        };
        let of = merged * patch[0].max(1);
        let multiple = match self.processor.size {
            Size::Squares { most, .. } => Size::Squares { of, most },
            Size::Filled { .. } => Size::Filled { of },
            _ => Size::multiple_of(of),
        };
        if let Some(area) = self.area {
            return Ok(([1; 2], area));
        }
        let mut size = None;
        let (key, grid) = match self.places {
            Count::Size if self.merged.is_some() && self.positions.is_none() => {
                reader.value("image_size");
                return Ok(([1; 2], multiple));
            }
            Count::Size => {
                let [tall, wide] = sides(reader, "image_size", self.size)?;
                size = Some([tall, wide]);
                ("image_size", [tall / patch[0], wide / patch[1]])
            }
            Count::Square(key, default) => {
                let n = count(reader, key, default)?;
                let side = n.isqrt();
                if side * side != n {
                    let problem =
                        format!("expected a square, of as many rows as columns, found {n}");
                    return Err(Error::config(reader.path(), key, problem));
                }
                (key, [side; 2])
            }
            Count::Side(key, default) => {
                let side = count(reader, key, default)?;
                (key, [side / patch[0], side / patch[1]])
            }
            Count::Apart(key, default) => {
                size = Some(sides(reader, "image_size", self.size)?);
                let [tall, wide] = sides(reader, key, default)?;
                (key, [tall / patch[0], wide / patch[1]])
            }
            Count::Grid(keys, default) => {
                let rows = count(reader, keys[0], default)?;
                (keys[0], [rows, count(reader, keys[1], default)?])
            }
        };
        if grid.contains(&0) {
            let problem = format!(
                "expected at least one patch, found {} × {}",
                grid[0], grid[1]
            );
            return Err(Error::config(reader.path(), key, problem));
        }
        if self.merged.is_some() {
            return Ok((grid, multiple));
        }
        let whole = [grid[0] * patch[0], grid[1] * patch[1]];
        Ok((grid, Size::Exactly(size.unwrap_or(whole))))
    }

    /// The map of patches, and the number of frames that it sees.
    fn projection(
        &self,
        tensors: &Tensors,
        reader: &mut Reader<'_>,
        place: Place<'_>,
        (n_channels, patch): (usize, [usize; 2]),
    ) -> Result<(LinearSource, usize)> {
        let kernel = format!("{}{}", place.base, self.kernel);
        let name = format!("{}.bias", kernel.trim_end_matches(".weight"));
        let has_bias = self.has_bias.unwrap_or_else(|| tensors.contains(&name));
        let bias = has_bias.then_some(name);
        let mut axes = vec![n_channels, patch[0], patch[1]];
        let n_frames = match self.form {
            Kernel::Video(key, n) | Kernel::FlatVideo(key, n) | Kernel::FlatFramesFirst(key, n) => {
                reader.size_or("n_frames", key, n, Origin::Default(key.to_owned()))?
            }
            Kernel::Picture | Kernel::Flat | Kernel::FlatChannelsLast => 1,
        };
        let projection = match self.form {
            Kernel::Flat
            | Kernel::FlatChannelsLast
            | Kernel::FlatVideo(..)
            | Kernel::FlatFramesFirst(..) => {
                let n_values = n_frames * axes.iter().product::<usize>();
                LinearSource::whole(kernel, bias, n_values, place.d_model)
            }
            Kernel::Picture => LinearSource::of_patch(kernel, bias, axes, place.d_model),
            Kernel::Video(..) => {
                axes.insert(1, n_frames);
                LinearSource::of_patch(kernel, bias, axes, place.d_model)
            }
        };
        Ok((projection, n_frames))
    }
}

/// The shape of stored rows: they may have a leading axis of length 1, two axes for a grid, or a single row may have one axis.
fn shape_of(
    tensors: &Tensors,
    name: &str,
    n_rows: usize,
    [rows, columns]: [usize; 2],
    width: usize,
) -> Vec<usize> {
    let forms = [
        vec![1, n_rows, width],
        vec![n_rows, width],
        vec![rows, columns, width],
        vec![1, rows, columns, width],
        vec![width],
    ];
    let stored = tensors.info(name).map(|info| &info.shape);
    let is_one = |form: &&Vec<usize>| form.iter().product::<usize>() == n_rows * width;
    let found = forms
        .iter()
        .filter(is_one)
        .find(|form| Some(*form) == stored);
    found.unwrap_or(&forms[1]).clone()
}

/// Rows and columns; a key may give one number for both.
pub fn sides(reader: &mut Reader<'_>, key: &'static str, default: usize) -> Result<[usize; 2]> {
    if reader.value(key).is_some_and(serde_json::Value::is_array) {
        let numbers = reader.numbers(key)?.unwrap_or_default();
        let is_size = |n: &u64| (1..=1 << 16).contains(n);
        return match numbers.as_slice() {
            [rows, columns] if numbers.iter().all(is_size) => {
                let shown = format!("{rows} × {columns}");
                reader.note(key, shown, Origin::Key(key.to_owned()));
                Ok([*rows as usize, *columns as usize])
            }
            _ => {
                let problem = format!("expected rows and columns, found {numbers:?}");
                Err(Error::config(reader.path(), key, problem))
            }
        };
    }
    let side = reader.size_or(key, key, default, Origin::Default(key.to_owned()))?;
    Ok([side, side])
}
