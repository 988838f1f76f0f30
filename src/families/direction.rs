//! Refuses a configuration that turns a decoder to both sides, where its family reads no such thing.

use attnscope_checkpoint::Reader;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, ModelSpec};
use serde_json::Value;

/// Refuses switches that turn a decoder to both sides: a family reads its own before, and they must agree with it.
pub(super) fn check_direction(reader: &mut Reader<'_>, spec: &ModelSpec) -> Result<()> {
    let is_causal = spec
        .main_stack()
        .blocks()
        .iter()
        .filter_map(BlockSpec::attention)
        .any(|own| own.mask.causal);
    for (key, turns) in [("use_bidirectional_attention", true), ("is_causal", false)] {
        if is_causal && reader.value(key).and_then(Value::as_bool) == Some(turns) {
            let problem = format!(
                "expected {}: attention to later tokens is not read in this family, found {turns}",
                !turns
            );
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    Ok(())
}
