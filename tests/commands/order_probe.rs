//! Shuffled tokens on checkpoints: healthy ones move, one whose positions are gone does not, and one that has none says so.

use attnscope_checks::{OrderProbe, Probed, Severity, Status};
use attnscope_compute::attention::Bias;
use attnscope_compute::ops::Cpu;
use attnscope_spec::Model;
use testing::checkpoint_copy::{Copy, Stored};
use testing::judged::{fixture, ids, judged, text};
use testing::opening::opened;

fn order_of(model: &Model, prompt: &[u32]) -> OrderProbe {
    let input = &ids(model, prompt)[0].1;
    match attnscope_run::probe_order(&Cpu, model, input, |_| {}, &|| false).expect("runs") {
        Probed::Ran(probe) => probe,
        Probed::Not(why) | Probed::Untried(why) | Probed::Undecided(why) => panic!("{why}"),
    }
}

#[test]
fn positions_that_are_all_alike_are_found_at_the_first_layer() {
    let copy = Copy::of("gpt2");
    let prompt: Vec<u32> = (3..15).collect();
    let healthy = order_of(&opened(copy.path(), &[]), &prompt);
    assert!(healthy.first.by_order > 1e-3, "{healthy:?}");
    copy.weights(|weights| {
        let positions = weights
            .get_mut("transformer.wpe.weight")
            .expect("positions");
        let n: usize = positions.shape.iter().product();
        *positions = Stored::f32(&positions.shape.clone(), &vec![0.0; n]);
    });
    let model = opened(copy.path(), &[]);
    let probe = order_of(&model, &prompt);
    // Under a causal mask, the second layer knows how many tokens came before.
    assert!(
        probe.first.by_order < 1e-6 && probe.first.by_content > 1e-2,
        "{probe:?}"
    );
    let said = judged(&model, &ids(&model, &prompt));
    let finding = said.one("order-blind");
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.place.layer_idx, Some(0));
}

#[test]
fn an_encoder_without_positions_is_blind_as_a_whole() {
    let mut model = opened(&fixture("oracle/bert/model"), &[]);
    let prompt: Vec<u32> = (5..17).collect();
    assert!(order_of(&model, &prompt).output.by_order > 1e-3);
    let mut spec = model.spec.clone();
    spec.stacks[0].embed.positions = None;
    for block in spec.stacks[0].blocks_mut() {
        let own = block.own_mut().expect("attention");
        own.attention.rope = None;
        own.attention.bias = Bias::None;
    }
    model = model.with_spec(spec);
    let probe = order_of(&model, &prompt);
    assert!(probe.output.by_order < 1e-5, "{probe:?}");
    // Nothing in this spec says that there should be any.
    assert!(probe.declares_none);
    let said = judged(&model, &ids(&model, &prompt));
    assert_eq!(said.one("order-blind").severity, Severity::Info);
}

#[test]
fn a_prompt_that_cannot_be_shuffled_says_so() {
    let model = opened(&fixture("oracle/gpt2/model"), &[]);
    let said = judged(&model, &ids(&model, &[4, 4, 4, 9]));
    assert_eq!(said.status("order-blind"), Status::NotApplicable);
    assert!(said.of("order-blind").why.contains("are identical"));
}

#[test]
fn a_trained_model_notices_the_order() {
    let model = opened(&fixture("healthy"), &[]);
    let said = judged(
        &model,
        &text(
            &model,
            "one day a small dog went to the park with a red ball",
        ),
    );
    assert_eq!(
        said.status("order-blind"),
        Status::Passed,
        "{}",
        said.of("order-blind").why
    );
}
