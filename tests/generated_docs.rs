//! Pages of the docs that the program writes: equal to what is committed, or rewritten under `UPDATE=1`.

use std::path::Path;

fn is_up_to_date(page: &str, content: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(page);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, content).expect("the page is written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        committed, content,
        "docs/{page} is out of date: run UPDATE=1 cargo test --test generated_docs"
    );
}

#[test]
fn the_page_of_keys_is_the_key_table() {
    is_up_to_date("keys.md", &attnscope::tui::keys_page());
}

#[test]
fn the_page_of_statistics_is_the_registry() {
    is_up_to_date("statistics.md", &attnscope::stats::statistics_page());
}
