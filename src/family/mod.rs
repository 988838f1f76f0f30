//! One file per checkpoint family: configuration → specs, canonical parts → tensor names. Computes nothing.

mod bert;
mod gpt2;
mod llama;
mod reading;

use crate::checkpoint::{Checkpoint, Reader};
use crate::error::{Error, Result};
use crate::model::{Model, ModelSpec};

/// How checkpoints of one `model_type` are read.
pub struct Family {
    /// The word in `config.json`.
    pub model_type: &'static str,
    read: fn(&Checkpoint, &mut Reader<'_>) -> Result<ModelSpec>,
}

/// Every family, in the order of its name: one line each.
pub static FAMILIES: &[Family] = &[bert::FAMILY, gpt2::FAMILY, llama::FAMILY];

/// Reads how an open checkpoint is to be run, and checks that every tensor it needs is there.
///
/// # Errors
/// When the family is unknown, a value of the configuration cannot be right, or a tensor does not fit.
pub fn read(checkpoint: Checkpoint) -> Result<Model> {
    let config = &checkpoint.config;
    let mut reader = Reader::new(config);
    let stored = reader.value("model_type");
    let model_type = stored.and_then(|v| v.as_str()).ok_or_else(|| {
        let found = stored.map_or("missing".to_owned(), |v| format!("found {v}"));
        let problem = format!("{found}, expected one of: {}", known());
        Error::config(config.path(), "model_type", problem)
    })?;
    let Some(family) = FAMILIES
        .iter()
        .find(|family| family.model_type == model_type)
    else {
        let problem = format!("{model_type:?} is not known; known: {}", known());
        return Err(Error::config(config.path(), "model_type", problem));
    };
    // Facts about the file itself, not about attention: read, so that they do not show as forgotten.
    for key in [
        "architectures",
        "torch_dtype",
        "dtype",
        "transformers_version",
        "_name_or_path",
    ] {
        reader.value(key);
    }
    let mut spec = (family.read)(&checkpoint, &mut reader)?;
    (spec.knobs, spec.unread_keys) = reader.finish();
    spec.check_tensors(&checkpoint.tensors)?;
    Ok(Model { checkpoint, spec })
}

fn known() -> String {
    FAMILIES
        .iter()
        .map(|family| family.model_type)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_file_is_registered_and_the_list_is_sorted() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/family");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .expect("the source tree")
            .map(|entry| entry.expect("an entry").path())
            .filter_map(|path| {
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned())
            })
            .filter(|stem| !["mod", "reading"].contains(&stem.as_str()))
            .collect();
        files.sort();
        let registered: Vec<&str> = FAMILIES.iter().map(|family| family.model_type).collect();
        assert_eq!(files, registered);
    }
}
