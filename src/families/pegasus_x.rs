//! PEGASUS-X: Pegasus whose encoder sees blocks of tokens, and learned tokens before them that see all and are seen by all.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{Globals, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{JoinedRows, ModelSpec, PositionTable, Sines, Stack, TableSource};

use super::Family;
use super::reading::bart_like::{self, BartLike, Positions};

pub const FAMILY: Family = Family::own("pegasus_x", "PegasusX", read);

const LIKE: BartLike = BartLike {
    positions: Positions::Sinusoid,
    norms_before: true,
    scales: Some(true),
    // No configuration has it: there are no biases.
    attention_bias: Some("attention_bias"),
    tied_alone: true,
    ..BartLike::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = bart_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let (width, number, staggers) = ("block_size", "num_global_tokens", "stagger_local_blocks");
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_wide = reader.size_or("block", width, 512, default(width))?;
    let n_firsts = reader.size_or("global_tokens", number, 32, default(number))?;
    let is_staggered = reader.flag_or("staggered_blocks", staggers, true)?;
    if is_staggered && !n_wide.is_multiple_of(2) {
        let problem =
            format!("expected an even number, since blocks are staggered, found {n_wide}");
        return Err(Error::config(reader.path(), width, problem));
    }
    let d_model = spec.d_model;
    for stack in &mut spec.stacks {
        stack.embed.positions = Some(PositionTable::Sinusoid(Sines::HalvesToEnd));
        if stack.stack == Stack::Decoder || stack.blocks().iter().all(|block| block.cross.is_some())
        {
            continue;
        }
        let last = stack.final_norm.iter().flat_map(|norm| &norm.gain).next();
        let Some(base) = last.and_then(|name| name.strip_suffix("layer_norm.weight")) else {
            continue;
        };
        stack.embed.joined = Some(Box::new(JoinedRows::whole(TableSource {
            tensor: format!("{base}embed_global.weight"),
            n_rows: n_firsts,
            width: d_model,
        })));
        for (layer_idx, block) in stack.blocks_mut().iter_mut().enumerate() {
            let is_odd = layer_idx % 2 == 1;
            if let Some(norm) = &mut block.attn_pre {
                let mut own = norm.clone();
                let names = own.gain.iter_mut().chain(&mut own.bias);
                names.for_each(|name| *name = name.replace(".self_attn_", ".global_self_attn_"));
                norm.of_firsts = Some(Box::new((n_firsts, own)));
            }
            let Some(own) = block.own_mut() else { continue };
            own.attention.mask.window = Some(Window::Blocks {
                width: n_wide,
                first: n_firsts,
                lacks: if is_odd && is_staggered {
                    n_wide / 2
                } else {
                    0
                },
            });
            own.attention.globals = Some(Globals::Firsts(n_firsts));
        }
    }
    reader.remark(format!(
        "{n_firsts} learned tokens stand before those of a text in the encoder: they see all others and are seen by all"
    ));
    Ok(spec)
}
