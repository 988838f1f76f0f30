//! Decision Transformer: GPT-2 over rows of returns, states and actions in turn, all of which have the first position.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_spec::ModelSpec;

use super::Family;
use super::gpt2::{self, Fused, Store};
use super::reading::given_rows;

pub const FAMILY: Family = Family::own("decision_transformer", "DecisionTransformer", read)
    .leaving_unread(&["embed_*", "predict_*", "wpe.weight", "wte.weight"]);

/// Keys of what rows are made of, and of what is predicted.
const ASIDE: [&str; 4] = ["act_dim", "action_tanh", "max_ep_len", "state_dim"];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let store = Store {
        is_input_major: true,
        activation: "relu",
        fused: Fused::AllOfEach,
        may_lack_biases: false,
        norms_after: false,
        norms: NormKind::LayerNorm,
    };
    let mut spec = gpt2::read_stored(checkpoint, reader, FAMILY.model_type, store)?;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    reader.forget(&["tied_unembedding", "unembedding"]);
    given_rows::remark(
        reader,
        "the maps of returns, states and actions, with times, a norm and the first position,",
    );
    reader.note(
        "positions",
        "that of the first row for all, part of what is given",
        Origin::Family,
    );
    let embed = &mut spec.stacks[0].embed;
    *embed = given_rows::embed(embed.tokens.tensor.clone(), embed.tokens.width);
    Ok(ModelSpec {
        head: None,
        is_causal_lm: false,
        ..spec
    })
}
