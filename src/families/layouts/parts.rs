//! A description of a layout's parts in the words of `[tensors]`: names with a place for the layer, biases where there are any.

use serde_json::{Map, Value, json};

use super::Facts;

/// Collects what stands under `[tensors]`.
pub struct Parts {
    /// What stands before the number of a layer.
    before: String,
    /// The place for the number, and the number in the first layer.
    hole: &'static str,
    first: &'static str,
    tensors: Map<String, Value>,
}

impl Parts {
    /// Parts of layers whose number follows `before`.
    pub fn of_layers(before: &str) -> Self {
        Self {
            before: before.to_owned(),
            hole: "{layer}",
            first: "0",
            tensors: Map::new(),
        }
    }

    /// The parts after this hold another number for each layer, as in `{2*layer+1}`, which is `first` in the first layer.
    pub fn numbered(mut self, hole: &'static str, first: &'static str) -> Self {
        (self.hole, self.first) = (hole, first);
        self
    }

    fn name(&self, part: &str) -> String {
        format!("{}{}.{part}", self.before, self.hole)
    }

    /// Whether the first layer has a tensor.
    pub fn has(&self, facts: &Facts<'_>, part: &str) -> bool {
        facts.has(&format!("{}{}.{part}", self.before, self.first))
    }

    /// A map of each layer, with its bias if the first layer has one.
    pub fn map(&mut self, facts: &Facts<'_>, key: &str, base: &str) {
        self.fused(facts, key, base, &[]);
    }

    /// Several maps in one tensor of each layer, with what says how they lie in it.
    pub fn fused(&mut self, facts: &Facts<'_>, key: &str, base: &str, how: &[(&str, &str)]) {
        let mut value = json!({ "weight": self.name(&format!("{base}.weight")) });
        if self.has(facts, &format!("{base}.bias")) {
            value["bias"] = self.name(&format!("{base}.bias")).into();
        }
        for (word, said) in how {
            value[*word] = (*said).into();
        }
        self.tensors.insert(key.to_owned(), value);
    }

    /// A norm of each layer, where the first layer has its gain.
    pub fn norm(&mut self, facts: &Facts<'_>, key: &str, gain: &str, bias: &str) -> bool {
        let has_gain = self.has(facts, gain);
        if has_gain {
            let mut value = json!({ "weight": self.name(gain) });
            if self.has(facts, bias) {
                value["bias"] = self.name(bias).into();
            }
            self.tensors.insert(key.to_owned(), value);
        }
        has_gain
    }

    /// A map or a norm outside the layers, where it is stored.
    pub fn around(&mut self, facts: &Facts<'_>, key: &str, weight: &str, bias: &str) -> bool {
        let is_stored = facts.has(weight);
        if is_stored {
            let mut value = json!({ "weight": weight });
            if facts.has(bias) {
                value["bias"] = bias.into();
            }
            self.tensors.insert(key.to_owned(), value);
        }
        is_stored
    }

    /// Anything else.
    pub fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.tensors.insert(key.to_owned(), value.into());
    }

    pub fn into_tensors(self) -> Map<String, Value> {
        self.tensors
    }
}
