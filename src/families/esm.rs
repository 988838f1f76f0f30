//! ESM: an encoder of proteins, norms before the branches, learned positions (1b) or rotation (2), masked tokens left out.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::reading::bert_like::{self, BertLike, Norms, Positions};
use super::{Family, roberta};

pub const FAMILY: Family = Family::own("esm", "Esm", read);

const LIKE: BertLike = BertLike {
    positions: Positions::LearnedOrRotary,
    embed_norm: Some("embeddings.layer_norm"),
    embed_norm_if: Some("emb_layer_norm_before"),
    has_token_types: false,
    norms: Norms::Before {
        attention: "attention.LayerNorm",
        mlp: "LayerNorm",
        last: "encoder.emb_layer_norm_after",
    },
    drops_masked: Some("token_dropout"),
    activation: (None, "gelu"),
    must_be_off: &[(
        "is_folding_model",
        "the part that folds proteins is not read",
    )],
    ..roberta::like("esm.")
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let spec = bert_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    check_angles(checkpoint, &spec, "rotary_embeddings.inv_freq")?;
    Ok(spec)
}

/// Refuses angles, stored under names that end so, that differ from the configuration's: transformers uses the stored ones.
///
/// # Errors
/// When they differ.
pub(super) fn check_angles(checkpoint: &Checkpoint, spec: &ModelSpec, end: &str) -> Result<()> {
    /// Half precision rounds by less: a relative tolerance, and an absolute one for tiny angles.
    const MOST: (f64, f64) = (2e-3, 1e-6);
    let first = spec.main_stack().first_attention();
    let Some(rope) = first.and_then(|own| own.rope.as_ref()) else {
        return Ok(());
    };
    let tensors = &checkpoint.tensors;
    let names = tensors.iter().map(|(name, _)| name);
    for name in names.filter(|name| name.ends_with(end)) {
        let n_pairs = rope.d_rotary / 2;
        let stored = tensors.expect(name, &[n_pairs])?.widen()?;
        for (pair, found) in stored.iter().enumerate() {
            let expected = rope.theta.powf(-(pair as f64) / n_pairs as f64);
            let gap = (f64::from(*found) - expected).abs();
            if gap.is_nan() || gap > MOST.0 * expected + MOST.1 {
                let problem = format!(
                    "expected the angles of rope_theta {}, found {found} in the place of {expected:.6}",
                    rope.theta
                );
                return Err(Error::tensor(tensors.file_of(name), name, problem));
            }
        }
    }
    Ok(())
}
