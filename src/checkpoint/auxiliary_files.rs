//! Recognises by name files beside the weights that hold no model.

use std::path::Path;

use super::adapter;

/// Whether a file is something that a trainer leaves beside the weights: optimiser state, an adapter, an image projector.
pub fn is_auxiliary(path: &Path) -> bool {
    is_trainer_state(path) || adapter::is_weights(path)
}

/// Whether a file is by its name optimiser or other trainer state, or anything else that is no model.
pub fn is_trainer_state(path: &Path) -> bool {
    const STATES: [&str; 10] = [
        "distrib_optim",
        "optimizer",
        "scheduler",
        "rng_state",
        "random_states",
        "training_args",
        "scaler",
        "sampler",
        "mmproj",
        "tokenizer",
    ];
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    STATES.iter().any(|state| name.starts_with(state)) || name.contains("_optim_states")
}
