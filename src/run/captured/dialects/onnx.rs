//! Values of an ONNX graph that ONNX Runtime returned, under their names in the graph, which have the modules in them:
//! `/model/layers.0/self_attn/q_proj/MatMul_output_0`, as `torch.onnx.export(…, dynamo=False)` writes them, or
//! `/model/layers.0/attn/q_proj/MatMul/output_0`, as the model builder of ONNX Runtime GenAI does.
//!
//! A module is several operators, and the last of them gives its output: which one that is depends on the module.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_checkpoint::captured::{Captured, Part, names_in};
use attnscope_compute::error::Result;
use attnscope_forward::Hook;

use super::modules::{MODULES, Reads, Table};
use super::place::{Place, Port};
use super::{Dialect, Opened};

pub(super) static DIALECT: Dialect = Dialect {
    name: "values of an ONNX graph",
    is_it,
    open,
    table: &ONNX,
};

const Z: Reads = Reads::Hook(Hook::Z);
const PATTERN: Reads = Reads::Hook(Hook::Pattern);

static ONNX: Table = Table {
    of_layer: &[
        ("self_attn", Port::Named("pattern"), PATTERN),
        ("attn", Port::Named("pattern"), PATTERN),
        ("attention", Port::Named("pattern"), PATTERN),
        ("self_attention", Port::Named("pattern"), PATTERN),
        ("self_attn", Port::Named("z"), Z),
        ("attn", Port::Named("z"), Z),
        ("attention", Port::Named("z"), Z),
        ("self_attention", Port::Named("z"), Z),
        ("attn.q_rotary", Port::Output, Reads::Hook(Hook::RotQ)),
        ("attn.k_rotary", Port::Output, Reads::Hook(Hook::RotK)),
        ("attn.o_proj", Port::Output, Reads::Hook(Hook::AttnOut)),
        ("present", Port::Named("key"), Reads::Hook(Hook::RotK)),
        ("present", Port::Named("value"), Reads::Hook(Hook::V)),
        ("input_layernorm", Port::Named("residual"), Reads::Before),
        (
            "final_norm_layernorm",
            Port::Named("residual"),
            Reads::Before,
        ),
    ],
    outside: &[],
    then: Some(&MODULES),
    example: "/model/layers.0/self_attn/q_proj/MatMul_output_0",
};

const IDS: &str = ":input.input_ids";

/// Names of values that are no operator's, and what they are.
const ENDS: [(&str, &str); 3] = [
    ("input_ids", IDS),
    ("attention_mask", ":input.attention_mask"),
    ("logits", ":output.logits"),
];

/// Modules that attend.
const ATTENDING: [&str; 4] = ["self_attn", "attn", "attention", "self_attention"];

/// Operators that compute an attention as a whole, as ONNX Runtime fuses it.
const FUSED_ATTENTION: [&str; 3] = ["GroupQueryAttention", "MultiHeadAttention", "Attention"];

/// Output of a fused norm that is the sum it normalised.
const SUM: usize = 3;

/// An operator's output in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value<'a> {
    /// Path of the module, with slashes.
    path: &'a str,
    /// Empty where the module is one operator.
    operator: &'a str,
    /// Which of the module's operators of that name it is, from 0.
    nth: usize,
    output: usize,
}

impl<'a> Value<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (rest, output) = name.strip_prefix('/')?.rsplit_once("output_")?;
        let rest = rest.strip_suffix(['_', '/'])?;
        let (path, operator) = match rest.rsplit_once('/')? {
            (path, operator) if operator.starts_with(|c: char| c.is_ascii_uppercase()) => {
                (path, operator)
            }
            // A fused norm has the name of its module.
            _ => (rest, ""),
        };
        let (operator, nth) = match operator.rsplit_once('_') {
            Some((operator, nth)) => (operator, nth.parse().ok()?),
            None => (operator, 0),
        };
        Some(Self {
            path,
            operator,
            nth,
            output: output.parse().ok()?,
        })
    }

    /// The name by module and port, and how late in the module it stands; `None` if it is no output of one.
    fn place(&self) -> Option<(String, usize)> {
        let path = self.path.replace('/', ".");
        let module = path.rsplit('.').next().unwrap_or_default();
        let is_layer = Place::parse(&format!("{path}:output"))
            .is_some_and(|place| place.layer_idx.is_some() && place.module.is_empty());
        let is_fused = FUSED_ATTENTION.contains(&self.operator);
        let port = match (self.operator, self.output) {
            // The last sum of a layer is its residual.
            ("Add", 0) if is_layer => "output",
            _ if is_layer => return None,
            ("Softmax", 0) if ATTENDING.contains(&module) => "pattern",
            ("Reshape", 0) if ATTENDING.contains(&module) => "z",
            (_, 0) if is_fused => "z",
            ("", SUM) => "residual",
            _ if ATTENDING.contains(&module) => return None,
            ("MatMul" | "Gemm" | "Reshape" | "Add" | "RotaryEmbedding", 0) => "output",
            _ => return None,
        };
        // A bias is added to a product, and Gemm works on rows that are put together again.
        let order = match self.operator {
            "MatMul" | "Gemm" => 0,
            "Reshape" => 1,
            _ => 2,
        };
        Some((format!("{path}:{port}"), 1000 * order + self.nth))
    }
}

fn is_it(path: &Path) -> bool {
    names_in(path).iter().any(|name| {
        let place = Value::parse(name).and_then(|value| value.place());
        place.is_some_and(|(place, _)| {
            Place::parse(&place).is_some_and(|place| place.layer_idx.is_some())
        })
    })
}

fn open(path: &Path) -> Result<Opened> {
    let mut arrays = Captured::open(path)?;
    let names: Vec<String> = arrays.names().into_iter().map(str::to_owned).collect();
    let mut last: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for name in &names {
        let end = ENDS.iter().find(|(own, _)| own == name);
        let found = match end {
            Some((_, place)) => Some(((*place).to_owned(), 0)),
            None => Value::parse(name).and_then(|value| value.place()),
        };
        let Some((place, order)) = found else {
            continue;
        };
        let known = last.entry(place).or_insert((order, name));
        if order > known.0 {
            *known = (order, name);
        }
    }
    for (place, (_, name)) in &last {
        arrays.define(place, &[Part::whole(name)])?;
    }
    let mut roots = last.keys().filter_map(|place| Place::parse(place));
    let root = roots.find(|place| place.layer_idx.is_some());
    if let Some(root) = root.map(|place| place.root.to_owned()) {
        caches(&mut arrays, &names, &root)?;
    }
    for name in &names {
        arrays.forget(name);
    }
    Ok(arrays.into())
}

/// Gives the cache that a fused attention returns, `present.0.key` [1, kv_head, position, d_head], the names of layers.
fn caches(arrays: &mut Captured, names: &[String], root: &str) -> Result<()> {
    let n_tokens = arrays.shape(IDS).and_then(|shape| shape.last().copied());
    for name in names {
        let Some((layer_idx, port)) = name
            .strip_prefix("present.")
            .and_then(|rest| rest.split_once('.'))
        else {
            continue;
        };
        // As many heads as positions could be either.
        let [1, n_heads, n_positions, d_head] = *arrays.shape(name).unwrap_or_default() else {
            continue;
        };
        if Some(n_positions) != n_tokens || n_heads == n_positions {
            continue;
        }
        let place = format!("{root}.layers.{layer_idx}.present:{port}");
        arrays.define(&place, &[Part::whole(name)])?;
        if !arrays.reshape(&place, &[n_heads, n_positions, d_head]) {
            arrays.forget(&place);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_values_become_modules_and_ports() {
        let place = |name: &str| Value::parse(name).and_then(|value| value.place());
        for (name, expected) in [
            (
                "/model/layers.0/self_attn/q_proj/MatMul_output_0",
                ("model.layers.0.self_attn.q_proj:output", 0),
            ),
            (
                "/transformer/h.1/attn/c_attn/Reshape_1_output_0",
                ("transformer.h.1.attn.c_attn:output", 1001),
            ),
            (
                "/m/model/layers.3/Add_1_output_0",
                ("m.model.layers.3:output", 2001),
            ),
            (
                "/model/layers.0/self_attn/Softmax_output_0",
                ("model.layers.0.self_attn:pattern", 2000),
            ),
            (
                "/model/layers.1/attn/o_proj/MatMul/output_0",
                ("model.layers.1.attn.o_proj:output", 0),
            ),
            (
                "/model/layers.1/attn/GroupQueryAttention/output_0",
                ("model.layers.1.attn:z", 2000),
            ),
            (
                "/model/layers.1/input_layernorm/output_3",
                ("model.layers.1.input_layernorm:residual", 2000),
            ),
        ] {
            let (expected, order) = expected;
            assert_eq!(place(name), Some((expected.to_owned(), order)), "{name}");
        }
        for name in [
            "/model/layers.0/self_attn/Slice_1_output_0",
            "/model/layers.0/Cast_output_0",
            "/model/layers.0/attn/GroupQueryAttention/output_1",
            "linear_4",
            "model.layers.0.self_attn.q_proj",
        ] {
            assert_eq!(place(name), None, "{name}");
        }
    }
}
