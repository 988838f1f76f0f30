//! What is wrong with a command line is one clear line, with what to do next as a sentence.

use testing::checkpoint_copy::{attnscope, text};

fn said(arguments: &[&str]) -> String {
    let output = attnscope(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    said
}

#[test]
fn every_kind_of_refusal_is_one_line_that_says_what_to_do_next() {
    const TARGET: &str = "fixtures/healthy";
    let cases: [(&[&str], &str); 17] = [
        // Unknown flags: with one that is near, with several, with none.
        (
            &["report", TARGET, "--foramt", "json"],
            "unexpected argument '--foramt'; did you mean '--format'?",
        ),
        (
            &["report", TARGET, "--foo"],
            "unexpected argument '--foo'; to pass '--foo' as a value, use '-- --foo'",
        ),
        (
            &["report", "-z"],
            "unexpected argument '-z'; to pass '-z' as a value, use '-- -z'",
        ),
        // Values: none, one that is not known, one near a known one, none where a number is.
        (
            &["report", TARGET, "--format"],
            "'--format <FORMAT>' needs a value: expected one of json, csv, parquet, markdown, html",
        ),
        (
            &["report", TARGET, "--format", "jsn"],
            "invalid value 'jsn' for '--format <FORMAT>': expected one of json, csv, parquet, markdown, html; did you mean 'json'?",
        ),
        (
            &["report", TARGET, "--text"],
            "'--text <TEXT>' needs a value",
        ),
        (
            &["report", TARGET, "--threads", "x"],
            "invalid value 'x' for '--threads <N>': expected a whole number",
        ),
        (
            &["report", TARGET, "--threads=-1"],
            "invalid value '-1' for '--threads <N>': expected a number of at least 0",
        ),
        (
            &["report", TARGET, "--threads", "99999999999999999999"],
            "invalid value '99999999999999999999' for '--threads <N>': expected a smaller number",
        ),
        (
            &["report", TARGET, "--set", "n"],
            "invalid value 'n' for '--set <KEY=VALUE>': expected KEY=VALUE, found \"n\"",
        ),
        (
            &["report", TARGET, "--quiet=x"],
            "unexpected value 'x' for '--quiet' found; no more were expected",
        ),
        // Flags that exclude each other, and one given twice.
        (
            &["report", TARGET, "--text", "a", "--tokens", "1"],
            "the argument '--text <TEXT>' cannot be used with '--tokens <ID,ID,…>'",
        ),
        (
            &["report", TARGET, "--format", "json", "--format", "csv"],
            "the argument '--format <FORMAT>' cannot be used multiple times",
        ),
        // What is missing: one argument, and several.
        (
            &["batch", TARGET],
            "the required argument --output <DIR> is missing",
        ),
        (
            &["align", "--queries", "a"],
            "required arguments are missing: --keys <FILE>, --query-text <TEXT>, --key-text <TEXT>",
        ),
        // Subcommands: one near a known one, and none.
        (
            &["cache", "lst"],
            "unrecognized subcommand 'lst'; did you mean 'list'?",
        ),
        (&["lab"], "expected a subcommand, found none"),
    ];
    for (arguments, expected) in cases {
        let expected = format!("attnscope: {expected} (see --help)\n");
        assert_eq!(said(arguments), expected, "{arguments:?}");
    }
}

#[test]
fn no_refusal_holds_the_pieces_of_a_longer_message() {
    for arguments in [
        &["--foo"] as &[&str],
        &["lab", "foo"],
        &["completions", "bsh"],
        &["effect", "fixtures/healthy", "--by", "foo"],
        &["sweep", "--device", "cuda"],
        &["plot", "--size", "1"],
    ] {
        let said = said(arguments);
        for piece in ["tip:", "Usage", "error:", "[possible", "\n\n"] {
            assert!(!said.contains(piece), "{arguments:?}: {said}");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
