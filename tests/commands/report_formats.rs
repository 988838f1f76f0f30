//! Reports as CSV, Markdown and HTML: read back by other readers, with names that would break out of each.

use std::path::{Path, PathBuf};

use attnscope_checks::stats::STATISTICS;
use scraper::{Html, Selector};
use testing::checkpoint_copy::{Copy, attnscope, original, text, unread};

const TOKENS: &str = "5,9,2,5,9,2,200,7,7,31,5,9";
const FORMATS: [&str; 3] = ["csv", "markdown", "html"];

/// What a prompt's name could hold to break out of a format.
const HOSTILE_ID: &str = "<script>alert('x')</script> \"&,;|`z`\n=1+1 </td></table> ](x) é";

/// Runs a command that must succeed, and gives what it writes to standard output.
fn ran(arguments: &[&str]) -> Vec<u8> {
    let output = attnscope(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    output.stdout
}

fn report_bytes(copy: &Copy, arguments: &[&str]) -> Vec<u8> {
    let path = copy.path().to_str().expect("a path");
    ran(&[&["report", path, "--tokens", TOKENS], arguments].concat())
}

/// A set of two prompts, the first of which has a hostile name and text.
fn hostile_inputs(copy: &Copy) -> PathBuf {
    let lines = [
        serde_json::json!({"id": HOSTILE_ID, "tokens": [5, 9, 2, 5, 9, 2]}),
        serde_json::json!({"id": "plain", "tokens": [1, 2, 3, 4]}),
    ];
    let path = copy.output("inputs.jsonl");
    let lines = lines.map(|line| line.to_string()).join("\n");
    std::fs::write(&path, lines).expect("writes");
    path
}

/// The small GPT-2 under a hostile name.
fn hostile_model(directory: &Path) -> PathBuf {
    let path = directory.join("<img src=x onerror=alert(1)> \"'&|`a`");
    std::fs::create_dir(&path).expect("a directory");
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(original("gpt2").join(file), path.join(file)).expect("copies");
    }
    path
}

fn hostile_report(format: &str) -> String {
    let copy = Copy::of("gpt2");
    let directory = tempfile::tempdir().expect("a directory");
    let model = hostile_model(directory.path());
    let inputs = hostile_inputs(&copy);
    let paths = [&model, &inputs].map(|path| path.to_str().expect("a path"));
    text(&ran(&[
        "report", paths[0], "--inputs", paths[1], "--format", format,
    ]))
}

fn html_of(family: &str, arguments: &[&str]) -> String {
    let path = original(family);
    let path = path.to_str().expect("a path");
    let arguments = [&["report", path, "--format", "html"], arguments].concat();
    text(&ran(&arguments))
}

fn select<'a>(page: &'a Html, selector: &str) -> Vec<scraper::ElementRef<'a>> {
    let selector = Selector::parse(selector).expect("a selector");
    page.select(&selector).collect()
}

const T5: [&str; 4] = [
    "--tokens",
    "5,9,2,5,9,2,20,7",
    "--target-tokens",
    "0,5,9,8,7",
];

/// Where a row of the table belongs.
const PLACES: [&str; 8] = [
    "checkpoint",
    "step",
    "prompt",
    "n_tokens",
    "loss",
    "stack",
    "layer",
    "head",
];

fn ids_of_prompt() -> usize {
    testing::running::ids().len()
}

#[test]
fn csv_has_a_row_for_each_layer_and_head_and_the_numbers_of_the_json() {
    let copy = Copy::of("gpt2");
    let json = report_bytes(&copy, &[]);
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let bytes = report_bytes(&copy, &["--format", "csv"]);
    let mut reader = csv::Reader::from_reader(&bytes[..]);
    let header: Vec<String> = reader
        .headers()
        .expect("a header")
        .iter()
        .map(str::to_owned)
        .collect();
    let ids = STATISTICS.iter().map(|s| s.id);
    let expected: Vec<&str> = PLACES.into_iter().chain(ids).collect();
    assert_eq!(header, expected);
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), 3 * (1 + 4));
    for (nth, row) in rows.iter().enumerate() {
        // A layer's own row comes before those of its heads.
        let (layer, head) = (nth / 5, (nth % 5).checked_sub(1));
        let name = copy.path().file_name().expect("a name").to_string_lossy();
        let head_cell = head.map(|head| head.to_string()).unwrap_or_default();
        let place = [0, 1, 2, 3, 5, 6, 7].map(|at| &row[at]);
        let n_tokens = ids_of_prompt().to_string();
        let expected = [
            &*name,
            "",
            "prompt",
            &n_tokens,
            "",
            &layer.to_string(),
            &head_cell,
        ];
        assert_eq!(place, expected);
        let in_json = &json["prompts"][0]["layers"][layer];
        let stats = match head {
            Some(head) => &in_json["heads"][head]["stats"],
            None => &in_json["stats"],
        };
        for (name, value) in header.iter().zip(row.iter()).skip(PLACES.len()) {
            let Some(in_json) = stats.get(name) else {
                assert_eq!(value, "", "{name}");
                continue;
            };
            match in_json.as_f64() {
                // The reader of JSON may be off by the last bit.
                Some(number) => {
                    let value: f64 = value.parse().expect("a number");
                    assert!((value - number).abs() <= 1e-15 * number.abs(), "{name}");
                }
                None if in_json.is_null() => assert_eq!(value, "", "{name}"),
                None => assert_eq!(in_json.as_str(), Some(value), "{name}"),
            }
        }
    }
}

#[test]
fn csv_names_stacks_and_keeps_hostile_names() {
    let path = original("t5_v11");
    let path = path.to_str().expect("a path");
    let bytes = ran(&[&["report", path, "--format", "csv"], &T5[..]].concat());
    let mut stacks: Vec<String> = csv::Reader::from_reader(&bytes[..])
        .records()
        .map(|row| row.expect("a row")[5].to_owned())
        .collect();
    stacks.dedup();
    stacks.sort_unstable();
    stacks.dedup();
    assert_eq!(stacks, ["cross", "decoder", "encoder"]);

    let bytes = hostile_report("csv");
    let mut reader = csv::Reader::from_reader(bytes.as_bytes());
    let first = reader.records().next().expect("a row").expect("a row");
    assert_eq!(&first[2], HOSTILE_ID);
}

/// Markdown as a forge shows it.
fn rendered(page: &str) -> Html {
    let options = pulldown_cmark::Options::ENABLE_TABLES;
    let mut html = String::new();
    pulldown_cmark::html::push_html(&mut html, pulldown_cmark::Parser::new_ext(page, options));
    Html::parse_document(&html)
}

fn words(page: &Html, selector: &str) -> Vec<String> {
    let texts = select(page, selector).into_iter();
    texts.map(|element| element.text().collect()).collect()
}

#[test]
fn markdown_tables_hold_together_and_fit_a_comment() {
    let page = hostile_report("markdown");
    assert!(page.len() < 65_536);
    let page = rendered(&page);
    for element in ["script", "img", "a"] {
        assert!(select(&page, element).is_empty(), "{element}");
    }
    assert_eq!(
        words(&page, "h2"),
        ["<img src=x onerror=alert(1)> \"'&|`a`"]
    );
    let headings: Vec<String> = words(&page, "h3");
    assert!(headings[0].starts_with("Findings: ") && headings[1] == "Layers, over 2 prompts");
    let ids = words(&page, "tbody tr td:first-child code");
    assert!(ids.contains(&HOSTILE_ID.replace('\n', " ")), "{ids:?}");
    // Two prompts of three layers, folded, with four heads each.
    assert_eq!(select(&page, "details table").len(), 6);
    for table in select(&page, "table") {
        let all = |selector: &str| {
            let selector = Selector::parse(selector).expect("a selector");
            table.select(&selector).collect::<Vec<_>>()
        };
        let n_columns = all("th").len();
        for row in all("tbody tr") {
            let filled = row
                .child_elements()
                .filter(|cell| !cell.inner_html().is_empty());
            assert_eq!(filled.count(), n_columns);
        }
    }
}

#[test]
fn markdown_of_a_broken_model_names_what_is_wrong() {
    let copy = Copy::of("gpt2");
    let page = text(&report_bytes(
        &copy,
        &["--format", "markdown", "--set", "softmax_axis=queries"],
    ));
    assert!(
        page.contains("| error | `wrong-axis` | `blocks.0` |"),
        "{page}"
    );
    assert!(page.contains("Not tested in a report"), "{page}");
}

#[test]
fn html_needs_nothing_beside_itself_and_is_whole() {
    for page in [
        html_of("gpt2", &["--tokens", TOKENS]),
        html_of("t5_v11", &T5),
        hostile_report("html"),
    ] {
        for elsewhere in ["http://", "https://", "//cdn", "@import", "url("] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
        let parsed = Html::parse_document(&page);
        assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
        for element in ["link", "iframe", "object", "[style]", "script[src]"] {
            assert!(select(&parsed, element).is_empty(), "{element}");
        }
        assert_eq!(select(&parsed, "script").len(), 1);
        let policy = select(&parsed, "meta[http-equiv=Content-Security-Policy]");
        let policy = policy[0].attr("content").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
        assert!(!policy.contains("unsafe"), "{policy}");
        for image in select(&parsed, "img") {
            assert!(
                image
                    .attr("src")
                    .expect("a source")
                    .starts_with("data:image/png;base64,")
            );
        }
        for element in select(&parsed, "*") {
            assert!(
                element
                    .value()
                    .attrs()
                    .all(|(name, _)| !name.starts_with("on"))
            );
        }
        let mut ids: Vec<&str> = select(&parsed, "[id]")
            .iter()
            .filter_map(|e| e.attr("id"))
            .collect();
        for link in select(&parsed, "a[href]") {
            let target = link.attr("href").expect("a target").trim_start_matches('#');
            assert!(ids.contains(&target), "{target} leads nowhere");
        }
        let n = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), n, "an id stands twice");
    }
}

#[test]
fn html_shows_every_head_once_in_the_grid_and_once_as_a_map() {
    let page = Html::parse_document(&html_of("gpt2", &["--tokens", TOKENS]));
    assert_eq!(select(&page, "table.grid tbody td").len(), 12);
    assert_eq!(select(&page, ".maps img").len(), 12);
    assert_eq!(select(&page, "svg").len(), 3);
    let page = Html::parse_document(&html_of("t5_v11", &T5));
    assert_eq!(
        select(&page, "table.grid").len(),
        3,
        "a grid for each stack"
    );
    assert_eq!(
        select(&page, "table.grid tbody td").len(),
        select(&page, ".maps img").len()
    );
}

#[test]
fn html_keeps_hostile_names_as_words() {
    let page = Html::parse_document(&hostile_report("html"));
    assert_eq!(
        words(&page, "h1"),
        ["<img src=x onerror=alert(1)> \"'&|`a`"]
    );
    assert_eq!(words(&page, "h2 .name"), [HOSTILE_ID, "plain"]);
}

#[test]
fn html_of_a_broken_model_marks_where_it_is() {
    let page = html_of(
        "gpt2",
        &["--tokens", TOKENS, "--set", "softmax_axis=queries"],
    );
    let page = Html::parse_document(&page);
    assert!(!select(&page, ".findings .badge.error").is_empty());
    assert!(!select(&page, ".grid .e").is_empty());
    let healthy = Html::parse_document(&html_of("gpt2", &["--tokens", TOKENS]));
    assert!(select(&healthy, ".badge.error").is_empty());
}

#[test]
fn the_same_run_is_the_same_bytes() {
    let copy = Copy::of("llama");
    for format in FORMATS {
        let bytes = |threads| report_bytes(&copy, &["--format", format, "--threads", threads]);
        assert_eq!(bytes("1"), bytes("2"), "{format}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let copy = Copy::of("gpt2");
    for format in FORMATS {
        let path = copy.path().to_str().expect("a path");
        let output = unread(&["report", path, "--tokens", TOKENS, "--format", format]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{format}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_format_that_is_not_known_is_refused_with_the_list() {
    let output = attnscope(&["report", "x", "--format", "pdf"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(FORMATS.iter().all(|format| said.contains(format)), "{said}");
}
