//! `attnscope verify`: exit codes, the table, the JSON, and what is refused.

use serde_json::Value;
use testing::checkpoint_copy::{Copy, attnscope, original, text};
use testing::refusal::{PROMPT, assert_says, misused, refused};

/// Runs `verify` on a small checkpoint; the exit code and standard output.
fn verify(family: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let model = original(family);
    let model = model.to_str().expect("a path");
    let output = attnscope(&[&["verify", model, "--quiet"], PROMPT, arguments].concat());
    let said = text(&output.stderr);
    assert_eq!(said, "", "--quiet");
    (output.status.code(), text(&output.stdout))
}

fn json(family: &str, arguments: &[&str]) -> (Option<i32>, Value) {
    let (code, found) = verify(family, &[&["--format", "json"], arguments].concat());
    (code, serde_json::from_str(&found).expect("JSON"))
}

/// Names of the hooks that are beyond the floor.
fn beyond(found: &Value) -> Vec<&str> {
    let hooks = found["hooks"].as_array().expect("hooks").iter();
    let beyond = hooks.filter(|hook| hook["within"] == false);
    beyond
        .map(|hook| hook["hook"].as_str().expect("a name"))
        .collect()
}

#[test]
fn engines_that_agree_end_with_0_and_say_which_hook_is_worst() {
    let (code, found) = verify("gpt2", &[]);
    assert_eq!(code, Some(0), "{found}");
    let lines: Vec<&str> = found.lines().collect();
    let (table, conclusion) = lines.split_at(lines.len() - 3);
    let start = |line: &&str| line.starts_with("blocks.1.attn.pattern ");
    assert_eq!(
        table.iter().filter(|line| start(line)).count(),
        1,
        "{found}"
    );
    let columns = table[0].find("largest value").expect("a column") + "largest value".len();
    for line in &table[1..] {
        let end = line[..columns].chars().next_back();
        assert!(
            end.is_some_and(|c| c.is_ascii_digit()),
            "not aligned: {line}"
        );
        assert!(!line.contains("beyond"), "{line}");
    }
    assert_eq!(
        table.iter().filter(|line| line.ends_with("worst")).count(),
        1
    );
    assert_eq!(conclusion[0], "");
    assert!(
        conclusion[1].starts_with("cpu and candle agree within the noise floor: "),
        "{found}"
    );
    assert!(conclusion[2].starts_with("worst: "), "{found}");
}

#[test]
fn a_difference_beyond_the_floor_ends_with_1_and_is_named() {
    let (code, found) = json("gpt2", &["--floor", "1e-12", "--floor-pattern", "1"]);
    assert_eq!(code, Some(1));
    assert_eq!(found["within"], false);
    let beyond = beyond(&found);
    assert_eq!(found["first_beyond"], beyond[0]);
    assert!(beyond.contains(&"logits"), "{beyond:?}");
    assert!(
        beyond.iter().all(|name| !name.ends_with("pattern")),
        "{beyond:?}"
    );
    let (code, words) = verify("gpt2", &["--floor", "1e-12", "--floor-pattern", "1"]);
    assert_eq!(code, Some(1));
    let first = format!("\nfirst: {}, ", beyond[0]);
    assert!(words.contains(&first), "{words}");
    assert!(words.contains("differ beyond the noise floor"), "{words}");
    assert!(words.contains("  beyond, worst\n"), "{words}");
    // The pattern has a bound of its own.
    let (code, found) = json("gpt2", &["--floor-pattern", "1e-12"]);
    let beyond = self::beyond(&found);
    assert_eq!(code, Some(1));
    assert!(
        beyond.iter().all(|name| name.ends_with("pattern")),
        "{beyond:?}"
    );
}

#[test]
fn the_json_has_a_place_and_both_values_for_every_hook_that_differs() {
    let (code, found) = json("t5_v11", &["--target-tokens", "0,7,3,9"]);
    assert_eq!(code, Some(0));
    assert_eq!(found["version"], 1);
    assert_eq!(found["engines"]["reference"], "cpu");
    assert_eq!(found["engines"]["other"], "candle");
    assert_eq!(found["tokens"].as_array().map(Vec::len), Some(6));
    assert_eq!(found["decoder_tokens"], serde_json::json!([0, 7, 3, 9]));
    assert_eq!(found["floor"]["pattern"], 2e-4);
    assert_eq!(found["floor"]["relative"], 2e-3);
    assert!(found["first_beyond"].is_null());
    let hooks = found["hooks"].as_array().expect("hooks");
    for hook in hooks {
        let name = hook["hook"].as_str().expect("a name");
        let number = |key: &str| {
            hook[key]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}: {key}"))
        };
        let differs = number("difference") > 0.0;
        assert_eq!(hook["place"].is_object(), differs, "{name}");
        if differs {
            let apart = (number("reference") - number("other")).abs();
            assert!((apart - number("difference")).abs() < 1e-12, "{name}");
            let share = number("difference") / number("largest_value");
            assert!((share - number("relative")).abs() < 1e-12, "{name}");
            let measured = if name.ends_with("pattern") {
                number("difference") / 2e-4
            } else {
                share / 2e-3
            };
            assert!((measured - number("of_floor")).abs() < 1e-9, "{name}");
        }
        let keys: &[&str] = match name.rsplit('.').next().expect("a part") {
            "scores" | "pattern" => &["head", "query", "key"],
            "q" | "rot_q" | "z" => &["head", "position", "value"],
            "k" | "rot_k" | "v" => &["kv_head", "position", "value"],
            "logits" => &["position", "token"],
            _ => &["position", "value"],
        };
        if let Some(place) = hook["place"].as_object() {
            assert!(
                keys.iter().all(|key| place.contains_key(*key)),
                "{name}: {place:?}"
            );
            assert_eq!(place.len(), keys.len(), "{name}: {place:?}");
        }
    }
    let worst = found["worst"].as_str().expect("a name");
    let share = |hook: &Value| hook["of_floor"].as_f64().expect("a share");
    let most = hooks.iter().map(share).fold(0.0, f64::max);
    let worst = hooks
        .iter()
        .find(|hook| hook["hook"] == worst)
        .expect("the worst");
    assert_eq!(share(worst), most);
    let cross = |hook: &&Value| hook["stack"] == "cross" && hook["layer"] == 1;
    assert!(hooks.iter().filter(cross).count() >= 8, "cross-attention");
}

#[test]
fn the_cpu_is_compared_with_candle_whichever_of_the_two_is_named() {
    let (_, unnamed) = json("gpt2", &[]);
    for device in ["cpu", "candle", "auto"] {
        // Where there is a graphics card, auto is that.
        if device == "auto" && cfg!(feature = "cuda") {
            continue;
        }
        let model = original("gpt2");
        let model = model.to_str().expect("a path");
        let all = ["verify", model, "--format", "json", "--device", device];
        let output = attnscope(&[&all[..], PROMPT].concat());
        assert_eq!(output.status.code(), Some(0), "{device}");
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(found, unnamed, "{device}");
    }
}

#[test]
fn what_ifs_apply_to_both_engines() {
    let what_if = ["--what-if", "drop=zero@L1H1"];
    let (code, found) = json("gpt2", &what_if);
    assert_eq!(code, Some(0));
    assert_eq!(found["what_if"], serde_json::json!(["drop=zero@L1H1"]));
    let (_, plain) = json("gpt2", &[]);
    let largest = |found: &Value| {
        let hooks = found["hooks"].as_array().expect("hooks").clone();
        let logits = hooks.into_iter().find(|hook| hook["hook"] == "logits");
        logits.expect("logits")["largest_value"].clone()
    };
    assert_ne!(largest(&found), largest(&plain), "nothing was supposed");
}

#[test]
fn the_same_input_gives_the_same_bytes_and_a_file_is_replaced_only_when_asked() {
    let copy = Copy::of("llama");
    let path = copy.path().to_str().expect("a path");
    let target = copy.output("verified.json");
    let target = target.to_str().expect("a path");
    let write = |more: &[&str]| {
        let all = ["verify", path, "--format", "json", "--output", target];
        attnscope(&[&all[..], PROMPT, more].concat())
    };
    assert_eq!(write(&["--threads", "1"]).status.code(), Some(0));
    let first = std::fs::read(target).expect("the file");
    let refused = write(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert_says(&text(&refused.stderr), &["verified.json", "--force"]);
    assert_eq!(write(&["--force", "--threads", "2"]).status.code(), Some(0));
    assert_eq!(std::fs::read(target).expect("the file"), first);
}

#[test]
fn what_holds_no_model_is_refused_in_one_line() {
    let fixtures = testing::root().join("fixtures");
    for trace in [
        "captured/correct.safetensors",
        "captured/pattern_only.npz",
        "alignment/de.npz",
    ] {
        let said = refused("verify", &fixtures.join(trace), PROMPT);
        assert_says(
            &said,
            &[trace, "expected a checkpoint", "found a trace or arrays"],
        );
    }
    let said = refused("verify", &fixtures.join("nowhere"), PROMPT);
    assert_says(&said, &["nowhere", "no such file"]);
    let device = [PROMPT, &["--device", "candel"]].concat();
    let said = refused("verify", &original("gpt2"), &device);
    assert_says(&said, &["--device candel", "candle"]);
    for floor in ["--floor=-1", "--floor=NaN", "--floor-pattern=few"] {
        let said = misused("verify", &original("gpt2"), &[floor]);
        assert_says(&said, &["expected a number of at least 0"]);
    }
}
