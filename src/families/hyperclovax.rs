//! HyperCLOVA X: Granite whose logits are multiplied instead of divided, with a switch for norms on the outputs of branches.

use super::reading::llama_like::{FactorRule, NormPlaces, Recipe, ScorePower};
use super::{Family, granite};

pub const FAMILY: Family = Family::decoder("hyperclovax", "HyperCLOVAX", || Recipe {
    norm_places: NormPlaces::BeforeAndIf("use_post_norm", ["post_norm1", "post_norm2"]),
    logit_scale: FactorRule::Key("logits_scaling", 1.0),
    score_factor: Some(("attention_multiplier", ScorePower::AsIsIfStated)),
    ..granite::recipe()
});
