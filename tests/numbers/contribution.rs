//! Lengths of what heads write of each key, for every kind of attention, against matrices read by hand and multiplied in f64.

use std::collections::BTreeMap;

use attnscope_checkpoint::Checkpoint;
use attnscope_checks::stats::{LayerReport, Stat};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::ops::Cpu;
use attnscope_forward::{Hook, Input, Sequence};
use attnscope_run::{Layers, Options, Tap};
use attnscope_spec::recurrent::Recurrence;
use attnscope_spec::{Layers as Of, Model, Place, Stack};
use attnscope_studies::effect::{circuits, contributions};
use testing::oracle_tap::Collected;

/// Tokens that occur more than once, and those of a source.
fn input_of(source: Option<Vec<u32>>, n: usize) -> Input {
    let sequence = |tokens: Vec<u32>| Sequence {
        picture: None,
        positions: (0..tokens.len()).collect(),
        tokens,
        real: None,
        ..Sequence::default()
    };
    let tokens = (0..n).map(|i| ((i * i * 5 + 2 * i + 3) % 19) as u32);
    Input {
        source: source.map(sequence),
        sequence: sequence(tokens.collect()),
    }
}

fn run(
    directory: &str,
    source: Option<Vec<u32>>,
    n: usize,
) -> (Model, BTreeMap<String, Vec<f32>>, Vec<LayerReport>) {
    let model = attnscope_families::read(
        Checkpoint::open(&testing::root().join(directory)).expect("opens"),
    )
    .expect("is understood");
    let input = input_of(source, n);
    let mut collected = Collected::default();
    let tap: Option<&mut dyn Tap> = Some(&mut collected);
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    let mut layers = Layers::default();
    attnscope_run::run(&Cpu, &model, &input, options, &mut layers, tap, &|| false).expect("runs");
    (model, collected.finish(), layers.0)
}

/// Column `from` of the output matrix of an attention, from the tensor as it is stored.
fn output_matrix(model: &Model, stack: Stack, layer_idx: usize) -> (AttentionSpec, Vec<Vec<f64>>) {
    let of_stack = model.spec.stack_of(stack);
    let (spec, source) = match &of_stack.layers {
        Of::Recurrent(recurrences) => match &recurrences {
            Recurrence::Writer(writer) => (writer.attention.clone(), writer.combine.clone()),
            Recurrence::Reader(_) => panic!("a reader has no attention"),
        },
        Of::Blocks(blocks) => {
            let block = &blocks[layer_idx];
            if stack == Stack::Cross {
                let cross = block.cross.as_ref().expect("cross-attention");
                (cross.attention.clone(), cross.projections.o.clone())
            } else {
                let own = block.own().expect("attention");
                (own.attention.clone(), own.projections.o.clone())
            }
        }
    };
    let stored = model
        .checkpoint
        .tensors
        .get(&source.weight)
        .expect("stored");
    let values = stored.widen().expect("reads");
    let n_in = source.n_in;
    let n_out = values.len() / n_in;
    let column = |from: usize| -> Vec<f64> {
        let at = |to: usize| {
            if source.is_input_major {
                from * n_out + to
            } else {
                to * n_in + from
            }
        };
        (0..n_out).map(|to| f64::from(values[at(to)])).collect()
    };
    (spec, (0..n_in).map(column).collect())
}

fn compare(directory: &str, source: Option<Vec<u32>>, n: usize) {
    let (model, tensors, layers) = run(directory, source, n);
    assert!(!layers.is_empty());
    for layer in &layers {
        let (stack, layer_idx) = (layer.stack, layer.layer_idx);
        let (spec, columns) = output_matrix(&model, stack, layer_idx);
        let block = Place::layer(stack, layer_idx);
        let hook = |hook: Hook| tensors[&hook.full_name(stack, layer_idx)].clone();
        let (v, pattern) = (hook(Hook::V), hook(Hook::Pattern));
        let told = hook(Hook::ValueNorms);
        let n_keys = v.len() / (spec.n_kv_heads * spec.d_value);
        assert_eq!(told.len(), spec.n_heads * n_keys, "{directory} {block}");
        for (head_idx, head) in layer.heads.iter().enumerate() {
            let kv_head_idx = head_idx * spec.n_kv_heads / spec.n_heads;
            let norm = |key_idx: usize| -> f64 {
                let at = key_idx * spec.n_kv_heads * spec.d_value + kv_head_idx * spec.d_value;
                let value = &v[at..at + spec.d_value];
                let mut written = vec![0.0; columns[0].len()];
                for (i, x) in value.iter().enumerate() {
                    let column = &columns[head_idx * spec.d_value + i];
                    for (to, w) in written.iter_mut().zip(column) {
                        *to += w * f64::from(*x);
                    }
                }
                written.iter().map(|x| x * x).sum::<f64>().sqrt()
            };
            let norms: Vec<f64> = (0..n_keys).map(norm).collect();
            for (key_idx, expected) in norms.iter().enumerate() {
                let place = format!("{directory} {block} head {head_idx} key {key_idx}");
                let tolerance = 1e-5 * expected + 1e-6;
                for found in [
                    head.summary.value_norms[key_idx],
                    told[head_idx * n_keys + key_idx],
                ] {
                    let apart = (f64::from(found) - expected).abs();
                    assert!(apart <= tolerance, "{place}: {found} for {expected}");
                }
            }
            let n_queries = pattern.len() / (spec.n_heads * n_keys);
            let of_head = &pattern[head_idx * n_queries * n_keys..][..n_queries * n_keys];
            let rows = of_head.chunks(n_keys);
            let carried: Vec<Vec<f64>> = rows
                .map(|row| {
                    row.iter()
                        .zip(&norms)
                        .map(|(p, norm)| f64::from(*p) * norm)
                        .collect()
                })
                .collect();
            let total: f64 = carried.iter().flatten().sum();
            let first: f64 = carried.iter().map(|row| row[0]).sum();
            let entropy = |row: &Vec<f64>| -> f64 {
                let sum: f64 = row.iter().sum();
                let shares = row.iter().map(|c| c / sum).filter(|share| *share > 0.0);
                shares.map(|share| -share * share.ln()).sum()
            };
            let n_rows = carried.len() as f64;
            for (stat, expected) in [
                (Stat::ContributionFirst, first / total),
                (Stat::ContributionTotal, total / n_rows),
                (
                    Stat::ContributionEntropy,
                    carried.iter().map(entropy).sum::<f64>() / n_rows,
                ),
            ] {
                let found = head.stats.of(stat);
                let apart = (found - expected).abs();
                assert!(
                    apart <= 2e-5 * expected.abs() + 2e-6,
                    "{directory} {block} head {head_idx} {stat:?}: {found} for {expected}"
                );
            }
        }
    }
}

#[test]
fn grouped_keys_write_by_each_heads_own_columns() {
    compare("fixtures/oracle/llama/model", None, 14);
}

#[test]
fn values_of_a_latent_vector_are_weighed() {
    compare("fixtures/oracle/deepseek_v3/model", None, 12);
}

#[test]
fn heads_with_learned_sinks_and_windows_are_weighed() {
    compare("fixtures/oracle/gpt_oss/model", None, 21);
}

#[test]
fn cross_attention_weighs_the_encoders_values() {
    for family in ["mbart", "t5_v11"] {
        let source = vec![3, 8, 2, 9, 4, 11, 7];
        compare(&format!("fixtures/oracle/{family}/model"), Some(source), 10);
    }
}

#[test]
fn a_recurrent_decoders_attention_is_weighed_by_what_its_context_adds() {
    compare("fixtures/seq2seq/scaled", Some(vec![4, 9, 6, 12, 5]), 7);
}

#[test]
fn a_norm_over_all_heads_leaves_no_length_to_a_single_value() {
    let (model, collected, layers) = run("fixtures/oracle/bitnet/model", None, 9);
    let told = collected.keys().find(|name| name.ends_with("value_norms"));
    assert_eq!(told, None);
    let mut heads = layers.iter().flat_map(|layer| &layer.heads);
    assert!(heads.all(|head| head.summary.value_norms.is_empty()));
    let said = contributions(&Cpu, &model, &input_of(None, 9), &|| false);
    let said = said.expect_err("is refused").to_string();
    assert!(said.contains("a norm of all heads"), "{said}");
    let said = match circuits(&model, &|_| true, &mut |_, _| {}, &|| false) {
        Ok(_) => panic!("is not refused"),
        Err(said) => said.to_string(),
    };
    assert!(said.contains("a norm of all heads"), "{said}");
}

#[test]
fn a_softmax_over_queries_is_weighed_as_it_is() {
    compare("fixtures/degenerate", None, 16);
}

/// What global tokens look at is as long as their own maps make it: the row's own figure is compared with f64 elsewhere.
#[test]
fn rows_of_global_tokens_carry_what_they_look_at() {
    let directory = "fixtures/oracle/longformer_d/model";
    let (model, tensors, layers) = run(directory, None, 12);
    let input = Input {
        source: None,
        sequence: Sequence::of_text(
            (0..12)
                .map(|i| ((i * i * 5 + 2 * i + 3) % 19) as u32)
                .collect(),
            (0..12).collect(),
        ),
    };
    let found =
        attnscope_studies::effect::contributions(&Cpu, &model, &input, &|| false).expect("runs");
    let mut found = found.iter();
    let mut n_apart = 0;
    for layer in &layers {
        let pattern = &tensors[&Hook::Pattern.full_name(layer.stack, layer.layer_idx)];
        for (head_idx, head) in layer.heads.iter().enumerate() {
            let rows = &head.summary.rows;
            let total: f64 = rows.iter().map(|row| f64::from(row.contribution)).sum();
            let told = found.next().expect("one for each head").total * rows.len() as f64;
            assert!((told - total).abs() < 1e-4 * total, "{told} {total}");
            // With the lengths of the other tokens the first row would be another.
            let first = pattern[head_idx * 144..][..12].iter();
            let by_others = first
                .zip(&head.summary.value_norms)
                .map(|(p, norm)| p * norm);
            let by_others: f32 = by_others.sum();
            n_apart += usize::from((by_others - rows[0].contribution).abs() > 0.01 * by_others);
        }
    }
    assert!(n_apart >= 6, "{n_apart}");
}
