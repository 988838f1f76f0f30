//! Describes a model of the hub by the headers of its weights, before they are downloaded.

use std::path::Path;

use attnscope_checkpoint::counted::counted;
use attnscope_checkpoint::hub::{Address, Cache, Hub};
use attnscope_checkpoint::machine::{available_memory, mebibytes};
use attnscope_checkpoint::{Checkpoint, Opening};
use attnscope_compute::error::{Error, Result};
use attnscope_forward::{Input, Sequence};
use attnscope_run::MemoryNeed;
use attnscope_spec::{Model, ModelSpec, Stack};
use attnscope_system::fetch::Repository;

use super::progress;

/// Most tokens of the run whose memory is estimated.
const N_TOKENS: usize = 1024;

/// Downloads a model, and first prints what the headers of its weights say.
///
/// # Errors
/// When the hub refuses, a header does not describe its file, or the disk cannot be written.
pub fn fetch(address: &Address, cache: &Cache) -> Result<std::path::PathBuf> {
    let repository = Repository::find(address, cache)?;
    if let Some(directory) = repository.headers()? {
        let lines = describe(&directory, &address.repository);
        lines.iter().for_each(|line| progress::note(line));
    }
    repository.fetch()
}

/// Reads the headers of a model's weights, and returns a directory of files that have no more than these.
///
/// # Errors
/// As for [`fetch`], and when the weights are of another format than safetensors.
pub fn only_headers(address: &Address, cache: &Cache) -> Result<std::path::PathBuf> {
    let directory = Repository::find(address, cache)?.headers()?;
    directory.ok_or_else(|| {
        let problem = "its tensors are listed in no header that could be read without its weights (only safetensors have one); \
             attnscope report downloads it";
        Error::file(&address.repository, problem)
    })
}

/// Describes a model in lines. What cannot be read of it is left out: whoever needs it says why.
fn describe(directory: &Path, name: &str) -> Vec<String> {
    let opening = Opening {
        // The base of an adapter is another model.
        hub: Hub { fetch: None },
        ..Opening::from(Some(directory.to_path_buf()))
    };
    let checkpoint = match opening.open() {
        Ok(checkpoint) => checkpoint,
        Err(e) => {
            log::info!("{name}: its headers do not open as a model: {e}");
            return Vec::new();
        }
    };
    let mut lines = vec![format!("{name}: {}", of_tensors(&checkpoint))];
    match attnscope_families::read(checkpoint) {
        Ok(model) => {
            lines.push(format!("{name}: {}", of_sizes(&model.spec)));
            lines.push(format!("{name}: {}", of_memory(&model)));
        }
        Err(e) => log::info!("{name}: its headers do not describe a model: {e}"),
    }
    lines
}

fn of_tensors(checkpoint: &Checkpoint) -> String {
    let tensors = &checkpoint.tensors;
    let stored = tensors.iter().filter(|(_, info)| info.dtype.is_float());
    let n_numbers: usize = stored
        .map(|(_, info)| info.shape.iter().product::<usize>())
        .sum();
    let n_bytes: usize = tensors.iter().map(|(_, info)| info.n_bytes()).sum();
    format!(
        "{} of {:.1} million numbers ({}) to download, {} in {}",
        counted(tensors.len(), "tensor"),
        n_numbers as f64 / 1e6,
        checkpoint.dtype_label(),
        mebibytes(n_bytes as u64),
        counted(tensors.files().count(), "file"),
    )
}

fn of_sizes(spec: &ModelSpec) -> String {
    let of_grid = |grid: Stack| {
        let n_layers = spec.n_layers(grid);
        let heads = (0..n_layers).map(|layer_idx| spec.n_heads(grid, layer_idx));
        let most = heads.max().unwrap_or(0);
        let label = grid
            .label()
            .map_or(String::new(), |label| format!("{label} "));
        format!(
            "{label}{} of {}",
            counted(n_layers, "layer"),
            counted(most, "head")
        )
    };
    let grids: Vec<String> = spec.grids().into_iter().map(of_grid).collect();
    let n_ctx = spec.n_ctx.map_or(String::new(), |n| format!(", n_ctx {n}"));
    format!(
        "{}: {}, d_model {}, d_vocab {}{n_ctx}",
        spec.family,
        grids.join(", "),
        spec.d_model,
        spec.d_vocab
    )
}

fn of_memory(model: &Model) -> String {
    let n = model.spec.n_ctx.unwrap_or(N_TOKENS).min(N_TOKENS);
    let input = Input {
        source: None,
        sequence: Sequence::of_text(vec![0; n], (0..n).collect()),
    };
    let need = MemoryNeed::on_screen(model, &input, rayon::current_num_threads());
    let free = available_memory().map_or(String::new(), |free| {
        format!("; {} are free", mebibytes(free))
    });
    format!(
        "{} need about {} of memory{free}",
        counted(n, "token"),
        mebibytes(need.total() as u64)
    )
}
