//! What a processor does to pictures, on the picture that the program has.

use std::path::Path;

use attnscope_prompt::{Picture, PicturePreprocessing, PictureSource, Size};

use super::Target;
use super::checkpoints::opened;
use crate::seeds::{Kind, Seed, fixture};

/// Pixels of pictures that are made: larger ones, within the limit of the program, take more memory than an execution may.
const MADE: usize = 1 << 19;
/// Pixels that the program refuses.
const REFUSED: usize = 1 << 24;

/// Pixels of the largest picture on the way.
fn most_pixels(preprocessing: &PicturePreprocessing) -> usize {
    let pixels = |[rows, columns]: [usize; 2]| rows.saturating_mul(columns);
    let begins = preprocessing.fixed_size().unwrap_or([224, 224]);
    let resized = match preprocessing.resize {
        None => begins,
        Some((Size::Exactly(size), _)) => size,
        Some((Size::Shortest(side), _)) => {
            let [short, long] = [begins[0].min(begins[1]), begins[0].max(begins[1])];
            [side, side.saturating_mul(long) / short.max(1)]
        }
        // At most one multiple more along each side.
        Some((Size::Multiple { of, least, .. }, _)) => {
            let side = pixels(begins).max(least).isqrt().saturating_add(of);
            [side, side]
        }
        // In proportion to one of the two.
        Some((Size::InRatio { to, of }, _)) => {
            let ratio = |axis: usize| begins[1 - axis].div_ceil(begins[axis].max(1)).max(1);
            [0, 1].map(|axis| {
                let other = to[1 - axis].saturating_mul(ratio(1 - axis));
                to[axis].max(other).saturating_add(of)
            })
        }
        Some((Size::Longest(side), _)) => [side, side],
        Some((Size::Cut { .. }, _)) => begins,
        Some((Size::Area { most, of }, _)) => {
            let side = most.isqrt().saturating_add(of);
            [side, side]
        }
        Some((Size::Between { longest, of, .. }, _)) => {
            let side = longest.saturating_add(of);
            [side, side]
        }
        Some((
            Size::Within { of, .. }
            | Size::Filled { of }
            | Size::Mirrored { of }
            | Size::Squares { of, .. },
            _,
        )) => begins.map(|side| side.saturating_add(of)),
        // Brought to the shorter side first.
        Some((Size::Sheet(sheet), _)) => {
            let [short, long] = [begins[0].min(begins[1]), begins[0].max(begins[1])];
            let side = sheet[0].min(sheet[1]);
            let first = [side, side.saturating_mul(long) / short.max(1)];
            if pixels(first) > pixels(sheet) {
                first
            } else {
                sheet
            }
        }
    };
    pixels(begins).max(pixels(resized))
}

fn looked(path: &Path) -> Result<(), String> {
    let said = |e: attnscope_compute::error::Error| e.to_string();
    let directory = path.parent().expect("a directory");
    let model = attnscope_families::read(opened(directory).map_err(said)?).map_err(said)?;
    let preprocessing = model
        .spec
        .limits()
        .preprocessing
        .ok_or("a model that sees nothing")?;
    let most = most_pixels(&preprocessing);
    if most > MADE && most <= REFUSED {
        return Ok(());
    }
    Picture::read(&PictureSource::BuiltIn, &preprocessing).map_err(said)?;
    assert!(most <= MADE, "{most} pixels were made");
    Ok(())
}

pub const PROCESSORS: Target = Target {
    name: "processors",
    n_quick: 1_500,
    seeds: || {
        let of = |case: &str| {
            let file = |name: &str| fixture(&format!("oracle/{case}/model/{name}"));
            Seed::named(
                Kind::Json,
                "preprocessor_config.json",
                file("preprocessor_config.json"),
            )
            .with("config.json", file("config.json"))
            .with("model.safetensors", file("model.safetensors"))
        };
        ["vit", "deit", "dinov2"].map(of).to_vec()
    },
    tokens: &[
        "do_resize",
        "do_center_crop",
        "do_rescale",
        "do_normalize",
        "size",
        "crop_size",
        "shortest_edge",
        "height",
        "width",
        "28000",
        "8000",
        "32768",
        "32769",
        "0",
        "1e9",
        "-1",
        "image_mean",
        "image_std",
        "resample",
        "rescale_factor",
        "null",
    ],
    read: looked,
};
