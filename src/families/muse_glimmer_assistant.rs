//! The assistant of Muse Glimmer, which fills in a block of tokens at once: its tokens see each other, and what layers of the main
//! model hold of those before. It is run without these.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::given_rows;
use super::reading::llama_like::{BiasRule, NormStyle, QkNorm, RMS, Recipe, TwoSided};
use super::reading::windows::WindowRule;

/// What brings the main model's states to the width of the assistant is not read.
pub const FAMILY: Family = Family::own("muse_glimmer_assistant", "MuseGlimmerAssistant", read)
    .leaving_unread(&["encoder.fc.weight", "encoder.output_norm_enc.weight"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        qk_norm: QkNorm::Head,
        qkv_bias: BiasRule::Never,
        theta: 500_000.0,
        d_head: Some(128),
        is_causal: false,
        two_sided: TwoSided::WholeEitherWay,
        window: WindowRule::ListedOrAlways(Some(2048)),
        base: Some(""),
        ..Recipe::llama()
    };
    let both = (checkpoint, &mut *reader);
    let made_by = ("the main model's embedding of a block of tokens", true);
    let spec = given_rows::read_layers(FAMILY.model_type, both, &recipe, made_by)?;
    for key in ["block_size", "mask_token_id", "target_layer_ids"] {
        reader.value(key);
    }
    let said = "run alone: there are no states of the main model to see, as where a text begins";
    reader.remark(said.to_owned());
    Ok(spec)
}
