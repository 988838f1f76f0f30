//! OLMo 3: OLMo 2 with windows on three layers of four, which rotate without rescaling.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, LocalRope, NormPlaces, NormStyle, QkNorm, RMS, Recipe,
};
use super::reading::windows::WindowRule;
use super::versions::saved_by;

pub const FAMILY: Family = Family::own("olmo3", "Olmo3", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const EARLY: f64 = 500_000.0;
    // Version 4 uses one base for every layer; version 5 uses the family's own base for layers with a window.
    let flat = reader
        .value("rope_theta")
        .and_then(serde_json::Value::as_f64);
    let flat = flat.filter(|theta| *theta != EARLY && reader.value("rope_parameters").is_none());
    let is_late =
        saved_by(reader.value("transformers_version")).is_some_and(|version| version >= (5, 0));
    let shared = flat.filter(|_| !is_late);
    if let Some(theta) = flat {
        let (taken, other) = if is_late {
            (EARLY, theta)
        } else {
            (theta, EARLY)
        };
        reader.remark(format!(
            "layers with a window rotate by the base {taken}, as in the version of transformers that saved this model; \
             another version takes {other}: --set window_rope_theta={other}"
        ));
    }
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        norm_places: NormPlaces::Output,
        qk_norm: QkNorm::Whole,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        theta: 500_000.0,
        local_rope: Some(LocalRope {
            theta_key: shared.map(|_| "rope_theta"),
            theta: EARLY,
        }),
        window: WindowRule::AllBut {
            every: 4,
            every_key: None,
            width: 4096,
        },
        ..Recipe::llama()
    };
    llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)
}
