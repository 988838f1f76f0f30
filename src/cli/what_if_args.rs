//! `--what-if KEY=VALUE[@PLACE,…]`: changes the attention of a model.

use anyhow::Result;
use attnscope_run::{WHAT_IF_KEYS, WhatIf, with_what_ifs};
use attnscope_spec::Model;

use super::progress::note;

/// What is supposed of a model.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct WhatIfArgs {
    /// Run the model with another attention: scale=none, softmax_axis=queries@L3, drop=zero@L3H5, …
    #[arg(long, value_name = "KEY=VALUE[@PLACE,…]", value_parser = read, long_help = help())]
    what_if: Vec<WhatIf>,
}

impl WhatIfArgs {
    /// Applies the what-ifs to a model, and prints a note.
    ///
    /// # Errors
    /// When the model has no such place, or a change is impossible there.
    pub fn apply(&self, model: Model) -> Result<Model> {
        if self.what_if.is_empty() {
            return Ok(model);
        }
        let spec = with_what_ifs(&model.spec, &self.what_if)?;
        note(&format!(
            "what if {}: this is not the checkpoint as it is",
            self.words().join(", ")
        ));
        Ok(model.with_spec(spec))
    }

    /// Returns the what-ifs as the user wrote them.
    pub fn words(&self) -> Vec<String> {
        self.what_if.iter().map(WhatIf::to_string).collect()
    }

    /// Returns the parsed what-ifs.
    pub fn all(&self) -> &[WhatIf] {
        &self.what_if
    }

    pub fn is_set(&self) -> bool {
        !self.what_if.is_empty()
    }
}

fn read(text: &str) -> Result<WhatIf, String> {
    text.parse()
}

/// Help for every key, from the table that reads them.
fn help() -> String {
    let keys: Vec<String> = WHAT_IF_KEYS
        .iter()
        .map(|(key, takes, does)| format!("  {key}={takes}\n      {does}"))
        .collect();
    format!(
        "Run the model with another attention; may be repeated. A place is L3, L3H5, encoder.L3H5 or cross.L3; without one it holds everywhere.\n{}",
        keys.join("\n")
    )
}
