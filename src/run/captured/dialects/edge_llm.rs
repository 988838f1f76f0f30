//! Files that TensorRT-Edge-LLM writes where `EDGELLM_DUMP_LOGITS_KVCACHE_LAYERS` and `EDGELLM_DUMP_LOGITS_KVCACHE_DIR` are set: the cache of
//! the first layers and the logits of the last token, for each round of a request.
//!
//! Source: the page "Layer Debugger" of its documentation, release 0.11: `round_{r}.layer_{i}.kv` [sequence, key or value, kv_head,
//! room for positions, d_head], of which `round_{r}.context_lengths` [sequence] are in use. Keys are cached behind the rotation.

use std::path::Path;

use attnscope_checkpoint::captured::{Captured, Part, names_in};
use attnscope_compute::error::Result;
use attnscope_forward::Hook;

use super::modules::{Reads, Table};
use super::place::Port;
use super::{Dialect, Opened};

pub(super) static DIALECT: Dialect = Dialect {
    name: "TensorRT-Edge-LLM's layer dump",
    is_it,
    open,
    table: &EDGE_LLM,
};

static EDGE_LLM: Table = Table {
    of_layer: &[
        ("kv", Port::Named("key"), Reads::Hook(Hook::RotK)),
        ("kv", Port::Named("value"), Reads::Hook(Hook::V)),
    ],
    outside: &[],
    then: None,
    example: "round_0.layer_0.kv",
};

/// The round that reads the prompt.
const LENGTHS: &str = "round_0.context_lengths";
const BEFORE: &str = "round_0.layer_";
const CACHE: &str = ".kv";

fn is_it(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "safetensors")
        && names_in(path).iter().any(|name| name == LENGTHS)
}

/// The layer whose cache a name has.
fn layer_of(name: &str) -> Option<usize> {
    let number = name.strip_prefix(BEFORE)?.strip_suffix(CACHE)?;
    number.parse().ok()
}

fn open(path: &Path) -> Result<Opened> {
    let mut arrays = Captured::open(path)?;
    let lengths = arrays.whole_numbers(LENGTHS)?.unwrap_or_default();
    let [n_tokens] = *lengths else {
        let found = lengths.len();
        let problem = format!("expected one sequence, found {found}: record one request alone");
        return Err(arrays.at(LENGTHS, &problem));
    };
    let n_tokens = usize::try_from(n_tokens).unwrap_or(usize::MAX);
    let names: Vec<String> = arrays.names().into_iter().map(str::to_owned).collect();
    for name in &names {
        if let Some(layer_idx) = layer_of(name) {
            cache(&mut arrays, name, layer_idx, n_tokens)?;
        }
    }
    for name in &names {
        arrays.forget(name);
    }
    Ok(Opened {
        arrays,
        part: Some(format!(
            "round 0 of {n_tokens} tokens, without the logits of its last one"
        )),
    })
}

/// Gives keys and values of a layer their names, as [kv_head, position, d_head].
fn cache(arrays: &mut Captured, name: &str, layer_idx: usize, n_tokens: usize) -> Result<()> {
    let shape = arrays.shape(name).unwrap_or_default();
    let (n_kv_heads, room, d_head) = match *shape {
        [1, 2, n_kv_heads, room, d_head] if room >= n_tokens => (n_kv_heads, room, d_head),
        _ => {
            let problem = format!(
                "expected [1, 2, kv_head, position, d_head] with room for {n_tokens} positions, found shape {shape:?}"
            );
            return Err(arrays.at(name, &problem));
        }
    };
    let n_values = shape.iter().product();
    let is_flat = arrays.reshape(name, &[1, n_values]);
    for (nth, port) in ["key", "value"].into_iter().enumerate() {
        let place = format!("layers.{layer_idx}.kv:{port}");
        let of_head = |head_idx: usize| {
            let start = (nth * n_kv_heads + head_idx) * room * d_head;
            Part {
                columns: Some(start..start + n_tokens * d_head),
                ..Part::whole(name)
            }
        };
        let parts: Vec<Part> = (0..n_kv_heads).map(of_head).collect();
        arrays.define(&place, &parts)?;
        if !is_flat || !arrays.reshape(&place, &[n_kv_heads, n_tokens, d_head]) {
            return Err(arrays.at(name, "expected plain numbers, found a packed tensor"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_of_the_first_round_are_told_from_other_tensors() {
        assert_eq!(layer_of("round_0.layer_12.kv"), Some(12));
        for other in [
            "round_1.layer_0.kv",
            "round_0.layer_0.conv_state",
            "round_0.logits",
        ] {
            assert_eq!(layer_of(other), None, "{other}");
        }
    }
}
