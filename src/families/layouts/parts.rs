//! Builds the `[tensors]` table that describes a layout's parts: names with a placeholder for the layer, biases where stored.

use serde_json::{Map, Value, json};

use super::Facts;

/// Builder of the `[tensors]` table.
pub struct Parts {
    /// Prefix of the layer number.
    before: String,
    /// The placeholder for the number, and the number in the first layer.
    hole: &'static str,
    first: &'static str,
    tensors: Map<String, Value>,
}

impl Parts {
    /// Starts a table for layers whose number follows `before`.
    pub fn of_layers(before: &str) -> Self {
        Self {
            before: before.to_owned(),
            hole: "{layer}",
            first: "0",
            tensors: Map::new(),
        }
    }

    /// Numbers the following parts differently, as in `{2*layer+1}`; `first` is the number in the first layer.
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

    /// Adds a linear map of each layer, with its bias if the first layer has one.
    pub fn map(&mut self, facts: &Facts<'_>, key: &str, base: &str) {
        self.fused(facts, key, base, &[]);
    }

    /// Adds several maps stored in one tensor of each layer, with entries that describe its order.
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

    /// Adds a norm of each layer, if the first layer has its gain.
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

    /// Adds a map or norm outside the layers, if stored.
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

    /// Adds any other entry.
    pub fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.tensors.insert(key.to_owned(), value.into());
    }

    pub fn into_tensors(self) -> Map<String, Value> {
        self.tensors
    }
}
