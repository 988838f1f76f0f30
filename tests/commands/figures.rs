//! `attnscope plot --figure`: the data alone, at a width, in three formats.

use std::path::{Path, PathBuf};

use testing::checkpoint_copy::{attnscope, text};

/// Plots a figure, and returns it with what was noted.
fn figure(directory: &Path, name: &str, arguments: &[&str]) -> (Vec<u8>, String) {
    let target = directory.join(name);
    let to = target.to_str().expect("a path");
    let fixed = ["plot", "--figure", "--force", "--output", to];
    let ran = attnscope(&[&fixed, arguments].concat());
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{arguments:?}: {said}");
    assert!(target.with_extension("csv").exists());
    (std::fs::read(target).expect("a figure"), said)
}

/// What the letters of an SVG say, in the order of painting.
fn said_in(svg: &[u8]) -> Vec<String> {
    let svg = std::str::from_utf8(svg).expect("text");
    let document = roxmltree::Document::parse(svg).expect("XML");
    let labels = document.descendants();
    let labels = labels.filter_map(|node| node.attribute("aria-label"));
    labels.map(str::to_owned).collect()
}

#[test]
fn a_head_is_its_map_its_tokens_and_a_bar_and_nothing_of_the_screen() {
    let directory = tempfile::tempdir().expect("a directory");
    let words = "the old king gave a red apple";
    let at = ["--panel", "head", "--at", "L1H3", "--text", words];
    let (svg, _) = figure(directory.path(), "head.svg", &at);
    let said = said_in(&svg);
    // Each token stands on both sides.
    for token in words.split(' ') {
        let n = said.iter().filter(|label| *label == token).count();
        assert_eq!(n, 2, "{token}: {said:?}");
    }
    for label in ["query", "key", "attention weight", "induction-demo · L1H3"] {
        assert!(said.contains(&label.to_owned()), "{label}: {said:?}");
    }
    let screen = ["Overview", "quit", "done"];
    assert!(
        said.iter()
            .all(|label| screen.iter().all(|word| !label.contains(word)))
    );
    // 7 × 7 cells, of which those above the diagonal are not drawn; neighbours of one colour are one.
    let svg = String::from_utf8(svg).expect("text");
    let map = svg.split("crispEdges").nth(1).expect("a map");
    let (map, _) = map.split_once("</g>").expect("its end");
    let n_cells = map.matches("<path").count();
    assert!((7..=28).contains(&n_cells), "{n_cells}");
}

#[test]
fn width_title_and_format_are_as_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let (svg, _) = figure(path, "a.svg", &["--width", "3.3in", "--title", "Entropies"]);
    let svg = String::from_utf8(svg).expect("text");
    assert!(svg.contains(r#"width="83.82mm""#), "{}", &svg[..200]);
    assert!(said_in(svg.as_bytes()).contains(&"Entropies".to_owned()));
    let (bare, _) = figure(path, "b.svg", &["--title", ""]);
    assert!(!said_in(&bare).contains(&"induction-demo".to_owned()));
    let (pdf, _) = figure(path, "a.pdf", &["--width", "84mm"]);
    assert!(pdf.starts_with(b"%PDF-") && pdf.ends_with(b"%%EOF"));
    let (png, _) = figure(path, "a.png", &["--width", "84mm"]);
    assert_eq!(&png[1..4], b"PNG");
    // Big-endian, behind the signature and the header's name: 84 mm at 300 dots an inch.
    assert_eq!(png[16..20], 992u32.to_be_bytes());
    let ran = attnscope(&["plot", "--figure", "--format", "pdf", "--output", "-"]);
    assert!(ran.stdout.starts_with(b"%PDF-"));
    let again = attnscope(&["plot", "--figure", "--format", "pdf", "--output", "-"]);
    assert_eq!(ran.stdout, again.stdout);
}

#[test]
fn a_difference_has_three_maps_and_a_page_of_a_story_its_charts() {
    let directory = tempfile::tempdir().expect("a directory");
    let what_if = [
        "--panel",
        "compare",
        "--what-if",
        "drop=zero@L0H2",
        "--at",
        "L1H3",
    ];
    let (svg, _) = figure(directory.path(), "a.svg", &what_if);
    let said = said_in(&svg);
    for label in [
        "A · L1H3",
        "B · L1H3",
        "B − A · L1H3",
        "change of attention weight",
    ] {
        assert!(said.contains(&label.to_owned()), "{label}: {said:?}");
    }
    let page = ["--demo", "collapse", "--page", "1"];
    let (svg, _) = figure(directory.path(), "b.svg", &page);
    let said = said_in(&svg);
    assert!(said.iter().any(|label| label == "step"), "{said:?}");
    assert!(
        said.iter().any(|label| label.contains("scaled")),
        "{said:?}"
    );
}

#[test]
fn letters_that_the_font_lacks_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let title = ["--title", "猫"];
    let (_, said) = figure(path, "a.svg", &title);
    assert!(said.contains("not in the font"), "{said}");
    let (_, said) = figure(path, "b.svg", &[]);
    assert!(!said.contains("not in the font"), "{said}");
}

#[test]
fn what_no_figure_can_be_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let to = |name: &str| -> PathBuf { directory.path().join(name) };
    for (name, arguments, expected) in [
        (
            "a.svg",
            &["--figure", "--panel", "model"][..],
            "expected --panel overview, head",
        ),
        (
            "a.svg",
            &["--figure", "--width", "2mm"],
            "from 30mm to 600mm",
        ),
        (
            "a.svg",
            &["--figure", "--width", "wide"],
            "as 84mm, 8.4cm or 3.3in",
        ),
        ("a.gif", &["--figure"], "ends in .svg"),
        ("a.svg", &["--figure", "--format", "pdf"], "ends in .pdf"),
        ("a.pdf", &[], "--figure draws PNG and PDF"),
        ("a.svg", &["--width", "84mm"], "--figure"),
        (
            "a.svg",
            &["--figure", "--size", "100x40"],
            "cannot be used with",
        ),
    ] {
        let path = to(name);
        let output = ["plot", "--output", path.to_str().expect("a path")];
        let ran = attnscope(&[&output, arguments].concat());
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(!path.exists());
    }
}
