//! Names of models as people write them: `org/name@revision`, `hf://…`, `https://huggingface.co/…`.

use std::path::{Component, Path};

/// The hub's own limit on the characters of a name.
const LONGEST_NAME: usize = 96;

/// Prefixes of repositories that are not models.
const OTHER_KINDS: [&str; 2] = ["datasets", "spaces"];

/// A model on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `org/name`, or only a name.
    pub repository: String,
    /// A branch, a tag or a commit.
    pub revision: String,
    /// One file of the repository.
    pub file: Option<String>,
    /// Whether it was written with a scheme, so that it cannot be a path.
    pub has_scheme: bool,
}

impl Address {
    /// Parses an argument; `None` when it cannot be a hub name.
    ///
    /// # Errors
    /// Says what is wrong with an address that has a scheme.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        if let Some(rest) = text.strip_prefix("hf://") {
            return Some(of_hf(rest));
        }
        let endpoint = std::env::var("HF_ENDPOINT").ok();
        let sites = [
            "https://huggingface.co/",
            "http://huggingface.co/",
            "https://hf.co/",
        ];
        let site = sites.iter().find_map(|site| text.strip_prefix(site));
        let own = endpoint.as_deref().and_then(|own| {
            let rest = text.strip_prefix(own.trim_end_matches('/'))?;
            rest.strip_prefix('/')
        });
        if let Some(rest) = site.or(own) {
            return Some(of_site(rest));
        }
        if text.starts_with("s3://") {
            let problem = "addresses of object stores are not read; mount the bucket (mountpoint-s3, rclone) and give the path";
            return Some(Err(problem.to_owned()));
        }
        if text.contains("://") {
            let problem = "expected hf://, file:// or https://huggingface.co/ before a name";
            return (!text.starts_with("file://")).then(|| Err(problem.to_owned()));
        }
        let (name, revision) = text.split_once('@').unwrap_or((text, "main"));
        let is_name = is_repository(name) && is_revision(revision);
        is_name.then(|| {
            Ok(Self {
                repository: name.to_owned(),
                revision: revision.to_owned(),
                file: None,
                has_scheme: false,
            })
        })
    }

    /// Name of the model's directory in a cache.
    pub fn directory(&self) -> String {
        format!("models--{}", self.repository.replace('/', "--"))
    }
}

/// Parses `[models/]org/name[@revision][/file]`, the syntax of `huggingface_hub`'s file system.
fn of_hf(rest: &str) -> Result<Address, String> {
    let rest = rest.strip_prefix("models/").unwrap_or(rest);
    let parts: Vec<&str> = rest.trim_end_matches('/').split('/').collect();
    refuse_other_kind(parts[0])?;
    let (org, name, path) = match parts.as_slice() {
        [name] => (None, *name, &[][..]),
        [org, name, path @ ..] => (Some(*org), *name, path),
        [] => return Err("expected hf://ORG/NAME".to_owned()),
    };
    let (name, revision) = name.split_once('@').unwrap_or((name, "main"));
    let repository = org.map_or(name.to_owned(), |org| format!("{org}/{name}"));
    // Slashes in a revision are written as %2F.
    checked(repository, decoded(revision), path)
}

/// Parses `org/name`, `org/name/tree/revision`, `org/name/resolve/revision/file`, `org/name/blob/revision/file`.
fn of_site(rest: &str) -> Result<Address, String> {
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let parts: Vec<&str> = rest.trim_matches('/').split('/').collect();
    refuse_other_kind(parts[0])?;
    let is_word = |word: &&str| ["tree", "resolve", "blob", "raw"].contains(word);
    let n_name = parts.iter().position(is_word).unwrap_or(parts.len());
    if !(1..=2).contains(&n_name) {
        return Err("expected the address of a model: https://huggingface.co/ORG/NAME".to_owned());
    }
    let repository = parts[..n_name].join("/");
    let revision = parts.get(n_name + 1).copied().unwrap_or("main");
    let path = parts.get(n_name + 2..).unwrap_or_default();
    checked(repository, decoded(revision), path)
}

fn refuse_other_kind(first: &str) -> Result<(), String> {
    if OTHER_KINDS.contains(&first) {
        return Err(format!("expected a model, found an address of {first}"));
    }
    Ok(())
}

fn checked(repository: String, revision: String, path: &[&str]) -> Result<Address, String> {
    if !is_repository(&repository) {
        return Err(format!("{repository:?} is no name of a model"));
    }
    if !is_revision(&revision) {
        return Err(format!("{revision:?} is no revision"));
    }
    let file = decoded(&path.join("/"));
    let is_inside = Path::new(&file)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !is_inside {
        return Err(format!("{file:?} is no file of a repository"));
    }
    Ok(Address {
        repository,
        revision,
        file: Some(file).filter(|file| !file.is_empty()),
        has_scheme: true,
    })
}

/// Whether a text can be the name of a repository by the hub's rules.
fn is_repository(name: &str) -> bool {
    let is_part = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty()
            && part.chars().all(plain)
            && !part.starts_with(['-', '.'])
            && !part.ends_with(['-', '.'])
    };
    name.len() <= LONGEST_NAME
        && !name.contains("--")
        && !name.contains("..")
        && name.split('/').count() <= 2
        && name.split('/').all(is_part)
}

fn is_revision(revision: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+');
    let parts = || revision.split('/');
    !revision.is_empty()
        && revision.len() <= 256
        && revision.chars().all(plain)
        && parts().all(|part| !part.is_empty() && part != "." && part != "..")
}

/// Decodes the `%XX` escapes of a text.
pub fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, String, Option<String>) {
        let address = Address::parse(text).expect(text).expect(text);
        (address.repository, address.revision, address.file)
    }

    #[test]
    fn every_notation_of_a_hub_name_is_parsed() {
        for (text, repository, revision, file) in [
            ("gpt2", "gpt2", "main", None),
            ("gpt2@v1.0", "gpt2", "v1.0", None),
            (
                "openai-community/gpt2",
                "openai-community/gpt2",
                "main",
                None,
            ),
            ("a/b@refs/pr/3", "a/b", "refs/pr/3", None),
            ("hf://a/b", "a/b", "main", None),
            (
                "hf://models/a/b@dev/model.safetensors",
                "a/b",
                "dev",
                Some("model.safetensors"),
            ),
            ("hf://a/b@refs%2Fpr%2F1", "a/b", "refs/pr/1", None),
            ("https://huggingface.co/a/b", "a/b", "main", None),
            ("https://huggingface.co/a/b/", "a/b", "main", None),
            ("https://huggingface.co/gpt2", "gpt2", "main", None),
            ("https://huggingface.co/a/b/tree/v2", "a/b", "v2", None),
            (
                "https://huggingface.co/a/b/resolve/main/sub/m.gguf?download=true",
                "a/b",
                "main",
                Some("sub/m.gguf"),
            ),
            (
                "https://hf.co/a/b/blob/main/m.bin",
                "a/b",
                "main",
                Some("m.bin"),
            ),
        ] {
            let found = parsed(text);
            assert_eq!(found.0, repository, "{text}");
            assert_eq!(found.1, revision, "{text}");
            assert_eq!(found.2.as_deref(), file, "{text}");
        }
    }

    #[test]
    fn a_text_that_cannot_be_a_hub_name_is_none() {
        for text in [
            "a/b/c", "../b", "a--b", "-a", "a b", "a/b@", "a/b@../x", "./a", "~/a", "", "a/",
        ] {
            assert!(Address::parse(text).is_none(), "{text}");
        }
        for text in [
            "hf://a/b/../../etc",
            "hf://datasets/a/b",
            "https://huggingface.co/a/b/resolve/main/%2e%2e/x",
            "https://huggingface.co/spaces/a/b",
            "ftp://a/b",
            "hf://",
        ] {
            assert!(matches!(Address::parse(text), Some(Err(_))), "{text}");
        }
    }
}
