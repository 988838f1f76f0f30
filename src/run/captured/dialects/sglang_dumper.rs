//! Directories of SGLang's `dumper` (`DUMPER_ENABLE=1`): one file for each tensor, whose name says what it is, of which rank and step:
//! `step=0___rank=0___dump_index=7___name=non_intrusive__model.layers.0.self_attn.qkv_proj.output___….pt`.
//!
//! Source: `python/sglang/srt/debug_utils/dumper.py`. A file has the tensor as `value`, and beside it `meta` with the same tags and
//! with the tensor-parallel rank.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::captured::Captured;
use attnscope_compute::error::{Error, Result};

use super::listing::{entries, has, stem};
use super::place::Place;
use super::sglang::SGLANG;
use super::sharded::{Shard, join};
use super::{Dialect, Opened};

pub(super) static DIALECT: Dialect = Dialect {
    name: "SGLang's dumper",
    is_it,
    open,
    table: &SGLANG,
};

/// What stands between the tags of a name.
const BETWEEN: &str = "___";
/// What stands before the names of modules.
const OF_MODULES: &str = "non_intrusive__";
/// Where a file says which tensor-parallel rank wrote it.
const TP_RANK: [&str; 2] = ["meta.sglang_parallel_info.tp_rank", "meta.rank"];

/// The tags of a file that are needed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tags<'a> {
    step: u64,
    rank: usize,
    dump_index: u64,
    name: &'a str,
}

impl<'a> Tags<'a> {
    fn of(stem: &'a str) -> Option<Self> {
        let tags: BTreeMap<&str, &str> = stem
            .split(BETWEEN)
            .filter_map(|tag| tag.split_once('='))
            .collect();
        Some(Self {
            step: tags.get("step")?.parse().ok()?,
            rank: tags.get("rank")?.parse().ok()?,
            dump_index: tags.get("dump_index")?.parse().ok()?,
            name: tags.get("name")?,
        })
    }
}

fn is_it(path: &Path) -> bool {
    let is_file = |name: &str| {
        name.strip_suffix(".pt")
            .is_some_and(|stem| Tags::of(stem).is_some())
    };
    path.is_dir() && has(path, is_file)
}

fn open(path: &Path) -> Result<Opened> {
    let all = entries(path)?;
    let is_torch = |file: &&PathBuf| file.extension().is_some_and(|ending| ending == "pt");
    let mut files: Vec<(Tags<'_>, &PathBuf)> = all
        .iter()
        .filter(is_torch)
        .filter_map(|file| Some((Tags::of(stem(file))?, file)))
        .filter(|(tags, _)| place_of(tags.name).is_some_and(|place| is_read(&place)))
        .collect();
    files.sort();
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for (tags, file) in &files {
        let size = std::fs::metadata(file).map_or(0, |about| about.len());
        *sizes.entry(tags.step).or_default() += size;
    }
    // The step with the most values read the most tokens; of several, the first.
    let longest = sizes.iter().rev().max_by_key(|(_, size)| **size);
    let Some((step, _)) = longest else {
        let problem = "SGLang's dumper: expected outputs of attention layers, found others: record them with DUMPER_NON_INTRUSIVE_MODE=all";
        return Err(Error::file(path, problem));
    };
    let chosen: Vec<_> = files
        .iter()
        .filter(|(tags, _)| tags.step == *step)
        .collect();
    let prefixed: Vec<(String, PathBuf)> = chosen
        .iter()
        .enumerate()
        .map(|(idx, (_, file))| (format!("{idx}/"), (*file).clone()))
        .collect();
    let mut arrays = Captured::of_files(path, &prefixed)?;
    let mut shards = Vec::new();
    for (idx, (tags, _)) in chosen.iter().enumerate() {
        let stored = format!("{idx}/value");
        let mut said = TP_RANK
            .iter()
            .filter_map(|key| arrays.metadata.get(&format!("{idx}/{key}")));
        let tp_rank = said.find_map(|rank| rank.parse().ok()).unwrap_or(tags.rank);
        if let Some(place) = place_of(tags.name).filter(|_| arrays.contains(&stored)) {
            shards.push(Shard {
                place,
                tp_rank,
                stored,
            });
        }
    }
    arrays.metadata.clear();
    join(&mut arrays, shards, &SGLANG)?;
    Ok(Opened {
        arrays,
        part: Some(format!("step {step}")),
    })
}

fn is_read(place: &str) -> bool {
    let place = Place::parse(place);
    place.is_some_and(|place| {
        SGLANG
            .reads(place.module, place.port, place.layer_idx.is_some())
            .is_some()
    })
}

/// The name by module and port.
fn place_of(name: &str) -> Option<String> {
    let Some(name) = name.strip_prefix(OF_MODULES) else {
        return Some(format!(":input.{name}"));
    };
    for (own, port) in [("output", "output"), ("inputs", "input")] {
        if let Some(path) = name
            .strip_suffix(own)
            .and_then(|path| path.strip_suffix('.'))
        {
            return Some(format!("{path}:{port}"));
        }
        if let Some((path, rest)) = name.rsplit_once(&format!(".{own}.")) {
            return Some(format!("{path}:{port}.{rest}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_become_modules_and_ports() {
        let of = "step=2___rank=1___dump_index=9___name=non_intrusive__model.layers.0.self_attn.rotary_emb.output.1___recompute_status=disabled___layer_id=0";
        let tags = Tags::of(of).expect("tags");
        assert_eq!((tags.step, tags.rank, tags.dump_index), (2, 1, 9));
        let place = place_of(tags.name);
        assert_eq!(
            place.as_deref(),
            Some("model.layers.0.self_attn.rotary_emb:output.1")
        );
        assert_eq!(place_of("input_ids").as_deref(), Some(":input.input_ids"));
        assert_eq!(Tags::of("step=2___name=x"), None);
    }
}
