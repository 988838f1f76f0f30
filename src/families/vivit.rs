//! ViViT: ViT over boxes of two frames, with a class token and a learned position for every box of a video.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::vit_like::{self, Kernel, Keys, Moments, OF_MOST, Pictures, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("vivit", "Vivit", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const BOX: &str = "tubelet_size";
    let stated = reader.numbers(BOX)?.unwrap_or(vec![2, 16, 16]);
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
            }),
            patch: rows,
            processor: Processor::VIVIT,
            ..vit::PICTURES
        }),
        ..vit::like(&["vivit.", ""])
    };
    vit_like::read(FAMILY.model_type, checkpoint, reader, like)
}
