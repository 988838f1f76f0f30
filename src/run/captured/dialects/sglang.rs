//! Directories that SGLang writes for `--debug-tensor-dump-output-folder`: one for each rank, in which each forward pass is a file of
//! what every innermost module returned.
//!
//! Source: `python/sglang/srt/debug_utils/tensor_dump_forward_hook.py`. The outputs of the model and of the logits processor are in
//! the file of the next pass, since a pass is written before they are recorded, so that no logits are read. Layer norms return
//! what they normalise and the residual; the first returns no residual.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::captured::{Captured, names_in};
use attnscope_compute::error::{Error, Result};
use attnscope_forward::Hook;

use super::listing::{entries, has, stem};
use super::modules::{MODULES, Reads, Table};
use super::place::Port;
use super::sharded::{Shard, join};
use super::{Dialect, Opened};

pub(super) static DIALECT: Dialect = Dialect {
    name: "SGLang's tensor dump",
    is_it,
    open,
    table: &SGLANG,
};

/// Modules of SGLang. Source: `python/sglang/srt/models/llama.py`, `qwen3.py` and `gemma2.py`.
pub(super) static SGLANG: Table = Table {
    of_layer: &[
        ("input_layernorm", Port::Second, Reads::Before),
        (
            "self_attn.rotary_emb",
            Port::Output,
            Reads::Hook(Hook::RotQ),
        ),
        (
            "self_attn.rotary_emb",
            Port::Second,
            Reads::Hook(Hook::RotK),
        ),
        ("self_attn.attn", Port::Output, Reads::Hook(Hook::Z)),
    ],
    outside: &[
        ("norm", Port::Second, Reads::Last),
        ("", Port::Named("input.seq_lens"), Reads::Lengths),
    ],
    then: Some(&MODULES),
    example: "model.layers.0.self_attn.qkv_proj",
};

/// What stands between the name of the model and those of its inputs.
const BATCH: &str = ".forward_batch_info.";

/// The ranks in the name of a directory: `TP0_PP0_Rank0_pid123`.
fn ranks_of(name: &str) -> Option<(usize, usize)> {
    let (tp, rest) = name.strip_prefix("TP")?.split_once("_PP")?;
    let pp = rest.split('_').next()?;
    Some((tp.parse().ok()?, pp.parse().ok()?))
}

fn ranks_at(path: &Path) -> Option<(usize, usize)> {
    ranks_of(path.file_name()?.to_str()?).filter(|_| path.is_dir())
}

fn is_pass(path: &Path) -> bool {
    let number = stem(path).strip_prefix("Pass");
    number.is_some_and(|number| number.parse::<u64>().is_ok())
        && path.extension().is_some_and(|ending| ending == "pt")
}

fn is_it(path: &Path) -> bool {
    if path.is_dir() {
        return ranks_at(path).is_some() || has(path, |name| ranks_of(name).is_some());
    }
    is_pass(path) && names_in(path).iter().any(|name| name.contains(BATCH))
}

fn open(path: &Path) -> Result<Opened> {
    let parent = |path: &Path| path.parent().map(Path::to_path_buf);
    let given = is_pass(path)
        .then(|| path.to_path_buf())
        .filter(|_| path.is_file());
    let of_rank = match &given {
        Some(pass) => parent(pass),
        None => Some(path.to_path_buf()),
    };
    let of_rank = of_rank.filter(|directory| ranks_at(directory).is_some());
    let ranks = match (&of_rank, &given) {
        // A rank alone has only its own heads.
        (Some(rank), _) => ranks_in(&parent(rank).unwrap_or_default(), path)?,
        (None, Some(_)) => Vec::new(),
        (None, None) => ranks_in(path, path)?,
    };
    let mut files = Vec::new();
    let name = match (&given, ranks.first()) {
        (Some(pass), _) => pass
            .file_name()
            .map(Path::new)
            .unwrap_or(pass)
            .to_path_buf(),
        (None, Some((_, first))) => longest_pass(first)?,
        (None, None) => {
            return Err(Error::file(
                path,
                "expected directories TP0_PP0_…, found none",
            ));
        }
    };
    for ((tp, pp), directory) in &ranks {
        files.push((format!("{tp}.{pp}/"), directory.join(&name)));
    }
    if let (true, Some(pass)) = (ranks.is_empty(), given) {
        files.push(("0.0/".to_owned(), pass));
    }
    let mut arrays = Captured::of_files(path, &files)?;
    arrays.metadata.clear();
    let shards = arrays.names().into_iter().filter_map(shard_of).collect();
    join(&mut arrays, shards, &SGLANG)?;
    let n_ranks = files.len();
    let of = if n_ranks > 1 {
        format!(" of {n_ranks} ranks")
    } else {
        String::new()
    };
    Ok(Opened {
        arrays,
        part: Some(format!("{}{of}", name.display())),
    })
}

/// Lists the directories of ranks in a directory.
fn ranks_in(directory: &Path, path: &Path) -> Result<Vec<((usize, usize), PathBuf)>> {
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let entries = entries(directory)?.into_iter();
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some((ranks_at(&entry)?, entry)))
        .collect();
    found.sort();
    if let Some(pair) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let names = [0, 1].map(|idx| {
            pair[idx]
                .1
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        });
        let problem = format!(
            "expected one run, found {} and {}: move one of them away",
            names[0], names[1]
        );
        return Err(Error::file(path, problem));
    }
    Ok(found)
}

/// The name of the largest pass of a rank, which read the most tokens; of several, the first.
fn longest_pass(directory: &Path) -> Result<PathBuf> {
    let passes = entries(directory)?
        .into_iter()
        .filter(|entry| is_pass(entry));
    let sized = passes.map(|pass| {
        (
            std::fs::metadata(&pass).map_or(0, |about| about.len()),
            pass,
        )
    });
    let longest = sized.reduce(|best, next| if next.0 > best.0 { next } else { best });
    let name = longest.and_then(|(_, pass)| Some(PathBuf::from(pass.file_name()?)));
    name.ok_or_else(|| {
        Error::file(
            directory,
            "expected passes such as Pass00000.pt, found none",
        )
    })
}

/// The shard under a stored name: `0.0/model.layers.0.self_attn.rotary_emb.1`.
fn shard_of(stored: &str) -> Option<Shard> {
    let (ranks, name) = stored.split_once('/')?;
    let tp_rank = ranks.split('.').next()?.parse().ok()?;
    let place = match name.split_once(BATCH) {
        Some((_, input)) => format!(":input.{input}"),
        None => match name.rsplit_once('.') {
            Some((path, number @ ("0" | "1" | "2"))) => format!("{path}:output.{number}"),
            _ => format!("{name}:output"),
        },
    };
    Some(Shard {
        place,
        tp_rank,
        stored: stored.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ranks_and_arrays_are_parsed() {
        assert_eq!(ranks_of("TP3_PP1_Rank7_pid4242"), Some((3, 1)));
        assert_eq!(ranks_of("TPx_PP1"), None);
        let shard = |place: &str, tp_rank, stored: &str| {
            let (place, stored) = (place.to_owned(), stored.to_owned());
            Some(Shard {
                place,
                tp_rank,
                stored,
            })
        };
        for (stored, place) in [
            (
                "1.0/model.layers.0.self_attn.rotary_emb.1",
                "model.layers.0.self_attn.rotary_emb:output.1",
            ),
            (
                "1.0/model.layers.0.mlp.down_proj",
                "model.layers.0.mlp.down_proj:output",
            ),
            ("1.0/model.forward_batch_info.seq_lens", ":input.seq_lens"),
        ] {
            assert_eq!(shard_of(stored), shard(place, 1, stored));
        }
    }
}
