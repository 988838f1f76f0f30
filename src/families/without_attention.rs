//! Model types without softmax attention, and what their layers have in its place: nothing of them can be shown.

const CONVOLUTIONS: &str = "convolutions";
const SCAN: &str = "a selective state space (Mamba)";
const DECAY: &str = "a recurrence of decaying sums (RWKV)";
const VOCODER: &str = "convolutions that make sound";
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
    ("efficientnet", CONVOLUTIONS),
    ("encodec", "convolutions and an LSTM"),
    ("falcon_mamba", SCAN),
    ("fastspeech2_conformer_hifigan", VOCODER),
    ("flava_image_codebook", CONVOLUTIONS),
    ("fnet", "Fourier transforms"),
    ("focalnet", "focal modulation, gated convolutions"),
    ("hgnet_v2", CONVOLUTIONS),
    ("mamba", SCAN),
    ("mamba2", "a state space (Mamba-2)"),
    ("mobilenet_v1", CONVOLUTIONS),
    ("mobilenet_v2", CONVOLUTIONS),
    (
        "mobilevitv2",
        "convolutions, and one sum over all places that every place shares",
    ),
    ("mra", APPROXIMATES),
    ("nystromformer", APPROXIMATES),
    ("poolformer", "averages over neighbours"),
    ("pp_lcnet", CONVOLUTIONS),
    ("pp_lcnet_v3", CONVOLUTIONS),
    ("pp_lcnet_v4", CONVOLUTIONS),
    ("pp_ocrv5_mobile_det", CONVOLUTIONS),
    ("pp_ocrv5_server_det", CONVOLUTIONS),
    ("pp_ocrv6_medium_det", CONVOLUTIONS),
    ("pp_ocrv6_small_det", CONVOLUTIONS),
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
    ("xlstm", "recurrent matrices (mLSTM)"),
    ("yoso", APPROXIMATES),
];

/// Says that a type has no softmax attention, and what it has; `None` for every other type.
pub(super) fn said(model_type: &str) -> Option<String> {
    let (name, instead) = WITHOUT.iter().find(|(name, _)| *name == model_type)?;
    Some(format!(
        "{name:?} has no softmax attention, so there is nothing to show: its layers have {instead}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FAMILIES, aliases};

    #[test]
    fn types_without_attention_are_sorted_and_read_by_no_family() {
        assert!(WITHOUT.is_sorted_by_key(|(name, _)| name));
        for (name, _) in WITHOUT {
            let mut families = FAMILIES.iter();
            assert!(!families.any(|family| family.model_type == *name), "{name}");
            assert_eq!(aliases::family_of(name), None);
        }
    }
}
