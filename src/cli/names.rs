//! Names of hub models on the command line: whether they may be downloaded, and how to distinguish them from texts.

use std::path::Path;

use attnscope_checkpoint::hub::{Address, Hub};
use attnscope_compute::error::{Error, Result};

/// Variables that forbid downloads, as in `huggingface_hub` and transformers.
const OFFLINE: [&str; 2] = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"];

/// Returns where to look for names: in the cache, and on the hub unless forbidden.
pub fn hub(is_offline: bool) -> Hub {
    let is_set = |name: &&str| {
        std::env::var(name)
            .is_ok_and(|value| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str()))
    };
    if is_offline || OFFLINE.iter().any(is_set) {
        offline()
    } else {
        online()
    }
}

/// Returns where to look for names when no weight is read: headers are all that is downloaded of weights.
pub fn hub_of_headers(is_offline: bool) -> Hub {
    match hub(is_offline).fetch {
        Some(_) => headers(),
        None => offline(),
    }
}

/// Uses only the cache for hub models.
fn offline() -> Hub {
    Hub { fetch: None }
}

/// Allows downloads from the hub.
#[cfg(feature = "hub")]
fn online() -> Hub {
    attnscope_system::fetch::tells(super::progress::fetched);
    Hub {
        fetch: Some(super::hub_header::fetch),
    }
}

/// Allows downloads of headers.
#[cfg(feature = "hub")]
fn headers() -> Hub {
    Hub {
        fetch: Some(super::hub_header::only_headers),
    }
}

/// This program was built without download support.
#[cfg(not(feature = "hub"))]
fn headers() -> Hub {
    offline()
}

/// This program was built without download support.
#[cfg(not(feature = "hub"))]
fn online() -> Hub {
    offline()
}

/// Refuses an address of an object store, such as `s3://bucket/key`, before a directory of that name is made.
///
/// # Errors
/// When it is such an address, and no path of that name exists.
pub fn check_is_no_bucket(target: &Path) -> Result<()> {
    let text = target.to_str().filter(|text| text.starts_with("s3://"));
    match text.and_then(Address::parse) {
        Some(Err(problem)) if !target.exists() => Err(Error::file(target, problem)),
        _ => Ok(()),
    }
}

/// Refuses the word that opens demos where a checkpoint is expected, before it is taken for a model of the hub.
///
/// # Errors
/// When it is that word, and no path of that name exists.
pub fn refuse_demo(target: &Path) -> Result<()> {
    if target != Path::new("demo") || target.exists() {
        return Ok(());
    }
    let problem = "no such file; attnscope demo NAME --save DIR writes the files of a demo, for every command";
    Err(Error::file(target, problem))
}

/// Whether an argument may be the name of a hub model, cached or not.
pub fn may_be_model(argument: &Path) -> bool {
    argument
        .to_str()
        .is_some_and(|text| matches!(Address::parse(text), Some(Ok(_))))
}

/// Whether an argument names a model rather than a text: it has an address scheme, or is in the cache.
pub fn is_model(argument: &str) -> bool {
    let is_word = !argument.contains(char::is_whitespace);
    is_word && attnscope_checkpoint::hub::is_known(argument)
}
