//! Pocket TTS: its backbone on text, before any sound: Llama with layer norms and feed-forward layers without a gate.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, BlockNames, MlpStore, NormStyle, QkvStore, RMS, Recipe,
};

pub const FAMILY: Family = Family::own("pocket_tts", "PocketTTS", read).leaving_unread(&[
    "audio_latent_proj.weight",
    "bos_emb",
    "condition_provider.*",
    "emb_mean",
    "emb_std",
    "flow_lm.flow_net.*",
    "flow_lm.input_linear.*",
    "flow_lm.out_eos.*",
    "audio_prompt_proj.weight",
    "bos_latent",
    "duration_delta_proj.weight",
    "eos_head.*",
    "flow_head.*",
    "latent_*",
    "loss_weighting.*",
    "num_speakers_*",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let bias = BiasRule::Key("attention_bias", false);
    // Of such files, queries, keys and values are one map, whose queries and keys turn in pairs of columns.
    let is_joined = reader.flag_or("joined_qkv", "joined_qkv", false)?;
    let recipe = Recipe {
        interleaved: is_joined,
        qkv: if is_joined {
            QkvStore::Stacked
        } else {
            QkvStore::Apart
        },
        names: BlockNames {
            qkv: "in_proj",
            ..BlockNames::USUAL
        },
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: Some("layer_norm_eps"),
            eps: 1e-5,
            has_bias: true,
            ..RMS
        },
        qkv_bias: bias,
        o_bias: bias,
        mlp: MlpStore::Plain {
            up: "fc1",
            down: "fc2",
        },
        activation: ("hidden_act", "gelu_pytorch_tanh"),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    // What follows says when sound ends, and makes it.
    spec.head = None;
    spec.is_causal_lm = false;
    reader.value("tie_word_embeddings");
    reader.forget(&["unembedding", "tied_unembedding"]);
    for key in [
        "eos_loss_weight",
        "flow_head_config",
        "flow_loss_num_samples",
        "frame_rate",
        "latent_dim",
        "latent_stats_ema_decay",
        "latent_stats_ema_steps",
        "lsd_diagonal_weight",
        "lsd_distill_probability",
        "lsd_time_logit_mean",
        "lsd_time_logit_std",
    ] {
        reader.value(key);
    }
    reader.remark(
        "run on text alone: tokens that stand for sound are read as their rows of the table, not as what was heard or made"
            .to_owned(),
    );
    Ok(spec)
}
