//! Suggests the name that a user probably meant.

use strsim::{jaro_winkler, normalized_damerau_levenshtein};

/// Names with a lower similarity are not suggested.
const ALIKE: f64 = 0.75;
/// Shortest prefix that counts as a match.
const BEGINNING: usize = 2;

/// Returns the known name that is most similar; `None` if none is similar enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase().replace('-', "_");
    let alike = |other: &str| {
        let other = other.to_lowercase().replace('-', "_");
        let begins = name.len() >= BEGINNING && other.starts_with(&name);
        let both = jaro_winkler(&name, &other) + normalized_damerau_levenshtein(&name, &other);
        if begins { 1.0 } else { both / 2.0 }
    };
    let scored = known.into_iter().map(|other| (alike(other), other));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score >= ALIKE)
        .map(|(_, other)| other)
}

/// Formats ` (did you mean n_heads?)`; empty if no known name is similar.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(meant) => format!(" (did you mean {meant}?)"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_find_the_intended_one_and_other_words_find_none() {
        let commands = [
            "check", "explain", "report", "heads", "trace", "sweep", "lab",
        ];
        for (slip, meant) in [
            ("chek", "check"),
            ("chekc", "check"),
            ("reports", "report"),
            ("REPORT", "report"),
            ("rep", "report"),
            ("head", "heads"),
            ("swep", "sweep"),
        ] {
            assert_eq!(nearest(slip, commands), Some(meant), "{slip}");
        }
        for other in ["model", "x", "", "gpt2", "my-checkpoint"] {
            assert_eq!(nearest(other, commands), None, "{other}");
        }
        let keys = ["n_layers", "n_heads", "n_kv_heads", "d_head"];
        assert_eq!(nearest("n_head", keys), Some("n_heads"));
        assert_eq!(nearest("n-kv-heads", keys), Some("n_kv_heads"));
        assert_eq!(did_you_mean("dhead", keys), " (did you mean d_head?)");
    }
}
