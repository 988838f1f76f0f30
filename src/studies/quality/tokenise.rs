//! BLEU's tokenisation "13a": NIST's mteval-v13a as implemented in sacreBLEU (Post 2018, arXiv 1804.08771).

/// Splits a segment into the tokens that BLEU counts, joined by single spaces.
pub fn tokenise_13a(segment: &str) -> String {
    let text = segment
        .trim_end()
        .replace("<skipped>", "")
        .replace("-\n", "");
    let mut text = text.replace('\n', " ");
    if text.contains('&') {
        // The order matters: an unescaped ampersand may start another escape.
        for (escape, character) in [
            ("&quot;", "\""),
            ("&amp;", "&"),
            ("&lt;", "<"),
            ("&gt;", ">"),
        ] {
            text = text.replace(escape, character);
        }
    }
    let text: Vec<char> = format!(" {text} ").chars().collect();
    let apart = text.iter().flat_map(|c| {
        if stands_alone(*c) {
            vec![' ', *c, ' ']
        } else {
            vec![*c]
        }
    });
    let apart: Vec<char> = apart.collect();
    // Periods and commas stay inside numbers; a dash after a digit does not.
    let is_point = |c: char| matches!(c, '.' | ',');
    let apart = pairs(
        &apart,
        |a, b| !a.is_ascii_digit() && is_point(b),
        |a, b| vec![a, ' ', b, ' '],
    );
    let apart = pairs(
        &apart,
        |a, b| is_point(a) && !b.is_ascii_digit(),
        |a, b| vec![' ', a, ' ', b],
    );
    let apart = pairs(
        &apart,
        |a, b| a.is_ascii_digit() && b == '-',
        |a, b| vec![a, ' ', b, ' '],
    );
    let apart: String = apart.into_iter().collect();
    apart.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// ASCII punctuation and symbols, except apostrophe, comma, dash and period.
fn stands_alone(c: char) -> bool {
    matches!(c, '{'..='~' | '['..='`' | ' '..='&' | '('..='+' | ':'..='@' | '/')
}

/// Replaces pairs of neighbours from left to right; replaced characters are not matched again.
fn pairs(
    text: &[char],
    matches: impl Fn(char, char) -> bool,
    instead: impl Fn(char, char) -> Vec<char>,
) -> Vec<char> {
    let mut found = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match text.get(at + 1) {
            Some(next) if matches(text[at], *next) => {
                found.extend(instead(text[at], *next));
                at += 2;
            }
            _ => {
                found.push(text[at]);
                at += 1;
            }
        }
    }
    found
}
