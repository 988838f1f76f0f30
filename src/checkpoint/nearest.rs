//! Suggests the name that a user probably meant.

use std::path::{Component, Path, PathBuf};

use strsim::{jaro_winkler, normalized_damerau_levenshtein};

/// Names with a lower similarity are not suggested.
const ALIKE: f64 = 0.75;
/// Shortest prefix that counts as a match.
const BEGINNING: usize = 2;
/// Most names suggested at once.
const MOST_MEANT: usize = 3;
/// Most entries of a directory that are compared with a misspelt name.
const MOST_ENTRIES: usize = 5000;

/// Returns the known name that is most similar; `None` if none is similar enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_all(name, known).pop()
}

/// Returns the known names that are most similar, in their order; several if they are equally similar, such as those that begin
/// with the given name.
fn nearest_all<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.to_lowercase().replace('-', "_");
    let alike = |other: &str| {
        let other = other.to_lowercase().replace('-', "_");
        let begins = name.len() >= BEGINNING && other.starts_with(&name);
        let both = jaro_winkler(&name, &other) + normalized_damerau_levenshtein(&name, &other);
        if begins { 1.0 } else { both / 2.0 }
    };
    let mut best = ALIKE;
    let mut meant: Vec<&str> = Vec::new();
    for other in known {
        let score = alike(other);
        if score > best {
            meant.clear();
        }
        if score >= best && !meant.contains(&other) {
            best = score;
            meant.push(other);
        }
    }
    meant
}

/// Formats ` (did you mean n_heads?)`; empty if no known name is similar.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let mut meant = nearest_all(name, known);
    meant.truncate(MOST_MEANT);
    if meant.is_empty() {
        String::new()
    } else {
        format!(" (did you mean {}?)", meant.join(" or "))
    }
}

/// Returns a path with the first missing component replaced by the most similar entry of its directory, followed by the rest if
/// that exists there; `None` if the path exists or nothing is similar.
fn nearest_path(path: &Path) -> Option<PathBuf> {
    let mut known = PathBuf::new();
    let mut components = path.components();
    let missing = loop {
        let component = components.next()?;
        let next = known.join(component);
        if next.symlink_metadata().is_err() {
            match component {
                Component::Normal(name) => break name.to_str()?,
                _ => return None,
            }
        }
        known = next;
    };
    let here = if known.as_os_str().is_empty() {
        Path::new(".")
    } else {
        known.as_path()
    };
    let entries = here.read_dir().ok()?.take(MOST_ENTRIES);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    let meant = nearest(missing, names.iter().map(String::as_str))?;
    let (found, rest) = (known.join(meant), components.as_path());
    Some(
        if found.join(rest).exists() && !rest.as_os_str().is_empty() {
            found.join(rest)
        } else {
            found
        },
    )
}

/// Formats ` (did you mean runs/step-400?)` for a path that does not exist; empty if no existing one is similar.
pub fn path_meant(path: &Path) -> String {
    match nearest_path(path) {
        Some(meant) => format!(" (did you mean {}?)", meant.display()),
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
        assert_eq!(
            did_you_mean(
                "entropy",
                ["entropy-collapse", "row-sum", "entropy-uniform"]
            ),
            " (did you mean entropy-collapse or entropy-uniform?)"
        );
    }

    #[test]
    fn a_misspelt_path_finds_what_is_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let inside = directory.path().join("runs/step-400");
        std::fs::create_dir_all(&inside).expect("makes");
        std::fs::write(inside.join("model.safetensors"), "").expect("writes");
        let meant = |path: &str| nearest_path(&directory.path().join(path));
        assert_eq!(meant("runs/step400"), Some(inside.clone()));
        assert_eq!(
            meant("rnus/step-400/model.safetensors"),
            Some(inside.join("model.safetensors"))
        );
        // The directory is found, and the file in it is not.
        assert_eq!(meant("runs/step-40/config.json"), Some(inside.clone()));
        assert_eq!(meant("runs/step-400"), None);
        assert_eq!(meant("elsewhere"), None);
    }
}
