//! Readings that change what no small model tells apart by much, against runs of the changed spec.

use attnscope_compute::attention::{AttentionSpec, Scale, SoftmaxAxis};
use attnscope_compute::ops::Cpu;
use attnscope_forward::Input;
use attnscope_run::{Options, Silent};
use attnscope_spec::{BlockSpec, FeedForward, Model, RouterRule};
use testing::judged::{fixture, prompt_of, prompts_in, reference_request};
use testing::opening::opened;

/// Next-token losses of a whole run.
pub fn losses(model: &Model, input: &Input) -> Vec<f32> {
    const OPTIONS: Options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let ran = attnscope_run::run(&Cpu, model, input, OPTIONS, &mut Silent, None, &|| false);
    let predictions = ran.expect("runs").predictions.expect("predicts");
    predictions.next_loss.expect("a next-token loss")
}

fn rule_of(block: &mut BlockSpec) -> &mut RouterRule {
    match &mut block.feed_forward {
        FeedForward::Experts(experts) => &mut experts.rule,
        FeedForward::Dense(_) | FeedForward::None => panic!("experts"),
    }
}

type Change = fn(&mut BlockSpec);

fn attention_of(block: &mut BlockSpec) -> Option<&mut AttentionSpec> {
    Some(&mut block.own_mut()?.attention)
}

/// Compares what readings lose with runs of specs that are changed by hand, in all layers or in one.
fn compare(model: &Model, inputs: &[Input], layers: &[Option<usize>], changes: &[(&str, Change)]) {
    let all = attnscope_run::losses_of_all_readings(&Cpu, model, inputs, &|| false);
    let all = all.expect("runs");
    for (name, change) in changes {
        for only in layers {
            let is_asked = |(reading, _): &&(attnscope_run::Reading, Vec<f32>)| {
                let of = &reading.hypothesis;
                (of.name.as_str(), of.layer_idx) == (*name, *only)
            };
            let (_, found) = all
                .iter()
                .find(is_asked)
                .unwrap_or_else(|| panic!("{name} {only:?}"));
            let mut spec = model.spec.clone();
            let blocks = spec.stacks[0].blocks_mut().iter_mut().enumerate();
            blocks
                .filter(|(idx, _)| only.is_none_or(|only| only == *idx))
                .for_each(|(_, block)| change(block));
            let changed = model.with_spec(spec);
            let expected: Vec<f32> = inputs
                .iter()
                .flat_map(|input| {
                    let mut losses = losses(&changed, input);
                    losses.truncate(input.sequence.len() - 2);
                    losses
                })
                .collect();
            let declared: Vec<f32> = all[0].1.clone();
            assert_ne!(found, &declared, "{name} changes nothing");
            assert_eq!(found.len(), expected.len());
            let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            assert!(off.fold(0.0, f32::max) <= 2e-4, "{name} {only:?}");
        }
    }
}

/// Of experts, softcaps and the parts of heads that rotate, which no small model tells apart by much.
#[test]
fn readings_of_experts_and_softcaps_lose_what_a_run_of_the_changed_spec_loses() {
    let changes: [(&str, Change); 4] = [
        ("one expert more for each token", |block| {
            rule_of(block).n_used += 1;
        }),
        ("weights of experts divided by their sum", |block| {
            rule_of(block).normalises = true;
        }),
        ("a softcap of 5 on scores", |block| {
            block.own_mut().expect("attention").attention.softcap = Some(5.0);
        }),
        ("rotary positions on the first half of each head", |block| {
            let attention = &mut block.own_mut().expect("attention").attention;
            attention.rope.as_mut().expect("rotary positions").d_rotary /= 2;
        }),
    ];
    let model = opened(&fixture("readings/experts"), &[]);
    let texts = prompts_in(&model, &fixture("readings/texts.jsonl"));
    let inputs: Vec<Input> = texts.into_iter().take(2).map(|(_, input)| input).collect();
    compare(&model, &inputs, &[None, Some(1)], &changes);
}

/// Layers without attention, outputs with a gate, several streams, and keys that layers share.
#[test]
fn readings_of_layers_that_do_more_than_attend_lose_what_a_run_of_the_changed_spec_loses() {
    let over_queries: (&str, Change) = ("a softmax over queries", |block| {
        if let Some(attention) = attention_of(block) {
            attention.softmax_axis = SoftmaxAxis::Queries;
        }
    });
    let unscaled: (&str, Change) = ("no scale", |block| {
        if let Some(attention) = attention_of(block) {
            attention.scale = Scale::One;
        }
    });
    let other_base: (&str, Change) = ("0.01 times the rotary base", |block| {
        if let Some(rope) = attention_of(block).and_then(|of| of.rope.as_mut()) {
            rope.theta *= 0.01;
        }
    });
    let cases: [(&str, &[(&str, Change)]); 9] = [
        ("lfm2_b", &[over_queries, unscaled, other_base]),
        ("jamba_b", &[over_queries]),
        ("falcon_h1_b", &[over_queries, unscaled, other_base]),
        ("qwen3_next_b", &[over_queries, unscaled, other_base]),
        ("gemma3n_text_b", &[over_queries]),
        ("gemma4_text_b", &[over_queries]),
        ("hy_v4_b", &[over_queries, unscaled]),
        ("glm5_next", &[over_queries]),
        ("inkling_text_b", &[over_queries]),
    ];
    for (name, changes) in cases {
        let case = fixture(&format!("oracle/{name}"));
        let model = opened(&case.join("model"), &[]);
        let prompts = prompt_of(&model, &reference_request(&case, false));
        let inputs: Vec<Input> = prompts.into_iter().map(|(_, input)| input).collect();
        let mut blocks = model.spec.main_stack().blocks().iter();
        let last = blocks.rposition(|block| block.own().is_some());
        compare(&model, &inputs, &[None, last], changes);
    }
}

/// A block that adds its branches to what its norm gave adds them to the residual where it has no norm.
#[test]
fn a_block_without_its_first_norm_adds_to_the_residual() {
    let case = fixture("oracle/minimax");
    let model = opened(&case.join("model"), &[]);
    let prompts = prompt_of(&model, &reference_request(&case, false));
    let (_, input) = &prompts[0];
    let of = |adds_to_normed: bool| {
        let mut spec = model.spec.clone();
        for block in spec.stacks[0].blocks_mut() {
            assert!(block.adds_to_normed);
            (block.attn_pre, block.mlp_pre) = (None, None);
            block.adds_to_normed = adds_to_normed;
        }
        losses(&model.with_spec(spec), input)
    };
    assert_eq!(of(true), of(false));
}
