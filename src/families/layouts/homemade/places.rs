//! Positions of home-made models: tables, rotation by stored angles, ALiBi, or what the user is asked for.

use attnscope_checkpoint::Origin;
use attnscope_compute::error::Result;
use serde_json::json;

use super::super::Facts;
use super::HomeMade;
use super::untold::Untold;
use super::values::holds_sines;

impl HomeMade<'_> {
    /// # Errors
    /// When a model of pictures has no table of positions, and nobody says which it adds.
    pub(super) fn positions(&self, facts: &mut Facts<'_>, untold: &mut Untold) -> Result<()> {
        if self.pictures.is_some() {
            return self.positions_of_pictures(facts);
        }
        if let Some((_, name)) = &self.buffers.slopes {
            let origin = Origin::Derived(format!("shape of {name}"));
            match self.outside.positions {
                None => facts.config.put("positions", "alibi", origin),
                // Code with both may add only one of them.
                Some(_) => facts.needed("positions", "positions", &[]),
            }
            return Ok(());
        }
        if let Some(positions) = self.outside.positions {
            // Code with a table of sines often multiplies the embeddings by √d.
            if holds_sines(facts, &positions.first) {
                facts.needed("embed_scale", "embed_scale", &["embed_scale"]);
            } else {
                untold.put(facts, "embed_scale", json!(1.0), "1");
            }
            return Ok(());
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
            return Ok(());
        }
        if facts.overrides.has("positions") {
            if facts.overrides.word("positions") == Some("rotary") {
                Self::rotate(facts, untold);
            }
            return Ok(());
        }
        if self.is_without_residual() || self.parts.gate.is_none() {
            facts.needed("positions", "positions", &[]);
            return Ok(());
        }
        untold.put(facts, "positions", json!("rotary"), "rotary");
        Self::rotate(facts, untold);
        Ok(())
    }

    /// A table, or what the user says: rotations and slopes may count rows and columns.
    fn positions_of_pictures(&self, facts: &Facts<'_>) -> Result<()> {
        let rotary = self.buffers.rotary.as_ref().map(|rotary| &rotary.name);
        let slopes = self.buffers.slopes.as_ref().map(|(_, name)| name);
        if let Some(name) = rotary.or(slopes) {
            let problem = "positions of pictures that turn, or that are added to scores, are read by a description alone: [tensors] in attnscope.toml";
            return Err(facts.at(name, problem.to_owned()));
        }
        if self.outside.positions.is_some() || facts.overrides.has("positions") {
            return Ok(());
        }
        let problem = "no table of positions is stored beside it; code that computes sines of rows and columns, as SimpleViT does, is not read. \
                       If the code adds none, --set positions=none says so; --set positions=sines adds those of a sequence";
        Err(facts.at(&self.outside.tokens.first, problem.to_owned()))
    }

    fn rotate(facts: &mut Facts<'_>, untold: &mut Untold) {
        untold.put(facts, "rope_theta", json!(10_000.0), "10000");
        untold.put(facts, "rope_interleaved", json!(false), "false");
    }
}
