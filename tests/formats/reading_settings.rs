//! `--set` and `attnscope.toml`: what a person says about a checkpoint is used, shown, or refused in one line.

use attnscope_prompt::Request;
use attnscope_worker::{Event, PromptOrigin, Terms, Worker};
use serde_json::Value;
use testing::checkpoint_copy::{Copy, attnscope as program, original, text};
use testing::opening::{fails, knob, opened, opening};
use testing::refusal::{PROMPT, assert_says, misused, refused};

#[test]
fn a_value_that_is_set_changes_what_is_computed_and_shows_where_it_came_from() {
    let set = [
        "scale=inv_d",
        "softmax_axis=queries",
        "mask=bidirectional",
        "window=3",
        "softcap=20",
        "rope_theta=500000",
        "rope_interleaved=true",
        "norm_eps=1e-3",
        "activation=gelu",
        "n_ctx=99",
    ];
    let model = opened(&original("llama"), &set);
    for (name, value) in [
        ("scale", "1/d_head"),
        ("scale_factor", "0.062500"),
        ("softmax_axis", "queries"),
        ("mask", "bidirectional, window 3 either side"),
        ("softcap", "20"),
        ("rope_theta", "500000"),
        ("rope_interleaved", "true"),
        ("norm_eps", "0.001"),
        ("activation", "gelu"),
        ("n_ctx", "99"),
    ] {
        let expected = (value.to_owned(), "set on the command line".to_owned());
        assert_eq!(knob(&model, name), expected, "{name}");
    }
    let plain = opened(&original("llama"), &[]);
    for (ours, before) in model.spec.stacks[0]
        .blocks()
        .iter()
        .zip(plain.spec.stacks[0].blocks())
    {
        assert_ne!(
            ours.attention().expect("attention"),
            before.attention().expect("attention")
        );
        assert_eq!(
            ours.attention()
                .expect("attention")
                .rope
                .as_ref()
                .expect("a rope")
                .theta,
            500_000.0
        );
    }
    assert_eq!(model.spec.n_ctx, Some(99));
    let read_as = opened(&original("gpt2"), &["family=gpt2"]);
    assert_eq!(knob(&read_as, "family").1, "set on the command line");
}

#[test]
fn a_value_that_does_not_fit_is_refused_in_one_line() {
    for (family, set, parts) in [
        (
            "gpt2",
            "n_head=4",
            &[
                "--set n_head=4",
                "\"n_head\" is not known",
                "n_heads",
                "softmax_axis",
            ][..],
        ),
        (
            "gpt2",
            "scale=big",
            &["--set scale=big", "inv_sqrt_d, inv_d, none or a number"],
        ),
        ("gpt2", "n_heads=5", &["5 heads do not divide"]),
        ("gpt2", "n_heads=0", &["expected a whole number from 1"]),
        ("gpt2", "n_layers=4", &["h.3", "missing"]),
        ("gpt2", "n_layers=5000", &["4096"]),
        ("gpt2", "d_head=8", &["gpt2 has no d_head to set"]),
        ("gpt2", "n_kv_heads=2", &["gpt2 has no n_kv_heads to set"]),
        ("gpt2", "rope_theta=100", &["gpt2 rotates no queries"]),
        (
            "gpt2",
            "activation=gelo",
            &["expected an activation function"],
        ),
        (
            "gpt2",
            "family=gpt9",
            &["gpt9", "tensors and sizes are those of gpt2"],
        ),
        (
            "llama",
            "n_kv_heads=3",
            &["3 kv heads do not divide 4 heads"],
        ),
        ("llama", "d_head=7", &["even number"]),
        ("llama", "norm_first=true", &["llama has no norm_first"]),
        ("bart_b", "mask=causal", &["expected a model of one stack"]),
    ] {
        let said = refused(
            "report",
            &original(family),
            &[PROMPT, &["--set", set]].concat(),
        );
        assert_says(&said, parts);
    }
    assert_says(
        &misused("report", &original("gpt2"), &["--set", "n_heads"]),
        &["expected KEY=VALUE"],
    );
}

#[test]
fn settings_beside_the_checkpoint_are_read_and_the_command_line_wins() {
    let copy = Copy::of("gpt2");
    copy.config(|config| drop(config.remove("n_head")));
    copy.write(
        "attnscope.toml",
        "[set]\nn_heads = 4\nscale = \"inv_d\"\nnorm_eps = 1e-3\n",
    );
    let model = opened(copy.path(), &["scale=none"]);
    let from_file = ("4".to_owned(), "set in attnscope.toml".to_owned());
    assert_eq!(knob(&model, "n_heads"), from_file);
    assert_eq!(
        knob(&model, "scale"),
        ("none".to_owned(), "set on the command line".to_owned())
    );
    assert_eq!(knob(&model, "norm_eps").0, "0.001");
    for (written, parts) in [
        (
            "[set]\nheads = 4\n",
            &["attnscope.toml: line 2: heads", "not known", "n_heads"][..],
        ),
        (
            "[set]\nn_heads = \"four\"\n",
            &[
                "attnscope.toml: line 2: n_heads",
                "expected a whole number",
                "four",
            ],
        ),
        ("[set\n", &["attnscope.toml", "line 1", "TOML"]),
        (
            "[rename]\n\"a.{layer}\" = \"b.{layer}\"\n",
            &["attnscope.toml: a.{layer}", "no tensor has this name"],
        ),
        (
            "[rename]\n\"transformer.wpe.weight\" = \"transformer.wte.weight\"\n",
            &["two tensors would be"],
        ),
    ] {
        copy.write("attnscope.toml", written);
        assert_says(&refused("report", copy.path(), PROMPT), parts);
    }
}

#[test]
fn tensors_under_names_of_one_s_own_are_renamed() {
    let copy = Copy::of("gpt2");
    let report = |copy: &Copy| {
        let path = copy.path().to_str().expect("a path");
        let output = program(&[&["report", path], PROMPT].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["model"].take();
        // What differs is that settings were read, which a note tells.
        let notes = report.as_object_mut().and_then(|all| all.remove("notes"));
        (report, notes)
    };
    let (before, silent) = report(&copy);
    assert_eq!(silent, None);
    copy.weights(|weights| {
        *weights = std::mem::take(weights)
            .into_iter()
            .map(|(name, stored)| {
                (
                    name.replace("attn.c_proj", "mix.out")
                        .replace("wte", "words"),
                    stored,
                )
            })
            .collect();
    });
    assert_says(&refused("report", copy.path(), PROMPT), &["missing"]);
    let base = if copy
        .weight_bytes()
        .windows(12)
        .any(|w| w == b"transformer.")
    {
        "transformer."
    } else {
        ""
    };
    let mut toml = format!("[rename]\n\"{base}words.weight\" = \"{base}wte.weight\"\n");
    for part in ["weight", "bias"] {
        toml += &format!(
            "\"{base}h.{{layer}}.mix.out.{part}\" = \"{base}h.{{layer}}.attn.c_proj.{part}\"\n"
        );
    }
    copy.write("attnscope.toml", &toml);
    let (after, notes) = report(&copy);
    assert_eq!(after, before);
    assert!(
        format!("{notes:?}").contains("attnscope.toml"),
        "the settings are not told of: {notes:?}"
    );
}

#[test]
fn damaged_settings_are_an_error_or_a_reading_and_never_a_panic() {
    let copy = Copy::of("llama");
    let whole = "# a model\n[set]\nn_heads = 4\nscale = \"inv_d\"\nwindow = 5\nrope_theta = 1e4\nmask = 'causal'\n\n\
                 [rename]\n\"model.layers.{layer}.mlp.up_proj.weight\" = \"model.layers.{layer}.mlp.up_proj.weight\"\n";
    copy.write("attnscope.toml", whole);
    opened(copy.path(), &[]);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    const PIECES: &[&str] = &[
        "[",
        "]",
        "=",
        "\"",
        "'",
        "{layer}",
        "\n",
        "[[set]]",
        "-",
        "0",
        "99999999999999999999",
        "nan",
        "1e999",
        ".",
        "#",
        "set",
        "\u{0}",
        "é",
        "\"\"\"",
        "{",
        "}",
        "true",
        "[rename]",
        "\\u00",
        "1979-05-27",
        "n_heads",
        "[[[[[[[[[[[[",
    ];
    let (mut n_read, mut n_refused) = (0, 0);
    for _ in 0..400 {
        let mut letters: Vec<char> = whole.chars().collect();
        for _ in 0..1 + next(3) {
            let at = next(letters.len().max(1));
            match next(3) {
                0 if !letters.is_empty() => drop(letters.remove(at)),
                1 => letters.truncate(at.max(1)),
                _ => drop(letters.splice(at..at, PIECES[next(PIECES.len())].chars())),
            }
        }
        copy.write("attnscope.toml", letters.iter().collect::<String>());
        match opening(copy.path(), &[])
            .open()
            .and_then(attnscope_families::read)
        {
            Ok(_) => n_read += 1,
            Err(error) => {
                let said = error.to_string();
                assert_eq!(said.lines().count(), 1, "{said}");
                n_refused += 1;
            }
        }
    }
    assert!(
        n_read > 20 && n_refused > 100,
        "{n_read} read, {n_refused} refused"
    );
    copy.write("attnscope.toml", "[".repeat(500_000));
    assert!(opening(copy.path(), &[]).open().is_err());
    copy.write(
        "attnscope.toml",
        format!("set.n_heads = {}", "[".repeat(500_000)),
    );
    assert!(opening(copy.path(), &[]).open().is_err());
    copy.write("attnscope.toml", [0xff, 0xfe, b'\n']);
    assert!(opening(copy.path(), &[]).open().is_err());
}

#[test]
fn the_screen_opens_a_checkpoint_as_it_is_set() {
    let (sender, events) = std::sync::mpsc::channel();
    let first = |_: &_, _| Ok((Request::ids(vec![1, 2]), PromptOrigin::Asked));
    let sink = std::sync::Arc::new(move |event| drop(sender.send(event)));
    let opening = opening(&original("gpt2"), &["scale=none"]);
    let _worker = Worker::start(
        opening,
        Box::new(first),
        Terms {
            is_forced: true,
            ..Terms::default()
        },
        sink,
    );
    match events.recv().expect("an event") {
        Event::Opened { subject, .. } => {
            let model = subject.model().expect("a model");
            let expected = ("none".to_owned(), "set on the command line".to_owned());
            assert_eq!(knob(model, "scale"), expected);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_whose_rows_depend_on_its_heads_takes_no_other_heads() {
    let directory = testing::root().join("fixtures/formats/gguf");
    let file = directory.join("llama-f32.gguf");
    assert_says(
        &fails(&file, &["n_heads=1"]),
        &["--set n_heads=1", "the file orders rows"],
    );
    assert_eq!(knob(&opened(&file, &["rope_theta=7"]), "rope_theta").0, "7");
}

#[test]
fn every_key_is_told_by_help_and_the_page_of_checkpoints() {
    let page = include_str!("../../docs/checkpoints.md");
    let output = program(&["report", "--help"]);
    for (key, _) in attnscope_families::settable() {
        assert!(text(&output.stdout).contains(key), "{key}");
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
}
