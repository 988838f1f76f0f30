//! Pages on a narrow screen: a table that is too wide scrolls by itself or becomes a list of blocks, and pushes nothing off the page.

use scraper::{ElementRef, Html, Selector};
use testing::checkpoint_copy::{attnscope, text};

fn fixture(name: &str) -> String {
    let path = testing::root().join("fixtures").join(name);
    path.to_str().expect("a path").to_owned()
}

fn page(words: &[&str]) -> Html {
    let output = attnscope(words);
    assert_ne!(output.status.code(), Some(2), "{}", text(&output.stderr));
    Html::parse_document(&text(&output.stdout))
}

fn all<'a>(page: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    let selector = Selector::parse(selector).expect("a selector");
    page.select(&selector).collect()
}

fn has_class(element: &ElementRef<'_>, class: &str) -> bool {
    element.value().classes().any(|own| own == class)
}

#[test]
fn every_table_scrolls_or_is_stacked() {
    let story = "the king took a quiet story in the night .";
    let (broken, healthy) = (fixture("history/step-400.safetensors"), fixture("healthy"));
    let directory = tempfile::tempdir().expect("a directory");
    let batch = directory.path().join("batch");
    let batch = batch.to_str().expect("a path");
    let done = attnscope(&["batch", &broken, "--text", story, "--output", batch]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let pages = [
        page(&["report", &broken, "--text", story, "--format", "html"]),
        page(&["merge", batch, "--format", "html"]),
        page(&[
            "diff",
            &healthy,
            &fixture("unscaled"),
            "--text",
            story,
            "--format",
            "html",
        ]),
    ];
    for page in &pages {
        let style: String = all(page, "style")
            .iter()
            .flat_map(|style| style.text())
            .collect();
        let narrow = style
            .split_once("@media (max-width: 760px)")
            .expect("rules for narrow screens")
            .1;
        let tables = all(page, "table");
        assert!(!tables.is_empty());
        for table in tables {
            let class = table.value().classes().next().unwrap_or_default();
            let is_stacked = ["findings", "checks"].contains(&class);
            let inside = table.ancestors().filter_map(ElementRef::wrap);
            let scrolls = inside.into_iter().any(|outer| has_class(&outer, "scroll"));
            assert!(
                scrolls || is_stacked,
                "a table.{class} pushes the page wide"
            );
            if is_stacked {
                assert!(narrow.contains(&format!(".{class} tr,")), "table.{class}");
            }
        }
    }
    // Stacked rows have no heading above them: figures say what they are.
    for figure in all(&pages[0], ".findings td.n") {
        let is = figure.value().attr("data-is").expect("what it is");
        assert!(["value", "threshold"].contains(&is), "{is}");
    }
}
