//! Heads over many prompts, against the statistics of single runs and against a search of every cell of whole patterns.

use attnscope_checkpoint::Checkpoint;
use attnscope_checks::stats::{LayerReport, Stat};
use attnscope_compute::ops::Cpu;
use attnscope_forward::{Input, Sequence};
use attnscope_run::{Layers, Options, Tap};
use attnscope_spec::{Model, Stack};
use attnscope_studies::over_prompts::{HeadOver, Labels, MOST_PLACES, OverPrompts};
use testing::oracle_tap::Collected;

fn open(directory: &str) -> Model {
    let checkpoint =
        Checkpoint::open(&testing::root().join("fixtures").join(directory)).expect("opens");
    attnscope_families::read(checkpoint).expect("is understood")
}

/// Prompts of 3 to 22 tokens out of `d_vocab`; every seventh begins with two tokens of padding.
fn prompts(model: &Model, n: usize, has_source: bool) -> Vec<Input> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut sequence = |n: usize, n_pads: usize| {
        let tokens = (0..n).map(|_| random.u32(0..model.spec.d_vocab as u32));
        let tokens: Vec<u32> = tokens.collect();
        let real = (n_pads > 0).then(|| (0..n).map(|idx| idx >= n_pads).collect::<Vec<bool>>());
        Sequence {
            positions: model.spec.positions.positions(&tokens, real.as_deref()),
            tokens,
            real,
            ..Sequence::default()
        }
    };
    let input = |nth: usize| Input {
        source: has_source.then(|| sequence(3 + nth * 5 % 11, 0)),
        sequence: sequence(3 + nth * 3 % 20, if nth % 7 == 6 { 2 } else { 0 }),
    };
    (0..n).map(input).collect()
}

fn over(model: &Model, inputs: &[Input], at_once: usize) -> OverPrompts {
    let label = |id: u32| format!("t{id}");
    let labels = Labels {
        source: &label,
        target: &label,
    };
    let mut over = OverPrompts::new(model);
    for chunk in inputs.chunks(at_once) {
        over.add(&Cpu, model, chunk, labels, &|| false)
            .expect("runs");
    }
    over
}

/// The layers of a run, and with a tap its patterns.
fn run(model: &Model, input: &Input, collected: Option<&mut Collected>) -> Vec<LayerReport> {
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    let mut layers = Layers::default();
    let tap = collected.map(|collected| collected as &mut dyn Tap);
    attnscope_run::run(&Cpu, model, input, options, &mut layers, tap, &|| false).expect("runs");
    layers.0
}

#[test]
fn mean_extremes_and_deciles_are_those_of_all_single_runs() {
    for (directory, has_source) in [("oracle/gpt2/model", false), ("oracle/t5_v11/model", true)] {
        let model = open(directory);
        let inputs = prompts(&model, 45, has_source);
        let found = over(&model, &inputs, 16);
        assert_eq!(found.n_prompts, inputs.len());
        let runs: Vec<Vec<LayerReport>> = inputs.iter().map(|i| run(&model, i, None)).collect();
        let mut n_compared = 0;
        for head in &found.heads {
            let reports = runs.iter().map(|layers| {
                let layer = layers
                    .iter()
                    .find(|layer| layer.place() == head_layer(head));
                &layer.expect("a layer").heads[head.place.head_idx.expect("a head")]
            });
            let reports: Vec<_> = reports.collect();
            let of_kind = |kind| reports.iter().filter(|report| report.kind == kind).count();
            if let Some((kind, n)) = head.kind() {
                assert_eq!(of_kind(Some(kind)), n, "{}", head.place);
            }
            for stat in Stat::ALL
                .iter()
                .filter(|stat| stat.statistic().is_per_head())
            {
                let values = reports.iter().map(|head| head.stats.measured(stat.idx()));
                let all: Vec<Option<f64>> = values.collect();
                let known: Vec<f64> = all.iter().flatten().copied().collect();
                let mut values: Vec<f64> = known.clone();
                values.retain(|value| value.is_finite());
                let spread = head.spread(stat.idx());
                let at = format!("{directory} {} {}", head.place, stat.id());
                assert_eq!(spread.n, values.len(), "{at}");
                assert_eq!(spread.n_absent, inputs.len() - known.len(), "{at}");
                assert_eq!(spread.n_nonfinite, known.len() - values.len(), "{at}");
                let Some(figures) = spread.figures() else {
                    assert!(values.is_empty());
                    continue;
                };
                values.sort_by(f64::total_cmp);
                let n = values.len();
                let near = |a: f64, b: f64| {
                    assert!(
                        (a - b).abs() <= 2e-6 * b.abs().max(1.0),
                        "{at}: {a}, not {b}"
                    );
                };
                near(figures.mean, values.iter().sum::<f64>() / n as f64);
                near(figures.least.0, values[0]);
                near(figures.largest.0, values[n - 1]);
                let of_prompt = |idx: usize| all[idx].expect("a value");
                near(of_prompt(figures.least.1), values[0]);
                near(of_prompt(figures.largest.1), values[n - 1]);
                for (nth, decile) in figures.deciles.into_iter().enumerate() {
                    near(decile, values[((nth + 1) * n).div_ceil(10) - 1]);
                }
                n_compared += 1;
            }
        }
        assert!(n_compared > 100, "{n_compared}");
    }
}

fn head_layer(head: &HeadOver) -> attnscope_spec::Place {
    attnscope_spec::Place {
        head_idx: None,
        ..head.place
    }
}

#[test]
fn the_places_that_excite_a_head_are_those_that_a_search_of_every_cell_finds() {
    for (directory, has_source) in [
        ("oracle/gpt2/model", false),
        ("oracle/bert/model", false),
        ("oracle/t5_v11/model", true),
    ] {
        let model = open(directory);
        let inputs = prompts(&model, 30, has_source);
        let found = over(&model, &inputs, 8);
        let patterns = inputs.iter().map(|input| {
            let mut collected = Collected::default();
            run(&model, input, Some(&mut collected));
            collected.finish()
        });
        let patterns: Vec<_> = patterns.collect();
        for head in &found.heads {
            let (stack, layer_idx) = (head.place.grid(), head.place.layer_idx.expect("a layer"));
            let attention = match stack {
                Stack::Cross => "cross_attn",
                _ => "attn",
            };
            let hook =
                |name: &str| format!("{}blocks.{layer_idx}.{attention}.{name}", stack.prefix());
            let mut best: Vec<(f64, usize, usize, usize)> = Vec::new();
            for (prompt_idx, (input, values)) in inputs.iter().zip(&patterns).enumerate() {
                let source = input.source.as_ref().unwrap_or(&input.sequence);
                let (queries, keys) = match stack {
                    Stack::Cross => (&input.sequence, source),
                    Stack::Encoder => (source, source),
                    _ => (&input.sequence, &input.sequence),
                };
                let cells = queries.len() * keys.len();
                let first_cell = head.place.head_idx.expect("a head") * cells;
                let of_head = |name: &str| &values[&hook(name)][first_cell..first_cell + cells];
                let mut of_prompt: Option<(f64, usize, usize, usize)> = None;
                for query in (0..queries.len()).filter(|q| queries.is_real(*q)) {
                    let row = query * keys.len()..(query + 1) * keys.len();
                    let scores = &of_head("scores")[row.clone()];
                    let n = scores.iter().filter(|s| **s != f32::NEG_INFINITY).count();
                    let real: Vec<usize> = (0..keys.len()).filter(|k| keys.is_real(*k)).collect();
                    for (key, p) in of_head("pattern")[row].iter().enumerate() {
                        let excess = f64::from(*p) - 1.0 / n as f64;
                        let previous = real.iter().rfind(|k| **k < query);
                        let is_out =
                            real.first() == Some(&key) || key == query || previous == Some(&key);
                        let is_more = of_prompt.is_none_or(|(known, ..)| excess > known);
                        if (stack == Stack::Cross || !is_out) && excess > 0.0 && is_more {
                            of_prompt = Some((excess, prompt_idx, query, key));
                        }
                    }
                }
                best.extend(of_prompt);
            }
            best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            best.truncate(MOST_PLACES);
            let of = |one: &attnscope_studies::over_prompts::Excited| {
                (one.excess, one.prompt_idx, one.query_idx, one.key_idx)
            };
            let got: Vec<_> = head.excited.iter().map(of).collect();
            assert_eq!(got, best, "{directory} {}", head.place);
            assert!(!best.is_empty(), "{directory} {}", head.place);
        }
    }
}

#[test]
fn prompts_give_the_same_figures_however_they_are_divided() {
    let model = open("oracle/gpt2/model");
    let inputs = prompts(&model, 20, false);
    let (alone, together) = (over(&model, &inputs, 1), over(&model, &inputs, 20));
    for (a, b) in alone.heads.iter().zip(&together.heads) {
        assert_eq!(a.excited, b.excited);
        for stat in Stat::ALL {
            let [a, b] = [a, b].map(|head| head.spread(stat.idx()).figures());
            assert_eq!(a, b, "{}", stat.id());
        }
    }
}
