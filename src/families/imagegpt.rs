//! ImageGPT: GPT-2 over the colours of a small picture, row by row, with norms that subtract no mean. Tokens are numbers of clusters of
//! colours, which the library's processor finds; the last one begins a picture and is never predicted.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_spec::{LinearSource, ModelSpec, Pooled};

use super::Family;
use super::gpt2::{self, Fused, Store};
use super::layouts::Keys;
use super::reading::task_rules::TaskRules;

pub const FAMILY: Family = Family::own("imagegpt", "ImageGPT", read)
    .with_keys(Keys::Gpt2)
    .with_tasks(TaskRules {
        picture: |_| Pooled::Mean,
        ..TaskRules::USUAL
    });

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let store = Store {
        is_input_major: true,
        activation: "quick_gelu",
        fused: Fused::AllOfEach,
        may_lack_biases: false,
        norms_after: false,
        norms: NormKind::RmsNorm,
    };
    reader.value("reorder_and_upcast_attn");
    let mut spec = gpt2::read_stored(checkpoint, reader, FAMILY.model_type, store)?;
    if let Some(head) = &mut spec.head {
        let weight = head.unembed.weight.clone();
        let n_out = head.unembed.n_out().saturating_sub(1);
        head.unembed = LinearSource::whole(weight, None, spec.d_model, n_out);
    }
    Ok(spec)
}
