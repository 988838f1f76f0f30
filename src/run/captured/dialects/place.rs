//! Names of arrays by module and port: `model.layers.3.self_attn.q_proj:output`.

/// What of a module's call an array holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port<'a> {
    /// The first argument, or `hidden_states`.
    Input,
    /// What the module returns, or the first of it.
    Output,
    /// The second of what the module returns.
    Second,
    /// Any other argument or part of what the module returns.
    Named(&'a str),
}

/// A parsed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place<'a> {
    /// Path of what holds the list of layers; of a module outside layers, the path of what holds the module.
    pub root: &'a str,
    pub layer_idx: Option<usize>,
    /// Path of the module inside its layer; empty for the layer itself.
    pub module: &'a str,
    pub port: Port<'a>,
}

/// What lists of layers are called.
const LISTS: [&str; 5] = ["layers", "layer", "h", "blocks", "block"];

impl<'a> Place<'a> {
    /// Parses a name; `None` if it has no port.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (path, port) = name.rsplit_once(':')?;
        let port = match port {
            "input" | "input.0" | "input.hidden_states" => Port::Input,
            "output" | "output.0" => Port::Output,
            "output.1" => Port::Second,
            other => Port::Named(other),
        };
        let mut start = 0;
        for piece in path.split('.') {
            let end = start + piece.len();
            if LISTS.contains(&piece) {
                let rest = path.get(end + 1..).unwrap_or_default();
                let (number, module) = rest.split_once('.').unwrap_or((rest, ""));
                if let Ok(layer_idx) = number.parse() {
                    let root = path[..start].trim_end_matches('.');
                    let layer_idx = Some(layer_idx);
                    return Some(Self {
                        root,
                        layer_idx,
                        module,
                        port,
                    });
                }
            }
            start = end + 1;
        }
        let (root, module) = path.rsplit_once('.').unwrap_or(("", path));
        Some(Self {
            root,
            layer_idx: None,
            module,
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_into_layer_module_and_port() {
        let of = |root, layer_idx, module, port| {
            Some(Place {
                root,
                layer_idx,
                module,
                port,
            })
        };
        for (name, expected) in [
            (
                "model.layers.3.self_attn.q_proj:output",
                of("model", Some(3), "self_attn.q_proj", Port::Output),
            ),
            (
                "transformer.h.11:input.0",
                of("transformer", Some(11), "", Port::Input),
            ),
            (
                "layers.0.norm:output.1",
                of("", Some(0), "norm", Port::Second),
            ),
            ("model.norm:input.0", of("model", None, "norm", Port::Input)),
            (
                ":input.input_ids",
                of("", None, "", Port::Named("input.input_ids")),
            ),
            (
                "model.layers.x.mlp:output",
                of("model.layers.x", None, "mlp", Port::Output),
            ),
            ("model.layers.0.self_attn.q_proj.weight", None),
        ] {
            assert_eq!(Place::parse(name), expected, "{name}");
        }
    }
}
