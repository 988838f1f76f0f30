//! VaultGemma: Gemma 2 without norms on the outputs of its branches.

use super::reading::llama_like::{NormPlaces, Recipe};
use super::{Family, gemma2};

pub const FAMILY: Family = Family::decoder("vaultgemma", "VaultGemma", || Recipe {
    norm_places: NormPlaces::BeforeNamed(["input_layernorm", "pre_feedforward_layernorm"]),
    ..gemma2::recipe()
});
