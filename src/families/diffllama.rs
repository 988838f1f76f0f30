//! DiffLlama: Llama whose attention is the difference of two softmaxes; a head of the second half is taken away from its partner.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, DifferenceSource, ModelSpec, StackSpec};

use super::Family;
use super::reading::llama_like::{self, BiasRule, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::own("diffllama", "DiffLlama", read);

fn recipe() -> Recipe {
    Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        ..Recipe::llama()
    }
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    // Only used to initialise weights.
    reader.value("lambda_std_dev");
    let family = FAMILY.model_type;
    let mut spec = llama_like::read(family, checkpoint, reader, &recipe())?;
    // The norm of head pairs has the same epsilon as the other norms.
    let eps = spec
        .main_stack()
        .final_norm
        .as_ref()
        .map_or(1e-5, |norm| norm.eps);
    let blocks = spec.stacks.iter_mut().flat_map(StackSpec::blocks_mut);
    let mut n_heads = 0;
    for (layer_idx, own) in blocks.filter_map(BlockSpec::own_mut).enumerate() {
        let attention = &mut own.attention;
        if !attention.n_kv_heads.is_multiple_of(2) {
            let problem = format!(
                "expected an even number: values of one half of heads go with those of the other, found {}",
                attention.n_kv_heads
            );
            let key = "num_key_value_heads";
            return Err(Error::config(reader.path(), key, problem));
        }
        let d_head = attention.d_head;
        (attention.d_value, n_heads) = (2 * d_head, attention.n_heads);
        let maps = &mut own.projections;
        maps.o = maps.o.clone().for_both_halves();
        let weight = maps.q.weight.trim_end_matches("q_proj.weight");
        maps.difference = Some(Box::new(DifferenceSource {
            lambdas: ["q1", "k1", "q2", "k2"].map(|name| format!("{weight}lambda_{name}")),
            d_head,
            first: (0.8 - 0.6 * (-0.3 * layer_idx as f64).exp()) as f32,
            eps,
        }));
    }
    let half = n_heads / 2;
    let said = format!("two softmaxes: head h less λ times head h + {half}");
    reader.note("difference", said, Origin::Family);
    reader.remark(format!(
        "heads stand in pairs: the model uses the pattern of head h less λ times that of head h + {half}, which may be negative. \
         Patterns and statistics are those of each softmax by itself"
    ));
    Ok(spec)
}
