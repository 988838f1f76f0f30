//! `attnscope plot`: the same bytes every time, for every panel; what cannot be shown or written is refused before the run.

use std::path::Path;

use tempfile::TempDir;
use testing::checkpoint_copy::{Copy, attnscope, original, text};
use testing::picture::Picture;

const PANELS: [&str; 8] = [
    "overview", "head", "scores", "tokens", "model", "checks", "rows", "sweep",
];

/// Plots that must succeed: picture and data.
fn plotted(directory: &TempDir, name: &str, arguments: &[&str]) -> (Vec<u8>, Vec<u8>) {
    let target = directory.path().join(format!("{name}.svg"));
    let output = ["--output", target.to_str().expect("a path")];
    let ran = attnscope(&[&["plot"], arguments, &output].concat());
    assert_eq!(
        ran.status.code(),
        Some(0),
        "{arguments:?}: {}",
        text(&ran.stderr)
    );
    assert!(ran.stdout.is_empty());
    let read = |path: &Path| std::fs::read(path).expect("written");
    (read(&target), read(&target.with_extension("csv")))
}

/// Runs that must be refused: the one line.
fn refused(arguments: &[&str]) -> String {
    let ran = attnscope(arguments);
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(ran.stdout.is_empty(), "{arguments:?}");
    let lines: Vec<&str> = said.lines().collect();
    let last = lines.last().expect("a line");
    assert!(last.starts_with("attnscope: "), "{arguments:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    (*last).to_owned()
}

fn n_files(directory: &Path) -> usize {
    std::fs::read_dir(directory).expect("lists").count()
}

#[test]
fn every_panel_of_the_demo_is_the_same_bytes_every_time() {
    let directory = tempfile::tempdir().expect("a directory");
    for panel in PANELS {
        let once = plotted(&directory, panel, &["--panel", panel, "--threads", "1"]);
        let again = plotted(&directory, &format!("{panel}-again"), &["--panel", panel]);
        assert!(once == again, "{panel} differs");
        let picture = Picture::read(&once.0);
        let text: Vec<String> = (0..40).map(|row| picture.line(row)).collect();
        assert!(text[0].contains("induction-demo"), "{}", text[0]);
        assert!(!text[0].contains("done in"), "a time: {}", text[0]);
        assert!(!testing::tables::rows(&once.1).is_empty(), "{panel}");
        // All that the panel shows was waited for.
        let waits = [
            "computing",
            "has not run",
            "waiting for",
            "when the run is over",
            "opening",
        ];
        for line in &text {
            assert!(
                waits.iter().all(|word| !line.contains(word)),
                "{panel}: {line}"
            );
        }
    }
    assert_eq!(n_files(directory.path()), 4 * PANELS.len());
}

#[test]
fn demos_are_plotted_with_their_texts_and_the_pages_of_their_stories() {
    let directory = tempfile::tempdir().expect("a directory");
    let cases: [(&[&str], &str); 6] = [
        (&["--demo", "collapse"], "1 of 9 · two translators"),
        (
            &["--demo", "degenerate", "--page", "3"],
            "3 of 7 · the mask",
        ),
        (&["--demo", "rescale"], "1 of 8 · the proposal"),
        (
            &["--demo", "variance", "--page", "4"],
            "4 of 6 · why the choice",
        ),
        (&["--demo", "alignment", "--panel", "head"], "“ninth”"),
        (
            &["--demo", "healed", "--panel", "rows"],
            "collapse to its cause",
        ),
    ];
    for (nth, (arguments, words)) in cases.into_iter().enumerate() {
        let (svg, csv) = plotted(&directory, &nth.to_string(), arguments);
        let title = Picture::read(&svg).line(2);
        assert!(title.contains(words), "{arguments:?}: {title}");
        assert!(!testing::tables::rows(&csv).is_empty(), "{arguments:?}");
    }
    // Another text than the demo's own.
    let arguments = [
        "--demo",
        "degenerate",
        "--panel",
        "tokens",
        "--text",
        "a red mat",
    ];
    let (svg, _) = plotted(&directory, "text", &arguments);
    assert!(Picture::read(&svg).line(1).contains("3 tokens"));
    let target = directory.path().join("no.svg");
    let output = ["--output", target.to_str().expect("a path")];
    for (arguments, expected) in [
        (
            &["--demo", "degenerate", "--page", "8"][..],
            "expected 1 to 7",
        ),
        (&["--panel", "story"], "expected --demo"),
        (
            &["--demo", "induction", "--panel", "story"],
            "tells a story",
        ),
        (
            &["--demo", "induction", "--page", "1"],
            "expected --panel story",
        ),
        (&["--demo", "alignment", "--text", "a"], "attnscope align"),
        (&["--demo", "nothing"], "nothing"),
        (&["--page", "1"], "--demo"),
    ] {
        let said = refused(&[&["plot"], arguments, &output].concat());
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    assert!(!target.exists());
}

#[test]
fn what_is_selected_is_what_is_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    let line = |arguments: &[&str], row: u32| {
        let name = arguments.join("-");
        let (svg, _) = plotted(&directory, &name, arguments);
        Picture::read(&svg).line(row)
    };
    let place = ["--layer", "1", "--head", "2", "--query", "7", "--key", "3"];
    let title = line(&[&["--panel", "head", "--scores"], &place[..]].concat(), 2);
    for words in ["L1H2", "scores", "query 7", "key 3"] {
        assert!(title.contains(words), "{title}");
    }
    let title = line(&["--panel", "head", "--without-first-key"], 2);
    assert!(title.contains("pattern without first key"), "{title}");
    let title = line(
        &["--panel", "overview", "--statistic", "max_probability"],
        // Below the sentence on what was found.
        3,
    );
    assert!(title.contains("max probability"), "{title}");
    let title = line(&["--panel", "tokens", "--receives", "--key", "4"], 2);
    assert!(title.contains("attention to token 4"), "{title}");
    let title = line(
        &[
            "--panel",
            "checks",
            "--check",
            "rank-collapse",
            "--size",
            "80x24",
        ],
        14,
    );
    assert!(title.contains("rank-collapse"), "{title}");
    let last = line(&["--panel", "model", "--size", "200x60"], 59);
    assert!(last.contains("move"), "{last}");
}

#[test]
fn stacks_traces_and_probes_are_plotted() {
    let directory = tempfile::tempdir().expect("a directory");
    let t5 = original("t5_v11");
    let t5 = t5.to_str().expect("a path");
    let tokens = ["--tokens", "3,4,5,6,7,8", "--target-tokens", "0,5,9,7"];
    let arguments = [
        &[t5, "--panel", "head", "--stack", "cross", "--layer", "1"],
        &tokens[..],
    ]
    .concat();
    let (svg, csv) = plotted(&directory, "cross", &arguments);
    assert!(Picture::read(&svg).title.contains("cross.L1H0"));
    let cells = testing::tables::part(&csv, "cell");
    assert_eq!(cells.len(), 4 * 6);
    assert!(cells.iter().all(|cell| cell.text("stack") == "cross"));
    let root = testing::root();
    let trace = root.join("fixtures/captured/dropped_mask.safetensors");
    let trace = trace.to_str().expect("a path");
    let (svg, _) = plotted(
        &directory,
        "trace",
        &[trace, "--panel", "head", "--layer", "1"],
    );
    assert!(Picture::read(&svg).line(2).contains("L1H0"));
    let degenerate = root.join("fixtures/degenerate");
    let degenerate = degenerate.to_str().expect("a path");
    let probed = [
        degenerate,
        "--panel",
        "checks",
        "--probe",
        "--check",
        "future-leak",
    ];
    let (svg, csv) = plotted(&directory, "probed", &probed);
    let picture = Picture::read(&svg);
    let lines: Vec<String> = (0..40).map(|row| picture.line(row)).collect();
    assert!(
        lines.iter().any(|line| line.contains("influence: changed")),
        "{lines:?}"
    );
    assert!(!testing::tables::part(&csv, "influence").is_empty());
}

#[test]
fn the_picture_alone_goes_to_standard_output() {
    let directory = tempfile::tempdir().expect("a directory");
    let ran = attnscope(&["plot", "--panel", "model", "--output", "-"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let (svg, _) = plotted(&directory, "model", &["--panel", "model"]);
    assert_eq!(ran.stdout, svg);
}

#[test]
fn a_file_that_is_there_is_written_over_only_when_forced() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("a.svg");
    let to = target.to_str().expect("a path");
    let arguments = ["plot", "--panel", "model", "--output", to];
    for there in ["a.svg", "a.csv"] {
        std::fs::write(directory.path().join(there), "mine").expect("writes");
        let said = refused(&arguments);
        assert!(said.contains(there) && said.contains("--force"), "{said}");
        assert_eq!(n_files(directory.path()), 1);
        std::fs::remove_file(directory.path().join(there)).expect("removes");
    }
    std::fs::write(&target, "mine").expect("writes");
    let forced = attnscope(&[&arguments[..], &["--force"]].concat());
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced.stderr));
    Picture::read(&std::fs::read(&target).expect("reads"));
    assert_eq!(n_files(directory.path()), 2);
}

#[test]
fn what_cannot_be_written_is_refused_before_the_checkpoint_is_looked_at() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| {
        directory
            .path()
            .join(name)
            .to_str()
            .expect("a path")
            .to_owned()
    };
    let folder = tempfile::Builder::new().suffix(".svg").tempdir();
    let folder = folder.expect("a directory");
    let folder = folder.path().to_str().expect("a path").to_owned();
    for (output, expected) in [
        (path("no/such/a.svg"), "no such directory"),
        (path(""), "ends in .svg"),
        (folder, "found a directory"),
        (path("a.png"), "ends in .svg"),
        (path("a"), "ends in .svg"),
    ] {
        let said = refused(&["plot", "no/such/model", "--output", &output]);
        assert!(said.contains(expected), "{output}: {said}");
    }
    let said = refused(&["plot", "no/such/model", "--output", &path("a.svg")]);
    assert!(said.contains("no/such/model"), "{said}");
    assert_eq!(n_files(directory.path()), 0, "something was left behind");
}

#[cfg(unix)]
#[test]
fn a_directory_without_permission_and_a_full_disk_are_one_line() {
    use std::os::unix::fs::PermissionsExt;
    // Written to as it is, and always full.
    if Path::new("/dev/full").exists() {
        let said = refused(&["plot", "--panel", "model", "--output", "/dev/full"]);
        assert!(said.contains("/dev/full: cannot be written"), "{said}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let closed = directory.path().join("closed");
    std::fs::create_dir(&closed).expect("makes");
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o555)).expect("closes");
    // Who may do everything is not stopped by permissions.
    if std::fs::write(closed.join("probe"), "").is_err() {
        let target = closed.join("a.svg");
        let said = refused(&["plot", "--output", target.to_str().expect("a path")]);
        assert!(said.contains("permission denied"), "{said}");
    }
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o755)).expect("opens");
}

#[test]
fn the_words_that_open_a_demo_draw_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let by_flag = plotted(&directory, "flag", &["--demo", "effect"]);
    let by_words = plotted(&directory, "words", &["demo", "effect"]);
    assert!(by_flag == by_words);
    let said = refused(&["plot", "demo", "inducton", "--output", "-"]);
    assert!(said.contains("did you mean induction?"), "{said}");
    // Where a checkpoint is expected, the word is not taken for a model of the hub.
    let said = refused(&["report", "demo"]);
    assert!(said.contains("attnscope demo NAME --save DIR"), "{said}");
}

#[test]
fn a_statistic_and_a_panel_are_found_by_their_names_on_the_screen() {
    let directory = tempfile::tempdir().expect("a directory");
    let by_id = plotted(&directory, "id", &["--statistic", "induction_mass"]);
    let arguments = ["--statistic", "after same token", "--panel", "Overview"];
    assert!(by_id == plotted(&directory, "title", &arguments));
}

#[test]
fn what_the_model_or_the_panel_does_not_have_is_refused_and_nothing_is_left() {
    let copy = Copy::of("gpt2");
    let model = copy.path().to_str().expect("a path");
    let target = copy.output("a.svg");
    let to = target.to_str().expect("a path");
    let cases: [(&[&str], &str); 19] = [
        (&["--panel", "rooms"], "expected one of overview, head"),
        (
            &["--layer", "3"],
            "there is no L3: the model has layers 0–2, heads 0–3",
        ),
        (
            &["--at", "L9H9"],
            "there is no L9H9: the model has layers 0–2, heads 0–3",
        ),
        (
            &["--panel", "head", "--head", "4"],
            "there is no L0H4: L0 has heads 0–3",
        ),
        (
            &["--query", "12"],
            "there is no query 12: the text has queries 0–11",
        ),
        (
            &["--key", "99"],
            "there is no key 99: the text has keys 0–11",
        ),
        (
            &["--stack", "cross"],
            "there is no cross: the model has one stack",
        ),
        (&["--stack", "middle"], "expected encoder, decoder or cross"),
        (&["--size", "79x24"], "from 80x24"),
        (&["--size", "80x23"], "from 80x24"),
        (&["--size", "2000x40"], "to 1000x500"),
        (&["--size", "wide"], "as 120x40"),
        (&["--statistic", "mood"], "explain statistics lists them"),
        (&["--statistic", "entropyy"], "did you mean entropy?"),
        (
            &["--panel", "checks", "--check", "mood"],
            "attnscope explain",
        ),
        (
            &["--scores"],
            "--scores: expected --panel head, found overview",
        ),
        (
            &["--panel", "head", "--receives"],
            "--receives: expected --panel tokens",
        ),
        (
            &["--panel", "tokens", "--probe"],
            "--probe: expected --panel checks",
        ),
        (&["--layer", "-1"], "unexpected argument '-1'"),
    ];
    for (arguments, expected) in cases {
        let usual = [
            "plot",
            model,
            "--tokens",
            "5,9,2,5,9,2,200,7,7,31,5,9",
            "--output",
            to,
        ];
        let said = refused(&[&usual[..], arguments].concat());
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert_eq!(copy.n_outputs(), 0, "{arguments:?}");
    }
    let said = refused(&["plot", model]);
    assert!(said.contains("--output"), "{said}");
    let said = refused(&["plot", model, "--tokens", "100000", "--output", to]);
    assert!(said.contains("100000"), "{said}");
    assert_eq!(copy.n_outputs(), 0);
}

#[test]
fn a_text_that_is_read_is_not_written_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let prompt = directory.path().join("a.csv");
    std::fs::write(&prompt, "the old king").expect("writes");
    let target = directory.path().join("a.svg");
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    let said = refused(&[
        "plot",
        "--text-file",
        &path(&prompt),
        "--output",
        &path(&target),
        "--force",
    ]);
    assert!(said.contains("a.csv"), "{said}");
    assert_eq!(std::fs::read(&prompt).expect("reads"), b"the old king");
}

#[test]
fn marked_heads_are_plotted_side_by_side_on_screen_and_on_paper() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["--panel", "compare", "--mark", "L0H1,L1H0-1"];
    let (svg, csv) = plotted(&directory, "marked", &arguments);
    let title = Picture::read(&svg).line(2);
    for head in ["L0H1", "L1H0", "L1H1"] {
        assert!(title.contains(head), "{title}");
    }
    let rows = testing::tables::rows(&csv);
    assert!(rows.iter().all(|row| row.text("part") == "marked"));
    let entropies = rows.iter().filter(|row| row.text("statistic") == "entropy");
    assert_eq!(entropies.count(), 3);
    let arguments = [&["--figure"][..], &arguments].concat();
    let (figure, _) = plotted(&directory, "figure", &arguments);
    let figure = text(&figure);
    assert!(figure.contains("L1H1"), "{figure}");
    let said = refused(&["plot", "--mark", "L9H0", "--output", "x.svg"]);
    assert!(
        said.contains("--mark: there is no L9H0: the model has layers 0–1"),
        "{said}"
    );
}
