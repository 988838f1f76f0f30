//! TimesFM 2.5 over rows of patches of a series: Llama with norms around both branches, whose queries are normed behind the rotation and
//! multiplied with a learned factor for each dimension in place of 1/√d.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::Scale;
use attnscope_compute::error::Result;
use attnscope_spec::{FactorsHeld, ModelSpec};

use super::reading::llama_like::{BiasRule, MlpStore, NormPlaces, QkNorm, Recipe};
use super::reading::{given_rows, prefix};
use super::{Family, timesfm};

pub const FAMILY: Family = Family::own("timesfm2_5", "TimesFm2_5", read).leaving_unread(&[
    "horizon_ff_layer.*",
    "input_ff_layer.*",
    "output_projection_*",
]);

/// Keys of what rows are made of, and of what is predicted.
const ASIDE: [&str; 9] = [
    "context_length",
    "decode_index",
    "force_flip_invariance",
    "horizon_length",
    "infer_is_positive",
    "output_quantile_len",
    "patch_length",
    "quantiles",
    "use_continuous_quantile_head",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let bases = ["model.", "decoder.", ""];
    let base = prefix(&checkpoint.tensors, &bases, "layers.0.self_attn.scaling");
    let bias = BiasRule::Key("attention_bias", false);
    let recipe = Recipe {
        norm_places: NormPlaces::AROUND,
        qk_norm: QkNorm::Head,
        qkv_bias: bias,
        o_bias: bias,
        mlp_bias: BiasRule::Key("use_bias", false),
        mlp: MlpStore::Plain {
            up: "fc1",
            down: "fc2",
        },
        activation: ("activation", "silu"),
        d_head: Some(80),
        base: Some(base),
        ..Recipe::llama()
    };
    let both = (checkpoint, &mut *reader);
    let made_by = ("the map of patches of a series", false);
    let mut spec = given_rows::read_layers(FAMILY.model_type, both, &recipe, made_by)?;
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        let Some(own) = block.own_mut() else { continue };
        own.attention.scale = Scale::One;
        let scaling = format!("{base}layers.{layer_idx}.self_attn.scaling");
        let d_head = own.attention.d_head;
        let factors = timesfm::query_factors(scaling, FactorsHeld::Each, d_head);
        own.projections.norms_after_rope = true;
        if let Some(norm) = &mut own.projections.q_norm {
            norm.factors = Some(factors);
        }
    }
    reader.note("scale", "1", Origin::Family);
    reader.note(
        "query_factors",
        "the softplus of stored values, for each dimension of a head",
        Origin::Family,
    );
    Ok(spec)
}
