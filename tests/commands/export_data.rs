//! Numbers in exported tables against reports, traces, checkpoints and verdicts: the same values by other ways.

use serde_json::Value;
use testing::checkpoint_copy::{Copy, attnscope, original, text, weights};
use testing::running::{TOKENS, ids, ran, report, trace};
use testing::tables::{Row, part};

/// The table that a plot of a model on the usual tokens writes.
fn table(copy: &Copy, arguments: &[&str]) -> Vec<u8> {
    let path = copy.path().to_str().expect("a path");
    plotted(copy, &[&[path, "--tokens", TOKENS], arguments].concat())
}

fn plotted(copy: &Copy, arguments: &[&str]) -> Vec<u8> {
    let target = copy.output("plot.svg");
    let to = target.to_str().expect("a path");
    ran(&[&["plot", "--output", to, "--force"], arguments].concat());
    std::fs::read(target.with_extension("csv")).expect("written")
}

/// What reading digits as a double may lose.
const ROUNDING: f64 = 1e-15;

fn near(found: f64, expected: f64, tolerance: f64) -> bool {
    found == expected
        || (found.is_nan() && expected.is_nan())
        || (found - expected).abs() <= tolerance * expected.abs().max(1.0)
}

fn number(value: &Value) -> f64 {
    match value {
        Value::String(word) if word == "NaN" => f64::NAN,
        Value::String(word) if word == "Infinity" => f64::INFINITY,
        Value::String(word) if word == "-Infinity" => f64::NEG_INFINITY,
        value => value.as_f64().expect("a number"),
    }
}

fn label(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn the_overview_holds_the_statistic_of_every_layer_and_head_as_reports_have_it() {
    for (family, statistic) in [
        ("gpt2", "entropy_relative"),
        ("llama", "score_var_ratio"),
        ("bert", "max_abs_score"),
        ("gpt2", "resid_norm"),
    ] {
        let copy = Copy::of(family);
        let report = report(&copy, &[]);
        let csv = table(&copy, &["--statistic", statistic]);
        let layers = report["prompts"][0]["layers"].as_array().expect("layers");
        let of_layers = part(&csv, "layer");
        assert_eq!(of_layers.len(), layers.len());
        let mut of_heads = part(&csv, "head").into_iter();
        for (layer, row) in layers.iter().zip(&of_layers) {
            assert_eq!(
                row.index("layer") as u64,
                layer["layer"].as_u64().expect("a layer")
            );
            assert_eq!(row.text("statistic"), statistic);
            let expected = number(&layer["stats"][statistic]);
            assert!(
                near(row.number("value"), expected, ROUNDING),
                "{family} {statistic}"
            );
            for head in layer["heads"].as_array().expect("heads") {
                let Some(expected) = head["stats"].get(statistic) else {
                    assert_eq!(statistic, "resid_norm", "a statistic of layers alone");
                    continue;
                };
                let row = of_heads.next().expect("a head");
                assert_eq!(
                    row.index("head") as u64,
                    head["head"].as_u64().expect("a head")
                );
                assert!(
                    near(row.number("value"), number(expected), ROUNDING),
                    "{family} {statistic}"
                );
            }
        }
        assert!(of_heads.next().is_none());
    }
}

#[test]
fn the_overview_of_two_stacks_holds_all_three_grids() {
    let model = original("t5_v11");
    let model = model.to_str().expect("a path");
    let tokens = ["--tokens", "3,4,5,6,7,8", "--target-tokens", "0,5,9,7"];
    let copy = Copy::of("gpt2");
    let report = ran(&[&["report", model], &tokens[..]].concat());
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let csv = plotted(&copy, &[&[model], &tokens[..]].concat());
    let layers = report["prompts"][0]["layers"].as_array().expect("layers");
    let place = |row: &Row| (row.text("stack").to_owned(), row.index("layer"));
    let found: std::collections::BTreeMap<_, f64> = part(&csv, "layer")
        .iter()
        .map(|row| (place(row), row.number("value")))
        .collect();
    assert_eq!(found.len(), layers.len());
    for layer in layers {
        let at = (
            label(&layer["stack"]).to_owned(),
            layer["layer"].as_u64().expect("a layer") as usize,
        );
        let expected = number(&layer["stats"]["entropy_relative"]);
        assert!(near(found[&at], expected, ROUNDING), "{at:?}");
    }
}

/// Scores and pattern of one head, from a trace.
fn traced(copy: &Copy, layer: usize, head: usize) -> [Vec<f32>; 2] {
    let (_, tensors) = trace(copy, &["--hooks", "scores,pattern"]);
    let n = ids().len();
    ["scores", "pattern"].map(|hook| {
        let stored = &tensors[&format!("blocks.{layer}.attn.{hook}")];
        let values = stored.values();
        let n_cells = n * n;
        assert_eq!(values.len() % n_cells, 0, "{:?}", stored.shape);
        values[head * n_cells..(head + 1) * n_cells].to_vec()
    })
}

#[test]
fn cells_of_a_head_are_those_of_a_trace() {
    for family in ["gpt2", "llama", "bert"] {
        let copy = Copy::of(family);
        let [scores, pattern] = traced(&copy, 1, 2);
        let place = [
            "--panel", "head", "--layer", "1", "--head", "2", "--query", "7",
        ];
        let csv = table(&copy, &place);
        let n = ids().len();
        let cells = part(&csv, "cell");
        assert_eq!(cells.len(), n * n);
        let row = part(&csv, "row");
        assert_eq!(row.len(), n);
        assert!(row.iter().all(|cell| cell.index("query") == 7));
        for cell in cells.iter().chain(&row) {
            let (query, key) = (cell.index("query"), cell.index("key"));
            assert_eq!(
                (cell.index("query_last"), cell.index("key_last")),
                (query, key)
            );
            assert_eq!(cell.text("query_token"), ids()[query].to_string());
            let at = query * n + key;
            let expected = [f64::from(scores[at]), f64::from(pattern[at])];
            for (column, expected) in ["score", "probability"].into_iter().zip(expected) {
                let found = cell.number(column);
                assert!(
                    near(found, expected, 1e-5),
                    "{family} {query} {key} {column}: {found} {expected}"
                );
            }
        }
        // The margins, from the pattern itself.
        for row in part(&csv, "query") {
            let query = row.index("query");
            let of = pattern[query * n..(query + 1) * n]
                .iter()
                .map(|p| f64::from(*p));
            let entropy: f64 = of.clone().filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum();
            assert!(
                near(row.number("entropy"), entropy, 1e-5),
                "{family} {query}"
            );
            assert!(
                near(row.number("row_sum"), of.sum(), 1e-5),
                "{family} {query}"
            );
        }
        for row in part(&csv, "key") {
            let key = row.index("key");
            let sum: f64 = (0..n)
                .map(|query| f64::from(pattern[query * n + key]))
                .sum();
            let n_seeing = (0..n)
                .filter(|query| scores[query * n + key].is_finite())
                .count();
            let expected = sum / n_seeing as f64;
            assert!(
                near(row.number("received"), expected, 1e-5),
                "{family} {key}"
            );
        }
    }
}

#[test]
fn without_the_first_key_the_other_cells_share_what_it_had() {
    let copy = Copy::of("gpt2");
    let [_, pattern] = traced(&copy, 0, 1);
    let arguments = ["--panel", "head", "--head", "1", "--without-first-key"];
    let n = ids().len();
    for cell in part(&table(&copy, &arguments), "cell") {
        let (query, key) = (cell.index("query"), cell.index("key"));
        let first = f64::from(pattern[query * n]);
        let expected = match (key, query) {
            (0, _) | (_, 0) => 0.0,
            _ => f64::from(pattern[query * n + key]) / (1.0 - first),
        };
        assert!(
            near(cell.number("probability"), expected, 1e-5),
            "{query} {key}"
        );
    }
}

#[test]
fn a_map_zoomed_out_says_what_its_cells_cover() {
    let copy = Copy::of("gpt2");
    let n = 48;
    let tokens: Vec<String> = (0..n).map(|i| (i * 7 % 90 + 3).to_string()).collect();
    let tokens = tokens.join(",");
    let path = original("llama");
    let path = path.to_str().expect("a path");
    let arguments = [
        path, "--tokens", &tokens, "--panel", "head", "--size", "80x24",
    ];
    let csv = plotted(&copy, &arguments);
    let cells = part(&csv, "cell");
    let size = cells[0].index("query_last") - cells[0].index("query") + 1;
    assert!(size > 1, "the map is too large for the panel");
    let whole = plotted(&copy, &[&arguments[..6], &["200x60"]].concat());
    let single = part(&whole, "cell");
    assert_eq!(single.len(), n * n);
    for cell in &cells {
        let within = |row: &&Row| {
            (cell.index("query")..=cell.index("query_last")).contains(&row.index("query"))
                && (cell.index("key")..=cell.index("key_last")).contains(&row.index("key"))
        };
        let largest = single
            .iter()
            .filter(within)
            .map(|row| row.number("probability"));
        let largest = largest.fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(cell.number("probability"), largest, "{cell:?}");
    }
    let n_covered: usize = cells
        .iter()
        .map(|cell| {
            (cell.index("query_last") - cell.index("query") + 1)
                * (cell.index("key_last") - cell.index("key") + 1)
        })
        .sum();
    assert_eq!(n_covered, n * n);
}

#[test]
fn scores_hold_statistics_histogram_and_rows() {
    let copy = Copy::of("gpt2");
    let report = report(&copy, &[]);
    let csv = table(&copy, &["--panel", "scores", "--layer", "2", "--head", "3"]);
    let layer = &report["prompts"][0]["layers"][2];
    let stats = part(&csv, "statistic");
    assert_eq!(
        stats.len(),
        layer["stats"].as_object().expect("stats").len()
    );
    for row in &stats {
        let id = row.text("statistic");
        let expected = match layer["heads"][3]["stats"].get(id) {
            Some(of_head) => of_head,
            None => &layer["stats"][id],
        };
        if expected.is_null() {
            assert_eq!(row.text("value"), "", "{id}");
            continue;
        }
        assert!(
            near(row.number("value"), number(expected), ROUNDING),
            "{id}"
        );
        let heads = layer["heads"].as_array().expect("heads");
        let of_layer = heads
            .iter()
            .filter_map(|head| head["stats"].get(id))
            .map(number);
        let of_layer = of_layer.filter(|v| v.is_finite());
        if row.text("layer_max").is_empty() {
            assert_eq!(of_layer.count(), 0, "{id}");
        } else {
            let largest = of_layer.fold(f64::NEG_INFINITY, f64::max);
            assert!(near(row.number("layer_max"), largest, ROUNDING), "{id}");
        }
    }
    let [scores, pattern] = traced(&copy, 2, 3);
    let bins = part(&csv, "bin");
    let finite: Vec<f64> = scores
        .iter()
        .filter(|s| s.is_finite())
        .map(|s| f64::from(*s))
        .collect();
    let n_counted: usize = bins.iter().map(|bin| bin.index("count")).sum();
    assert_eq!(n_counted, finite.len());
    let area: f64 = bins
        .iter()
        .map(|bin| bin.number("density") * (bin.number("to") - bin.number("from")))
        .sum();
    assert!(near(area, 1.0, 1e-9), "{area}");
    // A score at the edge of a bin may fall to either side by rounding.
    let edge = 1e-5;
    for bin in &bins {
        let (from, to) = (bin.number("from"), bin.number("to"));
        let within = |margin: f64| {
            let inside = finite
                .iter()
                .filter(|s| **s > from - margin && **s < to + margin);
            inside.count()
        };
        let n = bin.index("count");
        assert!((within(-edge)..=within(edge)).contains(&n), "{bin:?}");
    }
    let n = ids().len();
    let rows = part(&csv, "query");
    assert_eq!(rows.len(), n);
    for (query, row) in rows.iter().enumerate() {
        assert_eq!(row.index("visible_keys"), query + 1);
        let largest = pattern[query * n..(query + 1) * n]
            .iter()
            .copied()
            .fold(0.0, f32::max);
        assert!(near(
            row.number("max_probability"),
            f64::from(largest),
            1e-6
        ));
        let seen: Vec<f64> = scores[query * n..=query * n + query]
            .iter()
            .map(|s| f64::from(*s))
            .collect();
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        assert!(near(row.number("score_mean"), mean, 1e-5), "{query}");
    }
}

#[test]
fn tokens_hold_what_a_query_gives_and_the_predictions() {
    let copy = Copy::of("gpt2");
    let n = ids().len();
    let [_, pattern] = traced(&copy, 1, 0);
    let place = [
        "--panel", "tokens", "--layer", "1", "--query", "6", "--key", "2",
    ];
    let csv = table(&copy, &place);
    let received = table(&copy, &[&place[..], &["--receives"]].concat());
    for (csv, is_given) in [(&csv, true), (&received, false)] {
        let tokens = part(csv, "token");
        assert_eq!(tokens.len(), n);
        for (idx, row) in tokens.iter().enumerate() {
            let (query, key) = if is_given { (6, idx) } else { (idx, 2) };
            assert_eq!((row.index("query"), row.index("key")), (query, key));
            assert_eq!((row.index("id"), row.index("max_of")), (ids()[idx], 1));
            let expected = f64::from(pattern[query * n + key]);
            assert!(near(row.number("probability"), expected, 1e-5), "{idx}");
        }
    }
    let (_, tensors) = trace(&copy, &["--hooks", "logits"]);
    let logits = tensors["logits"].values();
    let d_vocab = tensors["logits"].shape[1];
    let rows = part(&csv, "prediction");
    assert_eq!(rows.len(), 3 * n);
    let mut losses = Vec::new();
    for (idx, logits) in logits.chunks(d_vocab).enumerate() {
        let of: Vec<f64> = logits.iter().map(|v| f64::from(*v)).collect();
        let sum = of.iter().map(|v| v.exp()).sum::<f64>();
        let mut order: Vec<usize> = (0..d_vocab).collect();
        order.sort_by(|a, b| of[*b].total_cmp(&of[*a]));
        for (rank, row) in rows[3 * idx..3 * idx + 3].iter().enumerate() {
            assert_eq!((row.index("position"), row.index("rank")), (idx, rank + 1));
            assert_eq!(row.index("predicted_id"), order[rank], "{idx} {rank}");
            let expected = of[order[rank]].exp() / sum;
            assert!(near(row.number("predicted_probability"), expected, 1e-5));
        }
        if let Some(next) = ids().get(idx + 1) {
            losses.push(sum.ln() - of[*next]);
            assert!(near(rows[3 * idx].number("loss"), losses[idx], 1e-5));
        } else {
            assert_eq!(rows[3 * idx].text("loss"), "");
        }
    }
    let whole = part(&csv, "text");
    let loss = losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(near(whole[0].number("loss"), loss, 1e-6));
    assert!(near(whole[0].number("perplexity"), loss.exp(), 1e-5));
}

#[test]
fn the_model_holds_every_tensor_as_the_file_has_it() {
    let copy = Copy::of("gpt2");
    let csv = table(&copy, &["--panel", "model"]);
    let stored = weights(&copy.weight_bytes());
    let rows = part(&csv, "tensor");
    assert_eq!(rows.len(), stored.len());
    let mut n_with_figures = 0;
    for row in &rows {
        let tensor = &stored[row.text("name")];
        let shape: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
        assert_eq!(row.text("shape"), shape.join("×"));
        assert_eq!(row.index("bytes"), tensor.bytes.len());
        assert_eq!(row.index("elements"), tensor.bytes.len() / 4);
        if row.text("min").is_empty() {
            continue;
        }
        n_with_figures += 1;
        let values = tensor.values();
        let least = values.iter().copied().fold(f32::INFINITY, f32::min);
        let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(row.number("min") as f32, least);
        assert_eq!(row.number("max") as f32, most);
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len() as f64;
        assert!(near(row.number("mean"), mean, 1e-9));
        assert_eq!(row.index("n_nan"), 0);
    }
    assert_eq!(n_with_figures, 1, "those of the selected one");
    let knobs = part(&csv, "knob");
    let heads = knobs
        .iter()
        .find(|row| row.text("name") == "n_heads")
        .expect("a knob");
    assert_eq!(
        (heads.text("value"), heads.text("origin")),
        ("4", "config n_head")
    );
}

#[test]
fn checks_hold_the_verdicts_that_check_has() {
    let root = testing::root();
    let copy = Copy::of("gpt2");
    for name in ["dropped_mask", "wrong_axis", "correct"] {
        let trace = root.join(format!("fixtures/captured/{name}.safetensors"));
        let trace = trace.to_str().expect("a path");
        let csv = plotted(&copy, &[trace, "--panel", "checks"]);
        let judged = attnscope(&["check", trace, "--format", "json"]);
        assert_ne!(judged.status.code(), Some(2), "{}", text(&judged.stderr));
        let judged: Value = serde_json::from_slice(&judged.stdout).expect("JSON");
        let target = &judged["targets"][0];
        let checks = part(&csv, "check");
        let of_check = target["checks"].as_array().expect("checks");
        assert_eq!(checks.len(), of_check.len(), "{name}");
        for expected in of_check {
            let row = checks
                .iter()
                .find(|row| row.text("check") == label(&expected["id"]));
            let row = row.expect("a check");
            assert_eq!(row.text("status"), label(&expected["status"]), "{name}");
        }
        let findings = part(&csv, "finding");
        let expected = target["findings"].as_array().expect("findings");
        assert_eq!(findings.len(), expected.len(), "{name}");
        for (row, finding) in findings.iter().zip(expected) {
            for column in ["check", "severity", "unit", "evidence", "advice"] {
                assert_eq!(row.text(column), label(&finding[column]), "{name}");
            }
            for column in ["value", "threshold"] {
                assert!(
                    near(row.number(column), number(&finding[column]), ROUNDING),
                    "{name}"
                );
            }
            for column in ["layer", "head", "query", "key"] {
                let place = finding["place"][column].as_u64();
                let expected = place.map_or(String::new(), |idx| idx.to_string());
                assert_eq!(row.text(column), expected, "{name} {column}");
            }
        }
    }
}
