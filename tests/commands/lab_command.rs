//! `attnscope lab`: figures in every format, pictures, widths, and what is refused.

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text, unread};

fn ran(arguments: &[&str]) -> String {
    let output = attnscope(&[&["lab"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn json(arguments: &[&str]) -> Value {
    let written = ran(&[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&written).expect("JSON")
}

#[test]
fn both_figures_of_the_write_up_are_drawn_by_default() {
    let written = ran(&["rescale", "--width", "80"]);
    for panel in [
        "1a · q·k",
        "1b · softmax ",
        "1c · softmax ÷ √d",
        "2a · q·k",
        "2b · softmax ÷ √d",
        "2c · softmax ÷ Σ‖k‖",
    ] {
        assert!(written.contains(panel), "{panel} in\n{written}");
    }
    for divisor in [
        "none",
        "√d",
        "Σ‖k‖",
        "Σ‖k‖/n",
        "√Σ‖k‖²",
        "3-norm ‖k‖",
        "n√d",
    ] {
        let lines = written.lines().filter(|line| {
            let rest = line.strip_prefix(divisor);
            rest.is_some_and(|rest| rest.starts_with("  "))
        });
        assert_eq!(lines.count(), 2, "{divisor} in\n{written}");
    }
    assert!(
        written.lines().all(|line| line.chars().count() <= 80),
        "{written}"
    );
    assert!(written.contains("the claim, against √d:"));
    // The keys of one simulation are one draw: how others lie is told. 32 times the mean of a χ with 16 degrees of freedom is 126.0.
    let words = written.split_whitespace().collect::<Vec<_>>().join(" ");
    let drawn = words
        .split_once("over 200 other draws of the keys it is ")
        .expect("the spread")
        .1;
    let numbers: Vec<f64> = drawn
        .split([' ', ','])
        .filter_map(|word| word.parse().ok())
        .take(4)
        .collect();
    let [mean, std, smallest, largest] = numbers[..] else {
        panic!("{drawn}");
    };
    assert!(
        (mean - 126.0).abs() < 1.0 && (3.0..5.0).contains(&std),
        "{drawn}"
    );
    assert!(smallest < mean - std && mean + std < largest, "{drawn}");
    // Braille, and nothing that needs colour.
    assert!(
        written
            .chars()
            .any(|c| ('\u{2801}'..='\u{28ff}').contains(&c))
    );
    assert!(!written.contains('\u{1b}'));
}

#[test]
fn a_rescale_document_holds_every_figure_and_the_drawn_densities() {
    let document = json(&["rescale"]);
    assert_eq!(
        (&document["version"], &document["seed"]),
        (&1.into(), &0.into())
    );
    let cases = document["cases"].as_array().expect("cases");
    let sizes: Vec<_> = cases
        .iter()
        .map(|case| (&case["d"], &case["keys"], &case["queries"]))
        .collect();
    assert_eq!(
        sizes,
        [
            (&16.into(), &32.into(), &500.into()),
            (&256.into(), &32.into(), &500.into())
        ]
    );
    for case in cases {
        let divisors = case["divisors"].as_array().expect("divisors");
        assert_eq!(divisors.len(), 7);
        for divisor in divisors {
            let is_drawn = ["none", "inv_sqrt_d", "sum_key_norms"]
                .contains(&divisor["divisor"].as_str().expect("an id"));
            assert_eq!(
                divisor["first_weight"]["density"].is_array(),
                is_drawn,
                "{divisor}"
            );
            let number = |key: &str| {
                divisor[key]
                    .as_f64()
                    .unwrap_or_else(|| panic!("{key} in {divisor}"))
            };
            let gradient = number("jacobian_trace") / number("value");
            assert!((number("product_gradient") / gradient - 1.0).abs() < 1e-12);
            assert!(
                (0.0..=1.0).contains(&number("ks"))
                    && (0.0..=1.0).contains(&number("relative_entropy"))
            );
        }
    }
    assert!(!document["says"].as_array().expect("sentences").is_empty());
    let csv = ran(&["rescale", "--format", "csv"]);
    assert_eq!(csv.lines().count(), 1 + 2 * 7);
    let entropy = cases[1]["divisors"][1]["relative_entropy"].to_string();
    assert!(
        csv.lines()
            .any(|line| line.starts_with("256,32,500,inv_sqrt_d,16.0,") && line.contains(&entropy)),
        "{csv}"
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    for arguments in [
        &[
            "rescale",
            "--d",
            "8",
            "--dist",
            "lognormal",
            "--mean",
            "-0.5",
            "--std",
            "2",
        ][..],
        &["variance", "--d", "4,8", "--samples", "500", "--dist", "t5"],
    ] {
        let once = ran(arguments);
        assert_eq!(once, ran(arguments));
        assert_ne!(once, ran(&[arguments, &["--seed", "7"]].concat()));
    }
}

#[test]
fn a_sweep_is_one_table_over_widths_and_keys() {
    let table = ran(&[
        "rescale",
        "--sweep",
        "--d",
        "4,8",
        "--keys",
        "8,16",
        "--queries",
        "50",
    ]);
    for title in ["8 keys", "16 keys", "entropy / log n"] {
        assert!(table.contains(title), "no {title} in\n{table}");
    }
    for (d, keys) in [("4", "8"), ("4", "16"), ("8", "8"), ("8", "16")] {
        let lines = table.lines().filter(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.len() == 9 && words[..2] == [d, keys]
        });
        assert_eq!(lines.count(), 3, "{d} {keys} in\n{table}");
    }
    assert!(
        table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
    assert!(table.contains("in 4 of 4 settings") || table.contains("of 4 settings"));
}

#[test]
fn chosen_divisors_are_told_and_drawn() {
    let document = json(&[
        "rescale",
        "--d",
        "16",
        "--divisors",
        "p_norm:4,p_norm:inf",
        "--draw",
        "mean_key_norm",
    ]);
    let divisors = document["cases"][0]["divisors"]
        .as_array()
        .expect("divisors");
    let ids: Vec<&str> = divisors
        .iter()
        .filter_map(|of| of["divisor"].as_str())
        .collect();
    assert_eq!(ids, ["p_norm:4", "p_norm:inf", "mean_key_norm"]);
    assert!(divisors[2]["first_weight"]["density"].is_array());
    // Norms fall from the sum to the largest.
    let value = |nth: usize| divisors[nth]["value"].as_f64().expect("a number");
    assert!(value(0) > value(1) && value(1) >= value(2));
}

#[test]
fn a_variance_document_has_measured_and_predicted_and_its_table_too() {
    let arguments = [
        "variance",
        "--d",
        "4,16",
        "--samples",
        "4000",
        "--mean",
        "1",
        "--std",
        "2",
    ];
    let document = json(&arguments);
    let widths = document["widths"].as_array().expect("widths");
    for (of, d) in widths.iter().zip([4.0, 16.0]) {
        // σ⁴ + 2σ²μ² = 16 + 8.
        assert_eq!(of["product"]["predicted"], 24.0 * d);
        let number = |key: &str| of["product"][key].as_f64().expect("a number");
        assert!((number("variance") - 24.0 * d).abs() < 5.0 * number("standard_error"));
        assert_eq!(of["scaled"]["predicted"], 24.0);
        // Means that are not 0 leave QK-norm without a prediction.
        assert!(of["qk_norm"]["predicted"].is_null());
        assert_eq!(of["jacobian_argmax"], 0.0);
    }
    assert_eq!(document["growth"].as_array().expect("growth").len(), 19);
    let table = ran(&[&arguments[..], &["--width", "80"]].concat());
    assert!(
        table.contains("384.00") && table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
    let csv = ran(&[&arguments[..], &["--format", "csv"]].concat());
    assert_eq!(csv.lines().count(), 1 + 2 * 3 + 19);
}

#[test]
fn pictures_are_whole_svgs_with_a_panel_for_each_chart() {
    let directory = tempfile::tempdir().expect("a directory");
    for (arguments, n_panels) in [
        (&["rescale"][..], 8),
        (&["variance", "--samples", "500"], 2),
    ] {
        let target = directory.path().join(format!("{}.svg", arguments[0]));
        let to = target.to_str().expect("a path");
        ran(&[arguments, &["--output", to, "--format", "csv"]].concat());
        let picture = std::fs::read_to_string(&target).expect("a picture");
        let document = roxmltree::Document::parse(&picture).expect("XML");
        // The axes of a chart are one line through three points.
        let axes = document.descendants().filter(|node| {
            let points = node.attribute("points").unwrap_or_default();
            node.attribute("stroke") == Some("#5a5a5a") && points.split(' ').count() == 3
        });
        assert_eq!(axes.count(), n_panels);
        for node in document.descendants() {
            for attribute in node.attributes() {
                let value = attribute.value();
                assert!(!value.contains("NaN") && !value.contains("inf"), "{value}");
            }
        }
    }
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("lists").count(),
        2
    );
}

#[test]
fn what_cannot_be_simulated_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("lab.svg");
    let to = target.to_str().expect("a path");
    let cases: [(&[&str], &str); 16] = [
        (&["rescale", "--d", "0"], "--d 0"),
        (&["rescale", "--d", "16,0"], "--d 0"),
        (&["rescale", "--d", ""], "--d"),
        (&["rescale", "--keys", "1"], "--keys 1"),
        (&["rescale", "--keys", "4000000000"], "of memory"),
        (&["rescale", "--queries", "1"], "--queries 1"),
        (&["rescale", "--std", "-1"], "--std -1"),
        (&["rescale", "--std", "nan"], "--std NaN"),
        (&["rescale", "--mean", "inf"], "--mean inf"),
        (&["rescale", "--dist", "cauchy"], "t5"),
        (&["rescale", "--divisors", "k_total"], "sum_key_norms"),
        (&["rescale", "--draw", "p_norm:0"], "p_norm:0"),
        (&["variance", "--d", "0"], "--d 0"),
        (&["variance", "--samples", "1"], "--samples 1"),
        (&["variance", "--rows", "0"], "--rows 0"),
        (&["variance", "--width", "10"], "--width"),
    ];
    for (arguments, said) in cases {
        let output = attnscope(&[&["lab"], arguments, &["--output", to]].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("lists").count(),
        0
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for arguments in [
        &["lab", "rescale", "--format", "json"][..],
        &["lab", "variance", "--samples", "500", "--output", "-"],
        &["sweep", "--format", "csv"],
    ] {
        let output = unread(arguments);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(output.stderr.is_empty(), "{arguments:?}");
    }
}
