//! The encoder of pictures of LW-DETR: ViT, some of whose layers see windows, as many along each side of a picture whatever its size.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{Mixer, ModelSpec};

use super::reading::vit_like::{self, Names, OF_VIT, VitLike};
use super::reading::windowed::{Windowed, fixed_grid};
use super::{Family, vitdet};

pub const FAMILY: Family = Family::own("lw_detr_vit", "LwDetrViT", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const WINDOWS: &str = "window_block_indices";
    const COUNT: &str = "num_windows";
    let like = VitLike {
        names: Names {
            q: "attention.q_proj",
            k: "attention.k_proj",
            v: "attention.v_proj",
            o: "attention.o_proj",
            up: "intermediate.fc1",
            down: "intermediate.fc2",
            factors: Some(["gamma_1", "gamma_2"]),
            ..OF_VIT
        },
        ..vitdet::like(
            reader,
            &[
                "backbone.",
                "model.backbone.backbone.",
                "backbone.backbone.",
                "",
            ],
        )?
    };
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    for block in spec.stacks[0].blocks_mut() {
        if let Mixer::Attention(own) = &mut block.mixer {
            own.projections.k.bias = None;
        }
    }
    reader.value("cae_init_values");
    let windows = reader.numbers(WINDOWS)?.unwrap_or_default();
    let default = Origin::Default(COUNT.to_owned());
    let n_windows = reader.size_or("n_windows", COUNT, 16, default)?;
    let grid = fixed_grid(reader, &spec)?;
    let along = n_windows.isqrt();
    if along * along != n_windows || grid.iter().any(|side| side % along != 0) {
        let problem = format!(
            "expected a square of a divisor of {} and {}, found {n_windows}",
            grid[0], grid[1]
        );
        return Err(Error::config(reader.path(), COUNT, problem));
    }
    let windowed = Windowed {
        grid,
        sides: grid.map(|side| side / along),
        n_first: 0,
        key: WINDOWS,
        whole: &|layer_idx| !windows.contains(&(layer_idx as u64)),
        tables: None,
    };
    windowed.apply(reader, &mut spec);
    Ok(spec)
}
