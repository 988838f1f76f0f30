//! Directories that transformers' `model_addition_debugger_context(…, use_repr=False)` writes: one safetensors file for each
//! tensor that a module takes or returns, and two trees in JSON.
//!
//! Source: `transformers/model_debugging_utils.py`, release 5.24. A file is called `Class.path.of.module`, then
//! `_inputs_args_0`, `_inputs_kwargs_name` or `_outputs`, with an index for each tensor of a tuple.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::captured::{Captured, Part};
use attnscope_compute::error::{Error, Result};

use super::listing::{entries, has, stem};
use super::modules::{MODULES, OTHER_MODALITIES};
use super::place::Place;
use super::{Dialect, Opened};

pub(super) static DIALECT: Dialect = Dialect {
    name: "transformers' model debugger",
    is_it,
    open,
    table: &MODULES,
};

/// Endings of the trees.
const TREES: [&str; 2] = ["_debug_tree_FULL_TENSORS.json", "_debug_tree_SUMMARY.json"];
/// Name of the only tensor of a file.
const DATA: &str = "data";

/// Whether a path is a directory with such a tree, or the tree itself.
fn is_it(path: &Path) -> bool {
    let is_tree = |name: &str| TREES.iter().any(|tree| name.ends_with(tree));
    let of_file = path.file_name().and_then(|name| name.to_str());
    of_file.is_some_and(|name| is_tree(name) && path.is_file())
        || (path.is_dir() && has(path, is_tree))
}

fn open(path: &Path) -> Result<Opened> {
    let directory = match path.parent() {
        Some(parent) if path.is_file() && parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) if path.is_file() => parent,
        _ => path,
    };
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    let mut n_values = 0;
    for file in entries(directory)? {
        if file
            .extension()
            .is_none_or(|ending| ending != "safetensors")
        {
            continue;
        }
        n_values += 1;
        let Some(name) = place_of(stem(&file)) else {
            continue;
        };
        let is_read = Place::parse(&name).is_some_and(|place| {
            let is_other = place
                .root
                .split('.')
                .any(|part| OTHER_MODALITIES.contains(&part));
            let reads = MODULES.reads(place.module, place.port, place.layer_idx.is_some());
            !is_other && reads.is_some()
        });
        if is_read {
            files.push((name, file));
        }
    }
    if n_values == 0 {
        let problem = "the values were written as text, of which most are left out: record again with \
             model_addition_debugger_context(model, debug_path=…, do_prune_layers=False, use_repr=False)";
        return Err(Error::file(path, problem));
    }
    // The name of a file is put before the name of its tensor.
    let named: Vec<(String, PathBuf)> = files
        .iter()
        .map(|(name, file)| (format!("{name}/"), file.clone()))
        .collect();
    let mut arrays = Captured::of_files(path, &named)?;
    arrays.metadata.clear();
    for (name, _) in files {
        let stored = format!("{name}/{DATA}");
        arrays.define(&name, &[Part::whole(&stored)])?;
        arrays.forget(&stored);
    }
    Ok(arrays.into())
}

/// The name by module and port: `LlamaForCausalLM.model.norm_inputs_args_0` is `model.norm:input.0`.
fn place_of(stem: &str) -> Option<String> {
    let (path, port) = match (stem.rfind("_outputs"), stem.rfind("_inputs_")) {
        (Some(at), before) if before.is_none_or(|before| before < at) => {
            let rest = stem[at + "_outputs".len()..].trim_start_matches('_');
            (&stem[..at], port_of("output", rest))
        }
        (_, Some(at)) => {
            let rest = &stem[at + "_inputs_".len()..];
            let rest = rest
                .strip_prefix("args_")
                .or_else(|| rest.strip_prefix("kwargs_"))?;
            (&stem[..at], port_of("input", rest))
        }
        _ => return None,
    };
    let path = path.split_once('.').map_or("", |(_, path)| path);
    Some(format!("{path}:{port}"))
}

/// Names an argument or a part of what is returned; an index behind a name follows a dot.
fn port_of(port: &str, rest: &str) -> String {
    match rest.rsplit_once('_') {
        _ if rest.is_empty() => port.to_owned(),
        Some((name, number))
            if number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty() =>
        {
            format!("{port}.{name}.{number}")
        }
        _ => format!("{port}.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_become_modules_and_ports() {
        for (stem, expected) in [
            (
                "GPT2LMHeadModel.transformer.h.0_inputs_args_0",
                "transformer.h.0:input.0",
            ),
            (
                "A.model.layers.1.self_attn.q_proj_outputs",
                "model.layers.1.self_attn.q_proj:output",
            ),
            (
                "A.model.layers.1.self_attn_outputs_1",
                "model.layers.1.self_attn:output.1",
            ),
            (
                "A.model.layers.0.mlp_inputs_kwargs_hidden_states",
                "model.layers.0.mlp:input.hidden_states",
            ),
            ("A_outputs_attentions_11", ":output.attentions.11"),
            ("A_outputs_logits", ":output.logits"),
            ("A_inputs_kwargs_input_ids", ":input.input_ids"),
        ] {
            assert_eq!(place_of(stem).as_deref(), Some(expected), "{stem}");
        }
        assert_eq!(place_of("notes"), None);
    }
}
