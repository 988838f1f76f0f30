//! Compares what the files of one checkpoint say about themselves, to find files of different saves.

use std::collections::{BTreeMap, BTreeSet};

use attnscope_checkpoint::{Dtype, Tensors};

/// Words in the names of metadata entries that naturally differ between files.
const OF_FILE: [&str; 12] = [
    "shard", "part", "index", "rank", "file", "size", "bytes", "hash", "sum", "count", "no", "n_",
];

/// All evidence that files come from different saves, in words.
pub(super) fn stale(tensors: &Tensors) -> Vec<String> {
    let names: Vec<String> = tensors.files().map(base_name).collect();
    if names.len() < 2 {
        return Vec::new();
    }
    let mut said = of_metadata(&names, tensors.metadata());
    said.extend(of_names(&names));
    said.extend(of_types(&names, tensors));
    said
}

fn base_name(path: &std::path::Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Whether an entry describes the file itself. Whole words are compared, so that containing `sum` is not enough to match.
fn is_of_file(key: &str) -> bool {
    let lower = key.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    words.any(|word| {
        OF_FILE
            .iter()
            .any(|known| word == *known || word == format!("{known}s"))
    }) || ["checksum", "sha256", "md5", "filename"]
        .iter()
        .any(|known| lower.contains(known))
}

/// Metadata entries that should be equal in all files but are not.
fn of_metadata(names: &[String], metadata: &[BTreeMap<String, String>]) -> Vec<String> {
    let keys: BTreeSet<&String> = metadata.iter().flat_map(BTreeMap::keys).collect();
    let mut said = Vec::new();
    for key in keys.into_iter().filter(|key| !is_of_file(key)) {
        let values = names.iter().zip(metadata);
        let values: Vec<(&String, Option<&String>)> = values
            .map(|(name, entries)| (name, entries.get(key)))
            .collect();
        let (first_name, first) = values[0];
        let other = values.iter().find(|(_, value)| *value != first);
        if let Some((name, value)) = other {
            let of = |value: Option<&String>| {
                value.map_or("nothing".to_owned(), |value| {
                    format!("{:?}", shortened(value))
                })
            };
            said.push(format!(
                "{key} is {} in {first_name} and {} in {name}",
                of(first),
                of(*value)
            ));
        }
    }
    said
}

fn shortened(value: &str) -> String {
    const MOST: usize = 40;
    match value.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}

/// Numbers of files that disagree: `model-00001-of-00003` beside `model-00002-of-00002`.
fn of_names(names: &[String]) -> Option<String> {
    let total = |name: &String| {
        let (_, after) = name.rsplit_once("-of-")?;
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<usize>().ok()
    };
    let totals: Vec<(&String, usize)> = names
        .iter()
        .filter_map(|name| Some((name, total(name)?)))
        .collect();
    let (first, n) = totals.first()?;
    let (other, _) = totals.iter().find(|(_, total)| total != n)?;
    Some(format!(
        "{first} and {other} count different numbers of files"
    ))
}

/// Element types of one kind of tensor that differ between files.
fn of_types(names: &[String], tensors: &Tensors) -> Option<String> {
    // Element types of each file, by kind of tensor.
    let mut types: BTreeMap<String, BTreeMap<usize, BTreeSet<String>>> = BTreeMap::new();
    for (name, info) in tensors.iter() {
        if matches!(
            info.dtype,
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::F64
        ) {
            let of_files = types.entry(kind(name)?).or_default();
            let of_file = of_files.entry(info.file_idx()).or_default();
            of_file.insert(info.dtype.to_string());
        }
    }
    types.into_iter().find_map(|(kind, of_files)| {
        let is_clear = of_files.values().all(|types| types.len() == 1);
        let mut of_files = of_files.into_iter().filter(|_| is_clear);
        let (file, types) = of_files.next()?;
        let (other, others) = of_files.find(|(_, others)| *others != types)?;
        let words = |types: BTreeSet<String>| types.into_iter().collect::<Vec<_>>().join(", ");
        Some(format!(
            "{kind} is {} in {} and {} in {}",
            words(types),
            names.get(file)?,
            words(others),
            names.get(other)?
        ))
    })
}

/// Tensor name with `N` for its layer number.
fn kind(name: &str) -> Option<String> {
    let parts: Vec<&str> = name
        .split('.')
        .map(|part| {
            if part.parse::<usize>().is_ok() {
                "N"
            } else {
                part
            }
        })
        .collect();
    Some(parts.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn steps_and_formats_of_files_must_agree_and_shard_numbers_need_not() {
        let names = ["a.safetensors".to_owned(), "b.safetensors".to_owned()];
        let said = |first: &[(&str, &str)], second: &[(&str, &str)]| {
            of_metadata(&names, &[entries(first), entries(second)])
        };
        assert!(
            said(
                &[("format", "pt"), ("shard", "1")],
                &[("format", "pt"), ("shard", "2")]
            )
            .is_empty()
        );
        assert!(
            said(
                &[("file_sha256", "ab"), ("part_index", "0")],
                &[("file_sha256", "cd"), ("part_index", "1")]
            )
            .is_empty()
        );
        assert!(said(&[], &[]).is_empty());
        let steps = said(&[("step", "12000")], &[("step", "11500")]);
        assert_eq!(
            steps,
            ["step is \"12000\" in a.safetensors and \"11500\" in b.safetensors"]
        );
        assert_eq!(said(&[("format", "pt")], &[]).len(), 1);
        assert_eq!(
            said(
                &[("global_step", "1"), ("total", "9")],
                &[("global_step", "1"), ("total", "8")]
            )
            .len(),
            1
        );
    }

    #[test]
    fn file_names_must_agree_on_the_number_of_files() {
        let of =
            |names: &[&str]| of_names(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert!(
            of(&[
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors"
            ])
            .is_none()
        );
        assert!(
            of(&[
                "model-00001-of-00003.safetensors",
                "model-00002-of-00002.safetensors"
            ])
            .is_some()
        );
        assert!(of(&["a.safetensors", "b.safetensors"]).is_none());
    }
}
