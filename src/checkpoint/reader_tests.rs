//! Tests of values that the reader accepts and refuses.

use super::*;

fn config(text: &str) -> Config {
    Config::parse(Path::new("config.json"), text).expect("valid JSON")
}

#[test]
fn zero_and_absurd_sizes_are_refused_with_the_value_found() {
    for bad in ["0", "-3", "2.5", "\"12\"", "99999999999", "1e300"] {
        let config = config(&format!("{{\"n_head\": {bad}}}"));
        let error = Reader::new(&config)
            .size("n_heads", "n_head")
            .expect_err(bad)
            .to_string();
        assert!(
            error.contains("n_head") && error.contains("found"),
            "{error}"
        );
    }
}

#[test]
fn keys_that_were_never_read_are_listed() {
    let config = config("{\"n_head\": 4, \"summary_type\": \"cls\", \"scale\": null}");
    let mut reader = Reader::new(&config);
    reader.size("n_heads", "n_head").expect("a size");
    assert_eq!(
        reader.number_or("scale", "scale", 0.5).expect("a default"),
        0.5
    );
    let (knobs, unread) = reader.finish();
    assert_eq!(unread, ["summary_type"]);
    assert_eq!(knobs[1].origin, Origin::Default("scale".to_owned()));
}
