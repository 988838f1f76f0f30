//! Puts the arrays of tensor-parallel ranks together.
//!
//! Heads are divided among ranks, so that queries, keys, values and z of the ranks follow one another. Ranks with fewer key heads than
//! ranks repeat them. What the attention and the feed-forward layer add is summed before it is recorded, and equal on all ranks.

use std::collections::BTreeMap;

use attnscope_checkpoint::captured::{Captured, Part};
use attnscope_compute::error::Result;
use attnscope_forward::Hook;

use super::modules::{Reads, Table};
use super::place::Place;

/// An array of one rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shard {
    /// The name by module and port, which ranks share.
    pub place: String,
    pub tp_rank: usize,
    /// Its name among the arrays of all files.
    pub stored: String,
}

/// Gives the arrays of all ranks their common names, and joins those that are divided.
///
/// # Errors
/// When the shards of an array do not fit together.
pub(super) fn join(arrays: &mut Captured, shards: Vec<Shard>, table: &Table) -> Result<()> {
    let mut by_place: BTreeMap<String, BTreeMap<usize, String>> = BTreeMap::new();
    for Shard {
        place,
        tp_rank,
        stored,
    } in shards
    {
        by_place
            .entry(place)
            .or_default()
            .entry(tp_rank)
            .or_insert(stored);
    }
    let n_tokens = n_tokens(arrays, &by_place, table);
    let mut joining = Joining {
        arrays,
        n_tokens,
        z_widths: BTreeMap::new(),
        kept_keys: None,
    };
    for (name, of_ranks) in &by_place {
        if reads_of(name, table) == Some(Reads::Hook(Hook::Z)) {
            joining.remember_z(name, of_ranks);
        }
    }
    for (name, of_ranks) in &by_place {
        let Some(reads) = reads_of(name, table) else {
            continue;
        };
        joining.add(name, reads, of_ranks)?;
    }
    for stored in by_place.values().flat_map(BTreeMap::values) {
        arrays.forget(stored);
    }
    Ok(())
}

fn reads_of(name: &str, table: &Table) -> Option<Reads> {
    let place = Place::parse(name)?;
    let found = table.reads(place.module, place.port, place.layer_idx.is_some());
    found.map(|(reads, ..)| reads)
}

fn n_tokens(
    arrays: &Captured,
    by_place: &BTreeMap<String, BTreeMap<usize, String>>,
    table: &Table,
) -> Option<usize> {
    let mut all = by_place.iter();
    let (_, of_ranks) = all.find(|(name, _)| reads_of(name, table) == Some(Reads::Tokens))?;
    arrays.shape(of_ranks.values().next()?)?.last().copied()
}

struct Joining<'a> {
    arrays: &'a mut Captured,
    n_tokens: Option<usize>,
    /// Width of z by layer and rank.
    z_widths: BTreeMap<(String, usize), usize>,
    /// The ranks whose keys and values are not those of the rank before.
    kept_keys: Option<Vec<usize>>,
}

impl Joining<'_> {
    fn remember_z(&mut self, name: &str, of_ranks: &BTreeMap<usize, String>) {
        for (rank, stored) in of_ranks {
            let shape = self.arrays.shape(stored).unwrap_or_default();
            let width = shape.iter().skip(1).product();
            self.z_widths.insert((layer_of(name), *rank), width);
        }
    }

    fn add(&mut self, name: &str, reads: Reads, of_ranks: &BTreeMap<usize, String>) -> Result<()> {
        let first = of_ranks
            .values()
            .next()
            .map(String::as_str)
            .unwrap_or_default();
        match reads {
            Reads::Hook(Hook::Q | Hook::RotQ | Hook::Z) => {
                let parts = self.flat(of_ranks);
                self.arrays.define(name, &parts)
            }
            Reads::Hook(Hook::K | Hook::V | Hook::RotK) => {
                let parts = self.flat(of_ranks);
                let parts = self.without_repeated(parts)?;
                self.arrays.define(name, &parts)
            }
            Reads::Fused if of_ranks.len() > 1 => self.fused(name, of_ranks),
            // Which columns a rank has is told by nothing.
            Reads::FusedSomehow if of_ranks.len() > 1 => Ok(()),
            _ => self.arrays.define(name, &[Part::whole(first)]),
        }
    }

    /// The shards as [position, head · d_head], in order of ranks.
    fn flat(&mut self, of_ranks: &BTreeMap<usize, String>) -> Vec<Part> {
        for stored in of_ranks.values() {
            let shape = self.arrays.shape(stored).unwrap_or_default();
            let n = self.n_tokens.unwrap_or(0);
            let n_values: usize = shape.iter().product();
            let is_by_position = shape.len() == 2 && (n == 0 || shape[0] == n);
            if n > 0 && !is_by_position && n_values.is_multiple_of(n) {
                self.arrays.reshape(stored, &[n, n_values / n]);
            }
        }
        of_ranks
            .values()
            .map(|stored| Part::whole(stored))
            .collect()
    }

    /// Leaves out the keys or values of a rank that are bit for bit those of the rank before.
    fn without_repeated(&mut self, parts: Vec<Part>) -> Result<Vec<Part>> {
        if parts.len() < 2 {
            return Ok(parts);
        }
        let kept = match &self.kept_keys {
            Some(kept) => kept.clone(),
            None => {
                let mut kept = vec![0];
                let mut before = self.bits(&parts[0])?;
                for (idx, part) in parts.iter().enumerate().skip(1) {
                    let own = self.bits(part)?;
                    if own != before {
                        kept.push(idx);
                    }
                    before = own;
                }
                self.kept_keys = Some(kept.clone());
                kept
            }
        };
        Ok(kept
            .iter()
            .filter_map(|idx| parts.get(*idx).cloned())
            .collect())
    }

    fn bits(&mut self, part: &Part) -> Result<Vec<u32>> {
        const TRIED: &str = ":tried";
        self.arrays.define(TRIED, std::slice::from_ref(part))?;
        let array = self.arrays.array(TRIED);
        self.arrays.forget(TRIED);
        Ok(array?.values.into_iter().map(f32::to_bits).collect())
    }

    /// Divides each rank's own queries, keys and values, and joins them.
    fn fused(&mut self, name: &str, of_ranks: &BTreeMap<usize, String>) -> Result<()> {
        let mut joined: [Vec<Part>; 3] = Default::default();
        for (rank, stored) in of_ranks {
            let shape = self.arrays.shape(stored).unwrap_or_default();
            let width = shape.last().copied().unwrap_or(0);
            let of_q = self.z_widths.get(&(layer_of(name), *rank)).copied();
            let of_q = of_q.filter(|of_q| *of_q < width && (width - of_q).is_multiple_of(2));
            let Some(of_q) = of_q else {
                let problem = format!(
                    "expected queries, keys and values beside an output of the attention, found {width} columns"
                );
                return Err(self.arrays.at(stored, &problem));
            };
            let ends = [0, of_q, of_q + (width - of_q) / 2, width];
            for (idx, parts) in joined.iter_mut().enumerate() {
                let columns = Some(ends[idx]..ends[idx + 1]);
                parts.push(Part {
                    columns,
                    ..Part::whole(stored)
                });
            }
        }
        let path = name.rsplit_once('.').map_or("", |(path, _)| path);
        let [q, k, v] = joined;
        self.arrays.define(&format!("{path}.q_proj:output"), &q)?;
        for (own, parts) in [("k_proj", k), ("v_proj", v)] {
            let parts = self.without_repeated(parts)?;
            self.arrays
                .define(&format!("{path}.{own}:output"), &parts)?;
        }
        Ok(())
    }
}

/// What stands before the module in a name: the layer.
fn layer_of(name: &str) -> String {
    let place = Place::parse(name);
    let n = place.map_or(0, |place| name.rfind(place.module).unwrap_or(0));
    name[..n].to_owned()
}
