//! Names of the hub on the command line: whether they may be fetched, and what tells one from a text.

use std::path::Path;

use attnscope_checkpoint::hub::{Address, Hub};

/// Variables that forbid every download, as `huggingface_hub` and transformers read them.
const OFFLINE: [&str; 2] = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"];

/// Where names are looked for: in the cache, and on the hub where nothing forbids it.
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

/// The cache alone; object stores are asked all the same.
fn offline() -> Hub {
    #[cfg(any(feature = "hub", feature = "s3"))]
    attnscope_system::fetch::tells(super::progress::fetched);
    Hub {
        fetch: None,
        stage: Some(attnscope_system::store::staged),
    }
}

/// A hub from which models may be fetched.
#[cfg(feature = "hub")]
fn online() -> Hub {
    Hub {
        fetch: Some(attnscope_system::fetch::fetch),
        ..offline()
    }
}

/// This program was built without what fetches.
#[cfg(not(feature = "hub"))]
fn online() -> Hub {
    offline()
}

/// Whether an argument may name a model of the hub, in the cache or not.
pub fn may_be_model(argument: &Path) -> bool {
    argument
        .to_str()
        .is_some_and(|text| matches!(Address::parse(text), Some(Ok(_))))
}

/// Whether an argument names a model rather than a text: it has the scheme of an address, or is in the cache.
pub fn is_model(argument: &str) -> bool {
    let is_word = !argument.contains(char::is_whitespace);
    is_word
        && (attnscope_system::store::is_address(Path::new(argument))
            || attnscope_checkpoint::hub::is_known(argument))
}
