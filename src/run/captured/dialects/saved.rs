//! Outputs of modules that somebody saved under the modules' names, as nnsight and forward hooks give them.

use std::path::Path;

use attnscope_checkpoint::captured::{Captured, Part, names_in};
use attnscope_compute::error::Result;

use super::modules::MODULES;
use super::place::Place;
use super::{Dialect, Opened};

pub(super) static DIALECT: Dialect = Dialect {
    name: "outputs of modules",
    is_it,
    open,
    table: &MODULES,
};

/// Names of arrays beside the modules, and their ports.
const BESIDE: [(&str, &str); 6] = [
    ("tokens", ":input.input_ids"),
    ("input_ids", ":input.input_ids"),
    ("attention_mask", ":input.attention_mask"),
    ("logits", ":output.logits"),
    ("attentions.", ":output.attentions."),
    ("hidden_states.", ":output.hidden_states."),
];

fn is_it(path: &Path) -> bool {
    let names = names_in(path);
    let is_other =
        |name: &String| name.ends_with(".weight") || super::super::Name::parse(name).is_some();
    names.iter().any(|name| of_layer(name)) && !names.iter().any(is_other)
}

/// Whether a name is that of a module in a layer, or of a layer's residual.
fn of_layer(name: &str) -> bool {
    let Some(named) = place_of(name) else {
        return false;
    };
    let place = Place::parse(&named);
    place.is_some_and(|place| {
        let is_counted = place.module.is_empty() && place.layer_idx.is_none();
        let found = MODULES.reads(place.module, place.port, place.layer_idx.is_some());
        found.is_some_and(|(_, _, number)| !is_counted || number.is_some())
    })
}

/// The name of an array by module and port: a module's path alone means what the module returns.
fn place_of(name: &str) -> Option<String> {
    for (own, port) in BESIDE {
        if own == name {
            return Some(port.to_owned());
        }
        if let Some(number) = name.strip_prefix(own).filter(|_| own.ends_with('.')) {
            return Some(format!("{port}{number}"));
        }
    }
    if name.contains(':') {
        return None;
    }
    let ports = [
        ("inputs", "input"),
        ("input", "input"),
        ("outputs", "output"),
        ("output", "output"),
    ];
    for (own, port) in ports {
        if let Some(path) = name
            .strip_suffix(own)
            .and_then(|path| path.strip_suffix('.'))
        {
            return Some(format!("{path}:{port}"));
        }
        let between = format!(".{own}.");
        if let Some((path, rest)) = name.rsplit_once(between.as_str()) {
            return Some(format!("{path}:{port}.{rest}"));
        }
    }
    match name.rsplit_once('.') {
        // A tuple that was saved as a whole.
        Some((path, number @ ("0" | "1"))) if !ends_in_list(path) => {
            Some(format!("{path}:output.{number}"))
        }
        _ => Some(format!("{name}:output")),
    }
}

fn ends_in_list(path: &str) -> bool {
    let named = format!("{path}.0:output");
    Place::parse(&named).is_some_and(|place| place.layer_idx.is_some() && place.module.is_empty())
}

fn open(path: &Path) -> Result<Opened> {
    let mut arrays = Captured::open(path)?;
    let names: Vec<String> = arrays.names().into_iter().map(str::to_owned).collect();
    for name in names {
        if let Some(place) = place_of(&name) {
            arrays.define(&place, &[Part::whole(&name)])?;
        }
        arrays.forget(&name);
    }
    Ok(arrays.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_modules_are_told_from_names_of_weights() {
        for name in [
            "model.layers.0.self_attn.q_proj",
            "transformer.h.1.attn.c_proj.input",
            "model.layers.2",
            "model.layers.2.output.0",
            "hidden_states.3",
            "bert.encoder.layer.0.attention.self.query",
        ] {
            assert!(of_layer(name), "{name}");
        }
        for name in [
            "model.layers.0.self_attn.q_proj.weight",
            "model.layers.0.mlp.experts.down_proj",
            "tokens",
            "logits",
            "blocks.0.attn.q",
        ] {
            assert!(!of_layer(name), "{name}");
        }
    }
}
