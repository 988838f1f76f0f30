//! Layers with a sliding window.

use attnscope_compute::error::{Error, Result};

use super::metadata::Metadata;
use super::value::Value as Stored;

/// Returns which layers have a window: as listed, or all except every n-th; n = 0 means all.
pub(super) fn slides(
    metadata: &Metadata<'_>,
    key: &str,
    usual: u64,
    n_layers: u64,
) -> Result<Vec<bool>> {
    if let Some(Stored::List(list)) = metadata.get(key) {
        let listed: Option<Vec<bool>> = metadata
            .elements(list)?
            .into_iter()
            .map(|value| match value {
                Stored::Bool(slides) => Some(slides),
                _ => None,
            })
            .collect();
        return listed
            .filter(|listed| listed.len() as u64 == n_layers)
            .ok_or_else(|| {
                let problem = format!("expected one truth value for each of {n_layers} layers");
                Error::config(metadata.path, key, problem)
            });
    }
    let every = metadata.whole(key)?.unwrap_or(usual);
    Ok((1..=n_layers)
        .map(|n| every == 0 || n % every != 0)
        .collect())
}
