//! Settings that neither names nor shapes tell: what is taken for them, and the remark that says so.

use attnscope_checkpoint::Origin;
use serde_json::Value;

use super::super::Facts;

/// Settings that were taken as is usual.
#[derive(Debug, Default)]
pub struct Untold {
    taken: Vec<(&'static str, String)>,
    of_model: Option<f64>,
}

impl Untold {
    /// Takes a value for a setting, unless the user set it.
    pub fn put(&mut self, facts: &mut Facts<'_>, key: &'static str, value: Value, shown: &str) {
        if facts.overrides.has(key) {
            return;
        }
        let origin = Origin::Derived("what is usual: names and shapes do not tell".to_owned());
        facts.config.put(key, value, origin);
        self.name(key, shown);
    }

    /// Notes a setting whose value is put elsewhere.
    pub fn name(&mut self, key: &'static str, shown: &str) {
        self.taken.push((key, shown.to_owned()));
    }

    /// Notes the scale of scores, which some code takes from the width of the model.
    pub fn scale(&mut self, of_model: f64) {
        self.name("scale", "inv_sqrt_d");
        self.of_model = Some(of_model);
    }

    /// The remark on all of them.
    pub fn remark(&self, is_of_pictures: bool) -> Option<String> {
        if self.taken.is_empty() {
            return None;
        }
        let taken: Vec<String> = self
            .taken
            .iter()
            .map(|(key, shown)| format!("{key}={shown}"))
            .collect();
        let example = match self.of_model {
            Some(of_model) => {
                let digits = format!("{of_model:.7}");
                let digits = digits.trim_end_matches('0');
                format!("--set scale={digits} if the code divides scores by √d_model")
            }
            None => {
                let (key, _) = self.taken[0];
                format!("--set {key}=…")
            }
        };
        let tested = if is_of_pictures {
            ""
        } else {
            ". attnscope check on text that the model was trained on (trained-otherwise) tests this reading, and what code may do wrong, such as softmax_axis=queries"
        };
        Some(format!(
            "read by names and shapes, which do not tell some settings; taken as usual: {}. Change what the code does otherwise: {example}{tested}",
            taken.join(", ")
        ))
    }
}
