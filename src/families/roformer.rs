//! RoFormer: BERT whose queries and keys rotate, and perhaps values, in place of learned positions.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, ModelSpec};

use super::reading::bert_like::{self, BertLike, Positions, Widening};
use super::reading::task_rules::{HeadActivation, TaskRules, TextSummary};
use super::{Family, bert};

pub const FAMILY: Family = Family::own("roformer", "RoFormer", read)
    .with_tasks(TaskRules {
        dense: HeadActivation::Key("hidden_act", "gelu"),
        text: TextSummary::Last,
        ..TaskRules::USUAL
    })
    .leaving_unread(&[ANGLES]);

/// The end of the name of a stored table of angles.
const ANGLES: &str = "encoder.embed_positions.weight";

const LIKE: BertLike = BertLike {
    positions: Positions::Rotary,
    widens: Some(Widening {
        key: "embedding_size",
        map: "embeddings_project",
        is_always: false,
        head_key: None,
    }),
    ..BertLike::plain("roformer.", bert::HEAD)
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    if reader.flag_or("rotates_values", "rotary_value", false)? {
        let blocks = spec.stacks[0].blocks_mut().iter_mut();
        for own in blocks.filter_map(BlockSpec::own_mut) {
            if let Some(rope) = &mut own.attention.rope {
                rope.turns_values = true;
            }
        }
    }
    check_angles(checkpoint)?;
    Ok(spec)
}

/// Refuses a stored table of angles that differs from the computed one: transformers uses the stored one.
fn check_angles(checkpoint: &Checkpoint) -> Result<()> {
    /// Half precision rounds sines by less.
    const MOST: f64 = 2e-3;
    let tensors = &checkpoint.tensors;
    let mut names = tensors.iter().map(|(name, _)| name.to_owned());
    let Some(name) = names.find(|name| name.ends_with(ANGLES)) else {
        return Ok(());
    };
    let shape = tensors.info(&name).map(|info| info.shape.clone());
    let Some(&[n_rows, width]) = shape.as_deref() else {
        return Ok(());
    };
    let rows = tensors.expect(&name, &[n_rows, width])?.widen()?;
    for (position, row) in rows.chunks(width.max(1)).enumerate() {
        for (column, value) in row.iter().enumerate() {
            let pair = column % width.div_ceil(2);
            let angle = position as f64 / 10_000f64.powf(2.0 * pair as f64 / width as f64);
            let expected = if column < width.div_ceil(2) {
                angle.sin()
            } else {
                angle.cos()
            };
            if (f64::from(*value) - expected).abs() > MOST {
                let problem = format!(
                    "expected the sines and cosines that rotation has, found {value} in row {position}"
                );
                return Err(Error::tensor(tensors.file_of(&name), &name, problem));
            }
        }
    }
    Ok(())
}
