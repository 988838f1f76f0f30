//! The input of a described model of pictures: a map of patches, learned tokens before them, and stored positions.

use attnscope_checkpoint::{Checkpoint, Reader, Tensors};
use attnscope_compute::error::{self, Error};
use attnscope_prompt::{Firsts, PicturePreprocessing, Size};
use attnscope_spec::{
    EmbedSpec, GridPositions, LearnedTokens, LinearSource, PatchLayout, PatchMap, PatchSpec,
    TableSource,
};

use super::parts::{MapPart, NormPart, Part};
use super::spec::Reads;
use super::tables::Tables;
use super::{Axis, Described};
use crate::reading::processor::{Processor, preprocessing, states_preprocessing};

/// The key of the map of patches inside `[tensors]`.
pub const PATCHES: &str = "patches";

/// Keys of the learned tokens before the patches inside `[tensors]`, in order.
pub const LEARNED: [&str; 2] = ["class_token", "registers"];

/// Keys of the norms of a patch's values and of its row inside `[tensors]`.
pub const PATCH_NORMS: [&str; 2] = ["pixel_norm", "patch_norm"];

/// Words for the order of a patch's values.
const ORDERS: [(&str, PatchLayout); 2] = [
    ("channels_first", PatchLayout::ChannelsFirst),
    ("channels_last", PatchLayout::ChannelsLast),
];

/// Pictures in place of tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Patches {
    /// From a patch's values to the residual: a matrix, or the kernel of a convolution.
    pub map: MapPart,
    /// In the order of [`PATCH_NORMS`].
    pub norms: [Option<NormPart>; 2],
    /// In the order of [`LEARNED`].
    pub learned: [Option<String>; 2],
    /// What names and shapes do not tell.
    seen: Option<Seen>,
}

/// How a picture becomes the patches that the map reads.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    layout: PatchLayout,
    grid: [usize; 2],
    preprocessing: PicturePreprocessing,
}

/// What shapes tell of the map of patches.
struct Shape {
    n_channels: usize,
    patch: [usize; 2],
    is_kernel: bool,
}

impl Patches {
    /// Reads which tensors hold the parts; `None` without a map of patches.
    ///
    /// # Errors
    /// When a part has an invalid form.
    pub(super) fn read(tables: &Tables<'_>) -> Result<Option<Self>, String> {
        let Some(map) = tables.map(PATCHES)? else {
            let others = LEARNED.iter().chain(&PATCH_NORMS);
            return match others.copied().find(|key| tables.values.contains_key(*key)) {
                Some(key) => Err(format!("{key}: expected {PATCHES} beside it")),
                None => Ok(None),
            };
        };
        Ok(Some(Self {
            map,
            norms: [tables.norm(PATCH_NORMS[0])?, tables.norm(PATCH_NORMS[1])?],
            learned: [tables.table(LEARNED[0])?, tables.table(LEARNED[1])?],
            seen: None,
        }))
    }

    /// Every part with its key.
    pub(super) fn parts(&self) -> Vec<(&'static str, Part)> {
        let mut parts = vec![(PATCHES, Part::Map(self.map.clone()))];
        for (key, norm) in PATCH_NORMS.into_iter().zip(&self.norms) {
            parts.extend(norm.iter().map(|norm| (key, Part::Norm(norm.clone()))));
        }
        for (key, name) in LEARNED.into_iter().zip(&self.learned) {
            parts.extend(name.iter().map(|name| (key, Part::Table(name.clone()))));
        }
        parts
    }

    /// Width of the residual.
    pub(super) fn d_model(&self, tensors: &Tensors) -> Option<usize> {
        let shape = &tensors.info(&self.map.weight)?.shape;
        match self.map.axes[0] {
            Axis::Out => shape.first().copied(),
            _ => shape.last().copied(),
        }
    }

    fn shape(&self, tensors: &Tensors) -> Result<Shape, String> {
        let name = &self.map.weight;
        let info = tensors
            .info(name)
            .ok_or_else(|| format!("{PATCHES}: no tensor is called {name}"))?;
        let refused = |expected: &str| {
            let found = &info.shape;
            Err(format!(
                "{PATCHES}: {name} has shape {found:?}, expected {expected}"
            ))
        };
        let of_matrix = |n_values: usize| {
            let sides = [3, 1].into_iter().find_map(|n_channels| {
                let side = (n_values / n_channels).isqrt();
                (n_channels * side * side == n_values && side > 0).then_some((n_channels, side))
            });
            sides.map(|(n_channels, side)| Shape {
                n_channels,
                patch: [side; 2],
                is_kernel: false,
            })
        };
        match info.shape[..] {
            [_, n_channels, rows, columns] if [1, 3].contains(&n_channels) => Ok(Shape {
                n_channels,
                patch: [rows, columns],
                is_kernel: true,
            }),
            [first, second] => {
                let n_values = match self.map.axes[0] {
                    Axis::Out => second,
                    _ => first,
                };
                match of_matrix(n_values) {
                    Some(shape) => Ok(shape),
                    None => refused("the values of a square patch, grey or of 3 colours"),
                }
            }
            _ => refused(
                "a matrix, or a kernel [d_model, channels, rows, columns] of 1 or 3 channels",
            ),
        }
    }

    /// The numbers of learned tokens, in the order of [`LEARNED`].
    fn n_learned(&self, tensors: &Tensors) -> Result<[usize; 2], String> {
        let d_model = self.d_model(tensors).unwrap_or(1).max(1);
        let mut all = [0; 2];
        for ((n, key), name) in all.iter_mut().zip(LEARNED).zip(&self.learned) {
            let Some(name) = name else { continue };
            let info = tensors.info(name);
            let n_values = info.map(|info| info.n_elements());
            *n = match n_values {
                Some(n) if n > 0 && n.is_multiple_of(d_model) => n / d_model,
                Some(_) => return Err(format!("{key}: {name} holds no rows of {d_model} values")),
                None => return Err(format!("{key}: no tensor is called {name}")),
            };
        }
        Ok(all)
    }

    /// Rows and columns of patches, and how many stored positions stand before theirs.
    fn grid(
        &self,
        tensors: &Tensors,
        positions: Option<&String>,
        stated: Option<[usize; 2]>,
    ) -> Result<([usize; 2], usize), String> {
        let Some(name) = positions else {
            let needed = "no table of positions tells how large pictures are; expected picture_size under [set]";
            let grid = stated.ok_or_else(|| needed.to_owned())?;
            return Ok((grid, 0));
        };
        let info = tensors.info(name);
        let shape = info.map(|info| info.shape.clone());
        let shape = shape.ok_or_else(|| format!("positions: no tensor is called {name}"))?;
        let n_axes = shape.iter().filter(|n| **n != 1).count();
        if let ([.., rows, columns, _], 3) = (&shape[..], n_axes) {
            let own = [*rows, *columns];
            return match stated.filter(|grid| *grid != own) {
                None => Ok((own, 0)),
                Some([tall, wide]) => Err(format!(
                    "positions: {name} has {rows} × {columns} places, pictures have {tall} × {wide} patches"
                )),
            };
        }
        let d_model = self.d_model(tensors).unwrap_or(1).max(1);
        let n_rows = shape.iter().product::<usize>() / d_model;
        let [n_classes, n_registers] = self.n_learned(tensors)?;
        let all = n_classes + n_registers;
        match stated {
            Some(grid) => {
                let n_patches = grid[0] * grid[1];
                let fits = |n: &usize| n_rows == n_patches + n;
                let placed = [all, n_classes, 0].into_iter().find(fits);
                // A longer table counts all tokens from its first row on.
                let placed = placed.or_else(|| (n_rows > n_patches + all).then_some(all));
                let placed = placed.ok_or_else(|| {
                    let [rows, columns] = grid;
                    format!("positions: {name} has {n_rows} rows, pictures have {rows} × {columns} patches and {all} learned tokens")
                })?;
                Ok((grid, placed))
            }
            None => {
                let square = |placed: usize| {
                    let n_patches = n_rows.checked_sub(placed)?;
                    let side = n_patches.isqrt();
                    (side > 0 && side * side == n_patches).then_some(([side; 2], placed))
                };
                let found = [all, n_classes, 0].into_iter().find_map(square);
                found.ok_or_else(|| {
                    format!(
                        "positions: {name} has {n_rows} rows, which are those of no square of patches and {all} learned tokens; \
                         expected picture_size under [set]"
                    )
                })
            }
        }
    }
}

/// Reads what names and shapes do not tell of pictures.
///
/// # Errors
/// When a value is impossible, or does not fit the stored positions.
pub fn read_pictures(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    described: &mut Described,
) -> error::Result<()> {
    let Some(patches) = &mut described.patches else {
        return Ok(());
    };
    let tensors = &checkpoint.tensors;
    let path = reader.path().to_owned();
    let refused = |problem: String| Error::config(&path, "tensors", problem);
    let shape = patches.shape(tensors).map_err(refused)?;
    let [rows, columns] = shape.patch;
    let mut stated = None;
    if let Some(text) = stated_word(reader, "picture_size")? {
        let sides = sides(&text).filter(|sides| {
            let [tall, wide] = *sides;
            tall.is_multiple_of(rows.max(1)) && wide.is_multiple_of(columns.max(1))
        });
        let Some([tall, wide]) = sides else {
            let problem = format!(
                "expected multiples of the {rows} × {columns} pixels of a patch, found {text}"
            );
            return Err(Error::config(&path, "picture_size", problem));
        };
        stated = Some([tall / rows, wide / columns]);
    }
    let positions = described.positions.as_ref();
    let (grid, _) = patches.grid(tensors, positions, stated).map_err(refused)?;
    if grid.contains(&0) {
        return Err(refused("pictures have no whole patch".to_owned()));
    }
    let is_one_order = shape.is_kernel || shape.n_channels == 1;
    let layout = match stated_word(reader, "patch_order")? {
        Some(word) if is_one_order => {
            let problem = format!(
                "{word}: only a matrix of 3 colours leaves the order of a patch's values open"
            );
            return Err(Error::config(&path, "patch_order", problem));
        }
        Some(word) => ORDERS
            .iter()
            .find(|(own, _)| *own == word)
            .map(|(_, own)| *own),
        None if is_one_order => Some(PatchLayout::ChannelsFirst),
        None => None,
    };
    let Some(layout) = layout else {
        let [first, last] = ORDERS.map(|(word, _)| word);
        let problem = format!("missing, expected {first} or {last}: the order of a patch's values");
        return Err(Error::config(&path, "patch_order", problem));
    };
    let [n_classes, n_registers] = patches.n_learned(tensors).map_err(refused)?;
    let size = [grid[0] * rows, grid[1] * columns];
    let has_class = n_classes == 1;
    let mut seen = preprocessing(
        checkpoint,
        reader,
        Processor::PLAIN,
        PicturePreprocessing {
            n_channels: shape.n_channels,
            takes: Some(size),
            firsts: Firsts {
                has_class,
                has_distillation: false,
                n_registers: n_registers + if has_class { 0 } else { n_classes },
                ..Firsts::default()
            },
            ..PicturePreprocessing::of_patches(shape.patch)
        },
        Size::Exactly(size),
    )?;
    let mut is_set = false;
    for (key, values) in [
        ("picture_mean", &mut seen.mean),
        ("picture_std", &mut seen.std),
    ] {
        if let Some(text) = stated_word(reader, key)? {
            is_set = true;
            let numbers: Vec<f32> = text
                .split_whitespace()
                .filter_map(|n| n.parse().ok())
                .collect();
            *values = match numbers[..] {
                [one] => [one; 3],
                [r, g, b] => [r, g, b],
                _ => {
                    let problem =
                        format!("expected a number, or one for each colour, found {text:?}");
                    return Err(Error::config(&path, key, problem));
                }
            };
        }
    }
    if !is_set && !states_preprocessing(checkpoint) {
        reader.remark(
            "nothing beside the weights says how pixels are scaled: bytes become numbers from 0 to 1; --set picture_mean=0.5 and \
             --set picture_std=0.5, with the numbers of the code, subtract and divide"
                .to_owned(),
        );
    }
    reader.note(
        "n_tokens",
        grid[0] * grid[1] + n_classes + n_registers,
        attnscope_checkpoint::Origin::Derived("the size of pictures".to_owned()),
    );
    patches.seen = Some(Seen {
        layout,
        grid,
        preprocessing: seen,
    });
    Ok(())
}

/// Rows and columns: two numbers, or one for both.
pub fn sides(text: &str) -> Option<[usize; 2]> {
    let mut numbers = text.split_whitespace().map(str::parse::<usize>);
    let first = numbers.next()?.ok()?;
    let second = match numbers.next() {
        None => first,
        Some(second) => second.ok()?,
    };
    let is_side = |n: usize| (1..=1 << 15).contains(&n);
    (is_side(first) && is_side(second) && numbers.next().is_none()).then_some([first, second])
}

/// A word of the settings; without one, nothing is listed.
fn stated_word(reader: &mut Reader<'_>, key: &'static str) -> error::Result<Option<String>> {
    let word = reader.word_or(key, key, "")?;
    if word.is_empty() {
        reader.forget(&[key]);
        return Ok(None);
    }
    Ok(Some(word))
}

impl Reads<'_> {
    /// The embedding of pictures: rows of patches in place of those of tokens.
    pub(super) fn pictures(&self, patches: &Patches) -> Result<EmbedSpec, String> {
        let (tensors, d_model) = (self.tensors, self.sizes.d_model);
        let shape = patches.shape(tensors)?;
        let Some(seen) = patches.seen else {
            return Err(format!("{PATCHES}: no settings of pictures were read"));
        };
        let [rows, columns] = shape.patch;
        let weight = patches.map.weight.clone();
        let axes = vec![shape.n_channels, rows, columns];
        let projection = if shape.is_kernel {
            LinearSource::of_patch(weight, patches.map.bias.clone(), axes, d_model)
        } else {
            let n_values = axes.iter().product();
            self.map(&patches.map, 0, (n_values, d_model), false)
        };
        let n_learned = patches.n_learned(tensors)?;
        let positions = self.of.positions.as_ref();
        let (grid, n_placed) = patches.grid(tensors, positions, Some(seen.grid))?;
        let n_patches = grid[0] * grid[1];
        let shape_of = |name: &String| tensors.info(name).map(|info| info.shape.clone());
        let mut before = 0;
        let mut firsts = Vec::new();
        for (name, n) in patches.learned.iter().zip(n_learned) {
            let Some(name) = name else { continue };
            before += n;
            firsts.push(LearnedTokens {
                tensor: name.clone(),
                place: None,
                shape: shape_of(name).unwrap_or_default(),
                n,
                is_repeated: false,
                has_positions: before <= n_placed,
            });
        }
        let norm = |place: usize, width: usize| {
            let norm = patches.norms[place].as_ref();
            norm.map(|norm| self.norm(norm, 0, width))
        };
        let n_tokens = n_patches + n_learned.iter().sum::<usize>();
        let spec = PatchSpec {
            preprocessing: seen.preprocessing,
            value_norm: norm(0, projection.n_in),
            row_norm: norm(1, d_model),
            layout: seen.layout,
            n_frames: 1,
            firsts,
            positions: positions.map(|name| {
                let shape = shape_of(name).unwrap_or_default();
                let n_rows = shape.iter().product::<usize>() / d_model.max(1);
                GridPositions {
                    tensor: name.clone(),
                    n_first: n_placed,
                    n_behind: n_rows.saturating_sub(n_placed + n_patches),
                    shape,
                    shares_first: false,
                    grid,
                    n_moments: 1,
                    moments: None,
                    resampled: None,
                    has_channels_first: false,
                    tiles: None,
                }
            }),
            lines: None,
            map: PatchMap::Linear(Box::new(projection)),
        };
        Ok(EmbedSpec {
            patches: Some(Box::new(spec)),
            ..EmbedSpec::plain(TableSource {
                tensor: patches.map.weight.clone(),
                n_rows: n_tokens,
                width: d_model,
            })
        })
    }
}
