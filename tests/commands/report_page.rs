//! The HTML pages of `report` and `history`: anchors of heads, hostile tokens, the tables that the script filters, and the size of the file.

use scraper::{ElementRef, Html, Selector};
use testing::checkpoint_copy::{Copy, Stored, attnscope, original, text};

const TOKENS: &str = "5,9,2,5,9,2,200,7,7,31,5,9";

fn page_of(arguments: &[&str]) -> String {
    let output = attnscope(&[&["report", "--format", "html"], arguments].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    text(&output.stdout)
}

fn all<'a>(page: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    let selector = Selector::parse(selector).expect("a selector");
    page.select(&selector).collect()
}

fn words(element: ElementRef<'_>) -> String {
    element.text().collect()
}

#[test]
fn a_head_has_its_name_as_anchor() {
    let path = original("gpt2");
    let page = page_of(&[path.to_str().expect("a path"), "--tokens", TOKENS]);
    let page = Html::parse_document(&page);
    for anchor in ["L0H0", "L2H3"] {
        assert_eq!(
            all(&page, &format!("figure[id={anchor}][data-head={anchor}]")).len(),
            1
        );
        for place in [".grid td", "details.heads th"] {
            let links = all(&page, &format!("{place} a[href='#{anchor}']"));
            assert_eq!(links.len(), 1, "{place} {anchor}");
        }
    }
    let path = original("t5_v11");
    let page = page_of(&[
        path.to_str().expect("a path"),
        "--tokens",
        "5,9,2,5,9,2,20,7",
        "--target-tokens",
        "0,5,9,8,7",
    ]);
    let page = Html::parse_document(&page);
    for (stack, sides) in [("encoder", "0 0"), ("decoder", "1 1"), ("cross", "1 0")] {
        let maps = format!("[data-stack={stack}] .patterns[data-sides='{sides}']");
        let figures = all(&page, &format!("{maps} figure[id={stack}-L0H0]"));
        assert_eq!(figures.len(), 1, "{stack}");
    }
}

#[test]
fn a_token_of_a_hostile_vocabulary_is_text() {
    let copy = Copy::of_directory(&testing::root().join("fixtures/healthy"));
    let hostile = [
        "</script><img src=x onerror=alert(1)>",
        "a\u{2028}b\u{202e}c",
    ];
    let original = testing::root().join("fixtures/healthy/tokenizer.json");
    let vocabulary = std::fs::read_to_string(original).expect("reads");
    let mut vocabulary: serde_json::Value = serde_json::from_str(&vocabulary).expect("JSON");
    let entries = vocabulary["model"]["vocab"]
        .as_object_mut()
        .expect("a vocabulary");
    for (word, hostile) in ["cat", "dog"].into_iter().zip(hostile) {
        let id = entries.remove(word).expect("a word");
        entries.insert(hostile.to_owned(), id);
    }
    copy.write("tokenizer.json", vocabulary.to_string());
    let path = copy.path().to_str().expect("a path");
    let page = page_of(&[path, "--tokens", "101,102,101,102,5"]);
    for letter in ['\u{2028}', '\u{202e}'] {
        assert!(!page.contains(letter), "{letter:?}");
    }
    assert_eq!(page.matches("</script").count(), 1);
    let page = Html::parse_document(&page);
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    let tokens: Vec<String> = all(&page, ".tokens span").into_iter().map(words).collect();
    assert_eq!(tokens[..2], [hostile[0], "a�b�c"]);
    assert!(all(&page, "[onerror]").is_empty());
}

#[test]
fn the_table_of_heads_names_types_and_findings() {
    let path = testing::root().join("fixtures/history/step-400.safetensors");
    let story = "the king took a quiet story in the night .";
    let page = page_of(&[path.to_str().expect("a path"), "--text", story]);
    let page = Html::parse_document(&page);
    let row = all(&page, "details.heads tbody tr").into_iter().nth(1);
    let cells: Vec<String> = row
        .expect("a row")
        .child_elements()
        .map(|cell| words(cell))
        .collect();
    assert_eq!(cells[0], "L0H1");
    assert_eq!(
        cells[2],
        "entropy-collapse, score-explosion, softmax-saturation"
    );
    let ids: Vec<&str> = all(&page, "details.heads th[data-id]")
        .iter()
        .filter_map(|heading| heading.attr("data-id"))
        .collect();
    assert!(ids.contains(&"entropy_relative"), "{ids:?}");
    // Each finding at a head leads to that head.
    assert!(!all(&page, ".findings .place a[href='#L0H1']").is_empty());
}

/// A GPT-2 of 12 layers of 12 heads, with random weights: its maps are noise, which compresses badly.
fn twelve_by_twelve() -> Copy {
    let copy = Copy::of("gpt2");
    let (d_model, n_layers, n_ctx) = (96, 12, 256);
    copy.config(|config| {
        for (key, value) in [
            ("n_embd", d_model),
            ("n_layer", n_layers),
            ("n_head", 12),
            ("n_positions", n_ctx),
            ("n_ctx", n_ctx),
        ] {
            config.insert(key.to_owned(), value.into());
        }
    });
    let mut random = fastrand::Rng::with_seed(7);
    copy.weights(|weights| {
        let layer = weights.clone();
        weights.clear();
        for (name, stored) in layer {
            // Widths of the small model, and of this one.
            let size = |n: &usize| {
                if *n == 64 {
                    d_model
                } else if n.is_multiple_of(64) {
                    n / 64 * d_model
                } else {
                    *n
                }
            };
            let mut shape: Vec<usize> = stored.shape.iter().map(size).collect();
            if name.ends_with("wpe.weight") {
                shape = vec![n_ctx, d_model];
            }
            let spread = if name.ends_with("c_attn.weight") {
                0.5
            } else {
                0.2
            };
            let names: Vec<String> = match name.contains("h.0.") {
                true => (0..n_layers)
                    .map(|layer_idx| name.replace("h.0.", &format!("h.{layer_idx}.")))
                    .collect(),
                false if name.contains("h.1.") || name.contains("h.2.") => Vec::new(),
                false => vec![name.clone()],
            };
            for name in names {
                let n = shape.iter().product();
                let values: Vec<f32> = (0..n)
                    .map(|_| match shape.len() {
                        1 => f32::from(name.contains("ln_") && name.ends_with("weight")),
                        _ => {
                            spread
                                * (random.f32() + random.f32() + random.f32() + random.f32() - 2.0)
                                * 1.7
                        }
                    })
                    .collect();
                weights.insert(name, Stored::f32(&shape, &values));
            }
        }
    });
    copy
}

#[test]
fn twelve_layers_of_twelve_heads_on_256_tokens_are_less_than_two_megabytes() {
    let copy = twelve_by_twelve();
    let tokens: Vec<String> = (0..256).map(|at| (at * 37 % 211).to_string()).collect();
    let path = copy.path().to_str().expect("a path");
    let page = page_of(&[path, "--tokens", &tokens.join(",")]);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let parsed = Html::parse_document(&page);
    assert_eq!(
        all(&parsed, ".patterns[data-tile='4 4'] figure img").len(),
        144
    );
}

#[test]
fn the_page_of_a_training_has_a_row_for_each_head_and_findings_that_lead_there() {
    let log = testing::root().join("fixtures/histories/jump.jsonl");
    let log = log.to_str().expect("a path");
    let of = |format| {
        let output = attnscope(&["history", log, "--format", format]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        text(&output.stdout)
    };
    let page = of("html");
    assert_eq!(page, of("html"), "the same input gives the same bytes");
    let json: serde_json::Value = serde_json::from_str(&of("json")).expect("JSON");
    let layers = json["layers"].as_array().expect("layers");
    let n_heads: u64 = layers.iter().filter_map(|l| l["n_heads"].as_u64()).sum();
    let n_findings = json["findings"].as_array().expect("findings").len();
    let page = Html::parse_document(&page);
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    assert_eq!(all(&page, ".steps tbody tr[id]").len() as u64, n_heads);
    assert_eq!(all(&page, ".findings tbody tr").len(), n_findings);
    assert!(n_findings > 0);
    assert_eq!(all(&page, "script").len(), 1);
    for link in all(&page, "a[href]") {
        let anchor = link.attr("href").expect("a target").trim_start_matches('#');
        assert_eq!(
            all(&page, &format!("tr[id='{anchor}']")).len(),
            1,
            "{anchor}"
        );
    }
}
