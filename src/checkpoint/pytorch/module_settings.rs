//! Settings that a pickled module keeps in its attributes: what its tensors' names and shapes do not tell. Nothing is run: attributes are
//! read as the pickle lists them.

use serde_json::{Map, Value as Json, json};

use super::pickle::Pickled;
use super::value::Value;
use crate::head_names::HEADS;

/// Limits on nested modules, and on modules.
const DEEPEST: usize = 64;
const MOST: usize = 1 << 16;

const ACTIVATIONS: [&str; 5] = [
    "activation",
    "act",
    "act_fn",
    "activation_fn",
    "nonlinearity",
];

/// Settings on which all modules of a model agree.
#[derive(Debug, Default)]
struct Agreed {
    values: Map<String, Json>,
    contested: Vec<String>,
}

impl Agreed {
    fn add(&mut self, key: &str, value: Json) {
        match self.values.get(key) {
            Some(found) if *found != value => self.contested.push(key.to_owned()),
            Some(_) => {}
            None => drop(self.values.insert(key.to_owned(), value)),
        }
    }
}

/// Settings of a pickled module by the names that configurations have; empty if its modules tell none, or disagree.
pub fn of(pickled: &Pickled<'_>, module: &Value<'_>) -> Map<String, Json> {
    let mut found = Agreed::default();
    let mut n_left = MOST;
    gather(pickled, module, &[], &mut found, &mut n_left);
    for key in &found.contested {
        found.values.remove(key);
    }
    found.values
}

fn gather(
    pickled: &Pickled<'_>,
    module: &Value<'_>,
    path: &[&str],
    found: &mut Agreed,
    n_left: &mut usize,
) {
    let Value::Object(idx) = module else { return };
    if path.len() > DEEPEST || *n_left == 0 {
        return;
    }
    *n_left -= 1;
    let heap = &pickled.heap;
    let object = &heap.objects[*idx];
    let state = Value::Dict(object.state);
    for (key, value) in &heap.dicts[object.state].entries {
        let Value::Text(key) = key else { continue };
        match (key.as_ref(), value) {
            // One name stands for all of them.
            (name, Value::Int(n)) if HEADS.contains(&name) && *n > 0 => {
                found.add(HEADS[0], json!(n));
            }
            ("norm_first", Value::Bool(is_first)) => found.add("norm_first", json!(is_first)),
            ("eps", Value::Float(eps)) if is_norm(&object.class) => {
                found.add("norm_eps", json!(eps));
            }
            (name, Value::Name(function, _)) if ACTIVATIONS.contains(&name) => {
                if let Some(word) = activation(function) {
                    found.add("activation", json!(word));
                }
            }
            _ => {}
        }
    }
    if let Some(word) = activation(&object.class).filter(|_| is_in_layer(path)) {
        let is_tanh = matches!(
            heap.entry(&state, "approximate"),
            Some(Value::Text(form)) if form.as_ref() == "tanh"
        );
        let word = if word == "gelu" && is_tanh {
            "gelu_new"
        } else {
            word
        };
        found.add("activation", json!(word));
    }
    if let Some(Value::Dict(idx)) = heap.entry(&state, "_modules") {
        for (key, inner) in &heap.dicts[*idx].entries {
            if let Value::Text(key) = key {
                let inside: Vec<&str> = path.iter().copied().chain([key.as_ref()]).collect();
                gather(pickled, inner, &inside, found, n_left);
            }
        }
    }
}

/// Whether a module stands inside a numbered one. An activation in a row of modules, as a head has it, does not.
fn is_in_layer(path: &[&str]) -> bool {
    let is_number = |name: &&str| name.bytes().all(|b| b.is_ascii_digit());
    let outer = path.split_last().map_or(&[][..], |(_, outer)| outer);
    outer.iter().any(is_number)
}

/// Whether a class is a norm over the features of one position.
fn is_norm(class: &str) -> bool {
    let name = class.rsplit('.').next().unwrap_or_default();
    let of_batch = ["BatchNorm", "GroupNorm", "InstanceNorm"];
    name.ends_with("Norm") && !of_batch.iter().any(|other| name.contains(other))
}

/// The word for a function or class of PyTorch that is an activation.
fn activation(name: &str) -> Option<&'static str> {
    let is_torch = ["torch.", "_torch."]
        .iter()
        .any(|start| name.starts_with(start));
    let last = name.rsplit('.').next().filter(|_| is_torch)?;
    Some(match last {
        "relu" | "ReLU" => "relu",
        "gelu" | "GELU" => "gelu",
        "silu" | "SiLU" => "silu",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::super::globals::Scope;
    use super::super::pickle::read;
    use super::super::value::DictKind;
    use super::*;

    fn text(word: &str) -> Value<'static> {
        Value::Text(Rc::from(word))
    }

    /// Adds a module with attributes, and other modules inside of it.
    fn module(
        pickled: &mut Pickled<'static>,
        class: &str,
        attributes: &[(&str, Value<'static>)],
        inside: Vec<(&str, Value<'static>)>,
    ) -> Value<'static> {
        let heap = &mut pickled.heap;
        let inside = inside.into_iter().map(|(name, value)| (text(name), value));
        let modules = heap.add_dict(DictKind::Plain, inside.collect());
        let object = heap.add_object(Rc::from(class));
        let Value::Object(idx) = object else {
            unreachable!("an object")
        };
        let state = heap.objects[idx].state;
        let own = attributes
            .iter()
            .map(|(name, value)| (text(name), value.clone()));
        heap.dicts[state].entries.extend(own);
        heap.dicts[state]
            .entries
            .push((text("_modules"), Value::Dict(modules)));
        object
    }

    #[test]
    fn what_modules_disagree_on_is_not_taken_and_a_head_tells_nothing_of_layers() {
        let mut pickled = read(b"N.", Scope::Data).expect("a pickle of None");
        let pickled = &mut pickled;
        let norm = "torch.nn.modules.normalization.LayerNorm";
        let attention = |pickled: &mut _, n, eps| {
            let normed = module(pickled, norm, &[("eps", Value::Float(eps))], Vec::new());
            module(
                pickled,
                "mine.Attention",
                &[("num_heads", Value::Int(n))],
                vec![("norm", normed)],
            )
        };
        let (one, other) = (attention(pickled, 4, 1e-3), attention(pickled, 2, 1e-3));
        let act = module(pickled, "torch.nn.modules.activation.GELU", &[], Vec::new());
        let layer = module(pickled, "mine.Layer", &[], vec![("act", act)]);
        let of_head = module(pickled, "torch.nn.modules.activation.ReLU", &[], Vec::new());
        let head = module(
            pickled,
            "torch.nn.modules.container.Sequential",
            &[],
            vec![("1", of_head)],
        );
        let layers = module(
            pickled,
            "mine.List",
            &[],
            vec![("0", layer), ("1", one), ("2", other)],
        );
        let whole = module(
            pickled,
            "mine.Model",
            &[],
            vec![("layers", layers), ("head", head)],
        );
        let found = of(pickled, &whole);
        assert_eq!(found.get("n_heads"), None);
        assert_eq!(found["norm_eps"], json!(1e-3));
        assert_eq!(found["activation"], json!("gelu"));
    }
}
