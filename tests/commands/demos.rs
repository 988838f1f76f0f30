//! The demos by name: what they list, and the figures they print without a terminal.

use testing::checkpoint_copy::{attnscope, text};

fn printed(arguments: &[&str]) -> String {
    let output = attnscope(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The last number of the first line that begins so.
fn numbers(text: &str, begins: &str) -> Vec<f64> {
    let line = text.lines().find(|line| line.starts_with(begins));
    let line = line.unwrap_or_else(|| panic!("no line begins with {begins:?}:\n{text}"));
    let words = line.split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn all_are_listed_and_those_without_a_terminal_say_what_to_do() {
    let list = printed(&["demo"]);
    for name in [
        "induction",
        "effect",
        "collapse",
        "healed",
        "rescale",
        "degenerate",
        "variance",
        "history",
    ] {
        assert!(list.contains(&format!("  {name} ")), "{list}");
        let output = attnscope(&["demo", name]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("--report"));
    }
    assert_eq!(attnscope(&["demo", "nothing"]).status.code(), Some(2));
}

#[test]
fn the_unscaled_translator_saturates_by_its_scores_and_the_scaled_one_does_not() {
    let figures = printed(&["demo", "collapse", "--report"]);
    let (_, causes) = figures
        .split_once("is it the norms, the angles, the scores?")
        .expect("the questions");
    for line in [
        "unscaled: yes. entropy is",
        "scaled: no. entropy is",
        "unscaled: not the cause. queries",
        "unscaled: the cause. norm of a row",
        "scaled: not the cause. norm of a row",
    ] {
        assert!(causes.contains(line), "{line}: {causes}");
    }
    let (unscaled, scaled) = causes.split_once("each step, scaled").expect("both twins");
    // ‖h‖, ‖k‖, cosine, ‖scores‖, mean, standard deviation, entropy, largest weight.
    let [wide, narrow] = [unscaled, scaled].map(|text| numbers(text, "seventy"));
    assert_eq!((wide.len(), narrow.len()), (8, 8));
    assert!((wide[0] / narrow[0] - 1.0).abs() < 0.3, "norms are alike");
    assert!(
        wide[5] > 3.0 && wide[5] > 3.0 * narrow[5],
        "{wide:?} {narrow:?}"
    );
    assert!(wide[6] < narrow[6]);
    // Over all held-out pairs the deviation is that of the write-up, before and after its fix.
    let deviations = numbers(&figures, "its standard deviation");
    assert!(deviations[0] > 5.0 && deviations[1] < 1.5, "{deviations:?}");
    // What the training recorded: whole phrases right, BLEU, standard deviation of the scores.
    for (figure, unscaled_is_more) in [
        ("whole phrases right", false),
        ("BLEU / 100", false),
        ("its standard deviation", true),
    ] {
        let both = numbers(&figures, figure);
        let both = &both[if figure.starts_with("BLEU") { 1.. } else { 0.. }];
        assert_eq!(both[0] > both[1], unscaled_is_more, "{figure}: {both:?}");
    }
}

#[test]
fn the_wrong_axis_has_a_loss_too_good_to_be_true() {
    let figures = printed(&["demo", "degenerate", "--report"]);
    let loss = |begins: &str| numbers(&figures, begins)[0];
    assert!(loss("degenerate, as it was trained") < 0.3);
    assert!(loss("degenerate, axis put right") > 4.0);
    let healthy = loss("healthy, as it was trained");
    assert!((1.0..3.0).contains(&healthy), "{healthy}");
    // Sums of columns where the softmax ran over queries, of rows where it ran over keys.
    let line = |begins: &str| {
        figures
            .lines()
            .find(|line| line.starts_with(begins))
            .expect("a line")
    };
    assert!(line("degenerate, as it was trained").ends_with("1.00…1.00"));
    assert!(line("healthy, as it was trained").contains("1.00…1.00"));
    assert!(figures.contains("entropy of the grammar"));
    assert!(figures.contains("he found a ball . he found a ball"));
}

#[test]
fn the_induction_demo_copies() {
    let figures = printed(&["demo", "induction", "--report"]);
    let losses = numbers(&figures, "mean loss on the first copy");
    assert!(losses[0] > 10.0 * losses[1], "{losses:?}");
    assert!(numbers(&figures, "L1H3")[1] > 0.4, "induction");
    assert!(figures.contains("L0H2  previous token"));
}

#[test]
fn the_sum_of_key_norms_keeps_the_shape_and_loses_the_rest() {
    let figures = printed(&["demo", "rescale", "--report"]);
    // Skewness, entropy of a row, largest weight; then the divisor, what softmax passes, what arrives.
    let of = |divisor: &str| -> Vec<Vec<f64>> {
        let lines = figures.lines().map(|line| line.split_whitespace());
        let lines = lines.map(|words| words.collect::<Vec<&str>>());
        let lines = lines.filter(|words| words.starts_with(&["256", divisor]));
        lines
            .map(|words| {
                words[2..]
                    .iter()
                    .filter_map(|word| word.parse().ok())
                    .collect()
            })
            .collect()
    };
    let (root, total) = (of("√d"), of("Σ‖k‖"));
    assert_eq!((root.len(), total.len()), (2, 2), "{figures}");
    assert!(total[0][0] < 0.1 * root[0][0], "the shape is kept");
    assert!(total[0][1] > 0.999 && root[0][1] < 0.9, "rows are even");
    assert!(total[1][1] > root[1][1], "softmax passes more");
    assert!(total[1][2] < 0.1 * root[1][2], "less arrives");
    let words: Vec<&str> = figures.split_whitespace().collect();
    assert!(words.join(" ").contains("goes from 2.84"), "{figures}");
}

#[test]
fn products_grow_with_the_width_and_a_hard_choice_teaches_nothing() {
    let figures = printed(&["demo", "variance", "--report"]);
    let wide = numbers(&figures, "256 ");
    // Width, variance of q·k, largest weight, with 1/√d, passed on, with 1/√d.
    assert!((wide[1] / 256.0 - 1.0).abs() < 0.05, "{wide:?}");
    assert!(wide[2] > 0.8 && wide[3] < 0.3 && wide[4] < 0.3 * wide[5]);
    let hard = numbers(&figures, "value of the best key");
    assert!(hard.iter().all(|gradient| *gradient == 0.0), "{hard:?}");
    assert!(numbers(&figures, "softmax, T = 1 ")[4] > 10.0);
    let heads = numbers(&figures, "L1H3");
    assert!(
        heads[4] > 1.0,
        "trained heads exceed the prediction: {heads:?}"
    );
}

#[test]
fn words_find_their_translations_and_those_that_translate_nothing_get_nothing() {
    let figures = printed(&["demo", "alignment", "--report"]);
    assert!(
        figures.contains("“hat” and “und” translate no word"),
        "{figures}"
    );
    // Cosine and length of the output beside its translation: with the right axis, then with the wrong one.
    let (_, outputs) = figures.split_once("what comes out").expect("a page");
    for word in ["bought", "letters", "ninth"] {
        let line = outputs.lines().find(|line| line.starts_with(word));
        let line = line.expect("a row");
        let values = line
            .split_whitespace()
            .filter_map(|word| word.parse::<f64>().ok());
        let values: Vec<f64> = values.collect();
        assert!(
            values[0] > 0.999 && (values[1] - 1.0).abs() < 0.01,
            "{line}"
        );
        assert!(values[3] > 1.01, "{line}");
    }
    let words: Vec<&str> = figures.split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains("“umbrellas” is not in the English table"),
        "{figures}"
    );
}

#[test]
fn two_heads_are_found_by_ablation_and_by_their_weights() {
    let figures = printed(&["demo", "effect", "--report"]);
    let (_, removed) = figures.split_once("take a head away").expect("a page");
    let first = removed
        .lines()
        .find(|line| line.starts_with('L'))
        .expect("a row");
    assert!(first.starts_with("L0H2  previous token"), "{first}");
    let (_, weights) = figures.split_once("read the weights").expect("a page");
    let copying = weights.lines().find(|line| line.starts_with("L1H0"));
    assert!(
        copying.is_some_and(|line| line.contains("L0H2")),
        "{weights}"
    );
}

#[test]
fn what_is_set_reaches_a_demo_or_is_refused() {
    for (arguments, expected) in [
        (&["collapse", "--set", "foo=bar"][..], "foo"),
        (&["variance", "--set", "foo=bar"], "foo"),
        (&["alignment", "--set", "foo=bar"], "tables"),
        (&["alignment", "--device", "foo"], "foo"),
    ] {
        let output = attnscope(&[&["demo", "--report"], arguments].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn only_the_degenerate_twin_moves_before_the_word_that_is_changed() {
    let figures = printed(&["demo", "degenerate", "--report"]);
    let (_, healthy) = figures
        .split_once("healthy: changed ↓ moved →")
        .expect("both maps");
    let (map, _) = healthy.split_once("\n\n").expect("its end");
    let rows: Vec<&str> = map.lines().skip(2).collect();
    assert!(rows.len() > 8, "{map}");
    assert!(rows.iter().all(|row| row.contains("nowhere")), "{map}");
    let (_, degenerate) = figures
        .split_once("degenerate: changed ↓ moved →")
        .expect("both maps");
    let (map, _) = degenerate.split_once("\n\n").expect("its end");
    assert!(!map.contains("nowhere"), "{map}");
    let words: Vec<&str> = figures.split_whitespace().collect();
    assert!(words.join(" ").contains("in the healthy one 0 of"));
}

#[test]
fn the_training_that_collapses_is_found_where_it_begins() {
    let figures = printed(&["demo", "history", "--report"]);
    let first = figures.lines().find(|line| line.starts_with("error"));
    let first = first.unwrap_or_else(|| panic!("no error: {figures}"));
    assert!(
        first.contains("all 8 heads between step 250") && first.contains("first in L1H0"),
        "{first}"
    );
    // A statistic warned before it began; the twin is silent.
    assert!(
        figures
            .contains("warned first: its trend towards the threshold shows at step 200, 50 steps"),
        "{figures}"
    );
    assert!(figures.contains("no findings"), "{figures}");
    let [before, onset, after] =
        ["before  ", "onset  ", "after  "].map(|begins| numbers(&figures, begins));
    // Step, loss, relative entropy.
    assert!(before[0] < onset[0] && onset[0] < after[0], "{figures}");
    assert!(before[1] + 0.2 < after[1], "the loss suffers: {figures}");
    assert!(
        before[2] > 0.3 && onset[2] < 0.05 && after[2] < 0.05,
        "{figures}"
    );
    // The checkpoints, on another text, say what the log says.
    let [healthy, collapsed] =
        ["history-step-150", "history-step-400"].map(|begins| numbers(&figures, begins));
    assert!(healthy[1] > 0.3 && collapsed[1] < 0.1, "{figures}");
}

#[test]
fn what_a_demo_saves_opens_and_gives_its_figures() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    for name in [
        "collapse",
        "degenerate",
        "history",
        "induction",
        "alignment",
    ] {
        let list = printed(&["demo", name, "--save", &at(name)]);
        for line in list.lines() {
            let (path, size) = line.split_once("  ").expect("a path and a size");
            let n_bytes = std::fs::metadata(path).expect("the file").len();
            assert_eq!(size, format!("{n_bytes} bytes"));
        }
        // Nothing is written over.
        let again = attnscope(&["demo", name, "--save", &at(name)]);
        assert_eq!(again.status.code(), Some(2));
        assert!(text(&again.stderr).contains("exists"));
    }
    let saved = printed(&["history", &at("history/run.jsonl")]);
    let told = printed(&["demo", "history", "--report"]);
    let onset = "entropy-collapse L1H0 begins at step 250";
    assert!(saved.contains(onset) && told.contains(onset), "{saved}");
    printed(&["tensors", &at("degenerate/degenerate")]);
    printed(&["tensors", &at("induction/model")]);
    let words = ["bought", "--key-text", "gekauft"];
    let tables = [
        "align",
        "--queries",
        &at("alignment/en.npz"),
        "--keys",
        &at("alignment/de.npz"),
        "--queries-vocab",
        &at("alignment/en.json"),
        "--keys-vocab",
        &at("alignment/de.json"),
        "--query-text",
    ];
    printed(&[&tables[..], &words].concat());
}
