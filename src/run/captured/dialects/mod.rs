//! Dumps of inference engines and debuggers, read as traces.
//!
//! A dialect finds the files of a dump and names each array by the module that gave it: `model.layers.3.self_attn.q_proj:output`.
//! Its table says which hook that is, and [`assemble`] gives the hooks their names. What reads traces does the rest.

mod assemble;
mod edge_llm;
mod fused;
mod listing;
mod llama_cpp;
mod modules;
mod onnx;
mod place;
mod saved;
mod sglang;
mod sglang_dumper;
mod sharded;
mod transformers;

use std::path::Path;

use attnscope_checkpoint::captured::Captured;
use attnscope_compute::error::{Error, Result};
use attnscope_forward::Hook;

use self::modules::Table;

/// Key of the metadata that says which dump a trace comes from, and what was read of it.
pub(super) const ABOUT: &str = "attnscope.dump";

/// A kind of dump.
struct Dialect {
    /// What messages call it.
    name: &'static str,
    /// Whether a path holds such a dump, by what is in it.
    is_it: fn(&Path) -> bool,
    /// Reads the arrays, named by module and port.
    open: fn(&Path) -> Result<Opened>,
    table: &'static Table,
}

/// Arrays of a dump under the names of modules.
struct Opened {
    arrays: Captured,
    /// Which part of the dump was read, if it has several.
    part: Option<String>,
}

impl From<Captured> for Opened {
    fn from(arrays: Captured) -> Self {
        Self { arrays, part: None }
    }
}

/// The kinds of dumps; the first that fits is taken.
static DIALECTS: [&Dialect; 7] = [
    &transformers::DIALECT,
    &sglang::DIALECT,
    &sglang_dumper::DIALECT,
    &edge_llm::DIALECT,
    &onnx::DIALECT,
    &saved::DIALECT,
    &llama_cpp::DIALECT,
];

/// Opens a trace or a dump. The arrays of a dump get the names of hooks, and what has no hook is left out.
///
/// # Errors
/// When a file cannot be read or does not have the format of its extension, or a dump has no hook, or no whole pass.
pub fn open(path: &Path) -> Result<Captured> {
    match of(path) {
        Some(dialect) => {
            let opened = (dialect.open)(path)?;
            assemble::assemble(opened, dialect)
        }
        None => Captured::open(path),
    }
}

/// Whether a path holds a dump.
pub fn is_dump(path: &Path) -> bool {
    of(path).is_some()
}

fn of(path: &Path) -> Option<&'static Dialect> {
    DIALECTS.into_iter().find(|dialect| (dialect.is_it)(path))
}

/// Whether a trace is judged by a hook. Dumps have queries and keys as the projections give them, not as they enter the scores.
pub(super) fn is_judged(captured: &Captured, hook: Hook) -> bool {
    !captured.metadata.contains_key(ABOUT)
        || matches!(hook, Hook::Pattern | Hook::Scores | Hook::ResidPost)
}

/// Which dump a trace comes from and what was read of it; `None` for traces.
pub fn about(captured: &Captured) -> Option<&str> {
    captured.metadata.get(ABOUT).map(String::as_str)
}

fn nothing_found(path: &Path, dialect: &Dialect, found: &[String]) -> Error {
    let found = found.iter().take(3).map(String::as_str);
    let found = found.collect::<Vec<_>>().join(", ");
    let problem = format!(
        "{}: expected outputs of attention layers such as {}, found {found}",
        dialect.name, dialect.table.example
    );
    Error::file(path, problem)
}
