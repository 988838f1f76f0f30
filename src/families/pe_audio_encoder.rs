//! The encoder of PE's sounds: Llama with norms of queries and keys, in which all see each other, behind a codec's convolutions.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::llama_like::{BiasRule, NormStyle, QkNorm, RMS, Recipe};
use super::reading::{given_rows, linear, prefix};

pub const FAMILY: Family =
    Family::own("pe_audio_encoder", "PeAudioEncoder", read).leaving_unread(&["embedder.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let bases = [
        "",
        "audio_encoder.",
        "audio_video_encoder.",
        "video_encoder.",
    ];
    let base = prefix(&checkpoint.tensors, &bases, "output.weight");
    let bias = BiasRule::Key("attention_bias", false);
    let recipe = Recipe {
        theta: 20_000.0,
        interleaved: true,
        norm: NormStyle { eps: 1e-5, ..RMS },
        qk_norm: QkNorm::Head,
        qkv_bias: bias,
        o_bias: bias,
        is_causal: false,
        d_head: Some(128),
        base: Some(base),
        ..Recipe::llama()
    };
    let both = (checkpoint, &mut *reader);
    let made_by = ("the convolutions over samples", true);
    let mut spec = given_rows::read_layers(FAMILY.model_type, both, &recipe, made_by)?;
    let d = spec.d_model;
    spec.stacks[0].last_map = Some(linear(&format!("{base}output"), d, d, false));
    for key in [
        "audio_config",
        "dac_config",
        "video_config",
        "vision_config",
    ] {
        reader.value(key);
    }
    Ok(spec)
}
