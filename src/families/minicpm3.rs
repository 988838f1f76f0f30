//! MiniCPM 3: latent attention that rotates by halves, without experts, with factors of embeddings, branches and logits.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::latent::{self, LatentLike};

pub const FAMILY: Family = Family::own("minicpm3", "MiniCPM3", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = LatentLike {
        is_dense: true,
        is_by_halves: true,
        sharpens: false,
        eps: 1e-5,
        is_tied: true,
        ..LatentLike::PLAIN
    };
    let mut spec = latent::read(FAMILY.model_type, checkpoint, reader, like)?;
    let (d_model, n_layers) = (spec.d_model as f64, spec.main_stack().n_layers() as f64);
    let embed_scale = reader.number_or("embedding_scale", "scale_emb", 12.0)?;
    // Null stands for no factor.
    let depth = reader.number_or_none("branch_depth", "scale_depth", Some(1.4))?;
    let branch_scale = depth.map_or(1.0, |depth| depth / n_layers.sqrt());
    reader.note(
        "branch_scale",
        branch_scale as f32,
        Origin::Derived("scale_depth / sqrt(n_layers)".to_owned()),
    );
    let base = reader.number_or_none("d_model_base", "dim_model_base", Some(256.0))?;
    let logit_scale = base.map_or(1.0, |base| base / d_model);
    if logit_scale == 0.0 {
        let problem = "expected a number other than 0, found 0";
        return Err(Error::config(reader.path(), "dim_model_base", problem));
    }
    reader.note(
        "logit_scale",
        logit_scale as f32,
        Origin::Derived("dim_model_base / d_model".to_owned()),
    );
    let stack = &mut spec.stacks[0];
    stack.embed.scale = embed_scale as f32;
    for block in stack.blocks_mut() {
        block.branch_scales = [branch_scale as f32; 2];
    }
    if let Some(head) = &mut spec.head {
        head.scale = logit_scale as f32;
    }
    Ok(spec)
}
