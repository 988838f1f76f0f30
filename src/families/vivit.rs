//! ViViT: ViT over boxes of two frames, with a class token and a learned position for every box of a video.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Kernel, Keys, MomentPlaces, Moments, OF_MOST, Pictures, Reads, VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("vivit", "Vivit", read);

/// The key of the frames, rows and columns that are seen at once.
pub(super) const BOX: &str = "tubelet_size";

/// Frames that are seen at once, and the side of the squares that they are cut into.
///
/// # Errors
/// When squares have other sides, or a number is impossible.
pub(super) fn of_box(reader: &mut Reader<'_>, usual: [u64; 3]) -> Result<(usize, usize)> {
    let stated = reader.numbers(BOX)?.unwrap_or(usual.to_vec());
    let Some([frames, rows, columns]) = <[u64; 3]>::try_from(stated.as_slice())
        .ok()
        .filter(|all| all.iter().all(|n| (1..=1 << 10).contains(n)))
        .map(|all| all.map(|n| n as usize))
    else {
        let problem = format!("expected frames, rows and columns, found {stated:?}");
        return Err(Error::config(reader.path(), BOX, problem));
    };
    if rows != columns {
        let problem = format!("expected as many rows as columns, found {stated:?}");
        return Err(Error::config(reader.path(), BOX, problem));
    }
    Ok((frames, rows))
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let (frames, rows) = of_box(reader, [2, 16, 16])?;
    let like = VitLike {
        keys: Keys {
            aside: &["pooler_output_size", "pooler_act"],
            ..OF_MOST
        },
        eps: 1e-6,
        activation: "gelu_fast",
        reads: Reads::Pictures(Pictures {
            form: Kernel::Video("frames_at_once", frames),
            moments: Some(Moments {
                frames: ("num_frames", 32),
                sines: None,
                places: MomentPlaces::All,
                have_classes: false,
            }),
            patch: rows,
            processor: Processor::VIVIT,
            ..vit::PICTURES
        }),
        ..vit::like(&["vivit.", ""])
    };
    vit_like::read(FAMILY.model_type, checkpoint, reader, like)
}
