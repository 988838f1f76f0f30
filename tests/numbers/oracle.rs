//! Every family against what Hugging Face transformers computes for it: patterns, residuals and logits.

use std::ops::ControlFlow;
use std::path::PathBuf;

use attnscope_checks::stats::LayerReport;
use attnscope_compute::ops::{Cpu, Ops};
use attnscope_prompt::PromptForm;
use attnscope_run::{HeadQuery, Kept, Observer, Options, Progress, input_of};
use safetensors::SafeTensors;
use testing::effort::one_of_each;
use testing::on_each_device;
use testing::oracle_case::{cases, compare, model_of, reference_bytes, request_of};

#[test]
fn every_family_agrees_with_its_reference() {
    agree(&Cpu, &cases());
}

on_each_device! {
    every_family_agrees_with_its_reference_on_a_device: every_family;
}

fn every_family(ops: &impl Ops) {
    agree(ops, &one_of_each(cases()));
}

fn agree(ops: &impl Ops, cases: &[PathBuf]) {
    // Furthest apart: a probability, a residual or logits.
    let mut furthest = [0.0f64; 2];
    let told: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let told = match model_of(case) {
                Ok(model) => compare(ops, &model, case, &mut furthest).err()?,
                Err(refused) => refused.to_string(),
            };
            Some(format!("{}: {told}", case.display()))
        })
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    testing::devices::tell(&format!("pattern and relative {furthest:?}"));
}

/// Keeps where layer inputs are.
#[derive(Default)]
struct Keeping(Option<std::sync::Arc<Kept>>);

impl Observer for Keeping {
    fn keeping(&mut self, kept: &std::sync::Arc<Kept>) {
        self.0 = Some(kept.clone());
    }

    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, _: LayerReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

#[test]
fn heads_run_alone_as_among_others() {
    for (name, budget) in [
        ("gemma3n_text", usize::MAX),
        ("gemma3n_text", 0),
        ("gemma4_text_c", usize::MAX),
        ("gemma4_text_c", 0),
        ("longformer_c", usize::MAX),
        ("deepseek_v32", 0),
        ("longcat_flash", 0),
        ("longcat_flash", usize::MAX),
        ("axk2", 0),
        ("dots3_note_text", 0),
        ("glm_moe_dsa", usize::MAX),
        ("glm_moe_dsa", 0),
        ("hy_v4", usize::MAX),
        ("hy_v4", 0),
        ("inkling_text", usize::MAX),
        ("inkling_text", 0),
        ("wav2vec2_conformer", 0),
        ("wavlm", 0),
        ("wav2vec2_bert", 0),
        ("qwen3_omni_moe_audio_encoder", 0),
        ("nemotron_asr_streaming_encoder", 0),
        ("gemma3n_audio", usize::MAX),
        ("gemma3n_audio", 0),
        ("fastspeech2_conformer", 0),
        ("minimax_m3_vl_text", 0),
        ("swin", usize::MAX),
        ("swin", 0),
        ("swinv2", 0),
        ("segformer", usize::MAX),
        ("segformer", 0),
        ("pvt_v2_b", 0),
        ("mobilebert", 0),
        ("mobilebert_b", 0),
        ("hiera", usize::MAX),
        ("hiera", 0),
        ("sam2_hiera_det_model", 0),
        ("cvt", 0),
        ("timesformer", usize::MAX),
        ("timesformer", 0),
        ("videoprism_vision_model", 0),
        ("idefics2_perceiver", usize::MAX),
        ("idefics2_perceiver", 0),
        ("emu3_vqgan", usize::MAX),
        ("emu3_vqgan", 0),
        ("mobilevit", usize::MAX),
        ("mobilevit", 0),
    ] {
        let case = testing::root().join("fixtures/oracle").join(name);
        let model = model_of(&case).expect("is understood");
        let bytes = reference_bytes(&case);
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let no_text = PromptForm::Ids("not asked for".to_owned());
        let request = request_of(&case, &reference);
        let prompt =
            attnscope_prompt::prepare(&request, &no_text, model.spec.limits()).expect("fits");
        let input = input_of(&prompt);
        let mut keeping = Keeping::default();
        let options = Options {
            keep_bytes: Some(budget),
            predicts: false,
        };
        attnscope_run::run(&Cpu, &model, &input, options, &mut keeping, None, &|| false)
            .expect("runs");
        let kept = keeping.0.expect("kept inputs");
        let stack = model.spec.main_stack();
        for layer_idx in 0..stack.n_layers() {
            let query = HeadQuery {
                stack: stack.stack,
                layer_idx,
                head_idx: 1,
                hides_first_key: false,
                weighs_values: false,
            };
            let found = attnscope_run::head_detail(&Cpu, &model, &input, &kept, query, &|| false);
            let found = found.expect("runs");
            let of_stack = match &input.source {
                Some(_) => "decoder.",
                None => "",
            };
            let name = format!("{of_stack}blocks.{layer_idx}.attn.pattern");
            let expected = reference.tensor(&name);
            let values: Vec<f32> = expected
                .expect("a pattern")
                .data()
                .chunks(4)
                .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
                .collect();
            let (n_tokens, grid) = (input.sequence.len(), input.sequence.grid());
            let n = stack.n_positions(layer_idx, n_tokens, grid);
            let n_source = input.source.as_ref().map_or(0, |source| source.len());
            let n_keys = stack.n_keys(layer_idx, (n_tokens, n_source), grid);
            let cells = found.pattern.finest().cells.iter();
            let pairs = cells.zip(&values[n * n_keys..2 * n * n_keys]).enumerate();
            for (idx, (found, expected)) in pairs {
                let is_real = input.sequence.is_real(idx / n_keys);
                let is_near = (found - expected).abs() < 2e-4;
                assert!(
                    !is_real || is_near,
                    "{name} L{layer_idx}: {found} {expected}"
                );
            }
        }
    }
}
