//! Model types of which nothing can be shown: those without softmax attention, with what their layers have in its place, and those whose
//! attention is not read, with the reason.

use attnscope_checkpoint::Config;
use serde_json::Value;

const CONVOLUTIONS: &str = "convolutions";
const SCAN: &str = "a selective state space (Mamba)";
const DECAY: &str = "a recurrence of decaying sums (RWKV)";
const VOCODER: &str = "convolutions that make sound";
const TIME_AND_MEMORY: &str = "convolutions and an LSTM";
const APPROXIMATES: &str = "an approximation without a row of probabilities for every query";

/// Every such type that is known, sorted, with what it has instead.
const WITHOUT: &[(&str, &str)] = &[
    ("align_vision_model", CONVOLUTIONS),
    (
        "autoformer",
        "autocorrelations over time, and one sum over shifts that every place shares",
    ),
    ("bit", CONVOLUTIONS),
    ("convnext", CONVOLUTIONS),
    ("convnextv2", CONVOLUTIONS),
    ("dac", CONVOLUTIONS),
    ("dinov3_convnext", CONVOLUTIONS),
    ("edgetam_vision_model", CONVOLUTIONS),
    ("efficientnet", CONVOLUTIONS),
    ("encodec", TIME_AND_MEMORY),
    ("falcon_mamba", SCAN),
    ("fastspeech2_conformer_hifigan", VOCODER),
    ("flava_image_codebook", CONVOLUTIONS),
    ("fnet", "Fourier transforms"),
    ("focalnet", "focal modulation, gated convolutions"),
    (
        "glm_image_vqmodel",
        "a table of codes, and maps of each place by itself",
    ),
    ("hgnet_v2", CONVOLUTIONS),
    ("inkling_audio", "tables of codes"),
    ("inkling_vision", "maps of squares of patches"),
    ("mamba", SCAN),
    ("mamba2", "a state space (Mamba-2)"),
    ("mobilenet_v1", CONVOLUTIONS),
    ("mobilenet_v2", CONVOLUTIONS),
    (
        "mobilevitv2",
        "convolutions, and one sum over all places that every place shares",
    ),
    ("mra", APPROXIMATES),
    ("muse_spark_audio", CONVOLUTIONS),
    ("nystromformer", APPROXIMATES),
    (
        "patchtsmixer",
        "perceptrons over patches and features, with gates that are softmaxes over features",
    ),
    ("poolformer", "averages over neighbours"),
    ("pp_lcnet", CONVOLUTIONS),
    ("pp_lcnet_v3", CONVOLUTIONS),
    ("pp_lcnet_v4", CONVOLUTIONS),
    ("pp_ocrv5_mobile_det", CONVOLUTIONS),
    ("pp_ocrv5_server_det", CONVOLUTIONS),
    ("pp_ocrv6_medium_det", CONVOLUTIONS),
    ("pp_ocrv6_small_det", CONVOLUTIONS),
    ("pp_ocrv6_tiny_rec", CONVOLUTIONS),
    ("qwen2_5_omni_bigvgan", VOCODER),
    ("regnet", CONVOLUTIONS),
    ("resnet", CONVOLUTIONS),
    ("rt_detr_resnet", CONVOLUTIONS),
    ("rwkv", DECAY),
    ("rwkv5", DECAY),
    ("rwkv6", DECAY),
    ("speecht5_hifigan", VOCODER),
    ("superpoint", CONVOLUTIONS),
    (
        "swiftformer",
        "convolutions, and one sum over all places that every place shares",
    ),
    ("textnet", CONVOLUTIONS),
    ("univnet", VOCODER),
    ("uvdoc", CONVOLUTIONS),
    ("uvdoc_backbone", CONVOLUTIONS),
    ("vibevoice_acoustic_tokenizer", CONVOLUTIONS),
    ("vibevoice_acoustic_tokenizer_decoder", CONVOLUTIONS),
    ("vibevoice_acoustic_tokenizer_encoder", CONVOLUTIONS),
    ("wavtokenizer_encoder", TIME_AND_MEMORY),
    ("xlstm", "recurrent matrices (mLSTM)"),
    ("yoso", APPROXIMATES),
];

/// Switches that give a type of the list attention after all.
const UNLESS: &[(&str, &str)] = &[("patchtsmixer", "self_attn")];

const DEFORMABLE: &str =
    "it reads a picture between places that each query computes (deformable attention)";
const OF_ANOTHER: &str = "its layers attend to keys and values that another model computes";
const MASKS: &str =
    "its pictures pass through convolutions, and what attends to them to find masks is not read";

const BOXES: &str = "where its queries look follows from boxes that each layer moves";
const DIFFUSION: &str = "a step of diffusion scales and shifts the rows of every layer";
const POINTS: &str = "points of two pictures attend to each other, and another model finds them";

/// Every such type that is known to have softmax attention, sorted, with why it is not read.
const NOT_READ: &[(&str, &str)] = &[
    (
        "blt",
        "its bytes attend to patches before they see each other, and its patches to bytes",
    ),
    (
        "canine",
        "convolutions make fewer rows of its characters for the middle layers, and all of them again for the last",
    ),
    (
        "clap_audio_model",
        "it folds a spectrogram into a square, whose patches see windows that every other layer shifts",
    ),
    ("deformable_detr", DEFORMABLE),
    (
        "dinat",
        "each patch sees a window of its own, of the patches around it (neighbourhood attention)",
    ),
    (
        "dory",
        "its layers run several times, on rows of length 1 that each layer moves by a learned share (nGPT)",
    ),
    ("edgetam", MASKS),
    ("edgetam_video", MASKS),
    (
        "efficientloftr",
        "two pictures attend to each other, through convolutions that make fewer places of each",
    ),
    (
        "florence_vision",
        "every other layer attends from channel to channel, not from place to place",
    ),
    (
        "funnel",
        "its blocks pool queries, so that layers have fewer and fewer rows, and the last ones all again",
    ),
    ("gemma4_assistant", OF_ANOTHER),
    ("gemma4_unified_assistant", OF_ANOTHER),
    (
        "groupvit_vision_model",
        "each patch is given to one of a few groups, which are the rows of later layers",
    ),
    (
        "informer",
        "it draws the keys at random by which it chooses the queries that attend (ProbSparse attention)",
    ),
    (
        "inkling2_loop_text",
        "some of its layers run several times, and each branch reads a learned mix of the states between earlier layers",
    ),
    (
        "inkling2_text",
        "each branch reads a learned mix of the states between earlier layers",
    ),
    (
        "layoutlmv2",
        "convolutions make rows of a page, which stand behind those of its text in every layer",
    ),
    (
        "levit",
        "several convolutions make its patches, and attention alone makes fewer of them between stages",
    ),
    ("lightglue", POINTS),
    (
        "mllama_vision_model",
        "it cuts a picture into tiles, whose padding sees all rows but padding, and is seen by the others",
    ),
    (
        "molmo2_adapter",
        "each query is the mean of a few patches, and attends to these alone",
    ),
    ("moshi_depth", "each position has maps of its own"),
    ("qwen2_5_omni_dit", DIFFUSION),
    ("qwen2_5_omni_token2wav", DIFFUSION),
    (
        "reformer",
        "its tokens see those with a hash near their own (LSH attention)",
    ),
    ("sam3_detr_decoder", BOXES),
    ("sam3_lite_text_detr_decoder", BOXES),
    (
        "seggpt",
        "two pictures with their masks run beside each other, and become one behind some of the layers",
    ),
    (
        "slanet",
        "a recurrent cell sums its state and each place before one softmax (additive attention)",
    ),
    ("superglue", POINTS),
    (
        "vits",
        "what a head takes of a key depends on its distance too (relative values)",
    ),
    (
        "xclip_vision_model",
        "in each layer every frame sends a message to all others, which its patches see",
    ),
    (
        "zaya",
        "its queries and keys pass convolutions together, and each router reads what that of the layer before made",
    ),
];

/// Types of this list that hold a part which another family reads alone, and computes otherwise.
const NOT_IN_PART: &[&str] = &["gemma4_assistant", "gemma4_unified_assistant"];

/// Says why a model is not read, though a part of it could be.
pub(super) fn said_of_whole(config: &Config) -> Option<String> {
    let model_type = config.get("model_type")?.as_str()?;
    let is_whole = NOT_IN_PART.contains(&model_type);
    said(model_type, config).filter(|_| is_whole)
}

/// Says why nothing of a type can be shown; `None` for every other type, and where a switch of the configuration gives it attention.
pub(super) fn said(model_type: &str, config: &Config) -> Option<String> {
    let is_on = |key: &str| config.get(key).and_then(Value::as_bool) == Some(true);
    if UNLESS
        .iter()
        .any(|(name, key)| *name == model_type && is_on(key))
    {
        return None;
    }
    let of = |list: &[(&str, &'static str)]| {
        let found = list.iter().find(|(name, _)| *name == model_type);
        found.map(|(_, what)| *what)
    };
    if let Some(instead) = of(WITHOUT) {
        return Some(format!(
            "{model_type:?} has no softmax attention, so there is nothing to show: its layers have {instead}"
        ));
    }
    Some(format!("{model_type:?} is not read: {}", of(NOT_READ)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FAMILIES, aliases};

    #[test]
    fn types_that_cannot_be_shown_are_sorted_and_read_by_no_family() {
        assert!(WITHOUT.is_sorted_by_key(|(name, _)| name));
        assert!(NOT_READ.is_sorted_by_key(|(name, _)| name));
        for (name, _) in WITHOUT.iter().chain(NOT_READ) {
            let mut families = FAMILIES.iter();
            assert!(!families.any(|family| family.model_type == *name), "{name}");
            assert_eq!(aliases::family_of(name), None);
        }
    }
}
