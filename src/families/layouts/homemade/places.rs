//! Positions of home-made models: tables, rotation by stored angles, ALiBi, or what the user is asked for.

use attnscope_checkpoint::Origin;
use serde_json::json;

use super::super::Facts;
use super::HomeMade;
use super::untold::Untold;
use super::values::holds_sines;

impl HomeMade<'_> {
    pub(super) fn positions(&self, facts: &mut Facts<'_>, untold: &mut Untold) {
        if let Some((_, name)) = &self.buffers.slopes {
            let origin = Origin::Derived(format!("shape of {name}"));
            match self.outside.positions {
                None => facts.config.put("positions", "alibi", origin),
                // Code with both may add only one of them.
                Some(_) => facts.needed("positions", "positions", &[]),
            }
            return;
        }
        if let Some(positions) = self.outside.positions {
            // Code with a table of sines often multiplies the embeddings by √d.
            if holds_sines(facts, &positions.first) {
                facts.needed("embed_scale", "embed_scale", &["embed_scale"]);
            } else {
                untold.put(facts, "embed_scale", json!(1.0), "1");
            }
            return;
        }
        if let Some(rotary) = &self.buffers.rotary {
            let origin = || Origin::Derived(format!("values of {}", rotary.name));
            facts.config.put("positions", "rotary", origin());
            facts.config.put("d_rotary", rotary.d_rotary, origin());
            match rotary.theta {
                Some(theta) => facts.config.put("rope_theta", theta, origin()),
                None => facts.needed("rope_theta", "rope_theta", &[]),
            }
            match rotary.interleaved {
                Some(is) => facts.config.put("rope_interleaved", is, origin()),
                None => untold.put(facts, "rope_interleaved", json!(false), "false"),
            }
            return;
        }
        if facts.overrides.has("positions") {
            if facts.overrides.word("positions") == Some("rotary") {
                Self::rotate(facts, untold);
            }
            return;
        }
        if self.is_without_residual() || self.parts.gate.is_none() {
            facts.needed("positions", "positions", &[]);
            return;
        }
        untold.put(facts, "positions", json!("rotary"), "rotary");
        Self::rotate(facts, untold);
    }

    fn rotate(facts: &mut Facts<'_>, untold: &mut Untold) {
        untold.put(facts, "rope_theta", json!(10_000.0), "10000");
        untold.put(facts, "rope_interleaved", json!(false), "false");
    }
}
