//! `attnscope schema`: JSON Schemas of the documents that commands write.

use anyhow::{Result, bail};
use attnscope_checkpoint::nearest::nearest;
use attnscope_report::{Described, Output, SCHEMAS, schema};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of a document, as in check or lab-rescale. Without it, all are listed
    name: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let text = match &args.name {
        None => list(),
        Some(name) => match schema(name) {
            Some(schema) => serde_json::to_string_pretty(&schema)? + "\n",
            None => {
                let known = SCHEMAS.iter().map(|(known, ..)| *known);
                let near = nearest(name, known);
                let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
                bail!(
                    "{name:?} is not a document that attnscope writes{near} (attnscope schema lists them)"
                );
            }
        },
    };
    Ok(Output::Stdout.write(text.as_bytes())?)
}

/// Names of all documents, and the commands that write them.
fn list() -> String {
    let width = SCHEMAS
        .iter()
        .map(|(name, ..)| name.len())
        .max()
        .unwrap_or(0);
    let line = |(name, command, _): &Described| format!("{name:<width$}  {command}\n");
    SCHEMAS.iter().map(line).collect()
}
