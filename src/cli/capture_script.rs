//! `attnscope capture-script`: the Python half, for models that are not a checkpoint yet.

use anyhow::Result;
use attnscope_report::Output;

/// One file that needs torch alone.
const SCRIPT: &str = include_str!("../capture/attnscope_capture.py");

pub fn run() -> Result<()> {
    Ok(Output::Stdout.write(SCRIPT.as_bytes())?)
}
