//! What probes and checks say of every reference checkpoint: none is accused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use attnscope_checks::{Probed, Severity, Status};
use attnscope_compute::attention::{Globals, TopKeys};
use attnscope_compute::ops::Cpu;
use attnscope_prompt::{PositionRule, Request};
use attnscope_spec::{FeedForward, Model};
use testing::effort::{family_of, some_of};
use testing::judged::{judged, prompt_of, reference_request, references_of_kinds};
use testing::oracle_case::{heard_by, model_of};

/// Cases in which padding before a text is part of what a mixer reads.
const CARRYING: [&str; 12] = [
    "falcon_h1_b",
    "granitemoehybrid_b",
    "jamba_b",
    "lfm2_moe_b",
    "lfm3_b",
    "minimax",
    "minimax_b",
    "nemotron_h_b",
    "recurrent_gemma",
    "recurrent_gemma_b",
    "zamba2_b",
    "zamba_b",
];

/// Cases one of whose heads has, by the chance of its random weights, queries and keys long enough to saturate it.
const SATURATED: [(&str, Severity); 7] = [
    ("clap_text_model", Severity::Warning),
    ("clvp_decoder", Severity::Warning),
    ("deepseek_ocr2_text", Severity::Warning),
    ("dia_decoder", Severity::Warning),
    ("layoutlm", Severity::Warning),
    ("lxmert_b", Severity::Warning),
    ("pix2struct_b", Severity::Info),
];

fn name_of(case: &Path) -> String {
    let name = case.file_name().expect("a name");
    name.to_string_lossy().into_owned()
}

fn has_experts(model: &Model) -> bool {
    let mut blocks = model.spec.stacks.iter().flat_map(|stack| stack.blocks());
    blocks.any(|block| matches!(block.feed_forward, FeedForward::Experts(_)))
}

#[test]
fn no_reference_checkpoint_leaks_the_future_and_dense_ones_are_bit_identical() {
    let (mut n_causal, mut exempt) = (0, Vec::new());
    let tried: Vec<PathBuf> = some_of(references_of_kinds(), 3).collect();
    for case in &tried {
        let name = name_of(case);
        let model = model_of(case).expect("opens");
        let short = reference_request(case, false);
        // Longer than a block of rows, as far as the model goes.
        let room = model.spec.n_ctx.unwrap_or(256).min(72);
        let long = {
            let ids = match &short.source {
                attnscope_prompt::Source::Ids(ids) => ids.clone(),
                // Pictures and sounds have the length that they have.
                _ => continue,
            };
            let n = ids.len().max(room);
            let ids = ids.iter().copied().cycle().take(n).collect();
            Request {
                source: attnscope_prompt::Source::Ids(ids),
                ..short
            }
        };
        let input = prompt_of(&model, &long)[0].1.clone();
        let probed = attnscope_run::probe_future(&Cpu, &model, &input, |_| {}, &|| false);
        let probe = match probed.expect("runs") {
            Probed::Ran(probe) => probe,
            Probed::Not(_) | Probed::Untried(_) | Probed::Undecided(_) => {
                exempt.push(name.clone());
                continue;
            }
        };
        n_causal += 1;
        let tolerance = if has_experts(&model) { 1e-5 } else { 0.0 };
        assert_eq!(probe.tolerance, tolerance, "{name}");
        assert_eq!(probe.worst, None, "{name}");
        assert_eq!(probe.first_pattern, None, "{name}");
        assert_eq!(probe.first_residual, None, "{name}");
    }
    let expected = "albert align_text_model altclip_text_model bert bert_generation_b bert_plain big_bird blip_text_model bros \
         camembert chinese_clip_text_model clap_text_model clvp_encoder convbert cpmant data2vec_text deberta deberta_v2 dia_encoder \
         distilbert dpr electra embedding_gemma2_text ernie esm esmc eurobert fastspeech2_conformer fastspeech2_conformer_with_hifigan flaubert flava_text_model \
         gemma3_both_sides gte ibert instructblip_qformer jina_embeddings_v3 layoutlm layoutlmv3 lilt longformer luke lxmert markuplm megatron_bert mobilebert modernbert \
         mpnet neomme nomic_bert openai_privacy_filter perceiver rembert roberta_pads roberta-prelayernorm roberta_prelayernorm \
         roc_bert roformer roformer_values siglip2_text_model siglip_text_model splinter squeezebert t5gemma2_text tapas tipsv2_text_model ultrabert visual_bert wavtokenizer xlm \
         xlm_roberta xlm_roberta_xl xlnet xmod";
    let expected: Vec<&str> = expected.split(' ').collect();
    // A case of its own where other cases of the family are decoders; otherwise a family.
    let of = |case: &PathBuf| {
        let name = name_of(case);
        let is_one = expected.contains(&name.as_str());
        if is_one { name } else { family_of(case) }
    };
    let is_exempt = |case: &&PathBuf| exempt.contains(&name_of(case));
    let found: BTreeSet<String> = tried.iter().filter(is_exempt).map(of).collect();
    let tried: BTreeSet<String> = tried.iter().map(of).collect();
    let expected = expected.into_iter().filter(|name| tried.contains(*name));
    assert_eq!(found, expected.map(str::to_owned).collect());
    assert!(n_causal > 25, "{n_causal}");
}

#[test]
fn no_reference_checkpoint_depends_on_padding_once_positions_are_counted_over_real_tokens() {
    let (mut right_only, mut carrying) = (Vec::new(), Vec::new());
    let tried = references_of_kinds();
    for case in &tried {
        let name = name_of(case);
        let model = model_of(case).expect("opens");
        let input = prompt_of(&model, &reference_request(case, false))[0]
            .1
            .clone();
        let probed = attnscope_run::probe_padding(&Cpu, &model, &input, |_| {}, &|| false);
        let probe = match probed.expect("runs") {
            Probed::Ran(probe) => probe,
            // A picture, a sound and rows of numbers are never padded as tokens are.
            Probed::Not(_) if case.join("picture.png").exists() => continue,
            Probed::Not(_) if heard_by(case).is_some() => continue,
            // So does its code: a sentence gives other values beside padding.
            Probed::Not(_) if name.starts_with("convbert") => continue,
            Probed::Not(_) if name.starts_with("mobilebert") => continue,
            Probed::Not(_) if name.starts_with("fastspeech2_conformer") => continue,
            Probed::Not(_) if name.starts_with("wavtokenizer") => continue,
            // Its positions are those of the books of one moment, which the text fills.
            Probed::Not(_) if name.starts_with("csm_depth_decoder") => continue,
            other => panic!("{name}: {other:?}"),
        };
        for (case, moved) in &probe.cases {
            assert_eq!(*moved, None, "{name}: {case}");
        }
        assert!(probe.largest < 1e-5, "{name}: {}", probe.largest);
        if probe.cases.len() == 1 {
            // A state that is carried from token to token reads what stands before a text.
            let mut blocks = model.spec.main_stack().blocks().iter();
            if blocks.any(|block| block.other_mixer().is_some()) {
                carrying.push(name);
            } else {
                let first = model.spec.main_stack().first_attention();
                let is_global = first.and_then(|of| of.globals) == Some(Globals::First);
                let is_shifted = matches!(model.spec.positions, PositionRule::Shifted { .. });
                let mut blocks = model.spec.stacks.iter().flat_map(|stack| stack.blocks());
                let is_limited = blocks.any(|block| block.feed_forward.is_limited());
                let blocks = model.spec.main_stack().blocks().iter();
                let mut top_keys = blocks.filter_map(|block| block.attention()?.top_keys);
                let mut blocks = model.spec.main_stack().blocks().iter();
                let is_pooled = blocks.any(|block| {
                    let attention = block.attention();
                    attention.is_some_and(|of| of.mask.pools.is_some())
                });
                let is_in_blocks = is_pooled || top_keys.any(TopKeys::ranks_blocks);
                let mut stacks = model.spec.stacks.iter();
                let starts_with_rows = stacks.any(|stack| stack.embed.joined.is_some());
                assert!(
                    is_shifted || is_global || is_limited || is_in_blocks || starts_with_rows,
                    "{name}"
                );
                right_only.push(name);
            }
        }
    }
    let tried: Vec<String> = tried.iter().map(|case| name_of(case)).collect();
    let of_tried = |all: &[&str]| -> Vec<String> {
        let known = all.iter().map(|name| (*name).to_owned());
        known.filter(|name| tried.contains(name)).collect()
    };
    assert_eq!(carrying, of_tried(&CARRYING));
    // Learned positions that their code cannot shift, a first token that sees all, rows before a text, blocks and pools of keys: pads on the left are another
    // prompt to them.
    assert_eq!(
        right_only,
        of_tried(&[
            "bart_b",
            "bigbird_pegasus",
            "bigbird_pegasus_b",
            "biogpt",
            "biogpt_b",
            "blenderbot",
            "blenderbot_b",
            "blenderbot_small",
            "blenderbot_small_b",
            "cpmant",
            "cpmant_b",
            "deepseek_v4",
            "deepseek_v4_b",
            "led",
            "led_b",
            "led_c",
            "longformer_d",
            "mbart",
            "mbart_b",
            "minimax_m3_vl",
            "minimax_m3_vl_text",
            "minimax_m3_vl_text_b",
            "pegasus_x",
            "pegasus_x_b",
            "pp_formulanet_text",
            "pp_formulanet_text_b",
            "prophetnet",
            "prophetnet_b",
            "switch_transformers",
            "switch_transformers_b",
            "trocr",
            "trocr_b",
            "trocr_c",
            "xglm",
            "xglm_b",
        ])
    );
}

/// Cases without gains, all or some of whose layers are as a random initialisation leaves them, and the checks that say so.
const BARE: [(&str, &str); 3] = [
    ("untrained", "nanochat"),
    ("untrained-layer", "neomme"),
    ("untrained-layer", "qwen4_exp_text"),
];

#[test]
fn of_all_reference_checkpoints_none_is_accused_or_warned_of() {
    let mut fired: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let (mut n_ordered, mut told) = (0, Vec::new());
    let cases: Vec<PathBuf> = some_of(references_of_kinds(), 3).collect();
    for case in &cases {
        let model = model_of(case).expect("opens");
        let said = judged(&model, &prompt_of(&model, &reference_request(case, true)));
        for (check, severity) in said.fired() {
            // Their weights are random: they know nothing, and it is said. Some have no gains that could hide it.
            let is_bare = BARE.contains(&(check, &name_of(case)));
            let name = name_of(case);
            let saturated = SATURATED.iter().find(|(of, _)| *of == name);
            let expected = match saturated {
                _ if check == "knows-nothing" || is_bare => Severity::Warning,
                Some((_, severity)) if check == "entropy-collapse" => *severity,
                _ => Severity::Info,
            };
            if severity != expected {
                told.push(format!("{}: {check} is {severity:?}", name_of(case)));
            }
            fired.entry(check).or_default().push(name_of(case));
        }
        n_ordered += usize::from(said.status("order-blind") == Status::Passed);
        for check in ["wrong-axis", "row-sum"] {
            assert_eq!(said.status(check), Status::NotTested, "{}", case.display());
        }
    }
    assert!(told.is_empty(), "{}\n{fired:?}", told.join("\n"));
    // The others are made without positions, or too short.
    assert!(
        3 * n_ordered >= 2 * cases.len(),
        "{n_ordered} of {}",
        cases.len()
    );
    let ran: Vec<String> = cases.iter().map(|case| name_of(case)).collect();
    for check in ["untrained", "untrained-layer"] {
        let bare = ran
            .iter()
            .filter(|name| BARE.contains(&(check, name)))
            .cloned();
        let untrained = fired.remove(check).unwrap_or_default();
        assert_eq!(untrained, bare.collect::<Vec<_>>());
    }
    let saturated = SATURATED
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| ran.iter().any(|ran| ran == name));
    let collapsed = fired.remove("entropy-collapse").unwrap_or_default();
    assert_eq!(collapsed, saturated.collect::<Vec<_>>());
    // A random model may predict its text worse than any guess, and that is said.
    let guessing = fired.remove("knows-nothing").unwrap_or_default();
    let may_guess = |name: &String| ["falcon", "gpt2", "gpt_oss"].contains(&name.as_str());
    assert!(guessing.iter().all(may_guess), "{guessing:?}");
    // Configurations without positions, in the first layer or in all.
    let unordered = [
        "granitemoe_swa",
        "internvl_vision_b",
        "mistral_large4",
        "perceiver",
    ]
    .into_iter()
    .filter(|name| ran.iter().any(|ran| ran == name));
    let order_blind = fired.remove("order-blind").unwrap_or_default();
    assert_eq!(order_blind, unordered.collect::<Vec<_>>());
    // Its first layer, whose weights are small by chance, averages: that is information.
    let averaging = ["sam2_hiera_det_model"]
        .into_iter()
        .filter(|name| ran.iter().any(|ran| ran == name));
    let uniform = fired.remove("entropy-uniform").unwrap_or_default();
    assert_eq!(uniform, averaging.collect::<Vec<_>>());
    // Random weights: a liked key is a sink, and large scores leave no entropy guaranteed. Some designs have no scale, or one of their own.
    let checks: Vec<&str> = fired.keys().copied().collect();
    assert_eq!(
        checks,
        ["attention-sink", "scale-mismatch", "spectral-bound"],
        "{fired:?}"
    );
    let unscaled = "decision_transformer decision_transformer_b dia dia_b dia_decoder dia_encoder dia_encoder_b diffusion_gemma_text embedding_gemma2_text embedding_gemma2_text_b gemma3n_text \
                     gemma3n_audio gemma3n_audio_b gemma3n_text_b gemma3n_text_plain gemma4_audio gemma4_audio_b gemma4_text gemma4_text_b gemma4_text_c gemma4_text_d gemma4_unified_text \
                     gemma4_unified_text_b gemma4_vision gemma4_vision_b gpt2_unscaled gpt_neo gpt_neo_b granitemoehybrid_b imagegpt_b \
                     longt5 longt5_b mobilevit_b mt5 mt5_b muse_glimmer muse_spark_text nemotron3_5_transcribe_asr_audio pix2struct pix2struct_b pix2struct_text_model \
                     pix2struct_text_model_b pix2struct_vision_model pix2struct_vision_model_b pop2piano pop2piano_b sam2_hiera_det_model sam2_hiera_det_model_b \
                     swin2sr switch_transformers switch_transformers_b t5_pads t5_v11 t5_v11_again timesfm timesfm2_5 timesfm2_5_b timesfm_b udop udop_b umt5 umt5_b \
                     videoprism_vision_model";
    let expected = unscaled
        .split(' ')
        .filter(|name| ran.iter().any(|ran| ran == name));
    assert_eq!(fired["scale-mismatch"], expected.collect::<Vec<_>>());
}
