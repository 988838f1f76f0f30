//! Moshi: its decoder, run on its own text; Llama with gate and up in one tensor, and one more row of embeddings.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{FeedForward, GateRule, MlpSpec, ModelSpec};

use super::Family;
use super::reading::llama_like::{BlockNames, NormStyle, RMS, Recipe, Sizes, read_with};
use super::reading::{activation, linear, stacked};

pub const FAMILY: Family = Family::own("moshi", "Moshi", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = read_as(FAMILY.model_type, checkpoint, reader)?;
    // The last row stands for text that is not said yet.
    spec.stacks[0].embed.tokens.n_rows += 1;
    reader.remark(
        "run on text alone: the codes of sound that are added to the text's embeddings, and the decoder that writes them, are left out"
            .to_owned(),
    );
    Ok(spec)
}

/// Reads the decoder, under the name of a family.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-8, ..RMS },
        names: BlockNames {
            apart: ["q_proj.linear", "k_proj.linear", "v_proj.linear"],
            o: "o_proj.linear",
            ..BlockNames::USUAL
        },
        ..Recipe::llama()
    };
    let sizes = Sizes::read(reader, None)?;
    let d_model = sizes.d_model;
    const WIDTH: &str = "ffn_dim";
    let both = reader.size("d_mlp_twice", WIDTH)?;
    if !both.is_multiple_of(2) {
        let problem = format!("expected an even number, found {both}");
        return Err(Error::config(reader.path(), WIDTH, problem));
    }
    let d_mlp = both / 2;
    let activation = activation(reader, "hidden_act", "silu")?;
    let mlp = |_: usize, at: &str| {
        let fused = linear(&format!("{at}.mlp.fc1"), d_model, both, false);
        let [gate, up, _] = stacked(&fused, [d_mlp, d_mlp, 0]);
        FeedForward::Dense(Box::new(MlpSpec {
            gate: Some(gate),
            gate_rule: GateRule::Product,
            ..MlpSpec::plain(
                up,
                linear(&format!("{at}.mlp.fc2"), d_mlp, d_model, false),
                activation,
            )
        }))
    };
    let spec = read_with(family, checkpoint, reader, &recipe, sizes, &mlp)?;
    let window = reader
        .value("sliding_window")
        .and_then(|width| width.as_u64());
    if window.unwrap_or(3000) < sizes.n_ctx as u64 {
        reader.remark(
            "the window of its key cache is left out, as in transformers without a cache"
                .to_owned(),
        );
    }
    Ok(spec)
}
